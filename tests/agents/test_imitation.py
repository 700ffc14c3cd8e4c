"""The imitation policy: what it reads, what its scores and losses are, and that it learns, repeats and resumes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xtx.agents.xtx import imitation
from xtx.agents.xtx.imitation import Context, ImitationPolicy, ImitationSettings
from xtx.agents.xtx.imitation_training import Batch, EagerSteps, Example
from xtx.kernels.cuda.imitation_scores import pack
from xtx.networks.gpt import GPT, NOTHING, Sizes
from xtx.text.text_table import END, SEP, START

Ints = NDArray[np.int32]

TINY = ImitationSettings(
    layers=2, heads=2, width=16, context=48, action_room=6, batch_size=8, passes=30, dropout=0.0, learning_rate=1e-2
)
VOCABULARY = 64


pytestmark = pytest.mark.usefixtures("one_thread")


class Table:
    """A text table that holds what it is given."""

    def __init__(self, texts: list[list[int]]) -> None:
        self.texts = [np.array([START, *words, END], np.int32) for words in texts]

    def tokens(self, number: int) -> Ints:
        return self.texts[number]


def table(seed: int = 0, count: int = 40, longest: int = 9) -> Table:
    draw = np.random.default_rng(seed)
    return Table([draw.integers(4, VOCABULARY, draw.integers(1, longest)).tolist() for _ in range(count)])


def prefixes(seed: int, lengths: list[int], texts: int = 40) -> list[Ints]:
    """Prefixes that go through the same states: the first `length` steps of one walk."""
    walk = np.random.default_rng(seed).integers(0, texts, (max(lengths), 4)).astype(np.int32)
    return [walk[:length] for length in lengths]


def policy(settings: ImitationSettings = TINY, seed: int = 0, texts: Table | None = None) -> ImitationPolicy:
    return ImitationPolicy(settings, texts or table(), VOCABULARY, seed)


def slow_score(model: GPT, context: list[int], action: list[int]) -> float:
    """The mean log-probability of an action's tokens, from one row without any sharing."""
    with torch.no_grad():
        guessed = model(torch.tensor([[*context, *action]]))[0].log_softmax(-1)
    said = [guessed[len(context) - 1 + place, word].item() for place, word in enumerate(action)]
    return sum(said) / len(said)


def plain_context(texts: Table, context: Context) -> list[int]:
    row = [START]
    for text in context:
        row += [] if text < 0 else texts.tokens(text).tolist()[1:-1]
        row.append(SEP)
    return row


def test_the_context_is_what_the_paper_says() -> None:
    texts = Table([[10], [11, 12], [20, 21], [30], [40, 41]])
    agent = ImitationPolicy(TINY, texts, VOCABULARY)
    row = agent._make_context((0, 1, 2, 3, 4)).tolist()
    assert row == [START, 10, SEP, 11, 12, SEP, 20, 21, SEP, 30, SEP, 40, 41, SEP]
    assert agent._make_context((-1, 0, 2, 3, 4)).tolist()[:4] == [START, SEP, 10, SEP]
    (first, second, third) = agent._make_examples([np.array([[2, 3, 4, 0], [2, 3, 3, 1], [3, 3, 3, 0]], np.int32)])
    assert first.tokens.tolist() == [START, SEP, SEP, 20, 21, SEP, 30, SEP, 40, 41, SEP, 10, END]
    assert second.tokens.tolist() == [START, SEP, 10, SEP, 20, 21, SEP, 30, SEP, 30, SEP, 11, 12, END]
    assert third.tokens.tolist()[:7] == [START, 10, SEP, 11, 12, SEP, 30]
    assert (third.context, third.num_predicted) == (12, 2)


def test_the_oldest_tokens_are_dropped() -> None:
    texts = Table([[10], [11], list(range(4, 60)), [30], [40]])
    agent = ImitationPolicy(TINY, texts, VOCABULARY)
    row = agent._make_context((0, 1, 2, 3, 4)).tolist()
    assert row == plain_context(texts, (0, 1, 2, 3, 4))[-42:]
    assert agent._make_action(2).tolist() == [4, 5, 6, 7, 8, 9]


