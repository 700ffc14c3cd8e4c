"""Every story at hand: how long it takes to start and to survey, how fast it is played with a cold and with a warm
atlas, and which share of its walkthrough valid actions reproduce.

    .venv/bin/python benchmarks/all_games.py ../shared/games                # all of them, two minutes each
    .venv/bin/python benchmarks/all_games.py ../shared/games zork1 hhgg     # some
    .venv/bin/python benchmarks/all_games.py ../shared/games --parts start survey --keep table.json --seconds 150

With --keep each figure is written to a file as it comes, and those that are there already are not measured again: a
table can be made in pieces, which end after about --seconds.

| part | what is measured |
|---|---|
| start | seconds, and of processor time, from the start of Python to the first valid actions, without an atlas |
| survey | seconds of a survey with a thread for each processor, and its processor time: what one thread takes |
| templates, whole | a random player among the valid actions of `--actions templates` or `whole` |
| coverage | the walkthrough's first 100 steps: how many of those that change the world a valid action reproduces |

The player has one search thread and plays episodes of 100 steps: 4 s of processor time with an empty atlas, then as
many steps with the full one. Speeds are steps by second of *processor* time, so that other programs on the machine
disturb them little. Each part runs in a process of its own. The output is a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from xtx.core import UserError
from xtx.games.canonical.survey import survey_layout
from xtx.games.canonical.survey_budget import Budget
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.walkthroughs.coverage import check_walkthrough

COLD_SECONDS = 4.0
"""Processor time of the cold part; it ends with a step."""
MOST_STEPS = 4000
EPISODE = 100
COVERED_STEPS = 100
PLAYED = ("steps", "searched", "ms a search", "cold steps/s", "warm steps/s")
PARTS = {
    "start": ("start, s", "start, processor"),
    "survey": ("survey, s", "survey, processor", "budget used"),
    "templates": PLAYED,
    "whole": ("cold, whole", "warm, whole"),
    "coverage": ("walkthrough",),
}
"""The table's columns by part."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of story files")
    parser.add_argument("names", nargs="*", help="only these games")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured; default: all")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add figures to this file, measure what is missing")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many seconds")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        args.one.write_text(json.dumps(MEASURES[args.parts[0]](args.folder)))
        return 0
    kept: dict[str, dict[str, list[str]]] = {}
    if args.keep is not None and args.keep.exists():
        kept = json.loads(args.keep.read_text())
    began = time.monotonic()
    paths = sorted(path for path in args.folder.iterdir() if not args.names or path.stem in args.names)
    for part, path in itertools.product(args.parts, paths):
        row = kept.setdefault(path.stem, {})
        if part not in row and time.monotonic() - began < args.seconds:
            row[part] = measure(path, part)
            print(f"{path.stem}, {part}: {', '.join(row[part])}", file=sys.stderr, flush=True)
            if args.keep is not None:
                args.keep.write_text(json.dumps(kept, indent=1) + "\n")
    parts = [part for part in PARTS if any(part in row for row in kept.values())]
    columns = ["game", *(column for part in parts for column in PARTS[part])]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, row in sorted(kept.items()):
        cells = [cell for part in parts for cell in row.get(part, [""] * len(PARTS[part]))]
        print(f"| {' | '.join([name, *cells])} |")
    return 0


def measure(path: Path, part: str) -> list[str]:
    """The cells of one part, measured in another process."""
    try:
        read_story(path)
    except UserError as error:
        return [str(error), *[""] * (len(PARTS[part]) - 1)]
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, __file__, path, "--one", file.name, "--parts", part]
        wall, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode:
            return [f"died: {done.returncode}", *[""] * (len(PARTS[part]) - 1)]
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        return json.load(file) or [f"{time.perf_counter() - wall:.1f}", f"{processor:.1f}"]


def start(path: Path) -> list[str]:
    """Nothing: the whole process is what is measured."""
    game = StoryGame(GameSpec(str(path), actions="whole"))
    assert game.reset().actions
    game.close()
    return []


def survey(path: Path) -> list[str]:
    """Seconds by the clock, processor seconds, and the share of the budget that was used."""
    emulator = Emulator(read_story(path))
    budget, wall, processor = Budget(), time.perf_counter(), time.process_time()
    layout = survey_layout(emulator, budget=budget)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    emulator.close()
    used = f"{100 * budget.spent / budget.total:.0f} %{', cut short' if layout.cut_short else ''}"
    return [f"{wall:.1f}", f"{processor:.1f}", used]


def templates(path: Path) -> list[str]:
    """What a random player does with the grammar's templates."""
    steps, searches, cold, warm = play_twice(path, "templates")
    return [
        f"{steps:,}", f"{100 * searches / steps:.0f} %", f"{1000 * (cold - warm) / max(1, searches):.0f}",
        f"{steps / cold:,.0f}", f"{steps / warm:,.0f}",
    ]  # fmt: skip


def whole(path: Path) -> list[str]:
    """The speeds of a random player with the whole dictionary."""
    steps, _, cold, warm = play_twice(path, "whole")
    return [f"{steps / cold:,.0f}", f"{steps / warm:,.0f}"]


def play_twice(path: Path, actions: str) -> tuple[int, int, float, float]:
    """Steps, searches, and processor seconds with an empty atlas and with a full one."""
    with tempfile.TemporaryDirectory() as atlas:
        spec = GameSpec(str(path), atlas=atlas, actions=actions)
        steps, searches, cold = play(spec, MOST_STEPS)
        _, _, warm = play(spec, steps)
    return steps, searches, cold, warm


def play(spec: GameSpec, most: int) -> tuple[int, int, float]:
    """Steps made, searches, and processor seconds."""
    game, choose = StoryGame(spec), random.Random(1)
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
    return steps, game.states.searches, seconds


def coverage(path: Path) -> list[str]:
    """The share of the walkthrough's changing steps that a valid action reproduces."""
    game = StoryGame(GameSpec(str(path)))
    changing = found = 0
    for number, checked in enumerate(check_walkthrough(game), 1):
        if checked is not None and checked.changes:
            changing += 1
            found += checked.found
        if number == COVERED_STEPS:
            break
    game.close()
    return [f"{100 * found / max(1, changing):.1f} % of {changing}"]


MEASURES = {"start": start, "survey": survey, "templates": templates, "whole": whole, "coverage": coverage}


if __name__ == "__main__":
    sys.exit(main())
