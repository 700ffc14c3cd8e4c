"""The trajectory store: prefixes, the paper's two draws, bounded memory, saving and loading."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtx.memory import StoredEpisode, TrajectoryStore
from xtx.memory.trajectories import length_log_probabilities, list_prefix_lengths, score_probabilities


def episode(scores: list[int], mark: int = 0, terminated: bool = False) -> StoredEpisode:
    """An episode whose steps can be told from those of other marks."""
    steps = np.array([(mark, t, t + 1, mark + t) for t in range(len(scores))], np.int32).reshape(-1, 4)
    return StoredEpisode(steps, scores, terminated)


def store(*episodes: StoredEpisode, **settings: Any) -> TrajectoryStore:
    filled = TrajectoryStore(**settings)
    for each in episodes:
        filled.add(each)
    return filled


def reach(score: int, length: int, mark: int = 0) -> StoredEpisode:
    """An episode that reaches a score after so many steps, and is at 0 until then."""
    return episode([0] * (length - 1) + [score], mark)


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


class Everything:
    """The slow way: keeps all episodes and reads them all again for every question, as the authors' program does."""

    def __init__(self, beta1: float, beta2: float) -> None:
        self.beta1, self.beta2 = beta1, beta2
        self.episodes: list[StoredEpisode] = []

    def prefixes(self) -> dict[int, list[list[list[int]]]]:
        bins: dict[int, list[list[list[int]]]] = {}
        for each in self.episodes:
            visited = set()
            for t, score in enumerate(each.scores):
                game_over = each.terminated and t == len(each.scores) - 1
                if score not in visited and not game_over:
                    visited.add(score)
                    bins.setdefault(score, []).append(each.steps[: t + 1].tolist())
        return bins

    def compute_probabilities(self) -> dict[tuple[int, int], float]:
        bins = self.prefixes()
        scores = list(bins)
        found: Counter[tuple[int, int]] = Counter()
        for score, chance in zip(scores, self._draw(scores, self.beta1), strict=True):
            lengths = [len(prefix) for prefix in bins[score]]
            for length, conditional in zip(lengths, self._draw(lengths, -self.beta2), strict=True):
                found[score, length] += chance * conditional
        return dict(found)

    @staticmethod
    def _draw(values: list[int], beta: float) -> list[float]:
        if not values:
            return []
        mean = statistics.fmean(values)
        std = statistics.stdev(values) if len(set(values)) > 1 else 1.0
        return softmax([beta * (value - mean) / std for value in values])


EPISODES = st.lists(
    st.builds(
        episode,
        st.lists(st.sampled_from([-10, 0, 1, 5, 7, 10]), max_size=12),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=25,
)


# --- prefixes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "terminated", "expected"),
    [
        ([], False, {}),
        ([0], False, {0: 1}),
        ([0], True, {}),  # the only state was game over
        ([0, 0, 5, 5, 0], False, {0: 1, 5: 3}),
        ([5, 0, 5], False, {5: 1, 0: 2}),
        ([0, 5, 10], False, {0: 1, 5: 2, 10: 3}),  # the step limit's last state counts
        ([0, 5, 10], True, {0: 1, 5: 2}),  # game over does not
        ([0, 5, 5], True, {0: 1, 5: 2}),
        ([0, -10], False, {0: 1, -10: 2}),
    ],
)
def test_prefix_lengths(scores: list[int], terminated: bool, expected: dict[int, int]) -> None:
    assert list_prefix_lengths(scores, terminated) == expected
    assert list_prefix_lengths(np.array(scores, np.int32), terminated) == expected


def test_prefixes_are_the_steps_up_to_the_score() -> None:
    filled = store(episode([0, 0, 7, 7, 3], mark=40), k=200)
    buffer = filled.sample()
    assert buffer is not None
    assert Counter(buffer.scores).keys() == {0, 7, 3}
    whole = episode([0, 0, 7, 7, 3], mark=40).steps.tolist()
    for prefix, score in zip(buffer.prefixes, buffer.scores, strict=True):
        assert prefix.dtype == np.int32 and prefix.flags.writeable
        assert prefix.tolist() == whole[: {0: 1, 7: 3, 3: 5}[score]]


