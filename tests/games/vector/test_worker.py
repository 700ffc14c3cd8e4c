"""The games of a worker in this process: its answers, and what it writes to the shared memory."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from xtx.games.story_game import NO_ANSWER, GameSpec
from xtx.games.toy_game import ToyGame
from xtx.games.vector import worker
from xtx.games.vector.game_host import GameHost
from xtx.games.vector.messages import (
    Call,
    Failure,
    MoveCall,
    ParentMessage,
    Ready,
    RebuildCall,
    ResetCall,
    RestoreCall,
    Results,
    SaveCall,
    Setup,
    WorkerAnswer,
    WorkerRequest,
    encode,
)
from xtx.games.vector.shared_page import SharedPage
from xtx.games.vector.socket_messages import HEADER
from xtx.games.vector.worker import serve

TOY = Setup(GameSpec("toy:corridor-6"), 2, b"")


@contextmanager
def served() -> Iterator[socket.socket]:
    """The parent's end of a worker that lives in a thread; it must end when the socket does."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, SharedPage()), daemon=True)
    thread.start()
    with ours, theirs:
        assert receive(ours) == Ready()
        yield ours
        ours.shutdown(socket.SHUT_WR)
        thread.join(5)
        assert not thread.is_alive()


def receive(channel: socket.socket) -> WorkerAnswer:
    stream = channel.makefile("rb", buffering=0)
    body = stream.read(*HEADER.unpack(stream.read(HEADER.size)))
    return msgspec.msgpack.decode(body, type=WorkerAnswer)


def ask(channel: socket.socket, message: ParentMessage) -> WorkerAnswer:
    channel.sendall(encode(message))
    return receive(channel)


def results(answer: WorkerAnswer) -> list[str]:
    assert isinstance(answer, Results)
    return [result.step.observation.text for result in answer.results]


def test_it_answers_until_the_socket_closes() -> None:
    with served() as channel:
        ready = ask(channel, TOY)
        assert isinstance(ready, Ready) and ready.layout == b"toy" and ready.facts.walkthrough_seed == 1
        assert results(ask(channel, WorkerRequest([ResetCall(0, 1), ResetCall(1, 1)])))[0].startswith("You stand")
        assert results(ask(channel, WorkerRequest([MoveCall(1, "take lamp", False), MoveCall(0, "sing", True)]))) == [
            "Done.",
            "Nothing happens.",
        ]


def early(channel: socket.socket, *actions: str) -> Results:
    """The first answer to early moves."""
    answer = ask(
        channel, WorkerRequest([MoveCall(game, action, False, early=True) for game, action in enumerate(actions)])
    )
    assert isinstance(answer, Results)
    assert not any(result.step.observation.actions for result in answer.results)
    return answer


def test_what_must_be_searched_follows_unasked_and_what_is_known_does_not() -> None:
    with served() as channel:
        ask(channel, TOY)
        ask(channel, WorkerRequest([ResetCall(0, 1), ResetCall(1, 1)]))
        # In the toy world every other step is as if it led to a new state.
        assert [result.actions for result in early(channel, "take lamp", "sing").results] == [None, None]
        found = receive(channel)
        assert isinstance(found, Results)
        assert [result.step.observation.actions for result in found.results] == [
            ("east", "drop lamp"),
            ("east", "take lamp"),
        ]
        ask(channel, WorkerRequest([MoveCall(1, "sing", False)]))
        mixed = early(channel, "sing", "sing").results
        assert [result.actions for result in mixed] == [("east", "drop lamp"), None]
        later = receive(channel)
        assert isinstance(later, Results)
        assert [result.step.observation.actions for result in later.results] == [("east", "take lamp")]
        assert [result.here for result in later.results] == [mixed[1].here]
        assert results(ask(channel, WorkerRequest([MoveCall(0, "sing", False)]))) == ["Nothing happens."]


def test_a_worker_lost_between_a_step_and_its_search_is_not_blamed_for_the_step() -> None:
    host, page, _games = toy_host()
    answers = worker._answer_message(
        host, WorkerRequest([MoveCall(0, "sing", False), MoveCall(1, "sing", False, early=True)])
    )
    next(answers)
    assert page.call == -1 and page.start == page.trace.progress
    next(answers)
    assert page.call == 0 and next(answers, None) is None


