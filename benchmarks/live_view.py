"""How long `xtx watch` takes to show many runs: until the first page, until all runs are on it, and for another page.

    python benchmarks/live_view.py [--runs 1500] [--episodes 200] [--keep FOLDER]

Makes that many small run folders (12 games, 2 agents), starts `xtx watch --no-walkthroughs` on them, and asks for pages
as a browser does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict
from pathlib import Path

from xtx.config.settings import DrrnSettings, RunConfig, make_xtx_settings
from xtx.core import EpisodeRecord

GAMES = (
    "zork1", "zork3", "library", "detective", "ludicorp", "deephome", "pentari", "balances", "temple", "dragon",
    "enchanter", "omniquest",
)  # fmt: skip
SETTINGS = {"xtx": asdict(make_xtx_settings()), "drrn": asdict(DrrnSettings())}
EPISODE_STEPS = 100


def write_run(folder: Path, game: str, agent: str, seed: int, episodes: int) -> None:
    """The folder of a finished run."""
    (folder / "checkpoints").mkdir(parents=True)
    steps = episodes * EPISODE_STEPS
    config = RunConfig(game=game, agent=agent, settings=SETTINGS[agent], seed=seed, steps=steps)
    (folder / "config.json").write_text(json.dumps(asdict(config)))
    draw = random.Random(f"{game} {agent} {seed}")
    best, lines = -1, []
    for number in range(1, episodes + 1):
        score = draw.randrange(50)
        record, best = score > best, max(score, best)
        actions = ["north"] * 20 if record else []
        episode = EpisodeRecord(
            number, number * EPISODE_STEPS, number % 8, score, score, EPISODE_STEPS, "limit", 12, record=record,
            actions=actions,
        )  # fmt: skip
        lines.append(json.dumps(asdict(episode)) + "\n")
    (folder / "episodes.jsonl").write_text("".join(lines))
    marks = range(steps // 10, steps + 1, steps // 10)
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in marks))
    timing = (json.dumps({"step": step, "time": 1e9 + step / 100}) + "\n" for step in marks)
    (folder / "timing.jsonl").write_text("".join(timing))
    start = {"started": "2001-09-09T01:46:40+0000", "python": "3.11", "packages": {"torch": "2.6"}}
    (folder / "versions.json").write_text(json.dumps([start]))
    (folder / "checkpoints" / f"{steps:010d}").touch()


def make_runs(folder: Path, runs: int, episodes: int) -> None:
    """So many runs, with as many seeds as it takes."""
    kinds = [(game, agent) for game in GAMES for agent in SETTINGS]
    for number in range(runs):
        game, agent = kinds[number % len(kinds)]
        seed = number // len(kinds)
        write_run(folder / f"{game}-{agent}-{seed}", game, agent, seed, episodes)


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=600) as answer:
        return str(answer.read().decode("utf-8"))


def measure(folder: Path, runs: int) -> None:
    """Prints a table."""
    words = [sys.executable, "-m", "xtx.cli", "watch", str(folder), "--port", "0", "--no-walkthroughs"]
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.findall(r"http://\S+", server.stdout.readline())[0]
            print(f"{'server started':30} {time.perf_counter() - began:6.1f} s")
            asked = time.perf_counter()
            page = get(address)
            print(f"{'first page':30} {time.perf_counter() - asked:6.1f} s  {len(page) / 1e6:.2f} MB")
            while f" of {runs:,}<" not in page or "are being read" in page:
                time.sleep(1)
                page = get(address)
            print(f"{f'all {runs:,} runs read':30} {time.perf_counter() - asked:6.1f} s  {len(page) / 1e6:.2f} MB")
            asked = time.perf_counter()
            page = get(f"{address}/?page=2")
            print(f"{'second page':30} {time.perf_counter() - asked:6.1f} s  {len(page) / 1e6:.2f} MB")
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1500)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="make the runs in this folder, and leave them there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not options.keep or not any(folder.glob("*")):
            make_runs(folder, options.runs, options.episodes)
        measure(folder, options.runs)


if __name__ == "__main__":
    main()
