"""Rules that decide which finished episodes enter the priority part of a replay memory."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from xtx.core import State


class EpisodeRank(Enum):
    """What a rule decides about a finished episode."""

    REJECT = "reject"
    """It does not enter the priority part."""
    APPEND = "append"
    """It enters the priority part."""
    REPLACE = "replace"
    """It enters the priority part, which is emptied first."""


class Acceptance(Protocol):
    """A rule that judges finished episodes by one number each."""

    def judge(self, outcome: float) -> EpisodeRank:
        """Decide about an episode by its outcome, and include the outcome in later decisions."""

    def state(self) -> State:
        """Return the earlier outcomes, as far as the rule uses them, for `load`."""

    def load(self, state: State) -> None:
        """Restore what `state` returned."""


class BestScore:
    """The rule of XTX, INV-DY and DRRN: accepts episodes with the best final score so far.

    The outcome is the final score.
    """

    def __init__(self) -> None:
        self.best = 0.0
        """The best final score so far. It begins at 0, so that an episode that ends below 0 is never accepted."""

    def judge(self, outcome: float) -> EpisodeRank:
        """Return REPLACE for a new best score, APPEND for an equal one."""
        if outcome < self.best:
            return EpisodeRank.REJECT
        verdict = EpisodeRank.REPLACE if outcome > self.best else EpisodeRank.APPEND
        self.best = float(outcome)
        return verdict

    def state(self) -> State:
        """Return the best score for `load`."""
        return {"best": self.best}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self.best = float(state["best"])


class AboveRunningMean:
    """The rule of RC-DQN: accepts episodes above a running mean. The outcome is the sum of clipped rewards.

    The mean weights the episode that ended n episodes ago by decay^n, normalised so that the weights sum to 1: it
    begins at the first outcome, not at 0. An episode enters the mean before it is judged, so the first is never
    accepted.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.mean = 0.0
        self._weight = 0.0

    def judge(self, outcome: float) -> EpisodeRank:
        """Return APPEND for an outcome above the mean that includes it."""
        self._weight = self.decay * self._weight + 1.0
        # Not sum / weight: for equal outcomes rounding could put that just below them, and they would be accepted.
        self.mean += (outcome - self.mean) / self._weight
        return EpisodeRank.APPEND if outcome > self.mean else EpisodeRank.REJECT

    def state(self) -> State:
        """Return mean and weight for `load`."""
        return {"mean": self.mean, "weight": self._weight}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self.mean, self._weight = float(state["mean"]), float(state["weight"])
