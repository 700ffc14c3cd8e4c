"""The loop over all runs of a sweep: what is finished is left alone, what was cut off goes on, what failed is tried
again. It knows nothing of where runs are carried out: that is the business of `Places`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from xtx.sweep.folder import is_finished, is_held, last_lines, mark_finished, plant, saved_steps
from xtx.sweep.plan import PlannedRun
from xtx.sweep.progress import Reading, read_finished, read_running

READ_EVERY = 1.0
"""Seconds between looks into the folder of a run."""
TURN = 0.1


class State(Enum):
    """What becomes of a run."""

    RUNNING = "running"
    SENT = "sent"
    """It was given to a cluster, which has not begun with it."""
    HELD = "held"
    """Another process works on it; it is waited for."""
    WAITING = "waiting"
    FAILED = "failed"
    STOPPED = "stopped"
    FINISHED = "finished"


class Outcome(Enum):
    """How an attempt at a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    HOPELESS = "hopeless"
    """It failed, and would fail again."""
    HELD = "held"
    """Another process works on the run, so there was no attempt."""


@dataclass(frozen=True)
class Event:
    """News of a run: it has begun somewhere, or an attempt at it has ended."""

    folder: str
    outcome: Outcome | None = None
    """None if it has begun."""
    detail: str = ""
    """Where it has begun, or why it failed."""


class Places(Protocol):
    """Where runs are carried out."""

    @property
    def free(self) -> int:
        """How many more runs can be begun now."""

    def begin(self, run: PlannedRun) -> None:
        """Begins a run or goes on with it."""

    def events(self) -> list[Event]:
        """What has happened since the last call."""

    def ask_to_stop(self) -> None:
        """Asks all runs to save and stop; called again and again until they have."""

    def close(self) -> None:
        """Ends what is still running, at once."""


@dataclass
class Item:
    """A run of the sweep, and what becomes of it."""

    run: PlannedRun
    path: Path
    state: State = State.WAITING
    reading: Reading = field(default_factory=Reading)
    where: str = ""
    why: str = ""
    """Why its last attempt failed."""
    log: list[str] = field(default_factory=list)
    failures: int = 0
    """How often in a row it failed without getting any further."""
    begun: float = 0.0
    saved: int = 0
    """Steps of its checkpoint when the present attempt began."""
    looked: float = 0.0

    @property
    def left(self) -> int:
        """Steps to go."""
        return 0 if self.state is State.FINISHED else self.run.config.steps - self.reading.steps


class Conductor:
    """Leads the runs of a sweep to their ends."""

    def __init__(
        self, out: Path, runs: Iterable[PlannedRun], places: Places, retries: int, tell: Callable[[str], None]
    ) -> None:
        """`tell` is told in one line what became of a run."""
        self._tell = tell
        self.items = [Item(run, out / run.folder) for run in runs]
        self._places = places
        self._retries = retries
        for item in self.items:
            self._look_first(item)

    def conduct(self, show: Callable[[list[Item]], None], stop_asked: Callable[[], bool]) -> None:
        """Until all runs are finished or have failed, or until it was asked to stop and all have."""
        while True:
            stopping = stop_asked()
            for event in self._places.events():
                self._take(event, stopping)
            if stopping:
                self._places.ask_to_stop()
                for item in self._in(State.WAITING, State.HELD):
                    item.state = State.STOPPED
            else:
                self._begin_some()
            self._look()
            show(self.items)
            if not self._in(State.RUNNING, State.SENT, State.WAITING, State.HELD):
                return
            time.sleep(TURN)

    def _in(self, *states: State) -> list[Item]:
        return [item for item in self.items if item.state in states]

    def _look_first(self, item: Item) -> None:
        config = item.run.config
        if is_finished(item.path, config):
            self._finish(item)
        elif is_held(item.path):
            self._hold(item)
        elif saved_steps(item.path):
            item.reading = read_running(item.path, config, since=time.time())

    def _finish(self, item: Item) -> None:
        item.state, item.why, item.log = State.FINISHED, "", []
        mark_finished(item.path, item.run.config)
        item.reading = read_finished(item.path, item.run.config)

    def _hold(self, item: Item) -> None:
        item.state = State.HELD
        self._tell(f"{item.run.folder}: another process works on it; it is waited for")

    def _begin_some(self) -> None:
        now = time.monotonic()
        for item in self._in(State.HELD):
            if now - item.looked > READ_EVERY:
                item.looked = now
                if not is_held(item.path):
                    item.state = State.WAITING
        # Those that failed come last, so that one that fails again and again does not keep the others waiting.
        for item in sorted(self._in(State.WAITING), key=lambda item: item.failures):
            if self._places.free < 1:
                return
            if is_finished(item.path, item.run.config):  # by somebody else, meanwhile
                self._finish(item)
            elif is_held(item.path):
                self._hold(item)
            else:
                plant(item.path, item.run.config)
                item.state, item.where = State.SENT, ""
                item.begun, item.saved = time.time(), saved_steps(item.path)
                self._places.begin(item.run)

    def _take(self, event: Event, stopping: bool) -> None:
        item = next(item for item in self.items if item.run.folder == event.folder)
        match event.outcome:
            case None:
                item.state, item.where = State.RUNNING, event.detail
            case Outcome.FINISHED:
                self._finish(item)
                self._tell(f"{event.folder} is finished{_scores(item.reading)}")
            case Outcome.HELD:
                self._hold(item)
            case Outcome.STOPPED if stopping:
                item.state = State.STOPPED
                item.reading = read_running(item.path, item.run.config, since=time.time())
            case _:
                self._fail(item, event)

    def _fail(self, item: Item, event: Event) -> None:
        """It is tried again, unless it did not get any further for too many times."""
        further = saved_steps(item.path) > item.saved
        item.failures = 1 if further else item.failures + 1
        item.why, item.log = event.detail, last_lines(item.path)
        item.reading = read_running(item.path, item.run.config, since=time.time())
        given_up = event.outcome is Outcome.HOPELESS or item.failures > self._retries
        item.state = State.FAILED if given_up else State.WAITING
        self._tell(f"{event.folder} failed and is {'given up' if given_up else 'tried again'}: {item.why}")

    def _look(self) -> None:
        now = time.monotonic()
        for item in self._in(State.RUNNING, State.SENT):
            if now - item.looked > READ_EVERY:
                item.looked = now
                item.reading = read_running(item.path, item.run.config, item.begun)


def _scores(reading: Reading) -> str:
    if reading.mean is None or reading.best is None:
        return ""
    return f": mean of the last 100 episodes {reading.mean:.1f}, best {reading.best:g}"
