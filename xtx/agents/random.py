"""The agent that takes any valid action: the measure below which nothing was learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xtx.core import Agent, Brief, Decision, Insight, Observation, State


class RandomAgent(Agent):
    """Chooses among the valid actions, all alike; the same seed makes the same choices."""

    def __init__(self, settings: Any, brief: Brief) -> None:
        super().__init__(settings, brief)
        self._random = np.random.default_rng(brief.seed)

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """One of each observation's actions."""
        return [Decision(o.actions[self._random.integers(len(o.actions))]) for o in observations]

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """All alike."""
        return Insight({action: 1 / len(observation.actions) for action in observation.actions})

    def state(self) -> State:
        """The random generator's."""
        return {"random": self._random.bit_generator.state}

    def load(self, state: State) -> None:
        """Goes on with the same choices."""
        self._random.bit_generator.state = state["random"]
