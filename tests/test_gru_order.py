"""Word positions sorted in C, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtx.gru.order import order_words
from xtx.text import Ragged

WORDS, GROUPS, ROOM = 40, 4, 512


def table(draw: np.random.Generator, rows: int) -> Ragged:
    made = Ragged()
    for _ in range(rows):
        made.add(draw.integers(0, WORDS, draw.integers(1, 20)).astype(np.int32))
    return made


def spaces(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make buffers for `at`, `first` and `places`, filled with a number that must not remain."""
    at, first, places = (np.full(size, 77, np.int32) for size in (rows, WORDS * GROUPS + 1, GROUPS * ROOM))
    return at, first, places


@given(seed=st.integers(0, 10_000), rows=st.integers(0, 100))
def test_every_word_has_its_place_in_order(seed: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    texts = table(draw, 30)
    chosen = draw.integers(-1, 30, rows).astype(np.int32)
    groups = draw.integers(0, GROUPS, rows).astype(np.int32)
    at, first, places = spaces(rows)
    order_words(texts, chosen, groups, WORDS, ROOM, at, first, places)
    used = [0] * GROUPS
    wanted = []
    for row, (text, group) in enumerate(zip(chosen.tolist(), groups.tolist(), strict=True)):
        if text < 0:
            assert at[row] == -1
            continue
        assert at[row] == group * ROOM + used[group]
        wanted += [(word, group, at[row] + i) for i, word in enumerate(texts.row(text).tolist())]
        used[group] += len(texts.row(text))
    wanted.sort(key=lambda found: found[:2])  # which leaves equal ones as they are
    assert places[: len(wanted)].tolist() == [place for _, _, place in wanted]
    keys = [word * GROUPS + group for word, group, _ in wanted]
    assert first.tolist() == np.searchsorted(keys, np.arange(WORDS * GROUPS + 1)).tolist()


def test_what_does_not_fit_is_refused() -> None:
    texts = table(np.random.default_rng(0), 30)
    zeros = np.zeros(200, np.int32)
    with pytest.raises(ValueError, match="more than 512"):
        order_words(texts, np.arange(200, dtype=np.int32) % 30, zeros, WORDS, ROOM, *spaces(200))
    texts.add(np.array([WORDS], np.int32))
    for wrong, groups in (([30], [0]), ([0], [GROUPS]), ([0], [-1])):
        given_, of = np.array(wrong, np.int32), np.array(groups, np.int32)
        with pytest.raises(ValueError, match="words beyond"):
            order_words(texts, given_, of, WORDS, ROOM, *spaces(1))
    with pytest.raises(ValueError, match="for each row"):
        order_words(texts, np.array([10_000], np.int32), zeros[:1], WORDS, ROOM, *spaces(1))
    with pytest.raises(ValueError, match="for every word"):
        order_words(texts, zeros[:1], zeros[:1], WORDS, ROOM, *spaces(1)[:2], zeros[:9])
    with pytest.raises(TypeError):
        order_words(texts, np.zeros(1, np.int64), zeros[:1], WORDS, ROOM, *spaces(1))  # type: ignore[arg-type]
