"""Playing on a real terminal: keys, Ctrl-C, small windows, tmux."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from xtx.games.catalog import known_games

HANG = str(Path(__file__).parents[2] / "stories" / "hang" / "hang.z5")
LOWWATER = str(known_games.DATA / "lowwater.z5")
XTX = [sys.executable, "-m", "xtx.cli", "play"]


class Terminal:
    """A session on a terminal of its own."""

    def __init__(self, *words: str, rows: int = 24, columns: int = 80, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        surroundings = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [*XTX, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**surroundings, "TERM": "xterm-256color", **environment},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def wait_for(self, text: str, prompt: bool = True, seconds: float = 60) -> str:
        """All that was shown since the last time, as soon as the text is in it, and behind that the prompt."""
        wanted = re.compile(re.escape(text) + (r".*> $" if prompt else ""), re.DOTALL)
        shown, end = "", time.monotonic() + seconds
        while not wanted.search(shown):
            assert time.monotonic() < end, shown
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    shown += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert wanted.search(shown), shown
        self.shown += shown
        return shown

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        """The exit status."""
        with contextlib.suppress(OSError):  # the other end is closed
            while select.select([self.master], [], [], 30)[0]:
                self.shown += os.read(self.master, 65536).decode(errors="replace")
        return self.process.wait(5)


def test_on_a_terminal() -> None:
    with Terminal() as terminal:
        assert "\x1b[7m" in terminal.wait_for("0 moves")  # the status line is reversed
        terminal.type("north\n")
        assert "Tide Office" in terminal.wait_for("1 move")
        terminal.type("\x1b[A\x7f\x7f\x7f\x7f\x7fsouth\n")  # the line before, edited
        terminal.wait_for("2 moves")
        terminal.type("/tr\t\n")
        terminal.wait_for("To which file?")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "You leave with 0 of 75 points after 2 moves." in terminal.shown
    with Terminal() as terminal:  # the history lasts
        terminal.wait_for("0 moves")
        terminal.type("\x1b[A\x1b[A\x1b[A\n")
        terminal.wait_for("1 move")
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_control_c_on_a_terminal() -> None:
    with Terminal() as terminal:
        terminal.wait_for("0 moves")
        terminal.type("nor")
        terminal.wait_for("nor", prompt=False)
        time.sleep(0.2)  # Python hears it only once it waits for the next key
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "You leave with" in terminal.shown
    assert "Traceback" not in terminal.shown


def test_control_c_stops_the_search_and_not_the_game() -> None:
    with Terminal("--no-atlas") as terminal:
        terminal.wait_for("0 moves")
        terminal.type("/actions\n")
        terminal.wait_for("looking...", prompt=False)
        terminal.type("\x03")
        terminal.wait_for("Stopped looking.")
        terminal.type("north\n")
        terminal.wait_for("1 move")
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_without_colours() -> None:
    with Terminal("--agent", "walkthrough", "--steps", "5", "--delay", "0", NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    assert "+2 points" in terminal.shown
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])[0-9;]*m", terminal.shown)


def test_a_very_small_terminal() -> None:
    with Terminal("--agent", "walkthrough", "--steps", "3", "--delay", "0", rows=5, columns=10) as terminal:
        assert terminal.end() == 0
    assert "Traceback" not in terminal.shown


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_under_tmux(tmp_path: Path) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]

    def screen_with(text: str, last: str = "") -> list[str]:
        """A screen on which that can be read, whose last line begins so: it may be caught half drawn."""
        for _ in range(100):
            shown = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout
            lines = [line for line in shown.splitlines() if line]
            if text in shown and lines[-1].startswith(last):
                return lines
            time.sleep(0.1)
        raise AssertionError(shown)

    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "24", *XTX], check=True)
    try:
        subprocess.run([*tmux, "set-option", "remain-on-exit", "on"], check=True)
        screen_with("0 moves", last=">")
        subprocess.run([*tmux, "send-keys", "north", "Enter"], check=True)
        lines = screen_with("1 move", last=">")
        assert lines[-2].startswith(" Tide Office")
        assert lines[-2].endswith("score 0/75   1 move")
        assert lines[-1].startswith(">")
        assert " Tide Office" in lines[-2]
        subprocess.run([*tmux, "send-keys", "C-d"], check=True)
        screen_with("You leave with 0 of 75 points after 1 move.")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
