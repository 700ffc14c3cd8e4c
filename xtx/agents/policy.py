"""From values to probabilities to a choice."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def softmax(values: NDArray[np.floating], temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities in proportion to exp(value / temperature)."""
    scaled = values.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def uniform(count: int) -> NDArray[np.float64]:
    """All alike."""
    return np.full(count, 1 / count)


_CERTAIN = uniform(1)


def draw(random: np.random.Generator, probabilities: NDArray[np.floating]) -> int:
    """An index, by one number of the generator."""
    sums = np.cumsum(probabilities, dtype=np.float64)
    return min(int(np.searchsorted(sums, random.random() * sums[-1], side="right")), len(sums) - 1)


def draw_known(
    random: np.random.Generator, probabilities: Mapping[int, NDArray[np.floating]], games: int
) -> dict[int, int]:
    """An index for each game whose probabilities are known. The others take a number of the generator as well, as they
    would if theirs were known."""
    drawn = {game: draw(random, probabilities.get(game, _CERTAIN)) for game in range(games)}
    return {game: drawn[game] for game in probabilities}
