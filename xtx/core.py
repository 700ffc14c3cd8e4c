"""The words everybody shares: what a game shows, what an agent answers, and the two protocols between them.

Standard library only. A `Game` never sees an agent and an `Agent` never sees a game; the loop knows both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class UserError(Exception):
    """Something the user can mend. Its text is one line that says what to do; the command line exits with 2."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees of a state."""

    text: str
    """The narration: what the last command printed."""
    look: str
    """The answer to `look`; empty at the end of a game."""
    inventory: str
    """The answer to `inventory`; empty at the end of a game."""
    actions: tuple[str, ...]
    """The valid actions: commands that change the world. Empty at the end of a game."""
    score: int
    step: int
    """Commands given since the game began."""


@dataclass(frozen=True, slots=True)
class Step:
    """What came of an action."""

    observation: Observation
    reward: int
    """Change of the score."""
    terminated: bool
    """The game ended by itself: won, died, or the emulator halted."""
    truncated: bool
    """The step limit ended it."""
    won: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What an agent answers."""

    action: str
    phase: str = ""
    """Which policy chose it, for those that have several: `exploit` or `explore`."""


class Game(Protocol):
    """One game that can be played, saved and restored."""

    def reset(self, seed: int | None = None) -> Observation:
        """The first observation of a new game. `seed` is the emulator's; None repeats the last one."""

    def step(self, action: str, *, last: bool = False) -> Step:
        """What the action leads to. `last` says that the step limit ends the episode here."""

    def save(self) -> bytes:
        """The state of the game, to be given to `restore`, in this process or another."""

    def restore(self, state: bytes) -> Observation:
        """The observation in the saved state."""

    def close(self) -> None:
        """Frees what the game holds."""


class Agent(Protocol):
    """One player."""

    def act(self, observation: Observation) -> Decision:
        """The agent's answer to an observation that has at least one action."""
