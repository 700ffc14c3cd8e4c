"""Bytes of memory in which a story notes what was typed last, found in one state by harmless commands.

A survey finds such bytes once for all states, but it may be cut short, and some are used in few rooms. What they hold
is no change of the world: `examine lamp` and `examine door` leave other numbers there, and so does every command after
them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations

import numpy as np
import numpy.typing as npt

from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Emulator, Snapshot, Status, Verdict
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine

_VERBS = ("examine", "look at", "look under", "touch", "smell", "listen to", "search")
_PAIRS = ("put {} across {}",)
_OTHERS = ("zqx", "take zqx", "examine zqx", "examine me", "smell", "listen")
_MAX_NAMES = 8
"""Most things with which the verbs are tried."""
_MIN_VALUES = 5
"""A byte that harmless commands leave with so many different values holds what was typed. What the player finds out by
one of them has two, before and after, and what minds being looked at a few more."""
_MIN_NAMES = 3
"""A byte that one verb leaves alike with so many things, and another verb with another value, holds the form of the
command."""


def list_harmless_commands(
    names: Sequence[str], more: Sequence[str] = (), excluded: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Commands that hardly ever change the world, and differ in what a parser remembers of them, each with its verb."""
    # Names of two words first: parsers keep adjectives in places of their own.
    chosen = sorted(names, key=lambda name: -name.count(" "))[:_MAX_NAMES]
    commands = [(f"{verb} {name}", verb) for verb in _VERBS for name in chosen]
    pairs = [form.format(*pair) for form in _PAIRS for pair in permutations(chosen, 2)]
    return [
        each for each in (*commands, *((other, "") for other in (*pairs, *_OTHERS, *more))) if each[0] not in excluded
    ]


def find_scratch(
    emulator: Emulator,
    engine: Engine | None,
    state: Snapshot,
    names: Sequence[str],
    more: Sequence[str] = (),
    excluded: Collection[str] = (),
) -> npt.NDArray[np.bool_]:
    """Which bytes of RAM hold what was typed, in a state in which the `names` can be used; `more` are commands that
    leave the object tree alone there. The emulator may be left in some other state."""
    before = np.frombuffer(state.ram, np.uint8)
    commands, verbs = zip(*list_harmless_commands(names, more, excluded), strict=True)
    if engine is not None and ENGINE not in excluded:
        emulator.note(ENGINE)
        flags, memory = engine.finals(state, commands)
        done = (flags & (UNJUDGED | Verdict.CHANGED | Verdict.STOPPED)) == 0
    else:
        done, memory = _try_in_emulator(emulator, state, commands)
    found = np.zeros(len(before), dtype=bool)
    rows, of = np.flatnonzero(done), np.array(verbs)[done]
    places = _find_near_changes(memory, before)
    kept = memory[rows[:, None], places]
    differs = (kept != before[places]).any(axis=0)
    changed, kept = places[differs], kept[:, differs]
    if not len(changed):
        return found
    found[changed[(_count_kinds(kept) >= _MIN_VALUES) | _find_form_bytes(kept, of)]] = True
    # The other half of such a number may seldom change.
    found[changed[found[np.minimum(changed ^ 1, len(found) - 1)]]] = True
    return found


def _find_near_changes(memory: npt.NDArray[np.uint8], before: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """The places of all bytes that differ from `before` in some row, and of some beside them: eight bytes are compared
    at once."""
    whole = len(before) // 8 * 8
    words = (memory[:, :whole].view(np.uint64) != before[:whole].view(np.uint64)).any(axis=0)
    places = (8 * np.flatnonzero(words)[:, None] + np.arange(8)).ravel()
    return np.append(places, np.arange(whole, len(before)))


def _count_kinds(memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """How many different values each column has."""
    columns = memory.shape[1]
    occurs = np.zeros((columns, 256), dtype=bool)
    occurs[np.arange(columns), memory] = True
    return np.asarray(np.count_nonzero(occurs, axis=1))


def _find_form_bytes(memory: npt.NDArray[np.uint8], verbs: npt.NDArray[np.str_]) -> npt.NDArray[np.bool_]:
    """Which bytes depend on the verb, and never on what it is used with."""
    groups = [memory[verbs == verb] for verb in _VERBS]
    groups = [rows for rows in groups if len(rows) >= _MIN_NAMES]
    if len(groups) < 2:
        return np.zeros(memory.shape[1], dtype=bool)
    alike = np.all([(rows == rows[0]).all(axis=0) for rows in groups], axis=0)
    firsts = np.array([rows[0] for rows in groups])
    return np.asarray(alike & (firsts != firsts[0]).any(axis=0))


def _try_in_emulator(
    emulator: Emulator, state: Snapshot, commands: Sequence[str]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
    """Which of the commands come to an end and leave the object tree alone, and RAM after each."""
    done = np.zeros(len(commands), dtype=bool)
    memory = np.zeros((len(commands), len(state.ram)), dtype=np.uint8)
    for i, command in enumerate(commands):
        emulator.restore(state)
        if emulator.filter([command]).flags[0] & (Verdict.CHANGED | Verdict.STOPPED):
            continue
        emulator.restore(state)
        if emulator.step(command, CANDIDATE_LIMIT) is Status.DONE and not emulator.over:
            done[i], memory[i] = True, emulator.ram
    return done, memory
