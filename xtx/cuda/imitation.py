"""The imitation policy on a GPU: learning and scoring as recorded steps over a few fixed shapes.

While it learns, nothing but the order of the examples is sent to the device, once for each pass: all examples of a
training lie there, and each step takes its rows by a counter of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from xtx.cuda.shelf import Mail
from xtx.cuda.values import Recorded, power_of_two, record
from xtx.gpt import GPT, NOTHING, TorchDropout, loss_and_hits

LENGTHS = (64, 96, 128, 160, 192, 256, 384, 512)
SAID = (4, 8, 16, 32)
"""Shapes that are recorded: a batch is filled up to the next."""
_FIRST_ROOM = 2048


class RecordedTraining:
    """Trainings of one model, one after the other. The optimiser is made fresh in place, because what is recorded holds
    its tensors."""

    def __init__(
        self, model: GPT, rate: float, clip: float, dropout: float, batch_size: int, bfloat16: bool = False
    ) -> None:
        self._model = model
        self._bfloat16 = bfloat16
        self._clip = clip
        self._drop = TorchDropout(dropout) if dropout else None
        self._rows = batch_size
        self._device = model.words.weight.device
        self._parameters = list(model.parameters())
        self._optimiser = AdamW(self._parameters, lr=rate, weight_decay=0, fused=True, capturable=True)
        self._totals = torch.zeros(2, device=self._device)
        self._counter = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._recorded: dict[tuple[int, int], Recorded] = {}
        self._make_room(_FIRST_ROOM, 64)
        self._start_optimiser()

    def _make_room(self, examples: int, steps: int) -> None:
        """Places for examples, and for the order of a pass. The last example stands for none."""
        device, context = self._device, self._model.sizes.context
        self._recorded.clear()
        self._tokens = torch.zeros(examples + 1, context, dtype=torch.int32, device=device)
        self._at = torch.zeros(examples + 1, max(SAID), dtype=torch.int32, device=device)
        self._labels = torch.zeros(examples + 1, max(SAID), dtype=torch.int32, device=device)
        self._weights = torch.zeros(examples + 1, max(SAID), device=device)
        self._order = torch.zeros(steps, self._rows, dtype=torch.int32, device=device)
        self._shares = torch.zeros(steps, device=device)

    def _start_optimiser(self) -> None:
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._optimiser.step()
        self._clear_optimiser()

    def _clear_optimiser(self) -> None:
        for slot in self._optimiser.state.values():
            for tensor in slot.values():
                tensor.zero_()

    def begin(self, tokens: Sequence[NDArray[np.int32]], contexts: Sequence[int]) -> None:
        """A new training on these examples: each a context of so many tokens and the action that was taken."""
        n = len(tokens)
        steps = -(-n // self._rows)
        if n + 1 > len(self._tokens) or steps > len(self._order):
            self._make_room(power_of_two(n, _FIRST_ROOM), power_of_two(steps, 64))
        self._lengths = np.array([len(row) for row in tokens])
        said = self._lengths - np.array(contexts)
        self._said = said
        rows = np.zeros((n, self._tokens.shape[1] + 1), np.int32)
        rows[np.arange(rows.shape[1]) < self._lengths[:, None]] = np.concatenate(tokens)
        real = np.arange(max(SAID)) < said[:, None]
        at = np.where(real, (np.array(contexts) - 1)[:, None] + np.arange(max(SAID)), 0)
        labels = np.take_along_axis(rows, at + 1, 1)
        # An end mark is never read.
        for place, array in ((self._tokens, rows[:, :-1]), (self._at, at), (self._labels, labels)):
            place[:n] = torch.from_numpy(np.ascontiguousarray(array, np.int32)).to(self._device)
        self._weights[:n] = torch.from_numpy(real.astype(np.float32)).to(self._device)
        self._clear_optimiser()
        self._totals.zero_()

    def run(self, order: NDArray[np.integer]) -> None:
        """One pass over all examples, in this order."""
        steps = -(-len(order) // self._rows)
        rows = np.full(steps * self._rows, len(self._tokens) - 1, np.int32)
        rows[: len(order)] = order
        batches = rows.reshape(steps, self._rows)
        real = np.minimum(batches, len(self._lengths) - 1)
        filled = batches < len(self._lengths)
        lengths = np.where(filled, self._lengths[real], 1)
        said = np.where(filled, self._said[real], 0)
        self._order[:steps] = torch.from_numpy(batches).to(self._device)
        self._shares[:steps] = torch.from_numpy((1 / said.sum(1)).astype(np.float32)).to(self._device)
        self._counter.zero_()
        for length, most in zip((lengths.max(1) - 1).tolist(), said.max(1).tolist(), strict=True):
            self._step(min(_next(LENGTHS, length), self._model.sizes.context), _next(SAID, most)).graph.replay()

    def _step(self, length: int, said: int) -> Recorded:
        if (length, said) not in self._recorded:
            touched = [*self._parameters, self._totals, self._counter, self._order]
            touched += [tensor for slot in self._optimiser.state.values() for tensor in slot.values()]
            before = [tensor.detach().clone() for tensor in touched]
            # Recording also carries the step out: on examples of nothing, and then all is put back.
            self._counter.zero_()
            self._order.fill_(len(self._tokens) - 1)
            with _learning_mode(self._bfloat16):
                self._recorded[length, said] = record(lambda: self._learn(length, said))
            with torch.no_grad():
                for tensor, old in zip(touched, before, strict=True):
                    tensor.copy_(old)
        return self._recorded[length, said]

    def _learn(self, length: int, said: int) -> Tensor:
        rows = self._order.index_select(0, self._counter)[0].long()
        tokens, at = self._tokens[rows, :length].long(), self._at[rows, :said].long()
        labels, weights = self._labels[rows, :said].long(), self._weights[rows, :said]
        self._optimiser.zero_grad(set_to_none=True)
        loss, hits = loss_and_hits(self._model(tokens, at, self._drop), labels, weights)
        (loss * self._shares.index_select(0, self._counter)[0]).backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self._parameters, self._clip, foreach=True)
        self._optimiser.step()
        self._totals += torch.stack([loss.detach(), hits])
        self._counter += 1
        return self._totals

    def totals(self) -> tuple[float, float]:
        """The sums of -log p and of right guesses over all tokens predicted since this was last asked."""
        loss, hits = self._totals.tolist()
        self._totals.zero_()
        return loss, hits


class RecordedScores:
    """Mean log-probabilities of actions after contexts."""

    def __init__(self, model: GPT) -> None:
        self._model = model
        self._device = model.words.weight.device
        self._recorded: dict[tuple[int, int, int, int], tuple[Mail, Recorded]] = {}

    @torch.no_grad()
    def of(
        self, rows: Sequence[NDArray[np.int32]], says: Sequence[Sequence[NDArray[np.int32]]]
    ) -> list[NDArray[np.float64]]:
        """For each context, the mean log-probability of each action's tokens. See `ImitationPolicy._score`."""
        states = power_of_two(len(rows), 8)
        length = min(_next(LENGTHS, max(map(len, rows)) - 1), self._model.sizes.context)
        count = power_of_two(max(map(len, says)), 16)
        longest = _next(SAID, max(len(said) for valid in says for said in valid))
        shape = (states, length, count, longest)
        if shape not in self._recorded:
            mail = Mail(states * (1 + length + 2 * count * longest), torch.int32, self._device)
            self._recorded[shape] = mail, self._record(shape, mail.device)
        mail, recorded = self._recorded[shape]
        mail.clear()
        mail.put(pack(rows, says, shape))
        mail.send()
        recorded.graph.replay()
        scores = recorded.result.double().cpu().numpy()
        return [score[: len(valid)] for score, valid in zip(scores, says, strict=False)]

    def _record(self, shape: tuple[int, int, int, int], mail: Tensor) -> Recorded:
        states, length, count, longest = shape
        spoken = states * count * longest
        sizes = [states, states * length, spoken, spoken]

        def step() -> Tensor:
            lengths, tokens, inputs, labels = torch.split(mail.long(), sizes)
            memory = self._model.read(tokens.view(states, length))
            talk = (states, count, longest)
            return self._model.log_probabilities(memory, lengths, inputs.view(talk), labels.view(talk))

        return record(step)


