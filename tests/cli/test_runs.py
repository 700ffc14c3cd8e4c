"""`xtx runs`: what is in a folder, and what may be deleted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from xtx.cli.main import main
from xtx.cli.runs.list import format_count, format_size, read_row
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.sweep.run_progress import read_running

TOY = "toy:corridor-5"
MEANS = ("--workers", "0", "--device", "cpu", "--quiet")


def train(folder: Path, *words: str, steps: int = 800) -> Path:
    given = [
        "train",
        TOY,
        "--agent",
        "random",
        "--actions",
        "templates",
        "--steps",
        str(steps),
        "--out",
        str(folder),
        *MEANS,
        *words,
    ]
    assert main([*given, "--checkpoint-seconds", "0"]) == 0
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, of which one has a best checkpoint, and one that was stopped half-way."""
    folder = tmp_path_factory.mktemp("runs")
    train(folder / "a")
    best = train(folder / "b", "--seed", "1", "--stochastic", steps=1600) / "checkpoints" / "best"
    shutil.copy(list_checkpoints(folder / "b")[0], best)
    stopped = train(folder / "deep" / "c", "--seed", "2")
    config = json.loads((stopped / "config.json").read_text())
    (stopped / "config.json").write_text(json.dumps({**config, "steps": 100_000}))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them."""
    monkeypatch.setenv("COLUMNS", "80")
    return shutil.copytree(made, tmp_path / "runs")


def listed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder)]) == 0
    lines = listed(capsys)
    assert lines[0].split() == ["game", "agent", "seed", "steps", "Avg", "Max", "size", "state"]
    row = read_row(folder / "a")
    assert lines[1].split()[:4] == [TOY, "random", "0", "800"] and lines[1].endswith("finished")
    assert f"{row.progress.mean:.1f}" in lines[1].split() and format_size(row.size) in lines[1]
    assert lines[2] == str(folder / "a")
    assert lines[3].startswith(f"{TOY} stochastic") and " 1,600 " in lines[3]
    assert "800/100k" in lines[5] and lines[5].endswith("stopped")
    assert lines[-1].startswith("3 runs, ")
    size = sum(path.stat().st_size for path in (folder / "a").rglob("*") if path.is_file())
    assert row.size <= size, "best may be another name of a numbered one"


def test_sorting_and_choosing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder), "--sort", "steps"]) == 0
    lines = listed(capsys)
    assert next(line for line in lines if line.startswith(str(folder))) == str(folder / "b")
    assert main(["runs", str(folder), "--game", "zork1"]) == 0
    assert listed(capsys) == ["There is no such run."]
    assert main(["runs", str(folder), "--agent", "random", "--sort", "avg"]) == 0
    means = [float(line.split()[-5]) for line in listed(capsys) if line.endswith(("finished", "stopped"))]
    assert means == sorted(means, reverse=True) and len(means) == 3


def test_older_checkpoints_of_finished_runs_go(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: list_checkpoints(folder / name) for name in ("a", "b", "deep/c")}
    assert all(len(paths) == 2 for paths in before.values())
    assert main(["runs", str(folder), "--prune", "older"]) == 2, "there is nobody to ask"
    assert "--yes" in capsys.readouterr().err
    assert {name: list_checkpoints(folder / name) for name in before} == before
    assert main(["runs", str(folder), "--prune", "older", "--yes"]) == 0
    assert "Deleted 2 checkpoints of 2 finished runs" in capsys.readouterr().out
    for name in ("a", "b"):
        assert list_checkpoints(folder / name) == before[name][:1]
        assert (folder / name / "checkpoints" / "best").exists() == (name == "b")
    assert list_checkpoints(folder / "deep/c") == before["deep/c"], "it is not finished"
    assert main(["evaluate", str(folder / "a"), "--episodes", "1", "--workers", "0"]) == 0
    assert main(["runs", str(folder), "--prune", "older", "--yes"]) == 0
    assert "No finished run has a checkpoint" in capsys.readouterr().out


def test_the_newest_that_can_be_read_is_kept(folder: Path) -> None:
    newest, older = list_checkpoints(folder / "a")
    newest.write_bytes(b"damaged")
    assert main(["runs", str(folder / "a"), "--prune", "older", "--yes"]) == 0
    assert older.exists()


def test_all_checkpoints_go_only_when_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder / "b"), "--prune", "all", "--yes"]) == 0
    assert "Deleted 3 checkpoints" in capsys.readouterr().out
    assert list((folder / "b" / "checkpoints").iterdir()) == []
    assert read_row(folder / "b").state == "finished", "as before"
    assert main(["resume", str(folder / "b"), *MEANS]) == 2
    assert main(["report", str(folder / "b"), "--no-walkthroughs", "--out", str(folder / "page.html")]) == 0


@pytest.mark.parametrize("answer", ["y", "", "no"])
def test_it_asks(
    answer: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert main(["runs", str(folder / "a"), "--prune", "older"]) == 0
    assert len(list_checkpoints(folder / "a")) == (1 if answer == "y" else 2)
    assert ("Nothing was deleted." in capsys.readouterr().out) == (answer != "y")


def test_a_run_under_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from xtx.runs.run_folder import Run

    with Run.open(folder / "a"):
        assert read_row(folder / "a").state == "running"
        assert main(["runs", str(folder / "a"), "--prune", "all", "--yes"]) == 0
    assert len(list_checkpoints(folder / "a")) == 2
    assert read_running(folder / "a", read_row(folder / "a").config, 0.0).steps == 800


def test_mistakes(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path / "absent")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert main(["runs", str(folder), "--yes"]) == 2
    (folder / "a" / "config.json").write_text("{")
    capsys.readouterr()
    assert main(["runs", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert "config.json is damaged" in err and "2 runs" in out


def test_runs_that_cannot_be_read_are_not_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text("{")
    assert main(["runs", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "config.json is damaged" in err and out == "There is no run that can be read.\n"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (12_345_678, "12 MB"), (2.5e9, "2.5 GB"), (3e13, "30.0 TB")],
)
def test_sizes(size: float, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (9_999, "9,999"), (40_048, "40k"), (248_800, "249k"), (800_000, "800k"), (10**8, "100M")],
)
def test_counts(count: int, text: str) -> None:
    assert format_count(count) == text


def test_a_folder_of_runs_is_evaluated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(folder), "--episodes", "2", "--workers", "0"]
    assert main(words) == 0
    out = capsys.readouterr().out
    for number, name in enumerate(("a", "b", "deep/c"), 1):
        assert f"{folder / name} ({number} of 3)" in out
        assert json.loads((folder / name / "evaluation.json").read_text())["figures"]["episodes"] == 2
    for path in (folder / "a" / "checkpoints").iterdir():
        path.unlink()
    (folder / "b" / "evaluation.json").unlink()
    assert main(words) == 2
    assert f"left out: {folder / 'a'} has no checkpoint" in capsys.readouterr().err
    assert (folder / "b" / "evaluation.json").exists(), "the others are evaluated all the same"
    (folder / "empty").mkdir()
    assert main(["evaluate", str(folder / "empty")]) == 2
