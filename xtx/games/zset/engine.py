"""The set-execution engine: what becomes of thousands of commands, found in one run of the Z-machine for all of them.

It gives the verdicts of `Emulator.filter`, which tries the commands one after the other in Frotz; a command that it
cannot judge is marked. docs/set-execution.md explains how; the C sources are beside this file.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Emulator, Snapshot, Verdicts, WorldStruct
from xtx.games.emulator.snapshots import STACK_WORDS
from xtx.games.zmachine.story_memory import Ram
from xtx.games.zset.command_list import Commands
from xtx.games.zset.game_rules import Rules

UNJUDGED = 128
"""Flag of a command that the engine cannot judge; beside those of `Verdict`."""
END_OPEN = 64
"""Beside it, that the command came to its end, and only Jericho's functions can say whether the game did."""

ENGINE = "(set execution)"
"""What stands for the engine where commands are noted or excluded: a state in which it fails is judged without."""

LIBRARY: Path | None = next(iter(sorted(Path(__file__).parent.glob("_zset*.so"))), None)
"""What the C sources were compiled to."""

Random = tuple[int, int, int]
"""A state of the random generator, in libfrotz's terms: a number, and interval and counter where it only counts."""

_WORTH_SHARING = 100
"""Lanes that are worth being a part of their own which a thread takes for itself."""

_WORTH_ASKING = 16
"""The same for questions, which take longer and have less in common."""

_TEXT_CAPACITY = 1 << 16
_ANSWER_CAPACITY = 8000
"""Longest answer; a little less than libfrotz's screen holds."""
_TAKEN, _CUT = 1, 16
_ENDS = {0: 2, 1: 4, 2: 8}
"""What the engine is told of a text by which Jericho sees an end: that Jericho must be asked, that the game is over, or
that it is won."""
_CHECKING = 3
"""zset_filter's mode for `check_merges`: `Mode.MERGING`, checked."""


class Mode(IntEnum):
    """How the commands are run."""

    ALONE = 0
    """One after the other: slow, and the measure of the others."""
    SPLITTING = 1
    """In sets that are split where commands go different ways."""
    MERGING = 2
    """In sets that are split, and merged where they come together again."""


class MismatchError(Exception):
    """A command is in another state in a set than by itself."""


class _Description(ctypes.Structure):
    _fields_ = (
        ("story", ctypes.c_char_p),
        ("size", ctypes.c_uint32),
        ("world", WorldStruct),
        ("special", ctypes.c_void_p),
        ("final", ctypes.c_void_p),
        ("special_count", ctypes.c_int32),
        ("final_count", ctypes.c_int32),
        ("ignored", ctypes.c_void_p * 3),
        ("patterns", ctypes.POINTER(ctypes.c_char_p)),
        ("hits", ctypes.c_void_p),
        ("pattern_count", ctypes.c_int32),
    )


class _MachineStart(ctypes.Structure):
    _fields_ = (
        ("ram", ctypes.c_char_p),
        ("stack", ctypes.c_char_p),
        ("stack_words", ctypes.c_int32),
        ("pc", ctypes.c_int32),
        ("sp", ctypes.c_int32),
        ("fp", ctypes.c_int32),
        ("frames", ctypes.c_int32),
        ("opcode", ctypes.c_int32),
        ("random_a", ctypes.c_int64),
        ("random_interval", ctypes.c_int32),
        ("random_counter", ctypes.c_int32),
    )


class _MachineEnd(ctypes.Structure):
    _fields_ = (
        ("ram", ctypes.c_void_p),
        ("stack", ctypes.c_void_p),
        ("pc", ctypes.c_int32),
        ("sp", ctypes.c_int32),
        ("fp", ctypes.c_int32),
        ("frames", ctypes.c_int32),
        ("opcode", ctypes.c_int32),
        ("random_a", ctypes.c_int64),
        ("random_interval", ctypes.c_int32),
        ("random_counter", ctypes.c_int32),
        ("text", ctypes.c_void_p),
        ("text_length", ctypes.c_uint32),
        ("text_capacity", ctypes.c_uint32),
    )


