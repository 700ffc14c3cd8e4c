"""Which episodes are worth keeping in the priority part of a replay memory."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from xtx.core import State


class Verdict(Enum):
    """What becomes of a finished episode."""

    REJECT = "reject"
    APPEND = "append"
    """It enters the priority part."""
    REPLACE = "replace"
    """It enters the priority part, which is emptied first."""


class Acceptance(Protocol):
    """A rule that judges finished episodes by one number each."""

    def judge(self, outcome: float) -> Verdict:
        """What becomes of an episode; the rule remembers its outcome."""

    def state(self) -> State:
        """For `load`."""

    def load(self, state: State) -> None:
        """Goes on from a saved state."""


class BestScore:
    """XTX, INV-DY and DRRN: only episodes whose final score nobody has surpassed. The outcome is the final score."""

    def __init__(self) -> None:
        self.best = 0.0
        """The best final score so far. From 0, so that an episode which ends below 0 is never a model."""

    def judge(self, outcome: float) -> Verdict:
        """REPLACE for a new best, APPEND for the best once more."""
        if outcome < self.best:
            return Verdict.REJECT
        verdict = Verdict.REPLACE if outcome > self.best else Verdict.APPEND
        self.best = float(outcome)
        return verdict

    def state(self) -> State:
        """For `load`."""
        return {"best": self.best}

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self.best = float(state["best"])


class AboveRunningMean:
    """RC-DQN: episodes better than usual of late. The outcome is the sum of the episode's clipped rewards.

    The mean weights the episode that ended n episodes ago by decay^n, and the weights are made to sum to 1: it begins
    at the first outcome, not at 0. As every episode is counted before it is judged, the first is never accepted.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.mean = 0.0
        self._weight = 0.0

    def judge(self, outcome: float) -> Verdict:
        """APPEND for what exceeds the mean, itself included."""
        self._weight = self.decay * self._weight + 1.0
        # Not sum / weight: that could lie just below an outcome that never changes, which must not exceed itself.
        self.mean += (outcome - self.mean) / self._weight
        return Verdict.APPEND if outcome > self.mean else Verdict.REJECT

    def state(self) -> State:
        """For `load`."""
        return {"mean": self.mean, "weight": self._weight}

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self.mean, self._weight = float(state["mean"]), float(state["weight"])
