"""The Q-learner against a plain version of it: torch.nn modules with the same weights, one row at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xtx.agents.q_learning.drrn_agents import DrrnAgent, InvDyAgent
from xtx.agents.q_learning.learner import QLearner
from xtx.agents.q_learning.plain_engine import _Codes, _encode, make_network
from xtx.agents.state_ids import EncodedState, StateIds
from xtx.config.settings import DrrnSettings, InvDySettings, InverseSettings, QSettings, TextSettings
from xtx.core import Brief, Decision, Observation, State, Transition
from xtx.text.text_table import START

HIDDEN = 16
PARTS = ("narration", "look", "inventory")
INVERSE = InverseSettings(alpha1=0.7, alpha2=0.6, alpha3=0.3)


class Plain:
    """Q-network and inverse dynamics out of torch.nn, with the weights of a saved engine."""

    def __init__(self, weights: State, state_ids: StateIds) -> None:
        self._weights = {name: torch.from_numpy(array.copy()) for name, array in weights.items()}
        self._state_ids = state_ids
        self.embedding = self._weights["texts.embedding"]
        self.grus = {part: self._gru(f"texts.{part}") for part in (*PARTS, "action")}
        self.inverse = "decoder.weight_ih" in weights
        if self.inverse:
            self._decoder = nn.GRUCell(HIDDEN, HIDDEN)
            self._decoder.load_state_dict(self._below("decoder"))

    def _below(self, prefix: str) -> dict[str, Tensor]:
        return {n.removeprefix(f"{prefix}."): w for n, w in self._weights.items() if n.startswith(f"{prefix}.")}

    def _gru(self, prefix: str) -> nn.GRU:
        gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        gru.load_state_dict({f"{name}_l0": weight for name, weight in self._below(prefix).items()})
        return gru

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return self._weights[f"{name}.weight"] @ x + self._weights[f"{name}.bias"]

    def code(self, part: str, text: int) -> Tensor:
        tokens = torch.from_numpy(self._state_ids.texts.tokens(text).astype(np.int64))
        return self.grus[part](self.embedding[tokens][None])[1][0, 0]

    def state(self, texts: Sequence[int]) -> Tensor:
        codes = torch.cat([self.code(part, int(text)) for part, text in zip(PARTS, texts, strict=True)])
        return self._linear("state_layer", codes) if self.inverse else codes

    def q(self, texts: Sequence[int], action: int) -> Tensor:
        both = torch.cat((self.state(texts), self.code("action", int(action))))
        return self._linear("value_layer", self._linear("hidden_layer", both).clamp(min=0))[0]

    def best(self, texts: Sequence[int], actions: int) -> float:
        values = [self.q(texts, int(a)).item() for a in self._state_ids.action_sets.actions(actions)]
        return max(values, default=0.0)

    def guess(self, before: Sequence[int], after: Sequence[int]) -> Tensor:
        first, second = self.state(before), self.state(after)
        hidden = self._linear("inverse.0", torch.cat((first, second - first))).clamp(min=0)
        return self._linear("inverse.2", hidden)

    def surprise(self, start: Tensor, action: int) -> list[Tensor]:
        state, said, found = start[None], START, []
        for token in self._state_ids.texts.tokens(int(action))[1:]:
            state = self._decoder(self.embedding[said][None], state)
            chances = torch.log_softmax(self._linear("words", state[0]), 0)
            found.append(-chances[int(token)])
            said = int(chances.argmax())
        return found

    def losses(self, batch: NDArray[np.void], target: Plain, gamma: float) -> dict[str, float]:
        """What one update must report."""
        td, q_sum = 0.0, 0.0
        guessed: list[Tensor] = []
        decoded: list[Tensor] = []
        for row in batch:
            before, after = ([row[prefix + part] for part in PARTS] for prefix in ("", "next_"))
            follows = 0.0 if row["terminal"] else target.best(after, row["next_actions"])
            q = self.q(before, row["action"]).item()
            error = abs(q - float(row["reward"]) - gamma * follows)
            td += error**2 / 2 if error < 1 else error - 0.5
            q_sum += q
            if self.inverse:
                guessed += self.surprise(self.guess(before, after), row["action"])
                decoded += self.surprise(self.code("action", int(row["action"])), row["action"])
        n = len(batch)
        numbers = {"loss_td": td / n, "q": q_sum / n, "reward": float(batch["reward"].mean())}
        if self.inverse:
            numbers["loss_inverse"] = torch.stack(guessed).mean().item()
            numbers["loss_decoding"] = torch.stack(decoded).mean().item()
        return numbers


def plain(learner: QLearner, state_ids: StateIds, *, target: bool = False) -> Plain:
    engine = learner.state()["engine"]
    return Plain(engine["target"]["network"] if target else engine["network"], state_ids)


def flat(state: State) -> str:
    """A state as text that shows every number."""
    if isinstance(state, dict):
        return "".join(f"{key}:{flat(value)};" for key, value in sorted(state.items()))
    return repr(state.tolist()) if isinstance(state, np.ndarray) else repr(state)


class Play:
    """A made-up game: random texts, actions, scores and ends, fed to a learner."""

    def __init__(self, inverse: InverseSettings | None, games: int = 4, **q: object) -> None:
        settings = {"hidden": HIDDEN, "batch_size": 12, "capacity": 200, "target_every": 5, "learning_rate": 1e-2, **q}
        self.state_ids = StateIds(TextSettings(64, 12))
        self.settings = QSettings(**settings)  # type: ignore[arg-type]
        self.learner = QLearner(self.settings, inverse, self.state_ids, games, 3, torch.device("cpu"))
        self.random = np.random.default_rng(5)
        self.now = [self.observation() for _ in range(games)]

    def observation(self, over: bool = False) -> Observation:
        def words(most: int) -> str:
            return " ".join(f"{chr(97 + w)}" for w in self.random.integers(0, 20, self.random.integers(1, most)))

        score, step = int(self.random.integers(0, 4)), 0
        if over:
            return Observation(words(6), "", "", (), score, step)
        return Observation(words(6), words(6), words(3), tuple(words(4) for _ in range(3)), score, step)

    def build_transitions(self) -> list[Transition]:
        found = []
        for game, before in enumerate(self.now):
            end = self.random.random()
            over, limit = end < 0.1, 0.1 <= end < 0.2
            action = before.actions[self.random.integers(len(before.actions))]
            after = self.observation(over)
            reward = int(self.random.integers(-1, 3))
            found.append(Transition(game, before, Decision(action), reward, after, over, limit))
        return found

    def seen(self, transitions: Sequence[Transition]) -> tuple[list[EncodedState], list[int], list[EncodedState]]:
        return (
            [self.state_ids.encode(t.before) for t in transitions],
            [self.state_ids.texts.id(t.decision.action) for t in transitions],
            [self.state_ids.encode(t.after) for t in transitions],
        )

    def step(self) -> tuple[list[Transition], dict[str, float]]:
        transitions = self.build_transitions()
        self.learner.store(transitions, *self.seen(transitions))
        self.now = [self.observation() if t.ended else t.after for t in transitions]
        return transitions, dict(self.learner.update())


@pytest.mark.parametrize("inverse", [None, INVERSE], ids=["drrn", "inv-dy"])
def test_values_are_those_of_a_plain_network(inverse: InverseSettings | None) -> None:
    play = Play(inverse)
    for _ in range(12):
        play.step()
    states = [play.state_ids.encode(play.observation()) for _ in range(6)]
    slow = plain(play.learner, play.state_ids)
    found = play.learner.q_values([*states, states[0]])
    assert [len(values) for values in found] == [3] * 7
    for state, values in zip([*states, states[0]], found, strict=True):
        actions = play.state_ids.action_sets.actions(state.actions)
        expected = [slow.q(state[:3], int(action)).item() for action in actions]
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inverse", [None, INVERSE], ids=["drrn", "inv-dy"])
def test_updates_report_the_losses_of_a_plain_network(
    inverse: InverseSettings | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also right before and after the target network is copied, where what it said before must be forgotten."""
    play = Play(inverse)
    memory, batches = play.learner.memory, []
    sample = memory.sample
    monkeypatch.setattr(memory, "sample", lambda: batches.append(sample()) or batches[-1])
    compared = 0
    for _ in range(16):
        seen = plain(play.learner, play.state_ids), plain(play.learner, play.state_ids, target=True)
        _, numbers = play.step()
        if not numbers:
            continue
        compared += 1
        expected = seen[0].losses(batches[-1], seen[1], 0.9)
        assert set(numbers) == {*expected, "gradient_norm"}
        for name, number in expected.items():
            assert numbers[name] == pytest.approx(number, rel=1e-3, abs=1e-4), name
    assert compared >= 12
    everything = np.concatenate(batches)
    assert everything["terminal"].any()
    assert not everything["terminal"].all()