def test_the_plan_comes_from_what_was_drawn() -> None:
    filled = store(reach(9, 4), reach(2, 8), k=3, beta1=0.2)
    plans = set()
    for _ in range(200):
        buffer = filled.sample()
        assert buffer is not None and len(buffer.prefixes) == len(buffer.scores) == 3
        assert buffer.target_score == max(buffer.scores)
        assert buffer.l_max == max(len(prefix) for prefix in buffer.prefixes)
        plans.add((buffer.target_score, buffer.l_max))
    assert plans == {(0, 1), (2, 8), (9, 4), (9, 8)}


def test_without_prefixes_there_is_nothing_to_draw() -> None:
    filled = store()
    assert filled.sample() is None and filled.compute_probabilities() == {}
    filled.add(episode([3], terminated=True))
    filled.add(episode([]))
    assert filled.sample() is None and filled.episodes == 2
    assert filled.list_live_texts().tolist() == []


def test_unfit_arguments() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        store(StoredEpisode(np.zeros((2, 4), np.int32), [1, 2, 3], False))
    with pytest.raises(ValueError, match="at least 1"):
        TrajectoryStore(reservoir=0)


# --- the two draws --------------------------------------------------------------------------------------------------


def test_score_probabilities_by_hand() -> None:
    # {0, 5, 10}: mean 5, std 5 with n - 1.
    e = math.e
    assert score_probabilities(np.array([0, 5, 10]), 1.0) == pytest.approx(
        [1 / (1 + e + e * e), e / (1 + e + e * e), e * e / (1 + e + e * e)]
    )
    # {0, 10}: std sqrt(50), so they are sqrt(2) apart.
    assert score_probabilities(np.array([0, 10]), 2.0)[1] == pytest.approx(1 / (1 + math.exp(-2 * math.sqrt(2))))
    assert score_probabilities(np.array([7]), 1.0).tolist() == [1.0]
    assert score_probabilities(np.array([-3, 0, 1000]), 0.0) == pytest.approx([1 / 3] * 3)


def test_length_probabilities_by_hand() -> None:
    # {2, 2, 5}: mean 3, std sqrt((1 + 1 + 4) / 2) = sqrt(3); 2 lies sqrt(3) below 5.
    chances = np.exp(length_log_probabilities(np.array([2, 5]), np.array([2, 1]), 1.0))
    weight = math.exp(-math.sqrt(3))
    assert chances == pytest.approx([2 / (2 + weight), weight / (2 + weight)])
    assert np.exp(length_log_probabilities(np.array([4]), np.array([1]), 1e4)).tolist() == [1.0]
    assert np.exp(length_log_probabilities(np.array([4]), np.array([9]), 1e4)).tolist() == [1.0]
    assert np.exp(length_log_probabilities(np.array([4, 5, 300]), np.array([1, 10**6, 3]), 1e4)).tolist() == [1, 0, 0]


def test_extreme_numbers_are_no_trouble() -> None:
    """Warnings are errors here, so an overflow would show."""
    assert score_probabilities(np.array([-(10**9), 0, 10**9]), 1e9).tolist() == [0, 0, 1]
    logs = length_log_probabilities(np.array([1, 10**6]), np.array([10**9, 1]), 1e9)
    assert logs[0] == 0.0 and np.isfinite(logs[1])


def test_scores_are_a_set_and_lengths_a_multiset() -> None:
    many, once = [reach(5, 2)] * 50, [reach(5, 2)]
    chances = {}
    for name, episodes in (("many", many), ("once", once)):
        filled = store(*episodes, reach(10, 5), beta2=1.0)
        found = filled.compute_probabilities()
        chances[name] = {score: found[score, length] for score, length in ((0, 1), (5, 2), (10, 5))}
    assert chances["many"] == pytest.approx(chances["once"])  # how often a score was reached does not matter
    lengths = store(*[reach(5, 2)] * 3, reach(5, 6), beta2=0.0).compute_probabilities()
    assert lengths[5, 2] == pytest.approx(3 * lengths[5, 6])  # how often a length occurred does


