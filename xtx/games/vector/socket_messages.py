"""Reads length-prefixed messages from a socket, and spin-waits for them; used by both ends of a worker process."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

HEADER = struct.Struct("<I")
"""The header of every message: its length in bytes."""

SPIN_SECONDS = 2e-4
"""Seconds of spin-waiting for a message that is likely to come at once. Waking a sleeping process takes about as long
as a quick game's step."""

_FIRST_SIZE = 1 << 16
"""Size of a new buffer in bytes; it grows with the largest message."""
AT_ONCE = int(socket.MSG_DONTWAIT)
"""Flag for socket calls that must not block."""
_MIN_BACKOFF, _MAX_BACKOFF = 4, 512
"""Limits the number of waits without spinning after another process held the processor for long. The number doubles
each time that this happens again, and halves each time that spinning succeeds."""


class Inbox:
    """A receive buffer that splits a stream of bytes into messages. Its memory is reused."""

    def __init__(self) -> None:
        self.closed = False
        """Whether the other end has closed the connection."""
        self._bytes = memoryview(bytearray(_FIRST_SIZE))
        self._filled = 0
        self._taken = 0
        """Length of the message that was returned last; its bytes are still in the buffer."""

    def receive(self, channel: socket.socket, wait: bool) -> bool:
        """Read what is available; with `wait`, block until something is, or until the socket's timeout.

        Returns whether anything was read; the end of the connection counts.
        """
        self._drop_returned()
        if self._filled == len(self._bytes):
            self._grow(2 * self._filled)
        try:
            size = channel.recv_into(self._bytes[self._filled :], 0, 0 if wait else AT_ONCE)
        except BlockingIOError:
            return False
        except ConnectionError:
            size = 0
        self.closed = not size
        self._filled += size
        return True

    def take_message(self) -> memoryview | None:
        """Return the next message if it is complete. The view is valid until the next call of a method."""
        self._drop_returned()
        if self._filled < HEADER.size:
            return None
        end: int = HEADER.size + HEADER.unpack_from(self._bytes)[0]
        if end > len(self._bytes):
            self._grow(end)
        if self._filled < end:
            return None
        self._taken = end
        return self._bytes[HEADER.size : end]

    def _drop_returned(self) -> None:
        """Remove the message that was returned last."""
        if self._taken:
            left = self._filled - self._taken
            self._bytes[:left] = self._bytes[self._taken : self._filled]
            self._filled, self._taken = left, 0

    def _grow(self, size: int) -> None:
        """Enlarge the buffer to `size` bytes."""
        larger = memoryview(bytearray(size))
        larger[: self._filled] = self._bytes[: self._filled]
        self._bytes = larger


class SpinWait:
    """Spin-waits for an event, because waking a sleeping process takes as long as a quick game's step.

    It backs off where another busy process shares the processor: a process that yields to it waits for the end of its
    time slice, whereas a sleeping process is woken at once.
    """

    def __init__(self) -> None:
        self._skips = 0
        """Waits left that do not spin."""
        self._backoff = _MIN_BACKOFF
        """Number of waits without spinning after the next collision with a busy process."""

    def wait(self, poll: Callable[[], bool], until: float) -> bool:
        """Call `poll` until it returns True, or until the time `until` of `time.perf_counter`; returns whether it
        did."""
        if self._skips:
            self._skips -= 1
            return False
        while not poll():
            now = time.perf_counter()
            if now > until:
                return False
            os.sched_yield()  # lets any process with work use the processor
            if time.perf_counter() - now > 2 * SPIN_SECONDS:
                self._skips = self._backoff
                self._backoff = min(2 * self._backoff, _MAX_BACKOFF)
                return False
        self._backoff = max(self._backoff // 2, _MIN_BACKOFF)
        return True
