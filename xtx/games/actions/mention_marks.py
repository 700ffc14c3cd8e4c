"""Attributes that a story gives to everything of which it prints the name (Inform 7's `mentioned`). They are no changes
of the world: with them each command about another thing would seem to do something of its own."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.emulator.frotz import Emulator, Snapshot, Verdict
from xtx.games.zmachine.story_memory import Ram
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine

MENTIONING = tuple(f"{verb} OBJ" for verb in ("examine", "push", "pull", "open", "eat", "wear", "turn", "touch"))
"""Templates that hardly ever do anything to most things, each another thing if anything, and name the thing in what the
story says."""
FEWEST_THINGS, FEWEST_VERBS = 3, 3
"""An attribute that so many of them give to so many things is one of mention, if the next of them do too."""
_IDLE_VERBS = frozenset(("examine", "eat", "wear", "touch"))
"""Those with which no parts of a machine are worked: a handle, a knob and a slide may be opened, pulled and turned, and
each is another thing afterwards."""
_MOST_THINGS = 24
"""Things, at most, that are named to find such attributes."""
_MOST_KINDS = 2048
"""Where there are more different effects than that, they are left as they are."""
_BATCH = 128
"""Commands of which memory is held at a time."""


def find_mention_marks(
    emulator: Emulator, engine: Engine, state: Snapshot, forms: Sequence[str], names: Sequence[str], idle: str
) -> Ram | None:
    """The bits of the object tree that say that a thing was mentioned; None if there are no such. `forms` are some of
    `MENTIONING`, `idle` is a command that does nothing."""
    chosen = names[:: 1 + len(names) // _MOST_THINGS]
    commands = [idle, *(form.replace("OBJ", name) for form in forms for name in chosen)]
    emulator.note(ENGINE)
    flags, memory = engine.finals(state, commands)
    if flags[0] & (UNJUDGED | Verdict.STOPPED):
        return None
    tree, width = emulator.tree, emulator.header.attribute_bytes
    by_verb: list[set[int]] = []
    for first in range(1, len(commands), len(chosen)):
        things: Counter[int] = Counter()
        for row in range(first, first + len(chosen)):
            if flags[row] & (UNJUDGED | Verdict.STOPPED):
                continue
            given = tree.view_entries(memory[row])[:, :width] & ~tree.view_entries(memory[0])[:, :width]
            lost = tree.view_entries(memory[0])[:, :width] & ~tree.view_entries(memory[row])[:, :width]
            marks = set(np.flatnonzero(np.unpackbits(given, axis=1).any(axis=0)).tolist())
            # What is taken away as well belongs to the thing.
            things.update(marks - set(np.flatnonzero(np.unpackbits(lost, axis=1).any(axis=0)).tolist()))
        by_verb.append({mark for mark, count in things.items() if count >= FEWEST_THINGS})
    times = Counter(mark for marks in by_verb for mark in marks)
    by_idle_verb = zip(forms, by_verb, strict=True)
    idly = {mark for form, marks in by_idle_verb if form.split()[0] in _IDLE_VERBS for mark in marks}
    found = [mark for mark, count in times.items() if count >= FEWEST_VERBS and mark in idly]
    if not found:
        return None
    bits = np.zeros(8 * width, dtype=np.uint8)
    bits[found] = 1
    ignored = np.zeros(len(state.ram), dtype=np.uint8)
    tree.view_entries(ignored)[:, :width] = np.packbits(bits)
    return ignored


def merge_effects(
    emulator: Emulator,
    engine: Engine,
    state: Snapshot,
    randoms: Sequence[tuple[int, int, int]],
    commands: Sequence[str],
    effect: npt.NDArray[np.uint64],
    ignored: Ram,
) -> npt.NDArray[np.uint64]:
    """The effects of commands under each of some random numbers, told apart without the `ignored` bits of memory."""
    places = np.flatnonzero(effect)
    kinds, first = np.unique(effect[places], return_index=True)
    if not 0 < len(kinds) <= _MOST_KINDS:
        return effect
    change = emulator.world_memory.change
    kept = (change.set_mask | change.clear_mask) & ~ignored
    kept[list(emulator.world_memory.score_addresses)] = 0xFF
    columns = np.flatnonzero(kept)
    kept, before = kept[columns], np.frombuffer(state.ram, np.uint8)[columns]
    number = dict.fromkeys(kinds.tolist(), 0)
    representatives = [(int(kind), commands[place]) for kind, place in zip(kinds, places[first].tolist(), strict=True)]
    emulator.note(ENGINE)
    for begin in range(0, len(representatives), _BATCH):
        left, after = representatives[begin : begin + _BATCH], dict[int, bytes]()
        for rng in randoms:
            flags, memory = engine.finals(msgspec.structs.replace(state, rng=rng), [command for _, command in left])
            for row, (kind, _) in enumerate(left):
                # The end of the game, and what the engine gives up, stays what it is.
                is_open = flags[row] & ~np.uint8(Verdict.CHANGED | Verdict.EVENT | Verdict.RANDOM)
                number[kind] = kind if is_open else number[kind]
                after[kind] = after.get(kind, b"") + ((memory[row, columns] ^ before) & kept).tobytes()
            left = [one for row, one in enumerate(left) if flags[row] & Verdict.RANDOM]
            if not left:
                break
        for kind, difference in after.items():
            if any(difference) and not number[kind]:
                number[kind] = int.from_bytes(hashlib.blake2b(difference, digest_size=8).digest(), "little")
    merged = effect.copy()
    merged[places] = [number[kind] for kind in effect[places].tolist()]
    return merged
