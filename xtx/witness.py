"""What a run leaves for those who look on: the ways between rooms that were found, and the newest turns.

`rooms.jsonl` belongs to the run: it is the same whatever happened to the process in between. `live.json` does not: it
is replaced every few seconds while the run goes on, and if it cannot be written, nobody is told.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from xtx import file_calls
from xtx.core import Decision, Observation, Step, UserError
from xtx.regular_files import create_file
from xtx.runs import Run

MOST_PAIRS = 2000
"""Pairs of rooms with a way between them that are remembered; no known game has half as many."""
MOST_WAYS = 8
"""Actions that are remembered for one pair: whatever is done in a drifting boat may move it on."""
LONGEST_NAME = 80
TURNS = 200
"""Turns in live.json."""
LONGEST_TEXT = 2000
EVERY = 2.0
"""Seconds between two versions of live.json."""
_POSTURE = re.compile(r"(?:\s*\((?:in|on|at|under|behind|inside) [^()]*\)|, (?:in|on) the [^,]*)$")


def room_name(look: str) -> str:
    """What a room is called, going by the answer to `look`: its first line, or that line's first sentence if it is not
    a title; without "(on the bed)" or ", in the boat". Rooms of the same name, as in a maze, cannot be told apart.
    Empty if there is none.
    """
    line = look.strip().partition("\n")[0].strip()
    if line.endswith((".", "!", "?")):  # titles have no full stop
        line = re.split(r"(?<=[.!?])\s", line, maxsplit=1)[0].rstrip(".")
    return _POSTURE.sub("", line)[:LONGEST_NAME]


@dataclass(frozen=True)
class Move:
    """A line of rooms.jsonl: a way between two rooms, taken for the first time."""

    step: int
    """Game steps of the whole run by then."""
    origin: str
    action: str
    target: str


@dataclass(frozen=True)
class Turn:
    """A command and its answer; the beginning of an episode has no command."""

    action: str
    phase: str
    text: str
    score: int
    number: int
    """Commands of the episode so far."""
    ended: str = ""
    """`won`, `died` or `limit`."""


@dataclass(frozen=True)
class EnvState:
    """Where one of the environments that are played together is."""

    score: int
    phase: str
    """Which policy chose its newest action; empty for agents without phases."""
    number: int
    """Commands of its episode so far."""


@dataclass(frozen=True)
class Live:
    """What stands in live.json."""

    step: int
    time: float
    turns: list[Turn]
    """The newest of the first game, oldest first; they may reach back into episodes before the present one."""
    envs: list[EnvState] = field(default_factory=list)
    """All environments, the first one first; earlier versions had none."""


class Witness:
    """Sees every step of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._known: dict[tuple[str, str], list[str]] = {}
        self._turns: deque[Turn] = deque(maxlen=TURNS)
        self._envs: list[EnvState] = []
        self._newspaper = _Newspaper(run.folder / "live.json")

    def see(
        self, total: int, before: Sequence[Observation], decisions: Sequence[Decision], steps: Sequence[Step]
    ) -> None:
        """One vector step, after which the run had `total` game steps."""
        for observation, decision, step in zip(before, decisions, steps, strict=True):
            if observation.look != step.observation.look:
                self._move(total, room_name(observation.look), decision.action, room_name(step.observation.look))
        self._read(before[0], decisions[0], steps[0])
        self._envs = [
            EnvState(step.observation.score, decision.phase, observation.step + 1)
            for observation, decision, step in zip(before, decisions, steps, strict=True)
        ]
        if self._newspaper.offer(total, self._turns, self._envs):
            with contextlib.suppress(OSError):  # what could not be written stays to be written, and is told of then
                self._run.flush()

    def end(self, total: int) -> None:
        """The run stops here: the last turns are shown."""
        self._newspaper.offer(total, self._turns, self._envs, now=True)

    def _move(self, total: int, origin: str, action: str, target: str) -> None:
        if not origin or not target or origin == target:
            return
        if (origin, target) not in self._known and len(self._known) >= MOST_PAIRS:
            return
        ways = self._known.setdefault((origin, target), [])
        action = action[:LONGEST_NAME]
        if action not in ways and len(ways) < MOST_WAYS:
            ways.append(action)
            self._run.write("rooms", Move(total, origin, action, target))

    def _read(self, before: Observation, decision: Decision, step: Step) -> None:
        if before.step == 0:
            self._turns.append(Turn("", "", before.text[:LONGEST_TEXT], before.score, 0))
        now = step.observation
        ended = "won" if step.won else "died" if step.terminated else "limit" if step.truncated else ""
        self._turns.append(
            Turn(decision.action, decision.phase, now.text[:LONGEST_TEXT], now.score, before.step + 1, ended)
        )

    def state(self) -> list[list[str]]:
        """The known ways, for `load`."""
        return [[origin, target, *ways] for (origin, target), ways in self._known.items()]

    def load(self, state: Sequence[Sequence[str]]) -> None:
        """Goes on from there; live.json begins anew."""
        self._known = {(origin, target): list(ways) for origin, target, *ways in state}


class _Newspaper:
    """A file that is replaced now and then, as whole as the disk allows. Never slows the run, never fails it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0
        with contextlib.suppress(OSError):
            for left in path.parent.glob(f".{path.name}.*"):  # by a process that was killed while writing
                file_calls.current.unlink(left)

    def offer(self, total: int, turns: deque[Turn], envs: list[EnvState], *, now: bool = False) -> bool:
        """Prints an edition if it is time; says whether it was."""
        began = time.monotonic()
        if began < self._next and not now:
            return False
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            content = msgspec.json.encode(Live(total, time.time(), list(turns), envs))
            with create_file(temporary) as file:
                file.write(content)
            file_calls.current.rename(temporary, self._path)
        except (
            OSError,
            ValueError,
            UserError,
        ):  # a full disk, a folder that is gone, letters that are none: not our business
            with contextlib.suppress(OSError):
                file_calls.current.unlink(temporary, missing_ok=True)
        ended = time.monotonic()
        self._next = ended + max(EVERY, 100 * (ended - began))
        return True
