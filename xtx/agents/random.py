"""The agent that takes any valid action: the measure below which nothing was learned."""

from __future__ import annotations

import random

from xtx.core import Decision, Observation


class RandomAgent:
    """Chooses among the valid actions, all alike; the same seed makes the same choices."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def act(self, observation: Observation) -> Decision:
        """One of the observation's actions."""
        return Decision(self._random.choice(observation.actions))
