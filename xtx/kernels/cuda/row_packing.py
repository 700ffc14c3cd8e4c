"""Packs examples of different lengths into rows of equal length, several per row, with hardly any padding.

Padding each of 64 examples to the longest would double the work. The results are arrays that say which token of which
example is at each position. Attention must separate the examples of a row (see packed_gpt.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


class FlatExamples:
    """The tokens of all examples, concatenated. Entry 0 is an empty token, for padding."""

    def __init__(self, tokens: Sequence[Ints], contexts: Sequence[int]) -> None:
        """tokens: a context, the action that was taken and its end mark, for each example; contexts: the number of
        tokens of each context."""
        lengths = np.array([len(row) for row in tokens], np.int64)
        self.starts = 1 + np.cumsum(lengths) - lengths
        self.read = lengths - 1
        """Number of input tokens of each example; the end mark is not one."""
        self.said = lengths - np.array(contexts, np.int64)
        """Number of predicted tokens of each example."""
        self.tokens: Ints = np.concatenate([np.zeros(1, np.int32), *tokens]).astype(np.int32)
        self.places: Ints = (np.arange(len(self.tokens)) - np.repeat(np.r_[0, self.starts], np.r_[1, lengths])).astype(
            np.int32
        )
        self.owners: Ints = np.repeat(np.arange(len(lengths) + 1), np.r_[1, lengths]).astype(np.int32)
        """The index of each token's example, from 1."""

    def __len__(self) -> int:
        return len(self.read)


@dataclass(frozen=True)
class PackedBatches:
    """Batches of packed rows."""

    source: Ints
    """[batches, rows, capacity]: index into `FlatExamples.tokens` of each token."""
    at: Ints
    """[batches, rows, slots]: columns after which a token is predicted; -1: none."""
    said: NDArray[np.int64]
    """[batches]: number of predicted tokens."""


def pack_batches(
    flat: FlatExamples, order: NDArray[np.integer], batch: int, capacity: int, slots: int, step: int = 4
) -> PackedBatches:
    """Pack the examples in this order, `batch` of them at a time.

    capacity: tokens of a row; slots: predictions of a row. All batches get as many rows as the largest needs, rounded
    up to a multiple of `step`.
    """
    batches = -(-len(order) // batch)
    row, column, slot = (np.zeros(len(order), np.int64) for _ in range(3))
    rows = 0
    for number in range(batches):
        here = slice(number * batch, (number + 1) * batch)
        chosen = order[here]
        row[here], column[here], slot[here] = _assign_rows(flat.read[chosen], flat.said[chosen], capacity, slots)
        rows = max(rows, int(row[here].max()) + 1)
    rows = -(-rows // step) * step
    row += np.repeat(np.arange(batches), batch)[: len(order)] * rows
    source = np.zeros(batches * rows * capacity, np.int32)
    read, said = flat.read[order], flat.said[order]
    source[_list_runs(row * capacity + column, read)] = _list_runs(flat.starts[order], read)
    at = np.full(batches * rows * slots, -1, np.int32)
    at[_list_runs(row * slots + slot, said)] = _list_runs(column + read - said, said)
    sums = np.add.reduceat(said, np.arange(0, len(order), batch))
    return PackedBatches(source.reshape(batches, rows, capacity), at.reshape(batches, rows, slots), sums)


def _assign_rows(
    read: NDArray[np.int64], said: NDArray[np.int64], capacity: int, slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Assign a row, a first column and a first slot to each example: longest first, each into the first row that
    fits."""
    room: list[list[int]] = []
    place = np.zeros((3, len(read)), np.int64)
    lengths, predictions = read.tolist(), said.tolist()
    for example in np.argsort(-read, kind="stable").tolist():
        length, predicted = lengths[example], predictions[example]
        fits = (row for row, (tokens, slot) in enumerate(room) if tokens >= length and slot >= predicted)
        row = next(fits, len(room))
        if row == len(room):
            room.append([capacity, slots])
        left = room[row]
        place[:, example] = row, capacity - left[0], slots - left[1]
        left[0] -= length
        left[1] -= predicted
    return place[0], place[1], place[2]


def _list_runs(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return start, start + 1, ... of each run, concatenated."""
    ends = np.cumsum(lengths)
    runs: NDArray[np.int64] = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    return runs
