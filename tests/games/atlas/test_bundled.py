"""The bundled atlas entries of the embedded adventure: they are what a search finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xtx.games.game_setup import set_up_game
from xtx.games.story_game import StoryGame

MOVES = 14
"""Of the walkthrough; each costs a search where nothing is known."""


def test_what_is_shipped_fits_the_present_search_and_says_what_it_would_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XTX_NO_SHIPPED")
    game_setup = set_up_game("", no_atlas=True)
    informed = StoryGame(game_setup.spec)
    seen = [informed.reset()]
    seen += [informed.step(action).observation for action in game_setup.walkthrough[:MOVES]]
    assert informed.states.searches == 0, "the search, the survey or the story has changed: run stories/shipped.py"
    informed.close()

    monkeypatch.setenv("XTX_NO_SHIPPED", "1")
    searching = StoryGame(game_setup.spec)
    found = [searching.reset()]
    found += [searching.step(action).observation for action in game_setup.walkthrough[:MOVES]]
    assert searching.states.searches > 0
    searching.close()
    assert seen == found


def test_other_ways_of_searching_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XTX_NO_SHIPPED")
    game = StoryGame(replace(set_up_game("", no_atlas=True).spec, usual_verbs=True))
    game.reset()
    assert game.states.searches == 1
    game.close()
