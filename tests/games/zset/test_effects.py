"""What verdicts come to, beside the same worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtx.games.emulator.frotz import Verdict, Verdicts
from xtx.games.zset.effects import number_effects

SOME = 1 << 64


def columns(rng: np.random.Generator, count: int, numbers: int, mixed: bool) -> list[Verdicts]:
    """Verdicts on commands under each of some random numbers, next to each other or one between the others."""
    shape = (count, numbers)
    flags = rng.integers(0, 32, shape).astype(np.uint8)
    diffs, watches = rng.integers(0, 4, (2, *shape)).astype(np.uint64)
    if mixed:
        return [Verdicts(*each) for each in zip(flags.T, diffs.T, watches.T, strict=True)]
    return [Verdicts(*(part[:, i].copy() for part in (flags, diffs, watches))) for i in range(numbers)]


def by_hand(tried: list[Verdicts], idle: list[int]) -> tuple[list[int], list[int], int]:
    numbers, touched, chancy = [], [], 0
    for i, flags in enumerate(tried[0].flags.tolist()):
        draws = bool(flags & Verdict.RANDOM)
        number, stopped = 0, False
        for verdicts in tried if draws else tried[:1]:
            own = int(verdicts.flags[i])
            counts = own & Verdict.CHANGED and not own & Verdict.TAKEN
            number = (number * 0x9E3779B97F4A7C15 + (int(verdicts.diffs[i]) if counts else 0)) % SOME
            stopped = stopped or bool(own & Verdict.STOPPED)
        numbers.append(0 if stopped else number)
        chancy += draws
        watch = int(tried[0].watches[i])
        quiet = not number and not stopped and not flags & Verdict.TAKEN and flags & Verdict.EVENT
        if quiet and watch and watch not in idle:
            touched.append(i)
    return numbers, touched, chancy


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 400), st.integers(1, 5), st.booleans(), st.integers(0, 3))
def test_effects_as_by_hand(seed: int, count: int, numbers: int, mixed: bool, idle: int) -> None:
    rng = np.random.default_rng(seed)
    tried = columns(rng, count, numbers, mixed)
    usual = rng.integers(0, 4, idle).astype(np.uint64)
    found = number_effects(tried, usual)
    assert (found.numbers.tolist(), found.touched.tolist(), found.chancy) == by_hand(tried, usual.tolist())


@pytest.mark.parametrize("skipped", [0, 2])
def test_parts_of_columns(skipped: int) -> None:
    """As the search has them: behind the verdicts on questions, whose watches count as usual."""
    tried = columns(np.random.default_rng(1), 400, 4, mixed=True)
    part = [verdicts.select_rows(slice(skipped, None)) for verdicts in tried]
    found = number_effects(part, tried[0].watches[:skipped])
    expected = by_hand(part, tried[0].watches[:skipped].tolist())
    assert (found.numbers.tolist(), found.touched.tolist(), found.chancy) == expected
    assert len(found.touched) and found.chancy and np.count_nonzero(found.numbers)
