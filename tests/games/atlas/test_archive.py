"""Packed atlases: written, read on another machine, and refused if damaged."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable
from pathlib import Path

import lmdb
import msgspec
import pytest

from xtx.cli.main import main
from xtx.core import UserError
from xtx.games.atlas.archive import add_packed, pack, read_packed, unpack, write_packed
from xtx.games.atlas.store import DEADLY, Atlas

KEY, OTHER, THIRD = b"k" * 16, b"o" * 16, b"!" + b"t" * 15
FOUND = {KEY: b"one", OTHER: b"two", THIRD: b""}


def deadly(*commands: str) -> bytes:
    return msgspec.msgpack.encode(sorted(commands))


def atlas_with(folder: Path, found: dict[bytes, bytes]) -> Path:
    with Atlas(folder) as atlas:
        atlas.update(lambda _: found)
    return folder


def held(folder: Path) -> dict[bytes, bytes]:
    with Atlas(folder) as atlas:
        return atlas.read_entries()


def test_what_is_packed_is_unpacked_whatever_the_order() -> None:
    assert unpack(pack(FOUND)) == FOUND
    assert pack(FOUND) == pack(dict(reversed(FOUND.items())))


def test_an_atlas_is_taken_to_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = atlas_with(tmp_path / "here", {**FOUND, DEADLY + KEY: deadly("bomb")})
    packed = tmp_path / "new folder" / "packed"
    assert main(["games", "atlas", "--atlas", str(here), "--pack", str(packed)]) == 0
    there = atlas_with(tmp_path / "there", {OTHER: b"two"})
    assert main(["games", "atlas", "--atlas", str(there), "--add", str(packed)]) == 0
    assert "3 of 4 entries were new" in capsys.readouterr().out
    assert held(there) == held(here) == {**FOUND, DEADLY + KEY: deadly("bomb")}
    assert main(["games", "atlas", "--atlas", str(there), "--add", str(packed)]) == 0
    assert "0 of 4 entries were new" in capsys.readouterr().out
    assert main(["games", "atlas", "--atlas", str(tmp_path / "nowhere"), "--add", str(packed)]) == 0
    assert held(tmp_path / "nowhere") == held(here)


def test_what_is_known_stays(tmp_path: Path) -> None:
    folder = atlas_with(tmp_path / "atlas", {KEY: b"ours"})
    with Atlas(folder) as atlas:
        assert add_packed(atlas, {KEY: b"theirs", OTHER: b"theirs"}) == 1
        assert atlas.read_entries() == {KEY: b"ours", OTHER: b"theirs"}


BOMB, BOTH = deadly("bomb"), deadly("bomb", "x")


@pytest.mark.parametrize(
    ("ours", "theirs", "after"),
    [
        ({DEADLY + KEY: BOMB}, {KEY: b"theirs"}, {DEADLY + KEY: BOMB}),
        ({KEY: b"ours"}, {DEADLY + KEY: BOMB}, {DEADLY + KEY: BOMB}),
        ({KEY: b"ours"}, {DEADLY + KEY: BOMB, KEY: b"theirs"}, {DEADLY + KEY: BOMB, KEY: b"theirs"}),
        ({KEY: b"ours", DEADLY + KEY: BOMB}, {KEY: b"theirs"}, {KEY: b"ours", DEADLY + KEY: BOMB}),
        ({DEADLY + KEY: BOMB}, {KEY: b"theirs", DEADLY + KEY: BOMB}, {KEY: b"theirs", DEADLY + KEY: BOMB}),
        ({DEADLY + KEY: BOMB}, {DEADLY + KEY: deadly("x"), KEY: b"theirs"}, {DEADLY + KEY: BOTH}),
        ({DEADLY + KEY: BOMB, KEY: b"ours"}, {DEADLY + KEY: deadly("x"), KEY: b"theirs"}, {DEADLY + KEY: BOTH}),
        (
            {DEADLY + KEY: BOMB, KEY: b"ours"},
            {DEADLY + KEY: BOTH, KEY: b"theirs"},
            {DEADLY + KEY: BOTH, KEY: b"theirs"},
        ),
        ({DEADLY + KEY: BOTH, KEY: b"ours"}, {DEADLY + KEY: BOMB, KEY: b"theirs"}, {DEADLY + KEY: BOTH, KEY: b"ours"}),
        ({DEADLY + KEY: BOTH}, {DEADLY + KEY: BOMB, KEY: b"theirs"}, {DEADLY + KEY: BOTH}),
    ],
)
def test_what_was_found_goes_with_what_must_not_be_tried(
    ours: dict[bytes, bytes], theirs: dict[bytes, bytes], after: dict[bytes, bytes], tmp_path: Path
) -> None:
    """In whatever order it stands in the file, and a second time nothing is new."""
    for number, order in enumerate((theirs, dict(reversed(theirs.items())))):
        with Atlas(atlas_with(tmp_path / str(number), ours)) as atlas:
            add_packed(atlas, order)
            assert atlas.read_entries() == after
            assert add_packed(atlas, order) == 0


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
    "no commands": lambda _: lzma.compress(msgspec.msgpack.encode([(DEADLY + KEY, b"mine")])),
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


def test_a_packed_file_does_not_give_way_to_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = atlas_with(tmp_path / "atlas", FOUND), tmp_path / "file"
    file.write_bytes(pack(FOUND))
    (folder / "data.mdb").write_bytes(os.urandom(1 << 16))
    assert main(["games", "atlas", "--atlas", str(folder), "--pack", str(file)]) == 2
    assert "nothing in the atlas" in capsys.readouterr().err
    assert read_packed(file) == FOUND


def test_an_atlas_that_is_not_there_cannot_be_packed(tmp_path: Path) -> None:
    assert main(["games", "atlas", "--atlas", str(tmp_path / "atlas"), "--pack", str(tmp_path / "file")]) == 2
    with pytest.raises(UserError, match="cannot be read"):
        read_packed(tmp_path / "file")
