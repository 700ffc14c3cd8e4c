"""What comes over a socket, message by message, and waiting for it awake; for both ends of a worker process."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

HEADER = struct.Struct("<I")
"""In front of every message: its length."""

LINGER = 2e-4
"""Seconds for which one stays awake for what is likely to come at once."""

_ROOM = 1 << 16
"""Bytes for which there is room at the beginning."""
AT_ONCE = int(socket.MSG_DONTWAIT)
_LEAST_TIRED, _MOST_TIRED = 4, 512
"""So many times one falls asleep at once after others held the processor for long: twice as often each time that this
happens again, and half as often each time that something comes instead."""


class Inbox:
    """What has come, in a place that is used again and again."""

    def __init__(self) -> None:
        self.closed = False
        """Whether the other end is."""
        self._bytes = memoryview(bytearray(_ROOM))
        self._filled = 0
        self._taken = 0
        """Length of the message that was given out last, whose place is still to be freed."""

    def receive(self, channel: socket.socket, wait: bool) -> bool:
        """Takes in what has come, if need be after waiting for it as long as the socket may; says whether anything has,
        the end of it too."""
        self._free()
        if self._filled == len(self._bytes):
            self._make_room(2 * self._filled)
        try:
            size = channel.recv_into(self._bytes[self._filled :], 0, 0 if wait else AT_ONCE)
        except BlockingIOError:
            return False
        except ConnectionError:
            size = 0
        self.closed = not size
        self._filled += size
        return True

    def message(self) -> memoryview | None:
        """The next message, if all of it is there; it must be read before anything else is asked."""
        self._free()
        if self._filled < HEADER.size:
            return None
        end: int = HEADER.size + HEADER.unpack_from(self._bytes)[0]
        if end > len(self._bytes):
            self._make_room(end)
        if self._filled < end:
            return None
        self._taken = end
        return self._bytes[HEADER.size : end]

    def _free(self) -> None:
        if self._taken:
            left = self._filled - self._taken
            self._bytes[:left] = self._bytes[self._taken : self._filled]
            self._filled, self._taken = left, 0

    def _make_room(self, size: int) -> None:
        larger = memoryview(bytearray(size))
        larger[: self._filled] = self._bytes[: self._filled]
        self._bytes = larger


class Linger:
    """Waits awake for something to come, for to be woken takes as long as a quick game's step. Not where the processor
    is shared with somebody who has enough to do: who gives way to him waits for his turn to end, and who sleeps is
    woken at once."""

    def __init__(self) -> None:
        self._tired = 0
        self._next = _LEAST_TIRED
        """How tired the next one who holds the processor makes."""

    def wait(self, come: Callable[[], bool], until: float) -> bool:
        """Whether something has come before it was time to fall asleep."""
        if self._tired:
            self._tired -= 1
            return False
        while not come():
            now = time.perf_counter()
            if now > until:
                return False
            os.sched_yield()  # the processor is anybody's who has work
            if time.perf_counter() - now > 2 * LINGER:
                self._tired = self._next
                self._next = min(2 * self._next, _MOST_TIRED)
                return False
        self._next = max(self._next // 2, _LEAST_TIRED)
        return True
