"""Which worker runs on which processor, and whom their parent asks first because of that."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from xtx.cpu_count import usable_processors
from xtx.games.remote import Remote
from xtx.games.tasks import Task

current_processor: Callable[[], int] = getattr(ctypes.CDLL(None), "sched_getcpu", lambda: -1)


class Placement:
    """Gives each worker a processor of its own where they need all of them. The kernel would often leave two on the
    same one while another has nothing to do: pauses are so short here that it does not look around."""

    def __init__(self, workers: int | None, games: int, tie: bool) -> None:
        """`workers`: None means one for each processor. `tie`: whether they may be tied to processors; they should not
        where others need these as well."""
        self._processors = usable_processors()
        self.workers = min(games, len(self._processors) if workers is None else workers)
        """How many there are to be."""
        tied = self._processors if tie and self.workers == len(self._processors) else []
        self._near = {processor: number for number, processor in enumerate(tied)}
        """By processor: the worker that is tied to it."""

    @property
    def spacious(self) -> bool:
        """Whether there are two processors for each worker."""
        return len(self._processors) >= 2 * self.workers

    def place(self, remote: Remote) -> None:
        """Ties a worker to its processor."""
        if self._near:
            remote.stay_on(self._processors[remote.number])

    def nearest_first(self, tasks: dict[int, Task]) -> dict[int, Task]:
        """The tasks by worker, that of the one on the parent's processor before the others. It can only begin when the
        parent waits, and when it has answered the parent goes on at once; woken for the answer of another, it would
        have to wait for its turn."""
        near = self._near.get(current_processor()) if len(tasks) > 1 and self._near else None
        return {near: tasks[near], **tasks} if near in tasks else tasks
