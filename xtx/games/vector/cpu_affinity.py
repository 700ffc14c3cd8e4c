"""CPU affinity of workers: binds each worker to a processor, and orders requests by the parent's processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from xtx.games.vector.requests import Task
from xtx.games.vector.worker_client import WorkerClient
from xtx.processes.cpu_count import list_usable_processors

find_current_processor: Callable[[], int] = getattr(ctypes.CDLL(None), "sched_getcpu", lambda: -1)


class Placement:
    """Binds each worker to a processor of its own if there are as many workers as processors.

    The kernel would often leave two workers on one processor while another is idle: the workers' pauses are too short
    for its load balancing.
    """

    def __init__(self, workers: int | None, games: int, tie: bool) -> None:
        """workers: number of workers; None for one for each processor. games: number of games, the most workers that
        there can be. tie: whether workers may be bound; not if other programs need the processors too."""
        self._processors = list_usable_processors()
        self.workers = min(games, len(self._processors) if workers is None else workers)
        """Number of workers."""
        tied = self._processors if tie and self.workers == len(self._processors) else []
        self._worker_on = {processor: number for number, processor in enumerate(tied)}
        """By processor, the number of the worker that is bound to it."""

    @property
    def has_spare_processors(self) -> bool:
        """Whether there are at least two processors for each worker."""
        return len(self._processors) >= 2 * self.workers

    def bind(self, remote: WorkerClient) -> None:
        """Bind a worker to its processor."""
        if self._worker_on:
            remote.bind_to(self._processors[remote.number])

    def order_by_processor(self, tasks: dict[int, Task]) -> dict[int, Task]:
        """Return the tasks with that of the worker on the parent's own processor first.

        That worker can run only while the parent sleeps, and when it answers the parent continues at once. If the
        parent waited for another worker first, it would have to wait for the end of this one's time slice.
        """
        near = self._worker_on.get(find_current_processor()) if len(tasks) > 1 and self._worker_on else None
        return {near: tasks[near], **tasks} if near in tasks else tasks