def test_a_batch_predicts_the_action_and_its_end_only() -> None:
    examples = [Example(np.array([1, 5, 3, 8, 9, 2], np.int32), 3, 4), Example(np.array([1, 3, 7, 2], np.int32), 2)]
    batch = Batch.from_examples(examples)
    assert batch.tokens.tolist() == [[1, 5, 3, 8, 9], [1, 3, 7, 2, 0]]
    assert batch.at.tolist() == [[2, 3, 4], [1, 2, 0]]
    assert batch.labels[0].tolist() == [8, 9, 2]
    assert batch.labels[1, :2].tolist() == [7, 2]
    assert batch.weights.tolist() == [[4, 4, 4], [1, 1, 0]]


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_probabilities_are_those_of_each_action_by_itself(data: st.DataObject) -> None:
    number = st.integers(0, 39)
    texts = table(data.draw(st.integers(0, 3)), longest=data.draw(st.sampled_from([4, 9, 20])))  # 20: many are cut
    agent = policy(seed=data.draw(st.integers(0, 3)), texts=texts)
    with torch.no_grad():
        agent.model.words.weight.mul_(20)
    count = data.draw(st.integers(1, 5))
    contexts = [data.draw(st.tuples(st.integers(-1, 39), st.integers(-1, 39), number, number, number))] * 2
    contexts += [data.draw(st.tuples(number, number, number, number, number)) for _ in range(count)]
    valid = [data.draw(st.lists(number, min_size=1, max_size=8)) for _ in contexts]
    got = agent.probabilities(contexts, valid)
    for context, actions, probabilities in zip(contexts, valid, got, strict=True):
        row = plain_context(texts, context)[-42:]
        scores = [slow_score(agent.model, row, texts.tokens(action).tolist()[1:][:6]) for action in actions]
        wanted = torch.tensor(scores).mul(3).softmax(0).numpy()
        np.testing.assert_allclose(probabilities, wanted, atol=1e-5)
        assert probabilities.sum() == pytest.approx(1)


def test_paper_size_contexts_cut_at_512() -> None:
    draw = np.random.default_rng(0)
    texts = Table([draw.integers(4, VOCABULARY, size).tolist() for size in (3, 2, 150, 250, 160, 1, 9, 31)])
    agent = ImitationPolicy(ImitationSettings(), texts, VOCABULARY)
    context, actions = (0, 1, 2, 3, 4), [0, 1, 5, 6, 7]
    row = plain_context(texts, context)
    assert len(row) > 512
    (got,) = agent.probabilities([context], [actions])
    scores = [slow_score(agent.model, row[-480:], texts.tokens(action).tolist()[1:]) for action in actions]
    np.testing.assert_allclose(got, torch.tensor(scores).mul(3).softmax(0).numpy(), atol=1e-5)


def test_states_asked_for_together_and_alone_have_the_same_bits() -> None:
    contexts: list[Context] = [(-1, -1, 1, 2, 3), (4, 5, 6, 7, 8), (-1, -1, 1, 2, 3)]
    valid = [[1, 2, 3], [4, 5, 6, 7], [1, 2, 3]]
    agent = policy()
    together = agent.probabilities(contexts, valid)
    for place in (2, 1, 0):
        alone = policy().probabilities(contexts[place : place + 1], valid[place : place + 1])[0]
        assert np.array_equal(together[place], alone)
    with pytest.raises(ValueError, match="read-only"):
        together[0][0] = 1


def test_what_is_remembered_ends_with_the_weights_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imitation, "MAX_CACHED_STATES", 5)
    agent = policy(replace(TINY, passes=1))
    first = agent.probabilities([(-1, -1, 1, 2, 3)], [[1, 2, 3]])[0]
    for number in range(20):
        agent.probabilities([(-1, -1, number, 2, 3), (-1, -1, 1, 2, 3)], [[1, 2, 3]] * 2)
        assert len(agent._cached) <= 5
    assert np.array_equal(first, agent.probabilities([(-1, -1, 1, 2, 3)], [[1, 2, 3]])[0])
    agent.train(prefixes(0, [4, 9]))
    assert not np.array_equal(first, agent.probabilities([(-1, -1, 1, 2, 3)], [[1, 2, 3]])[0])


def test_a_number_that_stands_for_another_text_is_noticed() -> None:
    texts = table()
    agent = policy(texts=texts)
    before = agent.probabilities([(-1, -1, 1, 2, 3)], [[4, 5]])[0]
    texts.texts[4] = texts.texts[9]
    agent.clear_cache()
    assert not np.array_equal(before, agent.probabilities([(-1, -1, 1, 2, 3)], [[4, 5]])[0])


def test_dropout_is_off_when_scoring() -> None:
    settings = replace(TINY, dropout=0.5)
    agent, other = policy(settings), policy(replace(settings, dropout=0.0))
    for _ in range(3):
        asked = ([(1, 2, 3, 4, 5)], [[1, 2, 3]])
        agent._cached.clear()
        assert np.array_equal(agent.probabilities(*asked)[0], other.probabilities(*asked)[0])
    assert (
        agent.state()["bits"]["state"]["state"].tolist() == policy(settings).state()["bits"]["state"]["state"].tolist()
    )


