"""The parent's end of the process that runs a `FrotzEnv`'s story: starting it, asking it, using it again."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import msgspec

from xtx.games.jericho.story_host import Answer, Request, encode
from xtx.games.vector.socket_messages import Inbox
from xtx.processes.child_processes import start_child

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from xtx.games.jericho.story_host import main; main()"
_START_PATIENCE = 60.0
"""Limits the seconds that a process takes to load its program."""
_MAX_IDLE = 2
"""Limits the processes without a story that are kept: starting one takes 0.25 s, loading a story a few ms."""
_MAX_USES = 200
"""Limits the stories that one process is given, so that what a library leaks is given back."""
_DECODER: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class ProcessLost(Exception):
    """The process died, or did not answer in time. The text says how."""


class StoryProcess:
    """A process that holds one story."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.uses = 0
        self._channel, theirs = socket.socketpair()
        self._inbox = Inbox()
        root = str(Path(__file__).parents[3])
        with theirs:
            self._process = start_child(
                [sys.executable, "-P", "-c", _PROGRAM, root, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                process_group=0,  # so that the terminal's Ctrl-C goes to the parent only
            )
        self._finalizer = weakref.finalize(self, _end, self._process, self._channel, self.owner)
        self._receive(_START_PATIENCE)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, and was started by this program."""
        return self.owner == os.getpid() and self._process.poll() is None

    def call_host(self, method: str, arguments: list[Any], patience: float) -> Answer:
        """Call a method there. Raises `ProcessLost` if it dies or takes longer than so many seconds."""
        try:
            self._channel.settimeout(patience)
            self._channel.sendall(encode(Request(method, arguments)))
        except OSError as error:
            raise ProcessLost(self._why(error)) from None
        return self._receive(patience)

    def _receive(self, patience: float) -> Answer:
        self._channel.settimeout(patience)
        try:
            while (body := self._inbox.take_message()) is None:
                if self._inbox.closed:
                    raise ProcessLost(self._why(None))
                self._inbox.receive(self._channel, wait=True)
        except TimeoutError:
            raise ProcessLost(f"gave no answer for {patience:g} s") from None
        return _DECODER.decode(body)

    def _why(self, error: OSError | None) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(1.0)
            return f"died of signal {-status}" if status < 0 else f"ended with status {status}"
        return f"cannot be reached ({error})"

    def end(self) -> None:
        """End the process, unless it belongs to the program that this one was forked from."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], channel: socket.socket, owner: int) -> None:
    channel.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()


_idle: list[StoryProcess] = []


def take_process() -> StoryProcess:
    """A process without a story: one that was given back, or a new one."""
    with contextlib.suppress(IndexError):  # another thread may take the last one
        while True:
            process = _idle.pop()
            if process.is_alive:
                return process
            process.end()
    return StoryProcess()


def give_back(process: StoryProcess) -> None:
    """Keep a process for the next story, or end it."""
    process.uses += 1
    if process.owner == os.getpid() and process.uses < _MAX_USES and len(_idle) < _MAX_IDLE:
        with contextlib.suppress(ProcessLost):
            process.call_host("close", [], 5.0)
            _idle.append(process)
            return
    process.end()


def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


atexit.register(_end_idle)
