"""The trajectory store: which ways to which scores were found, and a draw of the best of them to imitate.

Every finished episode yields, for each distinct score that it reached, the prefix up to the first time it reached it.
The paper's two draws, first a score and then a prefix of it, need of all episodes ever seen only how often each length
occurred for each score; so those counts are kept for ever, exactly, and of the prefixes themselves at most a reservoir
for each score and length. Neither adding nor drawing reads earlier episodes again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from xtx.core import State
from xtx.memory.ids import distinct_ids
from xtx.memory.prefixes import COLUMNS, PrefixTable, Shared, Steps

Floats = NDArray[np.float64]

NEGLIGIBLE = math.log(1e-30)
"""Log-probability below which a length counts as one that is never drawn."""


@dataclass(frozen=True)
class Episode:
    """A finished episode."""

    steps: Steps
    """[length, 4]: narration, look, inventory and action of each step."""
    scores: Sequence[int] | NDArray[np.integer]
    """[length]: after each action."""
    terminated: bool
    """Whether its last state is game over. An episode that the step limit ended is not terminated."""


@dataclass(frozen=True)
class Buffer:
    """B: the prefixes that the imitation policy learns next, with repetitions as drawn."""

    prefixes: list[Steps]
    """Each [length, 4]: narration, look, inventory and action of each step."""
    scores: list[int]
    """To which score each prefix leads."""
    target_score: int
    """M: the highest score among them."""
    l_max: int
    """The length of the longest."""


def prefix_lengths(scores: Sequence[int] | NDArray[np.integer], terminated: bool) -> dict[int, int]:
    """For each distinct score of an episode, after how many actions it was first reached at a state that is not game
    over. The start state does not count: a prefix has at least one action."""
    lengths: dict[int, int] = {}
    for length, score in enumerate(scores[:-1] if terminated else scores, start=1):
        lengths.setdefault(int(score), length)
    return lengths


def score_probabilities(scores: NDArray[np.integer], beta1: float) -> Floats:
    """P(u) for each of the distinct scores: exp(beta1 * standardised u), over their set."""
    once = np.ones(len(scores), np.int64)
    return np.exp(_log_softmax(beta1 * _standardised(scores, once)))


def length_log_probabilities(lengths: NDArray[np.integer], counts: NDArray[np.integer], beta2: float) -> Floats:
    """log P(a prefix of this length | u) for each distinct length: exp(-beta2 * standardised length) for every prefix
    of the multiset, so times how many have that length."""
    return _log_softmax(np.log(counts) - beta2 * _standardised(lengths, counts))


def _standardised(values: NDArray[np.integer], counts: NDArray[np.integer]) -> Floats:
    """(value - mean) / std of a multiset given by distinct values; std with n - 1, and 1 where all are equal."""
    n = int(counts.sum())
    deviations = values.astype(np.float64) - float(counts @ values) / n
    std = math.sqrt(counts @ deviations**2 / (n - 1)) if len(values) > 1 else 1.0
    standardised: Floats = deviations / std
    return standardised


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    normalised: Floats = shifted - np.log(np.exp(shifted).sum())
    return normalised


class _Shelf:
    """All that is known of the prefixes of one score and one length."""

    __slots__ = ("count", "kept", "seen")

    def __init__(self) -> None:
        self.count = 0  # ever
        self.seen = 0  # since the kept ones were last dropped: what the reservoir is a fair draw of
        self.kept: list[Shared] = []


class TrajectoryStore:
    """Finished episodes, as far as they matter for drawing prefixes to imitate.

    What is dropped, and why that is sound. With beta2 = 10,000 only the shortest prefixes of a score are ever drawn: a
    length that is one step longer weighs exp(-10,000 / std) as much, less than 1e-30 unless the lengths' std exceeds
    145. So once the stored prefixes have more than `budget` steps, those of lengths whose probability is below 1e-30
    are dropped, the least probable first. The counts stay, hence every probability stays exact. No prefix weighs more
    than the shortest, hence those have at least probability 1 / n, are never dropped, and every score has some stored.
    A dropped length can matter again only if its probability rises by many powers of ten; prefixes of it that are met
    after the drop are kept again. Should a length without prefixes be drawn nevertheless, the nearest length that has
    some takes its place, and `replaced_draws` counts that.
    """

    def __init__(
        self,
        reservoir: int = 64,
        beta1: float = 1.0,
        beta2: float = 10_000.0,
        k: int = 10,
        seed: int = 0,
        *,
        budget: int = 2_000_000,
        floor: int | None = None,
    ) -> None:
        if reservoir < 1 or k < 1:
            raise ValueError("reservoir and k must be at least 1")
        self.reservoir = reservoir
        """Prefixes that are kept of each score and length."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.k = k
        self.floor = floor
        """Scores below this are not drawn while there are others."""
        self.budget = budget
        """Steps that may be stored before what is never drawn is dropped."""
        self.episodes = 0
        """Finished episodes seen."""
        self.replaced_draws = 0
        """Draws of a length whose prefixes had been dropped."""
        self.drops = 0
        """How often prefixes were dropped."""
        self._shelves: dict[int, dict[int, _Shelf]] = {}  # by score, then by length
        self._prefixes = PrefixTable()
        self._drop_above = budget
        # With a number of its own: others that were given the run's seed must not draw the same numbers.
        self._rng = np.random.default_rng((seed, 2))

    @property
    def stored_steps(self) -> int:
        """Steps of all distinct stored prefixes together, 16 bytes each."""
        return self._prefixes.steps

    def add(self, episode: Episode) -> None:
        """Takes in a finished episode."""
        steps = np.ascontiguousarray(episode.steps, np.int32)
        if steps.shape != (len(episode.scores), COLUMNS):
            raise ValueError(f"{len(episode.scores)} scores do not fit to steps of shape {steps.shape}")
        self.episodes += 1
        for score, length in prefix_lengths(episode.scores, episode.terminated).items():
            shelf = self._shelves.setdefault(score, {}).setdefault(length, _Shelf())
            shelf.count += 1
            shelf.seen += 1
            if len(shelf.kept) < self.reservoir:
                shelf.kept.append(self._prefixes.hold(steps[:length]))
                continue
            # Reservoir sampling: each of those seen is among the kept ones with the same probability.
            place = int(self._rng.integers(shelf.seen))
            if place < self.reservoir:
                self._prefixes.release(shelf.kept[place])
                shelf.kept[place] = self._prefixes.hold(steps[:length])
        if self.stored_steps > self._drop_above:
            self._drop_negligible()

    def sample(self) -> Buffer | None:
        """k prefixes, drawn with replacement; None while there are none."""
        if not self._shelves:
            return None
        distinct, chances = self._scores()
        scores = self._rng.choice(distinct, self.k, p=chances).tolist()
        prefixes = [self._draw(score) for score in scores]
        return Buffer(prefixes, scores, target_score=max(scores), l_max=max(map(len, prefixes)))

    def probabilities(self) -> dict[tuple[int, int], float]:
        """With which probability a draw gives a prefix of this score and length, for each that ever occurred."""
        found = {}
        for score, chance in zip(*self._scores(), strict=True):
            lengths, logs = self._lengths(int(score))
            for length, log in zip(lengths, logs, strict=True):
                found[int(score), int(length)] = float(chance * np.exp(log))
        return found

    def live_texts(self) -> NDArray[np.int64]:
        """The distinct numbers of texts in all stored prefixes, ascending."""
        return distinct_ids([self._prefixes.all_steps()])

    def state(self) -> State:
        """For `load`. The numbers under `random` have 128 bits: JSON in Python keeps them, an array would not."""
        shelves = [
            (score, length, shelf)
            for score, by_length in sorted(self._shelves.items())
            for length, shelf in sorted(by_length.items())
        ]
        table = [(score, length, shelf.count, shelf.seen, len(shelf.kept)) for score, length, shelf in shelves]
        return {
            "random": self._rng.bit_generator.state,
            "episodes": self.episodes,
            "replaced_draws": self.replaced_draws,
            "drops": self.drops,
            "drop_above": self._drop_above,
            "shelves": np.array(table, np.int64).reshape(-1, 5),
            "kept": self._prefixes.numbers(shared for *_, shelf in shelves for shared in shelf.kept),
            "prefix_lengths": self._prefixes.lengths(),
            "steps": self._prefixes.all_steps(),
        }

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self._rng.bit_generator.state = state["random"]
        self.episodes = int(state["episodes"])
        self.replaced_draws = int(state["replaced_draws"])
        self.drops = int(state["drops"])
        self._drop_above = int(state["drop_above"])
        kept = iter(self._prefixes.load(state["steps"], state["prefix_lengths"], state["kept"]))
        self._shelves = {}
        for score, length, count, seen, size in state["shelves"].tolist():
            shelf = self._shelves.setdefault(score, {}).setdefault(length, _Shelf())
            shelf.count, shelf.seen = count, seen
            shelf.kept = list(islice(kept, size))

    def _scores(self) -> tuple[NDArray[np.int64], Floats]:
        scores = np.array(sorted(self._shelves), np.int64)
        if self.floor is not None and (scores >= self.floor).any():
            scores = scores[scores >= self.floor]
        return scores, score_probabilities(scores, self.beta1) if len(scores) else np.zeros(0)

    def _lengths(self, score: int) -> tuple[NDArray[np.int64], Floats]:
        shelves = self._shelves[score]
        lengths = np.array(sorted(shelves), np.int64)
        counts = np.array([shelves[int(length)].count for length in lengths], np.int64)
        return lengths, length_log_probabilities(lengths, counts, self.beta2)

    def _draw(self, score: int) -> Steps:
        shelves = self._shelves[score]
        lengths, logs = self._lengths(score)
        length = int(self._rng.choice(lengths, p=np.exp(logs)))
        if not shelves[length].kept:
            self.replaced_draws += 1
            wanted = length
            stored = (other for other, shelf in shelves.items() if shelf.kept)
            length = min(stored, key=lambda other: (abs(other - wanted), other))
        kept = shelves[length].kept
        return kept[int(self._rng.integers(len(kept)))].steps()

    def _drop_negligible(self) -> None:
        """Drops prefixes that are never drawn until a quarter of the budget is free, so that this, which looks at all
        scores and lengths, happens rarely. Where too few can be dropped the next time is a quarter later."""
        self.drops += 1
        candidates = []
        for score, shelves in self._shelves.items():
            for length, log in zip(*self._lengths(score), strict=True):
                if log < NEGLIGIBLE and shelves[int(length)].kept:
                    candidates.append((float(log), score, int(length)))
        for _, score, length in sorted(candidates):
            if self.stored_steps <= self.budget * 3 // 4:
                break
            shelf = self._shelves[score][length]
            for shared in shelf.kept:
                self._prefixes.release(shared)
            shelf.kept, shelf.seen = [], 0
        self._drop_above = max(self.budget, self.stored_steps * 5 // 4)
