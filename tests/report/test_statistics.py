"""Statistics against values worked out by hand, and against the paper's own row of averages.

References: rliable's definitions (Agarwal et al. 2021; `metrics.py` of google-research/rliable, whose IQM is
scipy.stats.trim_mean with 25 %) and what it gives, SciPy's documented example of trim_mean, and the textbook example of
the Mann-Whitney U test (Aesop's tortoises and hares: U = 25 of 36).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from xtx.report.data import statistics
from xtx.report.data.paper_tables import read_paper


def test_avg_takes_the_last_hundred_episodes() -> None:
    scores = [1000] * 50 + list(range(100))
    assert statistics.average_score(scores) == 49.5
    assert statistics.average_score([3, 4]) == 3.5
    assert math.isnan(statistics.average_score([]))


def test_avg_of_each_game_counts_every_game_alike() -> None:
    scores, games = [1, 2, 10, 3, 20], [0, 0, 1, 0, 1]
    assert statistics.average_score_by_env(scores, games, last=2) == (2 + 3 + 10 + 20) / 4
    assert statistics.average_score(scores, last=2) == 11.5
    assert math.isnan(statistics.average_score_by_env([], []))


def test_max_is_the_best_final_score() -> None:
    assert statistics.find_best_score([-5, -2, -9]) == -2
    assert math.isnan(statistics.find_best_score([]))


def test_spread_over_seeds_is_of_the_population() -> None:
    assert statistics.compute_mean_and_std([50, 60, 60]) == (
        pytest.approx(56.6667, abs=1e-4),
        pytest.approx(4.714, abs=1e-3),
    )
    assert statistics.compute_mean_and_std([7]) == (7, 0)


def test_normalised_scores_are_cut_above_only() -> None:
    assert_allclose(statistics.normalise([127, -5, 20], 25), [1, -0.2, 0.8])


def test_running_average_and_curve() -> None:
    average = statistics.compute_running_average([2, 4, 9, 1], last=2)
    assert_allclose(average, [2, 3, 6.5, 5])
    assert_allclose(statistics.read_curve([10, 20, 20, 40], average, [5, 10, 20, 39, 100]), [np.nan, 2, 6.5, 6.5, 5])


def test_area_under_the_curve() -> None:
    # 0 for 10 steps, 2 for 10, 3 for 20: (0 + 20 + 60) / 40
    assert statistics.compute_area_under_curve([10, 20], [2, 4], 40) == 2.0
    assert statistics.compute_area_under_curve([], [], 40) == 0.0
    # The last episode ended with the last vector step.
    assert statistics.compute_area_under_curve([10, 44], [2, 4], 40) == 1.5


def test_working_time_of_an_undisturbed_run() -> None:
    time = statistics.measure_working_time([100, 200], [1010.0, 1030.0], [1000.0])
    assert time is not None
    assert (time.interpolate(0), time.interpolate(100), time.interpolate(150), time.interpolate(200)) == (0, 10, 20, 30)
    assert math.isnan(time.interpolate(201))


def test_working_time_leaves_out_pauses_and_counts_steps_done_twice() -> None:
    # Stopped hard after 200, continued an hour later from 100: 5 s of loading and work again up to 200.
    time = statistics.measure_working_time([100, 200, 200, 300], [1010.0, 1020.0, 4705.0, 4712.0], [1000.0, 4700.0])
    assert time is not None
    assert (time.interpolate(200), time.interpolate(300)) == (20, 32)


def test_working_time_without_known_starts() -> None:
    time = statistics.measure_working_time([100, 200], [1010.0, 1030.0])
    assert time is not None and time.total == 40
    assert statistics.measure_working_time([], []) is None
    assert statistics.measure_working_time([100], [1010.0], [1000.0]) is not None


SCORES = [np.array([0.0, 0.2]), np.array([0.4, 0.6]), np.array([0.8, 1.4]), np.array([0.1, 0.1])]


def test_aggregates_worked_out_by_hand() -> None:
    # Means of the games: 0.1, 0.5, 1.1, 0.1
    assert statistics.compute_aggregates(SCORES)["mean"].value == pytest.approx(0.45)
    assert statistics.compute_aggregates(SCORES)["median"].value == pytest.approx(0.3)
    # Sorted: 0 .1 | .1 .2 .4 .6 | .8 1.4
    assert statistics.compute_aggregates(SCORES)["IQM"].value == pytest.approx((0.1 + 0.2 + 0.4 + 0.6) / 4)
    # Capped means: 0.1, 0.5, 0.9, 0.1
    assert statistics.compute_aggregates(SCORES)["optimality gap"].value == pytest.approx(1 - 1.6 / 4)


def test_iqm_is_trim_mean() -> None:
    # scipy.stats.trim_mean(np.arange(20), 0.1) is documented as 9.5; for 0.25 the middle ten have the same mean
    assert statistics.compute_aggregates([np.arange(20.0)])["IQM"].value == pytest.approx(9.5, abs=1e-12)
    # trim_mean cuts int(0.25 * 6) = 1 at each side
    assert statistics.compute_aggregates([np.array([0.0, 1, 2, 3, 4, 100])])["IQM"].value == pytest.approx(
        2.5, abs=1e-12
    )


def test_intervals_hold_what_can_be_drawn() -> None:
    estimates = statistics.compute_aggregates(SCORES)
    assert list(estimates) == ["median", "IQM", "mean", "optimality gap"]
    for name, estimate in estimates.items():
        assert estimate.low < estimate.value < estimate.high, name
    assert estimates == statistics.compute_aggregates(SCORES), "the same data gives the same interval"
    assert estimates["mean"].low >= 0.275 and estimates["mean"].high <= 0.625  # the lowest, highest seeds of all


def test_interval_of_the_mean_has_the_textbook_width() -> None:
    """For one game the bootstrap's interval of the mean is ± 1.96 standard errors, if there are many seeds."""
    scores = np.random.default_rng(5).normal(0.4, 0.1, 400)
    mean = statistics.compute_aggregates([scores], resamples=4000)["mean"]
    half = 1.96 * scores.std() / 20
    assert mean.low == pytest.approx(scores.mean() - half, abs=half / 10)
    assert mean.high == pytest.approx(scores.mean() + half, abs=half / 10)


