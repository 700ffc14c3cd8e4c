"""A worker process: holds some games of one kind and answers its parent's calls; game_vector.py is the other end.

It is started as a program, not forked, because the parent may have threads. The two ends share a socket, which carries
length-prefixed msgpack messages, and a page of memory, the `SharedPage`. That page survives the process, so the parent
can see what a lost worker was doing.

No worker outlives its parent. A waiting worker sees the socket close; one that is stuck inside an emulator is killed by
the kernel (PR_SET_PDEATHSIG), on Linux. That signal comes when the *thread* that started the worker ends: a vector made
in a thread that has ended loses its workers, and they are replaced like any lost worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

import msgspec

from xtx.child_processes import set_up_emulator_process
from xtx.core import Game, Observation, Step, UserError
from xtx.games.canonical.canonical_state import Layout
from xtx.games.catalog.profile import Profile
from xtx.games.emulator.frotz import Trace
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.toy_game import ToyGame
from xtx.games.vector.socket_messages import HEADER, LINGER, Inbox, SpinWait
from xtx.out_of_memory import explain_lack_of_memory

SHARED_PAGE_SIZE = mmap.PAGESIZE
"""Size of the shared memory in bytes: one page, which holds a `SharedPage`."""

NO_STEP = Step(Observation("", "", "", (), 0, 0), 0, False, False)
"""The step in results that have none."""

OUT_OF_MEMORY = 12
"""Exit status of a worker that ran out of memory."""


class SharedPage(ctypes.Structure):
    """What a worker is doing, in memory shared with its parent."""

    _fields_ = (
        ("trace", Trace), ("call", ctypes.c_int64), ("start", ctypes.c_uint64), ("ahead", ctypes.c_int64),
        ("bringing", ctypes.c_int64), ("surveyed", ctypes.c_double),
    )  # fmt: skip
    # call: index of the current call, -1 before the first; start: the trace's progress counter when that call began;
    # ahead: not 0 while the worker looks ahead; bringing: not 0 while a game is brought to the state of a call;
    # surveyed: the share of a survey that is done, 0 without a survey.


class HostedGame(Game, Protocol):
    """A game that a worker can hold: a `Game` that searches valid actions and can be told which actions are
    forbidden."""

    avoid: frozenset[str]
    """Candidates that the next search leaves out."""
    unproven: frozenset[str]
    """Those of them that later runs do not leave out."""
    newly_forbidden: list[tuple[bytes, str]]
    """Keys of states and actions that were found to be impossible there since this list was last cleared."""
    search_seconds: float
    """Seconds spent in searches so far."""
    searches: int
    """Number of searches so far."""

    def move(self, action: str, *, last: bool = False) -> Step:
        """Make a step without the search: the observation has no valid actions yet."""

    def valid_actions(self) -> tuple[str, ...]:
        """Search the valid actions of the current state."""

    def known_actions(self) -> tuple[str, ...] | None:
        """Return the valid actions of the current state if they need not be searched; None otherwise."""

    def look_ahead(self, action: str) -> None:
        """Search the valid actions of the state after an action, for later use; the game stays where it is."""

    @property
    def here(self) -> bytes:
        """The key of the current state."""

    def forbid(self, key: bytes, action: str) -> None:
        """Never offer or step an action in a state again."""

    def forbid_for_good(self, key: bytes, action: str, *, share: bool = True) -> None:
        """Never try an action in a state again, not even in a search; with `share`, also not in later runs."""

    def try_alone(self, command: str, *, as_step: bool) -> None:
        """Execute one command, which may end this process, as a step or as a candidate of a search."""

    @property
    def details(self) -> Details:
        """Details of the current state for people."""

    @property
    def facts(self) -> Facts:
        """Facts about the game that hold in every state."""

    def bring(self, base: int | bytes, actions: Iterable[str | None]) -> None:
        """Bring the game to the state that another process had: a seed or saved state, and the actions since."""


Verdict = tuple[bytes, str, bool]
"""Key of a state, an action that is forbidden there, and whether the action is deadly: it ended a process, so it is
not tried again, not even in a search."""


# --- messages -------------------------------------------------------------------------------------------------------


class Setup(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first message: which games to hold."""

    spec: GameSpec
    games: int
    layout: bytes
    """The encoded layout that another worker's survey of the story found; empty if this worker must survey it."""
    avoid: tuple[str, ...] = ()
    """Commands that ended a worker during the survey."""
    profile: bytes = b""
    """The story's profile as another worker has it, as JSON; empty if the story has none, or this worker is the
    first."""


