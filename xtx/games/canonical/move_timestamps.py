"""Move timestamps: words of memory that hold the number of the move at which something happened last.

A player who gets tired some moves after the last sleep is an example. The key does not hold the number of moves, so a
timestamp means nothing in it: what counts is how long ago the move was, and of this only whether it is long enough for
something to come of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import numpy.typing as npt

_CHANGES = 2
"""So often a word must have been set to the number of moves before it is taken for a timestamp."""


def find_timestamps(memory: npt.NDArray[np.uint8], moves: npt.NDArray[np.int64]) -> list[int]:
    """Addresses of words that were set to the number of moves now and then and to nothing else, along a walk: its
    memories, one in each row, and the number of moves in each."""
    words = (memory[:, :-1].astype(np.uint16) << 8) | memory[:, 1:]
    changed = words[1:] != words[:-1]
    before, after = moves[:-1, None], moves[1:, None]
    fits = (words[1:] == before) | (words[1:] == before + 1) | (words[1:] == after)
    found = np.flatnonzero((~changed | fits).all(axis=0) & (changed.sum(axis=0) >= _CHANGES)).tolist()
    return [a for a in found if len(set(words[1:, a][changed[:, a]].tolist())) >= _CHANGES]


def find_breaks(read_appearance: Callable[[int], Hashable], longest: int, max_breaks: int) -> list[int]:
    """The numbers of moves, up to the longest, after which something appears otherwise than just before; the first few
    of them, one more than `max_breaks` where there are more than that."""
    found: list[int] = []
    spans = [(0, longest)]
    while spans and len(found) <= max_breaks:
        early, late = spans.pop()
        if read_appearance(early) == read_appearance(late):
            continue
        if late - early == 1:
            found.append(late)
            continue
        middle = (early + late) // 2
        spans += [(middle, late), (early, middle)]
    return found


def write_word(ram: npt.NDArray[np.uint8], address: int, value: int) -> None:
    """Writes a number, which may be below 0."""
    ram[address], ram[address + 1] = value >> 8 & 0xFF, value & 0xFF


def count_elapsed(now: int, then: int) -> int:
    """The moves since a timestamp was set; stories reckon with 16 bits and a sign."""
    return (now - then + 0x8000 & 0xFFFF) - 0x8000