def test_bootstrap_is_stratified() -> None:
    """Games differ, seeds do not: there is nothing to be drawn, so the interval is a point."""
    estimate = statistics.compute_aggregates([np.array([0.1, 0.1]), np.array([0.9, 0.9])])["mean"]
    assert (estimate.low, estimate.high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_games_may_have_different_numbers_of_seeds() -> None:
    estimate = statistics.compute_aggregates([np.array([0.2]), np.array([0.4, 0.8])])["mean"]
    assert estimate.value == pytest.approx(0.4)


def test_a_game_with_more_seeds_does_not_count_more() -> None:
    once = [np.array([0.1]), np.array([0.5]), np.array([0.6])]
    twice = [np.array([0.1, 0.1]), np.array([0.5]), np.array([0.6])]
    # A quarter of all is three quarters of a game: 0.25 * 0.1 + 0.5 + 0.25 * 0.6 of one and a half
    assert statistics.compute_aggregates(twice)["IQM"].value == pytest.approx((0.025 + 0.5 + 0.15) / 1.5)
    cut = statistics.choose_cut(once, twice)
    assert statistics.compute_aggregates(once, cut=cut)["IQM"].value == pytest.approx(
        statistics.compute_aggregates(twice, cut=cut)["IQM"].value
    )
    assert statistics.compute_aggregates(once, cut=cut)["IQM"].value == pytest.approx(
        statistics.compute_aggregates(twice)["IQM"].value
    )
    assert statistics.choose_cut(once) == 0 and cut == 0.25 and statistics.choose_cut(SCORES) == 2 / 8
    assert_allclose(statistics.compute_performance_profile(twice, [0.05, 0.1, 0.55]).share, [1, 2 / 3, 1 / 3])


def test_performance_profile() -> None:
    profile = statistics.compute_performance_profile(SCORES, [-1, 0, 0.1, 0.5, 1, 2])
    assert_allclose(profile.share, [1, 7 / 8, 5 / 8, 3 / 8, 1 / 8, 0])
    assert np.all(profile.low <= profile.share) and np.all(profile.share <= profile.high)
    assert profile.low[4] == 0 and profile.high[4] == 2 / 8  # the one game above 1, drawn never or twice


def test_probability_of_improvement_by_hand() -> None:
    x = [np.array([3.0, 1.0]), np.array([5.0])]
    y = [np.array([2.0, 1.0]), np.array([5.0])]
    # First game: 3>2, 3>1, 1<2, 1=1: 2.5 of 4; second: a tie
    assert statistics.estimate_improvement(x, y).value == pytest.approx((2.5 / 4 + 0.5) / 2)
    assert statistics.estimate_improvement(y, x).value == pytest.approx(1 - (2.5 / 4 + 0.5) / 2)


def test_probability_of_improvement_of_the_tortoises() -> None:
    order = "THHHHHTTTTTH"  # who comes in first, second, …: U = 11 for the hares, 25 for the tortoises
    place = {who: np.array([i for i, other in enumerate(order) if other == who], float) for who in "TH"}
    wins = statistics.estimate_improvement([-place["T"]], [-place["H"]])
    assert wins.value == pytest.approx(11 / 36)
    assert statistics.estimate_improvement([-place["H"]], [-place["T"]]).value == pytest.approx(25 / 36)
    assert wins.low < wins.value < wins.high


def made(seeds: int, games: int, shift: float) -> list[np.ndarray]:
    """Scores without any chance in them, so that other programs can be given the same."""
    i, j = np.arange(seeds)[:, None], np.arange(games)
    scores = np.round(np.minimum(j / games + shift + 0.15 * np.sin(7.0 * i + 3.0 * j), 1.0), 2)
    return list(scores.T)


def test_as_rliable_has_it() -> None:
    """What rliable 1.2.0 gives for the same scores, with 50,000, 20,000 and 5,000 resamples."""
    x, y = made(5, 12, 0.1), made(4, 12, 0.05)
    published = {
        "median": (0.572, 0.515, 0.611),
        "IQM": (0.55766667, 0.52666667, 0.58833333),
        "mean": (0.555, 0.5335, 0.57616667),
        "optimality gap": (0.445, 0.42383333, 0.4665),
    }
    for name, estimate in statistics.compute_aggregates(x, resamples=10_000).items():
        value, low, high = published[name]
        assert estimate.value == pytest.approx(value, abs=1e-8), name
        assert (estimate.low, estimate.high) == (pytest.approx(low, abs=0.003), pytest.approx(high, abs=0.003)), name
    better = statistics.estimate_improvement(x, y, resamples=10_000)
    assert better.value == pytest.approx(0.65208333, abs=1e-8)
    assert (better.low, better.high) == (pytest.approx(0.54166667, abs=0.01), pytest.approx(0.75625, abs=0.01))
    profile = statistics.compute_performance_profile(x, [0.1, 0.25, 0.5, 0.75, 0.9], resamples=5000)
    assert_allclose(profile.share, [0.93333333, 0.76666667, 0.56666667, 0.28333333, 0.16666667], atol=1e-8)
    assert_allclose(profile.low, [0.88333333, 0.71666667, 0.5, 0.23333333, 0.1], atol=1 / 60 + 1e-6)
    assert_allclose(profile.high, [0.98333333, 0.81666667, 0.61666667, 0.33333333, 0.23333333], atol=1 / 60 + 1e-6)


@pytest.mark.parametrize("stochastic", [False, True])
def test_our_averages_of_the_papers_figures_are_the_papers(stochastic: bool) -> None:
    """Tables 1 and 2 give scores and their normalised average: ours of the former must be the latter, to rounding."""
    table = read_paper().choose_table(stochastic)
    for agent, published in table.normalised.items():
        for of in ("avg", "max"):
            games = [
                statistics.normalise([getattr(table.rows[row].agents[agent], of)], table.rows[row].maximum)
                for row in table.main
            ]
            assert 100 * statistics.compute_aggregates(games)["mean"].value == pytest.approx(
                getattr(published, of), abs=0.15
            ), (
                agent,
                of,
            )
