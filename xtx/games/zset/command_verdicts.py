"""What commands do from canonical states, by the set-execution engine.

A canonical state is altered memory: no story came to it by itself, and Frotz may divide by zero in it or follow a wild
address. So nothing is run in Frotz here. Where the engine alone cannot say what a text means (whether the game is
over), Jericho's functions are shown that text and the memory behind it. What the engine gives up counts as stopped, as
what stops Frotz does: it is no action.

Without an engine every command is tried in Frotz: the plain way, slow, for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Emulator, Snapshot, SnapshotError, Status, Verdict, Verdicts
from xtx.games.zmachine.story_memory import Ram
from xtx.games.zset.engine import END_OPEN, ENGINE, UNJUDGED, Engine, Mode, Random

_CHUNK = 4096
"""Commands whose texts and memory are held at once."""
_ALONE = 64 * CANDIDATE_LIMIT
"""Instructions, about, for which commands are tried by themselves in one call: those that go on for ever use up
`CANDIDATE_LIMIT` each."""
_SCREEN = 8000
"""Longest text that Jericho's functions are shown."""

_Judge = Callable[[Snapshot, Sequence[str], Ram | None], Verdicts]


def judge_each(
    emulator: Emulator,
    engine: Engine | None,
    state: Snapshot,
    randoms: Sequence[Random],
    commands: Sequence[str],
    watched: Ram | None = None,
    first_alone: bool = True,
) -> list[Verdicts]:
    """What becomes of each command, tried from a state under each of several states of the random generator. What is
    watched (one set of bits, or several in rows) is watched under the first, and a command that cannot be ended under
    the first may count as such under all. That a command draws numbers is seen by the generator's state, so the first
    must be none that a story can set itself (a number up to 32,767). The engine is quicker without `first_alone` where
    most commands draw random numbers. The emulator is left in some other state."""
    first, *others = (msgspec.structs.replace(state, rng=rng) for rng in randoms)
    if engine is None:
        judge: _Judge = partial(_judge_in_frotz, emulator)
        found = [judge(first, commands, watched), *(_make_unjudged(len(commands), None) for _ in others)]
    else:
        judge = partial(_judge_rest, emulator, engine)
        emulator.note(ENGINE)
        found = engine.filter_each(state, randoms, commands, watched=watched, first_alone=first_alone)
    with_first, *with_others = found
    _fill(with_first, np.flatnonzero(with_first.flags & UNJUDGED), judge, first, commands, watched)
    for each, verdicts in zip(others, with_others, strict=True):
        left = np.flatnonzero(verdicts.flags & UNJUDGED)
        verdicts.flags[left], verdicts.diffs[left] = with_first.flags[left], with_first.diffs[left]
        _fill(verdicts, left[with_first.flags[left] & Verdict.RANDOM > 0], judge, each, commands, None)
    return found


def take_turn(
    emulator: Emulator, engine: Engine | None, state: Snapshot, command: str, limit: int = CANDIDATE_LIMIT
) -> Status:
    """Leaves the emulator where a command leads from a state, with what it says on the screen: DONE, or LIMIT if it
    cannot be ended, and then the emulator is in some other state. Only without an engine is anything run in Frotz."""
    if engine is None:
        emulator.restore(state)
        return emulator.step(command, limit)
    emulator.note(ENGINE)
    flags, after = engine.step(state, command, limit)
    if not _has_ended(flags, after):
        return Status.LIMIT
    try:
        emulator.show_text(after, extract_screen(after))
    except SnapshotError:
        return Status.LIMIT
    return Status.DONE


def extract_screen(after: Snapshot) -> bytes:
    """The text of a state that `Engine.step` gave, as it would stand on Frotz's screen."""
    return b"\n" + after.narration.replace(b"\0", b"").replace(b"\r", b"\n")[:_SCREEN]


def _has_ended(flags: int, after: Snapshot) -> bool:
    return after.pc > 0 and (not flags & UNJUDGED or bool(flags & END_OPEN))


