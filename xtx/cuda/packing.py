"""Rows of equal length out of examples of different lengths, several in a row: hardly any padding, where filling up
each of 64 examples to the longest would double the work.

Plain arrays: where every token of every row comes from. Attention must keep the examples of a row apart (see
packed_gpt.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


class Flat:
    """Examples one behind the other. Entry 0 is a token of nothing, for padding."""

    def __init__(self, tokens: Sequence[Ints], contexts: Sequence[int]) -> None:
        """Each example is a context of so many tokens and the action that was taken with its end mark."""
        lengths = np.array([len(row) for row in tokens], np.int64)
        self.starts = 1 + np.cumsum(lengths) - lengths
        self.read = lengths - 1
        """How many tokens of each are read: an end mark never is."""
        self.said = lengths - np.array(contexts, np.int64)
        """How many are predicted."""
        self.tokens: Ints = np.concatenate([np.zeros(1, np.int32), *tokens]).astype(np.int32)
        self.places: Ints = (np.arange(len(self.tokens)) - np.repeat(np.r_[0, self.starts], np.r_[1, lengths])).astype(
            np.int32
        )
        self.owners: Ints = np.repeat(np.arange(len(lengths) + 1), np.r_[1, lengths]).astype(np.int32)
        """To which example a token belongs, counted from 1."""

    def __len__(self) -> int:
        return len(self.read)


@dataclass(frozen=True)
class Packed:
    """Batches of rows."""

    source: Ints
    """[batches, rows, capacity]: entries of `Flat`."""
    at: Ints
    """[batches, rows, slots]: after which tokens of the row something is predicted; -1: nothing."""
    said: NDArray[np.int64]
    """[batches]: how much is predicted in all."""


def pack_batches(
    flat: Flat, order: NDArray[np.integer], batch: int, capacity: int, slots: int, step: int = 4
) -> Packed:
    """The examples in this order, `batch` of them at a time. All batches have as many rows as the fullest needs, to the
    next multiple of `step`."""
    batches = -(-len(order) // batch)
    row, column, slot = (np.zeros(len(order), np.int64) for _ in range(3))
    rows = 0
    for number in range(batches):
        here = slice(number * batch, (number + 1) * batch)
        chosen = order[here]
        row[here], column[here], slot[here] = _fit(flat.read[chosen], flat.said[chosen], capacity, slots)
        rows = max(rows, int(row[here].max()) + 1)
    rows = -(-rows // step) * step
    row += np.repeat(np.arange(batches), batch)[: len(order)] * rows
    source = np.zeros(batches * rows * capacity, np.int32)
    read, said = flat.read[order], flat.said[order]
    source[_runs(row * capacity + column, read)] = _runs(flat.starts[order], read)
    at = np.full(batches * rows * slots, -1, np.int32)
    at[_runs(row * slots + slot, said)] = _runs(column + read - said, said)
    sums = np.add.reduceat(said, np.arange(0, len(order), batch))
    return Packed(source.reshape(batches, rows, capacity), at.reshape(batches, rows, slots), sums)


def _fit(
    read: NDArray[np.int64], said: NDArray[np.int64], capacity: int, slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """A row, a first column and a first slot for each: the longest first, each into the first row with room."""
    room: list[list[int]] = []
    place = np.zeros((3, len(read)), np.int64)
    lengths, spoken = read.tolist(), said.tolist()
    for example in np.argsort(-read, kind="stable").tolist():
        length, words = lengths[example], spoken[example]
        fits = (row for row, (free, silent) in enumerate(room) if free >= length and silent >= words)
        row = next(fits, len(room))
        if row == len(room):
            room.append([capacity, slots])
        left = room[row]
        place[:, example] = row, capacity - left[0], slots - left[1]
        left[0] -= length
        left[1] -= words
    return place[0], place[1], place[2]


def _runs(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ... of each run, one behind the other."""
    ends = np.cumsum(lengths)
    runs: NDArray[np.int64] = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    return runs
