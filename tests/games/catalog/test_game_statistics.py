from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from xtx.games.catalog.game_statistics import RewardSteps, collect_vocabulary, count_steps_between_rewards

# Mean and largest, as the paper prints them. Pentari's mean does not come out (docs/fidelity.md).
PAPER = {
    "zork1": (9, 51),
    "inhumane": (14, 28),
    "ludicorp": (4, 45),
    "library": (5, 6),
    "zork3": (39, 41),
    "pentari": (6, 16),
    "detective": (2, 5),
    "balances": (12, 54),
    "deephome": (6, 53),
    "enchanter": (15, 40),
    "dragon": (9, 24),
    "omniquest": (13, 26),
}


def test_largest_leaves_out_both_ends_and_mean_counts_them() -> None:
    rewards = [0, 0, 0, 5, 0, 5, 0, 0, 0, 0]
    assert count_steps_between_rewards(rewards) == RewardSteps(mean=5.0, largest=2, rewards=2)


def test_points_lost_are_rewards_too() -> None:
    assert count_steps_between_rewards([1, 0, -1, 0, 0, 1]) == RewardSteps(mean=2.0, largest=3, rewards=3)


def test_one_reward_or_none() -> None:
    assert count_steps_between_rewards([0, 3, 0]) == RewardSteps(mean=3.0, largest=0, rewards=1)
    assert count_steps_between_rewards([0, 0]) is None
    assert count_steps_between_rewards([]) is None


def test_vocabulary() -> None:
    assert collect_vocabulary(["The lamp isn't on.", "the LAMP, 2 lamps_"]) == {
        "the",
        "lamp",
        "isn't",
        "on",
        "2",
        "lamps",
    }


@pytest.mark.roms
@pytest.mark.parametrize("name", PAPER)
def test_the_papers_figures_come_out(name: str, real_story: Callable[[str], Path]) -> None:
    from xtx.games.catalog.story_file import read_story
    from xtx.games.emulator.frotz import Emulator

    emulator = Emulator(read_story(real_story(name)))
    emulator.reset(emulator.bindings.walkthrough_seed)
    scores = [emulator.score]
    for command in emulator.bindings.walkthrough:
        emulator.step(command)
        scores.append(emulator.score)
    steps = count_steps_between_rewards([after - before for before, after in pairwise(scores)])
    emulator.close()
    assert steps is not None
    assert (round(steps.mean), steps.largest) == PAPER[name]
