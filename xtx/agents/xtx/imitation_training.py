"""Training steps of the imitation policy on any device; xtx/kernels/cuda/imitation_training.py has those for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from xtx.networks.fixed_order import sum_in_fixed_order
from xtx.networks.gpt import GPT, Dropout, loss_and_hits

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Example:
    """A context with the action that was taken in it, as tokens, and how many equal pairs it stands for."""

    tokens: Ints
    """[L]: the context, then the action with its end mark."""
    context: int
    """How many of the tokens belong to the context."""
    count: int = 1
    """How many equal pairs it stands for."""

    @property
    def num_predicted(self) -> int:
        """Number of the action's tokens: those that are predicted."""
        return len(self.tokens) - self.context


@dataclass(frozen=True)
class Batch:
    """Tensors of several examples, padded on the right; a label of weight 0 is padding."""

    tokens: Tensor
    """[B, L]: the input. The end mark of an action is only a label, so no row holds one."""
    at: Tensor
    """[B, A]: the positions whose next token is predicted."""
    labels: Tensor
    """[B, A]: the tokens to predict."""
    weights: Tensor
    """[B, A]: the weight of each prediction."""

    @classmethod
    def from_examples(cls, examples: Sequence[Example], device: torch.device | str = "cpu") -> Batch:
        """Build the batch of these examples."""
        lengths = np.array([len(example.tokens) for example in examples])
        predicted = np.array([example.num_predicted for example in examples])
        tokens = np.zeros((len(examples), int(lengths.max())), np.int64)
        for row, example in zip(tokens, examples, strict=True):
            row[: len(example.tokens)] = example.tokens
        places = np.arange(int(predicted.max()))
        real = places < predicted[:, None]
        at = np.where(real, (lengths - predicted - 1)[:, None] + places, 0)
        counts = np.array([example.count for example in examples], np.float32)
        weights = np.where(real, counts[:, None], np.float32(0))
        labels = np.take_along_axis(tokens, at + 1, 1)
        arrays = (np.ascontiguousarray(tokens[:, :-1]), at, labels, weights)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


def accumulate(model: GPT, batch: Batch, share: Tensor, drop: Dropout | None, totals: Tensor) -> None:
    """Add the gradients of `share` times the sum of -log p, and add that sum and the right predictions to `totals`.

    share: a scalar; totals: [2], changed in place.
    """
    loss, hits = loss_and_hits(model(batch.tokens, batch.at, drop), batch.labels, batch.weights)
    (loss * share).backward()  # type: ignore[no-untyped-call]
    totals += torch.stack([loss.detach(), hits])


class EagerSteps:
    """Training steps that split each batch into groups of rows of about the same length and add up their gradients.

    There is hardly any padding then, and the working set of a group stays in the processor's cache.
    """

    def __init__(self, model: GPT, rate: float, clip: float, drop: Dropout | None, group: int) -> None:
        """rate: learning rate; clip: largest norm of the gradient; group: rows that are computed together."""
        self._model = model
        self._rate = rate
        self._clip = clip
        self._drop = drop
        self._group = group
        self._device = model.words.weight.device
        self._parameters = list(model.parameters())
        self._optimiser = AdamW(self._parameters, lr=rate, weight_decay=0, fused=True)
        self._totals = torch.zeros(2, device=self._device)

    def step(self, examples: Sequence[Example], pace: float = 1.0) -> None:
        """Take one step of the optimiser on a batch, with `pace` times the learning rate."""
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate * pace
        with sum_in_fixed_order() if self._device.type == "cuda" else nullcontext():
            self._step(examples)

    def _step(self, examples: Sequence[Example]) -> None:
        share = torch.tensor(
            1 / sum(example.count * example.num_predicted for example in examples), device=self._device
        )
        ordered = sorted(examples, key=lambda example: len(example.tokens))
        self._optimiser.zero_grad(set_to_none=False)
        for start in range(0, len(ordered), self._group):
            batch = Batch.from_examples(ordered[start : start + self._group], self._device)
            accumulate(self._model, batch, share, self._drop, self._totals)
        clip_grad_norm_(self._parameters, self._clip)
        self._optimiser.step()

    @torch.no_grad()
    def compute_surprises(self, examples: Sequence[Example]) -> list[float]:
        """Return the sum of -log p over the tokens of each example's action, without dropout."""
        order = sorted(range(len(examples)), key=lambda place: len(examples[place].tokens))
        found = [0.0] * len(examples)
        for start in range(0, len(order), self._group):
            places = order[start : start + self._group]
            batch = Batch.from_examples([replace(examples[place], count=1) for place in places], self._device)
            logits = self._model(batch.tokens, batch.at)
            surprise = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="none")
            sums = (surprise.view(batch.labels.shape) * batch.weights).sum(1).tolist()
            for place, total in zip(places, sums, strict=True):
                found[place] = total
        return found

    def take_totals(self) -> tuple[float, float]:
        """Return the sums of -log p and of right predictions since the last call, and begin new sums."""
        loss, hits = self._totals.tolist()
        self._totals.zero_()
        return loss, hits
