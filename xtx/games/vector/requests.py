"""What the parent of worker processes stores about games, requests and lost workers; used by worker_pool.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from xtx.core import Observation, Step
from xtx.games.vector.messages import Call, CallResult, FindCall, MoveCall, RebuildCall, ResetCall, RestoreCall, TryCall
from xtx.games.zmachine.typed_input import encode_command


@dataclass(slots=True)
class Slot:
    """A game of the vector, as the parent sees it: which worker holds it, and how to bring it back to its state."""

    remote: int = 0
    """Number of the worker that holds it."""
    local: int = 0
    """Index of the game in that worker."""
    base: int | bytes = 0
    """How its episode began: a seed, or a saved state."""
    actions: list[str | None] = field(default_factory=list)
    """The actions since; None for one that the emulator did not answer."""
    here: bytes = b""
    """Key of its current state."""
    live: bool = False
    """Whether an episode has begun and not ended."""

    def begin(self, base: int | bytes) -> None:
        """Record the beginning of an episode: a seed, or a saved state."""
        self.base, self.actions, self.live = base, [], True

    def make_rebuild_call(self) -> RebuildCall:
        """Return the call that brings a new worker's game to the state of this one."""
        return RebuildCall(self.local, self.base, self.actions)


@dataclass(frozen=True, slots=True)
class SuspectCommand:
    """A command that was being tried when a worker was lost, and the call that tries it alone."""

    number: int
    """Index of the call in its task."""
    command: str
    trial: TryCall


@dataclass(slots=True)
class WorkerLosses:
    """What is known about the workers that were lost during one request."""

    losses: list[tuple[str, str]] = field(default_factory=list)
    """How each worker was lost, and at which command, since a cause was last found."""
    suspect: SuspectCommand | None = None
    """The command that the next worker tries alone before anything else."""
    cleared: set[str] = field(default_factory=set)
    """Commands that did no harm when they were tried alone."""
    surveyed: dict[tuple[int, str], int] = field(default_factory=dict)
    """By number of commands tried and last command, how many workers were lost there during a survey."""
    deadly: dict[str, str] = field(default_factory=dict)
    """Commands that are forbidden because of it, with how the process ended."""
    unproven: set[str] = field(default_factory=set)
    """Those of them that ended no process that did nothing else."""
    openings: int = 0
    """How many workers the story ended before anything was tried."""

    def count_losses(self, command: str) -> int:
        """Return how many workers were lost at a command since a cause was last found."""
        return sum(lost_at == command for _, lost_at in self.losses)


@dataclass(slots=True)
class Task:
    """The part of a request that goes to one worker."""

    remote: int
    """Number of the worker."""
    games: list[int]
    """Indices of the games in the vector."""
    calls: list[Call]
    """One call for each of these games."""
    trouble: WorkerLosses | None = None
    """None as long as no worker was lost during the task."""


@dataclass(slots=True)
class PendingRequest:
    """A request that was sent to the workers and not answered yet."""

    calls: Mapping[int, Call]
    """By game."""
    tasks: dict[int, Task] = field(default_factory=dict)
    """By worker; empty if the games are in this process."""


@dataclass(frozen=True, slots=True)
class SplitStep:
    """A vector step between `move` and `arrive`: rewards and texts are known, some valid actions are still searched."""

    steps: list[Step]
    """Without valid actions."""
    actions: list[tuple[str, ...] | None]
    """Valid actions by game; None for those that are searched."""
    searches: PendingRequest

    def complete(self, found: Mapping[int, CallResult]) -> list[Step]:
        """Return the steps with all valid actions, given the results of the searches by game."""
        known = [found[i].step.observation.actions if a is None else a for i, a in enumerate(self.actions)]
        return [_add_actions(step, actions) for step, actions in zip(self.steps, known, strict=True)]


def group_by_worker(calls: Mapping[int, Call], slots: Sequence[Slot]) -> dict[int, Task]:
    """Group calls, given by game, into a task for each worker."""
    tasks: dict[int, Task] = {}
    for index, call in calls.items():
        number = slots[index].remote
        if number in tasks:
            task = tasks[number]
            task.games.append(index)
            task.calls.append(call)
        else:
            tasks[number] = Task(number, [index], [call])
    return tasks


def make_trial(call: Call, slot: Slot, command: str, first: bool) -> TryCall | None:
    """Make the call with which a new worker tries alone the command at which another worker was lost.

    call: what the lost worker was doing; first: whether the command was the first that this call tried. Returns None
    for calls that try no commands.
    """
    base, actions = slot.base, list(slot.actions)
    as_step = first and isinstance(call, MoveCall) and _encode_as_traced(call.action) == command
    match call:
        case MoveCall():
            if not as_step:
                actions.append(None if call.is_deadly else call.action)
        case ResetCall():
            base, actions = call.seed, []
        case RestoreCall():
            base, actions = call.state, []
        case FindCall():
            pass
        case _:
            return None
    return TryCall(call.game, base, actions, command, as_step)


def _add_actions(step: Step, actions: tuple[str, ...]) -> Step:
    """Return the step with these valid actions in its observation."""
    seen = step.observation
    whole = Observation(seen.text, seen.look, seen.inventory, actions, seen.score, seen.step)
    return Step(whole, step.reward, step.terminated, step.truncated, step.won)


def exclude_command(call: Call, command: str, first: bool) -> Call:
    """Return the call without a command that ends the process: the step's own action, or a candidate of the search.

    first: whether the command was the first that the call tried.
    """
    if first and isinstance(call, MoveCall) and _encode_as_traced(call.action) == command:
        return msgspec.structs.replace(call, is_deadly=True)
    return msgspec.structs.replace(call, avoid=(*call.avoid, command))


def _encode_as_traced(action: str) -> str:
    """Return an action in the form in which the shared trace shows it: as the emulator is given it."""
    return encode_command(action).decode("ascii")
