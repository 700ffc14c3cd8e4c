"""The types that all packages share: what a game shows, what an agent answers, and the protocols `Game` and `Agent`.

Standard library only. A `Game` never sees an agent and an `Agent` never sees a game; the loop knows both.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias


class UserError(Exception):
    """An error the user can fix; its text is one line that says how. The command line exits with status 2."""


def warn(line: str) -> None:
    """Print a warning to the error stream, in one line."""
    print(f"xtx: {escape_controls(line)}", file=sys.stderr)


def escape_controls(text: str) -> str:
    """Text in which control characters are written out, as `\\x1b`: names of folders can hold commands to a terminal.

    Bytes of names that are not UTF-8 stay as they are."""
    return "".join(sign if sign.isprintable() or "\udc80" <= sign <= "\udcff" else ascii(sign)[1:-1] for sign in text)


EPISODES_OF_MEAN = 100
"""Episodes over which the mean of final scores is taken: 100, as in the paper."""

ENDINGS = ("won", "died", "limit")
"""How an episode can end: `died` is any end by the game that is no victory, `limit` the step limit."""

FALLBACK_ACTIONS = ("wait", "yes", "no")
"""What an observation offers as valid actions where none was found."""


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

    @property
    def ending(self) -> str:
        """How the episode ended with it, one of `ENDINGS`; empty if it did not."""
        return "won" if self.won else "died" if self.terminated else "limit" if self.truncated else ""


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


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one game, whole, as a learning agent gets it."""

    game: int
    """Which of the games that are played together."""
    before: Observation
    decision: Decision
    reward: int
    after: Observation
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether the episode ended with it."""
        return self.terminated or self.truncated


class Clock:
    """Where the time goes: seconds by the name of a part. Parts may lie in one another; each has its own time only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times what is done within."""
        outside, self._inner = self._inner, 0.0
        began = time.perf_counter()
        try:
            yield
        finally:
            whole = time.perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + whole - self._inner
            self._inner = outside + whole


@dataclass(frozen=True)
class Brief:
    """What an agent gets before the first observation."""

    num_envs: int
    """Number of envs: copies of the game that are stepped together."""
    seed: int
    device: str = "cpu"
    walkthrough: tuple[str, ...] = ()
    """The game's solution, where one is known: for the agent `walkthrough` alone."""
    clock: Clock = field(default_factory=Clock)
    """Where the agent notes its time, if it wants to be measured by `xtx bench`."""

    @property
    def games(self) -> int:
        """The same as `num_envs`: its name in earlier versions."""
        return self.num_envs


@dataclass(frozen=True)
class Insight:
    """What an agent would do in a state, for displays."""

    probabilities: Mapping[str, float]
    """Of each valid action."""
    phase: str = ""


@dataclass(frozen=True)
class NoSettings:
    """The settings of an agent that has none."""


State: TypeAlias = dict[str, Any]
"""What must be kept to go on later: nested dictionaries and lists of NumPy arrays, numbers, strings, booleans, None."""


class Agent(ABC):
    """One player of several games at once. Only `act` must be written; an agent that learns writes `learn`, and then
    `state` and `load`, so that a run can be stopped and continued exactly."""

    Settings: ClassVar[type[Any]] = NoSettings
    """A frozen dataclass; its fields become options of the command line."""

    def __init__(self, settings: Any, brief: Brief) -> None:
        self.settings = settings
        self.brief = brief

    @property
    def episode_limit(self) -> int:
        """Steps after which an episode ends now; the loop reads it at every step."""
        return 100

    def limit_of(self, game: int) -> int:
        """The same for the episode of one of the games, where they differ."""
        return self.episode_limit

    @abstractmethod
    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """One answer for each game, in their order. An observation whose step is 0 begins an episode."""

    def glimpse(self, transitions: Sequence[Transition]) -> None:  # noqa: B027 - most agents have no use for it
        """Called before `learn`, with the same transitions but for the valid actions of the new states, which are still
        being searched: what does not depend on them can be done meanwhile. It need not be used."""

    def foresee(self, observations: Sequence[Observation]) -> Mapping[int, str]:
        """What `act` is likely to answer if these observations come next, by game; an observation without actions is
        not known yet. It must change nothing, may be wrong, and need not be there: where it is right, games that would
        have to wait for others can search meanwhile what comes next."""
        return {}

    def learn(self, transitions: Sequence[Transition]) -> Mapping[str, float]:
        """Numbers to log, after learning from one step of every game. Not called where the agent is only tried."""
        return {}

    def describe(self) -> Mapping[str, float]:
        """The agent's plan in numbers, for the progress display and the log."""
        return {}

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """What the agent would do after these earlier actions of the episode; changes nothing in the agent."""
        return Insight({})

    def state(self) -> State:
        """Everything that `load` needs to go on as if never stopped."""
        return {}

    def load(self, state: State) -> None:
        """Goes on from a state that `state` gave."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} has a state, so it needs `load`")


@dataclass(frozen=True)
class EpisodeRecord:
    """A finished episode: one line of episodes.jsonl."""

    episode: int
    """Number of the episode, from 1, in the order in which they ended."""
    step: int
    """Game steps of the whole run when it ended."""
    game: int
    score: int
    """The final score."""
    peak: int
    """The highest score on the way."""
    length: int
    ended: str
    """How: `won`, `died` (the game ended by itself) or `limit`."""
    seed: int
    """The emulator's seed."""
    explored_from: int | None = None
    """The first step that was taken in the phase `explore`; None if there was none."""
    exploited: int = 0
    """Steps in the phase `exploit`."""
    record: bool = False
    """Whether its final score was the best so far."""
    actions: list[str] = field(default_factory=list)
    """All commands, for episodes that set a record; else empty."""
