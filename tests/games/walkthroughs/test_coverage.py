"""What `xtx games check` counts: steps of the walkthrough that some valid action reproduces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from xtx.games.emulator.story_bindings import StoryBindings
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.walkthroughs.coverage import check_walkthrough

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"

HANG = Path(__file__).parents[3] / "stories/hang/hang.z5"


@pytest.fixture(scope="module")
def lowwater(tmp_path_factory: pytest.TempPathFactory) -> GameSpec:
    """What one test finds out the others need not, in other files either."""
    return GameSpec(str(LOWWATER), atlas=str(tmp_path_factory.getbasetemp() / "lowwater-atlas"))


def test_the_first_steps_of_lowwater_are_all_found(lowwater: GameSpec) -> None:
    game = StoryGame(lowwater)
    walkthrough = game.emulator.bindings.walkthrough
    checked = list(islice(check_walkthrough(game), 12))
    game.close()
    steps = [one for one in checked if one is not None and one.changes]
    assert len(steps) >= 8
    assert [(s.command, s.room) for s in steps if not s.found] == []
    for one in steps:
        assert one.command == walkthrough[one.step - 1]
        assert one.action and one.actions > 1
    assert steps[0].room == "Sennet Quay"


def test_a_step_that_no_action_reproduces_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoryBindings, "walkthrough", ("take coin. down", "look", "north", "never reached"))
    game = StoryGame(GameSpec(str(HANG)))
    game.emulator.bindings.__dict__["templates"] = tuple(t for t in game.emulator.bindings.templates if t != "burst")
    miss, idle, won = check_walkthrough(game)  # and no more: the game has ended
    game.close()
    assert miss is not None and won is not None
    assert (miss.step, miss.command, miss.room, miss.found, miss.action) == (1, "take coin. down", "Hall", False, "")
    assert idle is None or not idle.changes  # Jericho sees the light go on and off
    assert miss.changes and miss.loosely is False and won.changes
    assert (won.step, won.room, won.found, won.action) == (3, "Cellar", True, "north")
    assert miss.actions >= 2


@pytest.mark.roms
def test_detective_is_covered(real_story: Callable[[str], Path]) -> None:
    game = StoryGame(GameSpec(str(real_story("detective"))))
    steps = [one for one in check_walkthrough(game) if one is not None]
    game.close()
    assert sum(s.changes for s in steps) >= 45
    assert [s.command for s in steps if s.changes and not s.found] == []
    assert sum(s.loosely is not None for s in steps) >= 45
    # By Jericho's measure two commands more change the world, though nothing is different after them.
    assert [s.changes for s in steps if s.loosely is False] == [False, False]
