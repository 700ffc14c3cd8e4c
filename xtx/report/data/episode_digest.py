"""A run's episodes, reduced to what a report shows of them; a summary holds the same with a thinner curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xtx.core import ENDINGS, EPISODES_OF_MEAN, EpisodeRecord
from xtx.report.data.statistics import (
    Floats,
    WorkingTime,
    average_score,
    average_score_by_env,
    compute_area_under_curve,
    compute_running_average,
    find_best_score,
    read_curve,
)

ROUND_STEPS = tuple(factor * 10**power for power in range(1, 9) for factor in (1, 2, 5))
"""Steps at which curves are read off; summaries hold these points too."""
COMPARED_STEPS = (1_000, 5_500, 100_000, 800_000)
"""Steps at which other work on these games gives its scores; summaries made since then hold these points too."""
POINTS = 180
"""Of a summary's curve, at most, beside those at the steps above."""


def choose_curve_points(reached: int) -> Floats:
    """The steps at which the curve of a run that has come so far is kept in its summary: evenly, and round numbers."""
    evenly = np.linspace(0, reached, POINTS + 1).astype(np.int64)
    steps = np.unique(np.concatenate((evenly, ROUND_STEPS, COMPARED_STEPS)))
    found: Floats = steps[steps <= reached].astype(np.float64)
    return found


def has_curve_point(curve: Curve, reached: int, step: int) -> bool:
    """Whether the curve of a summary is known at a step: it has a point there, or points at all ends of episodes.
    Summaries of earlier versions lack some of `choose_curve_points`, but have the evenly spaced ones."""
    evenly = np.linspace(0, reached, POINTS + 1).astype(np.int64)
    is_thinned = curve.steps.size > 0 and bool(np.isin(evenly[evenly >= curve.steps[0]], curve.steps).all())
    return not is_thinned or step >= reached or step in curve.steps


@dataclass(frozen=True, eq=False)
class Curve:
    """Three columns: at these steps of the run, and until the next, this was so."""

    steps: Floats
    mean: Floats
    """The mean of the last 100 final scores."""
    best: Floats
    """The best final score so far."""


@dataclass(frozen=True)
class HighScore:
    """A score that was the highest so far."""

    score: int
    steps: int
    """Steps of the run at the end of the first episode that had it at some time."""
    seconds: float | None
    """Working time until then, if it is known."""
    usual: int | None
    """Steps of the run when the mean of the last 100 final scores first was that high; None if it never was."""


@dataclass(frozen=True)
class Endings:
    """Of some episodes: how many ended how, and how long they were."""

    ended: Mapping[str, int]
    length: float
    """Mean number of steps."""


@dataclass(frozen=True, eq=False)
class Digest:
    """All that a report shows of a run's episodes. Without any, the figures are NaN."""

    episodes: int
    avg: float
    """Mean final score of the last 100 episodes."""
    avg_by_env: float
    """The same of the last 100 of each of the envs stepped together."""
    max: float
    """Best final score."""
    peak: float
    """Highest score that any episode had at some time."""
    area: float
    """Area under the learning curve."""
    curve: Curve
    firsts: Sequence[HighScore]
    """Rising, of all scores that were the highest so far."""
    last_peaks: Floats
    """Of the last 100 episodes."""
    endings: Endings
    last_endings: Endings
    best: EpisodeRecord | None
    """The first episode with the best final score, with its actions."""

    def find_first_having(self, score: float) -> HighScore | None:
        """When an episode first had at least that score at some time; None if none had."""
        return next((first for first in self.firsts if first.score >= score), None)

    def compute_share_having(self, score: float) -> float:
        """The share of the last 100 episodes that had at least that score at some time."""
        return float((self.last_peaks >= score).mean())

    def compute_area_at(self, steps: int, reached: int) -> float:
        """The area under the learning curve up to a step of a run that has come to `reached`. Before its end the curve
        is read at the points that summaries hold, so that these give the same."""
        if steps >= reached:
            return self.area
        at = np.append(choose_curve_points(reached), float(steps))
        at = np.unique(np.append(at[at <= steps], 0.0))
        means = np.nan_to_num(read_curve(self.curve.steps, self.curve.mean, at))
        return float(np.sum(np.diff(at) * (means[1:] + means[:-1]) / 2) / max(1, steps))


def make_digest(episodes: Sequence[EpisodeRecord], reached: int, time: WorkingTime | None) -> Digest:
    """The digest of a run that has come to so many steps."""
    ends = np.array([episode.step for episode in episodes], np.float64)
    scores = np.array([episode.score for episode in episodes], np.float64)
    peaks = np.array([episode.peak for episode in episodes], np.float64)
    average = compute_running_average(scores)
    return Digest(
        episodes=len(episodes),
        avg=average_score(scores),
        avg_by_env=average_score_by_env(scores, [episode.game for episode in episodes]),
        max=find_best_score(scores),
        peak=find_best_score(peaks),
        area=compute_area_under_curve(ends, scores, max(1, reached)),
        curve=Curve(ends, average, np.maximum.accumulate(scores)),
        firsts=_find_firsts(ends, peaks, average, time),
        last_peaks=peaks[-EPISODES_OF_MEAN:],
        endings=_count_endings(episodes),
        last_endings=_count_endings(episodes[-EPISODES_OF_MEAN:]),
        best=next((episode for episode in reversed(episodes) if episode.record), None),
    )


def _find_firsts(ends: Floats, peaks: Floats, average: Floats, time: WorkingTime | None) -> list[HighScore]:
    highest, usual = np.maximum.accumulate(peaks), np.maximum.accumulate(average)
    firsts = []
    for score in np.unique(highest):
        # The first place at which a value is that high is the first at which the highest so far is.
        step = int(ends[np.searchsorted(highest, score)])
        place = int(np.searchsorted(usual, score))
        seconds = time.interpolate(step) if time else math.nan
        when = int(ends[place]) if place < len(ends) else None
        firsts.append(HighScore(int(score), step, None if math.isnan(seconds) else seconds, when))
    return firsts


def _count_endings(episodes: Sequence[EpisodeRecord]) -> Endings:
    counts = {kind: sum(episode.ended == kind for episode in episodes) for kind in ENDINGS}
    lengths = [episode.length for episode in episodes]
    return Endings(counts, float(np.mean(lengths)) if lengths else math.nan)