def test_it_learns_what_it_is_shown() -> None:
    agent = policy(replace(TINY, dropout=0.1, passes=60))
    walk = prefixes(1, [12, 12, 7])
    report = agent.train(walk)
    assert report["pairs"] == 31
    assert report["steps"] == 60 * 4
    assert report["loss_last"] < 0.3 < 3 < report["loss_first"]
    assert report["accuracy"] > 0.9
    contexts = [context for context, _ in imitation._iterate_pairs(walk[0])]
    taken = [action for _, action in imitation._iterate_pairs(walk[0])]
    for probabilities, action in zip(agent.probabilities(contexts, [list(range(40))] * 12), taken, strict=True):
        same = [
            number for number in range(40) if np.array_equal(agent._make_action(number), agent._make_action(action))
        ]
        assert int(probabilities.argmax()) in same


def test_a_training_ends_when_it_is_good_enough() -> None:
    """Which is measured from what is possible: two prefixes begin with different actions in the same state."""
    walk = prefixes(1, [12, 12])
    walk[1] = walk[1].copy()
    walk[1][0, 3] += 1
    assert imitation._compute_least_loss(walk) == pytest.approx(2 * np.log(2))
    whole = policy(replace(TINY, passes=200)).train(walk)
    assert whole["steps"] == 200 * 3
    agent = policy(replace(TINY, passes=200, enough=0.1))
    report = agent.train(walk)
    said = sum(len(agent._make_action(int(row[3]))) for prefix in walk for row in prefix)
    assert report["loss_last"] < 0.1 + 2 * np.log(2) / said
    assert 3 < report["steps"] < 200 * 3 and report["steps"] % 3 == 0
    again = agent.train(walk)
    assert again["steps"] < report["steps"]  # it is known already


def weights_after(settings: ImitationSettings, walk: list[Ints]) -> dict[str, Any]:
    agent = policy(settings)
    agent.train(walk)
    return {name: weight.detach().clone() for name, weight in agent.model.named_parameters()}


