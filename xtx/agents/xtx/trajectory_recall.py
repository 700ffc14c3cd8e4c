"""How well the imitation policy knows the trajectories of a buffer by heart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from xtx.agents.xtx.imitation_training import EagerSteps, Example


class TrajectoryRecall:
    """Finds the least probability with which a policy says a whole trajectory, word by word.

    A mean over the buffer would not do: what an episode has to know beyond the earlier ones is often a single new step
    among hundreds of known ones, and hardly shows in it.
    """

    def __init__(self, trajectories: Sequence[Sequence[tuple[Hashable, int]]], examples: Sequence[Example]) -> None:
        """trajectories: pairs of context and action; examples: one for each distinct pair, in the order in which they
        occur first."""
        counts = Counter(pair for trajectory in trajectories for pair in trajectory)
        contexts: Counter[Hashable] = Counter()
        for (context, _), count in counts.items():
            contexts[context] += count
        self._examples = list(examples)
        self._least = [-math.log(count / contexts[context]) for (context, _), count in counts.items()]
        places = {pair: place for place, pair in enumerate(counts)}
        self._trajectories = {tuple(places[pair] for pair in trajectory) for trajectory in trajectories}

    def probability(self, steps: EagerSteps) -> float:
        """Return the least probability of a trajectory without dropout, relative to the best that is possible.

        Where the same context was followed by different actions, the best is to say each as often as it occurs.
        """
        found = steps.surprises(self._examples)
        missing = [max(0.0, surprise - least) for surprise, least in zip(found, self._least, strict=True)]
        return math.exp(-max(sum(missing[place] for place in places) for places in self._trajectories))
