"""Q-values of many states at once, as recorded steps."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xtx.cuda.kernels import Rows, Texts, encode
from xtx.cuda.shelf import Mail, Shelf
from xtx.nets import DrrnNetwork, InvDyNetwork, TextEncoders

ENCODERS = ("narration", "look", "inventory", "action")


def inputs(texts: TextEncoders) -> Tensor:
    """[vocabulary, 4, 3H]: what each word gives to each encoder."""
    weight = torch.cat([getattr(texts, name).weight_ih for name in ENCODERS])
    bias = torch.cat([getattr(texts, name).bias_ih for name in ENCODERS])
    return torch.addmm(bias, texts.embedding, weight.t()).view(len(texts.embedding), len(ENCODERS), -1)


def recurrent(texts: TextEncoders) -> tuple[Tensor, Tensor]:
    """[4, 3H, H] and [4, 3H]: the recurrent weights and biases."""
    weights = torch.stack([getattr(texts, name).weight_hh for name in ENCODERS])
    return weights, torch.stack([getattr(texts, name).bias_hh for name in ENCODERS])


def no_steps(device: torch.device) -> Tensor:
    """For rows of which nothing is kept."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def power_of_two(number: int, least: int) -> int:
    """The smallest size that fits, of few different ones."""
    return max(least, 1 << (number - 1).bit_length())


class Frozen:
    """A network's weights in the form that encoding reads, until they change."""

    def __init__(self, network: DrrnNetwork | InvDyNetwork) -> None:
        self.network = network
        with torch.no_grad():
            self.inputs = inputs(network.texts)
            self.weights, self.biases = recurrent(network.texts)

    @torch.no_grad()
    def refresh(self) -> None:
        """Reads the weights again, into the same places."""
        self.inputs.copy_(inputs(self.network.texts))
        weights, biases = recurrent(self.network.texts)
        self.weights.copy_(weights)
        self.biases.copy_(biases)

    def encode(self, texts: Texts, rows: Rows) -> Tensor:
        """[n, hidden]"""
        return encode(self.inputs, self.weights, self.biases, texts, rows)


@dataclass(frozen=True)
class Recorded:
    """A step that can be replayed."""

    graph: torch.cuda.CUDAGraph
    result: Tensor
    """What the step gives back; each replay writes it anew."""
    step: Callable[[], Tensor]
    """Kept because it holds the tensors that the graph knows by address only."""


class Values:
    """Q-values by one network, whose steps are recorded for a few sizes."""

    def __init__(self, frozen: Frozen, shelf: Shelf, device: torch.device) -> None:
        self._frozen = frozen
        self._shelf = shelf
        self._device = device
        self._mails: dict[tuple[int, int, int], Mail] = {}
        self._recorded: dict[tuple[int, int, int, int], Recorded] = {}

    @torch.no_grad()
    def of(
        self, states: NDArray[np.int32], actions: Sequence[NDArray[np.int32]], least: int = 8
    ) -> NDArray[np.float32]:
        """The values of each state's actions, one after the other. states: [n, 3] numbers of texts"""
        counts = [len(numbers) for numbers in actions]
        distinct, which = np.unique(np.concatenate(actions), return_inverse=True)
        self._shelf.bring(states.ravel())
        self._shelf.bring(distinct)
        n, a, p = (
            power_of_two(len(states), least), power_of_two(len(distinct), 128), power_of_two(len(which), 256)
        )  # fmt: skip
        key = (n, a, p)
        if key not in self._mails:
            self._mails[key] = Mail(3 * n + a + 2 * p, torch.int32, self._device)
        mail = self._mails[key]
        texts, acts, pairs = np.split(mail.page, (3 * n, 3 * n + a))
        texts.fill(-1)
        texts.reshape(3, n)[:, : len(states)] = states.T
        acts[: len(distinct)] = distinct
        acts[len(distinct) :] = -1
        pairs.fill(0)
        pairs[: len(which)] = np.repeat(np.arange(len(states)), counts)
        pairs[p : p + len(which)] = which
        mail.send()
        name = (*key, self._shelf.generation)
        if name not in self._recorded:
            self._recorded[name] = self._record(n, a, p, mail.device)
        step = self._recorded[name]
        step.graph.replay()
        values: NDArray[np.float32] = step.result[: len(which)].cpu().numpy()
        return values

    def _record(self, n: int, a: int, p: int, mail: Tensor) -> Recorded:
        network, frozen, texts = self._frozen.network, self._frozen, self._shelf.texts
        encoders = torch.repeat_interleave(
            torch.arange(4, dtype=torch.int32, device=self._device), torch.tensor([n, n, n, a], device=self._device)
        )
        nothing = no_steps(self._device)
        rows = Rows(mail[: 3 * n + a], encoders, torch.full_like(encoders, -1), nothing, nothing, 0)
        pairs = mail[3 * n + a :].view(2, p)

        def step() -> Tensor:
            codes = frozen.encode(texts, rows)
            parts = codes[: 3 * n].view(3, n, -1).transpose(0, 1).reshape(n, -1)
            states, actions = network.state(parts), codes[3 * n :]
            return network.q(states[pairs[0].long()], actions[pairs[1].long()])

        return record(step)


def record(step: Callable[[], Tensor]) -> Recorded:
    """A graph of the step."""
    # A few times as it is first: libraries set themselves up, which cannot be recorded.
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # What Python's garbage collector finds meanwhile may be an old graph, and freeing one spoils the recording.
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            result = step()
    finally:
        gc.enable()
    return Recorded(graph, result, step)
