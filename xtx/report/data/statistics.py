"""Figures of runs and of sets of runs. NumPy only; no files.

Scores over games and seeds are `Scores`: one array for each game, with one number for each seed. Medians, interquartile
means and the rest are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice"; where games have equally many seeds the results equal those of their library, rliable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xtx.core import EPISODES_OF_MEAN

Floats = NDArray[np.float64]
Scores = Sequence[Floats]
"""For each game, a score for each seed."""

RESAMPLES = 2000
_LEVEL = 0.95


# --- one run ----------------------------------------------------------------------------------------------------


def average_score(scores: ArrayLike, last: int = EPISODES_OF_MEAN) -> float:
    """Avg: the mean final score of the last 100 episodes; NaN without episodes."""
    tail = np.asarray(scores, np.float64)[-last:]
    return float(tail.mean()) if tail.size else float("nan")


def average_score_by_env(scores: ArrayLike, envs: ArrayLike, last: int = EPISODES_OF_MEAN) -> float:
    """Avg as the authors' program has it: the mean over the last 100 episodes of each of the envs stepped together."""
    values, of = np.asarray(scores, np.float64), np.asarray(envs)
    tails = [values[of == env][-last:] for env in np.unique(of)]
    return float(np.concatenate(tails).mean()) if tails else float("nan")


def find_best_score(scores: ArrayLike) -> float:
    """Max: the best final score of any episode; NaN without episodes."""
    values = np.asarray(scores, np.float64)
    return float(values.max()) if values.size else float("nan")


def compute_running_average(scores: ArrayLike, last: int = EPISODES_OF_MEAN) -> Floats:
    """[episodes]: the mean of the last 100 episodes, or of as many as there are, after each episode."""
    values = np.asarray(scores, np.float64)
    sums = np.concatenate(([0.0], np.cumsum(values)))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - last)
    means: Floats = (sums[ends] - sums[begins]) / (ends - begins)
    return means


def read_curve(ends: ArrayLike, values: ArrayLike, at: ArrayLike) -> Floats:
    """[at]: the newest of `values`, which came at the steps `ends`, at each of these steps; NaN before the first."""
    found = np.searchsorted(np.asarray(ends), np.asarray(at), side="right")
    padded = np.concatenate(([np.nan], np.asarray(values, np.float64)))
    result: Floats = padded[found]
    return result


def compute_area_under_curve(ends: ArrayLike, scores: ArrayLike, steps: int, last: int = EPISODES_OF_MEAN) -> float:
    """The running average, averaged over all steps of the run; it counts as 0 until the first episode ends.

    So a run that has its final score early has more than one that gets there late.
    """
    at = np.minimum(np.asarray(ends, np.float64), steps)
    widths = np.diff(np.append(at, float(steps)))
    return float(np.sum(widths * compute_running_average(scores, last)) / steps) if at.size else 0.0


@dataclass(frozen=True)
class WorkingTime:
    """How long a run had worked when it came to a step; pauses between a stop and the next start do not count."""

    steps: Floats
    seconds: Floats

    @property
    def total(self) -> float:
        """Seconds up to the last known step."""
        return float(self.seconds[-1])

    def interpolate(self, step: float) -> float:
        """Seconds until that step was reached, between two known ones in proportion; NaN beyond the last."""
        return float(np.interp(step, self.steps, self.seconds, right=np.nan))


def measure_working_time(steps: ArrayLike, times: ArrayLike, starts: ArrayLike = ()) -> WorkingTime | None:
    """The run's working time from the lines of timing.jsonl and the moments at which the process was started.

    Steps that were computed again after a crash cost their time but are no progress: the clock goes on, and a step
    counts as reached when the run first came to it. None where there is too little to tell.
    """
    at, clock = np.asarray(steps, np.float64), np.asarray(times, np.float64)
    begun = np.sort(np.asarray(starts, np.float64))
    known_steps, known_seconds, worked = [0.0], [0.0], 0.0
    for i in range(len(at)):
        before = clock[i - 1] if i else -np.inf
        session = begun[(begun > before) & (begun <= clock[i])]
        if session.size:
            worked += clock[i] - session[-1]
        elif i:
            worked += max(0.0, clock[i] - before)
        elif len(at) > 1 and at[1] > at[0]:
            worked += max(0.0, clock[1] - clock[0]) * at[0] / (at[1] - at[0])  # no start is known: as fast as later
        if at[i] > known_steps[-1]:
            known_steps.append(float(at[i]))
            known_seconds.append(worked)
    if len(known_steps) < 2:
        return None
    return WorkingTime(np.array(known_steps), np.array(known_seconds))


# --- seeds ------------------------------------------------------------------------------------------------------


def compute_mean_and_std(values: ArrayLike) -> tuple[float, float]:
    """Mean and population standard deviation, as the paper has them over seeds."""
    numbers = np.asarray(values, np.float64)
    return (float(numbers.mean()), float(numbers.std())) if numbers.size else (float("nan"), float("nan"))


def normalise(score: ArrayLike, maximum: float) -> Floats:
    """Score / maximum, cut above at 1 and not below."""
    result: Floats = np.minimum(np.asarray(score, np.float64) / maximum, 1.0)
    return result


# --- many games -------------------------------------------------------------------------------------------------