def test_scores_below_the_floor_are_not_drawn() -> None:
    """Unless there is nothing else; and the others are drawn as if there were no such scores."""
    free, floored = TrajectoryStore(), TrajectoryStore(floor=0)
    low = StoredEpisode(np.zeros((3, 4), np.int32), [-2, -4, -6], False)
    high = StoredEpisode(np.ones((3, 4), np.int32), [0, 5, 9], False)
    floored.add(low)
    assert {score for score, _ in floored.compute_probabilities()} == {-2, -4, -6}
    floored.add(high)
    free.add(high)
    assert floored.compute_probabilities() == free.compute_probabilities()
    buffer = floored.sample()
    assert buffer is not None and min(buffer.scores) >= 0


def test_the_shortest_is_drawn_and_ties_by_occurrence() -> None:
    filled = store(*[reach(5, 3, mark=1)] * 3, reach(5, 3, mark=2), reach(5, 4, mark=3), beta1=1000.0, k=4000)
    buffer = filled.sample()
    assert buffer is not None
    assert set(buffer.scores) == {5} and (buffer.target_score, buffer.l_max) == (5, 3)
    marks = Counter(int(prefix[0, 0]) for prefix in buffer.prefixes)
    assert marks.keys() == {1, 2}
    assert abs(marks[1] - 3000) < 4 * math.sqrt(4000 * 3 / 16)


@settings(deadline=None)
@given(EPISODES, st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.3, 1.0, 4.0, 10_000.0]))
def test_probabilities_are_those_of_the_slow_way(episodes: list[StoredEpisode], beta1: float, beta2: float) -> None:
    slow = Everything(beta1, beta2)
    fast = TrajectoryStore(beta1=beta1, beta2=beta2, reservoir=2, budget=20)
    for each in episodes:
        slow.episodes.append(each)
        fast.add(each)
        assert fast.compute_probabilities() == pytest.approx(slow.compute_probabilities(), abs=1e-12)


@settings(deadline=None)
@given(EPISODES, st.integers(0, 100))
def test_what_is_drawn_was_played(episodes: list[StoredEpisode], seed: int) -> None:
    slow = Everything(1.0, 1.0)
    slow.episodes = episodes
    bins = slow.prefixes()
    buffer = store(*episodes, beta2=1.0, reservoir=3, seed=seed).sample()
    assert (buffer is None) == (not bins)
    if buffer is not None:
        for prefix, score in zip(buffer.prefixes, buffer.scores, strict=True):
            assert prefix.tolist() in bins[score]


def test_frequencies_are_the_probabilities() -> None:
    episodes = [reach(5, length, mark) for mark, length in enumerate((2, 2, 3, 5, 5, 5, 9))]
    episodes += [reach(8, 4), reach(8, 6), reach(-2, 3)]
    draws = 20_000
    filled = store(*episodes, beta2=0.7, k=draws, seed=3)
    buffer = filled.sample()
    assert buffer is not None
    seen = Counter(zip(buffer.scores, map(len, buffer.prefixes), strict=True))
    expected = filled.compute_probabilities()
    assert len(expected) == 8
    # Chi-square with 7 degrees of freedom: its 99.9 % quantile is 24.3.
    assert sum((seen[key] - draws * p) ** 2 / (draws * p) for key, p in expected.items()) < 24.3


def test_a_reservoir_keeps_each_prefix_with_the_same_probability() -> None:
    times, stores, prefixes, size = np.zeros(40), 1500, 40, 8
    for seed in range(stores):
        filled = store(*[episode([0], mark) for mark in range(prefixes)], reservoir=size, seed=seed)
        kept = filled.state()["steps"][:, 0]
        assert len(set(kept.tolist())) == size
        times[kept] += 1
    p = size / prefixes
    # Chi-square with 39 degrees of freedom: its 99.9 % quantile is 72.1.
    assert (((times - stores * p) ** 2) / (stores * p * (1 - p))).sum() * (prefixes - 1) / prefixes < 72.1


# --- memory ---------------------------------------------------------------------------------------------------------


def test_identical_prefixes_are_stored_once() -> None:
    filled = store(*[episode([0, 0, 5, 5])] * 100)
    assert filled.stored_steps == 1 + 3
    assert len(filled.state()["kept"]) == 2 * 64  # but they count as often as they occurred


