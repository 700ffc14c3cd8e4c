"""Damaged atlases and decompression bombs: no command and no worker crashes on them."""

from __future__ import annotations

import errno
import lzma
import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from xtx.cli.main import main
from xtx.core import UserError
from xtx.games.atlas import archive
from xtx.games.atlas.archive import pack, unpack
from xtx.games.atlas.atlas_process import ProcessDiedError, run_task, verify_atlas
from xtx.games.atlas.lmdb_check import find_damage
from xtx.games.atlas.store import Atlas
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.vector.game_vector import GameVector

PAGE = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An atlas with small and large entries."""
    randomness = random.Random(3)
    with Atlas(tmp_path / "atlas") as atlas:
        found = {randomness.randbytes(16): randomness.randbytes(randomness.choice((20, 300, 9000))) for _ in range(400)}
        atlas.update(lambda _: found)
    return tmp_path / "atlas"


def fill_pages(folder: Path, content: bytes, first: int = 2, every: int = 1) -> None:
    """Writes over pages behind the meta pages."""
    with (folder / "data.mdb").open("r+b") as file:
        pages = os.fstat(file.fileno()).st_size // PAGE
        for page in range(first, pages, every):
            file.seek(page * PAGE)
            file.write(content)


def damage_lengths(folder: Path) -> None:
    """Makes large values reach 200 MB behind the end of the file: reading one is a SIGBUS."""
    with (folder / "data.mdb").open("r+b") as file:
        data = bytearray(file.read())
        for page in range(2, len(data) // PAGE):
            start = page * PAGE
            number, _, flags = struct.unpack_from("<QHH", data, start)
            if (number, flags) == (
                page,
                0x02,
            ):  # a leaf: nodes of 8 bytes, then the key; large ones hold the number of a page
                lower = int.from_bytes(data[start + 12 : start + 14], "little")
                for place in range(16, lower, 2):
                    node = start + int.from_bytes(data[start + place : start + place + 2], "little")
                    if int.from_bytes(data[node + 4 : node + 6], "little") & 1:  # its value is in pages of its own
                        data[node : node + 4] = (200 << 20).to_bytes(4, "little")
        file.seek(0)
        file.write(data)


def cut_short(folder: Path) -> None:
    os.truncate(folder / "data.mdb", (folder / "data.mdb").stat().st_size // 2)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "lengths": damage_lengths,
    "zeros": lambda folder: fill_pages(folder, bytes(PAGE)),
    "ones": lambda folder: fill_pages(folder, b"\xff" * PAGE),
    "every third": lambda folder: fill_pages(folder, b"\x02" * PAGE, every=3),
    "cut short": cut_short,
}


def test_a_whole_atlas(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_damage(folder / "data.mdb") == "" and verify_atlas(folder) == ""
    assert main(["games", "atlas", "--atlas", str(folder), "--verify"]) == 0
    assert "is whole" in capsys.readouterr().out
    with (folder / "data.mdb").open("r+b") as file:  # one letter of a value
        content = file.read()
        with Atlas(folder) as atlas:
            value = max(atlas.read_entries().values(), key=len)
        file.seek(content.index(value[:2000]))
        file.write(b"?")
    assert verify_atlas(folder) == ""
    assert main(["games", "atlas", "--atlas", str(folder), "--verify"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "1 of 401 entries" in line and "nothing needs to be done" in line
    assert main(["games", "atlas", "--atlas", str(tmp_path / "none"), "--verify"]) == 2
    assert "there is no atlas" in capsys.readouterr().err


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_commands_survive_a_damaged_atlas(
    damage: Callable[[Path], None], folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damage(folder)
    file = tmp_path / "packed"
    assert main(["games", "atlas", "--atlas", str(folder), "--verify"]) == 2
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(f"xtx: the atlas {folder} is damaged (") and "move it away" in line
    assert main(["games", "atlas", "--atlas", str(folder), "--pack", str(file)]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines and all(line.startswith("xtx: ") for line in lines) and not file.exists()


def test_a_value_behind_the_end_of_the_file_kills_its_reader(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The damage that the others are to be protected from is real; and the next one that opens the atlas sets it
    aside, because the table of readers shows that one died."""
    found = entries(folder)
    key = max(found, key=lambda key: len(found[key]))
    damage_lengths(folder)
    program = (
        f"from xtx.games.atlas.store import Atlas; from pathlib import Path; Atlas(Path({str(folder)!r})).get({key!r})"
    )
    died = subprocess.run([sys.executable, "-c", program], check=False)
    assert died.returncode in (-signal.SIGBUS, -signal.SIGSEGV)
    with Atlas(folder) as atlas:
        assert atlas.get(key) is None
        atlas.put(key, b"new")
    assert "was set aside" in capfd.readouterr().err
    assert entries(folder) == {key: b"new"}


