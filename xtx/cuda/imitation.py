"""The scores of the imitation policy on a GPU, as recorded steps over a few fixed shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xtx.cuda.shelf import Mail
from xtx.cuda.values import Recorded, power_of_two, record
from xtx.gpt import GPT, NOTHING

LENGTHS = (64, 96, 128, 160, 192, 256, 384, 512)
SAID = (4, 8, 16, 32)
"""Shapes that are recorded: what is asked is filled up to the next."""


class RecordedScores:
    """Mean log-probabilities of actions after contexts."""

    def __init__(self, model: GPT) -> None:
        self._model = model
        self._device = model.words.weight.device
        self._recorded: dict[tuple[int, int, int, int], tuple[Mail, Recorded]] = {}

    @torch.no_grad()
    def ask(
        self, rows: Sequence[NDArray[np.int32]], says: Sequence[Sequence[NDArray[np.int32]]]
    ) -> Callable[[], list[NDArray[np.float64]]]:
        """For each context, the mean log-probability of each action's tokens, as soon as that is called for: meanwhile
        the GPU is at it. Nothing more may be asked before. See `ImitationPolicy._score`."""
        states = power_of_two(len(rows), 8)
        length = min(_next(LENGTHS, max(map(len, rows)) - 1), self._model.sizes.context)
        count = power_of_two(max(map(len, says)), 16)
        longest = _next(SAID, max(len(said) for valid in says for said in valid))
        shape = (states, length, count, longest)
        if shape not in self._recorded:
            mail = Mail(states * (1 + length + 2 * count * longest), torch.int32, self._device)
            self._recorded[shape] = mail, self._record(shape, mail.device)
        mail, recorded = self._recorded[shape]
        mail.page[:] = pack(rows, says, shape)
        mail.send()
        recorded.graph.replay()

        def answer() -> list[NDArray[np.float64]]:
            scores = recorded.result.double().cpu().numpy()
            return [score[: len(valid)] for score, valid in zip(scores, says, strict=False)]

        return answer

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


def _next(sizes: Sequence[int], least: int) -> int:
    """The smallest of the sizes that is enough, else `least` itself."""
    return next((size for size in sizes if size >= least), least)