class ResetCall(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Begin a new episode in a game."""

    game: int
    """Index of the game in the worker; the same in all calls."""
    seed: int
    avoid: tuple[str, ...] = ()
    """Candidates that ended an earlier worker in the state after this call; the same in all calls."""


class MoveCall(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Make a step in a game."""

    game: int
    action: str
    last: bool
    """Whether the step limit ends the episode with it."""
    early: bool = False
    """Answer before the search if the valid actions must be searched. They follow in a second answer, as if `FindCall`
    had been called for all these games."""
    hopeless: bool = False
    """The action itself ended earlier workers: forbid it instead of executing it."""
    avoid: tuple[str, ...] = ()


class RestoreCall(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Put a game into a saved state."""

    game: int
    state: bytes
    avoid: tuple[str, ...] = ()


class SaveCall(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Return the state of a game."""

    game: int
    avoid: tuple[str, ...] = ()


class BringCall(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Bring a game to the state that a lost worker had: a seed or saved state, and the actions since."""

    game: int
    base: int | bytes
    actions: list[str | None]
    avoid: tuple[str, ...] = ()


class FindCall(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Search the valid actions of a game's state."""

    game: int
    avoid: tuple[str, ...] = ()
    own: list[Verdict] = []
    """New verdicts of the game's last step, for a worker that did not make that step."""


class TryCall(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Execute alone a command at which a worker was lost, in a process that has done nothing else."""

    game: int
    base: int | bytes
    actions: list[str | None]
    """With `base`, the way to the state, as in `BringCall`."""
    command: str
    as_step: bool
    """Whether it was a step of the game; otherwise it was a candidate of a search."""
    avoid: tuple[str, ...] = ()


Call = ResetCall | MoveCall | RestoreCall | SaveCall | BringCall | FindCall | TryCall


class Request(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Calls to make, and verdicts that all games get before."""

    calls: list[Call]
    forbid: list[Verdict] = []
    """Verdicts that were not sent to this worker yet."""
    recalled: list[Verdict] = []
    """The same, but they are not written to the atlas: from an earlier part of the run, or unproven."""
    unproven: tuple[str, ...] = ()
    """Commands among those that the calls avoid which did not end a process that tried them alone."""


class Ahead(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Search the states after the next likely actions, while other workers are still busy. It has no answer."""

    moves: list[tuple[int, str]]
    """Indices of games, and actions."""


class CallResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a call."""

    here: bytes
    """Key of the game's state after the call."""
    forbidden: list[Verdict]
    """Verdicts that the call found."""
    step: Step = NO_STEP
    """After `MoveCall`, `ResetCall`, `RestoreCall` and `FindCall`; the last three have an observation only."""
    state: bytes = b""
    """After `SaveCall`."""
    actions: tuple[str, ...] | None = ()
    """After an early `MoveCall`, whose step has none: the valid actions; None if they follow in a second answer."""
    details: Details | None = None
    """Details of the state for people; None unless `GameSpec.details` asks for them."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Answer to `Setup`; also sent once, empty, when the program has started."""

    layout: bytes = b""
    facts: Facts = Facts()
    profile: bytes = b""
    """As in `Setup`."""


class Results(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answer to `Request`."""

    results: list[CallResult]
    """One for each call."""
    worked: float = 0.0
    """Seconds that it took, including looking ahead since the answer before."""
    searched: float = 0.0
    """Seconds of these that were spent in searches."""
    searches: int = 0
    """Number of searches in them."""


class Failure(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answer to a message that raised an exception."""

    message: str
    user_error: bool
    """Whether it was a `UserError`: then the message is one line; otherwise it is a traceback."""


Message = Setup | Request | Ahead
Answer = Ready | Results | Failure


# --- games ----------------------------------------------------------------------------------------------------------


class Host:
    """Some games of one kind, and the calls that they answer. Works in any process."""

    def __init__(self, setup: Setup, desk: SharedPage) -> None:
        self._desk = desk
        self._games: list[HostedGame] = []
        self._searched = 0.0, 0
        """Seconds of searching, and searches, that were reported to the parent."""
        self._ahead = 0.0
        """Seconds of looking ahead that were not reported yet."""
        self._unproven: frozenset[str] = frozenset()
        """As in the present request."""
        spec, trace = setup.spec, desk.trace
        self._gives_details = spec.details
        desk.start = trace.progress
        if spec.path.startswith("toy:"):
            self._games += [ToyGame(spec.path, trace) for _ in range(setup.games)]
            self.ready = Ready(b"toy", self._games[0].facts)
            return
        layout = msgspec.msgpack.decode(setup.layout, type=Layout) if setup.layout else None
        profile = msgspec.json.decode(setup.profile, type=Profile) if setup.profile else None
        first = StoryGame(spec, layout, trace, setup.avoid, self._note_survey, profile)
        if spec.search:
            layout, profile = first.layout, first.emulator.story.profile
        more = range(setup.games - 1)
        self._games += [first, *(StoryGame(spec, layout, trace, profile=profile) for _ in more)]
        found = msgspec.msgpack.encode(layout) if layout is not None else b""
        # All workers must have the same profile. Another one may not discover the same: its process may be killed.
        self.ready = Ready(found, first.facts, msgspec.json.encode(profile) if profile is not None else b"")

    def _note_survey(self, share: float, _: str) -> None:
        """Publish the progress of the survey; it also counts as progress of the worker."""
        self._desk.surveyed = share
        self._desk.trace.progress += 1

    def look_ahead(self, message: Ahead) -> None:
        """Search the states that games are likely to reach next.

        If the process is lost meanwhile, it is replaced, no command is blamed, and no worker looks ahead any more.
        """
        self._desk.ahead = 1
        began = time.perf_counter()
        try:
            for game, action in message.moves:
                self._games[game].look_ahead(action)
        except Exception as error:  # the message has no answer, and the games may be in any state
            raise SystemExit(f"looking ahead went wrong: {error!r}") from error
        self._ahead += time.perf_counter() - began
        self.pause()  # first: from `ahead` = 0 on, a command that was tried could be blamed
        self._desk.ahead = 0

    def answer(self, request: Request) -> Results:
        """Make the calls one after the other and return their results."""
        began = time.perf_counter()
        for verdict in request.recalled:
            self._forbid(verdict, share=False)
        for verdict in request.forbid:
            self._forbid(verdict)
        self._unproven = frozenset(request.unproven)
        results = []
        for number, call in enumerate(request.calls):
            self._desk.start = self._desk.trace.progress
            self._desk.call = number
            results.append(self._make_call(call))
        (searched, searches), self._searched = self._searched, self._searching()
        since, more = self._searched
        ahead, self._ahead = self._ahead, 0.0
        return Results(results, ahead + time.perf_counter() - began, since - searched, more - searches)

    def pause(self) -> None:
        """Publish that no command is being tried."""
        self._desk.start, self._desk.call = self._desk.trace.progress, -1

    def _searching(self) -> tuple[float, int]:
        """Return the seconds of searching so far, and the number of searches."""
        return sum(game.search_seconds for game in self._games), sum(game.searches for game in self._games)

    def close(self) -> None:
        """Close the games."""
        for game in self._games:
            game.close()

    def _forbid(self, verdict: Verdict, share: bool = True) -> None:
        """Pass a verdict to all games."""
        key, action, deadly = verdict
        for game in self._games:
            if deadly:
                game.forbid_for_good(key, action, share=share)
            else:
                game.forbid(key, action)

    def _try_alone(self, game: HostedGame, call: TryCall) -> None:
        self._desk.start = self._desk.trace.progress  # the command is the first that counts from here
        game.try_alone(call.command, as_step=call.as_step)

    def _make_call(self, call: Call) -> CallResult:
        """Make one call; its `avoid` holds for this call only."""
        game = self._games[call.game]
        game.avoid, game.unproven = frozenset(call.avoid), self._unproven
        result = self._dispatch(game, call)
        if self._gives_details and isinstance(call, ResetCall | MoveCall | RestoreCall):
            result = msgspec.structs.replace(result, details=game.details)
        game.avoid = frozenset()
        if call.avoid:
            # The same candidates in the same state would end the process in the other games too.
            for verdict in result.forbidden:
                self._forbid(verdict, share=verdict[1] not in self._unproven)
        return result

    def _dispatch(self, game: HostedGame, call: Call) -> CallResult:
        match call:
            case MoveCall():
                return _make_move(game, call)
            case FindCall():
                return _make_result(game, call, Step(_find_actions(game, call), 0, False, False))
            case ResetCall():
                return _make_result(game, call, Step(game.reset(call.seed), 0, False, False))
            case RestoreCall():
                return _make_result(game, call, Step(game.restore(call.state), 0, False, False))
            case SaveCall():
                return CallResult(game.here, [], state=game.save())
            case BringCall() | TryCall():
                self._desk.bringing = 1
                game.bring(call.base, call.actions)
                self._desk.bringing = 0
                if isinstance(call, TryCall):
                    self._try_alone(game, call)
                return CallResult(game.here, [])


def _make_move(game: HostedGame, call: MoveCall) -> CallResult:
    if call.hopeless:
        # Not for good yet: a verdict must not reach other games by the atlas before the parent sends it.
        game.forbid(game.here, call.action)
        game.newly_forbidden.append((game.here, call.action))
    step = (game.move if call.early else game.step)(call.action, last=call.last)
    actions = game.known_actions() if call.early and not step.terminated else ()
    return _make_result(game, call, step, actions)


def _find_actions(game: HostedGame, call: FindCall) -> Observation:
    for key, action, _ in call.own:
        game.forbid(key, action)
    return replace(NO_STEP.observation, actions=game.valid_actions())


def _make_result(
    game: HostedGame,
    call: ResetCall | MoveCall | RestoreCall | FindCall,
    step: Step,
    actions: tuple[str, ...] | None = (),
) -> CallResult:
    deadly = {*call.avoid, call.action} if isinstance(call, MoveCall) and call.hopeless else set(call.avoid)
    forbidden = [(key, action, action in deadly) for key, action in game.newly_forbidden]
    game.newly_forbidden.clear()
    return CallResult(game.here, forbidden, step, actions=actions)


def _still_to_find(request: Request, answer: Results) -> list[Call]:
    """Return the searches that early moves left to do."""
    done = zip(request.calls, answer.results, strict=True)
    return [FindCall(call.game) for call, result in done if result.actions is None]


# --- the process ----------------------------------------------------------------------------------------------------


def encode(message: Message | Answer) -> bytes:
    """Encode a message with its header."""
    body = msgspec.msgpack.encode(message)
    return HEADER.pack(len(body)) + body


class _MessageReader:
    """Reads the parent's messages. If the last message of a kind was soon followed by another, it spin-waits for the
    next
    one, because it is likely to follow soon again."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._inbox, self._linger = Inbox(), SpinWait()
        self._quick: set[type] = set()

    def next(self, last: type) -> memoryview | None:
        """Return the next message; None if the connection was closed. `last`: the kind of the message before."""
        inbox, since = self._inbox, time.perf_counter()
        while (body := inbox.message()) is None and not inbox.closed:
            if last not in self._quick or not self._linger.wait(self._poll, since + LINGER):
                inbox.receive(self._channel, wait=True)
        # After looking ahead the next request may have been there already, so its time says nothing.
        soon = last is not Ahead and time.perf_counter() - since < 2 * LINGER
        (self._quick.add if soon else self._quick.discard)(last)
        return body

    def _poll(self) -> bool:
        return self._inbox.receive(self._channel, wait=False)


def serve(channel: socket.socket, desk: SharedPage) -> None:
    """Answer messages until the connection is closed."""
    decoder = msgspec.msgpack.Decoder(Message)
    reader = _MessageReader(channel)
    host: Host | None = None
    last: type = Setup
    channel.sendall(encode(Ready()))
    while (body := reader.next(last)) is not None:
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
            if lacking and host is not None:  # the games could be set up once: a new process may have enough memory
                sys.exit(OUT_OF_MEMORY)
            channel.sendall(encode(Failure(lacking or traceback.format_exc(), bool(lacking))))
    if host is not None:
        host.close()


def _answers(host: Host | None, message: Message) -> Iterator[Answer]:
    """Yield the answers to a message: one, two for early moves that need a search, or none to `Ahead`."""
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
        host.pause()  # a worker that is lost from here on was not lost at a command that is answered now
    yield answer
    if later:
        yield host.answer(Request(later))


def main() -> None:
    """Run a worker. Arguments: the descriptors of its socket and of the shared memory, and the parent's process id."""
    channel, memory, parent = map(int, sys.argv[1:4])
    set_up_emulator_process(parent)
    desk = SharedPage.from_buffer(mmap.mmap(memory, SHARED_PAGE_SIZE))
    with socket.socket(fileno=channel) as connection, contextlib.suppress(ConnectionError):
        serve(connection, desk)