def _judge_in_frotz(emulator: Emulator, state: Snapshot, commands: Sequence[str], watched: Ram | None) -> Verdicts:
    emulator.restore(state)
    if watched is None or watched.ndim == 1:
        return emulator.filter(commands, watched=watched)
    found = [emulator.filter(commands, watched=np.ascontiguousarray(mask)) for mask in watched]
    return replace(found[0], more_watches=np.array([verdicts.watches for verdicts in found[1:]], dtype=np.uint64).T)


def _make_unjudged(count: int, watched: Ram | None) -> Verdicts:
    more = None if watched is None or watched.ndim == 1 else np.zeros((count, len(watched) - 1), dtype=np.uint64)
    diffs, watches = np.zeros((2, count), dtype=np.uint64)
    return Verdicts(np.full(count, UNJUDGED, dtype=np.uint8), diffs, watches, more)


def _fill(
    verdicts: Verdicts,
    left: npt.NDArray[np.intp],
    judge: _Judge,
    state: Snapshot,
    commands: Sequence[str],
    watched: Ram | None,
) -> None:
    """Puts verdicts where there are none yet."""
    if len(left):
        verdicts.replace_rows(left, judge(state, [commands[i] for i in left.tolist()], watched))


def _judge_rest(
    emulator: Emulator, engine: Engine, state: Snapshot, commands: Sequence[str], watched: Ram | None
) -> Verdicts:
    """The verdicts on commands that the engine left open in a set: with what Jericho says of their texts, and by
    themselves."""
    verdicts = _make_unjudged(len(commands), watched)
    for begin in range(0, len(commands), _CHUNK):
        some = commands[begin : begin + _CHUNK]
        emulator.note(ENGINE)
        found = engine.filter(state, some, watched=watched, endings=_read_endings(emulator, engine, state, some))
        verdicts.replace_rows(slice(begin, begin + _CHUNK), found)
    spent = 0
    for i in np.flatnonzero(verdicts.flags & UNJUDGED).tolist():
        before = engine.counts["instructions"]
        alone = _judge_alone(emulator, engine, state, commands[i], watched) if spent < _ALONE else None
        spent += engine.counts["instructions"] - before
        if alone is None:
            verdicts.flags[i] = Verdict.STOPPED
        else:
            verdicts.replace_rows(slice(i, i + 1), alone)
    return verdicts


def _read_endings(
    emulator: Emulator, engine: Engine, state: Snapshot, commands: Sequence[str]
) -> npt.NDArray[np.uint8]:
    """What Jericho says of the text of each command and the memory behind it; 0 where the engine does not know the
    text. Asked once for all that are alike."""
    screens = engine.read_responses(state, commands)
    memory = engine.finals(state, commands)[1] if len(engine.final) else None
    endings = np.zeros(len(commands), dtype=np.uint8)
    known: dict[tuple[bytes, bytes], int] = {}
    for i, screen in enumerate(screens):
        if screen is None:
            continue
        kind = screen, b"" if memory is None else memory[i, engine.final].tobytes()
        if kind not in known:
            ram = state.ram if memory is None else memory[i].tobytes()
            known[kind] = emulator.read_ending(msgspec.structs.replace(state, ram=ram), screen)
        endings[i] = known[kind]
    return endings


def _judge_alone(
    emulator: Emulator, engine: Engine, state: Snapshot, command: str, watched: Ram | None
) -> Verdicts | None:
    """The verdict on one command by itself: in a set it may have come to the limit of instructions that others of the
    set used. None if it cannot be ended."""
    emulator.note(ENGINE)
    flags, after = engine.step(state, command)
    if not _has_ended(flags, after):
        return None
    ending = emulator.read_ending(after, extract_screen(after)) if flags & END_OPEN else 0
    endings = np.array([ending], dtype=np.uint8)
    found = engine.filter(state, [command], mode=Mode.ALONE, watched=watched, endings=endings)
    return None if found.flags[0] & UNJUDGED else found
