"""A worker process: answers its parent's messages; worker_client.py is the other end.

It is started as a program, not forked, because the parent may have threads. The two ends share a socket, which carries
length-prefixed msgpack messages, and a page of memory, the `SharedPage`. That page survives the process, so the parent
can see what a lost worker was doing.

No worker outlives its parent. A waiting worker sees the socket close; one that is stuck inside an emulator is killed by
the kernel (PR_SET_PDEATHSIG), on Linux. That signal comes when the *thread* that started the worker ends: a vector made
in a thread that has ended loses its workers, and they are replaced like any lost worker.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import sys
import time
import traceback
from collections.abc import Iterator

import msgspec

from xtx.core import UserError
from xtx.games.vector.game_host import GameHost, list_still_to_find
from xtx.games.vector.messages import (
    Failure,
    LookAhead,
    ParentMessage,
    Ready,
    Setup,
    WorkerAnswer,
    WorkerRequest,
    encode,
)
from xtx.games.vector.shared_page import SHARED_PAGE_SIZE, SharedPage
from xtx.games.vector.socket_messages import SPIN_SECONDS, Inbox, SpinWait
from xtx.processes.child_processes import set_up_emulator_process
from xtx.processes.out_of_memory import explain_lack_of_memory

OUT_OF_MEMORY = 12
"""Exit status of a worker that ran out of memory."""


class _MessageReader:
    """Reads the parent's messages. If the last message of a kind was soon followed by another, it spin-waits for the
    next one, because it is likely to follow soon again."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._inbox, self._linger = Inbox(), SpinWait()
        self._quick: set[type] = set()

    def read_next(self, last: type) -> memoryview | None:
        """Return the next message; None if the connection was closed. `last`: the kind of the message before."""
        inbox, since = self._inbox, time.perf_counter()
        while (body := inbox.take_message()) is None and not inbox.closed:
            if last not in self._quick or not self._linger.wait(self._poll, since + SPIN_SECONDS):
                inbox.receive(self._channel, wait=True)
        # After looking ahead the next request may have been there already, so its time says nothing.
        soon = last is not LookAhead and time.perf_counter() - since < 2 * SPIN_SECONDS
        (self._quick.add if soon else self._quick.discard)(last)
        return body

    def _poll(self) -> bool:
        return self._inbox.receive(self._channel, wait=False)


def serve(channel: socket.socket, page: SharedPage) -> None:
    """Answer messages until the connection is closed."""
    decoder = msgspec.msgpack.Decoder(ParentMessage)
    reader = _MessageReader(channel)
    host: GameHost | None = None
    last: type = Setup
    channel.sendall(encode(Ready()))
    while (body := reader.read_next(last)) is not None:
        try:
            message = decoder.decode(body)
            if isinstance(message, Setup):
                host = GameHost(message, page)
            last = type(message.calls[0]) if isinstance(message, WorkerRequest) and message.calls else type(message)
            for answer in _answer_message(host, message):
                channel.sendall(encode(answer))
        except ConnectionError:
            raise
        except UserError as error:
            channel.sendall(encode(Failure(str(error), True)))
        except Exception as error:
            lacking = explain_lack_of_memory(error)
            if lacking and host is not None:  # the games could be set up once: a new process may have enough memory
                sys.exit(OUT_OF_MEMORY)
            channel.sendall(encode(Failure(lacking or traceback.format_exc(), bool(lacking))))
    if host is not None:
        host.close()


def _answer_message(host: GameHost | None, message: ParentMessage) -> Iterator[WorkerAnswer]:
    """Yield the answers to a message: one, two for early moves that need a search, or none to `LookAhead`."""
    if host is None:
        raise RuntimeError("a worker's first message must be its setup")
    if isinstance(message, Setup):
        yield host.ready
        return
    if isinstance(message, LookAhead):
        host.look_ahead(message)
        return
    answer = host.answer(message)
    later = list_still_to_find(message, answer)
    if later:
        host.pause()  # a worker that is lost from here on was not lost at a command that is answered now
    yield answer
    if later:
        yield host.answer(WorkerRequest(later))


def main() -> None:
    """Run a worker. Arguments: the descriptors of its socket and of the shared memory, and the parent's process id."""
    channel, memory, parent = map(int, sys.argv[1:4])
    set_up_emulator_process(parent)
    page = SharedPage.from_buffer(mmap.mmap(memory, SHARED_PAGE_SIZE))
    with socket.socket(fileno=channel) as connection, contextlib.suppress(ConnectionError):
        serve(connection, page)
