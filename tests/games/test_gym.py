from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import xtx.games.gym
from xtx.core import UserError
from xtx.games.catalog import known_games

LOWWATER = "xtx/lowwater-v0"


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one test finds out the others need not, in other files either."""
    return str(tmp_path_factory.getbasetemp() / "lowwater-atlas")


@pytest.fixture
def env(atlas: str) -> Iterator[gymnasium.Env[str, str]]:
    made = gymnasium.make(LOWWATER, atlas=atlas, render_mode="ansi")
    yield made
    made.close()


def test_every_game_is_registered() -> None:
    names = {f"xtx/{entry.name}-v0" for entry in known_games.list_entries()} | {"xtx/Story-v0"}
    assert names <= set(gymnasium.registry)
    xtx.games.gym.register()  # again does no harm, and does not warn


def test_registering_loads_no_emulator() -> None:
    code = "import sys, gymnasium, xtx.games.gym; gymnasium.make('xtx/lowwater-v0'); print('jericho' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_gymnasium_can_import_it_by_name() -> None:
    code = "import gymnasium; print(gymnasium.make('xtx.games.gym:xtx/lowwater-v0').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("xtx/lowwater-v0")


def test_gymnasium_finds_no_fault(env: gymnasium.Env[str, str]) -> None:
    check_env(env.unwrapped)  # warnings are errors here


def test_an_episode(env: gymnasium.Env[str, str]) -> None:
    text, info = env.reset(seed=5)
    assert "Sennet Quay" in text
    assert {"north", "down"} <= set(info["actions"])
    assert info["look"].startswith("Sennet Quay")
    assert "carrying nothing" in info["inventory"]
    assert {key: info[key] for key in ("score", "max_score", "step", "won")} == {
        "score": 0, "max_score": 75, "step": 0, "won": False,
    }  # fmt: skip
    text, reward, terminated, truncated, info = env.step("down")
    assert (reward, terminated, truncated) == (10.0, False, False)
    assert (info["score"], info["step"]) == (10, 1)
    assert env.render() == f"> down\n{text}"
    _, reward, terminated, truncated, info = env.step("east")
    assert (reward, terminated, truncated, info["won"], info["actions"]) == (0.0, True, False, False, ())
    assert env.reset()[1]["score"] == 0


@pytest.mark.parametrize(
    "action",
    [
        *("", " ", "x" * 500, "*" * 198, "\n\n"),
        *("north\0south", "\x1b[2J", "caf\u00e9 \u2018\u0436\u2019", "\\x", "\\help", "\ud800"),
    ],
)
def test_any_text_is_an_action(env: gymnasium.Env[str, str], action: str) -> None:
    env.reset()
    text, reward, terminated, _, _ = env.unwrapped.step(action)
    assert text in env.observation_space
    assert (reward, terminated) == (0.0, False)


def test_the_interpreter_is_not_spoken_to(
    env: gymnasium.Env[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = env.reset()[1]["look"]
    for action in ("save", "script", "north. save", "look then transcript on", "recording on", "restore", "quit"):
        _, _, terminated, _, info = env.step(action)
        assert not terminated
        assert info["look"] == before
    assert list(tmp_path.iterdir()) == []


def test_the_longest_narration_fits() -> None:
    space = xtx.games.gym.StoryEnv("lowwater").observation_space
    printed = bytes(range(1, 256)) * 33
    assert printed[:8191].decode("cp1252", "replace") in space


def test_stochastic_episodes_differ_and_can_be_repeated(atlas: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = xtx.games.gym.StoryEnv("lowwater", stochastic=True, atlas=atlas)
    seeds: list[int] = []
    game = env._open_game()
    game.reset()
    monkeypatch.setattr(game, "reset", lambda seed: (seeds.append(seed), game.restore(state))[1])
    state = game.save()
    for first in (3, None, None, 3, None, None):
        env.reset(seed=first)
    env.close()
    assert seeds[:3] == seeds[3:]
    assert len(set(seeds)) == 3


def test_deterministic_episodes_do_not_depend_on_the_seed(env: gymnasium.Env[str, str]) -> None:
    assert env.reset(seed=1) == env.reset(seed=2)


def test_step_limit(atlas: str) -> None:
    env = gymnasium.make(LOWWATER, atlas=atlas, max_episode_steps=2)
    env.reset()
    assert env.step("north")[2:4] == (False, False)
    assert env.step("south")[2:4] == (False, True)
    env.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors(mode: str, atlas: str) -> None:
    games = gymnasium.make_vec(LOWWATER, num_envs=2, vectorization_mode=mode, atlas=atlas)
    try:
        texts, infos = games.reset(seed=1)
        assert texts[0] == texts[1]
        assert texts in games.observation_space
        assert "north" in infos["actions"][1]
        after, rewards, terminated, _, infos = games.step(("north", "down"))
        assert after[0].startswith("Tide Office")
        assert "Darkness" in after[1]
        assert texts[0].startswith("Nineteen")  # what was given out stays as it was
        assert list(rewards) == [0.0, 10.0]
        assert list(infos["score"]) == [0, 10]
        after, _, terminated, _, _ = games.step(("south", "east"))
        assert list(terminated) == [False, True]
        assert "You have died" in after[1]
    finally:
        games.close()


def test_a_story_by_path(atlas: str) -> None:
    env = gymnasium.make("xtx/Story-v0", path=known_games.DATA / "lowwater.z5", atlas=atlas)
    assert env.reset()[1]["max_score"] == 75
    env.close()


def test_a_missing_game_says_what_to_do() -> None:
    with pytest.raises(UserError, match=r"zork1 is not here: put zork1\.z5 into"):
        gymnasium.make("xtx/zork1-v0")
    with pytest.raises(UserError, match="does not exist"):
        gymnasium.make("xtx/Story-v0", path="/nowhere/story.z5")
    with pytest.raises(TypeError, match="path"):
        gymnasium.make("xtx/Story-v0")


def test_a_name_that_gymnasium_does_not_allow_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = known_games.Entry("my story!", "my.z5", "0" * 32, 1, 0, 1)
    monkeypatch.setattr(known_games, "list_entries", lambda: (entry,))
    xtx.games.gym.register()
    assert not [name for name in gymnasium.registry if "my story" in name]


def test_a_command_that_kills_its_process_does_nothing() -> None:
    story = Path(__file__).parents[2] / "stories" / "hang" / "hang.z5"
    env = xtx.games.gym.StoryEnv(story, atlas=False)
    before = env.reset()[1]
    _, reward, terminated, _, info = env.step("burst")
    assert (reward, terminated, info["score"]) == (0, False, before["score"])
    assert env.step("take coin")[1] > 0
    env.close()


def test_another_way_of_finding_actions_is_refused() -> None:
    with pytest.raises(ValueError, match="'templates' or 'whole'"):
        gymnasium.make(LOWWATER, actions="all")
