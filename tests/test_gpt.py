"""The transformer against Hugging Face's and against a slow implementation, and its gradient against differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from xtx.gpt import GPT, NOTHING, BitDropout, Sizes, TorchDropout, loss_and_hits

SMALL = Sizes(vocabulary=40, layers=3, heads=4, width=16, context=24)
NAMES = {
    "norm_1": "ln_1",
    "query_key_value": "attn.c_attn",
    "attention_out": "attn.c_proj",
    "norm_2": "ln_2",
    "feed_in": "mlp.c_fc",
    "feed_out": "mlp.c_proj",
}


pytestmark = pytest.mark.usefixtures("one_thread")


def made(sizes: Sizes, seed: int = 0, spread: float = 0.2) -> GPT:
    """A model whose every weight matters."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(sizes, generator)
    with torch.no_grad():
        for weight in model.parameters():
            weight += spread * torch.randn(weight.shape, generator=generator)
    return model


def hugging_face(model: GPT, dropout: float = 0.0) -> GPT2LMHeadModel:
    """Hugging Face's model with our weights."""
    sizes = model.sizes
    config = GPT2Config(
        vocab_size=sizes.vocabulary, n_positions=sizes.context, n_embd=sizes.width, n_layer=sizes.layers,
        n_head=sizes.heads, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=1, eos_token_id=2,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = GPT2LMHeadModel(config)
    weights = theirs.state_dict()
    with torch.no_grad():
        weights["transformer.wte.weight"].copy_(model.words.weight)
        weights["transformer.wpe.weight"].copy_(model.positions.weight)
        weights["transformer.ln_f.weight"].copy_(model.norm.weight)
        weights["transformer.ln_f.bias"].copy_(model.norm.bias)
        for number, block in enumerate(model.blocks):
            for ours, name in NAMES.items():
                layer = block.get_submodule(ours)
                transposed = layer.weight.T if isinstance(layer, torch.nn.Linear) else layer.weight
                weights[f"transformer.h.{number}.{name}.weight"].copy_(transposed)
                weights[f"transformer.h.{number}.{name}.bias"].copy_(layer.bias)
    return theirs.eval()


def rows(seed: int, lengths: list[int], vocabulary: int) -> Tensor:
    """Rows of random tokens, filled up on the right with 0."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, vocabulary, (len(lengths), max(lengths)), generator=generator)
    return tokens * (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


@pytest.mark.parametrize("sizes", [SMALL, Sizes(vocabulary=300)], ids=["small", "paper"])
def test_logits_equal_hugging_faces(sizes: Sizes) -> None:
    model = made(sizes, spread=0.2 if sizes is SMALL else 0.02)
    tokens = rows(1, [sizes.context, 7, 3], sizes.vocabulary)
    with torch.no_grad():
        theirs = hugging_face(model)(tokens).logits
        torch.testing.assert_close(model(tokens), theirs, atol=1e-5, rtol=1e-5)


def test_loss_and_gradient_equal_hugging_faces() -> None:
    model = made(SMALL)
    lengths, said = [20, 11, 6, 9], [3, 4, 1, 2]
    tokens = rows(2, lengths, SMALL.vocabulary)
    labels = torch.full_like(tokens, NOTHING)
    at, ours = torch.zeros(4, 4, dtype=torch.long), torch.zeros(4, 4, dtype=torch.long)
    weights = torch.zeros(4, 4)
    for row, (length, count) in enumerate(zip(lengths, said, strict=True)):
        labels[row, length - count : length] = tokens[row, length - count : length]
        at[row, :count] = torch.arange(length - count - 1, length - 1)
        ours[row, :count] = tokens[row, length - count : length]
        weights[row, :count] = 1
    reference = hugging_face(model)
    theirs = reference(tokens, labels=labels).loss
    loss, hits = loss_and_hits(model(tokens, at), ours, weights)
    loss = loss / weights.sum()
    torch.testing.assert_close(loss, theirs, atol=1e-5, rtol=1e-5)
    assert hits <= weights.sum()
    loss.backward()
    theirs.backward()
    torch.testing.assert_close(model.words.weight.grad, reference.transformer.wte.weight.grad, atol=1e-5, rtol=1e-4)
    first = model.blocks[0].get_submodule("query_key_value").weight.grad
    torch.testing.assert_close(first, reference.transformer.h[0].attn.c_attn.weight.grad.T, atol=1e-5, rtol=1e-4)


def test_the_beginning_has_gpt2s_spread() -> None:
    model = GPT(Sizes(vocabulary=500))
    reference = GPT2LMHeadModel(hugging_face(model).config)
    for number, block in enumerate(model.blocks):
        for ours, name in NAMES.items():
            theirs = reference.transformer.h[number].get_submodule(name).weight
            assert block.get_submodule(ours).weight.std().item() == pytest.approx(
                theirs.std().item(), rel=0.05, abs=1e-6
            )
    assert model.words.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("drop", [None, "bits"])
def test_logits_at_some_places_are_those_of_all(drop: str | None) -> None:
    model = made(SMALL)
    tokens = rows(3, [24, 13], SMALL.vocabulary)
    at = torch.tensor([[20, 21, 22, 23], [3, 12, 12, 0]])
    with torch.no_grad():
        everywhere = model(tokens)
        # a rate of 0 takes the way that dropout takes
        some = model(tokens, at, BitDropout(0.0, np.random.SFC64(0)) if drop else None)
    picked = everywhere.gather(1, at[:, :, None].expand(-1, -1, SMALL.vocabulary))
    torch.testing.assert_close(some, picked, atol=1e-5, rtol=1e-5)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_actions_that_share_a_context_score_as_each_by_itself(data: st.DataObject) -> None:
    model = made(SMALL, data.draw(st.integers(0, 9)))
    states = data.draw(st.integers(1, 4))
    contexts = [data.draw(st.integers(2, 18)) for _ in range(states)]
    lengths = [data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)) for _ in range(states)]
    count, longest = max(map(len, lengths)), max(map(max, lengths))
    tokens = rows(data.draw(st.integers(0, 99)), contexts, SMALL.vocabulary)
    said = torch.randint(1, SMALL.vocabulary, (states, count, longest))
    inputs = torch.zeros_like(said)
    labels = torch.full_like(said, NOTHING)
    for state, valid in enumerate(lengths):
        inputs[state, :, 0] = tokens[state, contexts[state] - 1]
        for number, length in enumerate(valid):
            inputs[state, number, 1:length] = said[state, number, : length - 1]
            labels[state, number, :length] = said[state, number, :length]
    with torch.no_grad():
        memory = model.read(tokens[:, : max(contexts) - 1])
        scores = model.log_probabilities(memory, torch.tensor(contexts) - 1, inputs, labels)
        for state, valid in enumerate(lengths):
            for number, length in enumerate(valid):
                row = torch.cat([tokens[state, : contexts[state]], said[state, number, :length]])
                guessed = model(row[None])[0].log_softmax(-1)
                alone = guessed[contexts[state] - 1 : -1].gather(1, row[contexts[state] :, None]).mean()
                assert scores[state, number].item() == pytest.approx(alone.item(), abs=1e-5)


@given(lengths=st.lists(st.integers(2, 24), min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_padding_changes_nothing(lengths: list[int], seed: int) -> None:
    model = made(SMALL)
    tokens = rows(seed, lengths, SMALL.vocabulary)
    other = torch.where(torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None], tokens, 39)
    at = torch.tensor(lengths)[:, None] - torch.tensor([[2, 1]])
    with torch.no_grad():
        together, filled = model(tokens, at), model(other, at)
        assert torch.equal(together, filled)
        for row, length in enumerate(lengths):
            alone = model(tokens[row : row + 1, :length], at[row : row + 1])
            torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_bit_dropout_keeps_its_share_and_the_mean(rate: float) -> None:
    drop = BitDropout(rate, np.random.SFC64(3))
    x = torch.full((200, 1001), 2.0)
    kept = drop(x)
    assert (kept == 0).double().mean().item() == pytest.approx(rate, abs=0.003)
    assert kept.max().item() == pytest.approx(2 / (1 - rate), rel=1e-4)
    assert kept.double().mean().item() == pytest.approx(2, rel=0.01)
    added = drop.add(torch.ones_like(x), x)
    assert set(added.unique().tolist()) == {1.0, 1 + kept.max().item()}
    # neighbours are independent: the share of pairs left out is the square
    pairs = (kept[:, :-1] == 0) & (kept[:, 1:] == 0)
    assert pairs.double().mean().item() == pytest.approx(rate**2, abs=0.004)


def test_dropout_takes_the_gradient_through_what_it_kept() -> None:
    x = torch.randn(5, 7, requires_grad=True)
    drop = BitDropout(0.3, np.random.SFC64(1))
    kept = drop.add(torch.zeros(5, 7), x)
    kept.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), kept.detach())


@pytest.mark.parametrize("kind", ["bits", "torch"])
def test_dropout_is_where_gpt2_has_it(kind: str) -> None:
    """The mean and the spread of the loss over many draws are those of Hugging Face's model while training."""
    model = made(SMALL, spread=0.15)
    theirs = hugging_face(model, dropout=0.3).train()
    tokens = rows(5, [12] * 512, SMALL.vocabulary)
    tokens[:] = tokens[0]
    at = torch.full((512, 1), 10)
    drop = BitDropout(0.3, np.random.SFC64(0)) if kind == "bits" else TorchDropout(0.3)
    torch.manual_seed(0)
    with torch.no_grad():
        ours = model(tokens, at, drop)[:, 0].log_softmax(-1)[:, 3]
        reference = theirs(tokens).logits[:, 10].log_softmax(-1)[:, 3]
    assert ours.mean().item() == pytest.approx(reference.mean().item(), abs=5 * reference.std().item() / math.sqrt(512))
    assert ours.std().item() == pytest.approx(reference.std().item(), rel=0.2)


def test_the_gradient_in_double_precision() -> None:
    model = made(Sizes(vocabulary=9, layers=2, heads=2, width=4, context=8), spread=0.3).double()
    tokens = torch.tensor([[1, 4, 5, 6, 7, 2], [3, 4, 8, 1, 0, 0]])
    at = torch.tensor([[3, 4], [2, 0]])
    labels = torch.tensor([[7, 2], [1, 0]])
    weights = torch.tensor([[1.0, 1.0], [2.0, 0.0]], dtype=torch.float64)
    names = [name for name, _ in model.named_parameters()]

    def loss(*values: Tensor) -> Tensor:
        # the same draws at every call, so that dropout's gradient is checked too
        drop = BitDropout(0.2, np.random.SFC64(4))
        logits = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (tokens, at, drop))
        return loss_and_hits(logits, labels, weights)[0]

    values = tuple(value.detach().requires_grad_() for value in model.parameters())
    assert torch.autograd.gradcheck(loss, values)
