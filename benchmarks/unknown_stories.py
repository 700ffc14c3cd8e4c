"""What is found out about a story without Jericho's tables, beside what those say: for docs/unknown-stories.md.

Each story is copied with another serial number, so that nothing knows it. The walkthrough is played in both at once.
As a command: python benchmarks/unknown_stories.py [--coverage STEPS] GAME...
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from xtx.games.catalog.known_games import find_story, list_entries, locate_story
from xtx.games.catalog.profile import Profile
from xtx.games.catalog.profile_format import encode_profile
from xtx.games.catalog.story_file import Story, read_story
from xtx.games.discovery.discover import discover
from xtx.games.emulator.frotz import Emulator, Status
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.walkthroughs.coverage import check_walkthrough

COLUMNS = ("game", "s", "player", "score", "moves", "over", "won", "max", "templates", "coverage")


def compare(name: str, coverage_steps: int) -> list[str]:
    """One row of the table."""
    known = find_story(name)
    folder = Path(tempfile.mkdtemp(prefix="xtx-unknown-"))
    try:
        path = folder / f"unknown{known.path.suffix}"
        path.write_bytes(known.content[:0x12] + b"000000" + known.content[0x18:])
        began = time.process_time()
        story = read_story(path)
        profile = discover(story)
        seconds = time.process_time() - began
        row = [name, f"{seconds:.1f}", *_play(known, replace(story, profile=profile))]
        if coverage_steps:
            row.append(_coverage(known, path, profile, coverage_steps))
        return row
    finally:
        shutil.rmtree(folder)


def _play(known: Story, story: Story) -> list[str]:
    one, other = Emulator(known), Emulator(story)
    one.reset(one.bindings.walkthrough_seed)
    other.reset(one.bindings.walkthrough_seed)
    steps, same = 0, dict.fromkeys(("score", "moves", "over", "won"), 0)
    for command in one.bindings.walkthrough:
        if one.over:
            break
        steps += 1
        status = one.step(command), other.step(command)
        if status != (Status.DONE, Status.DONE):
            break
        for what in same:
            same[what] += getattr(one, what) == getattr(other, what)
    length = 6 if known.content[0] <= 3 else 9
    theirs, ours = ({_cut(template, length) for template in each.bindings.templates} for each in (one, other))
    row = ["yes" if one.player == other.player else f"{other.player}, not {one.player}"]
    row += ["all" if count == steps else f"{count} of {steps}" for count in same.values()]
    theirs_max, ours_max = one.bindings.max_score, other.bindings.max_score
    row.append(f"{ours_max}" + ("" if ours_max == theirs_max else f", not {theirs_max}"))
    row += [f"{len(theirs & ours) / len(theirs):.0%}"]
    one.close()
    other.close()
    return row


def _cut(template: str, length: int) -> str:
    return " ".join(word if word == "OBJ" else word[:length] for word in template.split())


def _coverage(known: Story, path: Path, profile: Profile, steps: int) -> str:
    """The share of the walkthrough's first steps that a valid action reproduces: with the tables, and without."""
    emulator = Emulator(known)
    described = msgspec.structs.replace(
        profile,
        file=path.name,
        walkthrough=emulator.bindings.walkthrough[:steps],
        seed=emulator.bindings.walkthrough_seed,
    )
    emulator.close()
    path.with_suffix(".json").write_bytes(encode_profile(described))
    shares = []
    for story in (known.path, path):
        game = StoryGame(GameSpec(str(story)))
        checked = [
            c for c, _ in zip(check_walkthrough(game), range(steps), strict=False) if c is not None and c.changes
        ]
        game.close()
        shares.append(f"{sum(c.found for c in checked)} of {len(checked)}")
    return " / ".join(shares)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("games", nargs="*")
    parser.add_argument("--coverage", type=int, default=0, metavar="STEPS")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print("| " + " | ".join(compare(options.games[0], options.coverage)) + " |")
        return
    here = [
        entry.name
        for entry in list_entries()
        if entry.walkthrough_length and locate_story(entry)[0] and not entry.embedded
    ]
    columns = COLUMNS if options.coverage else COLUMNS[:-1]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for name in options.games or sorted(here):
        # A process for each: libfrotz is loaded twice, and a story may end it.
        call = [sys.executable, __file__, name, "--one", "--coverage", str(options.coverage)]
        subprocess.run(call, check=False)


if __name__ == "__main__":
    main()