def test_length_groups_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(TINY, passes=1, batch_size=32, learning_rate=1e-3)
    walk = prefixes(2, [25, 30, 11])
    grouped = weights_after(settings, walk)
    monkeypatch.setattr(imitation, "GROUP", settings.batch_size)
    plain = weights_after(settings, walk)
    for name, weight in grouped.items():
        torch.testing.assert_close(weight, plain[name], atol=2e-5, rtol=1e-3)


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=5), group=st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_gradients_of_groups_add_up_to_the_batchs(lengths: list[int], group: int) -> None:
    agent = policy()
    examples = agent._make_examples(prefixes(3, lengths))
    gradients = []
    for size in (group, len(examples)):
        model = copy.deepcopy(agent.model)
        # a step of size 0 leaves weights and gradients as they are
        EagerSteps(model, 0.0, 1e9, None, size).step(examples)
        gradients.append([weight.grad for weight in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_merged_pairs_have_the_gradient_of_the_pairs_they_stand_for() -> None:
    settings = replace(TINY, passes=1, batch_size=1000)
    walk = prefixes(2, [5, 5, 9, 3])
    plain, merged = policy(settings), policy(replace(settings, merge_identical=True))
    assert (len(plain._make_examples(walk)), len(merged._make_examples(walk))) == (22, 9)
    first, second = plain.train(walk), merged.train(walk)
    assert second["pairs"] == 22
    assert second["loss_first"] == pytest.approx(first["loss_first"], rel=1e-5)
    for one, other in zip(plain.model.parameters(), merged.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)


def test_merged_pairs_are_dealt_into_as_many_batches() -> None:
    agent = policy(replace(TINY, merge_identical=True, passes=3))
    walk = prefixes(4, [20] * 5 + [10] * 5)
    report = agent.train(walk)
    assert 3 * 18 <= report["steps"] <= 3 * 19  # 150 pairs in batches of 8; the last may have been filled before
    for _ in range(5):
        counts = [sum(example.count for example in batch) for batch in agent._draw_batches(agent._make_examples(walk))]
        assert sum(counts) == 150


def test_every_pass_takes_every_pair_once() -> None:
    agent = policy()
    examples = agent._make_examples(prefixes(4, [20, 13]))
    orders = []
    for _ in range(2):
        batches = list(agent._draw_batches(examples))
        assert [len(batch) for batch in batches] == [8, 8, 8, 8, 1]
        orders.append([id(example) for batch in batches for example in batch])
        assert sorted(orders[-1]) == sorted(map(id, examples))
    assert orders[0] != orders[1]


def test_the_optimiser_is_fresh_and_the_weights_are_carried_over() -> None:
    walk = prefixes(5, [15])
    settings = replace(TINY, passes=5)
    once, twice = policy(settings), policy(settings)
    twice.train(walk)
    state = twice.state()
    report = twice.train(walk)
    once.load(state)
    assert once.train(walk) == report
    assert report["loss_first"] < policy(settings).train(walk)["loss_first"]


@given(before=st.integers(0, 2), seed=st.integers(0, 3))
@settings(max_examples=8, deadline=None)
def test_a_loaded_policy_goes_on_exactly(before: int, seed: int) -> None:
    settings = replace(TINY, dropout=0.1, passes=2)
    agent = policy(settings, seed)
    for number in range(before):
        agent.train(prefixes(number, [9, 4]))
    saved = copy.deepcopy(agent.state())
    agent.probabilities([(1, 2, 3, 4, 5)], [[1, 2]])
    wanted = agent.train(prefixes(7, [11, 3]))
    other = policy(settings, seed + 1)
    other.load(saved)
    assert other.train(prefixes(7, [11, 3])) == wanted
    for one, two in zip(agent.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_state_is_made_of_plain_things() -> None:
    def leaves(value: Any) -> list[Any]:
        return [leaf for part in value.values() for leaf in leaves(part)] if isinstance(value, dict) else [value]

    agent = policy()
    agent.train(prefixes(0, [5]))
    assert {type(leaf) for leaf in leaves(agent.state())} <= {np.ndarray, int, float, str, list}
    state = agent.state()
    kept = copy.deepcopy(state)
    agent.train(prefixes(0, [5]))
    assert all(np.array_equal(state["weights"][name], kept["weights"][name]) for name in kept["weights"])


def test_the_same_seed_gives_the_same_run_whatever_torch_drew_before() -> None:
    settings = replace(TINY, dropout=0.1, passes=2)
    reports = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        reports.append(policy(settings).train(prefixes(0, [9])))
    assert reports[0] == reports[1]
    assert policy(settings, seed=1).train(prefixes(0, [9])) != reports[0]


def test_progress_is_told_and_may_end_the_training() -> None:
    told: list[tuple[int, int]] = []

    def progress(done: int, steps: int) -> None:
        told.append((done, steps))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        policy().train(prefixes(0, [9]), progress)
    assert told == [(1, 60), (2, 60), (3, 60)]


def test_settings_without_room_are_refused() -> None:
    with pytest.raises(ValueError, match="room"):
        ImitationSettings(context=33)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_graphed_steps_equal_eager_ones(dropout: float) -> None:
    settings = ImitationSettings(dropout=dropout, passes=6)
    walk = prefixes(0, [60, 30, 70])
    reports = []
    for recorded in (True, False):
        agent = ImitationPolicy(settings, table(), VOCABULARY, 0, "cuda")
        if not recorded:
            agent._recorded = None
        # twice: the second training must find a fresh optimiser in the graphs of the first
        reports.append([agent.train(walk), agent.train(walk)])
    for graphed, eager in zip(*reports, strict=True):
        assert graphed["loss_first"] == pytest.approx(eager["loss_first"], rel=0.1 if dropout else 1e-3)
        assert graphed["loss_last"] == pytest.approx(eager["loss_last"], rel=0.1 if dropout else 1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_probabilities_on_a_gpu_are_those_of_a_cpu() -> None:
    contexts: list[Context] = [(-1, -1, 1, 2, 3), (4, 5, 6, 7, 8)]
    valid = [[1, 2, 3], [4, 5, 6, 7]]
    ours = ImitationPolicy(TINY, table(), VOCABULARY, 0, "cuda").probabilities(contexts, valid)
    for one, other in zip(ours, policy().probabilities(contexts, valid), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_sizes_follow_the_settings() -> None:
    assert ImitationPolicy(ImitationSettings(), table(), 77).model.sizes == Sizes(77, 3, 4, 128, 512)


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_packing_for_a_gpu_is_what_the_plain_way_writes(seed: int, states: int) -> None:
    random = np.random.default_rng(seed)
    rows = [random.integers(1, 99, random.integers(1, 20)).astype(np.int32) for _ in range(states)]
    says = [
        [random.integers(1, 99, random.integers(1, 5)).astype(np.int32) for _ in range(random.integers(1, 7))]
        for _ in rows
    ]
    shape = (8, 24, 8, 4)
    lengths, tokens = np.zeros(8, np.int32), np.zeros((8, 24), np.int32)
    inputs = np.zeros((8, 8, 4), np.int32)
    labels = np.full_like(inputs, NOTHING)
    for state, (row, valid) in enumerate(zip(rows, says, strict=True)):
        lengths[state] = len(row) - 1
        tokens[state, : len(row) - 1] = row[:-1]
        inputs[state, :, 0] = row[-1]
        for at, said in enumerate(valid):
            inputs[state, at, 1 : len(said)] = said[:-1]
            labels[state, at, : len(said)] = said
    plain = np.concatenate([part.ravel() for part in (lengths, tokens, inputs, labels)])
    assert (pack(rows, says, shape) == plain).all()
