"""Bytes of memory in which a story notes what was typed last, found in one state by harmless commands.

A survey finds such bytes once for all states, but it may be cut short, and some are used in few rooms. What they hold
is no change of the world: `examine lamp` and `examine door` leave other numbers there, and so does every command after
them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from xtx.games.jericho import CANDIDATE_LIMIT, Emulator, Snapshot, Status, Verdict
from xtx.games.zmachine import Ram
from xtx.games.zset import ENGINE, UNJUDGED, Engine

_VERBS = ("examine", "touch", "smell", "search")
_OTHERS = ("zqx", "take zqx", "examine zqx", "examine me", "smell", "listen")
_MOST_NAMES = 12
"""Things with which the verbs are tried, at most."""
_FEWEST_VALUES = 3
"""A byte that harmless commands leave with so many different values holds what was typed. What the player finds out by
one of them has two: before and after."""


def harmless_commands(names: Sequence[str], excluded: Collection[str] = ()) -> list[str]:
    """Commands that hardly ever change the world, and differ in what a parser remembers of them."""
    commands = (*(f"{verb} {name}" for name in names[:_MOST_NAMES] for verb in _VERBS), *_OTHERS)
    return [command for command in commands if command not in excluded]


def find_scratch(
    emulator: Emulator, engine: Engine | None, state: Snapshot, names: Sequence[str], excluded: Collection[str] = ()
) -> npt.NDArray[np.bool_]:
    """Which bytes of RAM hold what was typed, in a state in which the `names` can be used. The emulator may be left in
    some other state."""
    before = np.frombuffer(state.ram, np.uint8)
    commands = harmless_commands(names, excluded)
    if engine is not None and ENGINE not in excluded:
        emulator.note(ENGINE)
        flags, memory = engine.finals(state, commands)
        memory = memory[(flags & (UNJUDGED | Verdict.CHANGED | Verdict.STOPPED)) == 0]
    else:
        memory = _in_emulator(emulator, state, commands)
    found = np.zeros(len(before), dtype=bool)
    changed = np.flatnonzero((memory != before).any(axis=0))
    values = np.sort(memory[:, changed], axis=0)
    kinds = 1 + (values[1:] != values[:-1]).sum(axis=0) if len(values) else np.zeros(len(changed), dtype=np.intp)
    found[changed[kinds >= _FEWEST_VALUES]] = True
    # The other half of such a number may seldom change.
    other = changed ^ 1
    found[changed[found[np.minimum(other, len(found) - 1)]]] = True
    return found


def _in_emulator(emulator: Emulator, state: Snapshot, commands: Sequence[str]) -> npt.NDArray[np.uint8]:
    """RAM after each of the commands that come to an end and leave the object tree alone."""
    memory: list[Ram] = []
    for command in commands:
        emulator.restore(state)
        if emulator.filter([command]).flags[0] & (Verdict.CHANGED | Verdict.STOPPED):
            continue
        emulator.restore(state)
        if emulator.step(command, CANDIDATE_LIMIT) is Status.DONE and not emulator.over:
            memory.append(emulator.ram.copy())
    return np.array(memory, dtype=np.uint8).reshape(len(memory), len(state.ram))
