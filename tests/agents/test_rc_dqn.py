"""The agents RC-DQN and MPRC-DQN: questions, histories, exploration, learning, saving and loading."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xtx.agents.action_choice import draw
from xtx.agents.rc_dqn.action_templates import OBJECT, Passage, find_object_words
from xtx.agents.rc_dqn.learner import RcLearner
from xtx.agents.rc_dqn.object_history import ObjectHistory
from xtx.agents.rc_dqn.rc_dqn_agent import RcDqnAgent, compute_epsilon, compute_exploration, is_stuck
from xtx.agents.rc_dqn.reading_inputs import PassageReader, ReadState, format_observation, prepend_past
from xtx.agents.registry import make_preset
from xtx.agents.state_ids import StateIds
from xtx.config.settings import RcDqnSettings, RunConfig, TextSettings
from xtx.core import FALLBACK_ACTIONS, Brief, Decision, Observation, Transition
from xtx.games.game_setup import set_up_game
from xtx.games.vector.game_vector import GameVector
from xtx.runs.line_files import read_lines
from xtx.runs.run_folder import Run
from xtx.training.loop import Training, TrainingProgress
from xtx.training.prepare import make_agent

SMALL = RcDqnSettings(
    text=TextSettings(vocabulary=128, longest=40), hidden=8, embedding=10, batch_size=16, capacity=200
)
TEXT = "A brass lantern and a rusty lantern lie in a trophy case | You carry a card | The attendant waves"
#       0 1     2       3   4 5     6       7   8  9 10     11   12 13  14    15 16 17 18  19        20


def questions_of(action: str, text: str = TEXT) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    question = Passage(text, 400).make_question(action)
    return " ".join(question.words), question.first, question.second


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "question", "first", "second"),
    [
        ("north", "north", (), ()),
        ("take card", "take <obj>", (16,), ()),
        ("put lantern in case", "put <obj> in <obj>", (2, 6), (11,)),
        ("put brass lantern in trophy case", "put <obj> in <obj>", (2,), (11,)),
        ("put rusty lantern in case", "put <obj> in <obj>", (6,), (11,)),
        ("give attendant card", "give <obj> <obj>", (19,), (16,)),
        ("Turn On Lantern", "turn on <obj>", (2, 6), ()),
        ("drop all", "drop all", (), ()),
        ("take lant", "take lant", (), ()),  # too short for a word that the story cut off
        ("give attend card", "give <obj> <obj>", (19,), (16,)),
        ("take sword", "take sword", (), ()),  # not mentioned: its name is asked for
        ("put sword in case", "put sword in <obj>", (), (11,)),
        ("give card lantern case", "give <obj> <obj> case", (16,), (2, 6)),
        ("", "", (), ()),
    ],
)
def test_an_action_is_a_question(action: str, question: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert questions_of(action) == (question, first, second)


def test_templates_for_counting_do_not_depend_on_what_is_mentioned() -> None:
    here = Passage(TEXT, 400)
    assert (
        here.make_question("put sword in case").template
        == here.make_question("put card in case").template
        == "put <obj> in <obj>"
    )
    assert here.make_question("put brass lantern in sack").objects == ("brass lantern", "sack")


def test_what_is_cut_off_counts_as_the_last_place() -> None:
    assert Passage(TEXT, 17).make_question("take card").first == (16,)
    assert Passage(TEXT, 16).make_question("take card").first == (16,)  # the place behind the last word that is read
    assert Passage(TEXT, 10).make_question("take card").first == (10,)
    assert Passage(TEXT, 4).make_question("take lantern").first == (2, 4)
    assert Passage(TEXT, 5).make_question("take rusty lantern").words == ("take", OBJECT)


def test_words_for_objects_do_not_depend_on_the_text() -> None:
    assert find_object_words("put brass lantern in trophy case") == ["brass", "lantern", "trophy", "case"]
    assert find_object_words("turn on all") == find_object_words("north") == find_object_words("") == []


# --- readings ---------------------------------------------------------------------------------------------------------


def observation(
    look: str, inventory: str, text: str, actions: tuple[str, ...], step: int = 0, score: int = 0
) -> Observation:
    return Observation(text, look, inventory, actions, score, step)


def library_and_reader(settings: RcDqnSettings = SMALL) -> tuple[StateIds, PassageReader]:
    state_ids = StateIds(settings.text)
    return state_ids, PassageReader(settings, state_ids)


def test_a_reading_by_hand() -> None:
    state_ids, reader = library_and_reader()
    text = state_ids.texts.id("A lamp | a rope | lamp")
    actions = [state_ids.texts.id(a) for a in ("east", "take lamp", "take rope", "tie rope to lamp", "take key")]
    made = reader.build_reading(
        [
            reader.make_questions(ReadState(text, state_ids.action_sets.id(actions))),
            reader.make_single_questions(text, actions[1]),
        ]
    )
    word = state_ids.texts.vocabulary.id
    take, obj = word("take"), word(OBJECT)
    # START a lamp | a rope | lamp END
    # 0     1 2    3 4 5    6 7    8
    assert made.texts.tolist() == [1, *map(word, ["a", "lamp", "|", "a", "rope", "|", "lamp"]), 2]
    assert made.text_lengths.tolist() == [9]
    questions = [[word("east")], [take, obj], [word("tie"), obj, word("to"), obj], [take, word("key")]]
    assert [q.tolist() for q in made.questions.split(made.question_lengths.tolist())] == questions
    assert made.pair_text.tolist() == [0] * 4
    assert made.pair_question.tolist() == [0, 1, 2, 3]
    assert made.action_pair.tolist() == [0, 1, 1, 2, 3, 1]
    # no object: the marks between the segments; one that is not mentioned: the first place
    assert made.first.tolist() == [[3, 6], [2, 7], [5, 0], [5, 0], [0, 0], [2, 7]]
    assert made.first_weights.tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 0], [1, 0], [1, 0], [0.5, 0.5]]
    assert made.second.tolist() == [[3, 6], [3, 6], [3, 6], [2, 7], [3, 6], [3, 6]]
    assert made.second_weights.tolist() == [[0.5, 0.5]] * 6


def test_a_second_object_that_is_not_mentioned_is_read_at_the_last_place() -> None:
    state_ids, reader = library_and_reader(replace(SMALL, text=TextSettings(vocabulary=128, longest=8)))
    text = state_ids.texts.id("A lamp | a rope | a lamp and a key")  # six words and two marks are read
    actions = [state_ids.texts.id(a) for a in ("tie lamp to sword", "tie sword to lamp", "take key", "east")]
    found = reader.make_questions(ReadState(text, state_ids.action_sets.id(actions)))
    # START a lamp | a rope | END
    # 0     1 2    3 4 5    6 7     the second lamp and the key are cut off: they count as the last place
    assert found.first == [(2, 7), (0,), (7,), (3, 6)]
    assert found.second == [(7,), (2, 7), (3, 6), (3, 6)]


def test_only_the_first_actions_are_compared() -> None:
    settings = replace(SMALL, most_actions=2, longest_question=1)
    state_ids, reader = library_and_reader(settings)
    numbers = [state_ids.texts.id(a) for a in ("open lamp", "take lamp", "north")]
    found = reader.make_questions(ReadState(state_ids.texts.id("a lamp"), state_ids.action_sets.id(numbers)))
    assert len(found.which) == 2
    assert [len(question) for question in found.questions] == [1, 1]


def test_the_values_of_a_state_do_not_depend_on_its_company() -> None:
    state_ids, reader = library_and_reader()
    learner = RcLearner(SMALL, state_ids, reader, 1, 0, torch.device("cpu"))
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    words = ["lamp", "rope", "key", "door", "sword"]
    states = []
    for i in range(30):
        text = " ".join(words[j % 5] for j in range(1 + 7 * i % 30)) + f" | {i}"
        actions = state_ids.action_sets.id([state_ids.texts.id(f"take {w}") for w in words[: 1 + i % 5]])
        states.append(ReadState(state_ids.texts.id(text), actions))
    together = learner._evaluate(learner.network, [reader.make_questions(state) for state in states])
    assert [len(values) for values in together] == [1 + i % 5 for i in range(30)]
    for state, values in zip(states, together, strict=True):
        np.testing.assert_allclose(learner.q_values([state])[0], values, atol=1e-5)


# --- history ----------------------------------------------------------------------------------------------------------


def test_history_by_hand() -> None:
    history = ObjectHistory(2)
    assert history.recall(["lamp"]) == []
    acted_on = [{"lamp"}, {"rope", "lamp"}, {"sword"}, set[str](), set[str]()]
    looks = [f"{i}: a key" for i in range(6)]
    for look, objects in zip(looks[:5], acted_on, strict=True):
        history.add(look, objects)
    assert history.recall([]) == [looks[3], looks[4]]  # the most recent ones
    assert history.recall(["key"]) == [looks[3], looks[4]]  # mentioned everywhere, acted on nowhere
    assert history.recall(["lamp"]) == [looks[1], looks[4]]  # the last where it was acted on, filled up
    assert history.recall(["lamp", "rope"]) == [looks[1], looks[4]]  # one place for both
    assert history.recall(["sword", "rope"]) == [looks[1], looks[2]]
    history.add(looks[5], {"key"})
    assert history.recall(["sword", "lamp", "key"]) == [looks[2], looks[5]]  # of three the latest two
    assert history.recall(["key"]) == [looks[4], looks[5]]  # not each twice
    again = ObjectHistory(2)
    again.load(history.looks, history.objects)
    assert again.recall(["sword", "rope"]) == [looks[1], looks[2]]


def test_the_oldest_words_make_room_for_the_present() -> None:
    past = ["one two three", "four five"]
    assert prepend_past("now", past, 100) == "one two three | four five | now"
    assert prepend_past("now | here", past, 7) == "| four five | now | here"
    assert prepend_past("now | here", past, 3) == "now | here"


def see(agent: RcDqnAgent, o: Observation) -> str:
    agent.act([o])
    return agent._state_ids.texts.text(agent._states[0].text)


def test_only_mprc_dqn_reads_the_past_of_its_episode() -> None:
    acts = [("take lamp", "east"), ("east",), ("east",), ("drop lamp", "east")]
    seen = [
        observation(f"Room {i}" + " with a lamp" * (i < 2), "Nothing", "Hm", actions, i)
        for i, actions in enumerate(acts)
    ]
    plain = RcDqnAgent(SMALL, Brief(1, 0))
    assert [see(plain, o) for o in seen] == [format_observation(o) for o in seen]
    mprc = RcDqnAgent(replace(SMALL, history=True), Brief(1, 0))
    texts = [see(mprc, o) for o in seen]
    assert texts[0] == format_observation(seen[0])
    assert texts[1] == f"room 0 with a lamp | {format_observation(seen[1])}"
    assert texts[2] == f"room 0 with a lamp | room 1 with a lamp | {format_observation(seen[2])}"
    assert (
        texts[3] == f"room 0 with a lamp | room 2 | {format_observation(seen[3])}"
    )  # room 1 offered nothing for the lamp
    assert see(mprc, seen[0]) == format_observation(seen[0])  # a new episode


def test_an_episode_of_an_earlier_version_goes_on() -> None:
    settings = replace(SMALL, history=True)
    agent = RcDqnAgent(settings, Brief(1, 0))
    for i in range(2):
        see(agent, observation(f"Room {i}", "Nothing", "Hm", ("take lamp",), i))
    state = agent.state()
    del state["history_objects"]
    later = RcDqnAgent(settings, Brief(1, 0))
    later.load(state)
    last = observation("Room 2", "Nothing", "Hm", ("take lamp",), 2)
    assert see(later, last) == f"room 0 | room 1 | {format_observation(last)}"


# --- exploration ------------------------------------------------------------------------------------------------------


def test_epsilon_by_hand() -> None:
    settings = RcDqnSettings()
    assert compute_epsilon(settings, 0) == 1.0
    assert compute_epsilon(settings, 10_000) == pytest.approx(0.05 + 0.95 / math.e)
    assert compute_epsilon(settings, 10**9) == pytest.approx(0.05)


def test_exploration_by_hand() -> None:
    weights = [math.exp(math.log(16) / count) for count in (1, 2, 5)]  # 16: twice the sum
    np.testing.assert_allclose(compute_exploration([1, 2, 5]), np.array(weights) / sum(weights))


def step(before: Observation, action: str, reward: int, after: Observation, *, ended: bool = False) -> Transition:
    return Transition(0, before, Decision(action), reward, after, ended, False)


def test_exploration_counts_templates_of_what_was_done() -> None:
    agent = RcDqnAgent(SMALL, Brief(1, 0))
    here = observation("a lamp and a rope", "Nothing", "Hm", ("take lamp", "take rope", "north"))
    agent.act([here])
    agent.learn([step(here, "take lamp", 0, here)])
    agent.act([here])
    assert agent._count_templates(here, agent._states[0]) == [2, 2, 1]
    state = agent.state()
    assert (state["templates"], state["used"].tolist(), state["steps"]) == (["take <obj>"], [1], 1)
    chances = agent.insight(here, ()).probabilities
    assert sum(chances.values()) == pytest.approx(1)
    share = compute_epsilon(SMALL, 1) * compute_exploration([2, 2, 1])
    best = max(("take lamp", "take rope", "north"), key=lambda a: chances[a] - share[here.actions.index(a)])
    expected = {a: share[i] + (1 - compute_epsilon(SMALL, 1)) * (a == best) for i, a in enumerate(here.actions)}
    assert chances == pytest.approx(expected)


def test_without_epsilon_the_best_action_is_taken() -> None:
    settings = replace(SMALL, epsilon_start=0.0, epsilon_end=0.0, most_actions=3)
    agent = RcDqnAgent(settings, Brief(1, 0))
    here = observation("a lamp and a rope", "Nothing", "Hm", ("take lamp", "take rope", "north", "south"))
    [decision] = agent.act([here])
    [values] = agent._learner.q_values(agent._states)
    assert len(values) == 3
    assert decision.action == here.actions[int(values.argmax())]


def test_games_are_decided_together_as_one_by_one() -> None:
    settings = replace(SMALL, epsilon_start=0.5, epsilon_end=0.5)
    agent = RcDqnAgent(settings, Brief(12, 0))
    things = ("lamp", "rope", "key")
    seen = [
        observation(f"room {i} with a lamp", "a rope", "Hm", tuple(f"take {t}" for t in things[: 1 + i % 3]))
        for i in range(12)
    ]
    decisions = agent.act(seen)
    draws = np.random.default_rng(0)
    explored = 0
    for here, state, decision in zip(seen, agent._states, decisions, strict=True):
        if draws.random() < 0.5:
            explored += 1
            expected = draw(draws, compute_exploration([1] * len(here.actions)))
        else:
            expected = int(agent._learner.q_values([state])[0].argmax())
        assert decision.action == here.actions[expected]
    assert 0 < explored < 12


# --- memory -----------------------------------------------------------------------------------------------------------


def test_what_is_stored() -> None:
    agent = RcDqnAgent(SMALL, Brief(1, 0))
    here = observation("a lamp", "Nothing", "Hm", ("take lamp", "north"))
    there = observation("a rope", "Nothing", "Hm", ("take rope",), 1)
    over = Observation("You died", "", "", (), -5, 2)
    memory = agent._learner.memory
    for outcome in (20, 0):  # the first episode is never above the mean, nor is the second here
        agent.act([here])
        agent.learn([step(here, "north", outcome, there)])
        agent.act([there])
        agent.learn([step(there, "take rope", -5, over, ended=True)])
    rows = memory.ordinary.copy_rows()
    assert rows["reward"].tolist() == [1, -1, 0, -1]
    assert rows["terminal"].tolist() == [False, True, False, True]
    texts = agent._state_ids.texts.text
    assert [texts(row["text"]) for row in rows[:2]] == [format_observation(here), format_observation(there)]
    assert [texts(row["action"]) for row in rows[:2]] == ["north", "take rope"]
    assert texts(rows["next_text"][0]) == format_observation(there)
    assert len(memory.priority) == 0
    agent.act([here])
    agent.learn([step(here, "north", 3, over, ended=True)])  # sums of clipped rewards: 0, -1, 1
    assert memory.priority.copy_rows()["reward"].tolist() == [1]


def test_an_episode_ends_where_no_valid_action_is_found() -> None:
    agent = RcDqnAgent(replace(SMALL, epsilon_end=1.0), Brief(2, 0))
    here = observation("a lamp", "Nothing", "Hm", ("take lamp", "north"))
    stuck = observation("a pit", "Nothing", "Hm", FALLBACK_ACTIONS, 1)
    agent.act([here, here])
    assert agent.limit_of(0) == agent.limit_of(1) == SMALL.episode_limit
    into = [Transition(game, here, Decision("north"), 2, stuck, False, False) for game in range(2)]
    agent.learn([into[0], replace(into[1], after=here)])
    memory = agent._learner.memory
    assert memory.ordinary.copy_rows()["terminal"].tolist() == [True, False]  # nothing is expected of the pit
    assert agent._learner._outcomes.tolist() == [0, 1]  # the first game's episode has ended
    drawn = agent._random.bit_generator.state
    agent.act([stuck, here])
    assert agent.limit_of(0) == 0 and agent.limit_of(1) == SMALL.episode_limit
    out = [Transition(0, stuck, Decision("wait"), 5, stuck, False, True), replace(into[1], after=here)]
    agent.learn(out)
    assert len(memory.ordinary) == 3  # that last step is not learned from
    assert agent._learner._outcomes.tolist() == [0, 2]
    assert drawn != agent._random.bit_generator.state
    assert not is_stuck(observation("a pit", "Nothing", "Hm", FALLBACK_ACTIONS, 0))  # at the beginning it must go on


def test_most_of_a_batch_is_from_the_better_episodes() -> None:
    state_ids, reader = library_and_reader()
    learner = RcLearner(RcDqnSettings(), state_ids, reader, 1, 0, torch.device("cpu"))
    learner.memory.ordinary.add((0, 0, 0, 0, 1.0, False))
    assert learner.memory.split_batch() == (0, 64)
    learner.memory.priority.add((0, 0, 0, 0, 1.0, False))
    assert learner.memory.split_batch() == (33, 31)


def test_unused_texts_are_swept() -> None:
    agent = RcDqnAgent(replace(SMALL, capacity=20), Brief(1, 0))
    agent._state_ids._sweep_at = 60
    for i in range(80):
        here = observation(f"room {i} a lamp", "Nothing", "Hm", ("take lamp", "north"), i)
        agent.act([here])
        after = observation(f"room {i + 1} a lamp", "Nothing", "Hm", ("take lamp", "north"), i + 1)
        agent.learn([step(here, "north", 0, after)])
        agent._state_ids._sweep_at = 60
    assert len(agent._state_ids.texts) <= 60
    assert agent._state_ids.texts.text(agent._learner.memory.ordinary.copy_rows()["text"][-1]) == format_observation(
        here
    )


# --- runs -------------------------------------------------------------------------------------------------------------


class Stop:
    """Ends a session after so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, progress: TrainingProgress) -> bool:
        return progress.steps < self.steps


