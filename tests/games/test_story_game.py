"""A story as a game: what is observed does not depend on what was known before, and nothing that hangs ends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xtx.core import FALLBACK_ACTIONS, Observation, Step, UserError
from xtx.games.actions.search import Search
from xtx.games.emulator.frotz import Emulator, Status
from xtx.games.story_game import NO_ANSWER, GameSpec, StoryGame

ROOT = Path(__file__).parents[2]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"
HANG = ROOT / "stories/hang/hang.z5"
WALK = ("take coin", "zqx", "down", "look", "up", "drop coin", "down")


def tame(game: StoryGame) -> StoryGame:
    """The hang story's game without the command that ends the whole process: that is for the tests of workers."""
    game.emulator.bindings.__dict__["templates"] = tuple(t for t in game.emulator.bindings.templates if t != "burst")
    return game


Make = Callable[..., StoryGame]


@pytest.fixture
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Makes games, by default with an atlas that all tests here share, so that they need not search the same again."""
    made: list[StoryGame] = []
    shared = str(tmp_path_factory.getbasetemp() / "tame-hang-atlas")

    def make_one(path: Path = HANG, **options: object) -> StoryGame:
        options.setdefault("atlas", shared)
        made.append(tame(StoryGame(GameSpec(str(path), **options))))  # type: ignore[arg-type]
        return made[-1]

    yield make_one
    for game in made:
        game.close()


def walk(game: StoryGame, seed: int = 1) -> list[Observation | Step]:
    return [game.reset(seed), *(game.step(command) for command in WALK)]


# --- the score as one signed byte ------------------------------------------------------------------------------------


def test_a_score_below_a_bytes_range_comes_out_high(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A game in which each command costs two points."""
    points = [-126]
    step = Emulator.step

    def step_and_lose(emulator: Emulator, command: str) -> Status:
        points[0] -= 2
        return step(emulator, command)

    monkeypatch.setattr(Emulator, "step", step_and_lose)
    monkeypatch.setattr(Emulator, "score", property(lambda emulator: points[0]))
    for byte_score, last, reward in ((False, -130, -2), (True, 126, 254)):
        points[0] = -126
        game = make(search=False, byte_score=byte_score)
        game.reset(1)
        first, second = game.move("look"), game.move("look")
        assert (first.observation.score, first.reward) == (-128, -2)
        assert (second.observation.score, second.reward) == (last, reward)


@pytest.mark.roms
def test_dragon_in_a_byte_is_that_of_the_paper(real_story: Callable[[str], Path]) -> None:
    """Each `rescue` costs two points: 65 of them are -130, which the paper's version of Jericho read as 126."""
    path = str(real_story("dragon"))
    for byte_score, last in ((False, -130), (True, 126)):
        game = StoryGame(GameSpec(path, search=False, byte_score=byte_score))
        game.reset()
        scores = [game.move("rescue").observation.score for _ in range(65)]
        game.close()
        assert scores[-2:] == [-128, last]


