"""A worker process that holds some games of one kind and does what its parent asks: see vector.py for the other end.

It is started as a program of its own and not forked, because the parent may have threads. The two ends share a
socket, which carries msgpack messages behind a length, and a page of memory, the `Desk`: what lies on it is still
there when the process is gone, so that the parent can see what killed it.

No worker outlives its parent. One that waits sees the socket close; one that is stuck inside an emulator is killed by
the kernel (PR_SET_PDEATHSIG), on Linux. That signal in truth comes when the *thread* that started the worker ends: a
vector made in a thread that is gone loses its workers, and they are replaced like any others that were lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

import msgspec

from xtx.core import Game, Observation, Step, UserError
from xtx.games.details import Details, Facts
from xtx.games.game import GameSpec, StoryGame
from xtx.games.inbox import HEADER, LINGER, Inbox, Linger
from xtx.games.jericho import Trace
from xtx.games.toy import ToyGame
from xtx.games.world import Layout
from xtx.out_of_memory import explain_lack_of_memory

DESK_SIZE = mmap.PAGESIZE

NO_STEP = Step(Observation("", "", "", (), 0, 0), 0, False, False)
"""Stands where there is nothing to say."""

OUT_OF_MEMORY = 12
"""Exit status of a worker that could not go on for want of memory."""

_PR_SET_PDEATHSIG = 1


class Desk(ctypes.Structure):
    """What the worker is at, in memory shared with its parent."""

    _fields_ = (
        ("trace", Trace), ("call", ctypes.c_int64), ("start", ctypes.c_uint64), ("ahead", ctypes.c_int64),
        ("surveyed", ctypes.c_double),
    )  # fmt: skip
    # call: number of the call at work, -1 before the first; start: the trace's progress when that call began; ahead:
    # not 0 while the worker looks ahead; surveyed: the share of a survey that is done, 0 where there is none.


class HostedGame(Game, Protocol):
    """A game that a worker can hold: beside playing, it can be told what the emulator does not survive."""

    avoid: frozenset[str]
    newly_forbidden: list[tuple[bytes, str]]
    search_seconds: float
    searches: int

    def move(self, action: str, *, last: bool = False) -> Step:
        """`step` without what takes long: the observation has no valid actions yet."""

    def valid_actions(self) -> tuple[str, ...]:
        """The valid actions of the present state."""

    def known_actions(self) -> tuple[str, ...] | None:
        """The same if they need not be searched, else None."""

    def look_ahead(self, action: str) -> None:
        """Finds out what can be done where the action leads."""

    @property
    def here(self) -> bytes:
        """The key of the present state."""

    def forbid(self, key: bytes, action: str) -> None:
        """The action is not offered or tried in that state any more."""

    def forbid_for_good(self, key: bytes, action: str, *, share: bool = True) -> None:
        """The same in searches too, and if it may be shared, for all later runs."""

    def try_alone(self, command: str, *, as_step: bool) -> None:
        """Gives one command that may end this process."""

    @property
    def details(self) -> Details:
        """What people see of the present state."""

    @property
    def facts(self) -> Facts:
        """What is true of the game in every state."""

    def bring(self, base: int | bytes, actions: Iterable[str | None]) -> None:
        """Puts the game where another process had it."""


Verdict = tuple[bytes, str, bool]
"""Key of a state, an action that is forbidden there, and whether it is deadly: whether it ended a whole process, so
that nobody may try it again, not even in a search."""


# --- messages -------------------------------------------------------------------------------------------------------


class Setup(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first message: which games to hold."""

    spec: GameSpec
    games: int
    layout: bytes
    """What another worker found out about the story; empty if this one is to find it out."""
    avoid: tuple[str, ...] = ()
    """Commands that killed a worker while it found that out."""


