"""Writes digests of what a change of names, files or layout must leave as it is.

    XTX_GAMES=../shared/games .venv/bin/python tests/behaviour_digests.py before.json    # on one commit
    XTX_GAMES=../shared/games .venv/bin/python tests/behaviour_digests.py after.json     # on another
    cmp before.json after.json

Covers metrics and episodes of a short run of each agent, the valid actions and keys of states along walkthroughs, the
survey of two stories, a report and an export. The last bits of sums depend on the processor and on the versions of
torch and NumPy, so compare files of one machine only. The file holds hashes and counts, no text of any story. All
games take about 5 minutes; `--small` covers the embedded adventure and the toy world alone, in about 20 seconds.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from xtx.games.canonical.survey import survey_layout
from xtx.games.catalog.known_games import find_story
from xtx.games.emulator.frotz import Emulator
from xtx.games.story_game import GameSpec, StoryGame

AGENTS = ("xtx", "xtx-plus", "xtx-uniform", "inv-dy", "drrn", "rc-dqn", "mprc-dqn", "random", "walkthrough")
REAL_RUNS = (
    ("zork1", "xtx-plus", ()),
    ("zork1", "drrn", ()),
    ("zork1", "inv-dy", ("--stochastic",)),
    ("zork1", "mprc-dqn", ("--stochastic",)),
    ("deephome", "xtx", ("--extra-actions",)),
)
SMALL_XTX = (
    *("--q.hidden", "16", "--q.batch-size", "16", "--text.vocabulary", "512", "--text.longest", "64"),
    *("--imitation.width", "16", "--imitation.layers", "1", "--imitation.heads", "2", "--imitation.passes", "2"),
    *("--first-training", "40", "--explore-steps", "8"),
)
SMALL_Q = ("--q.hidden", "16", "--q.batch-size", "16", "--text.vocabulary", "512", "--text.longest", "64")
STORIES = (
    *("zork1", "zork3", "deephome", "detective", "enchanter", "balances", "library", "ludicorp"),
    *("omniquest", "pentari", "temple", "trinity"),
)
STATES = 25


def digest(content: bytes) -> str:
    """The first half of a SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def xtx(folder: Path, *words: str) -> None:
    """Runs a command in a folder. Paths in its output are relative, so they are the same every time."""
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "100"}
    command = [sys.executable, "-m", "xtx.cli", *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def settings_of(agent: str) -> tuple[str, ...]:
    """Options that make an agent small enough for some hundred steps in some seconds."""
    if agent.startswith("xtx"):
        return SMALL_XTX
    return SMALL_Q if agent in ("drrn", "inv-dy") else ()


def train(folder: Path, name: str, game: str, agent: str, steps: int, *words: str) -> dict[str, str]:
    """Trains an agent; gives the digests of its run's lines."""
    means = ("--threads", "1", "--device", "cpu", "--quiet", "--workers", "1", "--atlas", "atlas")
    options = ("--steps", str(steps), "--log-every", "5", *settings_of(agent), *means, *words)
    xtx(folder, "train", game, "--agent", agent, "--out", f"runs/{name}", *options)
    run = folder / "runs" / name
    lines = {file: run / f"{file}.jsonl" for file in ("metrics", "episodes", "rooms")}
    return {file: digest(path.read_bytes()) if path.exists() else "" for file, path in lines.items()}


def states_of(path: str, number: int) -> Iterator[str]:
    """Digests of states along a walkthrough, each by its observation, its valid actions and its key, found anew."""
    game = StoryGame(GameSpec(path))
    observation = game.reset()
    for action in game.emulator.bindings.walkthrough[:number]:
        shown = json.dumps([observation.text, observation.look, observation.inventory, observation.actions])
        yield digest(shown.encode() + game.here)
        step = game.step(action)
        observation = step.observation
        if step.terminated:
            break
    game.close()


def survey_of(path: str) -> str:
    """The digest of a story's layout, found anew."""
    return digest(msgspec.msgpack.encode(survey_layout(Emulator(find_story(path)))))


def outputs_of(folder: Path) -> dict[str, str]:
    """Digests of a report as tables and of an export. Speeds and times are left out of the report's data."""
    xtx(folder, "report", "runs", "--no-walkthroughs", "--out", "report.csv")
    with (folder / "report.csv").open(newline="") as file:
        lines = [[value for name, value in line.items() if name != "seconds"] for line in csv.DictReader(file)]
    first = min(path.name for path in (folder / "runs").iterdir() if "xtx" in path.name)
    xtx(folder, "export", f"runs/{first}", "--out", "export.jsonl", "--atlas", "atlas")
    return {"report": digest(json.dumps(lines).encode()), "export": digest((folder / "export.jsonl").read_bytes())}


def measure(folder: Path, small: bool) -> dict[str, Any]:
    """All digests, by name."""
    found: dict[str, Any] = {"runs": {}, "states": {}, "surveys": {}}

    def note(group: str, name: str, value: Any) -> None:
        found[group][name] = value
        print(f"{group} {name}", file=sys.stderr, flush=True)

    agents = ("xtx-plus", "drrn", "random") if small else AGENTS
    for agent in agents:
        steps = 80 if "rc-dqn" in agent else 320
        game = "toy:corridor-5" if small and agent == "drrn" else "lowwater"
        note("runs", f"lowwater-{agent}", train(folder, f"lowwater-{agent}", game, agent, steps))
    for game, agent, words in () if small else REAL_RUNS:
        name = f"{game}-{agent}-{'-'.join(words).strip('-')}"
        note("runs", name, train(folder, name, game, agent, 80 if "rc-dqn" in agent else 160, *words))
    for story in ("",) if small else ("", *STORIES):
        path = str(find_story(story or "lowwater").path)
        note("states", story or "lowwater", list(states_of(path, 8 if small else STATES)))
    for story in () if small else ("lowwater", "zork1"):
        note("surveys", story, survey_of(str(find_story(story).path)))
    return {**found, **outputs_of(folder)}


def main() -> int:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--small", action="store_true", help="the embedded adventure and the toy world alone")
    args = parser.parse_args()
    if os.environ.get("XTX_GAMES"):
        folders = os.environ["XTX_GAMES"].split(os.pathsep)
        os.environ["XTX_GAMES"] = os.pathsep.join(str(Path(folder).resolve()) for folder in folders)
    os.environ["XTX_NO_SHIPPED"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_DATA_HOME"] = os.environ["XDG_CACHE_HOME"] = scratch
        found = measure(Path(scratch), args.small)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
