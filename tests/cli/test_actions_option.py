"""What is tried for valid actions: the default of each command, and what files without the key mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from xtx.agents.registry import AGENTS
from xtx.cli.main import main
from xtx.config.config_file import decode_config, list_differences
from xtx.config.settings import RunConfig, get_default_actions
from xtx.games.gym import StoryEnv
from xtx.games.story_game import GameSpec
from xtx.report.data.run_groups import make_variant
from xtx.sweep.run_plan import find_games, make_plan
from xtx.sweep.sweep_file import SweepSpec

PUBLISHED = {
    "drrn", "inv-dy", "rc-dqn", "mprc-dqn", "xtx", "xtx-uniform", "xtx-no-mix", "xtx-lambda-0", "xtx-lambda-0.5",
    "xtx-lambda-1",
}  # fmt: skip
WITHOUT_KEY = b'{"game": "lowwater", "agent": "xtx-plus", "settings": {}}'


def config_of(monkeypatch: pytest.MonkeyPatch, *words: str, game: tuple[str, ...] = ("lowwater",)) -> RunConfig:
    """The config with which `xtx train` begins a run."""
    begun: list[RunConfig] = []
    monkeypatch.setattr("xtx.cli.training.train.train", lambda config, *_: begun.append(config) or 0)
    assert main(["train", *game, *words]) == 0
    [config] = begun
    return config


@pytest.mark.parametrize("agent", AGENTS)
def test_only_the_papers_agents_and_the_demo_leave_the_dictionary_out(
    agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = "templates" if agent in PUBLISHED | {"xtx-demo"} else "whole"
    assert config_of(monkeypatch, "--agent", agent).actions == get_default_actions(agent) == usual
    other = "whole" if usual == "templates" else "templates"
    assert config_of(monkeypatch, "--agent", agent, "--actions", other).actions == other


def test_agents_that_xtx_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch, game=())
    assert (config.agent, config.actions) == ("xtx-demo", "templates")
    assert get_default_actions("an agent of one's own") == "whole"


def test_a_file_without_the_key_means_templates() -> None:
    config = decode_config(WITHOUT_KEY)
    assert config.actions == "templates" != get_default_actions(config.agent)
    assert list_differences(WITHOUT_KEY.decode(), config) == []
    now = decode_config(json.dumps({**json.loads(WITHOUT_KEY), "actions": "whole"}).encode())
    assert list_differences(WITHOUT_KEY.decode(), now) == ["actions was templates and is whole"]
    assert msgspec.json.decode(WITHOUT_KEY, type=RunConfig).actions == "templates", "in a summary, too"


def test_sweeps_try_templates_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = SweepSpec(games=("lowwater",), agents=("random", "xtx-plus", "xtx"))
    assert {run.config.actions for run in make_plan(spec, find_games(spec.games))} == {"templates"}
    words = ["sweep", "--games", "lowwater", "--agents", "random", "--dry-run", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "lowwater/random" in capsys.readouterr().out
    assert main([*words, "--actions", "whole"]) == 0
    assert "lowwater-whole/random" in capsys.readouterr().out


def test_a_sweep_that_was_begun_before_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--games", "toy:corridor-5", "--agents", "random", "--steps", "80", "--out", str(tmp_path)]
    assert main([*words, "--jobs", "1", "--workers", "0", "--device", "cpu"]) == 0
    path = tmp_path / "toy-corridor-5/random/seed-0/config.json"
    kept = json.loads(path.read_text())
    assert kept.pop("actions") == "templates"
    path.write_text(json.dumps(kept))
    assert main([*words, "--jobs", "1"]) == 0
    assert "1 finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "usual"),
    [
        (["play", "lowwater", "--agent", "random"], "whole"),
        (["play", "lowwater", "--agent", "random", "--actions", "templates"], "templates"),
    ],
)
def test_playing(words: list[str], usual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[GameSpec] = []

    def see(spec: GameSpec, *_: object) -> NoReturn:
        opened.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr("xtx.play.played_game.PlayedGame", see)
    assert main(words) == 130
    assert [spec.actions for spec in opened] == [usual]


def test_the_python_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[GameSpec] = []

    def see(spec: GameSpec, *_: object) -> NoReturn:
        opened.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr("xtx.games.vector.isolated_game.IsolatedGame", see)
    asked: list[dict[str, Any]] = [{}, {"actions": "templates"}]
    for arguments in asked:
        with pytest.raises(KeyboardInterrupt):
            StoryEnv("lowwater", **arguments).reset()
    assert [spec.actions for spec in opened] == ["whole", "templates"]


def test_an_evaluation_says_which_actions_were_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    means = ["--device", "cpu", "--workers", "1", "--no-atlas"]
    words = ["train", "lowwater", "--agent", "random", "--actions", "templates", "--steps", "80", "--out", str(run)]
    assert main([*words, *means, "--quiet"]) == 0
    assert "templates" in capsys.readouterr().out
    for given, used in (([], "templates"), (["--actions", "whole"], "whole")):
        assert main(["evaluate", str(run), "--episodes", "1", *given, *means]) == 0
        assert f"actions: {used}" in capsys.readouterr().out
        assert json.loads((run / "evaluation.json").read_text())["actions"] == used


def test_a_report_keeps_them_apart() -> None:
    run = RunConfig("zork1", "xtx", {}, actions="whole")
    assert make_variant(run, None).title == "zork1 (whole dictionary)"
    assert make_variant(run, None).is_whole, "so it is not set beside the paper's"
    assert make_variant(decode_config(WITHOUT_KEY), None).title == "lowwater"
