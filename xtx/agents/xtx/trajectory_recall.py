"""How well the imitation policy reproduces the trajectories of a buffer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from xtx.agents.xtx.imitation_training import EagerSteps, Example


class TrajectoryRecall:
    """Finds the least probability with which a policy goes through a whole trajectory, word by word.

    A mean over the buffer would not do: what an episode has to know beyond the earlier ones is often a single new step
    among hundreds of known ones, and hardly shows in it.
    """

    def __init__(self, trajectories: Sequence[Sequence[tuple[Hashable, int]]], examples: Sequence[Example]) -> None:
        """trajectories: pairs of context and action; examples: one for each distinct pair, in the order in which they
        occur first."""
        counts = Counter(pair for trajectory in trajectories for pair in trajectory)
        self._examples = list(examples)
        self._contexts = [context for context, _ in counts]
        totals: Counter[Hashable] = Counter()
        for (context, _), count in counts.items():
            totals[context] += count
        self._shares = [count / totals[context] for (context, _), count in counts.items()]
        places = {pair: place for place, pair in enumerate(counts)}
        self._trajectories = {tuple(places[pair] for pair in trajectory) for trajectory in trajectories}

    def compute_probability(self, steps: EagerSteps) -> float:
        """Return the least probability of a trajectory, without dropout.

        Where the same context was followed by different actions, any of them counts as known, provided that each has
        at least half the probability that its number gives it: with dropout at work, shares are never met exactly.
        """
        found = [math.exp(-surprise) for surprise in steps.compute_surprises(self._examples)]
        sums: dict[Hashable, float] = {}
        for context, probability in zip(self._contexts, found, strict=True):
            sums[context] = sums.get(context, 0.0) + probability
        known = [
            min(1.0, sums[context], 2 * probability / share if share < 1 else 1.0)
            for context, probability, share in zip(self._contexts, found, self._shares, strict=True)
        ]
        return min(math.prod(known[place] for place in places) for places in self._trajectories)
