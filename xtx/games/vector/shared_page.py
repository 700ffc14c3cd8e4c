"""A page of memory that a worker shares with its parent: what it is doing, also after it has died."""

from __future__ import annotations

import ctypes
import mmap

from xtx.games.emulator.frotz import Trace

SHARED_PAGE_SIZE = mmap.PAGESIZE
"""Size of the shared memory in bytes: one page, which holds a `SharedPage`."""


class SharedPage(ctypes.Structure):
    """What a worker is doing, in memory shared with its parent."""

    _fields_ = (
        ("trace", Trace), ("call", ctypes.c_int64), ("start", ctypes.c_uint64), ("ahead", ctypes.c_int64),
        ("rebuilding", ctypes.c_int64), ("surveyed", ctypes.c_double),
    )  # fmt: skip
    # call: index of the current call, -1 before the first; start: the trace's progress counter when that call began;
    # ahead: not 0 while the worker looks ahead; rebuilding: not 0 while a game is brought to the state of a call;
    # surveyed: the share of a survey that is done, 0 without a survey.
