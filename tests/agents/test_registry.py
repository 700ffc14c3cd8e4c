"""The agents that do not learn: random and walkthrough."""

from __future__ import annotations

import random

from xtx.agents.random import RandomAgent
from xtx.agents.walkthrough import WalkthroughAgent
from xtx.core import Agent, Brief, NoSettings, Observation


def random_agent(seed: int = 0) -> Agent:
    return RandomAgent(NoSettings(), Brief(num_envs=1, seed=seed))


def walkthrough_agent(way: list[str]) -> Agent:
    return WalkthroughAgent(NoSettings(), Brief(num_envs=1, seed=0, walkthrough=tuple(way)))


def seen(step: int = 0, actions: tuple[str, ...] = ("north", "south", "take lamp")) -> Observation:
    return Observation("You are here.", "", "", actions, 0, step)


def play(agent: Agent, steps: int) -> list[str]:
    return [agent.act([seen(step)])[0].action for step in range(steps)]


def test_the_same_seed_makes_the_same_choices() -> None:
    assert play(random_agent(7), 50) == play(random_agent(7), 50)
    assert play(random_agent(7), 50) != play(random_agent(8), 50)


def test_random_takes_every_action_and_no_other() -> None:
    assert set(play(random_agent(), 100)) == {"north", "south", "take lamp"}


def test_random_goes_on_where_it_was_saved() -> None:
    agent, other = random_agent(3), random_agent(4)
    play(agent, 7)
    other.load(agent.state())
    assert play(agent, 20) == play(other, 20)


def test_random_keeps_to_its_own_numbers() -> None:
    random.seed(1)
    before = random.getstate()
    first = play(random_agent(3), 20)
    assert random.getstate() == before
    random.seed(2)
    assert play(random_agent(3), 20) == first


def test_the_walkthrough_is_played_in_order_whatever_is_seen() -> None:
    agent = walkthrough_agent(["open door", "north"])
    assert [agent.act([seen(step, ())])[0].action for step in range(4)] == ["open door", "north", "wait", "wait"]


def test_a_new_episode_begins_the_walkthrough_again() -> None:
    agent = walkthrough_agent(["open door", "north"])
    assert play(agent, 2) == play(agent, 2)
