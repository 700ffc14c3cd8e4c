"""Environment code in the manner of three public programs written for Jericho, with one import changed.

DRRN and CALM ask for look, inventory and valid actions between `get_state` and `set_state`; TDQN fills templates with
ids of the parser's words and filters them; KG-A2C follows the object tree and counts steps that change nothing. The
classes below do the same calls, in code of our own, and are given Jericho's class or ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jericho
import numpy as np
import pytest
from jericho.util import get_subtree, unabbreviate

from xtx.games import frotz_env

pytestmark = pytest.mark.roms
STEPS = 25


class ActionListEnv:
    """As DRRN's and CALM's: what is seen, and a list of valid actions."""

    def __init__(self, kind: Any, path: str, step_limit: int) -> None:
        self.env, self.step_limit, self.steps = kind(path), step_limit, 0

    def describe(self) -> dict[str, str]:
        saved = self.env.get_state()
        look = self.env.step("look")[0]
        self.env.set_state(saved)
        inventory = self.env.step("inventory")[0]
        self.env.set_state(saved)
        return {"look": look.lower(), "inv": inventory.lower()}

    def reset(self) -> tuple[str, dict[str, Any]]:
        text, info = self.env.reset()
        self.steps = 0
        return text, {**info, **self.describe()}

    def step(self, action: str) -> tuple[str, int, bool, dict[str, Any]]:
        text, reward, done, info = self.env.step(unabbreviate(action))
        if not done:
            info.update(self.describe())
        self.steps += 1
        return text.lower(), reward, done or self.steps >= self.step_limit, info


class TemplateEnv:
    """As TDQN's: templates with ids of words, and which of them change the world."""

    def __init__(self, kind: Any, path: str) -> None:
        self.env = kind(path, seed=0)
        words = [str(word) for word in self.env.get_dictionary()]
        self.ids = {word: number + 2 for number, word in enumerate(words)}
        self.longest = self.env.bindings["max_word_length"]

    def candidates(self, names: list[str]) -> list[Any]:
        ids = [self.ids[name[: self.longest]] for name in names]
        return list(self.env.act_gen.generate_template_actions(names, ids))

    def valid(self, names: list[str]) -> list[str]:
        by_difference = self.env._filter_candidate_actions(self.candidates(names), use_ctypes=True)
        return sorted(min(actions, key=len) for actions in by_difference.values())

    def step(self, action: str) -> tuple[Any, ...]:
        text, reward, done, info = self.env.step(action)
        return text, reward, done, info, bool(done or self.env._world_changed())


class GraphEnv:
    """As KG-A2C's: a graph of what lies where, from the object tree."""

    def __init__(self, kind: Any, path: str) -> None:
        self.env, self.stuck = kind(path, 12), 0

    def graph(self) -> set[tuple[str, str, str]]:
        player, place = self.env.get_player_object(), self.env.get_player_location()
        triples = {("you", "in", place.name)}
        triples |= {("you", "have", item.name) for item in self.env.get_inventory()}
        world = self.env.get_world_objects()
        for one in get_subtree(place.child, world):
            if one != player:
                triples.add((one.name, "in", world[one.parent].name))
                triples |= {(one.name, "is", str(bit)) for bit in np.nonzero(one.attr)[0]}
        return triples

    def step(self, action: str) -> tuple[Any, ...]:
        text, reward, done, info = self.env.step(action)
        self.stuck = 0 if done or self.env._world_changed() else self.stuck + 1
        return text, reward, done, info, self.stuck, self.env.get_world_state_hash(), self.graph()


@pytest.mark.parametrize("game", ["zork1", "detective"])
def test_an_action_list_program_sees_the_same(game: str, real_story: Callable[[str], Path]) -> None:
    path = str(real_story(game))
    theirs, ours = (ActionListEnv(kind, path, STEPS) for kind in (jericho.FrotzEnv, frotz_env.FrotzEnv))
    assert ours.reset() == theirs.reset()
    for command in theirs.env.get_walkthrough()[:STEPS]:
        assert ours.step(command) == theirs.step(command)


@pytest.mark.parametrize("game", ["zork1", "detective"])
def test_an_action_list_program_learns_from_our_valid_actions(game: str, real_story: Callable[[str], Path]) -> None:
    """A whole episode by valid actions alone, with what such programs do: a cache by the hash of the world."""
    program = ActionListEnv(frotz_env.FrotzEnv, str(real_story(game)), STEPS)
    cache: dict[str, list[str]] = {}
    random, done = np.random.default_rng(0), False
    program.reset()
    while not done:
        key = program.env.get_world_state_hash()
        if key not in cache:
            cache[key] = program.env.get_valid_actions(use_parallel=False)
        _, _, done, info = program.step(str(random.choice(cache[key] or ["wait", "yes", "no"])))
    assert program.steps == STEPS or "look" not in info
    assert any(cache.values())
    assert "spacy" not in sys.modules


def test_a_template_program_filters_the_same(real_story: Callable[[str], Path]) -> None:
    path = str(real_story("zork1"))
    theirs, ours = TemplateEnv(jericho.FrotzEnv, path), TemplateEnv(frotz_env.FrotzEnv, path)
    assert ours.ids == theirs.ids
    for command in theirs.env.get_walkthrough()[:12]:
        names = ["mailbox", "window", "sack"]
        assert [str(one) for one in ours.candidates(names)] == [str(one) for one in theirs.candidates(names)]
        assert ours.valid(names) == theirs.valid(names)
        assert ours.step(command) == theirs.step(command)


@pytest.mark.parametrize("game", ["zork1", "905"])
def test_a_graph_program_sees_the_same_world(game: str, real_story: Callable[[str], Path]) -> None:
    path = str(real_story(game))
    theirs, ours = GraphEnv(jericho.FrotzEnv, path), GraphEnv(frotz_env.FrotzEnv, path)
    assert ours.env.reset() == theirs.env.reset()
    for command in theirs.env.get_walkthrough()[:STEPS]:
        assert ours.step(command) == theirs.step(command)
