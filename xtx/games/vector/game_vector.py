"""Several games stepped together in worker processes. Results depend neither on the number of workers nor on crashes.

For every game the parent stores the seed or saved state of its episode and the actions since, so that a new worker can
be brought to the same state: see worker_pool.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from xtx.core import Observation, Step, UserError, warn
from xtx.games.emulator.emulator_seeds import check_seed
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import NO_ANSWER, GameSpec
from xtx.games.vector.cpu_affinity import Placement
from xtx.games.vector.forbidden_actions import ForbiddenActions
from xtx.games.vector.game_host import GameHost
from xtx.games.vector.messages import (
    Call,
    CallResult,
    FindCall,
    ForbiddenAction,
    MoveCall,
    Ready,
    ResetCall,
    RestoreCall,
    SaveCall,
    Setup,
    WorkerRequest,
    accept_command,
)
from xtx.games.vector.requests import (
    PendingRequest,
    Slot,
    SplitStep,
)
from xtx.games.vector.shared_page import SharedPage
from xtx.games.vector.worker_pool import RequestOutcome, WorkerPool, WorkTotals


class GameVector:
    """Games of one kind that are stepped together.

    With `workers=0` the games are in this process, without protection from a story that ends its process; everything
    else is the same.
    """

    def __init__(
        self,
        spec: GameSpec,
        num_envs: int,
        workers: int | None = None,
        *,
        patience: float = 20.0,
        forbidden: Iterable[tuple[str, str, bool]] = (),
        layout: bytes = b"",
        on_report: Callable[[str], None] = warn,
        on_survey: Callable[[float], None] | None = None,
        ahead: bool | None = None,
        tie: bool = True,
    ) -> None:
        """num_envs: copies of the game. workers: number of processes; None for one for each processor.

        patience: seconds without progress after which a worker is replaced. forbidden, layout: those of an earlier
        vector of the same story (see the properties). on_report: called with lines about lost workers and forbidden
        actions. on_survey: called repeatedly with the share of the survey that is done, if there is one. ahead: whether
        idle workers may look ahead; None: if there are two processors for each worker. tie: whether workers may be
        bound to processors, one to each; not if other programs need the processors too.
        """
        if num_envs < 1:
            raise UserError("a vector needs at least one game")
        self.spec = spec
        self._on_report = on_report
        self._forbidden_actions = ForbiddenActions(forbidden)
        self._slots = [Slot() for _ in range(num_envs)]
        self.totals = WorkTotals()
        """The work of the games so far."""
        self.details = [Details() for _ in range(num_envs)]
        """Details of each game for people, after its last reset, step or restored state, if `spec.details` asks for
        them."""
        self._reported: set[str] = set()
        self._split: SplitStep | None = None
        """The present step, between `move` and `arrive`."""
        self._closed = False
        placement = Placement(workers, num_envs, tie)
        self._pool: WorkerPool | None = None
        self._host: GameHost | None = None
        if placement.workers:
            self._pool = WorkerPool(
                spec, self._slots, self._forbidden_actions, placement, layout=layout, patience=patience,
                on_report=on_report, on_survey=on_survey, totals=self.totals,
                may_look_ahead=placement.has_spare_processors if ahead is None else ahead,
            )  # fmt: skip
        else:
            for index, slot in enumerate(self._slots):
                slot.local = index
            self._host = GameHost(Setup(spec, num_envs, layout), SharedPage())

    # --- findings and facts ----------------------------------------------------------------------------------

    @property
    def forbidden(self) -> list[tuple[str, str, bool]]:
        """All verdicts so far, as (key of the state in hex, action, whether it ends the process). A run saves them and
        passes them to the vector with which it continues."""
        return self._forbidden_actions.forbidden

    @property
    def _ready(self) -> Ready:
        owner = self._pool or self._host
        assert owner is not None
        return owner.ready

    @property
    def layout(self) -> bytes:
        """The encoded result of the survey of the story; another vector of the same story starts faster with it."""
        return self._ready.layout

    @property
    def facts(self) -> Facts:
        """Facts about the game that hold in every state."""
        return self._ready.facts

    @property
    def walkthrough_seed(self) -> int:
        """The emulator seed under which the story's walkthrough works."""
        return self._ready.facts.walkthrough_seed

    @property
    def max_score(self) -> int:
        """The maximal score of the game; 0 if it is not known."""
        return self._ready.facts.max_score

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [] if self._pool is None else self._pool.pids

    # --- play ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._slots)

    def reset(self, indices: Sequence[int] | None = None, seeds: Sequence[int] | None = None) -> list[Observation]:
        """Begin new episodes and return their first observations.

        indices: the games; None for all. seeds: emulator seeds, one for each; None for the walkthrough's.
        """
        chosen = range(len(self._slots)) if indices is None else [self._check_index(index) for index in indices]
        given = [self.walkthrough_seed] * len(chosen) if seeds is None else [check_seed(seed) for seed in seeds]
        if len(given) != len(chosen):
            raise UserError(f"{len(given)} seeds for {len(chosen)} games")
        calls: dict[int, Call] = {
            i: ResetCall(self._slots[i].local, seed) for i, seed in zip(chosen, given, strict=True)
        }  # fmt: skip
        results = self._call(calls)
        for i, seed in zip(chosen, given, strict=True):
            self._slots[i].begin(seed)
        return [results[i].step.observation for i in chosen]

    def step(self, actions: Sequence[str] | Mapping[int, str], last: Collection[int] = ()) -> list[Step]:
        """Step games and return the results in the order of the actions.

        actions: one for each game, or a mapping from indices of games. last: indices of the games in which the step
        limit ends the episode with this step.
        """
        return [result.step for result in self._move(self._choose_actions(actions), last, early=False)]

    def move(self, actions: Sequence[str], last: Collection[int] = ()) -> list[Step]:
        """Make the first part of `step`: return the results without the valid actions of the new states.

        The workers search those while the caller does something else; the next call must be `arrive`.
        """
        self._check_arrived()
        chosen = self._choose_actions(actions)
        before = [(slot.here, len(slot.actions), slot.live) for slot in self._slots]
        try:
            results = self._move(chosen, last, early=True)
            self._forbidden_actions.freeze()
            calls: dict[int, Call] = {
                i: FindCall(self._slots[i].local, own=result.forbidden)
                for i, result in enumerate(results)
                if result.actions is None
            }
            searches = PendingRequest(calls) if self._pool is None else self._pool.await_more(calls)
            self._split = SplitStep([r.step for r in results], [r.actions for r in results], searches)
        except BaseException:  # undo the step
            self._forbidden_actions.thaw()
            if self._pool is not None:
                self._pool.end_workers()  # they may already be searching
            for slot, (here, done, live) in zip(self._slots, before, strict=True):
                slot.here, slot.live = here, live
                del slot.actions[done:]
            self._rebuild_after_error()
            raise
        return self._split.steps

    @property
    def waiting(self) -> dict[int, tuple[str, ...]]:
        """Between `move` and `arrive`, the valid actions of games with idle workers while other workers search.

        Empty if no worker is idle, or workers may not look ahead.
        """
        if self._pool is None or self._split is None or not self._pool.may_look_ahead:
            return {}
        busy = self._split.searches.tasks
        return {
            i: actions
            for i, (slot, actions) in enumerate(zip(self._slots, self._split.actions, strict=True))
            if busy and slot.live and actions and slot.remote not in busy
        }

    def look_ahead(self, actions: Mapping[int, str]) -> None:
        """Let idle workers search the states after these actions, given by game. It changes no result, only the time of
        later searches."""
        moves: dict[int, list[tuple[int, str]]] = {}
        for index in actions.keys() & self.waiting.keys():
            moves.setdefault(self._slots[index].remote, []).append((self._slots[index].local, actions[index]))
        for number, ahead in moves.items():
            assert self._pool is not None  # else no env waits
            self._pool.look_ahead(number, ahead)

    def arrive(self) -> list[Step]:
        """Make the second part of `step`: return the results of `move` with the valid actions."""
        if self._split is None:
            raise ValueError("arrive() must follow move()")
        try:
            return self._split.complete(self._await_results(self._split.searches))
        except BaseException:
            self._end_searches()
            raise
        finally:
            self._split = None
            self._forbidden_actions.thaw()

    def _choose_actions(self, actions: Sequence[str] | Mapping[int, str]) -> dict[int, str]:
        """Return the actions by the index of their game. Raises `UserError` for a game without an episode."""
        if not isinstance(actions, list) and isinstance(actions, Mapping):  # the first check is fast, the second slow
            chosen = {self._check_index(index): action for index, action in actions.items()}
        elif isinstance(actions, str):
            raise UserError(f"actions are a list of commands, not {actions!r:.60}")
        elif len(actions) == len(self._slots):
            chosen = dict(enumerate(actions))
        else:
            raise UserError(f"{len(actions)} actions for {len(self._slots)} games")
        self._check_live(chosen)
        return {index: accept_command(action) for index, action in chosen.items()}

    def _move(self, chosen: Mapping[int, str], last: Collection[int], early: bool) -> list[CallResult]:
        """Step games; with `early`, without waiting for searches."""
        slots = self._slots
        results = self._call({i: MoveCall(slots[i].local, action, i in last, early) for i, action in chosen.items()})
        for i, action in chosen.items():
            step, slot = results[i].step, slots[i]
            slot.actions.append(None if step.observation.text == NO_ANSWER else action)
            slot.live = not step.terminated
        return [results[i] for i in chosen]

    def save(self) -> list[bytes]:
        """Return the states of all games."""
        self._check_live(range(len(self._slots)))
        results = self._call({i: SaveCall(slot.local) for i, slot in enumerate(self._slots)})
        return [results[i].state for i in range(len(self._slots))]

    def restore(self, states: Sequence[bytes]) -> list[Observation]:
        """Put all games into saved states, one for each, and return the observations."""
        if len(states) != len(self._slots):
            raise UserError(f"{len(states)} states for {len(self._slots)} games")
        for state in states:
            if not isinstance(state, bytes):
                raise UserError(f"a state is the bytes that save() gave, not {state!r:.60}")
        results = self._call({i: RestoreCall(self._slots[i].local, state) for i, state in enumerate(states)})
        for slot, state in zip(self._slots, states, strict=True):
            slot.begin(state)
        return [results[i].step.observation for i in range(len(states))]

    def close(self, *, in_trouble: bool = False) -> None:
        """End the games and their processes; with `in_trouble` without waiting for workers."""
        if self._closed:
            return
        try:
            if self._split is not None:
                self._end_searches()
                self._split = None
                self._forbidden_actions.thaw()
            if self._forbidden_actions.has_unsent and not in_trouble:
                self._call({})  # so that the last verdicts are written to the atlas
        finally:
            self._closed = True
            if self._host is not None:
                self._host.close()
            if self._pool is not None:
                self._pool.close()

    def __enter__(self) -> GameVector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(in_trouble=kind is not None)

    def _check_index(self, index: Any) -> int:
        """The index of a game as Python's number. Raises `UserError`."""
        try:
            number = operator.index(index)
        except TypeError:
            number = -1
        if not 0 <= number < len(self._slots):
            raise UserError(f"there is no game {index!r:.20}: games have the numbers 0 to {len(self._slots) - 1}")
        return number

    def _check_live(self, indices: Iterable[int]) -> None:
        for i in indices:
            if not self._slots[i].live:
                raise UserError(f"game {i} has ended or has not begun: reset it first")

    def _check_arrived(self) -> None:
        if self._split is not None:
            raise ValueError("a move is not finished: call arrive() first")

    # --- calls --------------------------------------------------------------------------------------------------

    def _call(self, calls: Mapping[int, Call]) -> dict[int, CallResult]:
        """Make calls, given by game, and return their results by game."""
        if self._closed:
            raise UserError("this is closed: make another")
        self._check_arrived()
        return self._await_results(PendingRequest(calls) if self._pool is None else self._pool.send_calls(calls))

    def _await_results(self, pending: PendingRequest) -> dict[int, CallResult]:
        """Wait for the results of calls, by game; report new verdicts."""
        if self._pool is None:
            return self._call_here(pending.calls)
        outcome = self._pool.collect(pending)
        self._merge(outcome)
        return outcome.results

    def _end_searches(self) -> None:
        """End the workers that search for the present step: their state is unknown."""
        if self._pool is not None and self._split is not None:
            self._pool.end_workers(self._split.searches.tasks)

    def _rebuild_after_error(self) -> None:
        """Bring games in this process back to their states before a call that failed."""
        if self._host is not None:
            self._host.answer(WorkerRequest([slot.make_rebuild_call() for slot in self._slots if slot.live]))

    def _call_here(self, calls: Mapping[int, Call]) -> dict[int, CallResult]:
        """Make calls in this process and return their results by game."""
        assert self._host is not None
        try:
            answer = self._host.answer(
                WorkerRequest(
                    list(calls.values()), *self._forbidden_actions.select_unsent(self._forbidden_actions.num_sent)
                )
            )
        except BaseException:
            self._rebuild_after_error()
            raise
        self.totals.add(answer)
        outcome = RequestOutcome(dict(zip(calls, answer.results, strict=True)))
        self._merge(outcome)
        return outcome.results

    def _merge(self, outcome: RequestOutcome) -> None:
        """Store what results say about games, and add their verdicts.

        Verdicts are sent with the next request of each worker, and reach the atlas only then. So the moment from which
        a verdict counts does not depend on which worker holds which game.
        """
        found: list[ForbiddenAction] = []
        for index, result in outcome.results.items():
            self._slots[index].here = result.here
            if result.details is not None:
                self.details[index] = result.details
            found += result.forbidden
        for action in self._forbidden_actions.add(found, outcome.unproven) if found else ():
            if action not in self._reported:  # once for all states, of which there may be very many
                self._reported.add(action)
                why = outcome.deadly.get(action, "the story does not end it")
                self._on_report(f"{Path(self.spec.path).name}: {action!r} is forbidden where it cannot end: {why}")
