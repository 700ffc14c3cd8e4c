"""The parent's end of a worker process: starting it, sending without waiting, reading, seeing that it is lost.

What is to be done about one that is lost is vector.py's business.
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
from xtx.games.inbox import AT_ONCE, Inbox, Linger
from xtx.games.worker import DESK_SIZE, OUT_OF_MEMORY, Answer, Desk, Failure, Message, encode

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from xtx.games.worker import main; main()"
_START_PATIENCE = 60.0
"""Seconds that a worker may take to load its program, however short the patience with games is."""

MOMENT = 0.25
"""Seconds after which one that waits looks whether there is any progress."""
_A_MOMENT = struct.pack("@ll", 0, int(1e6 * MOMENT))
"""The same as a struct timeval. (It begins anew with every signal that a program handles.)"""


_FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGALRM,
     signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGXFSZ}
)  # fmt: skip
"""Signals that a process gets from others, never by an instruction of its own. When memory is short, SIGKILL."""

Kind = TypeVar("Kind", bound=Answer)


class Phase(Enum):
    """What a worker was last asked to do."""

    START = 0
    SETUP = 1
    BRING = 2
    WORK = 3
    TRY = 4
    """One command that another worker was lost over."""


def _open_memory() -> int:
    """A descriptor of memory that has no name; of a file that has none any more where there is no such memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("xtx-desk")
    descriptor, path = tempfile.mkstemp(prefix="xtx-desk-")
    os.unlink(path)
    return descriptor


