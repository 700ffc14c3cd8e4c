"""Every story at hand: how long its survey takes, and how fast it is played with a cold and with a warm atlas.

    .venv/bin/python benchmarks/all_games.py ../shared/games                # all of them, some 25 s each
    .venv/bin/python benchmarks/all_games.py ../shared/games zork1 hhgg     # some
    .venv/bin/python benchmarks/all_games.py ../shared/games --coverage 60  # also the first 60 steps of the walkthrough

A random player chooses among the valid actions, one game, one search thread, episodes of 100 steps. Speeds are steps by
second of *processor* time, so that other programs on the machine disturb them little; the survey's seconds are given
both ways, with as many threads as there are processors. Each story runs in a process of its own. The output is a
Markdown table.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from xtx.core import UserError
from xtx.games.canonical.canonical_state import Layout
from xtx.games.canonical.survey import read_layout
from xtx.games.canonical.survey_budget import Budget
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.walkthrough_coverage import check_walkthrough

COLD_SECONDS = 8.0
"""Processor time of the cold part; it ends with a step."""
MOST_STEPS = 4000
EPISODE = 100
COLUMNS = (
    "game", "survey, s", "processor, s", "budget used", "steps", "searched", "ms a search", "cold steps/s",
    "warm steps/s", "walkthrough",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of story files")
    parser.add_argument("names", nargs="*", help="only these games")
    parser.add_argument(
        "--coverage", type=int, default=0, metavar="N", help="check N steps of the walkthrough; -1: all"
    )
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        args.one.write_text(json.dumps(measure(args.folder, args.coverage)))
        return 0
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for path in sorted(args.folder.iterdir()):
        if not args.names or path.stem in args.names:
            print(row(path, args.coverage), flush=True)
    return 0


def row(path: Path, coverage: int) -> str:
    """The table's row for one story, measured in another process."""
    try:
        read_story(path)
    except UserError as error:
        return f"| {path.stem} | {error} |" + " |" * (len(COLUMNS) - 2)
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, __file__, path, "--one", file.name, "--coverage", str(coverage)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode:
            return f"| {path.stem} | died: {done.returncode} |" + " |" * (len(COLUMNS) - 2)
        cells = json.load(file)
    return f"| {path.stem} | {' | '.join(cells)} |"


def measure(path: Path, coverage: int) -> list[str]:
    """The cells behind the name."""
    emulator = Emulator(read_story(path))
    budget, wall, processor = Budget(), time.perf_counter(), time.process_time()
    layout = read_layout(emulator, budget=budget)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    emulator.close()
    with tempfile.TemporaryDirectory() as atlas:
        spec = GameSpec(str(path), atlas=atlas)
        steps, searches, cold = play(spec, layout, MOST_STEPS)
        _, _, warm = play(spec, layout, steps)
        covered = check(spec, layout, coverage) if coverage else ""
    used = f"{100 * budget.spent / budget.total:.0f} %{', cut short' if layout.cut_short else ''}"
    return [
        f"{wall:.1f}", f"{processor:.1f}", used, f"{steps:,}", f"{100 * searches / steps:.0f} %",
        f"{1000 * (cold - warm) / max(1, searches):.0f}", f"{steps / cold:,.0f}", f"{steps / warm:,.0f}", covered,
    ]  # fmt: skip


def play(spec: GameSpec, layout: Layout, most: int) -> tuple[int, int, float]:
    """Steps made, searches, and processor seconds."""
    game, choose = StoryGame(spec, layout), random.Random(1)
    began = time.process_time()
    steps, observation = 0, game.reset()
    while steps < most and (most < MOST_STEPS or time.process_time() - began < COLD_SECONDS):
        step = game.step(choose.choice(observation.actions))
        steps += 1
        observation = step.observation
        if step.terminated or observation.step >= EPISODE or not observation.actions:
            observation = game.reset()
    seconds = time.process_time() - began
    game.close()
    return steps, game.searches, seconds


def check(spec: GameSpec, layout: Layout, most: int) -> str:
    """The share of the walkthrough's changing steps that a valid action reproduces."""
    game = StoryGame(spec, layout)
    changing = found = 0
    for number, checked in enumerate(check_walkthrough(game), 1):
        if checked is not None and checked.changes:
            changing += 1
            found += checked.found
        if number == most:
            break
    game.close()
    return f"{100 * found / max(1, changing):.1f} % of {changing}"


if __name__ == "__main__":
    sys.exit(main())
