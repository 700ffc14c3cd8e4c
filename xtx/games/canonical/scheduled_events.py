"""Scheduled events: values of bytes, mostly of clocks, that make something happen in the next turn, whatever is done.

A clock is no part of the key, because that would make every turn a state of its own. But the turn of the event is
another state than the turn before: there these bytes keep their values (`Layout.scheduled_events`), and only there. The
rest of the survey finds what a command depends on; this module finds what happens without one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.canonical_state import Layout, World
from xtx.games.canonical.command_trials import IDLE, RNG, Trials, find_first_to_matter
from xtx.games.emulator.frotz import Emulator, Snapshot

_MAX_EVENT_BYTES = 6
"""Most bytes of an event; more are more likely a difference of another kind."""

ScheduledEvent = tuple[tuple[int, int], ...]
"""Addresses and values of bytes that together make something happen."""

_WAITING = ("wait",)


def add_scheduled_events(trials: Trials, layout: Layout, states: Sequence[Snapshot]) -> Layout:
    """Return the layout with the events of some states: in the next turn whatever is done, or only while the player
    waits, which takes some turns in some games."""
    befores = [msgspec.structs.replace(state, rng=RNG) for state in states]
    memory = np.array([np.frombuffer(before.ram, np.uint8) for before in befores])
    for idle in (IDLE, _WAITING):
        commands = [c for c in idle if c not in trials.avoid]
        truths = trials.compute_outcomes_from(befores, commands)
        happens = np.array([truth.any() for truth in truths])
        known = layout.scheduled_events
        for i, (before, truth) in enumerate(zip(befores, truths, strict=True)):
            if truth.all() and (found := _find_event(trials, layout, before, truth, commands)):
                if idle is _WAITING:
                    # Only `wait` depends on it. All over the game that would not be worth so many more states.
                    found = (*found, *_locate_player(trials.emulator, before))
                layout = msgspec.structs.replace(layout, scheduled_events=(*layout.scheduled_events, found))
                sharpened = _sharpen(layout, found, memory, happens, i)
                known = (*known, sharpened) if sharpened else known
        layout = msgspec.structs.replace(layout, scheduled_events=known)
    return layout


def _locate_player(emulator: Emulator, state: Snapshot) -> ScheduledEvent:
    """Return addresses and values of the bytes that hold the player's parent in the object tree."""
    header = emulator.header
    address = header.compute_object_address(emulator.player) + header.attribute_bytes
    return tuple((a, state.ram[a]) for a in range(address, address + (1 if header.small else 2)))


def _sharpen(
    layout: Layout, event: ScheduledEvent, memory: npt.NDArray[np.uint8], happens: npt.NDArray[np.bool_], at: int
) -> ScheduledEvent:
    """Return an event of one of the states if it happens in most states with these values; else with one more byte of
    the key, the one that tells best in which it happens; nothing if none does."""
    fit = np.logical_and.reduce([memory[:, a] == v for a, v in event])
    if _is_mostly_true(happens[fit]):
        return event
    kept = np.frombuffer(layout.mask, np.uint8) == 0xFF
    kept[[*layout.counters, *layout.idle, *layout.timestamp_bytes]] = False
    alike = memory[fit] == memory[at]
    hits = alike[happens[fit]].sum(axis=0) - alike[~happens[fit]].sum(axis=0)
    best = int(np.where(kept, hits, -len(memory)).argmax())
    return (*event, (best, int(memory[at, best]))) if _is_mostly_true(happens[fit][alike[:, best]]) else ()


def _find_event(
    trials: Trials, layout: Layout, before: Snapshot, truth: npt.NDArray[np.uint64], commands: Sequence[str]
) -> ScheduledEvent:
    """Return what makes something happen in a state, if it does not happen in the canonical one; else nothing."""
    trials.emulator.restore(before)
    canonical = World(trials.emulator, layout).make_canonical(RNG)
    if (trials.compute_outcomes(canonical, commands) == truth).all():
        return ()
    left = trials.find_suspects(layout, before, canonical)
    found: list[tuple[int, int]] = []
    has_effect = trials.make_effect_test(before, canonical, commands)
    while len(found) < _MAX_EVENT_BYTES and (one := find_first_to_matter(left, has_effect)) is not None:
        found.append((one, before.ram[one]))
        left.remove(one)
    if not found:
        return ()
    tried = msgspec.structs.replace(layout, scheduled_events=(*layout.scheduled_events, tuple(found)))
    trials.emulator.restore(before)
    better = World(trials.emulator, tried).make_canonical(RNG)
    return tuple(found) if (trials.compute_outcomes(better, commands) == truth).all() else ()


def _is_mostly_true(happens: npt.NDArray[np.bool_]) -> bool:
    """Whether something happens more often than not."""
    return bool(2 * happens.sum() > len(happens))
