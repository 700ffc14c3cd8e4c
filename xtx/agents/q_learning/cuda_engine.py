"""The Q-learner's networks on a GPU, as CUDA graphs: a step is recorded once for each of a few sizes and then replayed.

Launching the hundred small kernels of a step one by one takes several times as long as running them. The losses are
those of plain_engine.py up to rounding; sums have a fixed order, so a run is reproducible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xtx.agents.network_arrays import copy_module_state, copy_optimiser_state, load_module
from xtx.agents.q_learning.plain_engine import PARTS, KeptValues, make_network
from xtx.agents.state_ids import StateIds
from xtx.config.settings import InverseSettings, QSettings
from xtx.core import State
from xtx.kernels.cpu.word_order import order_words
from xtx.kernels.cuda.compilation import can_compile
from xtx.kernels.cuda.device_text_table import DeviceTextTable, PinnedBuffer
from xtx.kernels.cuda.gru import HIDDEN, EncoderRows, decode, encode
from xtx.kernels.cuda.q_values import (
    ENCODERS,
    KernelWeights,
    RecordedQValues,
    RecordedStep,
    compute_inputs,
    make_no_steps,
    next_power_of_two,
    record,
    stack_recurrent_weights,
)
from xtx.networks.q_networks import InvDyNetwork
from xtx.text.text_table import Ints

Floats = NDArray[np.float32]
NUMBERS = ("loss_td", "q", "reward", "gradient_norm", "loss_inverse", "loss_decoding")
"""Names of an update's results, in the order in which the GPU returns them; the last two with inverse dynamics only."""


