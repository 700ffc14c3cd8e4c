"""Turns action values into probabilities, and draws actions from probabilities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def softmax(values: NDArray[np.floating], temperature: float = 1.0) -> NDArray[np.float64]:
    """Return probabilities in proportion to exp(value / temperature). values: [n]; result: [n]"""
    scaled = values.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def uniform(count: int) -> NDArray[np.float64]:
    """Return `count` equal probabilities."""
    return np.full(count, 1 / count)


_CERTAIN = uniform(1)


def draw(random: np.random.Generator, probabilities: NDArray[np.floating]) -> int:
    """Draw an index with these probabilities, which need not sum to exactly 1; takes one number of the generator."""
    sums = np.cumsum(probabilities, dtype=np.float64)
    return min(int(np.searchsorted(sums, random.random() * sums[-1], side="right")), len(sums) - 1)


def draw_known(
    random: np.random.Generator, probabilities: Mapping[int, NDArray[np.floating]], games: int
) -> dict[int, int]:
    """Draw an index for each game whose probabilities are known.

    Every game takes one number of the generator, also where the probabilities are unknown: so the draws are the same
    as those of an `act` in which all are known.
    """
    drawn = {game: draw(random, probabilities.get(game, _CERTAIN)) for game in range(games)}
    return {game: drawn[game] for game in probabilities}
