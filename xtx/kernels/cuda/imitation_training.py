"""Trains the imitation policy on a GPU, by steps that are recorded as CUDA graphs.

All examples of a training are on the device. For each pass the host sends, for every batch, which of their tokens make
up its rows. A step finds its batch by a counter on the device, so nothing else is transferred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from xtx.kernels.cuda.packed_gpt import compute_packed_logits
from xtx.kernels.cuda.q_values import RecordedStep, next_power_of_two, record
from xtx.kernels.cuda.row_packing import FlatExamples, PackedBatches, pack_batches
from xtx.networks.fixed_order import sum_in_fixed_order
from xtx.networks.gpt import GPT, TorchDropout, loss_and_hits

CAPACITIES = (128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
"""Row lengths that are recorded. The shortest that fits the longest example is used, because torch's attention, where
it is used, computes all pairs of tokens of a row, also of different examples."""
SLOTS = (16, 32)
"""Numbers of predictions per row that are recorded."""
MAX_RECORDED_STEPS = 24
"""Limits the recorded steps that are kept, each of which holds GPU memory."""


class RecordedTraining:
    """Trains one model several times. The optimiser is reset in place, because the graphs use its tensors'
    addresses."""

    def __init__(self, model: GPT, rate: float, clip: float, dropout: float, batch_size: int) -> None:
        self._model = model
        self._clip = clip
        self._drop = TorchDropout(dropout) if dropout else None
        self._batch = batch_size
        self._device = model.words.weight.device
        self._parameters = list(model.parameters())
        self._optimiser = AdamW(self._parameters, lr=rate, weight_decay=0, fused=True, capturable=True)
        self._totals = torch.zeros(2, device=self._device)
        self._counter = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._recorded: dict[tuple[int, int, int], RecordedStep] = {}
        self._allocate(1 << 18, 1 << 19, 1 << 15, 64)
        self._start_optimiser()

    def _allocate(self, tokens: int, sources: int, slots: int, steps: int) -> None:
        """Allocate the tensors for the examples and for the batches of a pass, and drop recorded steps, which use
        the old ones."""

        def make_ints(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int32, device=self._device)

        self._recorded.clear()
        self._tokens, self._places, self._owners = make_ints(tokens), make_ints(tokens), make_ints(tokens)
        self._source, self._at = make_ints(sources), make_ints(slots)
        self._shares = torch.zeros(steps, device=self._device)

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
        """Begin a training on these examples.

        tokens: a context and the action that was taken, for each example; contexts: the number of tokens of each
        context.
        """
        self._flat = flat = FlatExamples(tokens, contexts)
        longest = int(flat.read.max())
        self._capacity = min(self._model.sizes.context, next((c for c in CAPACITIES if c >= longest), longest))
        # Two of the longest actions must fit into a row, so that they do not leave rows mostly empty.
        said = int(flat.said.max())
        self._slots = next((size for size in SLOTS if size >= 2 * said), max(*SLOTS, said))
        self._reserve(tokens=len(flat.tokens) + 1)
        for place, array in ((self._tokens, flat.tokens), (self._places, flat.places), (self._owners, flat.owners)):
            place[: len(array)] = torch.from_numpy(array).to(self._device)
        self._clear_optimiser()
        self._totals.zero_()

    def _reserve(self, tokens: int = 0, sources: int = 0, slots: int = 0, steps: int = 0) -> None:
        """Enlarge the tensors if necessary; their content is lost, except the examples."""
        available = len(self._tokens), len(self._source), len(self._at), len(self._shares)
        wanted = tokens, sources, slots, steps
        if all(new <= old for new, old in zip(wanted, available, strict=True)):
            return
        examples = self._tokens, self._places, self._owners
        self._allocate(*(next_power_of_two(new, old) for new, old in zip(wanted, available, strict=True)))
        for place, old in zip((self._tokens, self._places, self._owners), examples, strict=True):
            place[: len(old)] = old

    def run(self, order: NDArray[np.integer]) -> None:
        """Make one pass over all examples in this order."""
        packed = pack_batches(self._flat, order, self._batch, self._capacity, self._slots)
        steps, rows, _ = packed.source.shape
        batches = max(2, steps)  # recording executes a step twice, and the counter advances
        self._reserve(sources=batches * rows * self._capacity, slots=batches * rows * self._slots, steps=batches)
        recorded = self._step(rows)
        self._send(packed)
        self._counter.zero_()
        for _ in range(steps):
            recorded.graph.replay()

    def _send(self, packed: PackedBatches) -> None:
        self._source[: packed.source.size] = torch.from_numpy(packed.source.ravel()).to(self._device)
        self._at[: packed.at.size] = torch.from_numpy(packed.at.ravel()).to(self._device)
        shares = (1 / packed.said).astype(np.float32)
        self._shares[: len(shares)] = torch.from_numpy(shares).to(self._device)

    def _step(self, rows: int) -> RecordedStep:
        """Return the recorded step for batches of a number of rows; record it if it is new."""
        shape = rows, self._capacity, self._slots
        if shape not in self._recorded:
            if len(self._recorded) >= MAX_RECORDED_STEPS:
                del self._recorded[next(iter(self._recorded))]
            touched = [*self._parameters, self._totals, self._counter]
            touched += [tensor for slot in self._optimiser.state.values() for tensor in slot.values()]
            before = [tensor.detach().clone() for tensor in touched]
            chance = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None
            # Recording also executes the step, here on empty rows. Then everything is restored, random numbers too,
            # because a run that continues from a checkpoint records again.
            self._counter.zero_()
            self._source.zero_()
            self._at.fill_(-1)
            self._shares.zero_()
            with sum_in_fixed_order():
                self._recorded[shape] = record(lambda: self._learn(*shape))
            with torch.no_grad():
                for tensor, old in zip(touched, before, strict=True):
                    tensor.copy_(old)
            if chance is not None:
                torch.cuda.set_rng_state(chance, self._device)
        return self._recorded[shape]

    def _learn(self, rows: int, capacity: int, slots: int) -> Tensor:
        """Take one step of the optimiser on the batch at the counter; this is what is recorded."""
        source = self._select_batch(self._source, rows, capacity)
        at = self._select_batch(self._at, rows, slots)
        weights = (at >= 0).float()
        at = at.clamp_min(0)
        labels = self._tokens[source.gather(1, at) + 1].long()
        tokens, places, owners = self._tokens[source].long(), self._places[source].long(), self._owners[source]
        self._optimiser.zero_grad(set_to_none=True)
        loss, hits = loss_and_hits(
            compute_packed_logits(self._model, tokens, at, places, owners, self._drop), labels, weights
        )
        (loss * self._shares.index_select(0, self._counter)[0]).backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self._parameters, self._clip, foreach=True)
        self._optimiser.step()
        self._totals += torch.stack([loss.detach(), hits])
        self._counter += 1
        return self._totals

    def _select_batch(self, all_batches: Tensor, rows: int, columns: int) -> Tensor:
        """Return the part of a tensor that belongs to the batch at the counter, [rows, columns]."""
        batches = len(all_batches) // (rows * columns)
        shaped = all_batches[: batches * rows * columns].view(batches, rows, columns)
        return shaped.index_select(0, self._counter)[0].long()

    def take_totals(self) -> tuple[float, float]:
        """Return the sums of -log p and of right predictions since the last call, and begin new sums."""
        loss, hits = self._totals.tolist()
        self._totals.zero_()
        return loss, hits