class CudaEngine:
    """The engine for GPUs; see `Engine` in learner.py for its methods."""

    def __init__(
        self, q: QSettings, inverse: InverseSettings | None, state_ids: StateIds, device: torch.device
    ) -> None:
        self._q = q
        self._inverse = inverse
        self._state_ids = state_ids
        self._device = device
        self._vocabulary = state_ids.texts.vocabulary.capacity
        self.network = make_network(inverse, self._vocabulary, q.hidden).to(device)
        self._target = make_network(inverse, self._vocabulary, q.hidden).to(device).requires_grad_(False)
        self._target.load_state_dict(self.network.state_dict())
        self._optimiser = torch.optim.Adam(
            self.network.parameters(), lr=q.learning_rate, fused=True, capturable=True
        )  # fmt: skip
        self._start_optimiser()
        self._device_texts = DeviceTextTable(state_ids.texts, device)
        self._frozen = KernelWeights(self.network)
        self._frozen_target = KernelWeights(self._target)
        self._values = RecordedQValues(self._frozen, self._device_texts, device)
        self._target_values = RecordedQValues(self._frozen_target, self._device_texts, device)
        self._kept = KeptValues(state_ids)
        sides, size = 2 if inverse is not None else 1, q.batch_size
        self._encoders = np.repeat(np.arange(4, dtype=np.int32), [sides * size] * 3 + [size])
        """The encoder of each row of an update."""
        self._first_of_each = np.flatnonzero(np.diff(self._encoders, prepend=-1))
        self._updates_by_size: dict[tuple[int, int, int], _Update] = {}
        self._surprises_by_size: dict[tuple[int, int, int], _Surprise] = {}
        self._pending: tuple[Tensor, torch.cuda.Event] | None = None
        self._numbers: dict[str, float] = {}
        self.updates = 0

    @staticmethod
    def is_supported(q: QSettings) -> bool:
        """Return whether the kernels support these settings, and can be compiled here."""
        return q.hidden in HIDDEN and can_compile()

    def _start_optimiser(self) -> None:
        """Allocate the optimiser's tensors: a recorded step uses their addresses."""
        for parameter in self.network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self._optimiser.step()
        for slot in self._optimiser.state.values():
            for tensor in slot.values():
                tensor.zero_()

    def q_values(self, texts: Ints, actions: Sequence[Ints]) -> Floats:
        """Return the values of all actions of all states, concatenated."""
        return self._values.compute(texts, actions)

    # --- intrinsic reward ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def compute_surprises(self, before: Ints, actions: Ints, after: Ints) -> Floats:
        """Return the inverse-dynamics loss L_inv(o, a, o') of each row, [n]."""
        n = next_power_of_two(len(before), 8)
        length = self._count_decoder_steps(actions)
        texts = np.full((3, 2, n), -1, np.int32)
        texts[:, 0, : len(before)], texts[:, 1, : len(after)] = before.T, after.T
        padded = np.full(n, actions[0], np.int32)
        padded[: len(actions)] = actions
        self._device_texts.copy_texts(texts.ravel())
        self._device_texts.copy_texts(padded)
        name = (n, length, self._device_texts.generation)
        if name not in self._surprises_by_size:
            self._surprises_by_size[name] = self._record_surprise(n, length)
        step = self._surprises_by_size[name]
        step.buffer.array[:] = np.concatenate((texts.ravel(), padded))
        step.buffer.send()
        step.recorded.graph.replay()
        found: Floats = step.recorded.result[: len(before)].cpu().numpy()
        return found

    def _record_surprise(self, n: int, length: int) -> _Surprise:
        buffer = PinnedBuffer(7 * n, torch.int32, self._device)
        network, texts = self.network, self._device_texts.texts
        assert isinstance(network, InvDyNetwork)
        encoders = torch.arange(3, dtype=torch.int32, device=self._device).repeat_interleave(2 * n)
        nothing = make_no_steps(self._device)
        rows = EncoderRows(buffer.device[: 6 * n], encoders, torch.full_like(encoders, -1), nothing, nothing, 0)
        buffer.device.zero_()

        def step() -> Tensor:
            codes = network.state(_join_columns(self._frozen.encode(texts, rows), 2 * n))
            guess = network.guess(codes[:n], codes[n:])
            tokens, counts = self._gather_action_tokens(buffer.device[6 * n :].long(), length)
            surprise = self._decode(network, guess, tokens, counts)
            return surprise.sum(dim=1) / counts.sum(dim=1)

        return _Surprise(buffer, record(step))

    def _count_decoder_steps(self, actions: Ints) -> int:
        """Return the decoder steps that the longest action needs, rounded up so that few sizes are recorded."""
        return next_power_of_two(int(self._state_ids.texts.rows.lengths[actions].max()) - 1, 4)

    def _gather_action_tokens(self, actions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return the actions' tokens [n, length + 1], and a mask of the real ones after the first [n, length]."""
        texts = self._device_texts.texts
        tokens = texts.words[actions, : length + 1]
        if tokens.shape[1] < length + 1:
            tokens = torch.nn.functional.pad(tokens, (0, length + 1 - tokens.shape[1]))
        places = torch.arange(1, length + 1, device=self._device)
        return tokens, (places < texts.lengths[actions, None]).float()

    def _decode(self, network: InvDyNetwork, start: Tensor, tokens: Tensor, counts: Tensor) -> Tensor:
        decoder = network.decoder
        fed = torch.addmm(decoder.bias_ih, network.texts.embedding, decoder.weight_ih.t())
        return decode(
            start, fed, decoder.weight_hh, decoder.bias_hh, network.words.weight, network.words.bias, tokens, counts
        )  # fmt: skip

    # --- learning -----------------------------------------------------------------------------------------------

    def update(self, batch: NDArray[np.void]) -> Mapping[str, float]:
        """Start an update and return the losses of the one before: the GPU is still computing those of this one."""
        sides = 2 if self._inverse is not None else 1
        size = self._q.batch_size
        kept = self._kept.look_up(batch, lambda texts, actions: self._target_values.compute(texts, actions, 64))
        texts = np.full((3, sides, size), -1, np.int32)
        for place, name in enumerate(PARTS):
            for side in range(sides):
                texts[place, side, : len(batch)] = batch[("", "next_")[side] + name]
        actions = np.full(size, -1, np.int32)
        actions[: len(batch)] = batch["action"]
        flat = np.concatenate((texts.ravel(), actions))
        self._device_texts.copy_texts(flat)
        lengths = np.where(flat >= 0, self._state_ids.texts.rows.lengths[flat], 0)
        room = next_power_of_two(int(np.add.reduceat(lengths, self._first_of_each).max()), 2048)
        step = self._find_step(room, self._count_decoder_steps(batch["action"]))
        rows = len(flat)
        page, at, first, places = np.split(step.ints.array, (rows, 2 * rows, 2 * rows + 4 * self._vocabulary + 1))
        page[:] = flat
        order_words(self._state_ids.texts.rows, page, self._encoders, self._vocabulary, room, at, first, places)
        step.ints.send()
        floats = step.floats.array.reshape(4, size)
        floats.fill(0)
        floats[:, : len(batch)] = batch["reward"], kept, ~batch["terminal"], np.ones(len(batch), np.float32)
        step.floats.send()
        numbers = self._take_numbers()
        step.recorded.graph.replay()
        self._send_numbers(step.recorded.result)
        self.updates += 1
        if self.updates % self._q.target_every == 0:
            self._copy_target()
        return numbers

    def _find_step(self, room: int, length: int) -> _Update:
        name = (room, length, self._device_texts.generation)
        if name not in self._updates_by_size:
            # Recording also executes the step, so the weights and statistics are saved and put back.
            parameters = list(self.network.parameters())
            slots = [tensor for slot in self._optimiser.state.values() for tensor in slot.values()]
            saved = [tensor.detach().clone() for tensor in (*parameters, *slots)]
            self._updates_by_size[name] = self._record_update(room, length)
            with torch.no_grad():
                for tensor, value in zip((*parameters, *slots), saved, strict=True):
                    tensor.copy_(value)
            self._frozen.refresh()
        return self._updates_by_size[name]

    def _record_update(self, room: int, length: int) -> _Update:
        network, device, size = self.network, self._device, self._q.batch_size
        states = size * (2 if self._inverse is not None else 1)
        n = 3 * states + size
        ints = PinnedBuffer(2 * n + 4 * self._vocabulary + 1 + len(ENCODERS) * room, torch.int32, device)
        floats = PinnedBuffer(4 * size, torch.float32, device)
        ints.device[:n] = -1  # no texts during recording
        texts = self._device_texts.texts
        encoders = torch.arange(4, dtype=torch.int32, device=device).repeat_interleave(
            torch.tensor([states, states, states, size], device=device)
        )
        first = 2 * n + 4 * self._vocabulary + 1
        rows = EncoderRows(
            ints.device[:n], encoders, ints.device[n : 2 * n], ints.device[2 * n : first], ints.device[first:], room
        )
        rewards, next_values, alive, weight = floats.device.view(4, size)

        def losses() -> list[Tensor]:
            codes = encode(compute_inputs(network.texts), *stack_recurrent_weights(network.texts), texts, rows)
            state = network.state(_join_columns(codes, states))
            before, actions = state[:size], codes[3 * states :]
            q = network.q(before, actions)
            targets = rewards + self._q.gamma * next_values * alive
            count = weight.sum().clamp(min=1)
            td = (torch.nn.functional.smooth_l1_loss(q, targets, reduction="none") * weight).sum() / count
            found = [td, (q.detach() * weight).sum() / count, (rewards * weight).sum() / count]
            if not isinstance(network, InvDyNetwork):
                return found
            guess = network.guess(before, state[size:])
            tokens, counts = self._gather_action_tokens(rows.texts[3 * states :].clamp(min=0).long(), length)
            counts = counts * weight[:, None]
            surprise = self._decode(
                network, torch.cat((guess, actions)), tokens.repeat(2, 1), counts.repeat(2, 1)
            ).reshape(2, -1)  # fmt: skip
            return [*found, *(surprise.sum(dim=1) / counts.sum().clamp(min=1))]

        def step() -> Tensor:
            self._optimiser.zero_grad(set_to_none=True)
            found = losses()
            loss = found[0]
            if self._inverse is not None:
                loss = loss + self._inverse.alpha2 * found[3] + self._inverse.alpha3 * found[4]
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), self._q.clip, foreach=True)
            self._optimiser.step()
            self._frozen.refresh()
            return torch.stack([f.detach() for f in (*found[:3], norm, *found[3:])])

        return _Update(ints, floats, record(step))

    def _copy_target(self) -> None:
        self._target.load_state_dict(self.network.state_dict())
        self._frozen_target.refresh()
        self._kept.clear()

    # --- numbers to log, one update late ------------------------------------------------------------------------

    def _send_numbers(self, result: Tensor) -> None:
        host = torch.empty(result.shape, pin_memory=True)
        host.copy_(result, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._pending = host, event

    def _take_numbers(self) -> dict[str, float]:
        """Wait for the last update and return its numbers; empty if they were taken already or there was none."""
        numbers, self._numbers = self._numbers, {}
        if self._pending is not None:
            host, event = self._pending
            event.synchronize()
            numbers = dict(zip(NUMBERS, host.tolist(), strict=False))
            self._pending = None
        return numbers

    # --- keeping ------------------------------------------------------------------------------------------------

    def clear_cache(self) -> None:
        """Clear the texts on the GPU and the cached values."""
        self._device_texts.clear_cache()
        self._kept.clear()

    def clear_cached_texts(self, texts: Sequence[int]) -> None:
        """Remove these texts from the GPU."""
        self._device_texts.clear_cache(texts)

    def state(self) -> State:
        """Return weights, optimiser and pending numbers for `load`."""
        self._numbers = self._take_numbers()
        return {
            "network": copy_module_state(self.network),
            "target": {"network": copy_module_state(self._target), "values": self._kept.state()},
            "optimiser": copy_optimiser_state(self._optimiser),
            "numbers": self._numbers,
            "updates": self.updates,
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        load_module(self.network, state["network"])
        load_module(self._target, state["target"]["network"])
        self._kept.load(state["target"]["values"])
        # In place, not by the optimiser's own load: recorded steps use the addresses of the tensors.
        for place, slot in enumerate(self._optimiser.state.values()):
            for name, tensor in slot.items():
                tensor.copy_(torch.from_numpy(state["optimiser"][str(place)][name]))
        self._numbers = dict(state.get("numbers", {}))
        self.updates = state["updates"]
        self._frozen.refresh()
        self._frozen_target.refresh()
        self._device_texts.clear_cache()


@dataclass(frozen=True)
class _Surprise:
    buffer: PinnedBuffer
    recorded: RecordedStep


@dataclass(frozen=True)
class _Update:
    ints: PinnedBuffer
    floats: PinnedBuffer
    recorded: RecordedStep


def _join_columns(codes: Tensor, states: int) -> Tensor:
    """Return the codes of each state's three texts side by side, [states, 3 * hidden], from a list of all narrations,
    then all looks, then all inventories."""
    return codes[: 3 * states].view(3, states, -1).transpose(0, 1).reshape(states, -1)
