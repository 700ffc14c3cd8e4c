"""The games of one worker, and the calls that they answer. Works in any process."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import msgspec

from xtx.core import Game, Observation, Step
from xtx.games.action_verdicts import ActionVerdicts
from xtx.games.canonical.canonical_state import Layout
from xtx.games.catalog.profile import Profile
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import StoryGame
from xtx.games.toy_game import ToyGame
from xtx.games.vector.messages import (
    NO_STEP,
    Call,
    CallResult,
    FindCall,
    ForbiddenAction,
    LookAhead,
    MoveCall,
    Ready,
    RebuildCall,
    ResetCall,
    RestoreCall,
    Results,
    SaveCall,
    Setup,
    TryCall,
    WorkerRequest,
)
from xtx.games.vector.shared_page import SharedPage


class HostedGame(Game, Protocol):
    """A game that a worker can hold: a `Game` that searches valid actions and can be told which actions are
    forbidden."""

    @property
    def states(self) -> ActionVerdicts:
        """Forbidden actions, and the time that searches took."""

    def move(self, action: str, *, last: bool = False) -> Step:
        """Make a step without the search: the observation has no valid actions yet."""

    def find_valid_actions(self) -> tuple[str, ...]:
        """Search the valid actions of the current state."""

    def find_known_actions(self) -> tuple[str, ...] | None:
        """Return the valid actions of the current state if they need not be searched; None otherwise."""

    def look_ahead(self, action: str) -> None:
        """Search the valid actions of the state after an action, for later use; the game stays where it is."""

    @property
    def here(self) -> bytes:
        """The key of the current state."""

    def try_alone(self, command: str, *, as_step: bool) -> None:
        """Execute one command, which may end this process, as a step or as a candidate of a search."""

    @property
    def details(self) -> Details:
        """Details of the current state for people."""

    @property
    def facts(self) -> Facts:
        """Facts about the game that hold in every state."""

    def rebuild(self, base: int | bytes, actions: Iterable[str | None]) -> None:
        """Bring the game to the state that another process had: a seed or saved state, and the actions since."""


class GameHost:
    """Some games of one kind, and the calls that they answer. Works in any process."""

    def __init__(self, setup: Setup, page: SharedPage) -> None:
        self._page = page
        self._games: list[HostedGame] = []
        self._searched = 0.0, 0
        """Seconds of searching, and searches, that were reported to the parent."""
        self._ahead = 0.0
        """Seconds of looking ahead that were not reported yet."""
        self._unproven: frozenset[str] = frozenset()
        """As in the present request."""
        spec, trace = setup.spec, page.trace
        self._gives_details = spec.details
        page.start = trace.progress
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
        self._page.surveyed = share
        self._page.trace.progress += 1

    def look_ahead(self, message: LookAhead) -> None:
        """Search the states that games are likely to reach next.

        If the process is lost meanwhile, it is replaced, no command is forbidden, and no worker looks ahead any more.
        """
        self._page.ahead = 1
        began = time.perf_counter()
        try:
            for game, action in message.moves:
                self._games[game].look_ahead(action)
        except Exception as error:  # the message has no answer, and the games may be in any state
            raise SystemExit(f"looking ahead went wrong: {error!r}") from error
        self._ahead += time.perf_counter() - began
        self.pause()  # first: from `ahead` = 0 on, a command that was tried could be taken for the cause
        self._page.ahead = 0

    def answer(self, request: WorkerRequest) -> Results:
        """Make the calls one after the other and return their results."""
        began = time.perf_counter()
        for verdict in request.recalled:
            self._forbid(verdict, share=False)
        for verdict in request.forbid:
            self._forbid(verdict)
        self._unproven = frozenset(request.unproven)
        results = []
        for number, call in enumerate(request.calls):
            self._page.start = self._page.trace.progress
            self._page.call = number
            results.append(self._make_call(call))
        (searched, searches), self._searched = self._searched, self._measure_searches()
        since, more = self._searched
        ahead, self._ahead = self._ahead, 0.0
        return Results(results, ahead + time.perf_counter() - began, since - searched, more - searches)

    def pause(self) -> None:
        """Publish that no command is being tried."""
        self._page.start, self._page.call = self._page.trace.progress, -1

    def _measure_searches(self) -> tuple[float, int]:
        """Return the seconds of searching so far, and the number of searches."""
        return sum(game.states.search_seconds for game in self._games), sum(
            game.states.searches for game in self._games
        )

    def close(self) -> None:
        """Close the games."""
        for game in self._games:
            game.close()

    def _forbid(self, verdict: ForbiddenAction, share: bool = True) -> None:
        """Pass a verdict to all games."""
        key, action, deadly = verdict
        for game in self._games:
            if deadly:
                game.states.forbid_for_good(key, action, share=share)
            else:
                game.states.forbid(key, action)

    def _try_alone(self, game: HostedGame, call: TryCall) -> None:
        self._page.start = self._page.trace.progress  # the command is the first that counts from here
        game.try_alone(call.command, as_step=call.as_step)

    def _make_call(self, call: Call) -> CallResult:
        """Make one call; its `avoid` holds for this call only."""
        game = self._games[call.game]
        game.states.avoid, game.states.unproven = frozenset(call.avoid), self._unproven
        result = self._dispatch(game, call)
        if self._gives_details and isinstance(call, ResetCall | MoveCall | RestoreCall):
            result = msgspec.structs.replace(result, details=game.details)
        game.states.avoid = frozenset()
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
            case RebuildCall() | TryCall():
                self._page.rebuilding = 1
                game.rebuild(call.base, call.actions)
                self._page.rebuilding = 0
                if isinstance(call, TryCall):
                    self._try_alone(game, call)
                return CallResult(game.here, [])


def _make_move(game: HostedGame, call: MoveCall) -> CallResult:
    if call.is_deadly:
        # Not for good yet: a verdict must not reach other games by the atlas before the parent sends it.
        game.states.forbid(game.here, call.action)
        game.states.newly_forbidden.append((game.here, call.action))
    step = (game.move if call.early else game.step)(call.action, last=call.last)
    actions = game.find_known_actions() if call.early and not step.terminated else ()
    return _make_result(game, call, step, actions)


def _find_actions(game: HostedGame, call: FindCall) -> Observation:
    for key, action, _ in call.own:
        game.states.forbid(key, action)
    return replace(NO_STEP.observation, actions=game.find_valid_actions())


def _make_result(
    game: HostedGame,
    call: ResetCall | MoveCall | RestoreCall | FindCall,
    step: Step,
    actions: tuple[str, ...] | None = (),
) -> CallResult:
    deadly = {*call.avoid, call.action} if isinstance(call, MoveCall) and call.is_deadly else set(call.avoid)
    forbidden = [(key, action, action in deadly) for key, action in game.states.newly_forbidden]
    game.states.newly_forbidden.clear()
    return CallResult(game.here, forbidden, step, actions=actions)


def list_still_to_find(request: WorkerRequest, answer: Results) -> list[Call]:
    """Return the searches that early moves left to do."""
    done = zip(request.calls, answer.results, strict=True)
    return [FindCall(call.game) for call, result in done if result.actions is None]
