"""The replay memory: its two parts, batches, rules of acceptance, saving and loading."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtx.memory import ROW, TEXT_COLUMNS, AboveRunningMean, BestScore, EpisodeRank, ReplayMemory, ReplayPart

TINY = np.dtype([("id", np.int32), ("reward", np.float32)])


def memory(capacity: int = 20, share: float = 0.5, batch: int = 4, **more: Any) -> ReplayMemory:
    return ReplayMemory(capacity, share, batch, games=2, seed=0, dtype=TINY, **more)


def ids(part: ReplayPart) -> list[int]:
    return part.copy_rows()["id"].tolist()


def play(target: ReplayMemory, numbers: range, outcome: float, game: int = 0) -> bool:
    for number in numbers:
        target.add(game, (number, 0.0))
    return target.end_episode(game, outcome)


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and bool(one == other)


def through_files(state: Any) -> Any:
    """The state as a checkpoint gives it back: arrays from bytes, everything else from JSON."""
    if isinstance(state, dict):
        assert all(isinstance(key, str) for key in state)
        return {key: through_files(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        assert state.dtype.names is None and state.flags.writeable
        return np.frombuffer(state.tobytes(), state.dtype).reshape(state.shape)
    return json.loads(json.dumps(state))


# --- parts ----------------------------------------------------------------------------------------------------------


def test_a_full_part_overwrites_the_oldest() -> None:
    part = ReplayPart(TINY, 3)
    for number in range(5):
        part.add((number, 0.0))
    assert ids(part) == [2, 3, 4]
    part.extend(np.array([(5, 0), (6, 0)], TINY))
    assert ids(part) == [4, 5, 6]
    part.extend(np.array([(number, 0) for number in range(10, 17)], TINY))
    assert ids(part) == [14, 15, 16]
    part.clear()
    assert len(part) == 0 and ids(part) == []
    part.add((7, 0.0))
    assert ids(part) == [7]


@given(st.integers(0, 6), st.integers(0, 15), st.integers(1, 9))
def test_amending_changes_the_row_that_was_stored_so_long_ago(capacity: int, stored: int, back: int) -> None:
    part, plain = ReplayPart(TINY, capacity), deque[int](maxlen=capacity)
    for number in range(stored):
        part.add((number, 0.0))
        plain.append(number)
    part.amend(back, "id", 99)
    if back <= len(plain):
        plain[-back] = 99
    assert ids(part) == list(plain)


def test_amending_a_transition_of_a_running_episode() -> None:
    target = memory()
    for number in range(4):
        target.add(number % 2, (number, 0.0))
    target.amend(2, 0, "id", 12)  # the last but one, which is game 0's last
    target.amend(1, 1, "id", 13)
    assert ids(target.ordinary) == [0, 1, 12, 13]
    target.end_episode(0, 1.0)
    assert ids(target.priority) == [0, 12]


@settings(deadline=None)
@given(st.integers(0, 150), st.lists(st.integers(0, 200) | st.none() | st.just(-1), max_size=12))
def test_a_part_is_a_bounded_queue(capacity: int, operations: list[int | None]) -> None:
    part, queue = ReplayPart(TINY, capacity), deque[int](maxlen=capacity)
    number = 0
    for operation in operations:
        if operation is None:
            part.clear()
            queue.clear()
        elif operation < 0:
            part.add((number, 0.0))
            queue.append(number)
            number += 1
        else:
            fresh = range(number, number + operation)
            part.extend(np.array([(each, 0.0) for each in fresh], TINY))
            queue.extend(fresh)
            number += operation
        assert ids(part) == list(queue) and len(part) == len(queue)
        assert sorted(part.view_column("id").tolist()) == sorted(queue)


def test_a_large_part_takes_memory_only_as_it_fills() -> None:
    part = ReplayPart(ROW, 10**12)  # would be 37 TB at once
    for number in range(100):
        part.add((number,) * 9 + (False,))
    assert len(part._rows) <= 256


def test_rows_are_drawn_without_replacement_and_all_alike() -> None:
    part, rng = ReplayPart(TINY, 50), np.random.default_rng(1)
    part.extend(np.array([(number, 0.0) for number in range(50)], TINY))
    times = np.zeros(50)
    draws = 4000
    for _ in range(draws):
        drawn = part.sample(10, rng)["id"]
        assert len(set(drawn.tolist())) == 10
        times[drawn] += 1
    # Each is drawn with probability 1/5: chi-square with 49 degrees of freedom, whose 99.9 % quantile is 85.4.
    assert (((times - draws / 5) ** 2) / (draws / 5 * 4 / 5)).sum() * 49 / 50 < 85.4
    assert sorted(part.sample(99, rng)["id"].tolist()) == list(range(50))


def test_drawing_does_not_look_at_everything() -> None:
    """NumPy's choice without `p` and with `replace=False` is what we rely on; here, that we call it that way."""
    calls = []

    class Generator:
        def choice(self, *args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return np.arange(args[1])

    part = ReplayPart(TINY, 10)
    part.extend(np.zeros(10, TINY))
    part.sample(3, Generator())  # type: ignore[arg-type]
    assert calls == [((10, 3), {"replace": False, "shuffle": False})]


# --- two parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "share", "parts", "batch"),
    [
        (10_000, 0.4, (4_000, 6_000), (25, 39)),
        (500_000, 0.5, (250_000, 250_000), (32, 32)),
        (100, 0.29, (29, 71), (18, 46)),
    ],
)
def test_shares(capacity: int, share: float, parts: tuple[int, int], batch: tuple[int, int]) -> None:
    target = ReplayMemory(capacity, share, 64, games=1, seed=0, dtype=TINY)
    assert (target.priority.capacity, target.ordinary.capacity) == parts
    play(target, range(100), 1)
    expected = (min(batch[0], parts[0]), batch[1])
    assert target.split_batch() == expected
    assert len(target.sample()) == sum(expected)


