"""Sorts the positions of words in many rows by word, in C, so that gradients of words can be summed in a fixed
order."""

from __future__ import annotations

import ctypes
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from xtx.kernels.cpu.gru import get_function

Ints = NDArray[np.int32]


class RaggedRows(Protocol):
    """Rows of words in one array; implemented by `xtx.text.text_table.Ragged`."""

    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    flat: Ints


class _OrderTable(ctypes.Structure):
    _fields_ = (("flat", ctypes.c_void_p), ("starts", ctypes.c_void_p), ("lengths", ctypes.c_void_p))


def order_words(
    table: RaggedRows, texts: Ints, groups: Ints, words: int, room: int, at: Ints, first: Ints, places: Ints
) -> None:
    """Assign a position to every word of some rows, and sort the positions by word.

    Each row is a text of the table (negative: none) and belongs to one of the groups; a group has `room` positions.
    Filled in are `at` [rows], the position of each row's first word (-1 for no text); `places`, the positions of all
    words, ordered by word and group; and `first` [words * groups + 1], where those of each word and group begin.
    Raises `TypeError` or `ValueError` for arrays that do not fit.
    """
    count = (len(first) - 1) // words
    arrays = (texts, groups, at, first, places, table.flat)
    if any(array.dtype != np.int32 or not array.flags.c_contiguous for array in arrays):
        raise TypeError("all arrays must be contiguous and of int32")
    if (len(texts) and texts.max() >= len(table.lengths)) or len(groups) != len(texts) or len(at) != len(texts):
        raise ValueError("there must be a text and a group for each row")
    if len(places) < count * room:
        raise ValueError("there must be a place for every word")
    rows = _OrderTable(table.flat.ctypes.data, table.starts.ctypes.data, table.lengths.ctypes.data)
    pointers = (array.ctypes.data for array in (at, first, places))
    if get_function("gru_order")(
        ctypes.c_void_p(texts.ctypes.data), ctypes.c_void_p(groups.ctypes.data), len(texts), ctypes.byref(rows), words,
        count, room, *map(ctypes.c_void_p, pointers),
    ):  # fmt: skip
        raise ValueError(f"words beyond {words}, or more than {room} in a group")