# --- the atlas changes nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"actions": "whole"}])
def test_observations_are_the_same_with_a_cold_a_warm_and_no_atlas(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    atlas = str(tmp_path / "atlas")
    none, cold = walk(make(atlas=None, **options)), walk(make(atlas=atlas, **options))
    searched = []
    findings = Search.findings
    monkeypatch.setattr(Search, "findings", lambda *a: searched.append(a) or findings(*a))
    warm = walk(make(atlas=atlas, **options))
    assert not searched  # it was really warm
    assert none == cold == warm
    assert len(set(o.actions if isinstance(o, Observation) else o.observation.actions for o in none)) > 2
    assert walk(make(atlas=None, **options)) == none
    assert searched


def test_the_hit_rate_is_that_of_states_that_need_no_search(make: Make, tmp_path: Path) -> None:
    game = make(atlas=str(tmp_path / "atlas"))
    game.reset(1)
    game.reset(1)  # remembered, without a look into the atlas
    game.step("take coin")
    game.close()
    again = make(atlas=str(tmp_path / "atlas"))
    again.reset(1)  # from the atlas
    assert again._atlas is not None
    found = again._atlas.read_statistics()
    assert (found.hits, found.misses) == (2, 2)


def test_another_profile_is_not_answered_from_the_atlas(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atlas = str(tmp_path / "atlas")
    assert "take coin" in make(atlas=atlas).reset(1).actions
    changed = tmp_path / "hang.z5"
    changed.write_bytes(HANG.read_bytes())
    profile = msgspec.json.decode(HANG.with_suffix(".json").read_bytes())
    profile["grammar"] = [line for line in profile["grammar"] if not line.startswith(("take", "get", "carry", "hold"))]
    changed.with_suffix(".json").write_bytes(msgspec.json.encode(profile))
    assert "take coin" not in make(changed, atlas=atlas).reset(1).actions


def test_a_search_leaves_the_game_where_it_was(make: Make) -> None:
    seen = walk(make(atlas=None))
    plain = walk(make(search=False))
    for full, bare in zip(seen[1:], plain[1:], strict=True):
        assert isinstance(full, Step) and isinstance(bare, Step)
        assert (full.observation.text, full.reward, full.terminated) == (
            bare.observation.text, bare.reward, bare.terminated,
        )  # fmt: skip
        assert (bare.observation.look, bare.observation.actions) == ("", ())


# --- steps and ends -------------------------------------------------------------------------------------------------


def test_a_walk(make: Make) -> None:
    game = make()
    first = game.reset(1)
    assert "A story that stops" in first.text
    assert first.look.startswith("Hall") and first.step == first.score == 0
    step = game.step("take coin")
    assert (step.reward, step.observation.score, step.observation.step) == (1, 1, 1)
    assert "coin" in step.observation.inventory
    assert not (step.terminated or step.truncated or step.won)
    assert game.step("drop coin").reward == 0
    assert game.reset() == first  # the same seed again


@pytest.mark.parametrize(
    ("way", "won", "text"),
    [
        (("take coin", "down", "north"), True, "lets you out"),
        (("down", "south"), False, "You fall into the pit"),
        (("crash",), False, ""),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_games_that_end_by_themselves_are_terminated(
    make: Make, way: tuple[str, ...], won: bool, text: str, last: bool
) -> None:
    game = make()
    game.reset(1)
    for command in way[:-1]:
        assert not game.step(command).terminated
    end = game.step(way[-1], last=last)
    assert (end.terminated, end.truncated, end.won) == (True, False, won)
    assert text in end.observation.text
    assert (end.observation.actions, end.observation.look) == ((), "")
    assert end.observation.score == int("take coin" in way)
    assert game.reset(1).actions  # and can be begun again


def test_the_step_limit_truncates(make: Make) -> None:
    game = make()
    game.reset(1)
    end = game.step("take coin", last=True)
    assert (end.terminated, end.truncated) == (False, True)
    assert end.observation.actions
    hung = game.step("hang", last=True)
    assert (hung.terminated, hung.truncated) == (False, True)


# --- what hangs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("command", ["hang", "examine bomb"])
def test_a_hang_has_no_answer_and_the_episode_goes_on(make: Make, search: bool, command: str) -> None:
    game = make(search=search)
    first = game.reset(1)
    game.states.forbid(b"elsewhere", "take coin")
    step = game.step(command)
    assert step.observation.text == NO_ANSWER
    assert (step.reward, step.terminated, step.truncated, step.observation.step) == (0, False, False, 1)
    assert step.observation.actions == first.actions and command not in first.actions
    assert game.states.newly_forbidden == [(game.here, command)]
    again = game.step(command)  # known now: not tried again, and not reported again
    assert again.observation.text == NO_ANSWER and again.observation.step == 2
    assert len(game.states.newly_forbidden) == 1
    assert game.step("take coin").reward == 1


def test_what_is_forbidden_is_not_offered_there_but_elsewhere(make: Make) -> None:
    game = make()
    actions = game.reset(1).actions
    assert {"take coin", "down"} <= set(actions)
    game.states.forbid(game.here, "down")
    assert set(game.reset(1).actions) == set(actions) - {"down"}
    assert game.step("down").observation.text == NO_ANSWER
    assert "down" in game.step("take coin").observation.actions
    game.reset(1)
    for action in actions:
        game.states.forbid(game.here, action)
    assert game.reset(1).actions == FALLBACK_ACTIONS


def test_forbidden_for_good_is_forbidden_to_later_games(make: Make, tmp_path: Path) -> None:
    atlas = str(tmp_path / "atlas")
    game = make(atlas=atlas)
    actions = game.reset(1).actions
    assert "take coin" in actions
    game.states.forbid_for_good(game.here, "take coin")
    assert "take coin" not in game.reset(1).actions
    assert set(make(atlas=atlas).reset(1).actions) == set(actions) - {"take coin"}
    assert "take coin" in make().reset(1).actions  # with another atlas
    # In a state that was not searched yet it is not even tried.
    game.step("down")
    below = game.here
    later = make(atlas=str(tmp_path / "other"))
    later.reset(1)
    later.states.forbid_for_good(below, "south")
    assert "south" not in later.step("down").observation.actions
    game.reset(1)
    assert "south" in game.step("down").observation.actions


# --- saving ---------------------------------------------------------------------------------------------------------

ELSEWHERE = """
import sys
from pathlib import Path
from xtx.games.story_game import GameSpec, StoryGame
game = StoryGame(GameSpec(sys.argv[1]))
game.emulator.bindings.__dict__["templates"] = tuple(t for t in game.emulator.bindings.templates if t != "burst")
print(game.restore(Path(sys.argv[2]).read_bytes()))
print(game.step("down"))
"""


def test_a_saved_game_goes_on_in_another_process(make: Make, tmp_path: Path) -> None:
    game = make()
    game.reset(1)
    game.step("take coin")
    state = game.save()
    there = game.step("down")
    assert game.save() != state
    here = game.restore(state)
    assert (here.score, here.step, here.text) == (1, 1, "Taken.\n[The score has just gone up by one point.]")
    assert game.step("down") == there
    (tmp_path / "saved").write_bytes(state)
    command = [sys.executable, "-c", ELSEWHERE, str(HANG), str(tmp_path / "saved")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{here}\n{there}\n"


def test_what_is_brought_is_where_it_was(make: Make) -> None:
    game, other = make(), make()
    game.reset(3)
    for command in ("take coin", "hang", "down"):
        game.step(command)
    other.rebuild(3, ["take coin", None, "down"])
    assert (other.here, other.save()) == (game.here, game.save())
    state = game.save()
    game.step("up")
    other.rebuild(state, ["up"])
    assert other.save() == game.save()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_saves_are_refused(make: Make, data: st.DataObject) -> None:
    game = make(search=False)
    game.reset(1)
    state = bytearray(game.save())
    kind = data.draw(st.sampled_from(["flip", "cut", "other"]))
    if kind == "flip":
        state[data.draw(st.integers(0, len(state) - 1))] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del state[data.draw(st.integers(0, len(state) - 1)) :]
    else:
        state[:] = data.draw(st.binary(max_size=100))
    before = game.save()
    with pytest.raises(UserError, match="not a saved game"):
        game.restore(bytes(state))
    assert game.save() == before
    game.close()


def test_another_storys_save_is_refused(make: Make) -> None:
    other = make(LOWWATER, search=False)
    other.reset(1)
    game = make(search=False)
    game.reset(1)
    with pytest.raises(UserError, match="not a saved game of this story"):
        game.restore(other.save())


def test_a_finished_game_can_be_saved(make: Make) -> None:
    game = make()
    game.reset(1)
    game.step("down")
    game.step("south")
    state = game.save()
    game.reset(1)
    ended = game.restore(state)
    assert "pit" in ended.text and ended.actions == ()


def test_a_story_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        StoryGame(GameSpec(str(tmp_path / "none.z5")))


def test_games_that_cannot_open_their_atlas_say_so(make: Make) -> None:
    with pytest.raises(UserError, match="--no-atlas"):
        make(atlas="/dev/null/atlas")