def test_updates_begin_with_a_full_batch_and_copy_the_target_when_due() -> None:
    play = Play(INVERSE, games=4)
    reported = [bool(play.step()[1]) for _ in range(8)]
    assert reported == [False, False, True, True, True, True, True, True]  # 12 of 4 a step: the third
    same = []
    for _ in range(10):
        engine = play.learner.state()["engine"]
        pairs = [np.array_equal(engine["network"][name], array) for name, array in engine["target"]["network"].items()]
        assert len(set(pairs)) == 1
        same.append((engine["updates"], pairs[0]))
        play.step()
    assert same == [(updates, updates % 5 == 0) for updates in range(6, 16)]


def test_gradients_are_clipped_and_all_of_them_flow() -> None:
    """Every weight of INV-DY has a part in the loss: after one update all of them have moved."""
    play = Play(INVERSE, learning_rate=1e-3)
    before = play.learner.state()["engine"]["network"]
    while not play.step()[1]:
        pass
    after = play.learner.state()["engine"]["network"]
    for name, weight in before.items():
        assert not np.array_equal(weight, after[name]), name
        assert np.abs(after[name] - weight).max() <= 1.001e-3  # Adam's first step is as long as its rate


def test_a_clipped_update_differs_and_reports_the_norm_before() -> None:
    wild, tame = Play(None), Play(None, clip=1e-9)
    numbers = []
    for play in (wild, tame):
        while not (found := play.step()[1]):
            pass
        numbers.append(found)
    assert numbers[0] == numbers[1]
    assert numbers[0]["gradient_norm"] > 1e-3
    wild_engine, tame_engine = (play.learner.state()["engine"] for play in (wild, tame))
    moments = [
        max(np.abs(slot["exp_avg"]).max() for slot in engine["optimiser"].values())
        for engine in (wild_engine, tame_engine)
    ]
    assert moments[0] > 1e-5
    assert moments[1] <= 1e-10


