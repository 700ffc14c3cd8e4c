"""Numbers that say how hard a game is to learn, counted as the XTX paper counts them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class RewardSteps:
    """How far apart the rewards lie along a walkthrough."""

    mean: float
    """Steps of the whole walkthrough for each reward."""
    largest: int
    """Most steps from one reward to the next; 0 where there are not two."""
    rewards: int


def count_steps_between_rewards(rewards: Sequence[int]) -> RewardSteps | None:
    """The distances between rewards, given the reward of every step of a walkthrough; None if all are zero.

    The two numbers count differently, because the paper's do (docs/fidelity.md): the mean is all steps, with those
    before the first and after the last reward, over the number of rewards; the largest is of the distances between
    two rewards alone.
    """
    at = [step for step, reward in enumerate(rewards) if reward != 0]
    if not at:
        return None
    gaps = [after - before for before, after in pairwise(at)]
    return RewardSteps(mean=len(rewards) / len(at), largest=max(gaps, default=0), rewards=len(at))


def collect_vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """Return the distinct words in some texts, in lower case; numbers count, punctuation does not."""
    return frozenset(word for text in texts for word in re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.lower()))