@cache
def library() -> ctypes.CDLL:
    """The compiled C sources."""
    if LIBRARY is None:
        raise ImportError("xtx/games/zset/_zset*.so is missing: install the package (pip install -e .) to compile it")
    loaded = ctypes.CDLL(str(LIBRARY))
    pointer, chars, u64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
    loaded.zset_open.argtypes, loaded.zset_open.restype = [ctypes.POINTER(_Description)], pointer
    loaded.zset_close.argtypes, loaded.zset_close.restype = [pointer], None
    i32, start = ctypes.c_int32, ctypes.POINTER(_MachineStart)
    loaded.zset_filter.argtypes = [
        pointer,
        start,
        pointer,
        i32,
        i32,
        pointer,
        i32,
        u64,
        i32,
        *[pointer] * 5,
        i32,
        *[pointer] * 2,
    ]
    loaded.zset_effects.argtypes = [pointer, i32, pointer, ctypes.c_int64, i32, pointer, i32, *[pointer] * 3]
    loaded.zset_suspects.argtypes = [pointer, pointer, i32, i32, pointer, i32, i32, pointer, pointer]
    loaded.zset_fill.argtypes = [chars, pointer, i32, chars, i32, chars, i32, i32, *[pointer] * 6]
    loaded.zset_team.argtypes, loaded.zset_team.restype = [ctypes.POINTER(pointer), i32], pointer
    loaded.zset_disband.argtypes, loaded.zset_disband.restype = [pointer], None
    loaded.zset_threads.argtypes, loaded.zset_threads.restype = [pointer], i32
    loaded.zset_share.argtypes = [
        pointer,
        start,
        pointer,
        i32,
        i32,
        *[pointer] * 3,
        i32,
        i32,
        u64,
        i32,
        *[pointer] * 4,
        i32,
        pointer,
    ]
    loaded.zset_responses.argtypes = [pointer, pointer, start, pointer, i32, i32, u64, pointer, i32, pointer]
    loaded.zset_finals.argtypes = [pointer, start, pointer, i32, u64, *[pointer] * 3]
    loaded.zset_endings.argtypes, loaded.zset_endings.restype = [pointer, pointer], None
    loaded.zset_check.argtypes, loaded.zset_check.restype = [pointer, u64, ctypes.c_uint32], None
    loaded.zset_checked.argtypes, loaded.zset_checked.restype = [pointer, pointer], None
    loaded.zset_step.argtypes = [pointer, start, chars, u64, ctypes.POINTER(_MachineEnd)]
    loaded.zset_counts.argtypes, loaded.zset_counts.restype = [pointer, pointer], None
    return loaded


def _start(state: Snapshot) -> _MachineStart:
    return _MachineStart(
        state.ram, state.stack, len(state.stack) // 2, state.pc, state.sp, state.fp, state.frames, state.opcode,
        *state.rng,
    )  # fmt: skip