def test_priority_by_hand() -> None:
    target = memory()
    assert play(target, range(0, 2), -1) is False  # below the first best, 0
    assert ids(target.priority) == []
    assert play(target, range(2, 4), 0) is True  # 0 is as good as the first best
    assert ids(target.priority) == [2, 3]
    assert play(target, range(4, 6), 5) is True  # strictly greater: emptied first
    assert ids(target.priority) == [4, 5]
    assert play(target, range(6, 8), 4) is False
    assert play(target, range(8, 10), 5, game=1) is True  # equal: appended
    assert ids(target.priority) == [4, 5, 8, 9]
    assert play(target, range(10, 18), 5) is True  # 12 rows for 10 places: the oldest go
    assert ids(target.priority) == [8, 9, *range(10, 18)]
    assert ids(target.ordinary) == list(range(8, 18))  # everything went in, accepted or not


def test_an_episode_enters_the_priority_part_only_when_it_ends_and_games_do_not_mix() -> None:
    target = memory()
    for number in range(6):
        target.add(number % 2, (number, 0.0))
    assert len(target.ordinary) == 6 and len(target.priority) == 0
    target.end_episode(1, 3)
    assert ids(target.priority) == [1, 3, 5]
    target.add(1, (6, 0.0))
    target.end_episode(1, 3)
    target.end_episode(0, 3)
    assert ids(target.priority) == [1, 3, 5, 6, 0, 2, 4]


def test_while_the_priority_part_is_short_the_batch_is_smaller() -> None:
    target = memory(batch=8)
    for number in range(7):
        target.add(0, (number, 0.0))
    assert not target.is_ready
    target.add(0, (7, 0.0))
    assert target.is_ready
    assert target.split_batch() == (0, 4) and len(target.sample()) == 4
    play(target, range(8, 9), 1, game=1)
    assert target.split_batch() == (1, 4)
    batch = target.sample()["id"].tolist()
    assert batch[0] == 8 and len(batch) == 5
    play(target, range(20, 30), 1)  # with the eight rows under way: more than enough
    assert target.split_batch() == (4, 4)


