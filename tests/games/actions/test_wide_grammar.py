"""Each form of the wide grammar, and nothing where there is no occasion for it."""

from __future__ import annotations

import pytest

from xtx.games.actions.wide_grammar import listens, wide_candidates


def wide(
    *names: str,
    persons: tuple[str, ...] = (),
    templates: tuple[str, ...] = (),
    text: str = "",
    printed: tuple[str, ...] = (),
) -> list[str]:
    return list(wide_candidates(names, persons, templates, text, printed))


def test_a_thing_and_a_direction() -> None:
    found = wide("cart", templates=("push OBJ", "look"))
    assert {"push cart north", "push cart southeast", "push cart up"} <= set(found)
    assert not any(c.startswith(("pull", "roll", "move")) for c in found)
    assert "push south wall" in found
    assert not any("wall" in c for c in wide("cart", templates=("pull OBJ",)))


def test_numbers_that_can_be_read() -> None:
    found = wide("dial", templates=("turn OBJ", "type OBJ"), text="Room 12: press 7 or 7, not 123456.")
    assert {"turn dial to 7", "turn dial to 12", "type 7", "type 12"} <= set(found)
    assert "turn dial to 3" in found and "turn box to 3" not in wide("box", templates=("turn OBJ",))
    assert not any("123456" in c or "12345" in c for c in found)
    assert not any("to 7" in c for c in wide("dial", templates=("look",), text="7"))
    many = wide(templates=("type OBJ",), text=" ".join(map(str, range(100))))
    assert many == [f"type {n}" for n in range(10)]


def test_all_but() -> None:
    assert set(wide("egg", "lamp")) == {
        "take all but egg", "take all but lamp", "drop all but egg", "drop all but lamp",
    }  # fmt: skip
    assert wide() == []


def test_orders() -> None:
    found = wide("troll", "axe", persons=("troll",))
    assert {"troll, follow me", "troll, north", "troll, take axe", "troll, give axe to me"} <= set(found)
    assert not any(c.startswith("axe,") or c.endswith("take troll") for c in found)


def test_words_in_descriptions() -> None:
    found = wide("book", templates=("cast OBJ", "put OBJ on OBJ", "look"), printed=("frotz",))
    assert {"cast frotz", "frotz book"} <= set(found)
    assert "look" not in found and not any("put" in c for c in found)
    assert "cast book" not in wide("book", templates=("cast OBJ",), printed=("cast",))  # a verb already


def test_nothing_is_left_unfilled() -> None:
    found = wide(
        "a", "b", persons=("a",), templates=("push OBJ", "turn OBJ", "x OBJ at OBJ"), text="5 wall", printed=("w",)
    )
    assert found and not any("OBJ" in c for c in found)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("You can't talk to the lamp.", False),
        ("You can only do that to something animate.", False),
        ("There is no reply.", False),
        ("Time passes.", True),
        ("The troll grunts.", True),
    ],
)
def test_who_listens(answer: str, expected: bool) -> None:
    assert listens(answer) is expected
