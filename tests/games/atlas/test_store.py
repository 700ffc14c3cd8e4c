"""The atlas: entries survive damaged files and killed processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtx.core import UserError
from xtx.games.atlas import store as module
from xtx.games.atlas.store import Atlas, Statistics, find_default_path

KEY, OTHER = b"k" * 16, b"o" * 16


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs the code; `sys.argv[1]` is the first argument."""
    head = "import os, sys\nfrom pathlib import Path\nimport xtx.games.atlas.store as module\n"
    head += "from xtx.games.atlas.store import Atlas\n"
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "atlas"


def asides(folder: Path) -> list[Path]:
    return sorted(p for p in folder.parent.iterdir() if p != folder)


# --- values ---------------------------------------------------------------------------------------------------------


def test_what_is_put_is_found_in_this_and_later_runs(folder: Path) -> None:
    with Atlas(folder) as atlas:
        assert atlas.get(KEY) is None
        atlas.put(KEY, b"first")
        atlas.put(KEY, b"second")
        atlas.put(OTHER, b"")
        assert (atlas.get(KEY), atlas.get(OTHER)) == (b"second", b"")
    with Atlas(folder) as atlas:
        assert (atlas.get(KEY), atlas.get(OTHER)) == (b"second", b"")


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.binary(min_size=16, max_size=17), st.binary(max_size=5000), max_size=8))
def test_any_values_come_back(items: dict[bytes, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder, Atlas(Path(folder) / "a") as atlas:
        for key, value in items.items():
            atlas.put(key, value)
        assert {key: atlas.get(key) for key in items} == items
        assert atlas.read_statistics().entries == len(items)


@pytest.mark.parametrize(
    "damage", [lambda v: v[:-1] + bytes([v[-1] ^ 1]), lambda v: v[:-3], lambda v: v[:5], lambda v: b""]
)
def test_a_damaged_value_is_a_miss_and_can_be_put_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    with Atlas(folder) as atlas:
        atlas.put(KEY, b"value")
    store = lmdb.open(str(folder))
    with store.begin(write=True) as transaction:
        transaction.put(KEY, damage(transaction.get(KEY)))
    store.close()
    with Atlas(folder) as atlas:
        assert atlas.get(KEY) is None
        atlas.put(KEY, b"again")
        assert atlas.get(KEY) == b"again"


def test_statistics_are_of_all_runs(folder: Path) -> None:
    with Atlas(folder) as atlas:
        assert atlas.read_statistics().entries == 0
        atlas.put(KEY, b"value")
        assert atlas.read_statistics() == Statistics(1, atlas.read_statistics().bytes, 0, 0)
        for known in (True, True, False):
            atlas.count(known)
    with Atlas(folder) as atlas:
        atlas.put(OTHER, b"x" * 100_000)
        atlas.count(known=True)
        found = atlas.read_statistics()
        assert (found.entries, found.hits, found.misses) == (2, 3, 1)
        assert 100_000 < found.bytes < 1_000_000  # what it takes on disk, not the room that is set apart
        assert atlas.read_statistics() == found


def test_games_of_one_process_share_a_store_until_the_last_is_closed(folder: Path) -> None:
    first, second = Atlas(folder), Atlas(folder)
    first.put(KEY, b"value")
    assert second.get(KEY) == b"value"
    first.close()
    first.close()  # twice does not take it from the second
    assert second.get(KEY) == b"value"
    second.put(OTHER, b"more")
    second.close()
    with Atlas(folder) as atlas:
        assert atlas.get(OTHER) == b"more"


def test_the_users_cache_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert find_default_path() == Path("/somewhere/xtx/atlas")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert find_default_path() == Path.home() / ".cache/xtx/atlas"


# --- damaged and foreign files --------------------------------------------------------------------------------------


def cut_short(folder: Path) -> None:
    with Atlas(folder) as atlas:
        for i in range(300):
            atlas.put(b"%016d" % i, os.urandom(2000))
    data = folder / "data.mdb"
    os.truncate(data, data.stat().st_size // 2)


def cut_to_a_stump(folder: Path) -> None:
    Atlas(folder).close()
    os.truncate(folder / "data.mdb", 100)


def garbage(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "data.mdb").write_bytes(bytes(range(256)) * 100)


def another_store(folder: Path) -> None:
    folder.mkdir(parents=True)
    store = lmdb.open(str(folder))
    with store.begin(write=True) as transaction:
        transaction.put(b"somebody", b"else")
    store.close()


def another_version(folder: Path) -> None:
    folder.mkdir(parents=True)
    store = lmdb.open(str(folder))
    with store.begin(write=True) as transaction:
        transaction.put(b"format", b"xtx atlas 0")
    store.close()


@pytest.mark.parametrize("spoil", [cut_short, cut_to_a_stump, garbage, another_store, another_version])
def test_what_is_no_atlas_is_set_aside_whole(
    folder: Path, spoil: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with Atlas(folder) as atlas:
        assert atlas.get(KEY) is None
        atlas.put(KEY, b"value")
        assert atlas.get(KEY) == b"value"
    (aside,) = asides(folder)
    after = {p.name: p.read_bytes() for p in aside.iterdir()}
    assert {name: content for name, content in after.items() if name != "lock.mdb"} == {
        name: content for name, content in before.items() if name != "lock.mdb"
    }
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"xtx: the atlas {folder} is damaged or not an atlas; it was set aside as {aside.name}"
    ]
    with Atlas(folder) as atlas:
        assert atlas.get(KEY) == b"value"
    assert capfd.readouterr().err == ""
    assert asides(folder) == [aside]


def test_a_folder_with_other_files_is_left_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "diary.txt").write_text("dear diary")
    with pytest.raises(UserError, match="holds other files"):
        Atlas(folder)
    assert [p.name for p in folder.iterdir()] == ["diary.txt"]
    assert asides(folder) == []


def test_an_empty_folder_or_file_is_just_a_new_atlas(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder.mkdir(parents=True)
    (folder / "data.mdb").touch()
    with Atlas(folder) as atlas:
        atlas.put(KEY, b"value")
    assert asides(folder) == []
    assert capfd.readouterr().err == ""


def test_a_folder_can_be_named_in_any_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    garbage(folder)
    monkeypatch.chdir(folder)
    with Atlas(Path()) as atlas:  # a path without a name
        atlas.put(KEY, b"value")
    (aside,) = asides(folder)
    assert aside.name in capfd.readouterr().err
    link = folder.parent.parent / "link"
    link.symlink_to(folder)
    with Atlas(link) as atlas:
        assert atlas.get(KEY) == b"value"


def test_what_is_damaged_while_it_is_in_use_is_set_aside_too(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Although the file's first pages, which say that it is an atlas, are as they were."""
    keys = [b"%016d" % i for i in range(500)]
    with Atlas(folder) as atlas, Atlas(folder) as other:
        for key in keys:
            atlas.put(key, b"value" * 20)
        data = folder / "data.mdb"
        with data.open("r+b") as file:
            file.seek(2 * 4096)
            file.write(b"\xff" * (data.stat().st_size - 2 * 4096))
        assert [atlas.get(key) for key in keys] == [None] * 500
        atlas.put(keys[0], b"again")
        assert other.get(keys[0]) == b"again"
        assert other.get(keys[1]) is None
    assert len(asides(folder)) == 1
    assert capfd.readouterr().err.count("set aside") == 1
    with Atlas(folder) as later:
        assert later.get(keys[0]) == b"again"


def test_processes_that_find_it_damaged_at_once_set_it_aside_once(folder: Path) -> None:
    cut_short(folder)
    code = "atlas = Atlas(Path(sys.argv[1]))\natlas.put(sys.argv[2].encode() * 16, b'value')\natlas.close()"
    processes = [run(code, folder, name) for name in "abcd"]
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert len("".join(said).splitlines()) == 1
    assert len(asides(folder)) == 1
    with Atlas(folder) as atlas:
        assert [atlas.get(name.encode() * 16) for name in "abcd"] == [b"value"] * 4


# --- what cannot be written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/proc/xtx/atlas", "/dev/null/atlas"])
def test_an_impossible_folder_is_the_users_to_mend(place: str) -> None:
    with pytest.raises(UserError, match=rf"^the atlas {place} cannot be opened .*--atlas PATH or --no-atlas$"):
        Atlas(Path(place))


def test_a_plain_file_is_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(UserError, match="cannot be opened"):
        Atlas(notes)
    assert notes.read_text() == "mine"


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may enter and write to."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_atlas_that_one_may_not_write_is_not_taken_for_damaged(public_folder: Path) -> None:
    folder = public_folder / "atlas"
    with Atlas(folder) as atlas:
        atlas.put(KEY, b"value")
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    os.seteuid(65534)
    try:
        with pytest.raises(UserError, match=r"Permission denied.*--no-atlas"):
            Atlas(folder)
    finally:
        os.seteuid(0)
    assert asides(folder) == []
    with Atlas(folder) as atlas:
        assert atlas.get(KEY) == b"value"


def test_a_full_disk_is_the_users_to_mend(folder: Path) -> None:
    """The same error as of a full disk, without filling one: the process may not write larger files."""
    code = """
import resource, signal
from xtx.core import UserError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
atlas = Atlas(Path(sys.argv[1]))
atlas.put(b"k" * 16, b"value")
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    for i in range(1000):
        atlas.put(b"%016d" % i, bytes(2000))
except UserError as error:
    print(error)
atlas.close()
"""
    process = run(code, folder)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "cannot be written" in out
    with Atlas(folder) as atlas:
        assert atlas.get(KEY) == b"value"


# --- many processes -------------------------------------------------------------------------------------------------

WRITER = """
module._FIRST_SIZE = 1 << 16
name, count = sys.argv[2], int(sys.argv[3])
with Atlas(Path(sys.argv[1])) as atlas:
    for i in range(count):
        key = b"%s%015d" % (name.encode(), i)
        assert atlas.get(key) is None
        atlas.put(key, key * 100)
        atlas.count(known=False)
        if sys.argv[4:]:
            print(i, flush=True)
"""


def test_it_grows_while_two_processes_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_SIZE", 1 << 16)
    with Atlas(folder) as watcher:  # open all the while, so that it must follow too
        assert watcher.read_statistics().entries == 0
        processes = [run(WRITER, folder, name, 1000) for name in "ab"]
        for process in processes:
            assert process.communicate(timeout=120)[1] == ""
            assert process.returncode == 0
        assert watcher.read_statistics().entries == 2000
        watcher.put(KEY, b"value")
        for name in (b"a", b"b"):
            keys = [b"%s%015d" % (name, i) for i in range(1000)]
            assert [watcher.get(key) for key in keys] == [key * 100 for key in keys]
        found = watcher.read_statistics()
        assert (found.hits, found.misses) == (0, 2000)
    assert (folder / "data.mdb").stat().st_size > 20 * (1 << 16)


def test_a_killed_writer_loses_nothing_and_leaves_the_store_good(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Atlas(folder).close()
    for round_ in range(3):
        process = run(WRITER, folder, round_, 1_000_000, "aloud")
        assert process.stdout is not None
        done = 0
        for line in process.stdout:
            done = int(line)
            if done >= 200 + 77 * round_:
                break
        process.send_signal(signal.SIGKILL)
        done = max([done, *(int(line) for line in process.stdout.read().splitlines()[:-1])])
        process.communicate(timeout=60)
        with Atlas(folder) as atlas:
            keys = [b"%d%015d" % (round_, i) for i in range(done + 1)]
            assert [atlas.get(key) for key in keys] == [key * 100 for key in keys]
            atlas.put(KEY, b"%d" % round_)
            assert atlas.get(KEY) == b"%d" % round_
    assert asides(folder) == []
    assert capfd.readouterr().err == ""
