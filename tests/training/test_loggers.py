"""Other places for metrics: what stands there is what metrics.jsonl has, each line once, also after a kill -9."""

from __future__ import annotations

import errno
import json
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from xtx.cli.main import _parse, main
from xtx.cli.training import sweep
from xtx.cli.training.training_session import TrainOptions
from xtx.core import EpisodeRecord
from xtx.runs.line_files import read_episodes, read_lines
from xtx.sweep.run_plan import find_games, make_plan
from xtx.sweep.sweep_file import SweepSpec
from xtx.training.logger_lines import PointReader, choose_group
from xtx.training.loggers import Loggers, find_wandb_place, update_loggers
from xtx.training.loop import Training

TRAIN = ["train", "toy:corridor-5", "--agent", "random", "--steps", "800", "--log-every", "20"]
PLAIN = ["--threads", "1", "--workers", "0", "--quiet", "--device", "cpu"]
LINES = [160, 320, 480, 640, 800]

KILLED = """
import os, signal, sys
from xtx.cli.main import main
from xtx.training.loop import Training

def due(training):
    if training.progress.steps == 560:
        os.kill(os.getpid(), signal.SIGKILL)
    return training.progress.steps == 240

Training._is_checkpoint_due = due
main(sys.argv[1:])
"""
"""Saves at step 240 and is killed at 560, when the lines of 320 and 480 are written."""


def kill_and_resume(folder: Path, option: str) -> None:
    words = [*TRAIN, option, "--out", str(folder), *PLAIN]
    killed = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [line["step"] for line in read_lines(folder, "metrics")] == [160, 320, 480]
    time.sleep(1)  # TensorBoard reads its files in the order of the seconds in their names
    assert main(["resume", str(folder), option, *PLAIN]) == 0


def lines(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], pytest.approx(line["score_mean"])) for line in read_lines(folder, "metrics")]


def returns(folder: Path) -> list[tuple[int, float]]:
    """The last score at each step at which episodes ended."""
    return list({episode.step: float(episode.score) for episode in read_episodes(folder)}.items())


def tensorboard_events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


def tensorboard_points(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in tensorboard_events(folder).Scalars(name)]


def check_tensorboard(folder: Path) -> None:
    """Each line and each episode is there once, and the beginning is dense."""
    assert [step for step, _ in lines(folder)] == LINES
    means = tensorboard_points(folder, "score/mean")
    assert [point for point in means if point[0] in LINES] == lines(folder)
    assert tensorboard_points(folder, "episode/return") == returns(folder)
    assert [step for step, _ in means] == sorted({*LINES, *dict(returns(folder))})
    assert means[0][0] < LINES[0]


