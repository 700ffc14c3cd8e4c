"""Carries out runs as processes on this machine."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xtx.processes.child_processes import describe_end
from xtx.sweep.run_plan import PlannedRun
from xtx.sweep.run_process import FINISHED, STOPPED, USER_ERROR, SweepRunResources, start_process
from xtx.sweep.scheduler import AttemptOutcome, RunEvent
from xtx.sweep.sweep_folder import is_held, read_last_lines

MAX_WAIT_SECONDS = 60.0
"""Seconds that runs are given to save when the sweep ends with an error; a checkpoint takes some seconds."""


@dataclass
class _RunningProcess:
    """A run that is being carried out."""

    run: PlannedRun
    process: subprocess.Popen[bytes]
    asked: bool = False
    """Whether it was asked to stop."""


class LocalExecutor:
    """This machine, with a number of places for runs; the GPUs are assigned to the places in turn."""

    def __init__(self, out: Path, resources: SweepRunResources, jobs: int, gpus: Sequence[str] = ()) -> None:
        self._out = out
        self._resources = resources
        self._gpus = gpus
        self._slots: list[_RunningProcess | None] = [None] * jobs
        self._events: list[RunEvent] = []

    @property
    def num_free(self) -> int:
        """How many more runs can be started now."""
        return self._slots.count(None)

    def start(self, run: PlannedRun) -> None:
        """Start the process of a run."""
        slot = self._slots.index(None)
        environment = {"CUDA_VISIBLE_DEVICES": self._gpus[slot % len(self._gpus)]} if self._gpus else {}
        process = start_process(self._out / run.folder, run.config.num_envs, self._resources, environment)
        self._slots[slot] = _RunningProcess(run, process)
        self._events.append(RunEvent(run.folder))

    def take_events(self) -> list[RunEvent]:
        """Return the events since the last call."""
        for slot, busy in enumerate(self._slots):
            if busy is not None and (status := busy.process.poll()) is not None:
                self._slots[slot] = None
                folder = self._out / busy.run.folder
                self._events.append(RunEvent(busy.run.folder, *classify_exit(folder, status, busy.asked)))
        events, self._events = self._events, []
        return events

    def ask_to_stop(self) -> None:
        """Send SIGTERM to each run once: a second signal would end it without a checkpoint."""
        for busy in self._slots:
            if busy is not None and not busy.asked:
                busy.asked = True
                busy.process.terminate()

    def close(self) -> None:
        """End all runs. Those that were not asked to stop yet may save first."""
        saving = [busy.process for busy in self._slots if busy is not None and not busy.asked]
        self.ask_to_stop()
        until = time.monotonic() + MAX_WAIT_SECONDS
        for process in saving:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for busy in self._slots:
            if busy is not None:
                busy.process.kill()
                busy.process.wait()
        self._slots = [None] * len(self._slots)


def classify_exit(folder: Path, status: int, asked: bool) -> tuple[AttemptOutcome, str]:
    """Return the outcome for the exit status of a run's process, and why it failed.

    asked: whether the run was asked to stop.
    """
    if status == FINISHED:
        return AttemptOutcome.FINISHED, ""
    # In its first seconds a process has no handler yet, so SIGTERM ends it.
    if status == STOPPED or (asked and status == -signal.SIGTERM):
        return AttemptOutcome.STOPPED, "was stopped by another program or user"
    why = describe_end(status)
    if status == USER_ERROR:
        said = read_last_lines(folder, 1)
        if is_held(folder) or (said and "another process works on" in said[0]):
            return AttemptOutcome.HELD, ""
        return AttemptOutcome.HOPELESS, said[0] if said else why
    return AttemptOutcome.FAILED, why
