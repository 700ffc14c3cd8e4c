"""Filled templates: made in C, beside the plain way in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtx.games.actions.candidates import SIDES, Candidates, Grammar
from xtx.games.zset.command_list import Commands

TEMPLATES = (
    "look", "take OBJ", "drop OBJ", "zorble OBJ", "give OBJ OBJ", "give OBJ", "put OBJ in OBJ", "look under OBJ",
    "look OBJ", "throw OBJ at OBJ", "push OBJ OBJ", "push OBJ to OBJ off", "take OBJ", "under OBJ OBJ",
)  # fmt: skip
NAMES = ("lamp", "stone", "door", "stone door", "under", "table", "under table", "jug", "mat", "egg", "nest")


def frequency(command: str) -> int:
    """Some verbs are rarer than others."""
    return {"zorble": 3, "look": 900, "take": 500}.get(command.split(" ", 1)[0], 100)


def plainly_filled(templates: Sequence[str], names: Sequence[str], walls: bool) -> list[str]:
    names = (*names, "all")
    out: list[str] = []
    for template in (*templates, "look", "wait"):
        holes = template.count("OBJ")
        if holes == 0:
            out.append(template)
        elif holes == 1:
            out += [template.replace("OBJ", name) for name in names]
            out += [template.replace("OBJ", "me")] if frequency(template) < 25 else []
        else:
            head, middle, tail = template.split("OBJ", 2)
            others = SIDES if template == "push OBJ OBJ" else names
            out += [f"{head}{a}{middle}{b}{tail}" for a in names for b in others if a != b]
    if walls:
        out += [f"{verb} {side} wall" for verb in ("push", "enter") for side in SIDES[:4]]
    return list(dict.fromkeys(out))


def plainly_sensible(
    commands: Sequence[str], effects: npt.NDArray[np.uint64], names: Sequence[str], told: set[str]
) -> npt.NDArray[np.uint64]:
    """What nonsense is, said the long way."""
    place = {commands[i]: i for i in np.flatnonzero(effects).tolist()}
    names = [*names, "all"]
    moved = {n: {int(effects[place[c]]) for c in (f"take {n}", f"drop {n}") if c in place} for n in names}
    shared = Counter(e for each in moved.values() for e in each)
    portable = {n for n, each in moved.items() if any(shared[e] < 3 for e in each)} | {"all"}
    effects = effects.copy()
    verbs = Counter(c.split(" ", 1)[0] for c in place if c.count(" ") > 1)
    for template in dict.fromkeys(TEMPLATES):
        if template.count("OBJ") != 2 or template == "push OBJ OBJ" or verbs[template.split(" ", 1)[0]] < 4:
            continue
        head, middle, tail = template.split("OBJ", 2)
        for one in names:
            at_work = {n: place.get(f"{head}{n}{middle}{one}{tail}", -1) for n in names if n != one}
            at_work = {n: i for n, i in at_work.items() if i >= 0 and effects[i]}
            if len({int(effects[i]) for n, i in at_work.items() if n not in portable}) >= 4:
                best = min(at_work, key=lambda n: (n not in portable, n == "all"))
                effects[[i for n, i in at_work.items() if n != best]] = 0
        for one in names:
            at_work = {n: place.get(f"{head}{one}{middle}{n}{tail}", -1) for n in names if n != one}
            fixed = [n for n, i in at_work.items() if i >= 0 and effects[i] and n not in portable]
            for group in ([n for n in fixed if n not in told], [n for n in fixed if n in told]):
                alike = [at_work[n] for n in group]
                if len(set(effects[alike].tolist())) >= 7:
                    effects[alike[1:]] = 0
    return effects


def filled(names: Sequence[str], walls: bool = False) -> Candidates:
    return Grammar(TEMPLATES, frequency, walls).fill(names)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(NAMES), unique=True), st.booleans())
def test_filled_as_by_hand(names: list[str], walls: bool) -> None:
    """Names of two words make the same command in more ways than one; it is there once, at its first place."""
    candidates, plain = filled(names, walls), plainly_filled(TEMPLATES, names, walls)
    assert list(candidates) == plain
    assert [candidates[i] for i in range(len(plain))] == plain
    assert candidates.words.tolist() == [len(c.split()) for c in plain]
    assert candidates.frequency(np.arange(len(plain))).tolist() == [frequency(c) for c in plain]


def test_letters_that_take_more_than_a_byte() -> None:
    """A profile's grammar may have them, or an accented story's dictionary."""
    templates = ("öffne OBJ", "ärgere OBJ mit OBJ", "grüße")
    names = [f"thing{i}" for i in range(9)]
    assert list(Grammar(templates, frequency).fill(names)) == plainly_filled(templates, names, False)


def test_a_name_given_twice_counts_once() -> None:
    assert list(filled(["lamp", "jug", "lamp"])) == list(filled(["lamp", "jug"]))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(NAMES), unique=True), st.integers(0, 2**32), st.integers(1, 40),
    st.sampled_from((0.05, 0.5, 0.95)), st.sets(st.sampled_from(NAMES)),
)  # fmt: skip
def test_nonsense_as_by_hand(names: list[str], seed: int, kinds: int, share: float, told: set[str]) -> None:
    candidates = filled(names)
    rng = np.random.default_rng(seed)
    effects = rng.integers(1, kinds + 1, len(candidates)).astype(np.uint64)
    effects[rng.random(len(candidates)) > share] = 0
    before = effects.copy()
    found = candidates.without_nonsense(effects, told)
    np.testing.assert_array_equal(found, plainly_sensible(list(candidates), effects, names, told))
    np.testing.assert_array_equal(effects, before)


def test_nonsense_is_found_at_all() -> None:
    names = [name for name in NAMES if " " not in name and name != "under"]
    candidates = filled(names)
    effects = np.arange(1, len(candidates) + 1, dtype=np.uint64)
    effects[[i for i, c in enumerate(candidates) if c.startswith(("take", "drop"))]] = 5  # nothing can be carried
    left = [c for c, e in zip(candidates, candidates.without_nonsense(effects), strict=True) if e]
    thrown = [c for c in candidates if c.startswith("throw ") and c.endswith(" at jug")]
    assert len(thrown) == 8 and len(set(thrown) & set(left)) < 2
    assert {"look", "zorble me", "give lamp"} <= set(left)


def test_some_are_left_out() -> None:
    names = ["lamp", "stone", "door", "stone door", "jug", "mat", "egg"]
    excluded = {"throw lamp at jug", "look", "take egg", "nothing of the kind"}
    candidates = filled(names)
    some = candidates.without(excluded)
    assert list(some) == [c for c in candidates if c not in excluded]
    assert some.words.tolist() == [len(c.split()) for c in some]
    assert some.frequency(np.arange(len(some))).tolist() == [frequency(c) for c in some]
    effects = np.arange(1, len(some) + 1, dtype=np.uint64)
    np.testing.assert_array_equal(some.without_nonsense(effects), plainly_sensible(list(some), effects, names, set()))


# --- lists of commands ----------------------------------------------------------------------------------------------


def test_commands_are_a_sequence() -> None:
    words = ["look", "", "say a\0b", "take ö", "x"]
    commands = Commands.of(words)
    expected = ["look", "", "say a\\b", "take ö", "x"]
    assert list(commands) == expected == [commands[i] for i in range(5)]
    assert commands[1:4] == expected[1:4] and commands[-1] == "x"
    with pytest.raises(IndexError):
        commands[5]
    assert list(commands.chosen([0, 3])) == ["look", "take ö"] and list(commands.chosen([])) == []
    assert list(commands.behind(["a", "bc"])) == ["a", "bc", *expected]
    assert [commands.behind(["a", "bc"])[i] for i in (1, 2, 6)] == ["bc", "look", "x"]
    assert Commands.of(commands) is commands
    assert list(Commands.of([])) == [] and list(Commands.of([]).behind(["a"])) == ["a"]
