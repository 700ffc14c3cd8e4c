"""Verbs with which authors test their stories are no candidates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xtx.games.actions.nameable_things import Thing
from xtx.games.actions.search import Search
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator
from xtx.games.zmachine.debug_verbs import drop_debugging_templates
from xtx.games.zmachine.story_memory import Dictionary

TEMPLATES = (
    "look",
    "tree",
    "trace OBJ",
    "showobj OBJ",
    "purloin OBJ",
    "goto OBJ",
    "gonear OBJ",
    "take OBJ",
    "treed OBJ",
)
SIGNS = frozenset(("purloin", "abstract", "gonear"))


@pytest.mark.parametrize("length", [6, 9])
def test_a_story_compiled_for_debugging_is_known_by_its_verbs(length: int) -> None:
    words = frozenset(word[:length] for word in SIGNS)
    assert drop_debugging_templates(TEMPLATES, Dictionary(words, length)) == ("look", "take OBJ", "treed OBJ")


@pytest.mark.parametrize("missing", sorted(SIGNS))
def test_in_other_stories_the_same_words_are_verbs_like_others(missing: str) -> None:
    assert drop_debugging_templates(TEMPLATES, Dictionary(SIGNS - {missing}, 9)) == TEMPLATES


@pytest.mark.roms
@pytest.mark.parametrize("name", ["detective", "omniquest"])
def test_stories_that_were_given_away_so(real_story: Callable[[str], Path], name: str) -> None:
    emulator = Emulator(read_story(real_story(name)))
    verbs = {"showobj", "tree", "scope"}
    assert verbs <= {template.split()[0] for template in emulator.bindings.templates}
    candidates = Search(emulator).candidates([Thing("table", ("table",))])
    assert {c.split()[0] for c in candidates} & verbs == set()
    assert {"take table", "look"} <= set(candidates)
    emulator.close()
