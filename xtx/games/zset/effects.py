"""What the verdicts on many commands come to; the work is done in effects.c."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from xtx.games.emulator.frotz import Verdicts
from xtx.games.zset.engine import library


class NumberedEffects(NamedTuple):
    """What commands do to the world."""

    numbers: npt.NDArray[np.uint64]
    """One for each command: equal for equal effects, 0 for none, or for a command that does not come to an end."""
    touched: npt.NDArray[np.int32]
    """Commands that touch the object tree and leave it as it is, but change what was watched."""
    chancy: int
    """How many commands draw random numbers."""


class _Column(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_void_p),
        ("diffs", ctypes.c_void_p),
        ("flags_step", ctypes.c_int64),
        ("diffs_step", ctypes.c_int64),
    )


def number_effects(tried: Sequence[Verdicts], idle: npt.NDArray[np.uint64]) -> NumberedEffects:
    """What the commands do that were tried under each of several random numbers; `idle` are hashes of watched changes
    that do not count."""
    first, count = tried[0], len(tried[0].flags)
    columns = (_Column * len(tried))(
        *(_Column(v.flags.ctypes.data, v.diffs.ctypes.data, v.flags.strides[0], v.diffs.strides[0]) for v in tried)
    )
    numbers, touched = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.int32)
    chancy, idle = ctypes.c_int32(), np.ascontiguousarray(idle)
    found = library().zset_effects(
        columns, len(tried), first.watches.ctypes.data, first.watches.strides[0], count, idle.ctypes.data, len(idle),
        numbers.ctypes.data, touched.ctypes.data, ctypes.byref(chancy),
    )  # fmt: skip
    return NumberedEffects(numbers, touched[:found], chancy.value)
