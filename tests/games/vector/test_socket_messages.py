"""Messages from a socket, and spin-waiting for them."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from xtx.games.vector.socket_messages import HEADER, SPIN_SECONDS, Inbox, SpinWait

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


def next_message(inbox: Inbox) -> bytes | None:
    body = inbox.take_message()
    return None if body is None else bytes(body)


def test_messages_come_out_whole_and_in_order(ends: Ends) -> None:
    here, there = ends
    inbox = Inbox()
    first, second, third = b"one", b"", b"three" * 7
    sent = framed(first) + framed(second) + framed(third)
    found = []
    for begin in range(0, len(sent), 5):
        there.sendall(sent[begin : begin + 5])
        assert inbox.receive(here, wait=False)
        while (body := next_message(inbox)) is not None:
            found.append(body)
    assert found == [first, second, third] and not inbox.closed
    assert not inbox.receive(here, wait=False)  # nothing more has come


def test_several_messages_may_come_at_once(ends: Ends) -> None:
    here, there = ends
    inbox = Inbox()
    there.sendall(framed(b"a") + framed(b"bc") + framed(b"def")[:-1])
    assert inbox.receive(here, wait=True)
    assert [next_message(inbox) for _ in range(3)] == [b"a", b"bc", None]
    there.sendall(b"f")
    assert inbox.receive(here, wait=True)
    assert next_message(inbox) == b"def"


def test_there_is_room_for_long_messages(ends: Ends) -> None:
    here, there = ends
    inbox, long = Inbox(), bytes(range(256)) * 4000
    sent, found = framed(long) + framed(b"short"), None
    while found is None and sent:
        there.sendall(sent[:50_000])
        sent = sent[50_000:]
        while inbox.receive(here, wait=False):
            pass
        found = next_message(inbox)
    assert found == long and next_message(inbox) == b"short"


def test_a_message_that_was_read_takes_no_room(ends: Ends) -> None:
    here, there = ends
    inbox, body = Inbox(), bytes(50_000)
    for _ in range(5):  # one look each time
        there.sendall(framed(body))
        assert inbox.receive(here, wait=True)
        assert next_message(inbox) == body


@pytest.mark.parametrize("abrupt", [False, True])
def test_the_other_end_may_close(ends: Ends, abrupt: bool) -> None:
    here, there = ends
    inbox = Inbox()
    there.sendall(framed(b"last"))
    if abrupt:
        here.sendall(b"unread")  # so that closing resets the connection
    there.close()
    while not inbox.closed:
        assert inbox.receive(here, wait=True)
    assert next_message(inbox) == b"last" and next_message(inbox) is None


def test_one_waits_as_long_as_the_socket_may(ends: Ends) -> None:
    here, _there = ends
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 60, 0))
    began = time.perf_counter()
    assert not Inbox().receive(here, wait=False)
    assert time.perf_counter() - began < 30
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 30_000))
    began = time.perf_counter()
    assert not Inbox().receive(here, wait=True)
    assert time.perf_counter() - began > 0.02


def test_one_stays_awake_for_a_moment_only() -> None:
    looks: list[int] = []

    def nothing() -> bool:
        looks.append(1)
        return False

    began = time.perf_counter()
    while len(looks) < 3:  # on a busy machine it may back off at once
        assert not SpinWait().wait(nothing, time.perf_counter() + 0.01)
        assert time.perf_counter() - began < 60
    assert SpinWait().wait(lambda: True, 0.0)  # what has come is seen even so


def test_one_falls_asleep_where_others_hold_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    given_way: list[int] = []

    def give_way(seconds: float) -> None:
        given_way.append(1)
        time.sleep(seconds)

    def times_awake(linger: SpinWait, waits: int) -> int:
        given_way.clear()
        for _ in range(waits):
            linger.wait(lambda: False, time.perf_counter() + 60)
        return len(given_way)

    monkeypatch.setattr(os, "sched_yield", lambda: give_way(3 * SPIN_SECONDS))
    linger = SpinWait()
    # Awake once, then asleep 4 times, 8 times, 16 times.
    assert [times_awake(linger, 1 + asleep) for asleep in (4, 8, 16)] == [1, 1, 1]
    assert [times_awake(linger, 1 + asleep) for asleep in (32, 64, 128, 256, 512)] == [1] * 5
    assert [times_awake(linger, 513) for _ in range(2)] == [1, 1]  # no more than that
    for _ in range(600):  # what comes at once makes it forget that
        linger.wait(lambda: True, 0.0)
    assert times_awake(linger, 10) == 2
