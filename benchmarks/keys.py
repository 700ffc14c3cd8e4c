"""How fine the keys of the atlas are, and how true: hit rates on random walks, and canonical states beside real ones.

    python benchmarks/keys.py [GAME ...] [--states N] [--sample N] [--seed N] [--valid] [--bytes]

Without arguments: the embedded adventure, and the paper's games where their stories are found. Walks of 30 steps begin
at random places of the walkthrough: six of ten steps go in some direction, the others are commands of the walkthrough
(or all are random valid actions, `--valid`). A state is a hit if its key was met before. Three keys are compared: ours,
Jericho's hash, and the coarsest that will do, which is Jericho's hash with exactly what an agent sees of a state
(`look`, `inventory`, valid actions). What ours is below the last is needless.

On some of the states the whole search is done from the real state too (`--sample`): how often it finds something else
there than from the canonical one says what the keys cost in truth. `--bytes` lists the bytes in which states differ
that look and act alike.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from xtx.core import UserError
from xtx.games.actions.search import RANDOM_STATES, Findings
from xtx.games.canonical.canonical_state import read_prompt
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.emulator.frotz import Emulator, Snapshot
from xtx.games.story_game import GameSpec, StoryGame

GAMES = ("zork1", "inhumane", "ludicorp", "zork3", "pentari", "detective", "balances", "library", "deephome",
         "enchanter", "dragon", "omniquest")  # fmt: skip
WAYS = ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out")
EXCURSION = 30


@dataclass
class Measured:
    """What was seen on the walks through one game."""

    states: int = 0
    ours: set[bytes] = field(default_factory=set)
    theirs: set[str] = field(default_factory=set)
    needed: dict[tuple[str, Findings], dict[bytes, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """By the coarsest key that will do: our keys, and the canonical memories behind them."""
    micros: list[float] = field(default_factory=list)
    """Microseconds to make a state canonical and work out its key."""
    sampled: int = 0
    looks: int = 0
    """Of the sampled states: those that look or hold something else in truth."""
    actions: int = 0
    """Those that have other valid actions in truth."""
    missing: int = 0
    offered: int = 0
    """Actions that are valid in truth, and those of them that are not offered."""

    def rate(self, keys: int) -> float:
        return 100 * (1 - keys / self.states)


def jericho_hash(emulator: Emulator) -> str:
    """Jericho's hash, with the roamers unlinked as they should be: its own cleaning forgets sibling pointers. For a
    story that Jericho does not know, what it would cover."""
    ram = emulator.ram
    if emulator.story.profile is not None:
        special = ram[list(emulator.world_memory.special)]
        return hashlib.md5((ram & emulator.world_memory.tree_mask).tobytes() + special.tobytes()).hexdigest()
    kept = ram.copy()
    links = emulator.tree.read_links(ram)
    for roamer in emulator.world_memory.roamers:
        emulator.tree.unlink(ram, links, roamer)
    found = str(emulator._env.get_world_state_hash())
    ram[:] = kept
    return found


def walkthrough(game: StoryGame) -> list[bytes]:
    """The states along the walkthrough."""
    emulator = game.emulator
    emulator.reset(emulator.bindings.walkthrough_seed)
    states = [game.save()]
    for command in emulator.bindings.walkthrough:
        emulator.step(command)
        if emulator.over:
            break
        states.append(game.save())
    return states


def walks(game: StoryGame, choose: random.Random, valid: bool) -> Iterator[Findings]:
    """Stops in every state of endless excursions and says what an agent sees there."""
    starts, commands = walkthrough(game), game.emulator.bindings.walkthrough
    ways = [t for t in game.emulator.bindings.templates if t in WAYS]
    while True:
        seen = game.restore(choose.choice(starts))
        for _ in range(EXCURSION):
            yield Findings(seen.look, seen.inventory, seen.actions)
            usual = ways if choose.random() < 0.6 else commands
            step = game.step(choose.choice(seen.actions if valid else usual))
            if step.terminated:
                break
            seen = step.observation


def compare(game: StoryGame, found: Findings, measured: Measured) -> None:
    """Searches the present state as it really is."""
    emulator = game.emulator
    state = emulator.save()
    real = game.search.findings(msgspec.structs.replace(state, rng=RANDOM_STATES[0], narration=b""))
    emulator.restore(state)
    measured.sampled += 1
    measured.looks += (real.look, real.inventory) != (found.look, found.inventory)
    measured.actions += set(real.actions) != set(found.actions)
    measured.offered += len(real.actions)
    measured.missing += len(set(real.actions) - set(found.actions))


def measure(game: StoryGame, states: int, sample: int, seed: int, valid: bool) -> Measured:
    measured = Measured()
    usual = game.layout.prompt
    for found in walks(game, random.Random(seed), valid):
        began = time.perf_counter()
        canonical = game.world.make_canonical(RANDOM_STATES[0])
        key = game.world.compute_key(canonical)
        measured.micros.append(1e6 * (time.perf_counter() - began))
        theirs = jericho_hash(game.emulator)
        measured.ours.add(key)
        measured.theirs.add(theirs)
        measured.needed[theirs, found][key] = canonical.ram
        measured.states += 1
        if sample and measured.states % max(1, states // sample) == 0 and _prompt(game.emulator) == usual:
            compare(game, found, measured)
        if measured.states >= states:
            return measured
    raise AssertionError


def _prompt(emulator: Emulator) -> tuple[int, int, int]:
    registers: Snapshot = emulator.save(with_ram=False)
    return read_prompt(registers)


def find_needless_bytes(measured: Measured) -> Counter[tuple[int, ...]]:
    """Sets of bytes in which states differ that look and act alike, with the number of keys that are too many."""
    count: Counter[tuple[int, ...]] = Counter()
    for keys in measured.needed.values():
        rows = [np.frombuffer(ram, np.uint8) for ram in keys.values()]
        for row in rows[1:]:
            nearest = min((np.flatnonzero(row != other) for other in rows if other is not row), key=len)
            count[tuple(nearest.tolist())] += 1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*")
    parser.add_argument("--states", type=int, default=1500)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--valid", action="store_true")
    parser.add_argument("--bytes", action="store_true")
    options = parser.parse_args()
    console = Console(width=140, highlight=False)
    table = Table(
        "game", "Jericho's hash", "ours", "coarsest", "needless", "another look", "other actions", "missing",
        "survey", "key, median", box=None, pad_edge=False,
    )  # fmt: skip
    for name in options.games or [find_default_game(), *GAMES]:
        try:
            story = find_story(name)
        except UserError as error:
            console.print(f"left out: {error}", markup=False)
            continue
        began = time.process_time()
        game = StoryGame(GameSpec(str(story.path)))
        survey = time.process_time() - began
        found = measure(game, options.states, options.sample, options.seed, options.valid)
        game.close()
        ours, theirs, needed = (found.rate(len(keys)) for keys in (found.ours, found.theirs, found.needed))
        row = [
            name, f"{theirs:.1f} %", f"{ours:.1f} %", f"{needed:.1f} %", f"{needed - ours:.1f}",
            f"{found.looks} of {found.sampled}", f"{found.actions} of {found.sampled}",
            f"{found.missing} of {found.offered}", f"{survey:.0f} s", f"{np.median(found.micros):.0f} µs",
        ]  # fmt: skip
        table.add_row(*row)
        console.print(" | ".join(row), markup=False)
        if options.bytes:
            for addresses, times in find_needless_bytes(found).most_common(30):
                console.print(f"    {times} keys: {addresses[:12]}{' ...' if len(addresses) > 12 else ''}")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
