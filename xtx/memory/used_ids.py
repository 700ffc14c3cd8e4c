"""Collects the text ids that stored data uses, which the text table must keep."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def find_distinct_ids(arrays: Iterable[NDArray[np.integer]]) -> NDArray[np.int64]:
    """Return the distinct ids in the arrays, ascending, without negative ones, which stand for "no text"."""
    arrays = [array for array in arrays if array.size]
    # A flag for every possible id instead of sorting: there are millions of entries, but only thousands of ids.
    used = np.zeros(max((int(array.max()) for array in arrays), default=-1) + 1, np.bool_)
    for array in arrays:
        used[array[array >= 0]] = True
    return np.flatnonzero(used)
