"""Trying commands from states of a story: what they do, what they say, and which bytes of memory that depends on.

A state here may have been altered byte by byte, so that a story may follow a wild address or divide by zero in it. The
set-execution engine is safe against that, and Frotz is not: nothing here runs in Frotz."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.canonical_state import Layout
from xtx.games.canonical.survey_budget import Budget
from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Emulator, Snapshot, Verdict
from xtx.games.emulator.printed_text import clean
from xtx.games.zmachine.story_memory import Ram
from xtx.games.zset.command_responses import find_prompt_prefix
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine
from xtx.processes.cpu_count import list_usable_processors

RNG = (1_000_003, 0, 0)
"""Random numbers to come, the same in all trials."""
IDLE = ("look", "inventory", "examine me")
"""Commands that do nothing themselves."""

CHUNK = 8
"""Trials that are made before the budget is looked at again; the same whatever the number of threads."""

_MAX_THREADS = 8
"""Threads that try states: while a run's story is surveyed, the run has nothing else to do."""

_BYTES_FOR_A_UNIT = 2
"""Bytes of memory after commands that are copied and compared in the time of one work unit."""

NOT_JUDGED = 2
"""Outcome of a command that the engine does not judge: the game may have ended, or asks for a key."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Trial:
    """Trials by one engine, in one thread at a time."""

    limit = CANDIDATE_LIMIT
    """Instructions after which a command counts as hanging."""

    def __init__(self, engine: Engine, read: Callable[[bytes], str]) -> None:
        """`read` makes of a screen what the story says."""
        self._engine = engine
        self._read = read

    def compute_outcomes(
        self,
        state: Snapshot,
        commands: Sequence[str],
        watched: Ram | None = None,
        kinds: bool = False,
        silent: bool = False,
    ) -> npt.NDArray[np.uint64]:
        """Return what the commands do to the world from a state, one number each; 1 for those that change only what is
        watched, as the first of the commands does not, or with `kinds` a number for each kind of such a change. Such a
        change counts where the object tree is touched, or with `silent` everywhere."""
        verdicts = self._engine.filter(state, commands, self.limit, watched=watched)
        hidden = (verdicts.watches != 0) & (verdicts.watches != verdicts.watches[:1])
        if not silent:
            hidden &= verdicts.flags & Verdict.EVENT > 0
        changed = (verdicts.flags & Verdict.CHANGED) > 0
        told_apart = verdicts.watches | np.uint64(1) if kinds else np.uint64(1)
        outcomes = np.where(changed, verdicts.diffs, np.where(hidden, told_apart, np.uint64(0)))
        return np.where(verdicts.flags & UNJUDGED, np.uint64(NOT_JUDGED), outcomes)

    def read_responses(self, state: Snapshot, commands: Sequence[str]) -> tuple[str, ...]:
        """Return what the story says to each command in a state; nothing where the engine does not judge it."""
        return tuple(
            "" if screen is None else self._read(screen)
            for screen in self._engine.read_responses(state, commands, self.limit)
        )

    def run_commands(
        self, state: Snapshot, commands: Sequence[str]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Return the flags of each command, and RAM after it."""
        return self._engine.finals(state, commands, self.limit)

    @property
    def work(self) -> int:
        """Work units of the engine so far."""
        counts = self._engine.counts
        return counts["instructions"] + counts["lanes"]


