"""The random agent: the baseline that a learning agent must exceed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xtx.core import Agent, Brief, Decision, Insight, Observation, State


class RandomAgent(Agent):
    """Draws each valid action with equal probability; the same seed gives the same actions."""

    def __init__(self, settings: Any, brief: Brief) -> None:
        super().__init__(settings, brief)
        self._random = np.random.default_rng(brief.seed)

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """Draw a valid action for each observation."""
        return [Decision(o.actions[self._random.integers(len(o.actions))]) for o in observations]

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """Return equal probabilities."""
        return Insight({action: 1 / len(observation.actions) for action in observation.actions})

    def state(self) -> State:
        """Return the random state for `load`."""
        return {"random": self._random.bit_generator.state}

    def load(self, state: State) -> None:
        """Restore the random state, so that the same actions follow."""
        self._random.bit_generator.state = state["random"]
