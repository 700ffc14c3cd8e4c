"""Which numbers of texts are in use: what the sweep of the text table must not forget."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def distinct_ids(arrays: Iterable[NDArray[np.integer]]) -> NDArray[np.int64]:
    """The distinct numbers in the arrays, ascending; negative ones stand for "no text" and are left out."""
    arrays = [array for array in arrays if array.size]
    # A mark for every possible number instead of sorting: millions of entries, but only thousands of texts.
    used = np.zeros(max((int(array.max()) for array in arrays), default=-1) + 1, np.bool_)
    for array in arrays:
        used[array[array >= 0]] = True
    return np.flatnonzero(used)
