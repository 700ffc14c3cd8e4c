"""`xtx games check` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xtx.cli import main


def test_a_walkthrough_is_checked_and_misses_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missed = tmp_path / "missed.json"
    assert main(["games", "check", "lowwater", "--limit", "8", "--no-atlas", "--write-extra", str(missed)]) == 0
    out = capsys.readouterr().out
    assert "lowwater" in out and "100.0 %" in out
    assert json.loads(missed.read_text()) == {"lowwater": []}


def test_both_ways_of_searching_find_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for search in ("zset", "jericho"):
        assert main(["games", "check", "lowwater", "--limit", "3", "--no-atlas", "--search", search]) == 0
        tables.append([line for line in capsys.readouterr().out.splitlines() if "lowwater" in line])
    assert tables[0] == tables[1] != []


def test_no_game_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "check"]) == 2
    assert capsys.readouterr().err.startswith("xtx: name the games")


@pytest.mark.roms
def test_misses_are_listed_and_written(real_story: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Library needs a question, and the templates that we have for it know no talk."""
    missed = tmp_path / "missed.json"
    assert (
        main(["games", "check", "library", "--actions", "templates", "--no-atlas", "--write-extra", str(missed)]) == 0
    )
    question = "ask technician about security gates"
    assert question in " ".join(capsys.readouterr().out.lower().split())
    assert question in [command.lower() for command in json.loads(missed.read_text())["library"]]


def test_reach_shows_points_and_grammars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "check", "lowwater", "--limit", "4", "--no-atlas", "--reach"]) == 0
    header, row = capsys.readouterr().out.strip().splitlines()
    assert header.split() == ["game", "grammar", "points", "script", "most", "missed", "lists", "actions"]
    name, grammar, points, script, most, missed, *_ = row.split()
    assert (name, grammar, missed) == ("lowwater", "whole", "0")
    assert int(points) == int(script) <= int(most)


def test_reach_writes_no_extra_actions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "check", "lowwater", "--reach", "--write-extra", str(tmp_path / "missed.json")]) == 2
    assert "--write-extra" in capsys.readouterr().err
