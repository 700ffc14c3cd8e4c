"""The worker processes of a vector: sends them tasks, and replaces those that are lost.

A worker that crashes, or makes no progress for some time, is replaced: the new one is rebuilt to the same states, and
the request is repeated.

A worker can also be lost for reasons outside the story, such as a signal or lack of memory. So a command that was being
tried when a worker was lost is first executed alone by the new worker, in the same state. Only if that worker is lost
too, the command is forbidden in that state for ever. Otherwise the loss is reported and has no consequences. If workers
are lost at the same command again and again, it is forbidden in this run, and later runs do not know of it.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xtx.core import UserError
from xtx.games.story_game import GameSpec
from xtx.games.vector.cpu_affinity import Placement
from xtx.games.vector.forbidden_actions import ForbiddenActions
from xtx.games.vector.messages import (
    Call,
    CallResult,
    LookAhead,
    ParentMessage,
    Ready,
    Results,
    Setup,
    WorkerAnswer,
    WorkerRequest,
)
from xtx.games.vector.requests import (
    PendingRequest,
    Slot,
    SuspectCommand,
    Task,
    WorkerLosses,
    exclude_command,
    group_by_worker,
    make_trial,
)
from xtx.games.vector.socket_messages import SPIN_SECONDS
from xtx.games.vector.worker_client import Kind, Phase, WorkerClient, check_answer, end_all, exchange

_MAX_LOSSES = 10
"""Limits the workers lost during one request without a command as the cause; then the game cannot be played."""
_MAX_LOST_OPENINGS = 3
"""Limits the workers that end while they open the story, before they try anything."""
_MAX_LOSSES_AFTER_TRIAL = 3
"""Workers lost at a command that did no harm when it was tried alone, before it is forbidden for this run all the same:
the cause may be what the process did before."""
_MAX_DEADLY_COMMANDS = 50
"""Limits the commands that end workers during one request; with more the story or the emulator is broken."""


@dataclass
class WorkTotals:
    """How much work games did so far."""

    worked: float = 0.0
    """Seconds, in all processes."""
    searched: float = 0.0
    """Seconds of these that were spent in searches."""
    searches: int = 0

    def add(self, found: Results) -> None:
        """Count the work of an answer."""
        self.worked += found.worked
        self.searched += found.searched
        self.searches += found.searches


@dataclass
class RequestOutcome:
    """What came of a request: results, and commands that ended workers."""

    results: dict[int, CallResult] = field(default_factory=dict)
    """By game."""
    deadly: dict[str, str] = field(default_factory=dict)
    """Commands that are forbidden because a worker was lost at them, with how it ended."""
    unproven: set[str] = field(default_factory=set)
    """Those of them that later runs do not know of."""


class WorkerPool:
    """The workers of one vector. Games are distributed over them in turn."""

    def __init__(
        self,
        spec: GameSpec,
        slots: Sequence[Slot],
        forbidden_actions: ForbiddenActions,
        placement: Placement,
        *,
        layout: bytes,
        patience: float,
        on_report: Callable[[str], None],
        on_survey: Callable[[float], None] | None,
        may_look_ahead: bool,
        totals: WorkTotals,
    ) -> None:
        """slots: the games; this sets their workers. forbidden_actions: verdicts that workers are sent. totals: where
        the work of requests is counted. The others are those of `GameVector`."""
        self.ready = Ready(layout)
        """What the last worker that was set up found out about the story."""
        self.may_look_ahead = may_look_ahead
        """Whether workers may look ahead: not after one was lost meanwhile."""
        self._spec = spec
        self._slots = slots
        self._forbidden_actions = forbidden_actions
        self._placement = placement
        self._patience = patience
        self._on_report = on_report
        self._on_survey = on_survey
        self._totals = totals
        self._survey_avoid: tuple[str, ...] = ()
        self._deadly_commands: set[str] = set()
        self.remotes = [WorkerClient(number) for number in range(placement.workers)]
        for index, slot in enumerate(slots):
            slot.remote, slot.local = index % len(self.remotes), index // len(self.remotes)
        # Ends the workers also if the vector is never closed, at the latest when the interpreter ends.
        self._finalizer = weakref.finalize(self, end_all, self.remotes, os.getpid())
        try:
            for remote in self.remotes:  # first, so that all load their program at the same time
                remote.spawn()
            for number in range(len(self.remotes)):  # the first surveys the story, the others get its layout
                self._restart(Task(number, [], []))
        except BaseException:
            self._finalizer()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [remote.process.pid for remote in self.remotes if remote.process is not None]

    def close(self) -> None:
        """End the workers; each is given some time to end by itself."""
        for remote in self.remotes:
            remote.close_socket()
        for remote in self.remotes:
            remote.end(within=2.0)
        self._finalizer()

    def end_workers(self, numbers: Collection[int] | None = None) -> None:
        """End workers of unknown state after an error, all if not given; new ones start when they are needed."""
        for number in range(len(self.remotes)) if numbers is None else numbers:
            self.remotes[number].end()

    # --- requests -----------------------------------------------------------------------------------------------

    def send_calls(self, calls: Mapping[int, Call]) -> PendingRequest:
        """Send calls, given by game; `collect` waits for the results."""
        pending = PendingRequest(
            calls, self._placement.order_by_processor(group_by_worker(calls, self._slots) or {0: Task(0, [], [])})
        )
        try:
            # In the reverse of the order in which answers are awaited. The parent was woken on the processor of a
            # worker
            # that had answered, mostly the first: the last worker's is free, and each worker continues on the processor
            # whose cache holds its games. In the other order workers would move at every step.
            for task in reversed(pending.tasks.values()):
                self._send(task)
        except BaseException:
            self.end_workers(pending.tasks)
            raise
        return pending

    def await_more(self, calls: Mapping[int, Call]) -> PendingRequest:
        """Expect the results of calls that the workers make already, after early moves."""
        pending = PendingRequest(calls, group_by_worker(calls, self._slots))
        for number in pending.tasks:
            self.remotes[number].await_more()
        return pending

    def look_ahead(self, number: int, moves: list[tuple[int, str]]) -> None:
        """Let a worker search the states after actions, given by its games, if it is ready."""
        if self.remotes[number].num_sent is not None:
            self.remotes[number].post(LookAhead(moves))

    def collect(self, pending: PendingRequest) -> RequestOutcome:
        """Wait for the results of a request, and report lost workers."""
        tasks, outcome = pending.tasks, RequestOutcome()
        try:
            self._collect(tasks, outcome.results)
        except BaseException:
            self.end_workers(tasks)
            raise
        for trouble in [task.trouble for task in tasks.values() if task.trouble is not None]:
            for why, command in trouble.losses:
                # A worker lost at a command known to end processes may not have tried it again, because of a verdict.
                if command in trouble.cleared:
                    self._on_report(f"a worker {why} and was replaced; {command!r} is not the cause; nothing is lost")
                elif command not in self._deadly_commands:
                    self._on_report(f"a worker {why} and was replaced; nothing is lost")
            outcome.deadly |= trouble.deadly
            outcome.unproven |= trouble.unproven
        return outcome

    def _collect(self, tasks: Mapping[int, Task], results: dict[int, CallResult]) -> None:
        """Wait for all answers; if a worker is lost, its task is sent to a new one."""
        waiting, awake_until = [], 0.0
        silent = any([self.remotes[number].unsent for number in tasks])
        for number, task in tasks.items():  # mostly all answers come in this loop
            remote = self.remotes[number]
            if not silent and not remote.settled:
                silent = not remote.listen(awake_until)
            if (answer := remote.take()) is None:
                waiting.append(number)
            else:
                self._accept(task, answer, results)
                # The others mostly have as much to do, and will answer at once.
                awake_until = awake_until or time.perf_counter() + SPIN_SECONDS
        while waiting:
            for number in self._wait(waiting):
                answer, task = self.remotes[number].take(), tasks[number]
                if answer is None:
                    self._handle_loss(task)
                    self._send(task)
                else:
                    waiting.remove(number)
                    self._accept(task, answer, results)

    def _accept(self, task: Task, answer: WorkerAnswer, results: dict[int, CallResult]) -> None:
        """Add a worker's results to `results`, by game."""
        found = check_answer(Results, answer)
        self._totals.add(found)
        results.update(zip(task.games, found.results, strict=True))

    # --- workers that are lost ----------------------------------------------------------------------------------

    def _send(self, task: Task) -> None:
        """Send a task to its worker, after replacing the worker if it is lost."""
        remote = self.remotes[task.remote]
        if remote.num_sent is None:
            self._restart(task)
            self._try_suspects(task)
        new, recalled = self._forbidden_actions.select_unsent(remote.num_sent or 0)
        remote.num_sent = self._forbidden_actions.num_sent
        unproven = () if task.trouble is None else tuple(sorted(task.trouble.unproven))
        remote.send(WorkerRequest(task.calls, new, recalled, unproven), Phase.WORK)

    def _try_suspects(self, task: Task) -> None:
        """Let a new worker execute alone the command at which the one before was lost; `_handle_loss` forbids it if
        this worker is lost too."""
        while task.trouble is not None and (suspect := task.trouble.suspect) is not None:
            remote = self.remotes[task.remote]
            try:
                self._exchange(remote, Results, WorkerRequest([suspect.trial]), Phase.TRY)
                slot = self._slots[task.games[suspect.number]]
                self._exchange(
                    remote, Results, WorkerRequest([slot.make_rebuild_call()] if slot.live else []), Phase.REBUILD
                )
            except _Lost:
                self._handle_loss(task)
                self._restart(task)
            else:
                task.trouble.suspect = None
                task.trouble.cleared.add(suspect.command)

    def _restart(self, task: Task) -> None:
        """Start a worker and bring its games to the states of their slots."""
        remote = self.remotes[task.remote]
        mine = [slot for slot in self._slots if slot.remote == task.remote]
        while True:
            try:
                if remote.process is None:
                    remote.spawn()
                self._exchange(remote, Ready, None)
                setup = Setup(self._spec, len(mine), self.ready.layout, self._survey_avoid, self.ready.profile)
                self.ready = self._exchange(remote, Ready, setup, Phase.SETUP)
                live = [slot for slot in mine if slot.live]
                request = WorkerRequest(
                    [slot.make_rebuild_call() for slot in live], *self._forbidden_actions.select_unsent(0)
                )
                rebuilt = self._exchange(remote, Results, request, Phase.REBUILD)
                for slot, result in zip(live, rebuilt.results, strict=True):
                    if slot.here != result.here:
                        raise RuntimeError(f"{self._spec.path}: {slot.actions} led elsewhere the second time")
                remote.num_sent = self._forbidden_actions.num_sent
                self._placement.bind(remote)
                return
            except _Lost:
                self._handle_loss(task)

    def _exchange(
        self, remote: WorkerClient, kind: type[Kind], message: ParentMessage | None, phase: Phase = Phase.START
    ) -> Kind:
        """Send a message to one worker and return its answer; with None only wait for the answer."""
        if message is not None:
            remote.send(message, phase)
        self._wait([remote.number])
        answer = remote.take()
        if answer is None:
            raise _Lost
        return check_answer(kind, answer)

    def _wait(self, numbers: Collection[int]) -> list[int]:
        """Wait until one of the workers has answered or is lost; returns the numbers of those."""
        remotes = [self.remotes[number] for number in numbers]
        while not (settled := [remote.number for remote in remotes if remote.settled]):
            # Only for the first, unless there is something left to send: all answers are needed in the end, and the
            # parent is woken less often.
            unsent = any(remote.unsent for remote in remotes)
            if self._on_survey is not None and remotes[0].page.surveyed and not self.ready.layout:
                self._on_survey(remotes[0].page.surveyed)
            if not (exchange(remotes) if unsent else remotes[0].listen()):
                for remote in remotes:
                    if not remote.read():  # it may have answered meanwhile
                        remote.give_up_after(self._patience)
        return settled

    def _handle_loss(self, task: Task) -> None:
        """End a lost worker, and find out whether its current command is the cause.

        It is if the worker executed that command alone; otherwise the next worker is to do so. Raises `UserError` if
        too many workers were lost.
        """
        remote = self.remotes[task.remote]
        trouble = task.trouble = task.trouble or WorkerLosses()
        why = remote.end()
        if remote.page.ahead:
            self.may_look_ahead = False
            trouble.losses.append((why, ""))
            return
        tried = remote.page.trace.progress - remote.page.start
        command = remote.page.trace.command.decode("utf-8", "replace") if tried else ""
        trouble.losses.append((why, command))
        if tried and not remote.ended_from_outside:
            suspect = trouble.suspect
            if remote.phase is Phase.WORK:
                self._schedule_trial(task, remote.page.call, command, first=tried == 1)
                suspect = trouble.suspect
                if (
                    suspect is not None
                    and command in trouble.cleared
                    and trouble.count_losses(command) > _MAX_LOSSES_AFTER_TRIAL
                ):
                    trouble.unproven.add(command)
                    self._exclude(task, suspect, f"{why}, though not when it was tried alone")
            elif remote.phase is Phase.TRY and not remote.page.rebuilding:
                if suspect is not None and command == suspect.command:
                    self._exclude(task, suspect, why)
            elif remote.phase is Phase.SETUP:
                self._exclude_from_survey(trouble, tried, command, why)
        if remote.phase is Phase.SETUP and not tried and remote.ended_by_story:
            trouble.openings += 1
        too_many = len(trouble.losses) > _MAX_LOSSES or len(trouble.deadly) > _MAX_DEADLY_COMMANDS
        if too_many or trouble.openings >= _MAX_LOST_OPENINGS:
            where = f"last at {command!r}" if tried else "before anything was tried"
            raise UserError(f"{self._spec.path}: worker processes keep dying ({why}, {where}); this cannot be played")

    def _schedule_trial(self, task: Task, number: int, command: str, first: bool) -> None:
        """Let the next worker try a command alone. `number`: index of the call that tried it."""
        if task.trouble is not None and 0 <= number < len(task.calls):
            trial = make_trial(task.calls[number], self._slots[task.games[number]], command, first)
            task.trouble.suspect = None if trial is None else SuspectCommand(number, command, trial)

    def _exclude(self, task: Task, suspect: SuspectCommand, why: str) -> None:
        """Leave a command out of its call, and record why."""
        if task.trouble is not None:
            task.trouble.suspect = None
            task.trouble.losses.clear()
            task.trouble.deadly[suspect.command] = f"the process {why}"
        self._deadly_commands.add(suspect.command)
        call = task.calls[suspect.number]
        task.calls[suspect.number] = exclude_command(call, suspect.command, first=suspect.trial.as_step)

    def _exclude_from_survey(self, trouble: WorkerLosses, tried: int, command: str, why: str) -> None:
        """Record that a worker was lost in the survey, and leave the command out if it happened there before.

        A survey tries the same commands in the same order every time, so two losses after the same number of commands
        have the last one as their cause.
        """
        spot = tried, command
        trouble.surveyed[spot] = trouble.surveyed.get(spot, 0) + 1
        if trouble.surveyed[spot] == 2:
            self._deadly_commands.add(command)
            trouble.losses.clear()
            trouble.deadly[command] = f"the process {why}"
            self._survey_avoid += (command,)
            self._on_report(f"{Path(self._spec.path).name}: {command!r} is left out of the survey: it {why}")


class _Lost(Exception):
    """A worker was lost while the parent waited for its answer."""
