"""The trajectory store: finished episodes by the scores that they reached, and a draw of the best to imitate.

Every finished episode yields, for each distinct score that it reached, the prefix up to the first time it reached it.
The paper draws first a score and then a prefix of it. The probabilities depend only on how often each length occurred
for each score, so those counts are stored exactly and for ever, and of the prefixes themselves at most a reservoir for
each score and length. Neither adding nor drawing reads earlier episodes again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from xtx.core import State
from xtx.memory.prefix_table import COLUMNS, PrefixTable, SharedPrefix, Steps
from xtx.memory.used_ids import find_distinct_ids

Floats = NDArray[np.float64]

NEGLIGIBLE = math.log(1e-30)
"""Lengths with a log-probability below this are treated as never drawn: a run makes some thousand draws."""


@dataclass(frozen=True)
class StoredEpisode:
    """A finished episode."""

    steps: Steps
    """[length, 4]: narration, look, inventory and action of each step."""
    scores: Sequence[int] | NDArray[np.integer]
    """[length]: after each action."""
    terminated: bool
    """Whether its last state is game over. An episode that the step limit ended is not terminated."""


@dataclass(frozen=True)
class Buffer:
    """B: the prefixes that the imitation policy is trained on next, with repetitions as drawn."""

    prefixes: list[Steps]
    """Each [length, 4]: narration, look, inventory and action of each step."""
    scores: list[int]
    """The score that each prefix leads to."""
    target_score: int
    """M: the highest score among them."""
    l_max: int
    """The length of the longest."""


def list_prefix_lengths(scores: Sequence[int] | NDArray[np.integer], terminated: bool) -> dict[int, int]:
    """Return for each distinct score of an episode the number of actions after which it was first reached.

    Only states count in which the game is not over, and not the start state: a prefix has at least one action.
    """
    lengths: dict[int, int] = {}
    for length, score in enumerate(scores[:-1] if terminated else scores, start=1):
        lengths.setdefault(int(score), length)
    return lengths


def score_probabilities(scores: NDArray[np.integer], beta1: float) -> Floats:
    """Return P(u) for each of the distinct scores, in proportion to exp(beta1 * standardised u)."""
    once = np.ones(len(scores), np.int64)
    return np.exp(_log_softmax(beta1 * _standardise(scores, once)))


def length_log_probabilities(lengths: NDArray[np.integer], counts: NDArray[np.integer], beta2: float) -> Floats:
    """Return log P(a prefix of this length | u) for each distinct length.

    Each prefix of the multiset has a weight of exp(-beta2 * standardised length), so a length has that times its count.
    """
    return _log_softmax(np.log(counts) - beta2 * _standardise(lengths, counts))


def _standardise(values: NDArray[np.integer], counts: NDArray[np.integer]) -> Floats:
    """Return (value - mean) / std of a multiset given by distinct values; std with n - 1, or 1 if all are equal."""
    n = int(counts.sum())
    deviations = values.astype(np.float64) - float(counts @ values) / n
    std = math.sqrt(counts @ deviations**2 / (n - 1)) if len(values) > 1 else 1.0
    standardised: Floats = deviations / std
    return standardised


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    normalised: Floats = shifted - np.log(np.exp(shifted).sum())
    return normalised


class _PrefixGroup:
    """The prefixes of one score and one length: how many there were, and a reservoir sample of them."""

    __slots__ = ("count", "kept", "seen")

    def __init__(self) -> None:
        self.count = 0  # of the whole run
        self.seen = 0  # since `kept` was last dropped; `kept` is a uniform sample of these
        self.kept: list[SharedPrefix] = []


class TrajectoryStore:
    """Stores the prefixes of finished episodes and draws those to imitate.

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
        """Prefixes that are stored of each score and length, at most."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.k = k
        self.floor = floor
        """Scores below this are drawn only if there are no others."""
        self.budget = budget
        """Number of stored steps, of 16 bytes each, above which prefixes that are never drawn are dropped."""
        self.episodes = 0
        """Finished episodes seen."""
        self.replaced_draws = 0
        """Draws of a length whose prefixes had been dropped."""
        self.drops = 0
        """How many times prefixes were dropped."""
        self._groups: dict[int, dict[int, _PrefixGroup]] = {}  # by score, then by length
        self._prefixes = PrefixTable()
        self._drop_above = budget
        # The 2 separates this random stream from others that are seeded with the run's seed.
        self._rng = np.random.default_rng((seed, 2))

    @property
    def stored_steps(self) -> int:
        """Steps of all distinct stored prefixes together, 16 bytes each."""
        return self._prefixes.steps

    def add(self, episode: StoredEpisode) -> None:
        """Store the prefixes of a finished episode."""
        steps = np.ascontiguousarray(episode.steps, np.int32)
        if steps.shape != (len(episode.scores), COLUMNS):
            raise ValueError(f"{len(episode.scores)} scores do not fit to steps of shape {steps.shape}")
        self.episodes += 1
        for score, length in list_prefix_lengths(episode.scores, episode.terminated).items():
            group = self._groups.setdefault(score, {}).setdefault(length, _PrefixGroup())
            group.count += 1
            group.seen += 1
            if len(group.kept) < self.reservoir:
                group.kept.append(self._prefixes.add_reference(steps[:length]))
                continue
            # Reservoir sampling: each prefix seen is in `kept` with the same probability.
            place = int(self._rng.integers(group.seen))
            if place < self.reservoir:
                self._prefixes.drop_reference(group.kept[place])
                group.kept[place] = self._prefixes.add_reference(steps[:length])
        if self.stored_steps > self._drop_above:
            self._drop_negligible()

    def sample(self) -> Buffer | None:
        """Draw k prefixes with replacement; None while there are none."""
        if not self._groups:
            return None
        distinct, chances = self._list_scores()
        scores = self._rng.choice(distinct, self.k, p=chances).tolist()
        prefixes = [self._draw(score) for score in scores]
        return Buffer(prefixes, scores, target_score=max(scores), l_max=max(map(len, prefixes)))

    def compute_probabilities(self) -> dict[tuple[int, int], float]:
        """Return the probability of a draw for each score and length that ever occurred."""
        found = {}
        for score, chance in zip(*self._list_scores(), strict=True):
            lengths, logs = self._list_lengths(int(score))
            for length, log in zip(lengths, logs, strict=True):
                found[int(score), int(length)] = float(chance * np.exp(log))
        return found

    def list_live_texts(self) -> NDArray[np.int64]:
        """Return the distinct text ids in all stored prefixes, ascending."""
        return find_distinct_ids([self._prefixes.list_all_steps()])

    def state(self) -> State:
        """Return everything for `load`. The integers under `random` have 128 bits: Python's JSON keeps them, an array
        would not."""
        groups = [
            (score, length, group)
            for score, by_length in sorted(self._groups.items())
            for length, group in sorted(by_length.items())
        ]
        table = [(score, length, group.count, group.seen, len(group.kept)) for score, length, group in groups]
        return {
            "random": self._rng.bit_generator.state,
            "episodes": self.episodes,
            "replaced_draws": self.replaced_draws,
            "drops": self.drops,
            "drop_above": self._drop_above,
            "shelves": np.array(table, np.int64).reshape(-1, 5),
            "kept": self._prefixes.find_numbers(shared for *_, group in groups for shared in group.kept),
            "prefix_lengths": self._prefixes.list_lengths(),
            "steps": self._prefixes.list_all_steps(),
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self._rng.bit_generator.state = state["random"]
        self.episodes = int(state["episodes"])
        self.replaced_draws = int(state["replaced_draws"])
        self.drops = int(state["drops"])
        self._drop_above = int(state["drop_above"])
        kept = iter(self._prefixes.load(state["steps"], state["prefix_lengths"], state["kept"]))
        self._groups = {}
        for score, length, count, seen, size in state["shelves"].tolist():
            group = self._groups.setdefault(score, {}).setdefault(length, _PrefixGroup())
            group.count, group.seen = count, seen
            group.kept = list(islice(kept, size))

    def _list_scores(self) -> tuple[NDArray[np.int64], Floats]:
        """Return the distinct scores that can be drawn, ascending, and their probabilities."""
        scores = np.array(sorted(self._groups), np.int64)
        if self.floor is not None and (scores >= self.floor).any():
            scores = scores[scores >= self.floor]
        return scores, score_probabilities(scores, self.beta1) if len(scores) else np.zeros(0)

    def _list_lengths(self, score: int) -> tuple[NDArray[np.int64], Floats]:
        """Return the distinct lengths of a score's prefixes, ascending, and their log-probabilities."""
        groups = self._groups[score]
        lengths = np.array(sorted(groups), np.int64)
        counts = np.array([groups[int(length)].count for length in lengths], np.int64)
        return lengths, length_log_probabilities(lengths, counts, self.beta2)

    def _draw(self, score: int) -> Steps:
        """Draw a prefix that leads to a score; of the nearest length if all of the drawn length were dropped."""
        groups = self._groups[score]
        lengths, logs = self._list_lengths(score)
        length = int(self._rng.choice(lengths, p=np.exp(logs)))
        if not groups[length].kept:
            self.replaced_draws += 1
            wanted = length
            stored = (other for other, group in groups.items() if group.kept)
            length = min(stored, key=lambda other: (abs(other - wanted), other))
        kept = groups[length].kept
        return kept[int(self._rng.integers(len(kept)))].copy_steps()

    def _drop_negligible(self) -> None:
        """Drop prefixes that are never drawn, the least probable first, until a quarter of the budget is free.

        The pass reads all scores and lengths, so it must be rare: if too little can be dropped, the next one happens
        when a quarter more is stored.
        """
        self.drops += 1
        candidates = []
        for score, groups in self._groups.items():
            for length, log in zip(*self._list_lengths(score), strict=True):
                if log < NEGLIGIBLE and groups[int(length)].kept:
                    candidates.append((float(log), score, int(length)))
        for _, score, length in sorted(candidates):
            if self.stored_steps <= self.budget * 3 // 4:
                break
            group = self._groups[score][length]
            for shared in group.kept:
                self._prefixes.drop_reference(shared)
            group.kept, group.seen = [], 0
        self._drop_above = max(self.budget, self.stored_steps * 5 // 4)
