"""What parts of a layout earn: keys and mistakes with each of them left out.

    XTX_GAMES=FOLDER python benchmarks/layout_parts.py [GAME ...] [--states N]

Without arguments: every game with a layout that comes with xtx and a story at hand. Walks of 30 steps begin at random
places of the walkthrough: six of ten steps go in some direction, the others are commands of the walkthrough. For each
part the table has the change in the number of keys without it, the number of states with another canonical state then,
and of at most 60 of these how often a command does something else than from the real state, with the part and without.
The commands are those that do nothing themselves and `wait`, so that only events show; a part may matter to others.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.table import Table

from xtx.core import UserError
from xtx.games.canonical.canonical_state import Layout, World, read_prompt
from xtx.games.canonical.command_trials import IDLE, RNG, Trials
from xtx.games.canonical.shipped_layouts import read_shipped_layout
from xtx.games.canonical.survey_budget import Budget
from xtx.games.catalog.known_games import find_story, list_entries, locate_story
from xtx.games.emulator.frotz import Emulator, Snapshot, Status

WAYS = ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out")
EXCURSION = 30
MOST_TRIED = 60
COMMANDS = [*IDLE, "wait"]
PARTS = {"timestamps": "move_timestamps", "events": "scheduled_events", "equivalent values": "equivalent_values"}
"""Fields of `Layout` by what they are called."""


def walk(emulator: Emulator, layout: Layout, count: int) -> Iterator[Snapshot]:
    """Stops in so many states at the usual prompt."""
    emulator.reset(emulator.bindings.walkthrough_seed)
    starts = [emulator.save()]
    for command in emulator.bindings.walkthrough:
        if emulator.step(command) is not Status.DONE or emulator.over:
            break
        starts.append(emulator.save())
    choose, ways = random.Random(1), [t for t in emulator.bindings.templates if t in WAYS] or list(WAYS)
    while count > 0:
        emulator.restore(choose.choice(starts))
        for _ in range(EXCURSION):
            state = emulator.save()
            if read_prompt(state) == layout.prompt:
                count -= 1
                yield state
            command = choose.choice(ways if choose.random() < 0.6 else emulator.bindings.walkthrough)
            if emulator.step(command) is not Status.DONE or emulator.over:
                break


def measure(name: str, count: int) -> list[str] | None:
    """A row of the table; None for a game without a layout."""
    emulator = Emulator(find_story(name))
    layout = read_shipped_layout(emulator)
    if layout is None:
        return None
    whole = World(emulator, layout)
    without = {part: World(emulator, msgspec.structs.replace(layout, **{f: ()})) for part, f in PARTS.items()}
    keys: dict[str, set[bytes]] = {part: set() for part in ("", *PARTS)}
    differ: dict[str, list[tuple[Snapshot, Snapshot, Snapshot]]] = {part: [] for part in PARTS}
    for state in walk(emulator, layout, count):
        usual = whole.make_canonical(RNG)
        keys[""].add(World.compute_key(usual))
        for part, world in without.items():
            other = world.make_canonical(RNG)
            keys[part].add(World.compute_key(other))
            if other != usual:
                differ[part].append((msgspec.structs.replace(state, rng=RNG), usual, other))
    row = [name, str(len(keys[""]))]
    trials = Trials(emulator, (), Budget())
    for part, field in PARTS.items():
        some = differ[part][:: 1 + len(differ[part]) // MOST_TRIED]
        mistakes = [0, 0]
        for real, *canonical in some:
            truth = trials.compute_outcomes(real, COMMANDS)
            for i, state in enumerate(canonical):
                mistakes[i] += bool((trials.compute_outcomes(state, COMMANDS) != truth).any())
        change = 100 * (len(keys[part]) / len(keys[""]) - 1)
        row.append(f"{len(getattr(layout, field))}: {change:+.1f} %, {mistakes[0]} -> {mistakes[1]} of {len(some)}")
    trials.close()
    emulator.close()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*")
    parser.add_argument("--states", type=int, default=4000)
    args = parser.parse_args()
    console = Console(highlight=False)
    table = Table("game", "keys", *PARTS, box=None)
    try:
        for name in args.games or [entry.name for entry in list_entries() if locate_story(entry)[0] is not None]:
            if (row := measure(name, args.states)) is not None:
                table.add_row(*row)
    except UserError as error:
        console.print(f"{error}")
        return 2
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
