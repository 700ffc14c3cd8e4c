"""Texts are cleaned in one way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtx.games.emulator.printed_text import clean

texts = st.text(st.sampled_from(" \n\r\t\xa0>abcDE.é"), max_size=60)


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("", ""),
        ("\n\n>", ""),
        ("\nYou  see\ta lamp. \n\n\n  It is lit.\n\n>", "You see a lamp.\nIt is lit."),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("a > b", "a > b"),
        ("Hall\n>go", "Hall\n>go"),
        ("Straße, naïve — “quoted”", "Straße, naïve — “quoted”"),
    ],
)
def test_examples(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@settings(deadline=None)
@given(texts)
def test_what_a_cleaned_text_looks_like(text: str) -> None:
    cleaned = clean(text)
    assert cleaned == cleaned.strip()
    assert "  " not in cleaned and "\r" not in cleaned and "\t" not in cleaned
    lines = cleaned.split("\n")
    assert lines == [""] or all(line and line == line.strip() for line in lines)


@settings(deadline=None)
@given(texts)
def test_nothing_that_can_be_read_is_lost(text: str) -> None:
    seen = "".join(text.split())
    assert "".join(clean(text).split()) in (seen, seen.removesuffix(">"))


@settings(deadline=None)
@given(st.text(max_size=100))
def test_any_text_can_be_cleaned(text: str) -> None:
    assert len(clean(text)) <= len(text)


@settings(deadline=None)
@given(texts.filter(lambda t: not t.strip().endswith(">")))
def test_a_cleaned_text_is_clean(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert clean(text + "\n\n>") == clean(text)