class Remote:
    """The parent's end of a worker."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.phase = Phase.START
        self.told: int | None = None
        """How many verdicts it knows; None until its games are where they should be."""
        self.unsent = b""
        self._memory = _open_memory()
        os.ftruncate(self._memory, DESK_SIZE)
        self.desk = Desk.from_buffer(mmap.mmap(self._memory, DESK_SIZE))
        self._trace = self.desk.trace
        self._channel: socket.socket | None = None
        self._linger = Linger()
        self._inbox = Inbox()
        self._answer: Answer | None = None
        self._gone = False
        self._silence = ""
        self.ended_from_outside = False
        """Whether the last process was ended by a signal that no story can cause."""
        self._progress, self._since = 0, 0.0

    def spawn(self) -> None:
        """Starts the process; its first answer says that it runs."""
        self._channel, theirs = socket.socketpair()
        for end in (self._channel, theirs):
            end.settimeout(None)  # whatever is usual in this program
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _A_MOMENT)
        self.phase, self.told = Phase.START, None
        self.desk.ahead = 0  # whatever the one before was at
        self.unsent, self._inbox = b"", Inbox()
        self._answer, self._gone, self._silence = None, False, ""
        self._await()
        descriptors = theirs.fileno(), self._memory
        root = str(Path(__file__).parents[2])
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, root, *map(str, descriptors), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=descriptors,
                # One thread each: they are the parallelism.
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                process_group=0,  # so that the terminal's Ctrl-C goes to the parent only
            )

    def stay_on(self, processor: int) -> None:
        """Ties the worker to one processor, but not the threads with which it searches."""
        if self.process is not None:
            # AttributeError: macOS has no such function.
            with contextlib.suppress(OSError, AttributeError):  # it is gone, or the processor is
                os.sched_setaffinity(self.process.pid, {processor})

    def fileno(self) -> int:
        """The socket, for poll."""
        return self._channel.fileno() if self._channel is not None else -1

    def send(self, message: Message, phase: Phase) -> None:
        """Begins to send a message. A worker that is gone shows when its answer is awaited."""
        self.phase = phase
        self._await()
        self.post(message)

    def post(self, message: Message) -> None:
        """Begins to send a message that has no answer."""
        self.unsent += encode(message)
        self.flush()

    def _await(self) -> None:
        progress = self._trace.progress
        self.desk.call, self.desk.start = -1, progress
        self._progress, self._since = progress, time.monotonic()

    def await_more(self) -> None:
        """From now on another answer is awaited, to what was sent before; it may have come already."""
        self._progress, self._since = self._trace.progress, time.monotonic()
        self._decode()

    @property
    def wanted(self) -> int:
        """The events to wait for."""
        return select.POLLIN | (select.POLLOUT if self.unsent else 0)

    def handle(self, event: int) -> None:
        """Sends and reads what is possible."""
        if event & select.POLLOUT:
            self.flush()
        if event & ~select.POLLOUT:
            self.read()

    def flush(self) -> None:
        """Sends as much as goes without waiting."""
        try:
            if self._channel is not None:
                self.unsent = self.unsent[self._channel.send(self.unsent, AT_ONCE) :]
        except BlockingIOError:
            return
        except ConnectionError:
            self._gone = True

    def listen(self, awake_until: float = 0.0) -> bool:
        """Waits for something to come, for a moment, and awake until a certain time; says whether anything did."""
        if awake_until and self._linger.wait(self.read, awake_until):
            return True
        return self._receive(wait=True)

    def read(self) -> bool:
        """Takes in what has come; says whether anything did."""
        return self._receive(wait=False)

    def _receive(self, wait: bool) -> bool:
        if self._channel is not None and not self._inbox.receive(self._channel, wait):
            return False
        self._gone = self._channel is None or self._inbox.closed
        self._decode()
        return True

    def _decode(self) -> None:
        """Makes the next answer of what has come, if it is there and the one before was taken."""
        if self._answer is None and (body := self._inbox.message()) is not None:
            self._answer = _DECODER.decode(body)

    @property
    def settled(self) -> bool:
        """Whether there is no more to wait for."""
        return self._answer is not None or self._gone or self.process is None

    def take(self) -> Answer | None:
        """The answer; None if the worker is gone."""
        answer, self._answer = self._answer, None
        return answer

    def give_up_after(self, patience: float) -> None:
        """Calls the worker lost if it made no progress for that many seconds."""
        if self.phase is Phase.START:
            patience = max(patience, _START_PATIENCE)
        progress, now = self._trace.progress, time.monotonic()
        if progress != self._progress:
            self._progress, self._since = progress, now
        elif now - self._since > patience:
            self._silence = f"showed no sign of life for {patience:g} s"
            self._gone = True

    def hang_up(self) -> None:
        """Tells the worker to end, by closing the socket."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def end(self, within: float = 1.0) -> str:
        """Ends the process and says how it ended. One whose socket is closed may take a moment for it."""
        process, self.process, self.told = self.process, None, None
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
            self.hang_up()
        self.ended_from_outside = not self._silence and (-code in _FROM_OUTSIDE or code == OUT_OF_MEMORY)
        if code == OUT_OF_MEMORY:
            return "ran out of memory"
        return self._silence or (f"died of {_signal_name(-code)}" if code < 0 else f"ended with status {code}")

    def free(self) -> None:
        """Gives the shared memory back."""
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


_DECODER: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def converse(remotes: Sequence[Remote]) -> bool:
    """Sends and reads what is possible, for a moment; says whether anything was."""
    poller = select.poll()
    waiting = {remote.fileno(): remote for remote in remotes}
    for descriptor, remote in waiting.items():
        poller.register(descriptor, remote.wanted)
    events = poller.poll(1000 * MOMENT)
    for descriptor, event in events:
        waiting[descriptor].handle(event)
    return bool(events)


def expected(kind: type[Kind], answer: Answer) -> Kind:
    """The answer, which must be of that kind; what a worker could not do is an exception here."""
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, Failure) and answer.user_error:
        raise UserError(answer.message)
    raise RuntimeError(f"a worker answered:\n{answer.message if isinstance(answer, Failure) else answer}")


def end_all(remotes: list[Remote], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the process that started them
    for remote in remotes:
        remote.end()
        remote.free()
