"""`insight` does not change an agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtx.agents.state_ids
from xtx.agents.registry import AGENTS, find_agent, make_preset
from xtx.core import Agent, Brief, Observation, Step
from xtx.games.toy_game import ToyGame
from xtx.runs.checkpoint_file import write_checkpoint
from xtx.text.text_table import Ragged, TextTable, Vocabulary
from xtx.training.loop import build_transitions

TOY = "toy:corridor-6"
GAMES = 2
STEPS = 40
LEARNERS = [agent for agent in AGENTS if agent not in ("random", "walkthrough", "xtx-demo")]


def small(name: str) -> Agent:
    """The agent at a size at which trainings, sweeps and a full vocabulary happen within a few steps."""
    settings: Any = make_preset(name, "")
    settings = replace(settings, text=replace(settings.text, vocabulary=48, longest=40))
    if hasattr(settings, "q"):
        settings = replace(settings, q=replace(settings.q, hidden=8, batch_size=8, capacity=30, target_every=7))
    if hasattr(settings, "imitation"):
        imitation = replace(settings.imitation, width=8, layers=1, heads=1, passes=1)
        settings = replace(settings, imitation=imitation, first_training=5, explore_steps=9, training_every=1)
    if hasattr(settings, "epsilon_decay"):
        settings = replace(settings, hidden=8, embedding=8, batch_size=8, capacity=30, epsilon_decay=50.0)
    return find_agent(name)(settings, Brief(GAMES, 3))


def wordy(observation: Observation, number: int) -> Observation:
    """The same with a text that never comes again."""
    return replace(observation, text=f"{observation.text} {'abcdefgh'[number % 8]}{number} word{number}")


def unheard_of(number: int) -> Observation:
    actions = tuple(f"{verb} thing{number}" for verb in ("take", f"verb{number}", "drop"))
    return Observation(f"text{number}", f"a thing{number} and look{number}", f"inventory{number}", actions, 1, 2)


def play(agent: Agent, ask: bool) -> tuple[list[str], list[dict[str, float]]]:
    """What was done and logged; with `ask`, the agent is asked for hints all the time."""
    games = [ToyGame(TOY) for _ in range(GAMES)]
    seen = [wordy(game.reset(), 0) for game in games]
    actions, logged, foreseen = [], [], 0
    for number in range(1, STEPS):
        coming = agent.foresee(seen) if ask else {}
        foreseen += len(coming)
        if ask:
            for asked in (unheard_of(number), seen[0], replace(seen[1], look="elsewhere")):
                assert sum(agent.insight(asked, ("take lamp", f"never{number}")).probabilities.values()) > 0.99
        decisions = agent.act(seen)
        actions += [decision.action for decision in decisions]
        assert all(decisions[game].action == action for game, action in coming.items())  # nothing was learned since
        if ask:
            agent.insight(unheard_of(-number), ())  # between acting and learning too
            agent.foresee([unheard_of(number), replace(seen[1], actions=())])
        steps: list[Step] = []
        for game, before, decision in zip(games, seen, decisions, strict=True):
            step = game.step(decision.action, last=before.step + 1 >= agent.episode_limit)
            steps.append(replace(step, observation=wordy(step.observation, number)))
        logged.append(dict(agent.learn(build_transitions(seen, decisions, steps))))
        seen = [
            wordy(game.reset(), number) if step.terminated or step.truncated else step.observation
            for game, step in zip(games, steps, strict=True)
        ]
    never = type(agent).foresee is Agent.foresee or getattr(agent.settings, "mix", 1) == 0
    assert never or not ask or foreseen > STEPS / 4
    return actions, logged


@pytest.mark.parametrize("name", LEARNERS)
def test_a_hint_leaves_no_trace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(xtx.agents.state_ids, "MIN_IDS_TO_DROP", 60)  # numbers are freed and given again
    alone, asked = small(name), small(name)
    assert play(alone, ask=False) == play(asked, ask=True)
    for agent, file in ((alone, "alone"), (asked, "asked")):
        write_checkpoint(tmp_path / file, agent.state())
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "asked").read_bytes()


def test_texts_in_passing_are_forgotten_also_after_an_error() -> None:
    table = TextTable(Vocabulary(16), 9)
    for text in ("one", "two", "three", "four"):
        table.id(text)
    table.drop_unused([table.id("two")])
    before = table.state()
    with table.restore_afterwards() as freed:
        given = [table.id(text) for text in ("five", "two", "six", "one", "seven", "eight")]
        assert given == [0, 1, 2, 3, 4, 5]
        assert not freed
    assert sorted(freed) == [0, 2, 3, 4, 5]
    with pytest.raises(KeyError), table.restore_afterwards():
        table.id("nine and ten")
        raise KeyError
    after = table.state()
    assert after["vocabulary"] == before["vocabulary"]
    assert (after["texts"], after["size"], after["numbers"].tolist()) == (["two"], 4, [1])
    assert [table.id(text) for text in ("six", "five", "two", "seven")] == [0, 2, 1, 3]
    assert table.tokens(table.id("five")).tolist() == [1, table.vocabulary.id("five"), 2]


def test_rows_in_passing_where_none_are_free() -> None:
    rows = Ragged()
    rows.add(np.array([1, 2], np.int32))
    with rows.restore_afterwards():
        rows.add(np.arange(5000, dtype=np.int32))
        assert rows.size == 2
    assert rows.size == 1
    assert rows.add(np.array([3], np.int32)) == 1
    assert [rows.row(number).tolist() for number in (0, 1)] == [[1, 2], [3]]