def choose_cut(*agents: Scores) -> float:
    """The share of the scores that an interquartile mean leaves out at each end: as SciPy's trim_mean, and so rliable,
    as many whole scores as there are in a quarter. Where agents or games have different numbers of seeds, a quarter
    exactly, for all of them: otherwise one and the same result would count more for the agent with more seeds."""
    numbers = {len(game) for scores in agents for game in scores}
    total = len(agents[0]) * max(numbers)
    return int(0.25 * total) / total if len(numbers) == 1 else 0.25


AGGREGATES = ("median", "IQM", "mean", "optimality gap")


def _average_trimmed(games: Sequence[Floats], cut: float) -> Floats:
    """[rows]: means of what is left of each row without the share `cut` of its scores at each end; games:
    [rows, seeds] each. Every game has the same weight, however many seeds."""
    values = np.concatenate(list(games), axis=1)
    weights = np.concatenate([np.full(game.shape[1], 1 / (game.shape[1] * len(games))) for game in games])
    order = np.argsort(values, axis=1, kind="stable")
    ends = np.cumsum(weights[order], axis=1)
    kept = np.clip(ends, cut, 1 - cut) - np.clip(ends - weights[order], cut, 1 - cut)
    result: Floats = (np.take_along_axis(values, order, axis=1) * kept).sum(axis=1) / kept.sum(axis=1)
    return result


@dataclass(frozen=True)
class Estimate:
    """A figure and the interval in which it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def compute_aggregates(
    scores: Scores, resamples: int = RESAMPLES, seed: int = 0, cut: float | None = None
) -> dict[str, Estimate]:
    """Median, IQM, mean and optimality gap, each with its stratified-bootstrap interval. `cut` is the IQM's.

    With a single seed a game cannot be resampled: where all games are such, the interval is the figure itself.
    """
    cut = choose_cut(scores) if cut is None else cut
    values = _aggregate_rows([game[None] for game in scores], cut)
    drawn = _aggregate_rows(_resample(scores, resamples, np.random.default_rng(seed)), cut)
    return {name: Estimate(float(values[name][0]), *_find_interval(drawn[name])) for name in AGGREGATES}


def _aggregate_rows(games: Sequence[Floats], cut: float) -> dict[str, Floats]:
    """By aggregate, [rows]: that of each row of scores; games: [rows, seeds] each. The mean and the median are over
    games, of the means over seeds; the optimality gap is how far the mean is from 1 if more than 1 counts as 1."""
    means = np.stack([game.mean(axis=1) for game in games])
    capped = np.stack([np.minimum(game, 1.0).mean(axis=1) for game in games])
    return {
        "median": np.median(means, axis=0),
        "IQM": _average_trimmed(games, cut),
        "mean": means.mean(axis=0),
        "optimality gap": 1.0 - capped.mean(axis=0),
    }


@dataclass(frozen=True)
class PerformanceProfile:
    """A performance profile: the share of runs that score more than each threshold."""

    thresholds: Floats
    share: Floats
    low: Floats
    high: Floats


def compute_performance_profile(
    scores: Scores, thresholds: ArrayLike, resamples: int = RESAMPLES, seed: int = 0
) -> PerformanceProfile:  # fmt: skip
    """The share of the runs above each threshold, averaged over games, with a band from the stratified bootstrap."""
    at = np.asarray(thresholds, np.float64)
    samples = _resample(scores, resamples, np.random.default_rng(seed))
    drawn = np.mean([[(game > threshold).mean(axis=1) for threshold in at] for game in samples], axis=0)
    share: Floats = np.mean([(game[None] > at[:, None]).mean(axis=1) for game in scores], axis=0)
    low, high = np.quantile(drawn, _tails(), axis=1)
    return PerformanceProfile(at, share, low, high)


def estimate_improvement(
    scores: Scores, others: Scores, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:  # fmt: skip
    """How likely a run of the first agent beats one of the second on a game drawn at random; ties count half.

    Mann-Whitney's U / (n·m) of each game, averaged over games, which must be the same for both.
    """
    rng = np.random.default_rng(seed)
    pairs = zip(_resample(scores, resamples, rng), _resample(others, resamples, rng), strict=True)
    value = np.mean([_compute_wins(x[None], y[None])[0] for x, y in zip(scores, others, strict=True)])
    return Estimate(float(value), *_find_interval(np.mean([_compute_wins(x, y) for x, y in pairs], axis=0)))


def _compute_wins(x: Floats, y: Floats) -> Floats:
    """[rows]: the share of pairs of each row of x and of y in which x is greater; ties count half."""
    differences = np.sign(x[:, :, None] - y[:, None, :])
    result: Floats = (0.5 * (differences + 1.0)).mean(axis=(1, 2))
    return result


def _resample(scores: Scores, resamples: int, rng: np.random.Generator) -> list[Floats]:
    """For each game [resamples, seeds]: its own seeds drawn with replacement. Games are never drawn: the twelve are
    not a sample of anything."""
    return [game[rng.integers(len(game), size=(resamples, len(game)))] for game in scores]


def _tails() -> tuple[float, float]:
    return (1 - _LEVEL) / 2, (1 + _LEVEL) / 2


def _find_interval(drawn: Floats) -> tuple[float, float]:
    low, high = np.quantile(drawn, _tails())
    return float(low), float(high)