def entries(folder: Path) -> dict[bytes, bytes]:
    with Atlas(folder) as atlas:
        return atlas.read_entries()


def test_one_that_was_killed_does_not_cost_the_atlas(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It dies in the middle of a transaction, as of a damaged page, but all is whole."""
    before = entries(folder)
    program = (
        f"import os; from xtx.games.atlas.store import Atlas; from pathlib import Path; "
        f"a = Atlas(Path({str(folder)!r}))\n"
        "a.update(lambda known: os.kill(os.getpid(), 9))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert entries(folder) == before
    assert capfd.readouterr().err == ""


def test_random_damage(folder: Path, tmp_path: Path) -> None:
    """Whatever bytes are changed: the check of the meta pages raises nothing, and the child says something."""
    content = (folder / "data.mdb").read_bytes()
    randomness = random.Random(7)
    whole = 0
    for _ in range(25):
        spoiled = bytearray(content)
        for _ in range(randomness.choice((1, 5, 60))):
            start = (
                randomness.randrange(len(spoiled) // 16) * 16
                if randomness.random() < 0.8
                else randomness.randrange(400)
            )
            spoiled[start : start + 8] = randomness.randbytes(8)
        (folder / "data.mdb").write_bytes(spoiled)
        find_damage(folder / "data.mdb")
        whole += not verify_atlas(folder)
    assert whole < 25
    for length in (0, 1, 16, 100, 152, 4000, 4096, 4200, 5000, 8192, len(content) - 1):
        (folder / "data.mdb").write_bytes(content[:length])
        assert bool(find_damage(folder / "data.mdb")) == bool(length)


def test_a_pipe_in_the_place_of_a_store(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("data.mdb", "lock.mdb"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert main(["games", "atlas", "--atlas", str(folder)]) in (0, 2)
        assert main(["games", "atlas", "--atlas", str(folder), "--verify"]) in (0, 2)
        assert "Traceback" not in capfd.readouterr().err


def test_a_killed_child_says_nothing_of_the_atlas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xtx.games.atlas.atlas_process._PROGRAM", "import os; os.kill(os.getpid(), 9)")
    assert verify_atlas(folder) == ""
    with pytest.raises(ProcessDiedError, match="SIGKILL"):
        run_task("show", folder)
    monkeypatch.setattr("xtx.games.atlas.atlas_process._PROGRAM", "import os; os.kill(os.getpid(), 7)")
    assert verify_atlas(folder) == "reading it ended with SIGBUS"


# --- packed files ---------------------------------------------------------------------------------------------------


def test_a_small_file_does_not_fill_memory(folder: Path, tmp_path: Path) -> None:
    """100 MB of zeros in 15 kB, and a list that says to have four billion entries."""
    file = tmp_path / "file"
    compressor = lzma.LZMACompressor()
    parts = [compressor.compress(b"\xdd\x00\x00\x00\x01\x92\xc6\x06\x40\x00\x00")]
    parts += [compressor.compress(bytes(1 << 20)) for _ in range(100)]
    file.write_bytes(b"".join([*parts, compressor.flush()]))
    assert file.stat().st_size < 20_000
    # In a small process: what a child takes is counted from what its parent has.
    program = (
        "import resource, sys; from xtx.cli.main import main; code = main(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "games", "atlas", "--atlas", str(folder), "--add", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "unpacks to more than" in done.stderr
    assert int(done.stdout.split()[-1]) < 300_000, "kilobytes"
    with pytest.raises(ValueError, match="more entries than bytes"):
        unpack(lzma.compress(b"\xdd\xff\xff\xff\xff" + bytes(100)))
    with pytest.raises(ValueError, match="more entries than bytes"):
        unpack(lzma.compress(b"\xdc\xff\xff" + bytes(100)))


def test_limits_of_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {b"k" * 16: bytes(100_000), b"l" * 16: os.urandom(50_000)}
    assert unpack(pack(found)) == found
    monkeypatch.setattr(archive, "FREE_BYTES", 0)
    monkeypatch.setattr(archive, "MAX_RATIO", 2)
    with pytest.raises(ValueError, match="unpacks to more"):
        unpack(pack(found))
    monkeypatch.setattr(archive, "MAX_RATIO", 200)
    monkeypatch.setattr(archive, "MAX_DICTIONARY", 1 << 16)
    with pytest.raises(lzma.LZMAError, match=r"[Mm]emory"):
        unpack(pack(found))


def test_packed_files_of_the_present_have_a_ratio_far_below_the_limit() -> None:
    from importlib.resources import files

    for file in files("xtx.games.catalog").joinpath("data").iterdir():
        if file.name.endswith(".shipped"):
            content = file.read_bytes()
            plain = sum(len(key) + len(value) for key, value in unpack(content).items())
            assert plain < 0.5 * archive.MAX_RATIO * len(content)


def test_an_entry_that_is_no_finding_is_searched_again(tmp_path: Path) -> None:
    """Its checksum is right, as after `--add` of a file from elsewhere."""
    spec = GameSpec(str(find_story(find_default_game()).path), atlas=str(tmp_path / "atlas"))
    game = StoryGame(spec)
    actions = game.reset().actions
    game.close()
    for content in (b"?", msgspec.msgpack.encode([1, 2]), b"\x93" * 5000):
        keys = entries(tmp_path / "atlas")
        with Atlas(tmp_path / "atlas") as atlas:
            for key in keys:
                atlas.put(key, content)
        game = StoryGame(spec)
        assert game.reset().actions == actions
        game.close()


def test_workers_survive_a_damaged_atlas(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first one dies of it; the next sets it aside. No command is forbidden for that."""
    spec = GameSpec(str(find_story(find_default_game()).path), atlas=str(tmp_path / "atlas"))
    with GameVector(spec, 1, 1) as games:
        first = games.reset()
    damage_lengths(tmp_path / "atlas")
    reports: list[str] = []
    with GameVector(spec, 2, 2, on_report=reports.append) as games:
        assert games.reset() == first * 2
        assert games.step([first[0].actions[0]] * 2)[0].observation.text
        assert games.forbidden == [] and reports == []
    assert capfd.readouterr().err.count("was set aside") == 1
    assert len(list(tmp_path.glob("atlas.damaged-*"))) == 1 and verify_atlas(tmp_path / "atlas") == ""


def test_a_lock_file_has_no_holes(tmp_path: Path) -> None:
    """LMDB maps it: filling a hole on a full disk is a SIGBUS. Files of earlier versions have holes too."""
    lock = tmp_path / "atlas/lock.mdb"
    lock.parent.mkdir()
    for size in (0, 1 << 20):
        with lock.open("wb") as file:
            file.truncate(size)
        Atlas(lock.parent).close()
        assert lock.stat().st_blocks * 512 >= lock.stat().st_size > 0


def test_a_full_disk_has_no_room_for_an_atlas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", fail)
    with pytest.raises(
        UserError, match=r"cannot be opened \(No space left on device\); use --atlas PATH or --no-atlas"
    ):
        Atlas(tmp_path / "atlas")
