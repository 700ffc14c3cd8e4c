"""Files that are no good stories: each gets one line and exit status 2, whatever command meets it."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xtx.cli.main import main
from xtx.core import UserError
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Status


def good() -> bytearray:
    return bytearray(find_story(find_default_game()).content)


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


def packed(kind: bytes, content: bytes) -> bytes:
    """A Blorb package with a chunk of the type `kind`, behind a picture of odd length."""
    chunks = b"".join(
        name + len(part).to_bytes(4, "big") + part + bytes(len(part) % 2)
        for name, part in ((b"Pict", b"odd"), (kind, content))
    )
    return b"FORM" + (len(chunks) + 4).to_bytes(4, "big") + b"IFRS" + chunks


def blorb_without_story() -> bytes:
    return packed(b"Snd ", bytes(20))


def blorb_of_glulx() -> bytes:
    return packed(b"GLUL", glulx())


def blorb_cut_short() -> bytes:
    return packed(b"ZCOD", bytes(good()))[:-700]


def blorb_of_text() -> bytes:
    return packed(b"ZCOD", text())


def tads2() -> bytes:
    return b"TADS2 bin\n\r\x1a" + bytes(300)


def tads3() -> bytes:
    return b"T3-image\r\n\x1a" + bytes(300)


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


def zipped() -> bytes:
    return b"PK\3\4" + bytes(good())


def gzipped() -> bytes:
    return gzip.compress(bytes(good()))


def saved_game() -> bytes:
    return b"FORM" + (100).to_bytes(4, "big") + b"IFZS" + bytes(96)


CASES: list[tuple[Callable[[], bytes], str]] = [
    (empty, "is not a Z-machine story"),
    (text, "is not a Z-machine story"),
    (barely_a_header, "is not a Z-machine story"),
    (header_alone, "is cut short: 64 of"),
    (cut_short, "is cut short"),
    (version_6, "version 6; versions 3, 4, 5 and 8"),
    (version_9, "is not a Z-machine story"),
    (blorb_without_story, "is a Blorb package without a story in it"),
    (blorb_of_glulx, "is a Blorb package with a Glulx story"),
    (blorb_cut_short, "is a Blorb package that is cut short"),
    (blorb_of_text, "is not a Z-machine story"),
    (tads2, "is a TADS 2 story"),
    (tads3, "is a TADS 3 story"),
    (glulx, "is a Glulx story"),
    (zipped, "is an archive; unpack it"),
    (gzipped, "is an archive; unpack it"),
    (saved_game, "is a saved game and no story"),
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

        def refuse(path: Path, _: int) -> bytes:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr("xtx.games.catalog.story_file.read_bounded", refuse)
    assert main(["games", command, str(path)]) == 2
    assert_one_line(capsys.readouterr(), "cannot be read (Permission denied)")


def test_a_giant_file_among_the_stories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gigabytes are never read: not when it is named, and not when games are listed."""
    with (tmp_path / "giant.z5").open("wb") as file:
        file.truncate(100 << 30)
    (tmp_path / "good.z5").write_bytes(good())
    monkeypatch.setenv("XTX_GAMES", str(tmp_path))
    with pytest.raises(UserError, match=r"giant\.z5 is not a Z-machine story: it is larger than"):
        read_story(tmp_path / "giant.z5")
    assert main(["games"]) == 0
    assert main(["games", "add", str(tmp_path)]) == 0


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.z5"))
    path.write_bytes(good())
    with pytest.raises(UserError, match="can be played only where its name"):
        read_story(path)


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


@pytest.mark.parametrize(
    ("name", "content", "format_"),
    [
        ("a.ulx", glulx, "Glulx"),
        ("a.gam", tads2, "TADS 2"),
        ("a.t3", tads3, "TADS 3"),
        ("a.gam", empty, "TADS 2"),
        ("a.z5", tads3, "TADS 3"),
        ("a.gblorb", blorb_of_glulx, "Glulx"),
        ("a.hex", text, "Hugo"),
    ],
)
@pytest.mark.parametrize("command", [["games", "add"], ["games", "info"], ["play"], ["train"]])
def test_other_formats_are_named_also_without_a_folder(
    name: str,
    content: Callable[[], bytes],
    format_: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content())
    assert main([*command, name]) == 2
    assert_one_line(capsys.readouterr(), f"{name} is a ", f"{format_} story; only Z-machine stories")


@pytest.mark.parametrize("suffix", [".zblorb", ".zlb"])
def test_a_story_in_a_package(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"inside{suffix}"
    path.write_bytes(packed(b"ZCOD", bytes(good())))
    plain = find_story(find_default_game())
    story = find_story(str(path))
    assert (story.content, story.md5, story.is_packaged) == (plain.content, plain.md5, True)
    emulators = [Emulator(each) for each in (plain, story)]
    assert emulators[0].reset(1) == emulators[1].reset(1)
    assert emulators[1].step("look") is Status.DONE
    assert emulators[1].reset(2)  # read again
    for emulator in emulators:
        emulator.close()
    assert main(["games", "info", str(path)]) == 0
    assert plain.md5 in capsys.readouterr().out


@pytest.mark.parametrize("name", ["tw-mine.z5", "./no-suffix"])
def test_names_that_mislead_the_emulator(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(bytes(good()))
    one, other = Emulator(find_story(find_default_game())), Emulator(find_story(name))
    assert one.reset(1) == other.reset(1)
    assert one.save().ram == other.save().ram
    one.close()
    other.close()
