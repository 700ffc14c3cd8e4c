"""Q-values of many states on a GPU, as CUDA graphs that are recorded for a few sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xtx.kernels.cuda.device_text_table import DeviceTextTable, PinnedBuffer
from xtx.kernels.cuda.gru import DeviceTexts, EncoderRows, encode
from xtx.networks.q_networks import DrrnNetwork, InvDyNetwork, TextEncoders

ENCODERS = ("narration", "look", "inventory", "action")


def compute_inputs(texts: TextEncoders) -> Tensor:
    """Return the input projection W_ih x + b_ih of each word in each encoder, [vocabulary, 4, 3H]."""
    weight = torch.cat([getattr(texts, name).weight_ih for name in ENCODERS])
    bias = torch.cat([getattr(texts, name).bias_ih for name in ENCODERS])
    return torch.addmm(bias, texts.embedding, weight.t()).view(len(texts.embedding), len(ENCODERS), -1)


def stack_recurrent_weights(texts: TextEncoders) -> tuple[Tensor, Tensor]:
    """Return the recurrent weights [4, 3H, H] and biases [4, 3H] of the encoders."""
    weights = torch.stack([getattr(texts, name).weight_hh for name in ENCODERS])
    return weights, torch.stack([getattr(texts, name).bias_hh for name in ENCODERS])


def make_no_steps(device: torch.device) -> Tensor:
    """Return `starts` and `steps` for `EncoderRows` of which nothing is stored."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def next_power_of_two(number: int, least: int) -> int:
    """Return the next power of two, at least `least`, so that few different sizes are recorded."""
    return max(least, 1 << (number - 1).bit_length())


class KernelWeights:
    """A network's encoder weights in the form that the kernels read."""

    def __init__(self, network: DrrnNetwork | InvDyNetwork) -> None:
        self.network = network
        with torch.no_grad():
            self.inputs = compute_inputs(network.texts)
            self.weights, self.biases = stack_recurrent_weights(network.texts)

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute them again after the weights have changed, in the same memory."""
        self.inputs.copy_(compute_inputs(self.network.texts))
        weights, biases = stack_recurrent_weights(self.network.texts)
        self.weights.copy_(weights)
        self.biases.copy_(biases)

    def encode(self, texts: DeviceTexts, rows: EncoderRows) -> Tensor:
        """Return the codes of texts, [n, hidden]."""
        return encode(self.inputs, self.weights, self.biases, texts, rows)


@dataclass(frozen=True)
class RecordedStep:
    """A recorded step."""

    graph: torch.cuda.CUDAGraph
    result: Tensor
    """The step's result, overwritten by each replay."""
    step: Callable[[], Tensor]
    """The recorded function. It keeps the tensors alive that the graph uses by address."""


class RecordedQValues:
    """Computes Q-values with one network."""

    def __init__(self, weights: KernelWeights, device_texts: DeviceTextTable, device: torch.device) -> None:
        self._weights = weights
        self._device_texts = device_texts
        self._device = device
        self._buffers: dict[tuple[int, int, int], PinnedBuffer] = {}
        self._recorded: dict[tuple[int, int, int, int], RecordedStep] = {}

    @torch.no_grad()
    def compute(
        self, states: NDArray[np.int32], actions: Sequence[NDArray[np.int32]], least: int = 8
    ) -> NDArray[np.float32]:
        """Return the values of all states' actions, concatenated.

        states: [n, 3], text ids; actions: text ids of each state's actions; least: least number of states to record
        for.
        """
        counts = [len(numbers) for numbers in actions]
        distinct, which = np.unique(np.concatenate(actions), return_inverse=True)
        self._device_texts.copy_texts(states.ravel())
        self._device_texts.copy_texts(distinct)
        n = next_power_of_two(len(states), least)
        a, p = next_power_of_two(len(distinct), 128), next_power_of_two(len(which), 256)
        key = (n, a, p)
        if key not in self._buffers:
            self._buffers[key] = PinnedBuffer(3 * n + a + 2 * p, torch.int32, self._device)
        buffer = self._buffers[key]
        texts, acts, pairs = np.split(buffer.array, (3 * n, 3 * n + a))
        texts.fill(-1)
        texts.reshape(3, n)[:, : len(states)] = states.T
        acts[: len(distinct)] = distinct
        acts[len(distinct) :] = -1
        pairs.fill(0)
        pairs[: len(which)] = np.repeat(np.arange(len(states)), counts)
        pairs[p : p + len(which)] = which
        buffer.send()
        name = (*key, self._device_texts.generation)
        if name not in self._recorded:
            self._recorded[name] = self._record(n, a, p, buffer.device)
        step = self._recorded[name]
        step.graph.replay()
        values: NDArray[np.float32] = step.result[: len(which)].cpu().numpy()
        return values

    def _record(self, n: int, a: int, p: int, buffer: Tensor) -> RecordedStep:
        network, weights, texts = self._weights.network, self._weights, self._device_texts.texts
        encoders = torch.repeat_interleave(
            torch.arange(4, dtype=torch.int32, device=self._device), torch.tensor([n, n, n, a], device=self._device)
        )
        nothing = make_no_steps(self._device)
        rows = EncoderRows(buffer[: 3 * n + a], encoders, torch.full_like(encoders, -1), nothing, nothing, 0)
        pairs = buffer[3 * n + a :].view(2, p)

        def step() -> Tensor:
            codes = weights.encode(texts, rows)
            parts = codes[: 3 * n].view(3, n, -1).transpose(0, 1).reshape(n, -1)
            states, actions = network.state(parts), codes[3 * n :]
            return network.q(states[pairs[0].long()], actions[pairs[1].long()])

        return record(step)


def record(step: Callable[[], Tensor]) -> RecordedStep:
    """Record a step as a CUDA graph."""
    # The step runs twice first: libraries initialise themselves, which cannot be recorded.
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Python's garbage collector may free an old graph, which would abort the recording.
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            result = step()
    finally:
        gc.enable()
    return RecordedStep(graph, result, step)
