from __future__ import annotations

import errno
import importlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import xtx.cli.games.list
from xtx.cli.main import COMMANDS, main
from xtx.core import UserError
from xtx.games.catalog import known_games
from xtx.training.stop import stop_on_signal


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xtx.cli", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_help_names_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name} " in out
        assert command.summary in out
    assert max(map(len, out.splitlines())) <= 80


def test_help_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "--help"]) == 0
    assert "games add" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_options_and_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(COMMANDS[name].module)
    assert module.Args.__doc__
    assert callable(module.run)
    try:
        assert main([*name.split(), "--help"]) == 0
    except SystemExit as end:
        assert end.code == 0
    assert f"usage: xtx {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("xtx 0.")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["gmes"], "did you mean `xtx games`?"),
        (["games", "inof"], "did you mean `xtx games info`?"),
        (["qqqqqqqq"], "see: xtx --help"),
        (["games", "info"], "missing: GAME (see: xtx games info --help)"),
        (["games", "add", "x", "--profil", "y"], "perhaps you meant --profile"),
        (["games", "add", "x", "--profile"], "missing value for argument '--profile'"),
        (["games", "profile", "a", "b", "-o", "c", "--seed", "x"], "--seed takes a whole number, not 'x' (see"),
        (["train", "lowwater", "--steps", "1.5"], "--steps takes a whole number, not '1.5' (see"),
        (["play", "lowwater", "--delay", "soon"], "--delay takes a number, not 'soon' (see"),
        (["games", "--all"], "unrecognized options: --all"),
        (["train", "lowwater", "--wide-grammar"], "--wide-grammar no longer exists: `--actions whole` finds more"),
        (["train", "lowwater", "--imitation.bfloat16"], "--imitation.bfloat16 no longer exists"),
        (["games", "info", "zrok1"], "did you mean zork"),
        (["games", "profile", "absent.z5", "gameinfo.dbg", "-o", "out.json"], "absent.z5: No such file"),
    ],
)
def test_mistakes_get_one_line(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("xtx: ")
    assert err.count("\n") == 1
    assert complaint in err


@pytest.mark.parametrize(
    ("trouble", "status", "line"),
    [
        (UserError("two\nlines"), 2, "xtx: two lines\n"),
        (KeyboardInterrupt(), 130, "xtx: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), 2, "xtx: /data/x: No space left on device\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "xtx: writing: No space left on device\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), 2, "xtx: /data/x: Permission denied\n"),
    ],
)
def test_trouble_gets_one_line(
    trouble: BaseException,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> None:
        raise trouble

    monkeypatch.setattr(xtx.cli.games.list, "run", fail)
    assert main(["games"]) == status
    assert capsys.readouterr().err == line


def test_our_own_mistakes_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(xtx.cli.games.list, "run", fail)
    with pytest.raises(OSError, match="Bad file"):
        main(["games"])


def test_a_full_disk_under_the_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "xtx.cli", "games"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "xtx: standard output: No space left on device\n"


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "xtx.cli", "games"], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode != 0
    assert done.stderr == ""


def test_table_of_games(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["games"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "comes with xtx" in rows[known_games.find_default_game()]
    assert rows["zork1"].split() == ["zork1", "350", "396", "12", "yes"]
    assert "1 of" in rows["1"]


def test_listing_games_does_not_wait_for_jericho() -> None:
    code = "import sys; from xtx.cli.main import main; main(['games']); print('jericho' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_info_of_the_embedded_adventure(capsys: pytest.CaptureFixture[str]) -> None:
    name = known_games.find_default_game()
    entry = known_games.find_entry(name)
    assert main(["games", "info", name]) == 0
    out = capsys.readouterr().out
    assert f"{name}, {entry.max_score} points" in out
    assert f"{entry.walkthrough_length} steps, seed {entry.seed}, ends with {entry.max_score} points" in out


@pytest.mark.roms
def test_info_of_zork1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "info", "zork1"]) == 0
    out = capsys.readouterr().out
    for fact in (
        "47 / 121 / 67 with no, one, two objects",
        "396 steps, seed 12, ends with 350 points",
        "9.2 steps on average, 51 at most",
        "250",
        "697 words",
    ):
        assert fact in out


def test_add_reports_and_exits(tmp_path: Path) -> None:
    (tmp_path / "bad.z5").write_bytes(b"")
    done = run("games", "add", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == f"refused: {tmp_path / 'bad.z5'} is not a Z-machine story\n"
    for suffix in (".z5", ".json"):
        source = known_games.find_story(known_games.find_default_game()).path.with_suffix(suffix)
        (tmp_path / source.name).write_bytes(source.read_bytes())
    done = run("games", "add", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"added {known_games.find_default_game()}\n" in done.stdout
    assert f"1 story copied into {known_games.find_user_folder()}\n" in done.stdout


@pytest.mark.skipif(not shutil.which("inform6"), reason="needs the Inform 6 compiler")
def test_a_story_of_ones_own_from_source_to_info(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = Path(__file__).parents[2] / "stories" / "lowwater"
    text = (source / "lowwater.inf").read_text().replace('Constant Story "LOW WATER"', 'Constant Story "HIGH WATER"')
    (tmp_path / "mine.inf").write_text(text)
    compiler = ["inform6", "-v5", "-~S", "-k", "+include_path=/usr/share/inform6/library", "mine.inf", "mine.z5"]
    subprocess.run(compiler, check=True, capture_output=True)
    walkthrough = str(source / "walkthrough.txt")
    words = ["games", "profile", "mine.z5", "gameinfo.dbg", "-o", "p.json", "--walkthrough", walkthrough]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["games", "info", "mine.z5"]) == 0  # before it is added, by what is found in it
    assert "verified          no;" in capsys.readouterr().out
    assert main(["games", "add", "mine.z5", "--profile", "p.json"]) == 0
    assert main(["games", "info", "mine"]) == 0
    out = capsys.readouterr().out
    entry = known_games.find_entry(known_games.find_default_game())
    assert f"mine, {entry.max_score} points" in out
    assert f"ends with {entry.max_score} points" in out
    assert main(["games", "profile", "mine.z5", "mine.inf", "-o", "q.json"]) == 2
    assert "no profile can be made" in capsys.readouterr().err


def test_only_a_second_ctrl_c_ends_a_run_at_once() -> None:
    """SIGTERM may come twice for one reason: the run must still be able to save."""
    with stop_on_signal() as stop:
        assert not stop.is_requested
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_requested
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_requested
