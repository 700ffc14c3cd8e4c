"""Mistakes and mishaps: one line that says what to do, exit status 2, and nothing lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import write_run
from rich.console import Console

from xtx.cli.main import main
from xtx.cli.training.closing_summary import print_summary
from xtx.config.bounds import check_settings
from xtx.config.settings import (
    DrrnSettings,
    InvDySettings,
    QSettings,
    RcDqnSettings,
    RunConfig,
    XtxSettings,
    make_demo_settings,
)
from xtx.core import UserError
from xtx.files.atomic_writes import write_user_file
from xtx.files.user_paths import explain_write_errors, open_output
from xtx.games.game_setup import set_up_game
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import SAVED, Run
from xtx.training.stop import stop_on_signal

TOY = "toy:corridor-5"


def train(folder: Path, *more: str) -> int:
    return main(["train", TOY, "--agent", "random", "--steps", "400", "--workers", "0", "--out", str(folder), *more])


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr."""
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("xtx: ")]
    return line


# --- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        "--q.hidden 0", "--q.batch-size 0", "--q.target-every 0", "--q.temperature 0", "--q.gamma 7", "--q.capacity 0",
        "--q.learning-rate inf", "--q.clip nan", "--imitation.layers 0", "--imitation.dropout 2",
        "--imitation.batch-size 0", "--explore-steps -5", "--training-every 0", "--mix 5", "--mix -1",
        "--checkpoint-seconds nan",
    ],
)  # fmt: skip
def test_a_number_that_makes_no_sense(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, value = option.split()
    assert main(["train", TOY, "--agent", "xtx-demo", "--steps", "80", "--out", str(tmp_path / "r"), name, value]) == 2
    assert name in (line := complaint(capsys))
    assert "takes a number" in line
    assert not (tmp_path / "r").exists()


def test_a_sweep_is_refused_before_anything_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text(f'games = ["{TOY}"]\nagents = ["drrn"]\nsteps = 80\n[settings.drrn.q]\nhidden = 0\n')
    assert main(["sweep", str(spec), "--out", str(tmp_path / "out")]) == 2
    assert "--q.hidden takes a number from 1" in complaint(capsys)
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("settings", [XtxSettings(), DrrnSettings(), InvDySettings(), RcDqnSettings()])
def test_presets_are_within_their_bounds(settings: object) -> None:
    check_settings(settings)
    if not isinstance(settings, RcDqnSettings):
        check_settings(make_demo_settings(settings))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"--text\.longest takes a number from 3"):
        check_settings(replace(settings, text=replace(settings.text, longest=2)))  # type: ignore[type-var, attr-defined]


def test_edges_count_or_not() -> None:
    check_settings(QSettings(gamma=1.0, learning_rate=0.0, clip=float("inf")))
    with pytest.raises(ValueError, match="--clip takes a number above 0, not 0"):
        check_settings(QSettings(clip=0.0))


# --- runs -------------------------------------------------------------------------------------------------------


def test_a_run_without_its_checkpoints_is_not_begun_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "r"
    assert train(folder) == 0
    lines = (folder / "episodes.jsonl").read_bytes()
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    assert lines
    assert main(["resume", str(folder), "--workers", "0"]) == 2
    assert "has no checkpoint any more" in complaint(capsys)
    assert (folder / "episodes.jsonl").read_bytes() == lines