def test_rc_dqn_draws_one_by_one_with_replacement() -> None:
    target = memory(capacity=40, batch=8, one_by_one=True)
    play(target, range(9), -1)
    assert target.split_batch() == (0, 8)
    assert max(target.sample()["id"]) < 9
    play(target, [100], 0)  # half of eight and one more, as soon as there is any
    assert target.split_batch() == (5, 3)
    batches = [target.sample()["id"].tolist() for _ in range(200)]
    assert all(len(batch) == 8 and batch[:5] == [100] * 5 for batch in batches)
    assert any(len({*batch[5:]}) < 3 for batch in batches)  # the ordinary ones too: 10 rows, three draws
    assert {number for batch in batches for number in batch[5:]} == {*range(9), 100}


def test_a_batch_has_different_rows_within_a_part_and_priority_first() -> None:
    target = memory(capacity=40, batch=16)
    play(target, range(20), 1)
    play(target, range(100, 120), 0)
    for _ in range(50):
        batch = target.sample()["id"].tolist()
        assert len(set(batch[:8])) == 8 and set(batch[:8]) <= set(range(20))
        assert len(set(batch[8:])) == 8 and set(batch[8:]) <= set(range(100, 120))


def test_all_of_one_part() -> None:
    for share in (0.0, 1.0):
        target = memory(share=share)
        play(target, range(5), 1)
        assert len(target.sample()) == 4


def test_rows_keep_their_values() -> None:
    target = ReplayMemory(10, 0.5, 1, games=1, seed=0)
    target.add(0, (1, 2, 3, 4, 5, 6, 7, 8, 0.25, True))
    assert target.sample().tolist() == [(1, 2, 3, 4, 5, 6, 7, 8, 0.25, True)]


def test_unfit_arguments() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        memory(share=1.5)
    with pytest.raises(ValueError, match="negative"):
        ReplayPart(TINY, -1)


# --- rules ----------------------------------------------------------------------------------------------------------


def test_best_score() -> None:
    rule = BestScore()
    verdicts = [rule.judge(score) for score in (-5, 0, 0, 3, 2, 3, 4)]
    reject, append, replace = EpisodeRank.REJECT, EpisodeRank.APPEND, EpisodeRank.REPLACE
    assert verdicts == [reject, append, append, replace, reject, append, replace]


def test_above_running_mean_by_hand() -> None:
    rule = AboveRunningMean()
    # Mean after each: 2; (2 * 0.95 + 4) / 1.95 = 3.0256; (5.9 * 0.95 + 3) / 2.8525 = 3.0167; with 3.1 then 3.0392.
    verdicts = []
    means = []
    for outcome in (2, 4, 3, 3.1):
        verdicts.append(rule.judge(outcome) is EpisodeRank.APPEND)
        means.append(rule.mean)
    assert means == pytest.approx([2, 5.9 / 1.95, 8.605 / 2.8525, 11.27475 / 3.709875])
    assert verdicts == [False, True, False, True]


@settings(deadline=None)
@given(st.integers(-30, 30), st.integers(1, 300))
def test_an_outcome_that_never_changes_does_not_exceed_its_mean(outcome: int, times: int) -> None:
    rule = AboveRunningMean()
    assert all(rule.judge(outcome) is EpisodeRank.REJECT for _ in range(times))


@settings(deadline=None)
@given(st.lists(st.integers(-20, 20), max_size=60))
def test_running_mean_is_the_weighted_mean(outcomes: list[int]) -> None:
    rule = AboveRunningMean(0.9)
    for outcome in outcomes:
        rule.judge(outcome)
    weights = [0.9**age for age in range(len(outcomes))][::-1]
    if outcomes:
        assert rule.mean == pytest.approx(np.average(outcomes, weights=weights), abs=1e-9)


