from __future__ import annotations

import pytest

from xtx.core import UserError
from xtx.games.emulator.emulator_seeds import MAX_SEED, Seeds


def test_deterministic_play_repeats_the_walkthroughs_seed_or_the_runs() -> None:
    assert [Seeds(0, 12).take_next() for _ in range(3)] == [12, 12, 12]
    seeds = Seeds(7, 12)
    assert [seeds.take_next() for _ in range(3)] == [7, 7, 7]


def test_stochastic_play_draws_seeds_that_a_second_run_draws_too() -> None:
    one, two, other = (Seeds(run, 12, stochastic=True) for run in (3, 3, 4))
    drawn = [one.take_next() for _ in range(1000)]
    assert drawn == [two.take_next() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert not set(drawn) & {other.take_next() for _ in range(1000)}
    assert all(1000 <= seed <= MAX_SEED for seed in drawn)
    assert max(drawn) > MAX_SEED * 0.99 and min(drawn) < MAX_SEED * 0.01  # over the whole range


def test_run_seed_0_draws_like_any_other() -> None:
    seeds = Seeds(0, 12, stochastic=True)
    assert len({seeds.take_next() for _ in range(100)}) == 100


def test_draws_go_on_where_a_run_stopped() -> None:
    whole = Seeds(5, 12, stochastic=True)
    drawn = [whole.take_next() for _ in range(20)]
    half = Seeds(5, 12, stochastic=True)
    for _ in range(10):
        half.take_next()
    resumed = Seeds(5, 12, stochastic=True, drawn=half.drawn)
    assert [resumed.take_next() for _ in range(10)] == drawn[10:]


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1])
def test_a_seed_that_jericho_would_take_for_another_is_refused(seed: int) -> None:
    with pytest.raises(UserError, match="seed"):
        Seeds(seed, 12)
