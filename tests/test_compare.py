from __future__ import annotations

from pathlib import Path

import pytest

from xtx.cli import main

TOY = ("compare", "toy:corridor-5", "--agents", "random", "--quiet", "--device", "cpu", "--workers", "1")


def test_runs_are_made_once_and_shown_in_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TOY, "--seeds", "0", "1", "--steps", "800", "--out", str(tmp_path)]
    assert main(words) == 0
    folders = sorted(tmp_path.iterdir())
    assert [folder.name for folder in folders] == ["toy-corridor-5-random-0-800", "toy-corridor-5-random-1-800"]
    before = [(folder / "episodes.jsonl").read_bytes() for folder in folders]
    table = capsys.readouterr().out.split("toy:corridor-5, 800 steps, seeds 0, 1")[1]
    assert "random" in table and "±" in table
    assert main(words) == 0
    assert [(folder / "episodes.jsonl").read_bytes() for folder in folders] == before
    assert capsys.readouterr().out.split("toy:corridor-5, 800 steps, seeds 0, 1")[1] == table


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
