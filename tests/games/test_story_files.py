"""Files that are no good stories: each gets one line and exit status 2, whatever command meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xtx.cli import main
from xtx.games.catalog import default_game, find_story


def good() -> bytearray:
    return bytearray(find_story(default_game()).content)


def empty() -> bytes:
    return b""


def text() -> bytes:
    return b"You are standing in an open field west of a white house.\n" * 20


def cut_short() -> bytes:
    return bytes(good()[:-600])


def barely_a_header() -> bytes:
    return bytes(good()[:63])


def header_alone() -> bytes:
    return bytes(good()[:64])


def version_6() -> bytes:
    return b"\6" + bytes(good()[1:])


def version_9() -> bytes:
    return b"\x09" + bytes(good()[1:])


def blorb() -> bytes:
    return b"FORM\0\0\1\0IFRSRIdx" + bytes(200)


def glulx() -> bytes:
    return b"Glul\0\3\1\2" + bytes(248)


def damaged() -> bytes:
    content = good()
    content[len(content) // 2] ^= 0xFF
    return bytes(content)


def points_outside() -> bytes:
    content = good()
    content[0x0A:0x0C] = b"\xff\xff"
    content[0x1A:0x1C] = b"\0\0"
    return bytes(content[:20_000])


CASES: list[tuple[Callable[[], bytes], str]] = [
    (empty, "is not a Z-machine story"),
    (text, "is not a Z-machine story"),
    (barely_a_header, "is not a Z-machine story"),
    (header_alone, "is cut short: 64 of"),
    (cut_short, "is cut short"),
    (version_6, "version 6; versions 3, 4, 5 and 8"),
    (version_9, "is not a Z-machine story"),
    (blorb, "is a Blorb package"),
    (glulx, "is a Glulx story"),
    (damaged, "is damaged: its checksum does not fit"),
    (points_outside, "its header points outside the file"),
]


@pytest.mark.parametrize("command", ["info", "add"])
@pytest.mark.parametrize(("content", "complaint"), CASES, ids=[case[0].__name__ for case in CASES])
def test_bad_content(
    content: Callable[[], bytes], complaint: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "story.z5"
    path.write_bytes(content())
    assert main(["games", command, str(path)]) == 2
    assert_one_line(capsys.readouterr(), f"{path} ", complaint)


@pytest.mark.parametrize("command", ["info", "add"])
def test_no_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", command, str(tmp_path / "absent.z5")]) == 2
    assert_one_line(capsys.readouterr(), "absent.z5 does not exist")


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "info", str(tmp_path)]) == 2
    assert_one_line(capsys.readouterr(), "is a folder", f"xtx games add {tmp_path}")


@pytest.mark.parametrize("command", ["info", "add"])
def test_an_unreadable_file(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "story.z5"
    path.write_bytes(good())
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything

        def refuse(self: Path) -> bytes:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "read_bytes", refuse)
    assert main(["games", command, str(path)]) == 2
    assert_one_line(capsys.readouterr(), "cannot be read (Permission denied)")


def test_the_installed_command(tmp_path: Path) -> None:
    path = tmp_path / "story.z5"
    path.write_bytes(text())
    done = subprocess.run(
        [sys.executable, "-m", "xtx.cli", "games", "info", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"xtx: {path} is not a Z-machine story\n"


def assert_one_line(captured: tuple[str, str], *parts: str) -> None:
    out, err = captured
    assert out == ""
    assert err.startswith("xtx: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err