def test_intrinsic_reward_is_the_surprise_before_the_update_and_is_stored_with_the_games_own() -> None:
    play = Play(INVERSE)
    for _ in range(12):
        slow = plain(play.learner, play.state_ids)
        transitions, _ = play.step()
        before, actions, after = play.seen(transitions)
        rows = play.learner.memory.ordinary.copy_rows()[-len(transitions) :]
        for i, t in enumerate(transitions):
            surprise = torch.stack(slow.surprise(slow.guess(before[i][:3], after[i][:3]), actions[i])).mean().item()
            assert rows[i]["reward"] == pytest.approx(t.reward + 0.7 * surprise, rel=1e-4, abs=1e-4)
            assert bool(rows[i]["terminal"]) == t.ended == (t.terminated or t.truncated)
            if t.terminated:  # and it still earned its bonus
                assert play.state_ids.texts.text(int(rows[i]["next_look"])) == "unknown"
                assert play.state_ids.texts.text(int(rows[i]["next_inventory"])) == "unknown"
                assert rows[i]["next_actions"] == play.state_ids.action_sets.none
                assert rows[i]["reward"] > t.reward


def test_without_inverse_dynamics_the_reward_is_the_games() -> None:
    play = Play(None)
    transitions, _ = play.step()
    assert play.learner.memory.ordinary.copy_rows()["reward"].tolist() == [t.reward for t in transitions]


