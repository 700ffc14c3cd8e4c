"""The networks against plain torch.nn modules with the same weights, row by row, and their gradients in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from xtx.agents.q_learning.plain_engine import make_network
from xtx.config.settings import InverseSettings
from xtx.kernels.cpu.gru import PrefixTree
from xtx.networks.losses import mean_over_tokens, mean_per_action, td_loss
from xtx.networks.q_networks import DrrnNetwork, Encoder, InvDyNetwork, TextEncoders
from xtx.text.text_table import END, START

VOCABULARY, HIDDEN = 11, 5


def plan(rows: list[list[int]]) -> PrefixTree:
    return PrefixTree(np.concatenate(rows).astype(np.int32), np.cumsum([0, *map(len, rows)]))


def plain_gru(encoder: Encoder) -> nn.GRU:
    """torch's own GRU with the same weights."""
    hidden, width = encoder.weight_hh.shape[1], encoder.weight_ih.shape[1]
    gru = nn.GRU(width, hidden, batch_first=True, dtype=encoder.weight_ih.dtype)
    gru.load_state_dict({f"{name}_l0": tensor.detach() for name, tensor in encoder.state_dict().items()})
    return gru


def slow_codes(encoder: Encoder, embedding: Tensor, rows: list[list[int]]) -> Tensor:
    """One row after the other."""
    gru = plain_gru(encoder)
    return torch.cat([gru(embedding[torch.tensor(row)][None])[1][0] for row in rows])


TOKENS = st.lists(st.integers(4, VOCABULARY - 1), max_size=6)
ROWS = st.lists(TOKENS.map(lambda words: [START, *words, END]), min_size=1)


@given(ROWS, st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None, max_examples=50)
def test_encoding_each_distinct_text_once_equals_encoding_every_row(rows: list[list[int]], kind: torch.dtype) -> None:
    torch.manual_seed(1)
    texts = TextEncoders(VOCABULARY, HIDDEN).to(kind)
    distinct = sorted(set(map(tuple, rows)))
    once = texts.look(plan([list(row) for row in distinct]), texts.embedding)
    shared = once[[distinct.index(tuple(row)) for row in rows]]
    torch.testing.assert_close(shared, slow_codes(texts.look, texts.embedding, rows), rtol=1e-5, atol=1e-6)


def test_one_step_is_that_of_a_gru() -> None:
    torch.manual_seed(2)
    encoder = Encoder(4, HIDDEN)
    inputs, state = torch.randn(3, 4), torch.randn(3, HIDDEN)
    expected = plain_gru(encoder)(inputs[:, None], state[None])[1][0]
    torch.testing.assert_close(encoder.step(inputs, state), expected)


def test_weights_begin_as_torch_would_have_them() -> None:
    torch.manual_seed(3)
    network = InvDyNetwork(2000, 128)
    for encoder in (network.texts.narration, network.decoder):
        for weight in encoder.parameters():
            assert weight.abs().max() <= 1 / math.sqrt(128)
            assert weight.std().item() == pytest.approx(1 / math.sqrt(3 * 128), rel=0.15)
    assert network.texts.embedding.std().item() == pytest.approx(1, rel=0.02)
    assert network.texts.embedding.mean().item() == pytest.approx(0, abs=0.02)


def test_shapes_are_the_papers() -> None:
    """DRRN 512 -> 128 -> 1; INV-DY 384 -> 128, 256 -> 128 -> 1 and g_inv 256 -> 256 -> 128."""
    drrn, inv_dy = DrrnNetwork(2048, 128), InvDyNetwork(2048, 128)
    assert drrn.hidden_layer.weight.shape == (128, 512)
    assert drrn.value_layer.weight.shape == (1, 128)
    assert inv_dy.state_layer.weight.shape == (128, 384)
    assert inv_dy.hidden_layer.weight.shape == (128, 256)
    assert [layer.weight.shape for layer in inv_dy.inverse if isinstance(layer, nn.Linear)] == [(256, 256), (128, 256)]
    assert inv_dy.words.weight.shape == (2048, 128)


def test_values_by_hand() -> None:
    torch.manual_seed(4)
    drrn, inv_dy = DrrnNetwork(VOCABULARY, HIDDEN), InvDyNetwork(VOCABULARY, HIDDEN)
    codes, actions = torch.randn(6, 3 * HIDDEN), torch.randn(6, HIDDEN)
    for row in range(6):
        both = torch.cat((codes[row], actions[row]))
        hidden = (drrn.hidden_layer.weight @ both + drrn.hidden_layer.bias).clamp(min=0)
        value = drrn.value_layer.weight @ hidden + drrn.value_layer.bias
        torch.testing.assert_close(drrn.q(drrn.state(codes), actions)[row], value[0])
        state = inv_dy.state_layer.weight @ codes[row] + inv_dy.state_layer.bias
        hidden = (inv_dy.hidden_layer.weight @ torch.cat((state, actions[row])) + inv_dy.hidden_layer.bias).clamp(min=0)
        value = inv_dy.value_layer.weight @ hidden + inv_dy.value_layer.bias
        torch.testing.assert_close(inv_dy.q(inv_dy.state(codes), actions)[row], value[0])


def test_the_guess_sees_the_state_and_the_change() -> None:
    torch.manual_seed(5)
    network = InvDyNetwork(VOCABULARY, HIDDEN)
    before, after = torch.randn(2, HIDDEN), torch.randn(2, HIDDEN)
    first, last = network.inverse[0], network.inverse[2]
    hidden = torch.cat((before, after - before), 1) @ first.weight.T + first.bias
    torch.testing.assert_close(network.guess(before, after), hidden.clamp(min=0) @ last.weight.T + last.bias)