class Trials:
    """The trials of one story, shared among threads state by state."""

    def __init__(self, emulator: Emulator, avoid: Collection[str], budget: Budget) -> None:
        """`avoid` are commands that are not to be tried: the caller leaves them out."""
        self.emulator = emulator
        self.avoid = frozenset(avoid)
        self.budget = budget
        self.copies: list[int] = []
        """Bytes that hold the score too."""
        self._engines: list[Engine] = []
        for _ in range(min(_MAX_THREADS, len(list_usable_processors())) if ENGINE not in self.avoid else 0):
            try:
                self._engines.append(Engine.of(emulator))
            except ValueError:  # a story that it cannot run
                break
            except MemoryError:
                if not self._engines:  # one does as well as several; without any, the layout would be another one
                    raise
                break
        if self._engines:
            find_prompt_prefix(emulator, self._engines[0], self.avoid)
        self._reading = Lock()
        self._read = lru_cache(maxsize=4096)(self._read_screen)
        self._trials = [Trial(engine, self._read) for engine in self._engines]
        self._pool = ThreadPoolExecutor(len(self._trials)) if len(self._trials) > 1 else None

    @property
    def limit(self) -> int:
        """Instructions after which a command counts as hanging."""
        return Trial.limit if not self._trials else self._trials[0].limit

    @limit.setter
    def limit(self, instructions: int) -> None:
        for trial in self._trials:
            trial.limit = instructions

    @property
    def can_try(self) -> bool:
        """Whether there is an engine for this story."""
        return bool(self._trials)

    def close(self) -> None:
        """Frees the engines."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for engine in self._engines:
            engine.close()

    def run_for_each(self, function: Callable[[Trial, Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return the function's results for all items, in order, computed by several threads. Which thread does what
        has no influence on the results or on the work that is counted."""
        self.emulator.note(ENGINE)
        if self._pool is None or len(items) < 2:
            return [self._run_counted(self._trials[0], function, item) for item in items]
        free: SimpleQueue[Trial] = SimpleQueue()
        for trial in self._trials:
            free.put(trial)

        def run(item: Item) -> tuple[Result, int]:
            trial = free.get()
            try:
                before = trial.work
                return function(trial, item), trial.work - before
            finally:
                free.put(trial)

        results = []
        for result, work in self._pool.map(run, items):
            self.budget.spend(work)
            results.append(result)
        return results

    def _run_counted(self, trial: Trial, function: Callable[[Trial, Item], Result], item: Item) -> Result:
        before = trial.work
        result = function(trial, item)
        self.budget.spend(trial.work - before)
        return result

    def compute_outcomes(
        self, state: Snapshot, commands: Sequence[str], watched: Ram | None = None, silent: bool = False
    ) -> npt.NDArray[np.uint64]:
        """Return what the commands do to the world from a state: see `Trial.compute_outcomes`."""
        return self.compute_outcomes_from([state], commands, watched, silent)[0]

    def compute_outcomes_from(
        self, states: Sequence[Snapshot], commands: Sequence[str], watched: Ram | None = None, silent: bool = False
    ) -> list[npt.NDArray[np.uint64]]:
        """The same from each of several states, with `silent` by kinds."""
        return self.run_for_each(
            lambda trial, state: trial.compute_outcomes(state, commands, watched, silent, silent), states
        )

    def read_responses(self, state: Snapshot, commands: Sequence[str]) -> list[str]:
        """Return what the story says to each command in a state; nothing where the engine does not judge it."""
        return list(self.run_for_each(lambda trial, each: trial.read_responses(each, commands), [state])[0])

    def _read_screen(self, screen: bytes) -> str:
        with self._reading:  # libfrotz has one place for that
            return clean(self.emulator.clean_screen(screen))

    def run_commands(
        self, state: Snapshot, commands: Sequence[str]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Return the flags of each command, tried from a state, and RAM after it, one row for each."""
        flags, memory = self.run_for_each(lambda trial, each: trial.run_commands(each, commands), [state])[0]
        self.budget.spend(memory.size // _BYTES_FOR_A_UNIT)
        return flags, memory

    def find_suspects(self, layout: Layout, before: Snapshot, canonical: Snapshot) -> list[int]:
        """Return the addresses of the bytes that were made canonical and could be given back to the world."""
        raw, other = np.frombuffer(before.ram, np.uint8), np.frombuffer(canonical.ram, np.uint8)
        return [int(a) for a in np.flatnonzero((raw != other) & self.find_changeable_bytes(layout)) if a >= 64]

    def find_changeable_bytes(self, layout: Layout) -> npt.NDArray[np.bool_]:
        """Return which bytes can be given back to the world."""
        # Not the links of roamers, of which half would make a broken tree; and moves and score are never kept.
        changeable: npt.NDArray[np.bool_] = np.frombuffer(layout.mask, np.uint8) != 0xFF
        changeable[[*layout.counters, *layout.idle]] = True
        world = self.emulator.world_memory
        changeable[[*world.moves_addresses, *world.score_addresses, *self.copies]] = False
        changeable[layout.timestamp_bytes] = False
        return changeable

    def make_effect_test(
        self,
        before: Snapshot,
        canonical: Snapshot,
        commands: Sequence[str],
        watched: Ram | None = None,
        silent: bool = False,
    ) -> Callable[[Sequence[int]], bool]:
        """Return a function that says whether bytes, made canonical, change what the commands do."""
        raw, other = np.frombuffer(before.ram, np.uint8), np.frombuffer(canonical.ram, np.uint8)
        truth = self.compute_outcomes(before, commands, watched, silent)

        def has_effect(addresses: Sequence[int]) -> bool:
            ram = raw.copy()
            ram[list(addresses)] = other[list(addresses)]
            changed = msgspec.structs.replace(before, ram=ram.tobytes())
            return bool((self.compute_outcomes(changed, commands, watched, silent) != truth).any())

        return has_effect


def find_first_to_matter(suspects: Sequence[int], has_effect: Callable[[Sequence[int]], bool]) -> int | None:
    """The suspect that, with those before it, is the first to matter; None if even all of them do not."""
    if not suspects or not has_effect(suspects):
        return None
    without, needed = 0, len(suspects)
    while needed - without > 1:
        middle = (without + needed) // 2
        if has_effect(suspects[:middle]):
            needed = middle
        else:
            without = middle
    return suspects[needed - 1]