def test_episodes_with_the_best_final_score_enter_the_priority_part() -> None:
    """By hand: final scores 0 (equal to the best so far, which begins at 0), 2 (better), 1 (worse), 2 (equal)."""
    play = Play(None, games=1, capacity=100, priority_share=0.4, batch_size=10)
    lengths = {0: 2, 2: 3, 1: 4}
    held = []
    for final in (0, 2, 1, 2, -1):
        for step in range(lengths.get(final, 1)):
            last = step == lengths.get(final, 1) - 1
            before, after = play.observation(), play.observation()
            after = Observation(after.text, after.look, after.inventory, after.actions, final if last else 9, step + 1)
            t = [Transition(0, before, Decision(before.actions[0]), 0, after, False, last)]
            play.learner.store(t, *play.seen(t))
        held.append(len(play.learner.memory.priority))
    assert held == [2, 3, 3, 6, 6]
    assert len(play.learner.memory.ordinary) == 2 + 3 + 4 + 3 + 1
    assert play.learner.memory.split_batch() == (4, 6)


def test_presets_of_the_paper() -> None:
    inv_dy = QLearner(QSettings(), InverseSettings(), StateIds(TextSettings()), 8, 0, torch.device("cpu")).memory
    assert (inv_dy.ordinary.capacity, inv_dy.priority.capacity, inv_dy.batch_size) == (6_000, 4_000, 64)
    drrn = QLearner(DrrnSettings().q, None, StateIds(TextSettings()), 8, 0, torch.device("cpu")).memory
    assert (drrn.ordinary.capacity, drrn.priority.capacity, drrn.batch_size) == (250_000, 250_000, 64)
    for memory, parts in ((inv_dy, (25, 39)), (drrn, (32, 32))):
        rows = np.zeros(64, memory.dtype)
        memory.ordinary.extend(rows)
        memory.priority.extend(rows)
        assert memory.split_batch() == parts


@pytest.mark.parametrize("inverse", [None, INVERSE], ids=["drrn", "inv-dy"])
def test_a_learner_goes_on_exactly(inverse: InverseSettings | None) -> None:
    """Stopped between two copies of the target, so that what the target said so far matters."""
    play, again = Play(inverse), Play(inverse)
    for _ in range(9):
        assert play.step()[1] == again.step()[1]
    saved, texts = again.learner.state(), again.state_ids.state()
    again.state_ids.load(texts)
    again.learner = QLearner(again.settings, inverse, again.state_ids, 4, 99, torch.device("cpu"))
    again.learner.load(saved)
    # What the target said is kept too: worked out again in other company, its last bits may differ.
    assert len(saved["engine"]["target"]["values"]) > 0
    assert flat(again.learner.state()) == flat(saved)
    for _ in range(12):
        assert play.step()[1] == again.step()[1]


