"""A story in a process that is started again, in the same state, when it is lost."""

from __future__ import annotations

import os
import threading
from typing import Any

from xtx.core import UserError
from xtx.games.jericho.story_host import Answer, StoryStatus
from xtx.games.jericho.story_process import ProcessLost, StoryProcess, give_back, take_process

_MAX_REPLAY = 200
"""Limits the commands that are given again when a process is lost."""
_ATTEMPTS = 3
"""Limits the processes that are started for one story before it counts as one that cannot be run."""


class RunningStory:
    """A story that is being played. Threads may share it: each call is whole.

    After a call that was interrupted, as by Ctrl-C, the story is in the state before that call.
    """

    def __init__(self, path: str, seed: int, patience: float) -> None:
        """patience: seconds after which a call that does not end is given up."""
        self.path = path
        self.patience = patience
        self._seed = seed
        self._last_status = StoryStatus()
        self._process: StoryProcess | None = None
        self._base: int | list[Any] | None = None
        """From where `_commands` are given again: the seed of a new game, a saved state, or None for a loaded story."""
        self._commands: list[str] = []
        self._owner = os.getpid()
        self._lock = threading.RLock()
        supported, self.player_number, self.max_score = self._restart()
        self.is_supported = bool(supported)
        if seed == -1:
            self._base = self.call_host("get_state")  # a seed that changes with time cannot be played again

    @property
    def status(self) -> StoryStatus:
        """The status after the last call."""
        with self._take_lock():
            self._ensure_running()
            return self._last_status

    @property
    def pid(self) -> int:
        """The number of the process."""
        with self._take_lock():
            return self._ensure_running().pid

    def reset(self, seed: int) -> list[Any]:
        """Begin a new game; return its opening, moves and score."""
        with self._take_lock():
            result: list[Any] = self.call_host("reset", seed)
            self._base, self._commands = seed, []
            if seed == -1:
                self._base = self.call_host("get_state")
            return result

    def step(self, action: str) -> list[Any]:
        """Give a command; return the answer, the change of the score, whether the game is over, moves and score.
        Raises `UserError` if the command ends the process twice."""
        with self._take_lock():
            result: list[Any] = self.call_host("step", action)
            self._commands.append(action)
            if len(self._commands) >= _MAX_REPLAY:
                self._base, self._commands = self.call_host("get_state"), []
            return result

    def set_state(self, state: list[Any]) -> None:
        """Go to a state of `StoryHost.get_state`."""
        with self._take_lock():
            self.call_host("set_state", state)
            self._base, self._commands = state, []

    def call_host(self, method: str, *arguments: Any) -> Any:
        """Call a method of `StoryHost`. A call that loses the process is made once more, in the same state. Raises
        `UserError` if that is lost too, and `ValueError` if the method raises."""
        with self._take_lock():
            why = ""
            for _ in range(2):
                try:
                    self._ensure_running()
                    return self._call(method, *arguments)
                except ProcessLost as loss:
                    why = str(loss)
            self._restart()
            raise UserError(f"{method} ended the emulator's process twice: it {why}")

    def close(self) -> None:
        """Give the process back; the next call starts one again."""
        process, self._process = self._process, None
        if process is not None:
            give_back(process)

    def _take_lock(self) -> threading.RLock:
        if self._owner != os.getpid():  # a fork: a thread that held the lock is not there
            self._owner, self._lock = os.getpid(), threading.RLock()
        return self._lock

    def _ensure_running(self) -> StoryProcess:
        if self._process is None or self._process.owner != os.getpid():
            self._restart()
        assert self._process is not None
        return self._process

    def _call(self, method: str, *arguments: Any) -> Any:
        if self._process is None:
            raise ProcessLost("is not there")
        try:
            answer: Answer = self._process.call_host(method, list(arguments), self.patience)
        except BaseException:  # also Ctrl-C: the answer would be taken for that of the next call
            self._drop_process()
            raise
        self._last_status = answer.status
        if answer.error:
            raise ValueError(f"{method}: {answer.error.strip().splitlines()[-1]}")
        return answer.value

    def _drop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _restart(self) -> list[int]:
        """Start a process and bring the story to where it was; return what `StoryHost.load` does. Raises `UserError` if
        that fails again and again."""
        why = ""
        for _ in range(_ATTEMPTS):
            self._drop_process()
            self._process = take_process()
            try:
                facts: list[int] = self._call("load", self.path, self._seed)
                if isinstance(self._base, int):
                    self._call("reset", self._base)
                elif self._base is not None:
                    self._call("set_state", self._base)
                for action in self._commands:
                    self._call("step", action)
                return facts
            except ProcessLost as loss:
                why = str(loss)
        raise UserError(f"{self.path} cannot be run: the emulator's process {why}")