def test_live_texts() -> None:
    filled = store(
        StoredEpisode(np.array([[3, 9, 4, 100], [7, 9, 4, 101], [50, 51, 52, 53]], np.int32), [0, 5, 5], False)
    )
    assert filled.list_live_texts().tolist() == [3, 4, 7, 9, 100, 101]  # the last step belongs to no prefix


def test_what_is_never_drawn_is_dropped_beyond_the_budget() -> None:
    filled = store(*[reach(5, length, length) for length in range(2, 12)], budget=40)
    # Once 2 + 3 + ... steps, and one for each way to the score 0, are more than 40, the longest go first, down to 30.
    assert filled.drops > 0 and filled.stored_steps <= 40
    assert sum(filled._groups[5][length].count for length in range(2, 12)) == 10  # counts stay
    assert filled._groups[5][2].kept and not filled._groups[5][8].kept
    assert all(shelf.seen == 0 for shelf in filled._groups[5].values() if not shelf.kept)
    before = filled.compute_probabilities()
    filled.add(reach(5, 8, mark=99))  # met again: kept again
    assert filled._groups[5][8].count == 2 and filled._groups[5][8].seen == 1
    assert filled._groups[5][8].kept[0].copy_steps()[0, 0] == 99
    assert filled.compute_probabilities().keys() == before.keys()


def test_the_longest_are_dropped_first() -> None:
    filled = store(*[reach(5, length, length) for length in (2, 4, 6, 8, 10)], budget=35)
    assert filled.drops == 0 and filled.stored_steps == 30 + 5
    filled.add(reach(5, 3, 3))
    assert filled.drops == 1 and filled.stored_steps == 2 + 3 + 4 + 6 + 6  # 10 and 8 are gone, down to 3/4 of 35
    assert sorted(length for length, shelf in filled._groups[5].items() if shelf.kept) == [2, 3, 4, 6]


def test_nothing_is_dropped_that_can_be_drawn() -> None:
    filled = store(*[reach(5, length, length) for length in range(2, 30)], budget=40, beta2=1.0)
    assert all(shelf.kept for shelf in filled._groups[5].values())
    assert 0 < filled.drops < 12  # looked for ever more rarely: the limit grows with what must be kept


def test_a_dropped_length_that_is_drawn_is_replaced_by_the_nearest() -> None:
    filled = store(*[reach(5, length, length) for length in (2, 4, 7, 9)], budget=0, beta1=1000.0, k=1)
    assert [length for length, shelf in filled._groups[5].items() if shelf.kept] == [2]
    filled._drop_above = 10**9
    filled.add(reach(5, 7, 70))
    filled.add(reach(5, 7, 71))
    filled.beta2 = 0.0  # now every length can be drawn
    found: Counter[int] = Counter()
    for _ in range(300):
        buffer = filled.sample()
        assert buffer is not None
        found[buffer.l_max] += 1
    assert found.keys() == {2, 7}
    # Of six prefixes one is 2, one 4 (nearer to 2) and three are 7; one is 9 (nearest to 7).
    assert abs(found[2] - 100) < 4 * math.sqrt(300 * 2 / 9)
    assert abs(filled.replaced_draws - 100) < 4 * math.sqrt(300 * 2 / 9)


def played(number: int, rng: np.random.Generator) -> StoredEpisode:
    """Make an episode of realistic length with a mostly rising score and steps that no other episode has."""
    length = int(rng.integers(20, 120))
    scores = np.cumsum(rng.random(length) < 0.08) * 5
    steps = rng.integers(0, 50_000, (length, 4)).astype(np.int32)
    return StoredEpisode(steps, scores, bool(number % 3 == 0))


def test_memory_stays_bounded_over_many_episodes() -> None:
    budget = 100_000
    filled, rng = TrajectoryStore(budget=budget, seed=1), np.random.default_rng(5)
    most = 0
    for number in range(20_000):
        filled.add(played(number, rng))
        most = max(most, filled.stored_steps)
    assert most <= budget + 64 * 120
    assert filled.stored_steps == len(filled.state()["steps"]) == sum(map(len, filled._prefixes._by_content.values()))
    assert all(next(iter(sorted(shelves.items())))[1].kept for shelves in filled._groups.values())
    for _ in range(100):
        filled.sample()
    assert filled.replaced_draws == 0


