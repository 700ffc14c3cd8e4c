"""`xtx bench --run`: where the time of a whole run went."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from xtx.agents.registry import make_preset
from xtx.cli.main import main
from xtx.cli.training.bench import TRAINING, Spent, list_quarter_shares, sum_starts
from xtx.config.settings import RunConfig
from xtx.runs.run_folder import Run

LINES = [  # of two starts: the second counts from 0 again
    {"step": 800, "time": 1.0, "parts": {"games": 2.0, "update": 1.0}, "searches": 10, "searched": 1.5},
    {"step": 1600, "time": 5.0, "parts": {"games": 4.0, "update": 2.0}, "searches": 30, "searched": 3.5},
    {"step": 2400, "time": 9.0, "parts": {"games": 1.0, "imitation training": 3.0}, "searches": 5, "searched": 0.5},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = RunConfig("toy:corridor-5", "drrn", asdict(make_preset("drrn", "")))
    with Run.create(tmp_path / "run", config):
        pass
    return tmp_path / "run"


def write(folder: Path, *lines: str) -> None:
    (folder / "timing.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_all_starts_are_added_up() -> None:
    lines = [Spent(line["step"], line["parts"], line["searches"], line["searched"]) for line in LINES]  # type: ignore[arg-type]
    expected = Spent(2400, {"games": 5.0, "update": 2.0, "imitation training": 3.0}, 35, 4.0)
    assert sum_starts(lines) == expected
    assert sum_starts([]) == Spent()


def test_shares_of_the_quarters_of_a_run() -> None:
    def line(step: int, update: float, training: float) -> Spent:
        return Spent(step, {"update": update, TRAINING: training})

    lines = [line(100, 1.0, 3.0), line(200, 3.0, 5.0), line(300, 1.0, 0.0), line(350, 1.5, 1.5), line(400, 2.5, 1.5)]
    assert list_quarter_shares(lines) == [0.75, 0.5, 0.0, 0.5]  # the third line begins another start
    lines = [line(100, 1.0, 0.0), line(400, 1.0, 1.0)]
    assert str(list_quarter_shares(lines)) == "[0.0, nan, nan, 1.0]"


def test_the_table_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, *map(json.dumps, LINES))
    assert main(["bench", "--run", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2,400 game steps in 10.0 s" in shown
    assert "│ imitation training │ 3.00 │ 30.0% │ 10.00 │" in shown
    assert "240.0 game steps/s; 342.9 outside imitation training, which took 30%; 35 searches took 4.0 s" in shown
    assert "share in each quarter of these steps: -, 0%, 0%, 75%" in shown


@pytest.mark.parametrize("line", ["", "[]", '{"step": 8}', '{"step": 8, "parts": {"games": "long"}}', "{"])
def test_a_run_without_times_says_so_in_one_line(folder: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, *([line] if line else []))
    assert main(["bench", "--run", str(folder)]) == 2
    message = capsys.readouterr().err
    assert "timing.jsonl" in message and message.count("\n") == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--run", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err
