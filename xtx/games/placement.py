"""Which worker runs on which processor, and whom their parent asks first because of that."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from xtx.games.remote import Remote
from xtx.games.tasks import Task

current_processor: Callable[[], int] = getattr(ctypes.CDLL(None), "sched_getcpu", lambda: -1)


class Placement:
    """Gives each worker a processor of its own where they need all of them. The kernel would often leave two on the
    same one while another has nothing to do: pauses are so short here that it does not look around."""

    def __init__(self, workers: int | None, games: int, threads: int) -> None:
        """`workers`: None means one for each processor. `threads`: with how many each of them searches."""
        self._processors = sorted(os.sched_getaffinity(0))
        self.workers = min(games, len(self._processors) if workers is None else workers)
        """How many there are to be."""
        self._ties = threads == 1 and self.workers >= len(self._processors)
        self._near: dict[int, int] = {}
        """By processor: the worker that is tied to it, or the first of those."""

    @property
    def spacious(self) -> bool:
        """Whether there are two processors for each worker."""
        return len(self._processors) >= 2 * self.workers

    def place(self, remote: Remote) -> None:
        """Ties a worker to its processor."""
        if self._ties:
            processor = self._processors[remote.number % len(self._processors)]
            remote.stay_on(processor)
            self._near.setdefault(processor, remote.number)

    def nearest_first(self, tasks: dict[int, Task]) -> dict[int, Task]:
        """The tasks by worker, that of the one on the parent's processor before the others. It can only begin when the
        parent waits, and when it has answered the parent goes on at once; woken for the answer of another, it would
        have to wait for its turn."""
        near = self._near.get(current_processor(), -1) if self._near and len(tasks) > 1 else -1
        return {near: tasks.pop(near), **tasks} if near in tasks else tasks