def run(folder: Path, settings: RcDqnSettings, steps: int, stops: tuple[int, ...] = (), games: int = 1) -> Any:
    """A run on a toy world, stopped and gone on with at these steps. Gives the last state and the progress."""
    torch.set_num_threads(1)
    game_setup = set_up_game("toy:corridor-5")
    config = RunConfig("toy:corridor-5", "rc-dqn", asdict(settings), steps=steps, num_envs=games, log_every=20)
    for number, stop in enumerate((*stops, steps)):
        with Run.open(folder) if number else Run.create(folder, config) as opened:
            agent = make_agent(opened.config, "cpu", ())
            vector = GameVector(game_setup.spec, games, workers=0)
            training = Training(opened, agent, vector)
            training.run(opened.restore() if number else None, Stop(stop))
            vector.close()
    return agent.state(), training.progress


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else bool(a == b)


@pytest.mark.parametrize(("history", "games"), [(False, 1), (True, 1), (True, 3)])
def test_a_resumed_run_goes_on_exactly(tmp_path: Path, history: bool, games: int) -> None:
    settings = replace(SMALL, history=history, target_every=30, episode_limit=25, epsilon_decay=60.0)
    whole, _ = run(tmp_path / "whole", settings, 180, games=games)
    parts, _ = run(tmp_path / "parts", settings, 180, stops=(33, 111), games=games)
    assert len(whole["learner"]["values"]) > 0
    assert equal(whole, parts)
    for name in ("metrics", "episodes"):
        assert list(read_lines(tmp_path / "whole", name)) == list(read_lines(tmp_path / "parts", name))


@pytest.mark.slow
def test_it_learns_the_corridor(tmp_path: Path) -> None:
    settings = RcDqnSettings(
        text=TextSettings(vocabulary=128), hidden=16, embedding=32, batch_size=32, learning_rate=1e-3, gamma=0.9,
        epsilon_decay=300.0, target_every=30, episode_limit=30,
    )  # fmt: skip
    run(tmp_path / "run", settings, 900)
    scores = [line["score"] for line in read_lines(tmp_path / "run", "episodes")]
    assert np.mean(scores[-20:]) > 8, scores  # at random: 2.9


def test_the_presets() -> None:
    assert make_preset("rc-dqn", "zork1") == RcDqnSettings()
    assert make_preset("mprc-dqn", "zork1") == RcDqnSettings(history=True)
