"""What a person sees of a training run in a terminal: the panel, Ctrl-C, and what comes at the end."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from xtx.cli.training.closing_summary import WIDTH, draw, join_columns, save_picture, score_curve
from xtx.cli.training.progress_display import Display
from xtx.config.settings import RunConfig
from xtx.core import EpisodeRecord
from xtx.games.game_setup import GameSetup
from xtx.report.data.load_runs import read_run
from xtx.report.pages.by_run import make_learning_figure
from xtx.report.plots.png_plots import draw_figure
from xtx.runs.run_folder import Run
from xtx.training.loop import TrainingProgress


def episode(number: int, step: int, score: int) -> EpisodeRecord:
    return EpisodeRecord(number, step, 0, score, score, 10, "limit", 1)


def type_into(words: list[str], until: str, typed: bytes) -> tuple[int, str]:
    """Runs a command in a terminal of 80x24, types when it has shown something; its exit status and its output."""
    main, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(words, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # fmt: skip
    echo = termios.tcgetattr(inner)[3] & termios.ECHOCTL
    shown, is_typed, end = b"", False, time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if select.select([main], [], [], 0.2)[0]:
                shown += os.read(main, 1 << 16)
            elif process.poll() is not None:
                break
            if not is_typed and until.encode() in shown:
                is_typed = True
                os.write(main, typed)
        assert termios.tcgetattr(inner)[3] & termios.ECHOCTL == echo, "the terminal is as it was"
    finally:
        process.kill()
        process.wait()
        os.close(inner)
        os.close(main)
    return process.returncode, shown.decode()


def test_ctrl_c_leaves_the_panel_whole_and_says_the_score(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "xtx.cli", "train", "toy:corridor-5", "--agent", "random", "--steps", "100M"]
    words += ["--out", str(tmp_path / "r"), "--workers", "0", "--device", "cpu", "--no-atlas"]
    status, shown = type_into(words, "best score", b"\x03")
    assert status == 130
    assert "^C" not in shown
    end = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown[shown.rindex("╭") :])
    last = [line.strip() for line in end.replace("\r", "").split("\n")]
    assert any("stopping when this is done, and saving; Ctrl-C again ends it at once" in line for line in last), (
        "in its frame"
    )
    box = last[: next(place for place, line in enumerate(last) if line.startswith("╰")) + 1]
    assert all(line[-1] in "╮│╯" for line in box)
    said = " ".join(" ".join(last[len(box) :]).split())
    assert "of 100,000,000 steps" in said and "of 10 points" in said and "best" in said
    assert "stopped and saved; go on with: " in said and "xtx resume" in said


def test_a_step_that_takes_minutes_has_a_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one with an imitation training on a CPU."""
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr("xtx.cli.training.progress_display.time.monotonic", lambda: clock.now)
    run = SimpleNamespace(config=RunConfig("toy:corridor-5", "random", {}, steps=1_000), folder="r")
    display = Display(cast(Run, run), cast(GameSetup, SimpleNamespace(name="corridor", max_score=10)), "cpu")
    for seconds, steps in ((0, 8), (100, 108), (100, 208)):
        clock.now += seconds
        display.show(TrainingProgress(steps=steps, total=1_000, episodes=0, score_mean=0.0, score_max=0))
    speeds = re.findall(r"([\d,]+)/1,000 steps.* (\d+) steps/s", capsys.readouterr().out)
    assert speeds == [("8", "0"), ("108", "1"), ("208", "1")]


def test_the_curve_in_the_terminal_scales_to_the_data() -> None:
    """Of a game with very many points, too: it knows nothing of the maximum."""
    curve = score_curve([episode(n, 10 * n, 3 if n < 30 else 4) for n in range(1, 61)], 600)
    lines = draw(curve, 600)
    assert lines[0].split()[0] == "4", "the axis ends at the best score"
    assert "─" in lines[0]
    assert sum("█" in line for line in lines) >= 7
    assert max(map(len, lines)) <= 80 and len(curve) == WIDTH
    assert max(map(len, draw(curve, 1_000_000))) <= 80, "in a terminal of 80 columns too"
    below = draw(np.array([[-5.0, -5.0], [-4.0, -2.0]]), 10)
    assert below[-2].split()[0] == "-5" and below[0].split()[0] == "-2"


def test_the_picture_has_steps_on_its_axis(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "r"
    (folder / "checkpoints").mkdir(parents=True)
    config = RunConfig("toy:corridor-5", "random", {}, steps=300_000)
    (folder / "config.json").write_text(json.dumps(asdict(config)))
    episodes = [episode(1, 100_000, 0), episode(2, 200_000, 4), episode(3, 300_000, 2)]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in episodes))
    assert save_picture(folder, "a title") == folder / "score.png"
    assert (folder / "score.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = draw_figure(make_learning_figure(read_run(folder), "score", "random", 0).plot, "a title").axes
    assert (axes.get_xlabel(), axes.get_title(), axes.get_xlim()) == ("steps", "a title", (0, 300_000))
    assert axes.xaxis.get_major_formatter()(300_000, 0) == "300k"
    mean, best = axes.get_lines()
    assert np.asarray(mean.get_ydata())[[-1, 60]].tolist() == [2, 0]
    assert np.asarray(best.get_ydata())[[-1, 60]].tolist() == [4, 0]
    assert {line.get_drawstyle() for line in (mean, best)} == {"steps-post"}


def test_commands_are_not_broken() -> None:
    assert join_columns({"xtx a": "one", "xtx bc": "two"}, 80) == ["  xtx a    one", "  xtx bc   two"]
    long = f"xtx best runs/{'x' * 60}"
    assert join_columns({long: "read the best episode"}, 80) == ["  read the best episode:", f"    {long}"]


def test_an_unknown_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from xtx.terminal.progress_panel import hide_control_characters

    monkeypatch.setattr("sys.stdin", SimpleNamespace())
    with hide_control_characters():
        pass
