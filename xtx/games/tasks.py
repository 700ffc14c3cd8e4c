"""What the parent of worker processes keeps about games and requests: see vector.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from xtx.core import Observation, Step
from xtx.games.jericho import COMMAND_LENGTH
from xtx.games.worker import Bring, Call, Find, Move, Reset, Restore, Try


@dataclass(slots=True)
class Slot:
    """What the parent knows of a game."""

    remote: int = 0
    """Number of the worker that holds it."""
    local: int = 0
    """Its number there."""
    base: int | bytes = 0
    """How it began: the seed, or a saved state."""
    actions: list[str | None] = field(default_factory=list)
    """What was done since; None where there was no answer."""
    here: bytes = b""
    """Key of its state."""
    live: bool = False
    """Whether it has begun and not ended."""

    def begin(self, base: int | bytes) -> None:
        """Notes a new beginning."""
        self.base, self.actions, self.live = base, [], True

    def bring(self) -> Bring:
        """What puts a game of another process where this one is."""
        return Bring(self.local, self.base, self.actions)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A command that was being tried when a worker was lost."""

    number: int
    """Which call of the task it was."""
    command: str
    trial: Try


@dataclass(slots=True)
class Trouble:
    """What is kept of workers that were lost over one request."""

    losses: list[tuple[str, str]] = field(default_factory=list)
    """How workers were lost since something was last to blame, and at what command."""
    suspect: Suspect | None = None
    """What the next worker is to try by itself before anything else."""
    cleared: set[str] = field(default_factory=set)
    """Commands that did no harm when they were tried so."""
    surveyed: dict[tuple[int, str], int] = field(default_factory=dict)
    """How often a worker was lost in a survey after how many commands, and at which one."""
    blamed: dict[str, str] = field(default_factory=dict)
    """Commands that are to blame, with the reason."""


@dataclass(slots=True)
class Task:
    """What one worker has to do in one request."""

    remote: int
    games: list[int]
    calls: list[Call]
    trouble: Trouble | None = None
    """None as long as no worker was lost over it."""


@dataclass(slots=True)
class Asked:
    """A request that was sent to the workers."""

    calls: Mapping[int, Call]
    """By game."""
    tasks: dict[int, Task] = field(default_factory=dict)
    """By worker; none where the games live in this process."""


def divide(calls: Mapping[int, Call], slots: Sequence[Slot]) -> dict[int, Task]:
    """The calls by the worker whose they are."""
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


def make_trial(call: Call, slot: Slot, command: str, first: bool) -> Try | None:
    """How a fresh worker tries a command over which another was lost while it did a call; `first`: it was the call's
    first command. None for calls that try none."""
    base, actions = slot.base, list(slot.actions)
    as_step = first and isinstance(call, Move) and _typed(call.action) == command
    match call:
        case Move():
            if not as_step:
                actions.append(None if call.hopeless else call.action)
        case Reset():
            base, actions = call.seed, []
        case Restore():
            base, actions = call.state, []
        case Find():
            pass
        case _:
            return None
    return Try(call.game, base, actions, command, as_step)


def with_actions(step: Step, actions: tuple[str, ...]) -> Step:
    """The step with the valid actions of its observation."""
    seen = step.observation
    whole = Observation(seen.text, seen.look, seen.inventory, actions, seen.score, seen.step)
    return Step(whole, step.reward, step.terminated, step.truncated, step.won)


def without_command(call: Call, command: str, first: bool) -> Call:
    """The call again, but without the command that is to blame: the step's own action, or one of the search."""
    if first and isinstance(call, Move) and _typed(call.action) == command:
        return msgspec.structs.replace(call, hopeless=True)
    return msgspec.structs.replace(call, avoid=(*call.avoid, command))


def _typed(action: str) -> str:
    """An action as the trace shows it."""
    return action.encode("utf-8", "replace")[:COMMAND_LENGTH].decode("utf-8", "replace")