def test_episodes_above_the_mean_enter_the_priority_part() -> None:
    target = memory(accept=AboveRunningMean())
    assert play(target, range(2), 1) is False
    assert play(target, range(2, 4), 3) is True
    assert play(target, range(4, 6), 2.5) is True  # never emptied
    assert ids(target.priority) == [2, 3, 4, 5]


# --- texts in use ---------------------------------------------------------------------------------------------------


def test_live_texts() -> None:
    target = ReplayMemory(4, 0.5, 2, games=2, seed=0)  # 2 and 2
    for game, first in ((0, 10), (0, 20), (1, 30), (1, 40), (1, 40)):
        target.add(game, (*range(first, first + 7), first + 9, 0.0, False))
    # The ordinary part has the last two only; the first two belong to the episode that game 0 is playing.
    in_use = {number for first in (10, 20, 40) for number in range(first, first + 7)}
    assert set(target.list_live_texts().tolist()) == in_use
    assert target.list_live_texts(["next_actions"]).tolist() == [19, 29, 49]
    target.end_episode(0, -1)
    assert target.list_live_texts(["narration"]).tolist() == [40]
    assert set(TEXT_COLUMNS) == set(ROW.names or ()) - {"next_actions", "reward", "terminal"}


def test_no_text_is_in_use_at_first_and_negative_numbers_are_none() -> None:
    target = memory()
    assert target.list_live_texts(["id"]).tolist() == []
    target.add(0, (-1, 0.0))
    assert target.list_live_texts(["id"]).tolist() == []


# --- going on -------------------------------------------------------------------------------------------------------

OPERATIONS = st.lists(
    st.tuples(st.just("add"), st.integers(0, 1), st.integers(1, 9))
    | st.tuples(st.just("end"), st.integers(0, 1), st.integers(-2, 4))
    | st.tuples(st.just("sample"), st.just(0), st.just(0)),
    max_size=40,
)


def apply(target: ReplayMemory, operations: list[tuple[str, int, int]], number: int) -> list[Any]:
    seen: list[Any] = []
    for name, game, value in operations:
        if name == "add":
            for _ in range(value):
                target.add(game, (number, value))
                number += 1
        elif name == "end":
            seen.append(target.end_episode(game, value))
        else:
            seen.append(target.sample().tolist())
    return seen


@settings(deadline=None)
@given(OPERATIONS, OPERATIONS, st.booleans())
def test_a_loaded_memory_goes_on_exactly(before: Any, after: Any, rc_dqn: bool) -> None:
    def fresh() -> ReplayMemory:
        return memory(capacity=30, accept=AboveRunningMean() if rc_dqn else BestScore(), one_by_one=rc_dqn)

    straight = fresh()
    apply(straight, before, 0)
    state = straight.state()
    copy = through_files(state)
    expected = apply(straight, after, 1000)
    assert same(state, copy), "what was given out must not change when the memory goes on"
    resumed = fresh()
    apply(resumed, [("add", 0, 5), ("end", 0, 9), ("add", 1, 3), ("sample", 0, 0)], 500)  # all of it to be forgotten
    resumed.load(copy)
    assert same(resumed.state(), state)
    assert apply(resumed, after, 1000) == expected
    assert same(resumed.state(), straight.state())


def test_a_state_that_does_not_fit_is_refused() -> None:
    target = memory()
    play(target, range(8), 1)
    state = target.state()
    with pytest.raises(ValueError, match="saved columns"):
        ReplayMemory(20, 0.5, 4, games=2, seed=0).load(state)
    with pytest.raises(ValueError, match="only 5 can be kept"):
        memory(capacity=10).load(state)
    with pytest.raises(ValueError):
        ReplayMemory(20, 0.5, 4, games=3, seed=0, dtype=TINY).load(state)


def test_the_seed_decides() -> None:
    batches = []
    for seed in (1, 1, 2):
        target = ReplayMemory(200, 0.5, 16, games=1, seed=seed, dtype=TINY)
        play(target, range(100), 1)
        batches.append(target.sample().tolist())
    assert batches[0] == batches[1] != batches[2]
