"""Writes the files of a run that are for people: rooms.jsonl, the moves between rooms, and live.json, the newest turns.

`rooms.jsonl` is part of the run: its content is the same whatever happened to the process in between. `live.json` is
not: it is replaced every few seconds while the run continues, and errors of writing it are ignored.
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

from xtx.core import Decision, Observation, Step, UserError
from xtx.files import system_calls
from xtx.files.regular_files import create_file
from xtx.runs.line_files import RoomMove
from xtx.runs.run_folder import Run

MAX_PAIRS = 2000
"""Limits the pairs of rooms that are recorded, and so the file; no known game has half as many."""
MAX_WAYS = 8
"""Limits the actions that are recorded for one pair: in a drifting boat any action may lead to the next room."""
MAX_NAME_LETTERS = 80
"""Letters of a room's name or of an action; longer ones are cut, so that a line stays short."""
TURNS = 200
"""Turns in live.json: some screens of text."""
MAX_TEXT_LETTERS = 2000
"""Letters of a turn's text; a longer one is cut. Limits live.json to 200 * 2000 letters."""
EVERY = 2.0
"""Least seconds between two versions of live.json."""
_POSTURE = re.compile(r"(?:\s*\((?:in|on|at|under|behind|inside) [^()]*\)|, (?:in|on) the [^,]*)$")


def find_room_name(look: str) -> str:
    """Return the name of a room, from the answer to `look`; empty if there is none.

    The name is the first line, or its first sentence if it is not a title, without "(on the bed)" or ", in the boat".
    Rooms with the same name, as in a maze, cannot be distinguished.
    """
    line = look.strip().partition("\n")[0].strip()
    if line.endswith((".", "!", "?")):  # titles have no full stop
        line = re.split(r"(?<=[.!?])\s", line, maxsplit=1)[0].rstrip(".")
    return _POSTURE.sub("", line)[:MAX_NAME_LETTERS]


@dataclass(frozen=True)
class Turn:
    """A command and the game's answer. The first turn of an episode has no command."""

    action: str
    phase: str
    text: str
    score: int
    number: int
    """Commands of the episode so far, this one included."""
    ended: str = ""
    """How the episode ended with it: `won`, `died` or `limit`; empty if it did not."""


@dataclass(frozen=True)
class EnvState:
    """Where one of the environments that are played together is."""

    score: int
    phase: str
    """Which policy chose its newest action; empty for agents without phases."""
    number: int
    """Commands of its episode so far."""


@dataclass(frozen=True)
class LiveState:
    """The content of live.json."""

    step: int
    """Game steps of the run."""
    time: float
    """When it was written, in seconds since 1970."""
    turns: list[Turn]
    """The newest turns of the first game, oldest first; they may belong to several episodes."""
    envs: list[EnvState] = field(default_factory=list)
    """All environments, the first one first; files of earlier versions have none."""


class ViewerFiles:
    """Writes rooms.jsonl and live.json of a run, from every vector step."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._actions_by_pair: dict[tuple[str, str], list[str]] = {}
        self._turns: deque[Turn] = deque(maxlen=TURNS)
        self._envs: list[EnvState] = []
        self._live_file = _LiveFile(run.folder / "live.json")

    def see(
        self, total: int, before: Sequence[Observation], decisions: Sequence[Decision], steps: Sequence[Step]
    ) -> None:
        """Record a vector step. `total`: game steps of the run after it."""
        for observation, decision, step in zip(before, decisions, steps, strict=True):
            if observation.look != step.observation.look:
                self._record_move(
                    total, find_room_name(observation.look), decision.action, find_room_name(step.observation.look)
                )
        self._add_turn(before[0], decisions[0], steps[0])
        self._envs = [
            EnvState(step.observation.score, decision.phase, observation.step + 1)
            for observation, decision, step in zip(before, decisions, steps, strict=True)
        ]
        if self._live_file.write_if_due(total, self._turns, self._envs):
            with contextlib.suppress(OSError):  # the lines stay in the buffer: a later write raises the error
                self._run.flush()

    def end(self, total: int) -> None:
        """Write the last turns to live.json. `total`: game steps of the run."""
        self._live_file.write_if_due(total, self._turns, self._envs, now=True)

    def _record_move(self, total: int, origin: str, action: str, target: str) -> None:
        """Write a line to rooms.jsonl, unless this action between these rooms is recorded already."""
        if not origin or not target or origin == target:
            return
        if (origin, target) not in self._actions_by_pair and len(self._actions_by_pair) >= MAX_PAIRS:
            return
        actions = self._actions_by_pair.setdefault((origin, target), [])
        action = action[:MAX_NAME_LETTERS]
        if action not in actions and len(actions) < MAX_WAYS:
            actions.append(action)
            self._run.write("rooms", RoomMove(total, origin, action, target))

    def _add_turn(self, before: Observation, decision: Decision, step: Step) -> None:
        """Add a step of the first game to the newest turns."""
        if before.step == 0:
            self._turns.append(Turn("", "", before.text[:MAX_TEXT_LETTERS], before.score, 0))
        now = step.observation
        shown = now.text[:MAX_TEXT_LETTERS]
        self._turns.append(Turn(decision.action, decision.phase, shown, now.score, before.step + 1, step.ending))

    def state(self) -> list[list[str]]:
        """Return for each recorded pair of rooms their names and the actions, for `load`."""
        return [[origin, target, *actions] for (origin, target), actions in self._actions_by_pair.items()]

    def load(self, state: Sequence[Sequence[str]]) -> None:
        """Restore what `state` returned. The turns are not saved: live.json begins empty."""
        self._actions_by_pair = {(origin, target): list(actions) for origin, target, *actions in state}


class _LiveFile:
    """Replaces live.json at intervals, atomically. Takes at most a hundredth of the time; errors are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0
        with contextlib.suppress(OSError):
            for unfinished in path.parent.glob(f".{path.name}.*"):  # left by a process that was killed while writing
                system_calls.current.unlink(unfinished)

    def write_if_due(self, total: int, turns: deque[Turn], envs: list[EnvState], *, now: bool = False) -> bool:
        """Write the file if enough time has passed since the last version, or with `now`; returns whether it did."""
        began = time.monotonic()
        if began < self._next and not now:
            return False
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            content = msgspec.json.encode(LiveState(total, time.time(), list(turns), envs))
            with create_file(temporary) as file:
                file.write(content)
            system_calls.current.rename(temporary, self._path)
        except (OSError, ValueError, UserError):  # a full disk, a deleted folder, text that is not Unicode: ignored
            with contextlib.suppress(OSError):
                system_calls.current.unlink(temporary, missing_ok=True)
        ended = time.monotonic()
        self._next = ended + max(EVERY, 100 * (ended - began))
        return True
