"""The parent's end of a worker process: starts it, sends without blocking, reads answers, detects that it is lost.

worker_pool.py replaces lost workers.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TypeVar

import msgspec

from xtx.core import UserError
from xtx.games.vector.messages import Failure, ParentMessage, WorkerAnswer, encode
from xtx.games.vector.shared_page import SHARED_PAGE_SIZE, SharedPage
from xtx.games.vector.socket_messages import AT_ONCE, Inbox, SpinWait
from xtx.games.vector.worker import OUT_OF_MEMORY
from xtx.processes.child_processes import describe_end, start_child

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from xtx.games.vector.worker import main; main()"
_START_PATIENCE = 60.0
"""Least seconds that a worker is given to load its program, however short the patience with games is."""

CHECK_SECONDS = 0.25
"""Seconds between checks for progress while waiting for an answer."""
_CHECK_TIMEVAL = struct.pack("@ll", 0, int(1e6 * CHECK_SECONDS))
"""The same as a struct timeval. A signal that the program handles restarts the time."""
_FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGALRM,
     signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGXFSZ}
)  # fmt: skip
"""Signals that a process gets from other processes or the kernel (SIGKILL for lack of memory), never by executing an
instruction: no story can be their cause."""

Kind = TypeVar("Kind", bound=WorkerAnswer)


class Phase(Enum):
    """The kind of request that a worker was last sent."""

    START = 0
    SETUP = 1
    REBUILD = 2
    WORK = 3
    TRY = 4
    """Trying alone the command at which another worker was lost."""


def _open_memory() -> int:
    """A descriptor of memory that has no name; of a file that has none any more where there is no such memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("xtx-page")
    descriptor, path = tempfile.mkstemp(prefix="xtx-page-")
    os.unlink(path)
    return descriptor


