"""The loop over all runs of a sweep: starts runs, continues interrupted ones and retries failed ones.

It does not depend on where runs are carried out: an implementation of `RunExecutor` starts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from xtx.sweep.run_plan import PlannedRun
from xtx.sweep.run_progress import RunProgress, read_finished, read_running, read_stopped
from xtx.sweep.sweep_folder import (
    create_run_folder,
    is_finished,
    is_held,
    mark_finished,
    read_last_lines,
    read_saved_steps,
)

READ_EVERY = 1.0
"""Seconds between two readings of a run's folder."""
POLL_SECONDS = 0.1
"""Seconds between two passes of the loop."""


class RunState(Enum):
    """The state of a run in the sweep."""

    RUNNING = "running"
    SENT = "sent"
    """It was submitted to a cluster, which has not begun it."""
    HELD = "held"
    """Another process works on it, and the sweep waits for that."""
    WAITING = "waiting"
    FAILED = "failed"
    STOPPED = "stopped"
    FINISHED = "finished"


class AttemptOutcome(Enum):
    """How an attempt at a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    HOPELESS = "hopeless"
    """It failed in a way that a retry would not change."""
    HELD = "held"
    """Another process works on the run, so it was not attempted."""


@dataclass(frozen=True)
class RunEvent:
    """A run has begun, or an attempt at it has ended."""

    folder: str
    outcome: AttemptOutcome | None = None
    """None if it has begun."""
    detail: str = ""
    """The machine on which it has begun, or why it failed."""


class RunExecutor(Protocol):
    """A place where runs are carried out: this machine or a cluster."""

    @property
    def num_free(self) -> int:
        """How many more runs can be started now."""

    def start(self, run: PlannedRun) -> None:
        """Start or continue a run."""

    def take_events(self) -> list[RunEvent]:
        """Return the events since the last call."""

    def ask_to_stop(self) -> None:
        """Ask all runs to save and stop; called repeatedly until they have."""

    def close(self) -> None:
        """End all runs that are still running, at once."""


@dataclass
class SweepRun:
    """A run of the sweep, with its state."""

    run: PlannedRun
    path: Path
    state: RunState = RunState.WAITING
    progress: RunProgress = field(default_factory=RunProgress)
    """Steps and scores, as last read from its folder."""
    where: str = ""
    """The machine on which it runs."""
    why: str = ""
    """Why its last attempt failed."""
    log: list[str] = field(default_factory=list)
    """The last lines of its log after a failure."""
    failures: int = 0
    """Failures in a row without progress."""
    begun: float = 0.0
    """When the current attempt began, in seconds since 1970."""
    saved: int = 0
    """Steps of its checkpoint when the current attempt began."""
    looked: float = 0.0
    """When its folder was last read, by `time.monotonic`."""

    @property
    def left(self) -> int:
        """Steps that are left."""
        return 0 if self.state is RunState.FINISHED else self.run.config.steps - self.progress.steps


class Scheduler:
    """Runs the loop over all runs of a sweep."""

    def __init__(
        self, out: Path, runs: Iterable[PlannedRun], executor: RunExecutor, retries: int, tell: Callable[[str], None]
    ) -> None:
        """retries: how often in a row a run may fail without progress; tell: called with one line about a run."""
        self._tell = tell
        self.items = [SweepRun(run, out / run.folder) for run in runs]
        self._executor = executor
        self._retries = retries
        for item in self.items:
            self._find_state(item)

    def run_all(self, show: Callable[[list[SweepRun]], None], stop_asked: Callable[[], bool]) -> None:
        """Loop until all runs are finished or have failed, or until `stop_asked` and all have stopped.

        show: called after every pass with all runs.
        """
        while True:
            stopping = stop_asked()
            for event in self._executor.take_events():
                self._handle(event, stopping)
            if stopping:
                self._executor.ask_to_stop()
                for item in self._list_in(RunState.WAITING, RunState.HELD):
                    item.state = RunState.STOPPED
            else:
                self._start_runs()
            self._read_folders()
            show(self.items)
            if not self._list_in(RunState.RUNNING, RunState.SENT, RunState.WAITING, RunState.HELD):
                return
            time.sleep(POLL_SECONDS)

    def _list_in(self, *states: RunState) -> list[SweepRun]:
        return [item for item in self.items if item.state in states]

    def _find_state(self, item: SweepRun) -> None:
        """Set the state of a run before the loop begins."""
        config = item.run.config
        if is_finished(item.path, config):
            self._finish(item)
        elif is_held(item.path):
            self._hold(item)
        elif read_saved_steps(item.path):
            item.progress = read_stopped(item.path, config)

    def _finish(self, item: SweepRun) -> None:
        item.state, item.why, item.log = RunState.FINISHED, "", []
        mark_finished(item.path, item.run.config)
        item.progress = read_finished(item.path, item.run.config)

    def _hold(self, item: SweepRun) -> None:
        item.state = RunState.HELD
        self._tell(f"{item.run.folder}: another process works on it; it is waited for")

    def _start_runs(self) -> None:
        now = time.monotonic()
        for item in self._list_in(RunState.HELD):
            if now - item.looked > READ_EVERY:
                item.looked = now
                if not is_held(item.path):
                    item.state = RunState.WAITING
        # Runs that failed come last, so that one that fails repeatedly does not delay the others.
        for item in sorted(self._list_in(RunState.WAITING), key=lambda item: item.failures):
            if self._executor.num_free < 1:
                return
            if is_finished(item.path, item.run.config):  # by another process, meanwhile
                self._finish(item)
            elif is_held(item.path):
                self._hold(item)
            else:
                create_run_folder(item.path, item.run.config)
                item.state, item.where = RunState.SENT, ""
                item.begun, item.saved = time.time(), read_saved_steps(item.path)
                self._executor.start(item.run)

    def _handle(self, event: RunEvent, stopping: bool) -> None:
        """Update the run that an event is about."""
        item = next(item for item in self.items if item.run.folder == event.folder)
        match event.outcome:
            case None:
                item.state, item.where = RunState.RUNNING, event.detail
            case AttemptOutcome.FINISHED:
                self._finish(item)
                self._tell(f"{event.folder} is finished{_format_scores(item.progress)}")
            case AttemptOutcome.HELD:
                self._hold(item)
            case AttemptOutcome.STOPPED if stopping:
                item.state = RunState.STOPPED
                item.progress = read_stopped(item.path, item.run.config)
            case _:
                self._fail(item, event)

    def _fail(self, item: SweepRun, event: RunEvent) -> None:
        """Retry a run that failed, unless it failed too often in a row without progress."""
        has_progressed = read_saved_steps(item.path) > item.saved
        item.failures = 1 if has_progressed else item.failures + 1
        item.why, item.log = event.detail, read_last_lines(item.path)
        item.progress = read_stopped(item.path, item.run.config)
        given_up = event.outcome is AttemptOutcome.HOPELESS or item.failures > self._retries
        item.state = RunState.FAILED if given_up else RunState.WAITING
        self._tell(f"{event.folder} failed and is {'given up' if given_up else 'tried again'}: {item.why}")

    def _read_folders(self) -> None:
        """Read steps and scores of the running runs."""
        now = time.monotonic()
        for item in self._list_in(RunState.RUNNING, RunState.SENT):
            if now - item.looked > READ_EVERY:
                item.looked = now
                item.progress = read_running(item.path, item.run.config, item.begun)


def _format_scores(progress: RunProgress) -> str:
    if progress.mean is None or progress.best is None:
        return ""
    return f": mean of the last 100 episodes {progress.mean:.1f}, best {progress.best:g}"
