"""An atlas goes into a small file and comes out of it on another machine; other files do no harm."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable
from pathlib import Path

import lmdb
import msgspec
import pytest

from xtx.cli import main
from xtx.core import UserError
from xtx.games.atlas import DEADLY, Atlas
from xtx.games.packed import add_packed, pack, read_packed, unpack, write_packed

KEY, OTHER, THIRD = b"k" * 16, b"o" * 16, b"!" + b"t" * 15
FOUND = {KEY: b"one", OTHER: b"two", THIRD: b""}


def atlas_with(folder: Path, found: dict[bytes, bytes]) -> Path:
    with Atlas(folder) as atlas:
        atlas.put_all(found)
    return folder


def held(folder: Path) -> dict[bytes, bytes]:
    with Atlas(folder) as atlas:
        return atlas.entries()


def test_what_is_packed_is_unpacked_whatever_the_order() -> None:
    assert unpack(pack(FOUND)) == FOUND
    assert pack(FOUND) == pack(dict(reversed(FOUND.items())))


def test_an_atlas_is_taken_to_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = atlas_with(tmp_path / "here", {**FOUND, DEADLY + KEY: b"deadly"})
    packed = tmp_path / "new folder" / "packed"
    assert main(["games", "atlas", "--atlas", str(here), "--pack", str(packed)]) == 0
    there = atlas_with(tmp_path / "there", {OTHER: b"two"})
    assert main(["games", "atlas", "--atlas", str(there), "--add", str(packed)]) == 0
    assert "3 of 4 entries were new" in capsys.readouterr().out
    assert held(there) == held(here) == {**FOUND, DEADLY + KEY: b"deadly"}
    assert main(["games", "atlas", "--atlas", str(there), "--add", str(packed)]) == 0
    assert "0 of 4 entries were new" in capsys.readouterr().out
    assert main(["games", "atlas", "--atlas", str(tmp_path / "nowhere"), "--add", str(packed)]) == 0
    assert held(tmp_path / "nowhere") == held(here)


def test_what_is_known_stays_but_not_what_kills(tmp_path: Path) -> None:
    with Atlas(tmp_path / "atlas") as atlas:
        atlas.put_all({KEY: b"ours", OTHER: b"ours", DEADLY + OTHER: b"ours"})
        theirs = {KEY: b"theirs", OTHER: b"theirs", DEADLY + KEY: b"theirs", DEADLY + OTHER: b"theirs"}
        assert add_packed(atlas, theirs) == 2
        assert atlas.entries() == {
            KEY: b"theirs", DEADLY + KEY: b"theirs", OTHER: b"ours", DEADLY + OTHER: b"ours",
        }  # fmt: skip


def test_a_damaged_entry_is_not_packed(tmp_path: Path) -> None:
    folder = atlas_with(tmp_path / "atlas", FOUND)
    with lmdb.open(str(folder)) as environment, environment.begin(write=True) as transaction:
        transaction.put(KEY, b"not its checksum")
    with Atlas(folder) as atlas:
        assert write_packed(atlas, tmp_path / "packed")[0] == 2
    assert read_packed(tmp_path / "packed") == {OTHER: b"two", THIRD: b""}


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut short": lambda content: content[:-9],
    "no xz": lambda content: b"x" + content,
    "no pairs": lambda _: lzma.compress(msgspec.msgpack.encode([1, 2, 3])),
    "no entries": lambda _: lzma.compress(msgspec.msgpack.encode([])),
    "other keys": lambda _: lzma.compress(msgspec.msgpack.encode([(b"format", b"mine")])),
    "long keys": lambda _: lzma.compress(msgspec.msgpack.encode([(b"x" * 17, b"mine")])),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=list(SPOILED))
def test_other_files_are_refused(
    spoil: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = atlas_with(tmp_path / "atlas", {KEY: b"ours"}), tmp_path / "file"
    file.write_bytes(spoil(pack(FOUND)))
    assert main(["games", "atlas", "--atlas", str(folder), "--add", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no packed atlas" in error
    assert held(folder) == {KEY: b"ours"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add", "missing"),
        ("--add", "."),
        ("--pack", "."),
        ("--pack", "atlas/data.mdb/x"),
        ("--add", "x", "--pack", "x"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    atlas_with(tmp_path / "atlas", FOUND)
    assert main(["games", "atlas", "--atlas", "atlas", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["atlas"] and held(tmp_path / "atlas") == FOUND


def test_an_atlas_that_is_not_there_cannot_be_packed(tmp_path: Path) -> None:
    assert main(["games", "atlas", "--atlas", str(tmp_path / "atlas"), "--pack", str(tmp_path / "file")]) == 2
    with pytest.raises(UserError, match="cannot be read"):
        read_packed(tmp_path / "file")