class WorkerClient:
    """A worker process, as the parent sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.phase = Phase.START
        self.num_sent: int | None = None
        """How many verdicts it was sent; None until its games are in the states of their slots."""
        self.unsent = b""
        """The rest of messages that the socket did not take yet."""
        self._memory = _open_memory()
        os.ftruncate(self._memory, SHARED_PAGE_SIZE)
        self.page = SharedPage.from_buffer(mmap.mmap(self._memory, SHARED_PAGE_SIZE))
        self._trace = self.page.trace
        self._channel: socket.socket | None = None
        self._linger = SpinWait()
        self._inbox = Inbox()
        self._answer: WorkerAnswer | None = None
        self._gone = False
        """Whether the connection is closed, or the worker made no progress for too long."""
        self._silence = ""
        """In the latter case, a description."""
        self.ended_from_outside = False
        """Whether the last process was ended by a signal that no story can cause."""
        self.ended_by_story = False
        """Whether it ended by itself in another way."""
        self._progress, self._since = 0, 0.0
        """The last progress counter, and the time at which it changed."""

    def spawn(self) -> None:
        """Start the process. It sends a `Ready` when it runs."""
        self._channel, worker_end = socket.socketpair()
        for end in (self._channel, worker_end):
            end.settimeout(None)  # independent of socket.setdefaulttimeout
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _CHECK_TIMEVAL)
        self.phase, self.num_sent = Phase.START, None
        self.page.ahead = self.page.rebuilding = 0  # may be set by the process before
        self.unsent, self._inbox = b"", Inbox()
        self._answer, self._gone, self._silence = None, False, ""
        self._reset_progress()
        descriptors = worker_end.fileno(), self._memory
        root = str(Path(__file__).parents[3])
        with worker_end:
            self.process = start_child(
                [sys.executable, "-P", "-c", _PROGRAM, root, *map(str, descriptors), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=descriptors,
                # One thread each: the processes are the parallelism.
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                process_group=0,  # so that the terminal's Ctrl-C goes to the parent only
            )

    def bind_to(self, processor: int) -> None:
        """Bind the worker to one processor, but not its search threads."""
        if self.process is not None:
            with contextlib.suppress(OSError, AttributeError):  # ended, offline; macOS has no such call
                os.sched_setaffinity(self.process.pid, {processor})

    def fileno(self) -> int:
        """Return the socket's descriptor, for poll."""
        return self._channel.fileno() if self._channel is not None else -1

    def send(self, message: ParentMessage, phase: Phase) -> None:
        """Begin to send a message that has an answer. If the worker has ended, waiting for the answer shows it."""
        self.phase = phase
        self._reset_progress()
        self.post(message)

    def post(self, message: ParentMessage) -> None:
        """Begin to send a message that has no answer."""
        self.unsent += encode(message)
        self.flush()

    def _reset_progress(self) -> None:
        """Restart the measurement of progress, for a new answer."""
        progress = self._trace.progress
        self.page.call, self.page.start = -1, progress
        self._progress, self._since = progress, time.monotonic()

    def await_more(self) -> None:
        """Expect another answer to the last message; it may have come already."""
        self._progress, self._since = self._trace.progress, time.monotonic()
        self._decode()

    @property
    def wanted(self) -> int:
        """The poll events to wait for."""
        return select.POLLIN | (select.POLLOUT if self.unsent else 0)

    def handle(self, event: int) -> None:
        """Send and read what is possible after a poll event."""
        if event & select.POLLOUT:
            self.flush()
        if event & ~select.POLLOUT:
            self.read()

    def flush(self) -> None:
        """Send as much as the socket takes without blocking."""
        try:
            if self._channel is not None:
                self.unsent = self.unsent[self._channel.send(self.unsent, AT_ONCE) :]
        except BlockingIOError:
            return
        except ConnectionError:
            self._gone = True

    def listen(self, awake_until: float = 0.0) -> bool:
        """Wait for data, spinning until `awake_until`, then sleeping up to `CHECK_SECONDS`; return whether any came."""
        if awake_until and self._linger.wait(self.read, awake_until):
            return True
        return self._receive(wait=True)

    def read(self) -> bool:
        """Read available data; returns whether there was any."""
        return self._receive(wait=False)

    def _receive(self, wait: bool) -> bool:
        if self._channel is not None and not self._inbox.receive(self._channel, wait):
            return False
        self._gone = self._channel is None or self._inbox.closed
        self._decode()
        return True

    def _decode(self) -> None:
        """Decode the next answer, if it is complete and the one before was taken."""
        if self._answer is None and (body := self._inbox.take_message()) is not None:
            self._answer = _DECODER.decode(body)

    @property
    def settled(self) -> bool:
        """Whether waiting is over: there is an answer, or the worker is lost."""
        return self._answer is not None or self._gone or self.process is None

    def take(self) -> WorkerAnswer | None:
        """Return the answer; None if the worker is lost."""
        answer, self._answer = self._answer, None
        return answer

    def give_up_after(self, patience: float) -> None:
        """Declare the worker lost if it has made no progress for `patience` seconds."""
        if self.phase is Phase.START:
            patience = max(patience, _START_PATIENCE)
        progress, now = self._trace.progress, time.monotonic()
        if progress != self._progress:
            self._progress, self._since = progress, now
        elif now - self._since > patience:
            self._silence = f"showed no sign of life for {patience:g} s"
            self._gone = True

    def close_socket(self) -> None:
        """Close the socket, upon which the worker ends."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def end(self, within: float = 1.0) -> str:
        """End the process and return a description of how it ended.

        within: seconds that it is given to end by itself after the socket was closed, before it is killed.
        """
        process, self.process, self.num_sent = self.process, None, None
        if process is None:
            return "was not there"
        try:
            if (self._gone and not self._silence) or self._channel is None:
                process.wait(within)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            code = process.wait()
            self.close_socket()
        self.ended_from_outside = not self._silence and (-code in _FROM_OUTSIDE or code == OUT_OF_MEMORY)
        self.ended_by_story = not self._silence and not self.ended_from_outside
        if code == OUT_OF_MEMORY:
            return "ran out of memory"
        return self._silence or describe_end(code)

    def free(self) -> None:
        """Free the shared memory."""
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


_DECODER: msgspec.msgpack.Decoder[WorkerAnswer] = msgspec.msgpack.Decoder(WorkerAnswer)


def exchange(remotes: Sequence[WorkerClient]) -> bool:
    """Send to and read from several workers, waiting up to `CHECK_SECONDS`; returns whether anything was possible."""
    poller = select.poll()
    waiting = {remote.fileno(): remote for remote in remotes}
    for descriptor, remote in waiting.items():
        poller.register(descriptor, remote.wanted)
    events = poller.poll(1000 * CHECK_SECONDS)
    for descriptor, event in events:
        waiting[descriptor].handle(event)
    return bool(events)


def check_answer(kind: type[Kind], answer: WorkerAnswer) -> Kind:
    """Return an answer that must be of this kind. Raises `UserError` or `RuntimeError` if the worker raised one."""
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, Failure) and answer.user_error:
        raise UserError(answer.message)
    raise RuntimeError(f"a worker answered:\n{answer.message if isinstance(answer, Failure) else answer}")


def end_all(remotes: list[WorkerClient], owner: int) -> None:
    """End workers and free their memory, unless this process is a fork of the one that started them, `owner`."""
    if os.getpid() != owner:
        return
    for remote in remotes:
        remote.end()
        remote.free()
