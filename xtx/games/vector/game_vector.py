"""Several games stepped together in worker processes. Results depend neither on the number of workers nor on crashes.

For every game the parent stores the seed or saved state of its episode and the actions since. A worker that crashes, or
makes no progress for some time, is replaced: the new one is brought to the same states, and the request is repeated.

A worker can also be lost for reasons outside the story, such as a signal or lack of memory. So a command that was being
tried when a worker was lost is first executed alone by the new worker, in the same state. Only if that worker is lost
too, the command is forbidden in that state for ever. Otherwise the loss is reported and has no consequences. If workers
are lost at the same command again and again, it is forbidden in this run, and later runs do not know of it.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from xtx.core import Observation, Step, UserError, warn
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import NO_ANSWER, GameSpec
from xtx.games.vector.cpu_affinity import Placement
from xtx.games.vector.forbidden_actions import ForbiddenActions
from xtx.games.vector.requests import (
    PendingRequest,
    Slot,
    SuspectCommand,
    Task,
    WorkerLosses,
    divide,
    make_trial,
    with_actions,
    without_command,
)
from xtx.games.vector.socket_messages import LINGER
from xtx.games.vector.worker import (
    Ahead,
    Answer,
    Call,
    CallResult,
    FindCall,
    Host,
    Message,
    MoveCall,
    Ready,
    Request,
    ResetCall,
    RestoreCall,
    Results,
    SaveCall,
    Setup,
    SharedPage,
    Verdict,
)
from xtx.games.vector.worker_client import Kind, Phase, Remote, converse, end_all, expected

_ATTEMPTS = 10
"""Limits the workers lost during one request without a command as the cause; then the game cannot be played."""
_RELAPSES = 3
"""Workers lost at a command that did no harm when it was tried alone, before it is forbidden for this run all the same:
the cause may be what the process did before."""
_VERDICTS = 50
"""Limits the commands that end workers during one request; with more the story or the emulator is broken."""


class GameVector:
    """Games of one kind that are stepped together.

    With `workers=0` the games are in this process, without protection from a story that ends its process; everything
    else is the same.
    """

    def __init__(
        self,
        spec: GameSpec,
        games: int,
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
        """workers: number of processes; None for one for each processor.

        patience: seconds without progress after which a worker is replaced. forbidden, layout: those of an earlier
        vector of the same story (see the properties). on_report: called with lines about lost workers and forbidden
        actions. on_survey: called repeatedly with the share of the survey that is done, if there is one. ahead: whether
        idle workers may look ahead; None: if there are two processors for each worker. tie: whether workers may be
        bound to processors, one to each; not if other programs need the processors too.
        """
        if games < 1:
            raise ValueError("a vector needs at least one game")
        self.spec = spec
        self._patience = patience
        self._on_report = on_report
        self._on_survey = on_survey
        self._ledger = ForbiddenActions(forbidden)
        self._slots = [Slot() for _ in range(games)]
        self._ready = Ready(layout)
        self._survey_avoid: tuple[str, ...] = ()
        self._killers: set[str] = set()
        self.worked = self.searched = 0.0
        """Seconds that the games took so far in all processes, and those of them spent in searches."""
        self.searches = 0
        """Number of searches so far."""
        self.details = [Details() for _ in range(games)]
        """Details of each game for people, after its last reset, step or restored state, if `spec.details` asks for
        them."""
        self._reported: set[str] = set()
        self._pending: PendingRequest | None = None
        self._moved: list[Step] = []
        self._results: list[CallResult] = []
        """The results of the last step."""
        self._closed = False
        self._placement = Placement(workers, games, tie)
        self._remotes = [Remote(number) for number in range(self._placement.workers)]
        self._ahead = self._placement.spacious if ahead is None else ahead
        self._host: Host | None = None
        for index, slot in enumerate(self._slots):
            slot.remote = index % max(1, len(self._remotes))
            slot.local = index // max(1, len(self._remotes))
        # Ends the workers also if the vector is never closed, at the latest when the interpreter ends.
        self._finalizer = weakref.finalize(self, end_all, self._remotes, os.getpid())
        try:
            self._start()
        except BaseException:
            self._finalizer()
            raise

    def _start(self) -> None:
        """Start the workers, or the games in this process."""
        if not self._remotes:
            self._host = Host(Setup(self.spec, len(self._slots), self._ready.layout), SharedPage())
            self._ready = self._host.ready
            return
        for remote in self._remotes:  # first, so that all load their program at the same time
            remote.spawn()
        for number in range(len(self._remotes)):  # the first surveys the story, the others get its layout
            self._revive(Task(number, [], []))

    # --- findings and facts ----------------------------------------------------------------------------------

    @property
    def forbidden(self) -> list[tuple[str, str, bool]]:
        """All verdicts so far, as (key of the state in hex, action, whether it ends the process). A run saves them and
        passes them to the vector with which it continues."""
        return self._ledger.forbidden

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
        return [remote.process.pid for remote in self._remotes if remote.process is not None]

    # --- play ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._slots)

    def reset(self, indices: Sequence[int] | None = None, seeds: Sequence[int] | None = None) -> list[Observation]:
        """Begin new episodes and return their first observations.

        indices: the games; None for all. seeds: emulator seeds, one for each; None for the walkthrough's.
        """
        chosen = range(len(self._slots)) if indices is None else indices
        given = [self.walkthrough_seed] * len(chosen) if seeds is None else seeds
        calls: dict[int, Call] = {
            i: ResetCall(self._slots[i].local, seed) for i, seed in zip(chosen, given, strict=True)
        }  # fmt: skip
        results = self._call(calls)
        for i, seed in zip(chosen, given, strict=True):
            self._slots[i].begin(seed)
        return [results[i].step.observation for i in chosen]

    def step(self, actions: Sequence[str] | Mapping[int, str], last: Collection[int] = ()) -> list[Step]:
        """Step games and return the results in the order of the actions.

        actions: one for each game, or a mapping from indices of games. last: indices of the games whose step limit ends
        the episode with this step.
        """
        return self._move(self._chosen(actions), last, early=False)

    def move(self, actions: Sequence[str], last: Collection[int] = ()) -> list[Step]:
        """Make the first part of `step`: return the results without the valid actions of the new states.

        The workers search those while the caller does something else; the next call must be `arrive`.
        """
        self._check_arrived()
        chosen = self._chosen(actions)
        before = [(slot.here, len(slot.actions), slot.live) for slot in self._slots]
        try:
            self._moved = self._move(chosen, last, early=True)
            self._ledger.freeze()
            self._pending = self._await_all(
                {
                    i: FindCall(self._slots[i].local, own=result.forbidden)
                    for i, result in enumerate(self._results)
                    if result.actions is None
                }
            )
        except BaseException:  # undo the step
            self._ledger.thaw()
            for remote in self._remotes:  # they may already be searching
                remote.end()
            for slot, (here, done, live) in zip(self._slots, before, strict=True):
                slot.here, slot.live = here, live
                del slot.actions[done:]
            self._bring_back()
            raise
        return self._moved

    @property
    def waiting(self) -> dict[int, tuple[str, ...]]:
        """Between `move` and `arrive`, the valid actions of games whose workers are idle while other workers search.

        Empty if no worker is idle, or workers may not look ahead.
        """
        if not self._ahead or self._pending is None:
            return {}
        busy = self._pending.tasks
        return {
            i: result.actions
            for i, (slot, result) in enumerate(zip(self._slots, self._results, strict=True))
            if busy and slot.live and result.actions and slot.remote not in busy
        }

    def look_ahead(self, actions: Mapping[int, str]) -> None:
        """Let idle workers search the states after these actions, given by game. It changes no result, only the time of
        later searches."""
        moves: dict[int, list[tuple[int, str]]] = {}
        for index in actions.keys() & self.waiting.keys():
            moves.setdefault(self._slots[index].remote, []).append((self._slots[index].local, actions[index]))
        for number, ahead in moves.items():
            if self._remotes[number].told is not None:
                self._remotes[number].post(Ahead(ahead))

    def arrive(self) -> list[Step]:
        """Make the second part of `step`: return the results of `move` with the valid actions."""
        if self._pending is None:
            raise ValueError("arrive() must follow move()")
        try:
            found = self._answers(self._pending)
        except BaseException:
            self._end_workers_of(self._pending)
            raise
        finally:
            self._pending = None
            self._ledger.thaw()
        known = [
            found[i].step.observation.actions if result.actions is None else result.actions
            for i, result in enumerate(self._results)
        ]
        return [with_actions(step, actions) for step, actions in zip(self._moved, known, strict=True)]

    def _chosen(self, actions: Sequence[str] | Mapping[int, str]) -> dict[int, str]:
        """Return the actions by the index of their game. Raises `ValueError` for a game without an episode."""
        if not isinstance(actions, list) and isinstance(actions, Mapping):  # the first check is fast, the second slow
            chosen = dict(actions)
        elif len(actions) == len(self._slots):
            chosen = dict(enumerate(actions))
        else:
            raise ValueError(f"{len(actions)} actions for {len(self._slots)} games")
        self._check_live(chosen)
        return chosen

    def _move(self, chosen: Mapping[int, str], last: Collection[int], early: bool) -> list[Step]:
        """Step games; with `early`, without waiting for searches."""
        slots = self._slots
        results = self._call({i: MoveCall(slots[i].local, action, i in last, early) for i, action in chosen.items()})
        self._results, steps = [], []
        for i, action in chosen.items():
            result, slot = results[i], slots[i]
            step = result.step
            slot.actions.append(None if step.observation.text == NO_ANSWER else action)
            slot.live = not step.terminated
            self._results.append(result)
            steps.append(step)
        return steps

    def save(self) -> list[bytes]:
        """Return the states of all games."""
        self._check_live(range(len(self._slots)))
        results = self._call({i: SaveCall(slot.local) for i, slot in enumerate(self._slots)})
        return [results[i].state for i in range(len(self._slots))]

    def restore(self, states: Sequence[bytes]) -> list[Observation]:
        """Put all games into saved states, one for each, and return the observations."""
        if len(states) != len(self._slots):
            raise ValueError(f"{len(states)} states for {len(self._slots)} games")
        results = self._call({i: RestoreCall(self._slots[i].local, state) for i, state in enumerate(states)})
        for slot, state in zip(self._slots, states, strict=True):
            slot.begin(state)
        return [results[i].step.observation for i in range(len(states))]

    def close(self, *, in_trouble: bool = False) -> None:
        """End the games and their processes; with `in_trouble` without waiting for workers."""
        if self._closed:
            return
        try:
            if self._pending is not None:
                self._end_workers_of(self._pending)
                self._pending = None
                self._ledger.thaw()
            if self._ledger.untold and not in_trouble:
                self._call({})  # so that the last verdicts are written to the atlas
        finally:
            self._closed = True
            if self._host is not None:
                self._host.close()
            for remote in self._remotes:
                remote.hang_up()
            for remote in self._remotes:
                remote.end(within=2.0)
            self._finalizer()

    def __enter__(self) -> GameVector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(in_trouble=kind is not None)

    def _check_live(self, indices: Iterable[int]) -> None:
        for i in indices:
            if not self._slots[i].live:
                raise ValueError(f"game {i} has ended or has not begun: reset it first")

    def _check_arrived(self) -> None:
        if self._pending is not None:
            raise ValueError("a move is not finished: call arrive() first")

    # --- calls --------------------------------------------------------------------------------------------------

    def _call(self, calls: Mapping[int, Call]) -> dict[int, CallResult]:
        """Make calls, given by game, and return their results by game."""
        return self._answers(self._ask_all(calls))

    def _ask_all(self, calls: Mapping[int, Call]) -> PendingRequest:
        """Send calls to the workers; `_answers` waits for the results."""
        if self._closed:
            raise ValueError("this vector is closed")
        self._check_arrived()
        if self._host is not None:
            return PendingRequest(calls)
        asked = PendingRequest(calls, self._placement.nearest_first(divide(calls, self._slots) or {0: Task(0, [], [])}))
        try:
            # In the reverse of the order in which answers are awaited. The parent was woken on the processor of a
            # worker
            # that had answered, mostly the first: the last worker's is free, and each worker continues on the processor
            # whose cache holds its games. In the other order workers would move at every step.
            for task in reversed(asked.tasks.values()):
                self._send(task)
        except BaseException:
            self._end_workers_of(asked)
            raise
        return asked

    def _await_all(self, calls: Mapping[int, Call]) -> PendingRequest:
        """Expect the results of calls that the workers make already, after early moves."""
        if self._host is not None:
            return PendingRequest(calls)
        asked = PendingRequest(calls, divide(calls, self._slots))
        for number in asked.tasks:
            self._remotes[number].await_more()
        return asked

    def _end_workers_of(self, asked: PendingRequest) -> None:
        """End workers whose state is unknown after an error; new ones are started when they are needed."""
        for number in asked.tasks:
            self._remotes[number].end()

    def _answers(self, asked: PendingRequest) -> dict[int, CallResult]:
        """Wait for the results of calls, by game; report lost workers and new verdicts."""
        if self._host is not None:
            return self._call_here(self._host, asked.calls)
        tasks = asked.tasks
        results: dict[int, CallResult] = {}
        try:
            self._collect(tasks, results)
        except BaseException:
            self._end_workers_of(asked)
            raise
        blamed: dict[str, str] = {}
        unproven: set[str] = set()
        for trouble in [task.trouble for task in tasks.values() if task.trouble is not None]:
            for why, command in trouble.losses:
                # A worker lost at a command known to end processes may not have tried it again, because of a verdict.
                if command in trouble.cleared:
                    self._on_report(f"a worker {why} and was replaced; {command!r} is not the cause; nothing is lost")
                elif command not in self._killers:
                    self._on_report(f"a worker {why} and was replaced; nothing is lost")
            blamed |= trouble.blamed
            unproven |= trouble.unproven
        self._merge(results, blamed, unproven)
        return results

    def _collect(self, tasks: Mapping[int, Task], results: dict[int, CallResult]) -> None:
        """Wait for all answers; a task whose worker is lost is sent to a new one."""
        waiting, awake_until = [], 0.0
        silent = any([self._remotes[number].unsent for number in tasks])
        for number, task in tasks.items():  # mostly all answers come in this loop
            remote = self._remotes[number]
            if not silent and not remote.settled:
                silent = not remote.listen(awake_until)
            if (answer := remote.take()) is None:
                waiting.append(number)
            else:
                self._accept(task, answer, results)
                # The others mostly have as much to do, and will answer at once.
                awake_until = awake_until or time.perf_counter() + LINGER
        while waiting:
            for number in self._wait(waiting):
                answer, task = self._remotes[number].take(), tasks[number]
                if answer is None:
                    self._lost(task)
                    self._send(task)
                else:
                    waiting.remove(number)
                    self._accept(task, answer, results)

    def _accept(self, task: Task, answer: Answer, results: dict[int, CallResult]) -> None:
        """Add a worker's results to `results`, by game."""
        found = expected(Results, answer)
        self._count(found)
        results.update(zip(task.games, found.results, strict=True))

    def _count(self, found: Results) -> None:
        self.worked += found.worked
        self.searched += found.searched
        self.searches += found.searches

    def _bring_back(self) -> None:
        """Bring games in this process back to their states before a call that failed."""
        if self._host is not None:
            self._host.answer(Request([slot.bring() for slot in self._slots if slot.live]))

    def _call_here(self, host: Host, calls: Mapping[int, Call]) -> dict[int, CallResult]:
        """Make calls in this process and return their results by game."""
        try:
            answer = host.answer(Request(list(calls.values()), *self._ledger.news(self._ledger.told)))
        except BaseException:
            self._bring_back()
            raise
        self._count(answer)
        results = dict(zip(calls, answer.results, strict=True))
        self._merge(results, {})
        return results

    def _merge(
        self, results: Mapping[int, CallResult], blamed: Mapping[str, str], unproven: Collection[str] = ()
    ) -> None:
        """Store what results say about games, and add their verdicts.

        Verdicts are sent with the next request of each worker, and reach the atlas only then. So the moment from which
        a verdict counts does not depend on which worker holds which game.
        """
        found: list[Verdict] = []
        for index, result in results.items():
            self._slots[index].here = result.here
            if result.details is not None:
                self.details[index] = result.details
            found += result.forbidden
        for action in self._ledger.add(found, unproven) if found else ():
            if action not in self._reported:  # once for all states, of which there may be very many
                self._reported.add(action)
                why = blamed.get(action, "the story does not end it")
                self._on_report(f"{Path(self.spec.path).name}: {action!r} is forbidden where it cannot end: {why}")

    # --- workers that are lost ----------------------------------------------------------------------------------

    def _send(self, task: Task) -> None:
        """Send a task to its worker, after replacing the worker if it is lost."""
        remote = self._remotes[task.remote]
        if remote.told is None:
            self._revive(task)
            self._try_suspects(task)
        new, recalled = self._ledger.news(remote.told or 0)
        remote.told = self._ledger.told
        unproven = () if task.trouble is None else tuple(sorted(task.trouble.unproven))
        remote.send(Request(task.calls, new, recalled, unproven), Phase.WORK)

    def _try_suspects(self, task: Task) -> None:
        """Let a new worker execute alone the command at which the one before was lost; `_lost` blames it if this worker
        is lost too."""
        while task.trouble is not None and (suspect := task.trouble.suspect) is not None:
            remote = self._remotes[task.remote]
            try:
                self._ask(remote, Results, Request([suspect.trial]), Phase.TRY)
                slot = self._slots[task.games[suspect.number]]
                self._ask(remote, Results, Request([slot.bring()] if slot.live else []), Phase.BRING)
            except _Lost:
                self._lost(task)
                self._revive(task)
            else:
                task.trouble.suspect = None
                task.trouble.cleared.add(suspect.command)

    def _revive(self, task: Task) -> None:
        """Start a worker and bring its games to the states of their slots."""
        remote = self._remotes[task.remote]
        mine = [slot for slot in self._slots if slot.remote == task.remote]
        while True:
            try:
                if remote.process is None:
                    remote.spawn()
                self._ask(remote, Ready, None)
                setup = Setup(self.spec, len(mine), self._ready.layout, self._survey_avoid, self._ready.profile)
                self._ready = self._ask(remote, Ready, setup, Phase.SETUP)
                live = [slot for slot in mine if slot.live]
                bring = Request([slot.bring() for slot in live], *self._ledger.news(0))
                brought = self._ask(remote, Results, bring, Phase.BRING)
                for slot, result in zip(live, brought.results, strict=True):
                    if slot.here != result.here:
                        raise RuntimeError(f"{self.spec.path}: {slot.actions} led elsewhere the second time")
                remote.told = self._ledger.told
                self._placement.place(remote)
                return
            except _Lost:
                self._lost(task)

    def _ask(self, remote: Remote, kind: type[Kind], message: Message | None, phase: Phase = Phase.START) -> Kind:
        """Send a message to one worker and return its answer; with None only wait for the answer."""
        if message is not None:
            remote.send(message, phase)
        self._wait([remote.number])
        answer = remote.take()
        if answer is None:
            raise _Lost
        return expected(kind, answer)

    def _wait(self, numbers: Collection[int]) -> list[int]:
        """Wait until one of the workers has answered or is lost; returns the numbers of those."""
        remotes = [self._remotes[number] for number in numbers]
        while not (settled := [remote.number for remote in remotes if remote.settled]):
            # Only for the first, unless there is something left to send: all answers are needed in the end, and the
            # parent is woken less often.
            unsent = any(remote.unsent for remote in remotes)
            if self._on_survey is not None and remotes[0].desk.surveyed and not self._ready.layout:
                self._on_survey(remotes[0].desk.surveyed)
            if not (converse(remotes) if unsent else remotes[0].listen()):
                for remote in remotes:
                    if not remote.read():  # it may have answered meanwhile
                        remote.give_up_after(self._patience)
        return settled

    def _lost(self, task: Task) -> None:
        """End a lost worker, and find out whether its current command is the cause.

        It is if the worker executed that command alone; otherwise the next worker is to do so. Raises `UserError` if
        too
        many workers were lost.
        """
        remote = self._remotes[task.remote]
        trouble = task.trouble = task.trouble or WorkerLosses()
        why = remote.end()
        if remote.desk.ahead:
            self._ahead = False
            trouble.losses.append((why, ""))
            return
        tried = remote.desk.trace.progress - remote.desk.start
        command = remote.desk.trace.command.decode("utf-8", "replace") if tried else ""
        trouble.losses.append((why, command))
        if tried and not remote.ended_from_outside:
            suspect = trouble.suspect
            if remote.phase is Phase.WORK:
                self._suspect(task, remote.desk.call, command, first=tried == 1)
                suspect = trouble.suspect
                if suspect is not None and command in trouble.cleared and trouble.count_losses(command) > _RELAPSES:
                    trouble.unproven.add(command)
                    self._blame(task, suspect, f"{why}, though not when it was tried alone")
            elif remote.phase is Phase.TRY and not remote.desk.bringing:
                if suspect is not None and command == suspect.command:
                    self._blame(task, suspect, why)
            elif remote.phase is Phase.SETUP:
                self._blame_in_survey(trouble, tried, command, why)
        if len(trouble.losses) > _ATTEMPTS or len(trouble.blamed) > _VERDICTS:
            where = f"last at {command!r}" if tried else "before anything was tried"
            raise UserError(f"{self.spec.path}: worker processes keep dying ({why}, {where}); this cannot be played")

    def _suspect(self, task: Task, number: int, command: str, first: bool) -> None:
        """Let the next worker try a command alone. `number`: index of the call that tried it."""
        if task.trouble is not None and 0 <= number < len(task.calls):
            trial = make_trial(task.calls[number], self._slots[task.games[number]], command, first)
            task.trouble.suspect = None if trial is None else SuspectCommand(number, command, trial)

    def _blame(self, task: Task, suspect: SuspectCommand, why: str) -> None:
        """Leave a command out of its call, and record why."""
        if task.trouble is not None:
            task.trouble.suspect = None
            task.trouble.losses.clear()
            task.trouble.blamed[suspect.command] = f"the process {why}"
        self._killers.add(suspect.command)
        call = task.calls[suspect.number]
        task.calls[suspect.number] = without_command(call, suspect.command, first=suspect.trial.as_step)

    def _blame_in_survey(self, trouble: WorkerLosses, tried: int, command: str, why: str) -> None:
        """Record that a worker was lost in the survey, and leave the command out if it happened there before.

        A survey tries the same commands in the same order every time, so two losses after the same number of commands
        have the last one as their cause.
        """
        spot = tried, command
        trouble.surveyed[spot] = trouble.surveyed.get(spot, 0) + 1
        if trouble.surveyed[spot] == 2:
            self._killers.add(command)
            trouble.losses.clear()
            trouble.blamed[command] = f"the process {why}"
            self._survey_avoid += (command,)
            self._on_report(f"{Path(self.spec.path).name}: {command!r} is left out of the survey: it {why}")


class _Lost(Exception):
    """A worker was lost while the parent waited for its answer."""
