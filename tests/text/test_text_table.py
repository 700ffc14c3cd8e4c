"""Vocabulary, text table and action sets: ids, full vocabularies, sweeps, saving and loading."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtx.agents import state_ids
from xtx.agents.state_ids import UNKNOWN, StateIds
from xtx.config.settings import TextSettings
from xtx.core import Observation
from xtx.text.text_table import END, MARKS, PAD, SEP, START, ActionSets, Ragged, TextTable, Vocabulary, split

WORDS = st.sampled_from(["lamp", "key", "open", "it's", "7", *"abcdefghij"])
TEXTS = st.lists(WORDS, max_size=9).map(" ".join)


def silent(line: str) -> None:
    """Ignore the warning of a full vocabulary."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("West of House", ["west", "of", "house"]),
        ("Don't go!", ["don't", "go", "!"]),
        ("10 points", ["1", "0", "points"]),
        ("a_b", ["a", "_", "b"]),
        ("Çüß 'quoted'", ["çüß", "'", "quoted", "'"]),
        ("x2y", ["x", "2", "y"]),
        ("  \n", []),
        ("it''s", ["it", "'", "'", "s"]),
    ],
)
def test_splitting(text: str, words: list[str]) -> None:
    assert split(text) == words


@given(st.text())
def test_splitting_loses_nothing_but_space(text: str) -> None:
    assert "".join(split(text)) == re.sub(r"\s", "", text.lower())


def test_words_get_rows_in_the_order_in_which_they_are_met() -> None:
    vocabulary = Vocabulary(100)
    assert (PAD, START, END, SEP) == (0, 1, 2, 3)
    assert vocabulary.encode("go to the lamp, go", 100).tolist() == [START, 4, 5, 6, 7, 8, 4, END]
    assert vocabulary.encode("lamp", 100).tolist() == [START, 7, END]
    assert vocabulary.encode("", 100).tolist() == [START, END]
    assert len(vocabulary) == 9
    assert vocabulary.encode("the lamp to the", 4).tolist() == [START, 6, 7, END]
    assert vocabulary.shared == 0


def test_words_are_not_marks() -> None:
    """What a game prints cannot be taken for a mark: `<end>` is three words."""
    vocabulary = Vocabulary(100)
    assert not {PAD, START, END, SEP} & set(vocabulary.encode(" ".join(MARKS), 100)[1:-1].tolist())


def test_a_full_vocabulary_shares_rows_and_says_so_once() -> None:
    said: list[str] = []
    vocabulary = Vocabulary(8, said.append)
    assert [vocabulary.id(word) for word in "abcd"] == [4, 5, 6, 7]
    assert said == []
    for word in ("lantern", "sword", "lantern"):
        assert vocabulary.id(word) == 4 + zlib.crc32(word.encode()) % 4
    assert len(said) == 1
    assert "8 rows are taken" in said[0]
    assert (len(vocabulary), vocabulary.shared) == (8, 2)
    assert [vocabulary.id(word) for word in "abcd"] == [4, 5, 6, 7]
    again = Vocabulary(8, said.append)
    again.load(vocabulary.state())
    again.id("rope")
    assert len(said) == 1  # also after a resumption
    assert again.shared == 3


def test_too_small_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8 rows"):
        Vocabulary(7)
    with pytest.raises(ValueError, match="at least 3"):
        TextTable(Vocabulary(8), 2)


STEPS = st.lists(st.one_of(TEXTS, st.just(None)), min_size=2, max_size=20)


@given(STEPS, STEPS)
@settings(deadline=None)
def test_a_resumed_vocabulary_goes_on_as_if_never_stopped(
    before: list[str | None], after: list[str | None]
) -> None:  # fmt: skip
    """Rows, the count of shared words and the numbers of texts: with forgetting (None) before and after the stop."""
    plain = TextTable(Vocabulary(8, silent), 12)
    stopped = TextTable(Vocabulary(8, silent), 12)

    def go(table: TextTable, text: str | None, place: int) -> None:
        if text is None:
            table.drop_unused([number for number in range(table.rows.size) if number % 3 == place % 3])
        else:
            table.id(text)

    for place, text in enumerate([*before, *after]):
        if place == len(before):
            saved = stopped.state()
            stopped = TextTable(Vocabulary(8, silent), 12)
            stopped.load(saved)
        go(plain, text, place)
        go(stopped, text, place)
        assert stopped.vocabulary.shared == plain.vocabulary.shared
        assert stopped.state()["texts"] == plain.state()["texts"]
        assert stopped.state()["numbers"].tolist() == plain.state()["numbers"].tolist()
        for number in plain.state()["numbers"].tolist():
            assert stopped.tokens(number).tolist() == plain.tokens(number).tolist()


