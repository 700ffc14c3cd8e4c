from __future__ import annotations

import random

from xtx.agents.random import RandomAgent
from xtx.agents.walkthrough import WalkthroughAgent
from xtx.core import Agent, Observation


def seen(step: int = 0, actions: tuple[str, ...] = ("north", "south", "take lamp")) -> Observation:
    return Observation("You are here.", "", "", actions, 0, step)


def play(agent: Agent, steps: int) -> list[str]:
    return [agent.act(seen(step)).action for step in range(steps)]


def test_the_same_seed_makes_the_same_choices() -> None:
    assert play(RandomAgent(7), 50) == play(RandomAgent(7), 50)
    assert play(RandomAgent(7), 50) != play(RandomAgent(8), 50)


def test_random_takes_every_action_and_no_other() -> None:
    assert set(play(RandomAgent(), 100)) == {"north", "south", "take lamp"}


def test_random_keeps_to_its_own_numbers() -> None:
    random.seed(1)
    before = random.getstate()
    first = play(RandomAgent(3), 20)
    assert random.getstate() == before
    random.seed(2)
    assert play(RandomAgent(3), 20) == first


def test_the_walkthrough_is_played_in_order_whatever_is_seen() -> None:
    agent = WalkthroughAgent(["open door", "north"])
    assert [agent.act(seen(step, ())).action for step in range(4)] == ["open door", "north", "wait", "wait"]


def test_a_new_episode_begins_the_walkthrough_again() -> None:
    agent = WalkthroughAgent(["open door", "north"])
    assert play(agent, 2) == play(agent, 2)