def test_lines_of_a_run_without_any_mark_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was killed before its first checkpoint, or is finished and of a version that left no mark."""
    folder = tmp_path / "r"
    assert train(folder) == 0
    lines = (folder / "episodes.jsonl").read_bytes()
    for path in ((folder / SAVED), *(folder / "checkpoints").iterdir()):
        path.unlink()
    assert main(["resume", str(folder), "--workers", "0"]) == 0
    assert "kept in files that end in .old" in capsys.readouterr().err
    assert (folder / "episodes.jsonl").read_bytes() == (folder / "episodes.jsonl.old").read_bytes() == lines
    for path in ((folder / SAVED), *(folder / "checkpoints").iterdir()):
        path.unlink()
    (folder / "episodes.jsonl").write_text("{}\n")
    with Run.open(folder) as run:
        assert run.restore() is None
    assert (folder / "episodes.jsonl.old").read_bytes() == lines, "the second time nothing is written over"
    assert (folder / "episodes.jsonl.old-2").read_text() == "{}\n"


def test_a_run_that_was_saved_once_but_is_far_from_its_end(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", RunConfig(TOY, "random", {}, steps=1000)) as run:
        run.write("metrics", {"step": 8})
        run.save(8, {})
    for path in (tmp_path / "r/checkpoints").iterdir():
        path.unlink()
    with Run.open(tmp_path / "r") as run, pytest.raises(UserError, match="no checkpoint any more"):
        run.restore()


def test_a_start_that_fails_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "r"
    (tmp_path / "file").touch()
    for wrong in ([f"--atlas={tmp_path / 'file' / 'atlas'}"],):
        assert main(["train", "lowwater", "--agent", "random", "--steps", "8", "--out", str(folder), *wrong]) == 2
        capsys.readouterr()
        assert not folder.exists()
    assert train(folder) == 0


def test_what_was_learned_is_not_discarded(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", RunConfig(TOY, "random", {})) as run:
        run.write("episodes", {"score": 1})
        run.discard_unused()
    assert read_config(tmp_path / "r").game == TOY


@pytest.mark.parametrize("linked", [True, False])
def test_a_folder_that_was_there_before_stays(linked: bool, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    folder = tmp_path / ("link" if linked else "there")
    Run.create(folder, RunConfig(TOY, "random", {})).discard_unused()
    assert list((tmp_path / "there").iterdir()) == []


def test_compare_needs_no_checkpoints_of_finished_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", TOY, "--agents", "random", "--steps", "400", "--seeds", "0", "0", "--workers", "0"]
    words += ["--out", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "1 run: 1 finished; 400 of 400 steps" in out, "a seed that is given twice counts once"
    for path in tmp_path.glob("*/*/*/checkpoints/*"):
        path.unlink()
    assert main(words) == 0
    assert "1 run: 1 finished; 400 of 400 steps" in capsys.readouterr().out
    assert not list(tmp_path.glob("*/*/*/checkpoints/*")), "nothing was trained again"


def test_damaged_episodes_are_told_of_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "r"
    assert train(folder) == 0
    content = (folder / "episodes.jsonl").read_bytes()
    (folder / "episodes.jsonl").write_bytes(content[:5] + b"?!" + content[7:])
    capsys.readouterr()
    with Run.open(folder) as run:
        print_summary(Console(), run, set_up_game(TOY), "1 s")
    assert "is damaged" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", str(folder), "--workers", "0"]) == 2
    assert "episodes.jsonl is damaged: line 1 cannot be read" in complaint(capsys)
    assert main(["resume", str(folder), "--workers", "0", "--accept-changes"]) == 0
    assert "is damaged" not in capsys.readouterr().out


def test_a_full_disk_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No space left on device.*xtx resume"), explain_write_errors(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(PermissionError), explain_write_errors(tmp_path):  # what is none of the run's files
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/elsewhere/file")


def test_files_that_become_too_large(tmp_path: Path) -> None:
    """A limit of the shell's, which is told in another way than a full disk."""
    words = f"train {TOY} --agent drrn --steps 400 --workers 0 --out {tmp_path / 'r'} --quiet"
    ended = subprocess.run(
        ["bash", "-c", f"ulimit -f 20; exec {sys.executable} -m xtx.cli {words}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert f"xtx resume {tmp_path / 'r'}" in ended.stderr
    assert "Traceback" not in ended.stderr


# --- files that the user names ------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(UserError, match=r"page cannot be written \(No space"), open_output(path) as file:
        file.write("new")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page"]
    (tmp_path / "link").symlink_to(path)
    with open_output(tmp_path / "link") as file:
        file.write("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    with open_output(Path("/dev/null")) as file:
        file.write("nowhere")
    with pytest.raises(UserError, match="it is a folder"), open_output(tmp_path):
        pass


def test_what_is_no_file_is_written_into_and_never_replaced(tmp_path: Path) -> None:
    """A file that took the place of /dev/null would harm every program of the machine."""
    pipe, link, loop = tmp_path / "pipe", tmp_path / "link", tmp_path / "loop"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        write_user_file(pipe, b"packed")
        assert reader.read() == b"packed" and pipe.is_fifo()
    link.symlink_to(tmp_path / "page")
    write_user_file(link, b"one")
    assert link.is_symlink() and (tmp_path / "page").read_bytes() == b"one"
    loop.symlink_to(loop)
    write_user_file(loop, b"two")
    with open_output(tmp_path / "other") as file:
        file.write("three")
    with pytest.raises(UserError, match="cannot be written"):
        write_user_file(tmp_path, b"four")


def test_an_output_that_is_a_link_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop.md").symlink_to("loop.md")
    write_run(tmp_path / "run", [1])
    main(["report", str(tmp_path), "--no-walkthroughs", "--out", str(tmp_path / "loop.md")])
    main(["games", "atlas", "--atlas", str(tmp_path / "none"), "--pack", str(tmp_path / "loop.md")])
    assert capsys.readouterr().err.count("\n") <= 2


@pytest.mark.parametrize("name", ["~nosuchuser/x", "y" * 300])
def test_names_that_no_file_can_have(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="cannot be written"), open_output(Path(name)):
        pass
    with open_output(Path("y" * 255)) as file:  # which leaves no room for a longer one beside it
        file.write("all")
    assert Path("y" * 255).read_text() == "all"


def test_where_a_file_cannot_be_replaced_it_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page"
    path.write_text("old")

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Path, "replace", busy)
    with open_output(path) as file:
        file.write("new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["page"]


def test_what_is_worth_something_by_itself_is_there_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError), open_output(tmp_path / "lines", bit_by_bit=True) as file:
        file.write("one\n")
        file.flush()
        assert (tmp_path / "lines").read_text() == "one\n"
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (tmp_path / "lines").read_text() == "one\n"


@pytest.mark.parametrize("where", ["nodir/x.json", "."])
def test_missed_actions_that_cannot_be_written(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["games", "check", "lowwater", "--write-extra", where]) == 2
    assert "name another file with --write-extra" in complaint(capsys)


def test_a_pipe_is_no_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "x.z5")
    assert main(["games", "add", str(tmp_path / "x.z5")]) == 2
    assert "is no file" in complaint(capsys)


def test_an_atlas_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").touch()
    assert main(["games", "atlas", "--atlas", str(tmp_path / "a")]) == 2
    assert "names the folder" in complaint(capsys)


# --- streams and signals ------------------------------------------------------------------------------------------


TRAIN = f"train {TOY} --agent random --steps 80 --workers 1 --out $(mktemp -d)/r"


@pytest.mark.parametrize(
    ("words", "status"),
    [("games | true; exit ${PIPESTATUS[0]}", 141), ("games >&-", 0), (f"{TRAIN} 2>&-", 0), (f"{TRAIN} >&- <&-", 0)],
)
def test_output_that_nobody_reads(words: str, status: int) -> None:
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m xtx.cli {words}"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == status
    assert "Traceback" not in ended.stderr


def test_ctrl_c_is_answered_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with stop_on_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested
    assert "Ctrl-C again" in capfd.readouterr().err


def test_ctrl_c_is_heard_where_nobody_reads_the_answer() -> None:
    """A second one must end it, even if the first still waits to be answered."""
    program = (
        "import os, signal, threading, time\n"
        "from xtx.training.stop import stop_on_signal\n"
        "reads, writes = os.pipe(); os.set_blocking(writes, False)\n"
        "try:\n    while True: os.write(writes, bytes(4096))\nexcept BlockingIOError: pass\n"
        "os.set_blocking(writes, True); os.dup2(writes, 2)\n"
        "def twice():\n    for _ in range(2): time.sleep(0.3); os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=twice, daemon=True).start()\n"
        "try:\n    with stop_on_signal(): time.sleep(20)\nexcept KeyboardInterrupt: os._exit(77)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 77


def test_an_agent_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import importlib.metadata

    point = importlib.metadata.EntryPoint("broken", "no_such_module:Agent", "xtx.agents")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    assert main(["train", TOY, "--agent", "broken", "--steps", "8"]) == 2
    assert "cannot be loaded from no_such_module:Agent" in complaint(capsys)