class Reset(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A new game."""

    game: int
    """Which of the worker's games."""
    seed: int
    avoid: tuple[str, ...] = ()
    """Candidates that killed an earlier worker in the state that this leads to."""


class Move(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A step of a game."""

    game: int
    action: str
    last: bool
    early: bool = False
    """Answer without the valid actions if they must be searched; they follow in an answer of their own, as if all those
    games had been asked to `Find` them."""
    hopeless: bool = False
    """The action itself killed earlier workers: do not try it, and forbid it."""
    avoid: tuple[str, ...] = ()


class Restore(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A saved game."""

    game: int
    state: bytes
    avoid: tuple[str, ...] = ()


class Save(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The state of a game is wanted."""

    game: int
    avoid: tuple[str, ...] = ()


class Bring(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A game that a lost worker had is to go on here."""

    game: int
    base: int | bytes
    actions: list[str | None]
    avoid: tuple[str, ...] = ()


class Find(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The valid actions of a game's state are wanted."""

    game: int
    avoid: tuple[str, ...] = ()
    own: list[Verdict] = []
    """What came of the game's last step, for a process that did not see that."""


class Try(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A command over which a worker was lost is to be tried by itself, in a process that has done nothing else."""

    game: int
    base: int | bytes
    actions: list[str | None]
    """What leads to the state, as in `Bring`."""
    command: str
    as_step: bool
    """Whether it was a step of the game; else it was one of the commands of a search."""
    avoid: tuple[str, ...] = ()


Call = Reset | Move | Restore | Save | Bring | Find | Try


class Request(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """What is to be done, and before that, what all games must know."""

    calls: list[Call]
    forbid: list[Verdict] = []
    """Verdicts that some of the games may not know."""
    recalled: list[Verdict] = []
    """The same for those of an earlier part of the run: these processes did not see what they are about, so they are
    not put into the atlas."""


class Ahead(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """What games are likely to be asked next: time to find out what can be done there. It has no answer."""

    moves: list[tuple[int, str]]
    """Games and actions."""


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What came of a call, and what the parent keeps."""

    here: bytes
    forbidden: list[Verdict]
    """New verdicts."""
    step: Step = NO_STEP
    state: bytes = b""
    actions: tuple[str, ...] | None = ()
    """After an early `Move`, whose step has none: the valid actions; None if they follow."""
    details: Details | None = None
    """What people see of the state; None unless the games were set up to give it."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Answer to `Setup`, and, before that, the sign that the program runs."""

    layout: bytes = b""
    facts: Facts = Facts()


class Results(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answer to `Request`."""

    results: list[Result]
    worked: float = 0.0
    """Seconds that it took, with what was done unasked since the answer before this one."""
    searched: float = 0.0
    """Seconds of that in which valid actions were searched."""
    searches: int = 0


class Failure(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answer to anything that raised an exception."""

    message: str
    user_error: bool
    """Whether it was a `UserError`: then the message is one line; else it is a traceback."""


Message = Setup | Request | Ahead
Answer = Ready | Results | Failure


# --- games ----------------------------------------------------------------------------------------------------------


class Host:
    """Some games of one kind, and what may be asked of them. Works in any process."""

    def __init__(self, setup: Setup, desk: Desk) -> None:
        self._desk = desk
        self._games: list[HostedGame] = []
        self._searched = 0.0, 0
        """Seconds of searching, and searches, of which the parent knows."""
        self._ahead = 0.0
        """Seconds of looking ahead of which it does not."""
        spec, trace = setup.spec, desk.trace
        self._gives_details = spec.details
        desk.start = trace.progress
        if spec.path.startswith("toy:"):
            self._games += [ToyGame(spec.path, trace) for _ in range(setup.games)]
            self.ready = Ready(b"toy", self._games[0].facts)
            return
        layout = msgspec.msgpack.decode(setup.layout, type=Layout) if setup.layout else None
        first = StoryGame(spec, layout, trace, setup.avoid, self._note_survey)
        if spec.search:
            layout = first.layout
        self._games += [first, *(StoryGame(spec, layout, trace) for _ in range(setup.games - 1))]
        found = msgspec.msgpack.encode(layout) if layout is not None else b""
        self.ready = Ready(found, first.facts)

    def _note_survey(self, share: float, _: str) -> None:
        """Leaves word of how far the survey has come, which is a sign of life too."""
        self._desk.surveyed = share
        self._desk.trace.progress += 1

    def look_ahead(self, message: Ahead) -> None:
        """Finds out what can be done where games are likely to go. Whatever comes of it, nobody is to blame: a process
        that is lost over it is replaced, and no worker looks ahead any more."""
        self._desk.ahead = 1
        began = time.perf_counter()
        try:
            for game, action in message.moves:
                self._games[game].look_ahead(action)
        except Exception as error:  # there is nobody to answer, and who knows where the games are now
            raise SystemExit(f"looking ahead went wrong: {error!r}") from error
        self._ahead += time.perf_counter() - began
        self.pause()  # before anybody can be blamed for what was tried
        self._desk.ahead = 0

    def answer(self, request: Request) -> Results:
        """What came of each call, done one after the other."""
        began = time.perf_counter()
        for verdict in request.recalled:
            self._tell(verdict, share=False)
        for verdict in request.forbid:
            self._tell(verdict)
        results = []
        for number, call in enumerate(request.calls):
            self._desk.start = self._desk.trace.progress
            self._desk.call = number
            results.append(self._do(call))
        (searched, searches), self._searched = self._searched, self._searching()
        since, more = self._searched
        ahead, self._ahead = self._ahead, 0.0
        return Results(results, ahead + time.perf_counter() - began, since - searched, more - searches)

    def pause(self) -> None:
        """Says on the desk that nothing is being tried."""
        self._desk.start, self._desk.call = self._desk.trace.progress, -1

    def _searching(self) -> tuple[float, int]:
        """Seconds of searching so far, and searches."""
        return sum(game.search_seconds for game in self._games), sum(game.searches for game in self._games)

    def close(self) -> None:
        """Closes the games."""
        for game in self._games:
            game.close()

    def _tell(self, verdict: Verdict, share: bool = True) -> None:
        key, action, deadly = verdict
        for game in self._games:
            if deadly:
                game.forbid_for_good(key, action, share=share)
            else:
                game.forbid(key, action)

    def _try_alone(self, game: HostedGame, call: Try) -> None:
        self._desk.start = self._desk.trace.progress  # what comes now is the command, and nothing else
        game.try_alone(call.command, as_step=call.as_step)

    def _do(self, call: Call) -> Result:
        result = self._play(self._games[call.game], call)
        if self._gives_details and isinstance(call, Reset | Move | Restore):
            result = msgspec.structs.replace(result, details=self._games[call.game].details)
        return result

    def _play(self, game: HostedGame, call: Call) -> Result:
        game.avoid = frozenset(call.avoid)
        match call:
            case Move():
                result = _moved(game, call)
            case Find():
                result = _result(game, call, Step(_found(game, call), 0, False, False))
            case Reset():
                result = _result(game, call, Step(game.reset(call.seed), 0, False, False))
            case Restore():
                result = _result(game, call, Step(game.restore(call.state), 0, False, False))
            case Save():
                result = Result(game.here, [], state=game.save())
            case Bring() | Try():
                game.bring(call.base, call.actions)
                result = Result(game.here, [])
                if isinstance(call, Try):
                    self._try_alone(game, call)
        # Nothing is left for a later state: what was to be avoided may have been found in the atlas meanwhile.
        game.avoid = frozenset()
        if call.avoid:
            # The other games would be killed by the same candidates in the same state: spare them that.
            for verdict in result.forbidden:
                self._tell(verdict)
        return result


def _moved(game: HostedGame, call: Move) -> Result:
    if call.hopeless:
        # Not for good yet: the atlas must not tell others before the parent does.
        game.forbid(game.here, call.action)
        game.newly_forbidden.append((game.here, call.action))
    step = (game.move if call.early else game.step)(call.action, last=call.last)
    actions = game.known_actions() if call.early and not step.terminated else ()
    return _result(game, call, step, actions)


def _found(game: HostedGame, call: Find) -> Observation:
    for key, action, _ in call.own:
        game.forbid(key, action)
    return replace(NO_STEP.observation, actions=game.valid_actions())


def _result(
    game: HostedGame, call: Reset | Move | Restore | Find, step: Step, actions: tuple[str, ...] | None = ()
) -> Result:
    deadly = {*call.avoid, call.action} if isinstance(call, Move) and call.hopeless else set(call.avoid)
    forbidden = [(key, action, action in deadly) for key, action in game.newly_forbidden]
    game.newly_forbidden.clear()
    return Result(game.here, forbidden, step, actions=actions)


def _still_to_find(request: Request, answer: Results) -> list[Call]:
    """What is left to be done after early moves, without being asked."""
    done = zip(request.calls, answer.results, strict=True)
    return [Find(call.game) for call, result in done if result.actions is None]


# --- the process ----------------------------------------------------------------------------------------------------


def encode(message: Message | Answer) -> bytes:
    """A message as it goes over the socket."""
    body = msgspec.msgpack.encode(message)
    return HEADER.pack(len(body)) + body


class _Ear:
    """The parent's messages. Where the next one came soon after one of its kind, it is likely to do so again, and is
    awaited awake."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._inbox, self._linger = Inbox(), Linger()
        self._quick: set[type] = set()

    def next(self, last: type) -> memoryview | None:
        """The message that follows one of that kind; None where the other end is closed."""
        inbox, since = self._inbox, time.perf_counter()
        while (body := inbox.message()) is None and not inbox.closed:
            if last not in self._quick or not self._linger.wait(self._come, since + LINGER):
                inbox.receive(self._channel, wait=True)
        # (After looking ahead the next request may have been there already.)
        soon = last is not Ahead and time.perf_counter() - since < 2 * LINGER
        (self._quick.add if soon else self._quick.discard)(last)
        return body

    def _come(self) -> bool:
        return self._inbox.receive(self._channel, wait=False)


def serve(channel: socket.socket, desk: Desk) -> None:
    """Answers until the other end is closed."""
    decoder = msgspec.msgpack.Decoder(Message)
    ear = _Ear(channel)
    host: Host | None = None
    last: type = Setup
    channel.sendall(encode(Ready()))
    while (body := ear.next(last)) is not None:
        try:
            message = decoder.decode(body)
            if isinstance(message, Setup):
                host = Host(message, desk)
            last = type(message.calls[0]) if isinstance(message, Request) and message.calls else type(message)
            for answer in _answers(host, message):
                channel.sendall(encode(answer))
        except ConnectionError:
            raise
        except UserError as error:
            channel.sendall(encode(Failure(str(error), True)))
        except Exception as error:
            lacking = explain_lack_of_memory(error)
            if lacking and host is not None:  # it could play once: a new process may have more
                sys.exit(OUT_OF_MEMORY)
            channel.sendall(encode(Failure(lacking or traceback.format_exc(), bool(lacking))))
    if host is not None:
        host.close()


def _answers(host: Host | None, message: Message) -> Iterator[Answer]:
    """What there is to say to a message, one after the other."""
    if host is None:
        raise RuntimeError("a worker's first message must be its setup")
    if isinstance(message, Setup):
        yield host.ready
        return
    if isinstance(message, Ahead):
        host.look_ahead(message)
        return
    answer = host.answer(message)
    later = _still_to_find(message, answer)
    if later:
        host.pause()  # who is lost now is not lost over what was already answered
    yield answer
    if later:
        yield host.answer(Request(later))


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


def main() -> None:
    """A worker's life. Arguments: the numbers of its socket, of the desk's memory, and of its parent."""
    channel, memory, parent = map(int, sys.argv[1:4])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    # libfrotz writes its complaints to the terminal; ours still go there.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    desk = Desk.from_buffer(mmap.mmap(memory, DESK_SIZE))
    with socket.socket(fileno=channel) as connection, contextlib.suppress(ConnectionError):
        serve(connection, desk)
