"""One game in a process of its own, as a `Game`."""

from __future__ import annotations

from collections.abc import Callable

from xtx.core import Observation, Step, warn
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import GameSpec
from xtx.games.vector.game_vector import GameVector


class IsolatedGame:
    """A game in a process of its own: a command that kills it, or never ends, does nothing. It cannot be saved after
    its end."""

    def __init__(
        self,
        spec: GameSpec,
        on_report: Callable[[str], None] = warn,
        on_survey: Callable[[float], None] | None = None,
    ) -> None:
        """`on_report` and `on_survey` are those of `GameVector`."""
        self._vector = GameVector(spec, 1, 1, on_report=on_report, on_survey=on_survey)

    def reset(self, seed: int | None = None) -> Observation:
        """The first observation of a new game."""
        return self._vector.reset(seeds=None if seed is None else [seed])[0]

    def step(self, action: str, *, last: bool = False) -> Step:
        """What the action leads to."""
        return self._vector.step([action], last=(0,) if last else ())[0]

    def save(self) -> bytes:
        """The state of the game."""
        return self._vector.save()[0]

    def restore(self, state: bytes) -> Observation:
        """The observation in the saved state."""
        return self._vector.restore([state])[0]

    def close(self) -> None:
        """Ends the process."""
        self._vector.close()

    @property
    def details(self) -> Details:
        """What people see of the present state, if `spec.details` asks for it."""
        return self._vector.details[0]

    @property
    def facts(self) -> Facts:
        """What is true of the game in every state."""
        return self._vector.facts

    @property
    def walkthrough_seed(self) -> int:
        """The emulator seed under which the game's walkthrough works."""
        return self._vector.walkthrough_seed

    @property
    def max_score(self) -> int:
        """The points that the game has to give."""
        return self._vector.max_score
