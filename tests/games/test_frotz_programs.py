"""Environment code in the manner of public programs written for Jericho, with one import changed.

DRRN asks for look, inventory and valid actions between `get_state` and `set_state`; CALM asks without going back, so
that looking takes turns, and for the things at hand; TDQN fills templates with ids of the parser's words and filters
them; KG-A2C follows the object tree and counts steps that change nothing; tale-suite writes all objects as JSON. The
classes below do the same calls, in code of our own, and are given Jericho's class or ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jericho
import numpy as np
import pytest
from jericho.util import get_subtree, unabbreviate

from xtx.games import jericho as frotz_env

pytestmark = pytest.mark.roms
STEPS = 25


class ActionListEnv:
    """As DRRN's: what is seen, and a list of valid actions."""

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


class LanguageModelEnv:
    """As CALM's: looking and taking stock are turns of the game, and valid actions are asked for after them."""

    def __init__(self, kind: Any, path: str) -> None:
        self.env = kind(path)
        self.best, self.ends = 0, list[int]()

    def things(self) -> list[str]:
        groups = self.env._identify_interactive_objects(use_object_tree=False)
        return sorted({name for group in groups.values() for name, kind, source in group if kind != "ADJ"})

    def step(self, action: str, get_valid: bool = False) -> tuple[str, int, bool, dict[str, Any]]:
        text, reward, done, info = self.env.step(action)
        info |= {"look": "unknown", "inv": "unknown", "valid": ["wait", "yes", "no"]}
        if not done:
            info["look"], info["inv"] = (self.env.step(command)[0].lower() for command in ("look", "inventory"))
            info["valid"] = (self.env.get_valid_actions() if get_valid else []) or info["valid"]
        self.best = max(self.best, info["score"])
        if done:
            self.ends.append(info["score"])
        return text.lower(), reward, done, info


def as_json(env: Any) -> str:
    """As tale-suite's: the whole world as JSON, with what TextWorld asks for before each step."""
    player = env.get_world_objects(clean=True)[env.player_obj_num]
    world = [
        {
            "num": one.num,
            "name": one.name,
            "parent": one.parent,
            "sibling": one.sibling,
            "child": one.child,
            "attributes": [number for number, is_set in enumerate(one.attr) if is_set],
            "properties": list(one.properties),
        }
        for one in env.get_world_objects(clean=True)
    ]
    held = [one.num for one in env.get_inventory()]
    asked = [env.get_score(), env.get_max_score(), env.get_moves(), bool(env.victory()), bool(env.game_over())]
    return json.dumps([env.get_world_state_hash(), player.num, held, world, asked, env.get_walkthrough()[:2]])


@pytest.mark.parametrize("game", ["zork1", "detective"])
def test_a_language_model_program_sees_the_same(game: str, real_story: Callable[[str], Path]) -> None:
    path = str(real_story(game))
    theirs, ours = (LanguageModelEnv(kind, path) for kind in (jericho.FrotzEnv, frotz_env.FrotzEnv))
    assert ours.env.reset() == theirs.env.reset()
    for command in theirs.env.get_walkthrough()[:STEPS]:
        assert ours.step(command) == theirs.step(command)
    assert (ours.best, ours.ends) == (theirs.best, theirs.ends)
    *_, info = ours.step("wait", get_valid=True)
    assert info["valid"] != ["wait", "yes", "no"] and ours.things()


@pytest.mark.parametrize("game", ["zork1", "detective"])
def test_a_program_that_writes_the_world_as_json_sees_the_same(game: str, real_story: Callable[[str], Path]) -> None:
    path = str(real_story(game))
    theirs, ours = jericho.FrotzEnv(path), frotz_env.FrotzEnv(path)
    assert ours.seed(12) == theirs.seed(12)
    assert ours.reset() == theirs.reset()
    for command in theirs.get_walkthrough()[:STEPS]:
        assert ours.step(command) == theirs.step(command)
        assert as_json(ours) == as_json(theirs)


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
