"""Trying commands from states of a story: what they do, what they say, and which bytes of memory that depends on. The
survey and what it is made of ask here, so that all of them try in the same way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.jericho import CANDIDATE_LIMIT, Emulator, Snapshot, Verdict
from xtx.games.narration import clean
from xtx.games.world import Layout
from xtx.games.zmachine import Ram
from xtx.games.zset import ENGINE, Engine, judge

RNG = (1_000_003, 0, 0)
"""Random numbers to come, the same in all trials."""
IDLE = ("look", "inventory", "examine me")
"""Commands that do nothing themselves."""
_WORTH_A_SET = 20
"""So many commands are judged quicker by set execution than one by one."""

_MOST_THREADS = 8
"""Threads that judge: while a run's story is surveyed, the run has nothing else to do."""


class Trials:
    """The trials of one story."""

    def __init__(self, emulator: Emulator, avoid: Collection[str]) -> None:
        """`avoid` are commands that are not to be tried: who asks leaves them out."""
        self.emulator = emulator
        self.avoid = frozenset(avoid)
        self.copies: list[int] = []
        """Bytes that hold the score too."""
        self._engine: Engine | None = None
        # With one thread where there is no room for more, and not at all for a story that it cannot run.
        for threads in (min(_MOST_THREADS, len(os.sched_getaffinity(0))), 1) if ENGINE not in self.avoid else ():
            with contextlib.suppress(ValueError, MemoryError):
                self._engine = Engine.of(emulator, threads)
                break

    def close(self) -> None:
        """Frees the engine."""
        if self._engine is not None:
            self._engine.close()

    def outcomes(
        self, state: Snapshot, commands: Sequence[str], watched: Ram | None = None, kinds: bool = False
    ) -> npt.NDArray[np.uint64]:
        """What the commands do to the world from a state, one number each; 1 for those that change only what is
        watched, as the first of the commands does not, or for each kind of such a change a number of its own."""
        engine = self._engine if len(commands) >= _WORTH_A_SET else None
        verdicts = judge(self.emulator, engine, state, commands, watched)
        hidden = (verdicts.flags & Verdict.EVENT > 0) & (verdicts.watches != 0)
        hidden &= verdicts.watches != verdicts.watches[:1]
        changed = (verdicts.flags & Verdict.CHANGED) > 0
        told_apart = verdicts.watches | np.uint64(1) if kinds else np.uint64(1)
        return np.where(changed, verdicts.diffs, np.where(hidden, told_apart, np.uint64(0)))

    def answer(self, state: Snapshot, command: str) -> str:
        """What the story says to a command in a state."""
        self.emulator.restore(state)
        self.emulator.step(command, CANDIDATE_LIMIT)
        return clean(self.emulator.narration)

    def suspects(self, layout: Layout, before: Snapshot, canonical: Snapshot) -> list[int]:
        """The bytes that were made canonical and could be given back."""
        raw, other = np.frombuffer(before.ram, np.uint8), np.frombuffer(canonical.ram, np.uint8)
        # Not the links of roamers, of which half would make a broken tree; and moves and score are never kept.
        changeable = np.frombuffer(layout.mask, np.uint8) != 0xFF
        changeable[[*layout.counters, *layout.idle]] = True
        changeable[[*self.emulator.moves_addresses, *self.emulator.score_addresses, *self.copies]] = False
        changeable[layout.stamped] = False
        return [int(a) for a in np.flatnonzero((raw != other) & changeable) if a >= 64]

    def matters(
        self, before: Snapshot, canonical: Snapshot, commands: Sequence[str], watched: Ram | None = None
    ) -> Callable[[Sequence[int]], bool]:
        """A function that says whether bytes, made canonical, change what the commands do."""
        raw, other = np.frombuffer(before.ram, np.uint8), np.frombuffer(canonical.ram, np.uint8)
        truth = self.outcomes(before, commands, watched)

        def matters(addresses: Sequence[int]) -> bool:
            ram = raw.copy()
            ram[list(addresses)] = other[list(addresses)]
            changed = msgspec.structs.replace(before, ram=ram.tobytes())
            return bool((self.outcomes(changed, commands, watched) != truth).any())

        return matters


def first_to_matter(suspects: Sequence[int], matters: Callable[[Sequence[int]], bool]) -> int | None:
    """The suspect that, with those before it, is the first to matter; None if even all of them do not."""
    if not suspects or not matters(suspects):
        return None
    without, needed = 0, len(suspects)
    while needed - without > 1:
        middle = (without + needed) // 2
        if matters(suspects[:middle]):
            needed = middle
        else:
            without = middle
    return suspects[needed - 1]