def pack(
    rows: Sequence[NDArray[np.int32]], says: Sequence[Sequence[NDArray[np.int32]]], shape: tuple[int, int, int, int]
) -> NDArray[np.int32]:
    """Lengths of the contexts but for their last tokens, these contexts, inputs and labels of all actions (see
    `GPT.log_probabilities`), one behind the other, each filled up to the shape: states, their length, actions, and
    theirs."""
    states, length, count, longest = shape
    lengths = np.zeros(states, np.int32)
    lengths[: len(rows)] = [len(row) - 1 for row in rows]
    tokens = np.zeros((states, length), np.int32)
    tokens[np.arange(length) < lengths[:, None]] = np.concatenate([row[:-1] for row in rows])
    inputs = np.zeros((states, count, longest), np.int32)
    inputs[: len(rows), :, 0] = np.array([row[-1] for row in rows], np.int32)[:, None]
    labels = np.full_like(inputs, NOTHING)
    said = [action for valid in says for action in valid]
    there = np.arange(longest) < np.array([len(action) for action in said])[:, None]
    spoken = np.full(there.shape, NOTHING, np.int32)
    spoken[there] = np.concatenate(said)
    place = np.concatenate([state * count + np.arange(len(valid)) for state, valid in enumerate(says)])
    labels.reshape(-1, longest)[place] = spoken
    inputs.reshape(-1, longest)[place, 1:] = np.where(there[:, 1:], spoken[:, :-1], 0)
    return np.concatenate([lengths, tokens.ravel(), inputs.ravel(), labels.ravel()])


@contextlib.contextmanager
def _learning_mode(bfloat16: bool) -> Iterator[None]:
    """Every sum in a fixed order, so that a run can be repeated; and, if wanted, products in bfloat16."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16, cache_enabled=False):
            yield
    finally:
        torch.use_deterministic_algorithms(before)


def _next(sizes: Sequence[int], least: int) -> int:
    """The smallest of the sizes that is enough, else `least` itself."""
    return next((size for size in sizes if size >= least), least)
