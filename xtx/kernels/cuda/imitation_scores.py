"""The scores of the imitation policy on a GPU, as CUDA graphs that are recorded for a few fixed shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xtx.kernels.cuda.device_text_table import PinnedBuffer
from xtx.kernels.cuda.q_values import RecordedStep, next_power_of_two, record
from xtx.networks.gpt import GPT, NOTHING

LENGTHS = (64, 96, 128, 160, 192, 256, 384, 512)
"""Context lengths that are recorded; a batch is padded to the next one."""
SAID = (4, 8, 16, 32)
"""Action lengths that are recorded, likewise."""


class RecordedScores:
    """Computes mean log-probabilities of actions after contexts."""

    def __init__(self, model: GPT) -> None:
        self._model = model
        self._device = model.words.weight.device
        self._recorded: dict[tuple[int, int, int, int], tuple[PinnedBuffer, RecordedStep]] = {}

    @torch.no_grad()
    def start(
        self, rows: Sequence[NDArray[np.int32]], says: Sequence[Sequence[NDArray[np.int32]]]
    ) -> Callable[[], list[NDArray[np.float64]]]:
        """Start computing the mean log-probability of each action's tokens; returns a function that waits for the
        result.

        rows: tokens of each context; says: tokens of the actions of each context. The function must be called before
        the next call of `ask`. See `ImitationPolicy._score`.
        """
        states = next_power_of_two(len(rows), 8)
        length = min(_round_up(LENGTHS, max(map(len, rows)) - 1), self._model.sizes.context)
        count = next_power_of_two(max(map(len, says)), 16)
        longest = _round_up(SAID, max(len(said) for valid in says for said in valid))
        shape = (states, length, count, longest)
        if shape not in self._recorded:
            buffer = PinnedBuffer(states * (1 + length + 2 * count * longest), torch.int32, self._device)
            self._recorded[shape] = buffer, self._record(shape, buffer.device)
        buffer, recorded = self._recorded[shape]
        buffer.array[:] = pack(rows, says, shape)
        buffer.send()
        recorded.graph.replay()

        def finish() -> list[NDArray[np.float64]]:
            scores = recorded.result.double().cpu().numpy()
            return [score[: len(valid)] for score, valid in zip(scores, says, strict=False)]

        return finish

    def _record(self, shape: tuple[int, int, int, int], buffer: Tensor) -> RecordedStep:
        states, length, count, longest = shape
        action_tokens = states * count * longest
        sizes = [states, states * length, action_tokens, action_tokens]

        def step() -> Tensor:
            lengths, tokens, inputs, labels = torch.split(buffer.long(), sizes)
            memory = self._model.read(tokens.view(states, length))
            action_shape = (states, count, longest)
            return self._model.log_probabilities(memory, lengths, inputs.view(action_shape), labels.view(action_shape))

        return record(step)


def pack(
    rows: Sequence[NDArray[np.int32]], says: Sequence[Sequence[NDArray[np.int32]]], shape: tuple[int, int, int, int]
) -> NDArray[np.int32]:
    """Pack the arguments of `GPT.log_probabilities` into one array.

    shape: number of states, context length, number of actions, action length; everything is padded to it. The array has
    the lengths of the contexts without their last tokens, these contexts, and inputs and labels of all actions.
    """
    states, length, count, longest = shape
    lengths = np.zeros(states, np.int32)
    lengths[: len(rows)] = [len(row) - 1 for row in rows]
    tokens = np.zeros((states, length), np.int32)
    tokens[np.arange(length) < lengths[:, None]] = np.concatenate([row[:-1] for row in rows])
    inputs = np.zeros((states, count, longest), np.int32)
    inputs[: len(rows), :, 0] = np.array([row[-1] for row in rows], np.int32)[:, None]
    labels = np.full_like(inputs, NOTHING)
    said = [action for valid in says for action in valid]
    is_token = np.arange(longest) < np.array([len(action) for action in said])[:, None]
    padded = np.full(is_token.shape, NOTHING, np.int32)
    padded[is_token] = np.concatenate(said)
    place = np.concatenate([state * count + np.arange(len(valid)) for state, valid in enumerate(says)])
    labels.reshape(-1, longest)[place] = padded
    inputs.reshape(-1, longest)[place, 1:] = np.where(is_token[:, 1:], padded[:, :-1], 0)
    return np.concatenate([lengths, tokens.ravel(), inputs.ravel(), labels.ravel()])


def _round_up(sizes: Sequence[int], least: int) -> int:
    """Return the smallest of the sizes that is at least `least`; `least` itself if there is none."""
    return next((size for size in sizes if size >= least), least)