def test_what_a_gpu_saved_goes_on_here() -> None:
    """It keeps none of the target's codes, and numbers that it has not told yet; all else is the same."""
    play, again = Play(INVERSE), Play(INVERSE)
    for _ in range(9):
        assert play.step()[1] == again.step()[1]
    saved = again.learner.state()
    del saved["engine"]["target"]["codes"]
    saved["engine"]["numbers"] = {"loss_td": 1.0}
    again.learner = QLearner(again.settings, INVERSE, again.state_ids, 4, 99, torch.device("cpu"))
    again.learner.load(saved)
    for _ in range(12):
        assert again.step()[1] == pytest.approx(play.step()[1], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("inverse", [None, INVERSE], ids=["drrn", "inv-dy"])
def test_learning_before_the_actions_are_known_is_the_same(inverse: InverseSettings | None) -> None:
    """An update that draws a new transition waits for its actions; others do not, and all give the same losses."""
    play, early = Play(inverse), Play(inverse)
    waited = []
    for _ in range(60):
        _, numbers = play.step()
        transitions = early.build_transitions()
        before, actions, after = early.seen(transitions)
        glimpsed = [early.state_ids.encode_without_actions(t.after, t.ended, i) for i, t in enumerate(transitions)]
        assert [seen[:3] for seen in glimpsed] == [seen[:3] for seen in after]
        early.learner.store(transitions, before, actions, glimpsed)
        first = dict(early.learner.update())
        then = dict(early.learner.complete(transitions, after))
        assert not (first and then)
        # Where the step limit ended an episode no actions are kept, so texts lie in another order: rounding.
        assert {**first, **then} == pytest.approx(numbers, rel=1e-4, abs=1e-5)
        early.now = [early.observation() if t.ended else t.after for t in transitions]
        if numbers:
            waited.append(bool(then))
    assert any(waited) and not all(waited)
    kept, others = (p.learner.memory.ordinary.copy_rows() for p in (play, early))
    going_on = ~kept["terminal"]
    assert (kept["next_actions"][going_on] == others["next_actions"][going_on]).all()
    assert (others["next_actions"] >= 0).all()


def test_forgetting_texts_does_not_change_what_is_learned() -> None:
    """Exactly, as far as only numbers change; what is worked out again may differ in its last bits."""
    play, forgetful = Play(INVERSE, capacity=40), Play(INVERSE, capacity=40)
    for step in range(25):
        numbers, others = play.step()[1], forgetful.step()[1]
        assert numbers == pytest.approx(others, rel=1e-4, abs=1e-5)
        if step % 4 == 3:
            forgetful.learner.drop_unused([forgetful.state_ids.encode(o) for o in forgetful.now])
    assert len(forgetful.state_ids.texts) < 0.7 * len(play.state_ids.texts)


@pytest.mark.parametrize("kind", [DrrnAgent, InvDyAgent])
def test_agents_draw_from_the_softmax_of_their_values(kind: type[DrrnAgent] | type[InvDyAgent]) -> None:
    text, q = TextSettings(64, 12), QSettings(hidden=HIDDEN, temperature=0.2)
    settings = DrrnSettings(text, q) if kind is DrrnAgent else InvDySettings(text, q)
    agent = kind(settings, Brief(num_envs=1, seed=4))
    assert agent.episode_limit == 100
    seen = Observation("a b", "c", "d", ("a", "b c", "d"), 0, 0)
    chances = agent.insight(seen, ()).probabilities
    assert sum(chances.values()) == pytest.approx(1)
    slow = Plain(agent.state()["learner"]["engine"]["network"], agent._state_ids)
    state = agent._state_ids.encode(seen)
    actions = agent._state_ids.action_sets.actions(state.actions)
    values = torch.stack([slow.q(state[:3], int(a)) for a in actions])
    expected = torch.softmax(values / 0.2, 0).tolist()
    assert list(chances.values()) == pytest.approx(expected, rel=1e-3)
    drawn = [agent.act([seen])[0].action for _ in range(2000)]
    for action, chance in chances.items():
        assert drawn.count(action) / 2000 == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 2000) ** 0.5)


def test_the_target_has_room_only_for_what_it_was_asked() -> None:
    """Else every copy of the target network would cost the more the more texts are known."""
    state_ids = StateIds(TextSettings(64, 12))
    numbers = np.array([state_ids.texts.id(f"text {number}") for number in range(5000)])
    network = make_network(None, 64, HIDDEN)
    encoder, embedding = network.texts.look, network.texts.embedding
    codes = _Codes(encoder, embedding, state_ids)
    asked = numbers[[4999, 3, 3, 2000]]
    with torch.no_grad():
        first = codes.look_up(asked)
        again = codes.look_up(numbers[1990:2100])
        assert torch.equal(codes.look_up(asked), first)
        assert torch.equal(again[10], first[3])
        assert torch.allclose(first, _encode(encoder, embedding, state_ids, asked), atol=1e-6)
    assert len(codes._codes) < 200
    saved = codes.state()
    other = _Codes(encoder, embedding, state_ids)
    other.load(saved)
    assert saved["texts"].tolist() == [3, *range(1990, 2100), 4999]
    assert torch.equal(other.look_up(asked), first)
