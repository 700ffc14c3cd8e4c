"""What `xtx games check --reach` plays: a walkthrough with valid actions only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from xtx.games.actions.search import Findings
from xtx.games.emulator.story_bindings import StoryBindings
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.walkthroughs.player import replace_word
from xtx.games.walkthroughs.reach import (
    FOLLOWS,
    _find_new_name,
    _list_variants,
    _split_command,
    classify_miss,
    measure_reach,
    play_reach,
)

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"
HANG = Path(__file__).parents[3] / "stories/hang/hang.z5"


def _hang(monkeypatch: pytest.MonkeyPatch, *walkthrough: str) -> StoryGame:
    monkeypatch.setattr(StoryBindings, "walkthrough", walkthrough)
    game = StoryGame(GameSpec(str(HANG)))
    game.emulator.bindings.__dict__["templates"] = tuple(t for t in game.emulator.bindings.templates if t != "burst")
    return game


def test_only_offered_actions_are_played(tmp_path_factory: pytest.TempPathFactory) -> None:
    atlas = str(tmp_path_factory.getbasetemp() / "lowwater-atlas")
    game = StoryGame(GameSpec(str(LOWWATER), atlas=atlas))
    steps = list(play_reach(game, 12))
    reach = measure_reach(game, steps, 12)
    assert (reach.misses, reach.score) == ((), reach.walkthrough_score)
    game.reset(game.emulator.bindings.walkthrough_seed)
    for step in steps:
        for action in step.played:
            assert action in game.find_valid_actions()
            game.step(action)
    game.close()


def test_a_list_of_commands_is_replaced_by_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    game = _hang(monkeypatch, "take coin. down", "north")
    both, won = play_reach(game)
    reach = measure_reach(game, (both, won))
    game.close()
    assert both.played == ("take coin", "down")
    assert (both.kind, won.played, won.won) == ("", ("north",), True)
    assert (reach.won, reach.replaced, reach.misses) == (True, 1, ())
    assert reach.score == reach.walkthrough_score == 1


def test_a_step_that_is_not_offered_is_left_out_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    game = _hang(monkeypatch, "take coin", "down", "north")
    found = game.search.findings
    monkeypatch.setattr(game.search, "findings", lambda *a: _without_down(found(*a)))
    steps = list(play_reach(game))
    reach = measure_reach(game, steps)
    game.close()
    assert [(step.played, step.kind) for step in steps] == [(("take coin",), ""), ((), "single word"), ((), FOLLOWS)]
    assert reach.kinds == {"single word": 1, FOLLOWS: 1}
    assert [miss.command for miss in reach.misses if miss.kind != FOLLOWS] == ["down"]
    assert not reach.won and reach.score <= reach.walkthrough_score


def test_a_step_that_is_left_out_says_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    game = _hang(monkeypatch, "take coin", "down", "north")
    found = game.search.findings

    def without_coin(*given: Any) -> Findings:
        of = found(*given)
        return msgspec.structs.replace(of, actions=tuple(a for a in of.actions if "coin" not in a and "all" not in a))

    monkeypatch.setattr(game.search, "findings", without_coin)
    steps = list(play_reach(game))
    reach = measure_reach(game, steps)
    game.close()
    assert (reach.score, reach.walkthrough_score) == (0, 1)
    assert [step.lost for step in steps if step.command == "take coin"] == [1]
    assert not any(step.lost for step in steps[1:])


def test_a_list_is_told_apart_into_commands() -> None:
    assert _split_command("give bag, coin and map to troll") == [
        "give bag to troll",
        "give coin to troll",
        "give map to troll",
    ]
    assert _split_command("remove hat and drop it") == ["remove hat", "drop it"]
    assert _split_command("north") == ["north"]


def test_another_name_stands_for_one_that_the_player_makes_up() -> None:
    assert _find_new_name("write oak on cube", "write ash on cube") == ("oak", "ash")
    assert _find_new_name("write oak on cube", "put ash on cube") is None
    assert _find_new_name("take oak", "take ash") is None
    assert replace_word(["put OAK cube in box", "oaken door"], ("oak", "ash")) == ["put ash cube in box", "oaken door"]


def test_several_actions_are_tried_in_other_orders() -> None:
    assert _list_variants(("a", "b"), can_wait=False) == [("b", "a")]
    assert ("wait", "a", "b") in _list_variants(("a", "b"), can_wait=True)
    assert _list_variants(("a",), can_wait=True) == []


def _without_down(found: Findings) -> Findings:
    return msgspec.structs.replace(found, actions=tuple(a for a in found.actions if a != "down"))


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("marvin, open the hatch", "order to a person"),
        ("ask dragon about jewel", "topic"),
        ('say "odysseus"', "spoken words"),
        ("set first wheel to 9", "number"),
        ("get box and journal", "list"),
        ("gnoeval", "single word"),
        ("z", "time passes"),
        ("turn on light", "thing that no text names"),
        ("open mailbox", "thing in sight"),
    ],
)
def test_misses_are_told_apart_by_kind(command: str, kind: str) -> None:
    assert classify_miss(command, False, ("A small mailbox is here.",)) == kind


def test_chance_is_a_kind_of_miss() -> None:
    assert classify_miss("kill troll with sword", True, ()) == "chance"


@pytest.mark.roms
def test_library_needs_a_topic(real_story: Callable[[str], Path]) -> None:
    spec = GameSpec(str(real_story("library")))
    reached = []
    layout = None
    for one in (spec, replace(spec, extra_actions=True), replace(spec, actions="whole")):
        game = StoryGame(one, layout)
        layout = game.layout
        reached.append(measure_reach(game, list(play_reach(game))))
        game.close()
    assert [reach.score for reach in reached] == [21, 30, 30]
    assert [reach.won for reach in reached] == [False, True, True]
    assert [miss.kind for miss in reached[0].misses if miss.kind != FOLLOWS] == ["topic"]
    assert reached[2].mean_actions < 1.5 * reached[0].mean_actions
