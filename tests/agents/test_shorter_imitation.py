"""Imitation trainings that end early and anneal (`xtx-fast`): when they do, and that they repeat."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from xtx.agents.xtx.imitation import ImitationPolicy, ImitationSettings, _iterate_pairs
from xtx.agents.xtx.imitation_training import EagerSteps, Example
from xtx.agents.xtx.trajectory_recall import TrajectoryRecall
from xtx.networks.gpt import GPT

from .test_imitation import TINY, VOCABULARY, Ints, policy, prefixes, table

pytestmark = pytest.mark.usefixtures("one_thread")

FAST = replace(TINY, merge_identical=True, dropout=0.1, passes=12, known=0.8, anneal=0.25)


def slow_surprise(model: GPT, example: Example) -> float:
    """-log p of an example's action, from a row without padding."""
    with torch.no_grad():
        logs = model(torch.from_numpy(example.tokens[None].astype(np.int64)))[0].log_softmax(-1)
    places = range(example.context, len(example.tokens))
    return -sum(logs[place - 1, example.tokens[place]].item() for place in places)


def recall_of(agent: ImitationPolicy, walks: Sequence[Ints]) -> float:
    agent.settings = replace(agent.settings, known=0.5)
    recall = agent._recall(walks)
    assert recall is not None
    return recall.compute_probability(agent._make_steps())


def test_recall_is_the_least_probability_of_a_trajectory_with_any_of_the_actions_of_a_context() -> None:
    agent = policy()
    first, second = prefixes(1, [7, 7])
    second = second.copy()
    second[4, 3] += 1  # another action in the same context
    walks = [first, first, second, first[:3]]
    agent.train(walks)
    chances = [
        [math.exp(-slow_surprise(agent.model, agent._make_example(pair))) for pair in _iterate_pairs(w)] for w in walks
    ]
    wanted = []
    for walk, share in ((0, 2 / 3), (2, 1 / 3)):
        known = list(chances[walk])
        known[4] = min(1.0, chances[0][4] + chances[2][4], 2 * chances[walk][4] / share)
        wanted.append(math.prod(known))
    assert recall_of(agent, walks) == pytest.approx(min(wanted), rel=1e-3)
    assert recall_of(agent, walks) > 0.3
    rare = [first] * 30 + [second]  # its share is 1/31, and the policy says it far more often
    assert recall_of(agent, rare) == pytest.approx(math.prod([*chances[2][:4], 1.0, *chances[2][5:]]), rel=0.1)
    agent.train([first] * 4)
    assert recall_of(agent, walks) < 0.2  # the second action is forgotten


def test_one_new_step_is_not_hidden_by_many_known_ones() -> None:
    (walk,) = prefixes(3, [21])
    agent = policy(replace(TINY, passes=100, merge_identical=True, known=0.95))
    agent.train([walk[:20]] * 9)
    assert recall_of(agent, [walk[:20]]) >= 0.95
    assert recall_of(agent, [walk[:20]] * 9 + [walk]) < 0.3


def test_a_training_goes_on_until_each_trajectory_is_known() -> None:
    walk = prefixes(1, [12, 12])
    whole = policy(replace(TINY, passes=200)).train(walk)
    agent = policy(replace(TINY, passes=200, known=0.9))
    report = agent.train(walk)
    assert 3 < report["steps"] < whole["steps"] and report["steps"] % 3 == 0
    assert recall_of(agent, walk) >= 0.9
    assert report["accuracy"] > 0
    assert agent.train(walk) == {"pairs": report["pairs"], "steps": 0}, "nothing is measured without a pass"


@pytest.fixture
def paces(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    step = EagerSteps.step

    def noted(self: EagerSteps, examples: Sequence[Example], pace: float = 1.0) -> None:
        found.append(pace)
        step(self, examples, pace)
        assert self._optimiser.param_groups[0]["lr"] == TINY.learning_rate * pace

    monkeypatch.setattr(EagerSteps, "step", noted)
    return found


def test_the_last_passes_are_annealed(paces: list[float]) -> None:
    told: list[tuple[int, int]] = []
    policy(replace(TINY, passes=4, anneal=0.5)).train(prefixes(0, [16]), lambda *progress: told.append(progress))
    assert paces == [1, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert told == [(step, 8) for step in range(1, 9)]


def test_a_known_buffer_has_annealed_passes_only(paces: list[float]) -> None:
    walk = prefixes(0, [16])
    agent = policy(replace(TINY, passes=200, anneal=0.01, known=0.5))
    agent.train(walk)
    assert paces[-4:] == [1, 0.75, 0.5, 0.25] and len(paces) < 400
    paces.clear()
    agent.train(walk)
    assert paces == [1, 0.75, 0.5, 0.25]


def weights(agent: ImitationPolicy) -> list[Any]:
    return [weight.detach().cpu().numpy() for weight in agent.model.parameters()]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_bits(threads: int) -> None:
    torch.set_num_threads(threads)
    walks = prefixes(2, [20, 20, 13, 5])
    settings = ImitationSettings(passes=2, merge_identical=True, known=0.9, anneal=0.5)  # as wide as the paper's
    found = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        agent = ImitationPolicy(settings, table(), VOCABULARY)
        found.append((agent.train(walks), weights(agent)))
    assert found[0][0] == found[1][0]
    assert all(np.array_equal(*pair) for pair in zip(found[0][1], found[1][1], strict=True))


def test_a_loaded_policy_goes_on_exactly() -> None:
    agent = policy(FAST)
    agent.train(prefixes(0, [9, 9, 4]))
    saved = copy.deepcopy(agent.state())
    wanted = agent.train(prefixes(7, [11, 3]))
    other = policy(FAST, seed=1)
    other.load(saved)
    assert other.train(prefixes(7, [11, 3])) == wanted
    assert all(np.array_equal(*pair) for pair in zip(weights(agent), weights(other), strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_seed_gives_the_same_bits_on_a_gpu() -> None:
    walks = prefixes(2, [60, 60, 33, 5])
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        agent = ImitationPolicy(ImitationSettings(passes=3, merge_identical=True), table(), VOCABULARY, 0, "cuda")
        agent.train(walks)
        found.append(weights(agent))
    assert all(np.array_equal(*pair) for pair in zip(*found, strict=True))


def test_recall_needs_an_example_of_each_pair_once() -> None:
    agent = policy()
    walks = prefixes(1, [4])
    pairs = list(_iterate_pairs(walks[0]))
    recall = TrajectoryRecall([pairs, pairs], [agent._make_example(pair) for pair in pairs])
    surprises = sum(slow_surprise(agent.model, agent._make_example(pair)) for pair in pairs)
    assert recall.compute_probability(agent._make_steps()) == pytest.approx(math.exp(-surprises), rel=1e-4)
