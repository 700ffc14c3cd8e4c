"""The learning step of the imitation policy on any device; xtx/cuda/imitation.py has the one for GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from xtx.gpt import GPT, Dropout, loss_and_hits

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Example:
    """One context with the action that was taken, and how often it counts."""

    tokens: Ints
    """The context, then the action with its end mark."""
    context: int
    """How many of them are the context's."""
    count: int = 1
    """How many equal pairs it stands for."""

    @property
    def said(self) -> int:
        return len(self.tokens) - self.context


@dataclass(frozen=True)
class Batch:
    """Rows filled up on the right; a label of weight 0 is padding."""

    tokens: Tensor
    """[B, L]; an end mark is never read, so no row holds one."""
    at: Tensor
    """[B, A]: after which tokens something is predicted."""
    labels: Tensor
    """[B, A]: what."""
    weights: Tensor
    """[B, A]: how often it counts."""

    @classmethod
    def of(cls, examples: Sequence[Example], shape: tuple[int, int, int] = (0, 0, 0)) -> Batch:
        """The batch of these examples, with at least `shape` = (B, L, A)."""
        lengths = np.array([len(example.tokens) for example in examples])
        said = np.array([example.said for example in examples])
        rows = max(shape[0], len(examples))
        length, longest = max(shape[1], int(lengths.max()) - 1), max(shape[2], int(said.max()))
        tokens = np.zeros((rows, length + 1), np.int64)
        for row, example in zip(tokens, examples, strict=False):
            row[: len(example.tokens)] = example.tokens
        at = np.zeros((rows, longest), np.int64)
        weights = np.zeros((rows, longest), np.float32)
        real = np.arange(longest) < said[:, None]
        at[: len(examples)] = np.where(real, (lengths - said - 1)[:, None] + np.arange(longest), 0)
        weights[: len(examples)] = np.where(real, np.array([example.count for example in examples])[:, None], 0)
        labels = np.take_along_axis(tokens, at + 1, 1)
        arrays = (np.ascontiguousarray(tokens[:, :-1]), at, labels, weights)
        return cls(*map(torch.from_numpy, arrays))

    def tensors(self) -> Iterator[Tensor]:
        """All four."""
        yield from (self.tokens, self.at, self.labels, self.weights)


def accumulate(model: GPT, batch: Batch, share: Tensor, drop: Dropout | None, totals: Tensor) -> None:
    """Adds to the gradients those of the sum of -log p times `share`, and the sums to `totals` [2]."""
    loss, hits = loss_and_hits(model(batch.tokens, batch.at, drop), batch.labels, batch.weights)
    (loss * share).backward()  # type: ignore[no-untyped-call]
    totals += torch.stack([loss.detach(), hits])


class EagerSteps:
    """Each batch in groups of rows of about the same length, whose gradients add up to the batch's: hardly any padding,
    and what a group needs stays in the processor's cache."""

    def __init__(self, model: GPT, rate: float, clip: float, drop: Dropout | None, group: int) -> None:
        self._model = model
        self._clip = clip
        self._drop = drop
        self._group = group
        self._device = model.words.weight.device
        self._parameters = list(model.parameters())
        self._optimiser = AdamW(self._parameters, lr=rate, weight_decay=0, fused=True)
        self._totals = torch.zeros(2, device=self._device)

    def step(self, examples: Sequence[Example]) -> None:
        """One step of the optimiser."""
        share = torch.tensor(1 / sum(example.count * example.said for example in examples), device=self._device)
        ordered = sorted(examples, key=lambda example: len(example.tokens))
        self._optimiser.zero_grad(set_to_none=False)
        for start in range(0, len(ordered), self._group):
            batch = Batch.of(ordered[start : start + self._group])
            batch = Batch(*(tensor.to(self._device) for tensor in batch.tensors()))
            accumulate(self._model, batch, share, self._drop, self._totals)
        clip_grad_norm_(self._parameters, self._clip)
        self._optimiser.step()

    def totals(self) -> tuple[float, float]:
        """The sums of -log p and of right guesses over all tokens predicted since this was last asked."""
        loss, hits = self._totals.tolist()
        self._totals.zero_()
        return loss, hits
