"""How commands end in the emulator, and after how many instructions they count as hanging."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

STEP_LIMIT = 40_000_000
"""Z-machine instructions after which a command counts as hanging (about a second)."""

CANDIDATE_LIMIT = 3_000_000
"""The same for a candidate of the valid-action search."""


class Status(IntEnum):
    """How a command ended, in frotz_bridge.c's numbers."""

    DONE = 0
    HALTED = 1
    LIMIT = 2
    CRASHED = 3
    """The emulator divided by zero."""


class Verdict(IntFlag):
    """What frotz_bridge.c says of a candidate."""

    CHANGED = 1
    TAKEN = 2
    RANDOM = 4
    STOPPED = 8
    EVENT = 16


@dataclass(frozen=True)
class Verdicts:
    """What became of a list of candidates, each tried from the same state."""

    flags: npt.NDArray[np.uint8]
    diffs: npt.NDArray[np.uint64]
    """A hash of the change of the world, one for each candidate; where nothing changed 0, or one of the EVENT."""
    watches: npt.NDArray[np.uint64]
    """A hash of the change of those bits that were watched beside, if any; 0 where none changed."""
    more_watches: npt.NDArray[np.uint64] | None = None
    """The same of each further set of bits, one column for each."""

    def select_rows(self, which: slice | npt.NDArray[np.intp]) -> Verdicts:
        """Return the verdicts on some of the candidates."""
        more = None if self.more_watches is None else self.more_watches[which]
        return Verdicts(self.flags[which], self.diffs[which], self.watches[which], more)

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """The arrays, those of further bits last where there are some."""
        more = [] if self.more_watches is None else [self.more_watches]
        return [self.flags, self.diffs, self.watches, *more]

    def make_empty(self, count: int) -> Verdicts:
        """Return verdicts of the same kind on `count` commands, all zero."""
        return Verdicts(*(np.zeros((count, *column.shape[1:]), dtype=column.dtype) for column in self.columns))

    def replace_rows(self, which: slice | npt.NDArray[np.intp], others: Verdicts) -> None:
        """Puts other verdicts in the place of some."""
        for ours, theirs in zip(self.columns, others.columns, strict=False):
            ours[which] = theirs