def operations(action: Callable[[], object]) -> int:
    """How many calls, into Python and into C, an action makes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def test_the_cost_of_adding_does_not_grow_with_what_is_stored() -> None:
    filled, rng = TrajectoryStore(budget=20_000, seed=1), np.random.default_rng(5)
    costs = []
    for number in range(3000):
        one = played(number, rng)
        costs.append(operations(lambda one=one: filled.add(one)))  # type: ignore[misc]
    # By thousands; those in which something was dropped are in it. The first have the work of filling reservoirs.
    first, second, third = (sum(costs[start : start + 1000]) for start in (0, 1000, 2000))
    assert filled.drops > 0
    assert third < 1.2 * second < 1.5 * first


def test_the_cost_of_a_draw_depends_on_scores_and_lengths_only() -> None:
    rng = np.random.default_rng(5)
    few, many = (
        store(*[episode([0] * (3 + n % 5) + [5], int(rng.integers(10**6))) for n in range(total)], beta1=1000.0)
        for total in (400, 4000)
    )
    assert operations(few.sample) == operations(many.sample)


# --- going on -------------------------------------------------------------------------------------------------------


def through_files(state: Any) -> Any:
    """The state as a checkpoint gives it back: arrays from bytes, everything else from JSON."""
    if isinstance(state, dict):
        assert all(isinstance(key, str) for key in state)
        return {key: through_files(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        assert state.flags.writeable
        return np.frombuffer(state.tobytes(), state.dtype).reshape(state.shape)
    return json.loads(json.dumps(state))


def plain(state: Any) -> Any:
    """The state with bytes in place of arrays, so that == compares."""
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    return (state.dtype, state.shape, state.tobytes()) if isinstance(state, np.ndarray) else state


OPERATIONS = st.lists(st.one_of(st.none(), EPISODES.filter(bool).map(lambda episodes: episodes[0])), max_size=40)


def apply(target: TrajectoryStore, todo: list[StoredEpisode | None]) -> list[Any]:
    seen = []
    for each in todo:
        if each is not None:
            target.add(each)
            continue
        buffer = target.sample()
        if buffer is not None:
            seen.append((buffer.scores, [prefix.tolist() for prefix in buffer.prefixes]))
    return seen


@settings(deadline=None)
@given(OPERATIONS, OPERATIONS, st.sampled_from([0, 15, 1000]), st.sampled_from([1.0, 10_000.0]))
def test_a_loaded_store_goes_on_exactly(
    before: list[StoredEpisode | None], after: list[StoredEpisode | None], budget: int, beta2: float
) -> None:
    def fresh() -> TrajectoryStore:
        return TrajectoryStore(reservoir=2, k=4, seed=7, budget=budget, beta2=beta2)

    straight = fresh()
    apply(straight, before)
    state = straight.state()
    copy = through_files(state)
    expected = apply(straight, after)
    assert plain(state) == plain(copy), "what was given out must not change when the store goes on"
    resumed = fresh()
    apply(resumed, [reach(123, 3, 9), None, reach(0, 3, 8)])  # all of it to be forgotten
    resumed.load(copy)
    assert plain(resumed.state()) == plain(state)
    assert apply(resumed, after) == expected
    assert plain(resumed.state()) == plain(straight.state())


def test_a_state_is_a_handful_of_arrays() -> None:
    rng = np.random.default_rng(0)
    state = store(*[played(number, rng) for number in range(200)]).state()
    arrays = [value for value in state.values() if isinstance(value, np.ndarray)]
    assert len(arrays) == 4 and len(state["steps"]) > 10_000


def test_the_seed_decides() -> None:
    drawn = []
    for seed in (1, 1, 2):
        buffer = store(*[reach(score, 3) for score in range(9)], seed=seed, k=20).sample()
        assert buffer is not None
        drawn.append(buffer.scores)
    assert drawn[0] == drawn[1] != drawn[2]