def test_tensorboard_has_the_lines(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main([*TRAIN, "--tensorboard", "--out", str(folder), *PLAIN]) == 0
    check_tensorboard(folder)
    events = tensorboard_events(folder)
    assert {"speed/steps_per_second", "episode/length", "score/max"} <= set(events.Tags()["scalars"])
    assert all("/" in tag for tag in events.Tags()["scalars"])
    assert "_hparams_/session_start_info" in events.summary_metadata
    assert b"toy:corridor-5" in events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    times = [event.wall_time for event in events.Scalars("score/mean") if event.step in LINES]
    assert times == pytest.approx([line["time"] for line in read_lines(folder, "timing")], abs=1e-3)


def test_tensorboard_has_each_line_once_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kill_and_resume(folder, "--tensorboard")
    check_tensorboard(folder)


def test_a_run_that_goes_on_remembers_its_loggers(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [*TRAIN, "--tensorboard", "--out", str(folder), *PLAIN]
    killed = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert main(["resume", str(folder), *PLAIN]) == 0
    check_tensorboard(folder)


def test_a_logger_that_comes_later_gets_what_it_missed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main([*TRAIN, "--out", str(folder), *PLAIN]) == 0
    assert not (folder / "loggers.json").exists()
    assert main(["resume", str(folder), "--tensorboard", *PLAIN]) == 0
    check_tensorboard(folder)
    (folder / "loggers.json").write_text('{"tensorboard": "yes"}')
    assert main(["resume", str(folder), *PLAIN]) == 0, "a damaged note is told of and left out"
    assert main(["resume", str(folder), "--no-loggers", *PLAIN]) == 0
    assert not (folder / "loggers.json").exists()


def test_sweeps_log_their_runs(tmp_path: Path) -> None:
    words = ["sweep", "--games", "toy:corridor-5", "--agents", "random", "--steps", "800", "--out", str(tmp_path)]
    words += ["--jobs", "1", "--workers", "0", "--device", "cpu"]
    assert main([*words, "--tensorboard"]) == 0
    assert tensorboard_points(tmp_path / "toy-corridor-5/random/seed-0", "episode/return")


def test_a_best_score_after_the_last_line_of_metrics_is_logged(tmp_path: Path) -> None:
    """Runs end between two lines; without that a logger's last figure would be the best before."""
    scores = [5] * 150 + [47, 6, 47]
    records = [EpisodeRecord(n, 10 * n, 0, score, score, 10, "died", 1) for n, score in enumerate(scores, start=1)]
    (tmp_path / "episodes.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1400, "score_mean": 5.0, "score_max": 5}\n')
    points = {point.step: point.numbers for point in PointReader(tmp_path).read()}
    maxima = {step: numbers["score_max"] for step, numbers in points.items() if "score_max" in numbers}
    assert max(maxima) == 1510 and maxima[1510] == 47 and 1010 not in maxima and maxima[1400] == 5
    assert points[1510]["score_mean"] == (99 * 5 + 47) / 100 and points[1530]["episode_return"] == 47


def test_groups() -> None:
    names = ("loss_imitation", "score_mean", "target_score", "steps_per_second", "entropy", "q_mean")
    groups = ["loss/imitation", "score/mean", "plan/target_score", "speed/steps_per_second", "learning/entropy"]
    assert [choose_group(name) for name in names] == [*groups, "q/mean"]


def test_where_runs_lie_at_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    plain = find_wandb_place(tmp_path / "r", Loggers(wandb=True))
    assert plain == {"project": "xtx", "group": None, "name": "r", "tags": None}
    words = ["--wandb-project", "p", "--wandb-group", "g", "--wandb-name", "n", "--wandb-tags", "a", "b"]
    asked = _parse(TrainOptions, "train", words).loggers
    assert asked.wandb, "each of them implies it"
    assert find_wandb_place(tmp_path / "r", asked) == {"project": "p", "group": "g", "name": "n", "tags": ["a", "b"]}
    assert update_loggers(tmp_path, asked) == update_loggers(tmp_path, Loggers()) == asked
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    assert find_wandb_place(tmp_path, Loggers(wandb=True))["project"] == "mine"


def test_a_sweep_names_its_runs_at_wandb(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    args = _parse(sweep.Args, "sweep", ["--wandb", "--wandb-tags", "t"])
    [planned] = make_plan(spec := SweepSpec(games=("toy:corridor-5",), agents=("random",)), find_games(spec.games))
    sweep._set_loggers(args, out, [planned])
    kept = update_loggers(out / planned.folder, Loggers())
    tags = ("t", "toy-corridor-5", "random")
    assert kept == Loggers(wandb=True, group="mine", name="toy-corridor-5/random/seed-0", tags=tags)


# --- Weights & Biases -------------------------------------------------------------------------------------------


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is not installed: pip install 'xtx[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for place in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(place, str(tmp_path / "home"))


def records(path: Path) -> Iterator[bytes]:
    """What a .wandb file holds: a log in LevelDB's format, in blocks of 32 KiB, behind 7 bytes of its own."""
    content, at, piece = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        piece += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield piece
            piece = b""


def wandb_lines(folder: Path) -> tuple[set[str], list[tuple[int, float]]]:
    """The ids under which something was logged, and the lines, in the order in which they would be uploaded."""
    from wandb.proto.wandb_internal_pb2 import Record

    ids, found = set(), []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime):
        for content in records(path):
            record = Record.FromString(content)
            if record.HasField("run"):
                ids.add(record.run.run_id)
            if record.HasField("history"):
                items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
                step = json.loads(items["_step"])
                found += [(step, json.loads(items["score_mean"]))] if step in LINES else []
    return ids, found


@pytest.mark.usefixtures("offline")
def test_wandb_has_each_line_once_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kill_and_resume(folder, "--wandb")
    ids, found = wandb_lines(folder)
    assert len(ids) == 1  # it is one run there too
    assert found == lines(folder)
    assert [step for step, _ in found] == LINES


@pytest.mark.usefixtures("offline")
def test_wandb_has_each_line_once_where_a_run_went_on_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have logged more lines than the checkpoint has, and they are on disk."""

    def due(training: Training) -> bool:
        if training.progress.steps == 560:
            raise OSError(errno.ENOSPC, "No space left on device")
        return training.progress.steps == 240

    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Training, "_is_checkpoint_due", due)
        assert main([*TRAIN, "--wandb", "--out", str(folder), *PLAIN]) == 2
    assert main(["resume", str(folder), "--wandb", *PLAIN]) == 0
    ids, found = wandb_lines(folder)
    assert len(ids) == 1
    assert found == lines(folder)
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 2


@pytest.mark.usefixtures("offline")
def test_a_damaged_note_of_wandb_does_not_end_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main([*TRAIN, "--wandb", "--out", str(folder), *PLAIN]) == 0
    (folder / "wandb.json").write_text("{")
    assert main(["resume", str(folder), "--wandb", *PLAIN]) == 0
    assert f"{folder / 'wandb.json'} is damaged" in capsys.readouterr().err


@pytest.mark.usefixtures("offline")
def test_without_an_account_wandb_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    folder = tmp_path / "run"
    words = [*TRAIN, "--wandb", "--out", str(folder), *PLAIN]
    # In a process of its own: wandb reads its settings once.
    asked = subprocess.run([sys.executable, "-m", "xtx.cli", *words], capture_output=True, text=True, check=False)
    assert asked.returncode == 2
    assert asked.stderr.startswith("xtx: Weights & Biases cannot be used (")
    assert asked.stderr.endswith("set WANDB_MODE=offline, or leave out --wandb\n")
    assert len(asked.stderr.splitlines()) == 1
    assert not folder.exists()  # so the same command can be given again