class Engine:
    """One engine for one story; to be used by one thread at a time."""

    def __init__(self, story: bytes, rules: Rules, threads: int = 1) -> None:
        """With several `threads` the commands of one state are shared among them."""
        self._library = library()
        self._engine: int | None = None
        self._team: int | None = None
        self._texts: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        """Space for the answers to what is asked."""
        self._others: list[Engine] = []
        self._ram_size = len(rules.set_mask)
        self.final = np.array(rules.final, dtype=np.intp)
        """RAM bytes by which Jericho sees that the game has ended."""
        try:
            self._open(story, rules, threads)
        except BaseException:
            self.close()
            raise

    def _open(self, story: bytes, rules: Rules, threads: int) -> None:
        for _ in range(threads - 1):
            self._others.append(Engine(story, rules))
        wanderers = (ctypes.c_uint16 * len(rules.wanderers))(*rules.wanderers)
        special = (ctypes.c_uint16 * len(rules.special))(*rules.special)
        final = (ctypes.c_uint16 * len(rules.final))(*rules.final)
        meanings = {b"(Taken)": _TAKEN, **dict.fromkeys(rules.cuts, _CUT)}
        meanings |= {text: _ENDS[meaning] for text, meaning in rules.final_texts}
        patterns, hits = tuple(meanings), (ctypes.c_uint8 * len(meanings))(*meanings.values())
        masks = [ctypes.create_string_buffer(m, max(1, len(m))) for m in (rules.set_mask, rules.clear_mask)]
        if int.from_bytes(story[14:16], "big") != len(rules.set_mask) or len(masks[0]) != len(masks[1]):
            raise ValueError("these are the rules of another story")
        world = WorldStruct(
            ctypes.addressof(masks[0]), ctypes.addressof(masks[1]), ctypes.addressof(wanderers), len(rules.wanderers),
            rules.first_object, rules.small, rules.objects, *rules.score,
        )  # fmt: skip
        description = _Description(
            story, len(story), world, ctypes.addressof(special), ctypes.addressof(final), len(special), len(final),
            (ctypes.c_void_p * 3)(*rules.ignores), (ctypes.c_char_p * len(patterns))(*patterns),
            ctypes.addressof(hits), len(patterns),
        )  # fmt: skip
        self._engine = self._library.zset_open(ctypes.byref(description))
        if not self._engine:
            raise ValueError("this story cannot be run by the set-execution engine")
        if self._others:
            team = [self._engine, *(other._engine for other in self._others)]
            self._team = self._library.zset_team((ctypes.c_void_p * len(team))(*team), len(team))
            if not self._team:
                raise MemoryError("no memory for the search's threads")

    @classmethod
    def of(cls, emulator: Emulator, threads: int = 1) -> Engine:
        """An engine for the story in an emulator."""
        return cls(emulator.story.content, Rules.of(emulator), threads)

    def close(self) -> None:
        """Frees the engine and ends its threads; it must not be used afterwards."""
        if self._team:
            self._library.zset_disband(self._team)
            self._team = None
        for other in self._others:
            other.close()
        if self._engine:
            self._library.zset_close(self._engine)
            self._engine = None

    def _check(self, state: Snapshot) -> None:
        if len(state.ram) != self._ram_size or len(state.stack) != 2 * (STACK_WORDS - state.sp):
            raise ValueError("this state belongs to another story")

    def filter(
        self,
        state: Snapshot,
        commands: Sequence[str],
        limit: int = CANDIDATE_LIMIT,
        mode: Mode = Mode.MERGING,
        hashes: npt.NDArray[np.uint64] | None = None,
        watched: Ram | None = None,
        endings: npt.NDArray[np.uint8] | None = None,
    ) -> Verdicts:
        """What becomes of each command, tried from a state, as `Emulator.filter` says it; UNJUDGED for commands that
        the engine cannot judge. `hashes`, where given, receives a hash of each command's whole final state; `watched`
        are bits of RAM to be watched beside those of the world, or several rows of such; `endings`, one for each
        command, are what `Emulator.read_ending` says of those that are END_OPEN without it."""
        if any(given is not None and len(given) != len(commands) for given in (hashes, endings)):
            raise ValueError("there must be one hash, and one ending, for each command")
        if endings is None:
            return self.filter_each(state, [state.rng], commands, limit, mode, hashes, watched)[0]
        self._check(state)
        self._library.zset_endings(self._engine, endings.ctypes.data)
        try:
            return self._run(state, [state.rng], commands, limit, mode, hashes, watched, is_shared=False)[0]
        finally:
            self._library.zset_endings(self._engine, None)

    def filter_each(
        self,
        state: Snapshot,
        randoms: Sequence[Random],
        commands: Sequence[str],
        limit: int = CANDIDATE_LIMIT,
        mode: Mode = Mode.MERGING,
        hashes: npt.NDArray[np.uint64] | None = None,
        watched: Ram | None = None,
        first_alone: bool = False,
    ) -> list[Verdicts]:
        """`filter` under each of several states of the random generator. What does not depend on that is done once for
        all. `hashes` are those under the first of them, then under the second, and so on. With `first_alone` only what
        draws random numbers under the first is tried under the others: the verdicts are the same, but what is watched
        is watched under the first alone, what was not tried has no hash, and a command that cannot be ended under the
        first counts as such under all."""
        self._check(state)
        if watched is not None and watched.shape[-1] != self._ram_size:
            raise ValueError("there must be one byte for each of RAM")
        if hashes is not None and len(hashes) != len(commands) * len(randoms):
            raise ValueError("there must be one hash for each command")
        if len({rng[1:] for rng in randoms}) > 1:  # one that counts, and one that does not, or not so far
            parts = [None] * len(randoms) if hashes is None else np.split(hashes, len(randoms))
            return [
                self._run(state, [rng], commands, limit, mode, part, watched)[0]
                for rng, part in zip(randoms, parts, strict=True)
            ]
        return self._run(state, randoms, commands, limit, mode, hashes, watched, first_alone=first_alone)

    def _run(
        self,
        state: Snapshot,
        randoms: Sequence[Random],
        commands: Sequence[str],
        limit: int,
        mode: int,
        hashes: npt.NDArray[np.uint64] | None = None,
        watched: Ram | None = None,
        differences: npt.NDArray[np.uint64] | None = None,
        first_alone: bool = False,
        is_shared: bool = True,
    ) -> list[Verdicts]:
        shape = len(commands), len(randoms)
        flags = np.full(shape, UNJUDGED, dtype=np.uint8)
        diffs = np.zeros(shape, dtype=np.uint64)
        masks = (
            np.atleast_2d(np.ascontiguousarray(watched)) if watched is not None else np.empty((0, 0), dtype=np.uint8)
        )
        watches = np.zeros((*shape, max(1, len(masks))), dtype=np.uint64)
        finals = np.zeros(shape if hashes is not None else 0, dtype=np.uint64)
        numbers = np.array([rng[0] for rng in randoms], dtype=np.int64)
        start = ctypes.byref(_start(msgspec.structs.replace(state, rng=randoms[0])))
        given = Commands.of(commands)
        how = numbers.ctypes.data, len(randoms), first_alone
        found = flags.ctypes.data, diffs.ctypes.data, None if hashes is None else finals.ctypes.data
        watch = (None, 0, None) if watched is None else (masks.ctypes.data, len(masks), watches.ctypes.data)
        lanes = len(commands) if first_alone else flags.size
        is_shared &= self._team is not None and differences is None and mode != _CHECKING
        if not is_shared or lanes < 2 * _WORTH_SHARING:
            compared = None if differences is None else differences.ctypes.data
            more = compared, *watch, None
            first = given.text[given.starts[0] :].ctypes.data
            failed = self._library.zset_filter(
                self._engine, start, *how, first, len(commands), limit, mode, *found, *more
            )  # fmt: skip
        else:
            groups = None if given.groups is None else given.groups.ctypes.data
            failed = self._library.zset_share(
                self._team, start, *how, given.text.ctypes.data, given.starts.ctypes.data, groups, len(commands),
                _WORTH_SHARING, limit, mode, *found, *watch,
            )  # fmt: skip
        if failed:
            raise MemoryError("no memory for the candidates")
        if hashes is not None:
            hashes[:] = finals.T.ravel()
        return [
            Verdicts(flags[:, i], diffs[:, i], watches[:, i, 0], watches[:, i, 1:] if len(masks) > 1 else None)
            for i in range(len(randoms))
        ]

    def differences(
        self, state: Snapshot, commands: Sequence[str], limit: int = CANDIDATE_LIMIT
    ) -> tuple[Verdicts, npt.NDArray[np.uint64]]:
        """The verdicts, and hashes of what Jericho calls each command's world difference: 0 where it would not call
        the command valid (but for "(Taken)", which is a flag), as it goes by events and score."""
        self._check(state)
        found = np.zeros(len(commands), dtype=np.uint64)
        return self._run(state, [state.rng], commands, limit, Mode.MERGING, differences=found)[0], found

    def check_merges(
        self,
        state: Snapshot,
        commands: Sequence[str],
        seed: int = 0,
        limit: int = CANDIDATE_LIMIT,
        fault: int = 0,
        randoms: Sequence[Random] = (),
    ) -> int:
        """Debug mode: at every merge a random lane is noted, and its command is run by itself afterwards. It must come
        through the very states that were noted and end in the same one, or there is a `MismatchError`. Returns how many
        merges were checked. `fault` is the number of a merge that is spoiled, to see that it is noticed; `randoms` are
        as in `filter_each`."""
        self._check(state)
        self._library.zset_check(self._engine, seed, fault)
        numbers = randoms or [state.rng]
        hashes = np.zeros(len(commands) * len(numbers), dtype=np.uint64)
        self._run(state, numbers, commands, limit, _CHECKING, hashes)
        found = (ctypes.c_int64 * 3)()
        self._library.zset_checked(self._engine, found)
        passed, command, address = found
        if command >= 0:
            place = f"after the merge at {address:#x}" if address >= 0 else "at the end of the turn"
            raise MismatchError(
                f"{commands[command // len(numbers)]!r} is in another state than by itself {place} (seed {seed})"
            )
        return int(passed)

    def read_responses(
        self, state: Snapshot, commands: Sequence[str], limit: int = CANDIDATE_LIMIT
    ) -> list[bytes | None]:
        """What is written on the screen at each command, tried from a state, up to the next prompt and the status line
        behind it; None for commands that the engine does not finish, or of whose screen it does not know enough."""
        self._check(state)
        if self._texts.size < len(commands) * _ANSWER_CAPACITY:
            self._texts = np.empty(len(commands) * _ANSWER_CAPACITY, dtype=np.uint8)
        lengths = np.zeros(len(commands), dtype=np.uint32)
        given = Commands.of(commands)
        lines = given.text[given.starts[0] :].ctypes.data
        failed = self._library.zset_responses(
            self._team, self._engine, ctypes.byref(_start(state)), lines, len(commands), _WORTH_ASKING, limit,
            self._texts.ctypes.data, _ANSWER_CAPACITY, lengths.ctypes.data,
        )  # fmt: skip
        if failed:
            raise MemoryError("no memory for what is asked")
        first = self._texts.ctypes.data
        return [
            ctypes.string_at(first + i * _ANSWER_CAPACITY, length) if length else None
            for i, length in enumerate(lengths.tolist())
        ]

    def finals(
        self, state: Snapshot, commands: Sequence[str], limit: int = CANDIDATE_LIMIT
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Flags of each command, tried from a state, and the RAM after it, one row for each command; the rows of those
        that are UNJUDGED mean nothing."""
        self._check(state)
        flags = np.full(len(commands), UNJUDGED, dtype=np.uint8)
        diffs = np.zeros(len(commands), dtype=np.uint64)
        memory = np.empty((len(commands), self._ram_size), dtype=np.uint8)
        given = Commands.of(commands)
        failed = self._library.zset_finals(
            self._engine, ctypes.byref(_start(state)), given.text[given.starts[0] :].ctypes.data, len(commands), limit,
            flags.ctypes.data, diffs.ctypes.data, memory.ctypes.data,
        )  # fmt: skip
        if failed:
            raise MemoryError("no memory for the candidates")
        return flags, memory

    def step(self, state: Snapshot, command: str, limit: int = CANDIDATE_LIMIT) -> tuple[int, Snapshot]:
        """The flags of one command and the state after it, with all that it printed as the narration."""
        self._check(state)
        ram = ctypes.create_string_buffer(self._ram_size)
        stack = (ctypes.c_uint16 * STACK_WORDS)()
        text = ctypes.create_string_buffer(_TEXT_CAPACITY)
        end = _MachineEnd(
            ram=ctypes.addressof(ram),
            stack=ctypes.addressof(stack),
            text=ctypes.addressof(text),
            text_capacity=_TEXT_CAPACITY,
        )
        line = command.encode("utf-8", "replace")
        flags = self._library.zset_step(self._engine, ctypes.byref(_start(state)), line, limit, ctypes.byref(end))
        after = Snapshot(
            ram=ram.raw,
            stack=bytes(stack)[2 * end.sp :],
            pc=end.pc,
            sp=end.sp,
            fp=end.fp,
            frames=end.frames,
            opcode=end.opcode,
            rng=(end.random_a, end.random_interval, end.random_counter),
            narration=text.raw[: end.text_length],
        )
        return int(flags), after

    @property
    def helpers(self) -> int:
        """Threads that help with searches in this process: none before the first search that is worth sharing."""
        return 0 if self._team is None else int(self._library.zset_threads(self._team))

    @property
    def counts(self) -> dict[str, int]:
        """Figures of all runs so far."""
        counts = (ctypes.c_uint64 * 6)()
        self._library.zset_counts(self._engine, counts)
        return dict(zip(("instructions", "splits", "parked", "merges", "lanes", "ends"), counts, strict=True))