def test_mistakes_are_answers() -> None:
    with served() as channel:
        early = ask(channel, WorkerRequest([ResetCall(0, 1)]))
        assert isinstance(early, Failure) and not early.user_error and "setup" in early.message
        wrong = ask(channel, Setup(GameSpec("toy:cave-5"), 1, b""))
        assert isinstance(wrong, Failure) and wrong.user_error and "toy:corridor-5" in wrong.message
        ask(channel, TOY)
        absent = ask(channel, WorkerRequest([ResetCall(7, 1)]))
        assert isinstance(absent, Failure) and "IndexError" in absent.message
        channel.sendall(HEADER.pack(3) + b"???")
        assert isinstance(receive(channel), Failure)
        assert len(results(ask(channel, WorkerRequest([ResetCall(0, 1)])))) == 1  # and it still works


def test_half_a_message_is_no_message() -> None:
    with served() as channel:
        ask(channel, TOY)
        channel.sendall(encode(WorkerRequest([ResetCall(0, 1)]))[:-2])


@pytest.mark.parametrize(
    "call",
    [
        ResetCall(1, 2**31 - 1, ("a",)),
        MoveCall(0, "say \N{LATIN SMALL LETTER E WITH ACUTE}", True, True, True, ("b", "c")),
        RestoreCall(3, b"\0\xff"),
        SaveCall(2),
        RebuildCall(0, 12, ["x", None]),
        RebuildCall(0, b"state", []),
    ],
)
def test_messages_arrive_as_they_were_sent(call: Call) -> None:
    request = WorkerRequest([call], [(b"\1\2", "burst", True), (b"\3", "hang", False)])
    assert msgspec.msgpack.decode(encode(request)[HEADER.size :], type=ParentMessage) == request


def toy_host() -> tuple[GameHost, SharedPage, list[ToyGame]]:
    page = SharedPage()
    host = GameHost(TOY, page)
    games = [game for game in host._games if isinstance(game, ToyGame)]
    assert len(games) == 2
    host.answer(WorkerRequest([ResetCall(0, 1), ResetCall(1, 1)]))
    return host, page, games


def test_the_shared_memory_says_what_is_being_tried() -> None:
    host, page, _games = toy_host()
    host.answer(WorkerRequest([MoveCall(0, "sing", False), MoveCall(1, "take lamp", False)]))
    assert page.call == 1 and page.trace.command == b"take lamp"
    assert page.trace.progress == page.start + 1 == 2


def test_a_hopeless_action_is_not_tried_but_forbidden() -> None:
    host, page, games = toy_host()
    (answer,) = host.answer(WorkerRequest([MoveCall(0, "east", False, is_deadly=True)])).results
    seen = answer.step.observation
    assert seen.text == NO_ANSWER and "east" not in seen.actions
    assert answer.forbidden == [(games[0].here, "east", True)]
    assert page.trace.progress == 0
    (other,) = host.answer(WorkerRequest([MoveCall(1, "sing", False)])).results
    assert "east" in other.step.observation.actions  # the parent tells the others


def test_verdicts_reach_every_game_before_the_first_call() -> None:
    host, _page, games = toy_host()
    answers = host.answer(
        WorkerRequest([MoveCall(0, "sing", False), MoveCall(1, "sing", False)], [(games[0].here, "east", False)])
    ).results
    assert [answer.step.observation.actions for answer in answers] == [("take lamp",)] * 2
    assert [answer.forbidden for answer in answers] == [[], []]


def test_what_is_to_be_avoided_is_not_kept_for_a_later_state() -> None:
    host, _page, games = toy_host()
    host.answer(WorkerRequest([MoveCall(0, "sing", False, avoid=("east",))]))
    assert games[0].states.avoid == frozenset()


def test_a_worker_whose_parent_is_gone_ends_at_once() -> None:
    # Started with a parent's number that is not its parent's, as if that had died before the worker could look.
    code = "import sys; from xtx.games.vector.worker import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "0", "0", "1"], timeout=30, capture_output=True)
    assert done.returncode == 1 and done.stderr == b""