def test_each_distinct_text_is_stored_once() -> None:
    table = TextTable(Vocabulary(100), 5)
    assert [table.id(text) for text in ("lamp", "key", "lamp", "")] == [0, 1, 0, 2]
    assert len(table) == 3
    assert table.text(1) == "key"
    assert table.tokens(table.id("a b c d e f")).tolist() == [START, 6, 7, 8, END]


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=60))
def test_a_sweep_keeps_the_numbers_of_what_is_needed(steps: list[tuple[str, bool]]) -> None:
    table = TextTable(Vocabulary(100), 10)
    texts: dict[int, str] = {}  # the slow version: what each number must mean
    for text, forget in steps:
        number = table.id(text)
        assert texts.get(number, text) == text
        texts[number] = text
        if forget:
            live = [known for known in texts if known % 2 == 0]
            freed = table.drop_unused([*live, *live])
            assert sorted(freed.tolist()) == sorted(set(texts) - set(live))
            texts = {known: texts[known] for known in live}
        assert len(table) == len(texts)
        for known, meant in texts.items():
            assert table.text(known) == meant
            assert table.tokens(known).tolist() == table.vocabulary.encode(meant, 10).tolist()


def test_freed_numbers_are_given_again_the_lowest_first() -> None:
    table = TextTable(Vocabulary(100), 10)
    for text in "abcdef":
        table.id(text)
    assert table.drop_unused([1, 4]).tolist() == [0, 2, 3, 5]
    assert [table.id(text) for text in "xyezbw"] == [0, 2, 4, 3, 1, 5]
    assert table.rows.size == 6


def test_gathering_rows() -> None:
    rows = Ragged()
    content = [np.arange(length, dtype=np.int32) + 10 * length for length in (3, 1, 1500, 2)]
    assert [rows.add(row) for row in content] == [0, 1, 2, 3]
    flat, offsets = rows.gather(np.array([3, 0, 3, 2]))
    assert offsets.tolist() == [0, 2, 5, 7, 1507]
    assert flat.tolist() == [20, 21, 30, 31, 32, 20, 21, *content[2]]
    rows.keep(np.array([1, 3]))
    assert rows.row(3).tolist() == [20, 21]
    assert rows.gather(np.array([1, 3]))[0].tolist() == [10, 20, 21]


def test_action_sets() -> None:
    sets = ActionSets()
    assert sets.id([]) == sets.none
    first, second = sets.id([5, 3]), sets.id([3, 5])
    assert len({first, second, sets.none}) == 3  # the order counts: it is the order of the probabilities
    assert sets.id((5, 3)) == first
    assert sets.actions(first).tolist() == [5, 3]
    assert sets.actions(sets.none).tolist() == []
    assert sorted(sets.list_live_texts().tolist()) == [3, 5]
    third = sets.id([9])
    assert sets.drop_unused([third]).tolist() == sorted([first, second])
    assert sets.list_live_texts().tolist() == [9]
    again = ActionSets()
    again.load(sets.state())
    for kind in (sets, again):
        assert len(kind) == 2
        assert kind.id([]) == sets.none
        assert kind.id([9]) == third
        assert kind.id([1]) == first


def observation(text: str, actions: tuple[str, ...] = ("wait",), look: str = "A room.") -> Observation:
    return Observation(text, look, "Nothing.", actions, 0, 0)


def test_what_a_library_sees() -> None:
    library = StateIds(TextSettings(100, 20))
    seen = library.encode(observation("Hello", ("go", "wait")))
    texts = library.texts
    assert [texts.text(number) for number in seen[:3]] == ["Hello", "A room.", "Nothing."]
    assert [texts.text(number) for number in library.list_actions([seen])[0]] == ["go", "wait"]
    over = library.encode(Observation("You died.", "", "", (), 3, 7))
    assert [texts.text(number) for number in over[:3]] == ["You died.", UNKNOWN, UNKNOWN]
    assert over.actions == library.action_sets.none


def test_forgetting_costs_little_however_long_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_ids, "MIN_IDS_TO_DROP", 10)
    library = StateIds(TextSettings(1000, 20))
    sweeps = []
    for number in range(3000):
        seen = library.encode(observation(f"text {number}", (f"do {number}",)))
        if library.is_crowded():
            sweeps.append(number)
            library.drop_unused(np.array(seen[:3]), np.array([seen.actions]))
            assert len(library.texts) == 4
            assert len(library.action_sets) == 2
            assert library.encode(observation(f"text {number}", (f"do {number}",))) == seen
    assert max(np.diff(sweeps)) <= 6
    # Where much is needed, the next time is only when as much again has come.
    needed = [library.encode(observation(f"needed {number}")) for number in range(100)]
    numbers = np.array(needed)
    library.drop_unused(numbers[:, :3].ravel(), numbers[:, 3])
    assert len(library.texts) == 103
    for number in range(102):
        library.encode(observation(f"new {number}"))
        assert not library.is_crowded()
    for number in range(102, 104):
        library.encode(observation(f"new {number}"))
    assert library.is_crowded()


def test_a_library_is_saved_whole() -> None:
    library = StateIds(TextSettings(100, 20))
    seen = [library.encode(observation(f"text {number}", (f"do {number % 3}", "wait"))) for number in range(9)]
    again = StateIds(TextSettings(100, 20))
    again.load(library.state())
    assert again.describe() == library.describe()
    assert [again.encode(observation(f"text {number}", (f"do {number % 3}", "wait"))) for number in range(9)] == seen
    for state in seen:
        assert again.list_actions([state])[0].tolist() == library.list_actions([state])[0].tolist()
