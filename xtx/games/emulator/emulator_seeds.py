"""Which emulator seed an episode gets.

libfrotz takes a seed through `os_random_seed`, not as a story's own `random -n`: so 1 to 999 are ordinary seeds here
and not its predictable mode. -1 would mean the time of day, and a number beyond 31 bits would be cut to some other
seed without a word: neither gets through.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any

from xtx.core import UserError

MAX_SEED = 2**31 - 1
"""Largest seed that libfrotz takes without cutting it."""
_MIN_DRAWN_SEED = 1000
"""Smallest seed that stochastic play draws."""


def check_seed(seed: Any) -> int:
    """An emulator seed as Python's number. Raises `UserError` for one that libfrotz would take for another."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_SEED:
        raise UserError(f"a seed is a whole number from 0 to {MAX_SEED}, not {seed!r:.60}")
    return number


class Seeds:
    """The emulator seeds of a run's episodes, one for each `take_next`.

    Deterministic play repeats one seed: the walkthrough's for run seed 0, else the run seed itself (which is what
    the authors' scripts come to). Stochastic play draws a fresh one for every episode. The generator is a hash of
    run seed and number of draws, so its whole state is that number.
    """

    def __init__(self, run_seed: int, walkthrough_seed: int, *, stochastic: bool = False, drawn: int = 0) -> None:
        if not 0 <= run_seed <= MAX_SEED:
            raise UserError(f"the seed of a run must be from 0 to {MAX_SEED}, not {run_seed}")
        self.run_seed = run_seed
        self.stochastic = stochastic
        self.drawn = drawn
        """Seeds given so far: keep it with the run, and give it back to the constructor to go on."""
        self._repeated = run_seed or walkthrough_seed

    def take_next(self) -> int:
        """Return the emulator seed of the next episode."""
        self.drawn += 1
        if not self.stochastic:
            return self._repeated
        digest = hashlib.blake2b(b"%d,%d" % (self.run_seed, self.drawn), digest_size=8, person=b"xtx episode").digest()
        return _MIN_DRAWN_SEED + int.from_bytes(digest, "big") % (MAX_SEED + 1 - _MIN_DRAWN_SEED)
