"""What falls due: bytes, mostly clocks, that together make something happen in the next turn, whatever is done.

A clock is no part of the key, because that would make every turn a state of its own. But in the turn in which it
strikes a state is another one than just before: there the bytes behind it keep their values (`Layout.due`), and only
there. The rest of the survey asks what a command depends on; here it is what happens by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.canonical_state import Layout, World
from xtx.games.canonical.command_trials import IDLE, RNG, Trials, first_to_matter
from xtx.games.emulator.frotz import Emulator, Snapshot

_DUE_BYTES = 6
"""So many bytes may have to come together for something to happen."""

Due = tuple[tuple[int, int], ...]
"""Addresses and values of bytes that together make something happen."""

_WAITING = ("wait",)


def with_due(trials: Trials, layout: Layout, states: Sequence[Snapshot]) -> Layout:
    """The layout with what makes something happen in the next turn of some state, whatever is done, or while
    somebody waits, which takes some turns in some games."""
    befores = [msgspec.structs.replace(state, rng=RNG) for state in states]
    memory = np.array([np.frombuffer(before.ram, np.uint8) for before in befores])
    for idle in (IDLE, _WAITING):
        commands = [c for c in idle if c not in trials.avoid]
        truths = trials.outcomes_from(befores, commands)
        happens = np.array([truth.any() for truth in truths])
        known = layout.due
        for i, (before, truth) in enumerate(zip(befores, truths, strict=True)):
            if truth.all() and (found := _due_in(trials, layout, before, truth, commands)):
                if idle is _WAITING:
                    # Only `wait` depends on it. All over the game that would not be worth so many more states.
                    found = (*found, *_whereabouts(trials.emulator, before))
                layout = msgspec.structs.replace(layout, due=(*layout.due, found))
                sharpened = _sharpened(layout, found, memory, happens, i)
                known = (*known, sharpened) if sharpened else known
        layout = msgspec.structs.replace(layout, due=known)
    return layout


def _whereabouts(emulator: Emulator, state: Snapshot) -> Due:
    """Addresses and values of the bytes that say in what the player is."""
    header = emulator.header
    address = header.object_address(emulator.player) + header.attribute_bytes
    return tuple((a, state.ram[a]) for a in range(address, address + (1 if header.small else 2)))


def _sharpened(layout: Layout, due: Due, memory: npt.NDArray[np.uint8], happens: npt.NDArray[np.bool_], at: int) -> Due:
    """What is due in one of the states, if something happens more often than not wherever it is; else with that
    byte of the key beside which tells best where it is; nothing if none does."""
    fit = np.logical_and.reduce([memory[:, a] == v for a, v in due])
    if _mostly(happens[fit]):
        return due
    kept = np.frombuffer(layout.mask, np.uint8) == 0xFF
    kept[[*layout.counters, *layout.idle, *layout.stamped]] = False
    alike = memory[fit] == memory[at]
    hits = alike[happens[fit]].sum(axis=0) - alike[~happens[fit]].sum(axis=0)
    best = int(np.where(kept, hits, -len(memory)).argmax())
    return (*due, (best, int(memory[at, best]))) if _mostly(happens[fit][alike[:, best]]) else ()


def _due_in(
    trials: Trials, layout: Layout, before: Snapshot, truth: npt.NDArray[np.uint64], commands: Sequence[str]
) -> Due:
    """What makes something happen in a state, if the canonical one does not know it."""
    trials.emulator.restore(before)
    canonical = World(trials.emulator, layout).canonical(RNG)
    if (trials.outcomes(canonical, commands) == truth).all():
        return ()
    left = trials.suspects(layout, before, canonical)
    found: list[tuple[int, int]] = []
    matters = trials.matters(before, canonical, commands)
    while len(found) < _DUE_BYTES and (one := first_to_matter(left, matters)) is not None:
        found.append((one, before.ram[one]))
        left.remove(one)
    if not found:
        return ()
    tried = msgspec.structs.replace(layout, due=(*layout.due, tuple(found)))
    trials.emulator.restore(before)
    better = World(trials.emulator, tried).canonical(RNG)
    return tuple(found) if (trials.outcomes(better, commands) == truth).all() else ()


def _mostly(happens: npt.NDArray[np.bool_]) -> bool:
    """Whether something happens more often than not."""
    return bool(2 * happens.sum() > len(happens))
