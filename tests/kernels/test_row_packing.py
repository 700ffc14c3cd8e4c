"""Rows of several examples: every token occurs once, and the transformer computes each example as if it were alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xtx.agents.xtx.imitation_training import EagerSteps, Example
from xtx.kernels.cuda import imitation_training
from xtx.kernels.cuda.imitation_training import RecordedTraining
from xtx.kernels.cuda.packed_gpt import compute_packed_logits
from xtx.kernels.cuda.row_packing import FlatExamples, pack_batches
from xtx.networks.gpt import GPT, Sizes

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = Sizes(60, layers=2, heads=2, width=16, context=48)


def examples(seed: int, count: int, longest: int = 46) -> list[Example]:
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        said = int(draw.integers(1, 7))
        context = int(draw.integers(1, longest - said + 1))
        found.append(Example(draw.integers(1, 60, context + said).astype(np.int32), context))
    return found


def flat(chosen: list[Example]) -> FlatExamples:
    return FlatExamples([example.tokens for example in chosen], [example.context for example in chosen])


@given(seed=st.integers(0, 999), count=st.integers(1, 40), batch=st.integers(1, 16), slots=st.sampled_from([6, 12, 30]))
def test_every_token_has_one_place(seed: int, count: int, batch: int, slots: int) -> None:
    chosen = examples(seed, count)
    order = np.random.default_rng(seed).permutation(count)
    all_tokens = flat(chosen)
    packed = pack_batches(all_tokens, order, batch, 48, slots)
    batches, rows, _ = packed.source.shape
    assert batches == -(-count // batch) and rows % 4 == 0
    for number in range(batches):
        mine = order[number * batch : (number + 1) * batch]
        tokens, at = packed.source[number], packed.at[number]
        real = tokens[tokens > 0]
        wanted = np.concatenate([all_tokens.starts[i] + np.arange(len(chosen[i].tokens) - 1) for i in mine])
        assert sorted(real.tolist()) == sorted(wanted.tolist())
        # each example is in one piece, and what follows each place asked for is its action
        for example in mine:
            row, columns = np.nonzero(all_tokens.owners[tokens] == example + 1)
            assert len(set(row.tolist())) == 1
            assert np.array_equal(columns, np.arange(columns[0], columns[0] + len(columns)))
        asked = [tokens[row, column] + 1 for row in range(rows) for column in at[row] if column >= 0]
        said = [all_tokens.starts[i] + k for i in mine for k in range(chosen[i].context, len(chosen[i].tokens))]
        assert sorted(asked) == sorted(said)
        assert packed.said[number] == len(said)


def test_rows_are_full_where_that_is_possible() -> None:
    chosen = [Example(np.ones(25, np.int32), 20) for _ in range(8)]  # 24 tokens are read of each
    packed = pack_batches(flat(chosen), np.arange(8), 8, 48, 16)
    assert packed.source.shape == (1, 4, 48)
    assert (packed.source > 0).all()


@given(seed=st.integers(0, 999), count=st.integers(1, 12))
@settings(max_examples=20, deadline=None)
def test_packed_examples_are_predicted_as_if_alone(seed: int, count: int) -> None:
    model = GPT(SIZES, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.words.weight.mul_(20)
    chosen = examples(seed, count)
    all_tokens = flat(chosen)
    packed = pack_batches(all_tokens, np.arange(count), count, 48, 12)
    source, at = torch.from_numpy(packed.source[0]).long(), torch.from_numpy(packed.at[0]).long()
    tokens, places, owners = (
        torch.from_numpy(array)[source].long() for array in (all_tokens.tokens, all_tokens.places, all_tokens.owners)
    )
    with torch.no_grad():
        got = compute_packed_logits(model, tokens, at.clamp_min(0), places, owners)
        assert got.isfinite().all()
        for row, slot in torch.nonzero(at >= 0).tolist():
            column = int(at[row, slot])
            example, place = chosen[int(owners[row, column]) - 1], int(places[row, column])
            alone = model(torch.from_numpy(example.tokens[: place + 1]).long()[None])[0, -1]
            torch.testing.assert_close(got[row, slot], alone, atol=1e-4, rtol=1e-4)


class _Now:
    """In the place of a recorded step: carries it out."""

    def __init__(self, step: Any) -> None:
        self.graph = SimpleNamespace(replay=step)


def on_a_cpu(monkeypatch: pytest.MonkeyPatch, model: GPT) -> RecordedTraining:
    """The training that is recorded on a GPU, with nothing recorded."""

    def record(step: Any) -> _Now:
        step()  # as recording does, and more than once
        step()
        return _Now(step)

    class Plain(torch.optim.AdamW):
        def __init__(self, parameters: Any, lr: float, **_: Any) -> None:
            super().__init__(parameters, lr=lr, weight_decay=0)

    monkeypatch.setattr(imitation_training, "record", record)
    monkeypatch.setattr(imitation_training, "AdamW", Plain)
    return RecordedTraining(model, 1e-3, 1.0, 0.0, 8)


@pytest.mark.parametrize("remembered", [24, 1])
def test_a_packed_training_is_the_plain_one(monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    """Trainings of one step and of several, each with a reset optimiser; one that needs larger tensors, and one with
    long actions."""
    monkeypatch.setattr(imitation_training, "MAX_RECORDED_STEPS", remembered)
    ours, plain = (GPT(SIZES, torch.Generator().manual_seed(1)) for _ in range(2))
    training = on_a_cpu(monkeypatch, ours)
    training._allocate(1, 1, 1, 1)
    for seed, count in ((0, 7), (1, 21), (2, 30), (3, 90), (4, 9)):
        chosen = examples(seed, count)
        if seed == 4:
            chosen = [Example(np.arange(1, 46, dtype=np.int32), 5), *chosen]
            count += 1
        steps = EagerSteps(plain, 1e-3, 1.0, None, 8)
        training.begin([example.tokens for example in chosen], [example.context for example in chosen])
        draw = np.random.default_rng(seed)
        for _ in range(3):
            order: NDArray[np.int64] = draw.permutation(count)
            training.run(order)
            for start in range(0, count, 8):
                steps.step([chosen[i] for i in order[start : start + 8]])
            assert training.take_totals() == pytest.approx(steps.take_totals(), rel=1e-4)
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)
