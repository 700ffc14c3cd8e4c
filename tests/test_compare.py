from __future__ import annotations

from pathlib import Path

import pytest

from xtx.cli import main
from xtx.sweep.plan import find_games, make_plan
from xtx.sweep.spec import read_spec

TOY = ("compare", "toy:corridor-5", "--agents", "random", "--device", "cpu", "--workers", "1")


def test_runs_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TOY, "--seeds", "0", "1", "--steps", "800", "--out", str(tmp_path)]
    assert main(words) == 0
    folders = sorted(path.parent for path in tmp_path.rglob("config.json"))
    assert [str(folder.relative_to(tmp_path)) for folder in folders] == [
        "toy-corridor-5/random/seed-0", "toy-corridor-5/random/seed-1"
    ]  # fmt: skip
    before = [(folder / "episodes.jsonl").read_bytes() for folder in folders]
    capsys.readouterr()
    assert main(words) == 0
    assert [(folder / "episodes.jsonl").read_bytes() for folder in folders] == before
    assert "2 finished" in capsys.readouterr().out


def test_it_is_a_ready_sweep() -> None:
    spec = read_spec("compare")
    runs = make_plan(spec, find_games(spec.games))
    assert [run.config.agent for run in runs] == ["random", "drrn", "inv-dy", "xtx-uniform", "xtx"]
    assert {run.config.steps for run in runs} == {30_000}
    assert {run.config.settings["q"]["hidden"] for run in runs if "q" in run.config.settings} == {64}  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--seeds", "-1"], "--seed takes a number from 0"),
        (["--steps", "0"], "--steps takes a number from 1"),
        (["--agents", "nobody"], "there is no agent called 'nobody'"),
    ],
)
def test_mistakes(words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TOY, "--out", str(tmp_path / "runs"), *words]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