def test_the_guess_can_read_both_states_as_they_are() -> None:
    torch.manual_seed(5)
    network = InvDyNetwork(VOCABULARY, HIDDEN, "both")
    before, after = torch.randn(2, HIDDEN), torch.randn(2, HIDDEN)
    first, last = network.inverse[0], network.inverse[2]
    hidden = torch.cat((before, after), 1) @ first.weight.T + first.bias
    torch.testing.assert_close(network.guess(before, after), hidden.clamp(min=0) @ last.weight.T + last.bias)
    assert make_network(InverseSettings(reads="both"), VOCABULARY, HIDDEN).reads == "both"  # type: ignore[union-attr]
    assert make_network(InverseSettings(), VOCABULARY, HIDDEN).reads == "difference"  # type: ignore[union-attr]


def slow_surprise(network: InvDyNetwork, start: Tensor, row: list[int]) -> list[float]:
    """-log p of each token behind the start mark, one after the other, fed with the likeliest word so far."""
    cell = nn.GRUCell(HIDDEN, HIDDEN)
    cell.load_state_dict({name: tensor.detach() for name, tensor in network.decoder.state_dict().items()})
    state, said, found = start[None], START, []
    for token in row[1:]:
        state = cell(network.texts.embedding[said][None], state)
        chances = torch.softmax(network.words(state)[0], 0)
        found.append(-math.log(chances[token].item()))
        said = int(chances.argmax())
    return found


@given(ROWS, st.integers(0, 10))
@settings(deadline=None, max_examples=30)
def test_surprise_is_that_of_a_decoder_fed_with_its_own_words(rows: list[list[int]], seed: int) -> None:
    torch.manual_seed(seed)
    network = InvDyNetwork(VOCABULARY, HIDDEN)
    start = 3 * torch.randn(len(rows), HIDDEN)
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
    with torch.no_grad():
        surprise, counts = network.surprise(start, tokens, lengths)
        slow = [slow_surprise(network, start[place], row) for place, row in enumerate(rows)]
    assert counts.sum(1).tolist() == [len(row) - 1 for row in rows]  # the end mark counts, the start mark does not
    for place, row in enumerate(rows):
        torch.testing.assert_close(surprise[place, : len(row) - 1], torch.tensor(slow[place]), rtol=1e-4, atol=1e-5)
        assert surprise[place, len(row) - 1 :].abs().sum() == 0
    # As a reward: of each action by itself. For learning: over all tokens.
    means = [sum(values) / len(values) for values in slow]
    torch.testing.assert_close(mean_per_action(surprise, counts), torch.tensor(means), rtol=1e-4, atol=1e-5)
    everything = [value for values in slow for value in values]
    assert mean_over_tokens(surprise, counts).item() == pytest.approx(sum(everything) / len(everything), rel=1e-4)


def test_untrained_surprise_is_about_that_of_a_blind_guess() -> None:
    """ln V: 7.6 for the 2,048 words of the preset."""
    torch.manual_seed(6)
    network = InvDyNetwork(2048, 128)
    tokens = torch.randint(4, 2048, (50, 6))
    surprise, counts = network.surprise(torch.randn(50, 128), tokens, torch.full((50,), 6))
    assert mean_over_tokens(surprise, counts).item() == pytest.approx(math.log(2048), abs=0.2)


@pytest.mark.parametrize("kind", [DrrnNetwork, InvDyNetwork])
def test_gradients_of_all_losses(kind: type[DrrnNetwork] | type[InvDyNetwork]) -> None:
    """The whole way from weights to the loss that is learned, against finite differences."""
    torch.manual_seed(7)
    network = kind(VOCABULARY, 3).double()
    names, weights = zip(*network.named_parameters(), strict=True)
    looks = plan([[START, 4, 5, END], [START, 6, END], [START, 4, 7, 8, END], [START, END]])
    says = plan([[START, 9, END], [START, 10, 4, END]])
    tokens = torch.tensor([[START, 9, END, 0], [START, 10, 4, END]])
    lengths = torch.tensor([3, 4])
    rewards, terminal = torch.tensor([0.3, 4.0]).double(), torch.tensor([False, True])

    def loss(*values: Tensor) -> Tensor:
        with torch.no_grad():
            next_values = torch.tensor([0.7, 100.0]).double()
        return torch.func.functional_call(
            _Whole(network, looks, says, tokens, lengths),
            {f"network.{name}": value for name, value in zip(names, values, strict=True)},
            (rewards, next_values, terminal),
        )

    inputs = tuple(weight.detach().clone().requires_grad_() for weight in weights)
    assert torch.autograd.gradcheck(loss, inputs, eps=1e-6, atol=1e-7)


class _Whole(nn.Module):
    def __init__(
        self, network: DrrnNetwork | InvDyNetwork, looks: PrefixTree, says: PrefixTree, tokens: Tensor, lengths: Tensor
    ) -> None:
        super().__init__()
        self.network = network
        self.given = looks, says, tokens, lengths

    def forward(self, rewards: Tensor, next_values: Tensor, terminal: Tensor) -> Tensor:
        network, texts = self.network, self.network.texts
        looks, says, tokens, lengths = self.given
        encoders = (texts.narration, texts.look, texts.inventory)
        codes = network.state(torch.cat([encoder(looks, texts.embedding) for encoder in encoders], 1))
        actions = texts.action(says, texts.embedding)
        loss = td_loss(network.q(codes[:2], actions), rewards, next_values, terminal, 0.9)
        if isinstance(network, InvDyNetwork):
            surprise, counts = network.surprise(network.guess(codes[:2], codes[2:]), tokens, lengths)
            decoded, _ = network.surprise(actions, tokens, lengths)
            loss = loss + mean_over_tokens(surprise, counts) + mean_over_tokens(decoded, counts)
        return loss
