"""The messages between a vector and its workers, msgpack with a length in front."""

from __future__ import annotations

import msgspec

from xtx.core import Observation, Step, UserError
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import GameSpec
from xtx.games.vector.socket_messages import HEADER

NO_STEP = Step(Observation("", "", "", (), 0, 0), 0, False, False)
"""The step in results that have none."""

ForbiddenAction = tuple[bytes, str, bool]
"""Key of a state, an action that is forbidden there, and whether the action is deadly: it ended a process, so it is
not tried again, not even in a search."""


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
    is_deadly: bool = False
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


class RebuildCall(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Bring a game to the state that a lost worker had: a seed or saved state, and the actions since."""

    game: int
    base: int | bytes
    actions: list[str | None]
    avoid: tuple[str, ...] = ()


class FindCall(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Search the valid actions of a game's state."""

    game: int
    avoid: tuple[str, ...] = ()
    own: list[ForbiddenAction] = []
    """New verdicts of the game's last step, for a worker that did not make that step."""


class TryCall(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Execute alone a command at which a worker was lost, in a process that has done nothing else."""

    game: int
    base: int | bytes
    actions: list[str | None]
    """With `base`, the way to the state, as in `RebuildCall`."""
    command: str
    as_step: bool
    """Whether it was a step of the game; otherwise it was a candidate of a search."""
    avoid: tuple[str, ...] = ()


Call = ResetCall | MoveCall | RestoreCall | SaveCall | RebuildCall | FindCall | TryCall


class WorkerRequest(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Calls to make, and verdicts that all games get before."""

    calls: list[Call]
    forbid: list[ForbiddenAction] = []
    """Verdicts that were not sent to this worker yet."""
    recalled: list[ForbiddenAction] = []
    """The same, but they are not written to the atlas: from an earlier part of the run, or unproven."""
    unproven: tuple[str, ...] = ()
    """Commands among those that the calls avoid which did not end a process that tried them alone."""


class LookAhead(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Search the states after the next likely actions, while other workers are still busy. It has no answer."""

    moves: list[tuple[int, str]]
    """Indices of games, and actions."""


class CallResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a call."""

    here: bytes
    """Key of the game's state after the call."""
    forbidden: list[ForbiddenAction]
    """Verdicts that the call found."""
    step: Step = NO_STEP
    """After `MoveCall`, `ResetCall`, `RestoreCall` and `FindCall`; the last three have an observation only."""
    state: bytes = b""
    """After `SaveCall`."""
    actions: tuple[str, ...] | None = ()
    """The valid actions after an early `MoveCall`; None if they follow in a second answer. The step has none."""
    details: Details | None = None
    """Details of the state for people; None unless `GameSpec.details` asks for them."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Answer to `Setup`; also sent once, empty, when the program has started."""

    layout: bytes = b""
    facts: Facts = Facts()
    profile: bytes = b""
    """As in `Setup`."""


class Results(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answer to `WorkerRequest`."""

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


ParentMessage = Setup | WorkerRequest | LookAhead
WorkerAnswer = Ready | Results | Failure


def accept_command(action: object) -> str:
    """A command as messages carry it: a NumPy string as Python's, and `?` for half a surrogate pair, which UTF-8 does
    not have. Raises `UserError` for what is no string."""
    if not isinstance(action, str):
        raise UserError(f"an action is a command, as 'open mailbox', not {action!r:.60}")
    return action if type(action) is str and action.isascii() else action.encode("utf-8", "replace").decode()


def encode(message: ParentMessage | WorkerAnswer) -> bytes:
    """Encode a message with its header."""
    body = msgspec.msgpack.encode(message)
    return HEADER.pack(len(body)) + body
