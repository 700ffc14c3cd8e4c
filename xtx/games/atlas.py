"""The atlas: what was found out about a state is never found out twice.

An LMDB store shared by worker processes and by later runs, from keys (16 bytes) to bytes. Every value carries a
checksum, so a damaged one is only a miss. What the keys mean is the games' business (game.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import lmdb

from xtx.core import UserError
from xtx.games.atlas_process import verify_atlas
from xtx.games.lmdb_file import died_while_reading, find_damage

DEADLY = b"+"
"""In front of a state's key: under it stand the commands that are never to be tried there, because each of them ended a
process of its own."""

UNPROVEN = b"!"
"""The same in atlases of earlier versions, which also noted commands that were merely being tried when a process died
of something else. Such a state is searched again."""

_FORMAT = b"xtx atlas 1"
_FORMAT_KEY = b"format"
_HITS, _MISSES = b"hits", b"misses"
_FIRST_SIZE = 1 << 28
_CHECKSUM = 8

DAMAGE = (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.VersionMismatchError)
"""What LMDB says of a file that is damaged or not LMDB's. A full disk, or a folder of somebody else's, is not that."""

_Result = TypeVar("_Result")


def default_path() -> Path:
    """Where the atlas lies unless told otherwise: the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "xtx" / "atlas"


@dataclass(frozen=True)
class Statistics:
    """What `xtx games atlas` shows."""

    entries: int
    bytes: int
    hits: int
    """How often a game came to a state that was known."""
    misses: int
    """How often one had to be searched."""


class Atlas:
    """An open atlas. Open it after forking, once in each process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hits = 0
        self.misses = 0
        self._closed = False
        self._key = _share(path)

    @property
    def _environment(self) -> lmdb.Environment:
        """The store; another one after the first was found damaged."""
        return _open_here[self._key].environment

    def get(self, key: bytes) -> bytes | None:
        """The value stored under a key, if there is an undamaged one."""
        return _undamaged(self._read(key))

    def count(self, known: bool) -> None:
        """Notes for the hit rate that a game came to a state, and whether it had to be searched: an atlas cannot know,
        for games also remember what they were told. What was searched ahead is known when they come there."""
        if known:
            self.hits += 1
        else:
            self.misses += 1

    def put(self, key: bytes, value: bytes) -> None:
        """Stores a value; makes the store larger when it is full."""
        self._change(lambda transaction: transaction.put(key, _checksum(value) + value))

    def update(self, choose: Callable[[Callable[[bytes], bytes | None]], Mapping[bytes, bytes | None]]) -> None:
        """Stores what `choose` decides on, None for what is to go, all of it or nothing. It is given a function that
        says what is stored under a key; meanwhile nobody else stores anything."""

        def change(transaction: lmdb.Transaction) -> None:
            chosen = choose(lambda key: _undamaged(transaction.get(key)))
            for key, value in sorted(chosen.items()):
                if value is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, _checksum(value) + value)

        self._change(change)

    def entries(self) -> dict[bytes, bytes]:
        """All that is stored, by key, but for what is damaged."""
        found = self._within(
            False, lambda transaction: {bytes(key): bytes(value) for key, value in transaction.cursor()}
        )
        for name in (_FORMAT_KEY, _HITS, _MISSES):
            found.pop(name, None)
        undamaged = ((key, _undamaged(value)) for key, value in found.items())
        return {key: value for key, value in undamaged if value is not None}

    def statistics(self) -> Statistics:
        """Size and hit rate over all runs so far, those of this process included."""
        self._save_counts()
        own = {name: self._read(name) for name in (_FORMAT_KEY, _HITS, _MISSES)}
        entries = self._environment.stat()["entries"] - sum(value is not None for value in own.values())
        size = sum(f.stat().st_blocks * 512 for f in self.path.glob("*.mdb"))
        return Statistics(entries, size, int(own[_HITS] or 0), int(own[_MISSES] or 0))

    def close(self) -> None:
        """Writes everything to disk and frees the store; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(lmdb.Error, UserError):
            self._save_counts()
            self._environment.sync(True)
        _give_back(self._key)

    def __enter__(self) -> Atlas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _save_counts(self) -> None:
        if not (self.hits or self.misses):
            return
        counts = {_HITS: self.hits, _MISSES: self.misses}

        def add(transaction: lmdb.Transaction) -> None:
            for name, count in counts.items():
                transaction.put(name, b"%d" % (int(transaction.get(name) or b"0") + count))

        self._change(add)
        self.hits = self.misses = 0

    def _read(self, key: bytes) -> bytes | None:
        found = self._within(False, lambda transaction: transaction.get(key))
        return None if found is None else bytes(found)

    def _change(self, change: Callable[[lmdb.Transaction], object]) -> None:
        try:
            self._within(True, change)
        except lmdb.Error as error:
            raise UserError(
                f"the atlas {self.path} cannot be written ({error}); make room, or use --no-atlas"
            ) from None

    def _within(self, write: bool, act: Callable[[lmdb.Transaction], _Result]) -> _Result:
        try:
            return _within(self._environment, write, act)
        except DAMAGE:  # it was good when it was opened
            _renew(self._key)
            return _within(self._environment, write, act)


def _within(environment: lmdb.Environment, write: bool, act: Callable[[lmdb.Transaction], _Result]) -> _Result:
    """What `act` gives back in a transaction, however often the store must be made larger first."""
    while True:
        try:
            # A process that dies in here, as LMDB does of a damaged page, leaves a mark in the table of readers, also
            # where it writes: see `died_while_reading`.
            with contextlib.ExitStack() as stack:
                if write:
                    stack.enter_context(environment.begin())
                return act(stack.enter_context(environment.begin(write=write)))
        except lmdb.MapFullError:
            environment.set_mapsize(environment.info()["map_size"] * 2)
        except lmdb.MapResizedError:  # another process made it larger
            environment.set_mapsize(0)


def _checksum(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_CHECKSUM).digest()


def is_entry_whole(key: bytes, stored: bytes) -> bool:
    """Whether what is stored under a key has the right checksum; the atlas's own few keys have none."""
    return key in (_FORMAT_KEY, _HITS, _MISSES) or _undamaged(stored) is not None


def _undamaged(stored: bytes | memoryview | None) -> bytes | None:
    """What is stored behind its checksum, if that is right."""
    if stored is None:
        return None
    value = bytes(stored[_CHECKSUM:])
    return value if _checksum(value) == stored[:_CHECKSUM] else None


_Key = tuple[int, str]
"""A process and the path of a store."""


@dataclass
class _Shared:
    """An open store and its users in this process."""

    environment: lmdb.Environment
    file: int
    """The number by which the disk knows it."""
    users: int = 0


_open_here: dict[_Key, _Shared] = {}
"""Open stores: LMDB refuses to open one twice in a process."""


def _share(path: Path) -> _Key:
    """The store, opened once however many games of this process use it."""
    key = os.getpid(), os.path.realpath(path)
    if key not in _open_here:
        _open_here[key] = _Shared(_open(path), _file_number(path))
    _open_here[key].users += 1
    return key


def _give_back(key: _Key) -> None:
    shared = _open_here[key]
    shared.users -= 1
    if not shared.users:
        del _open_here[key]
        shared.environment.close()


def _renew(key: _Key) -> None:
    """Opens a store anew that turned out to be damaged. It is set aside, unless another process did that already."""
    shared, path = _open_here[key], Path(key[1])
    shared.environment.close()
    shared.environment = _open(path, damaged=shared.file)
    shared.file = _file_number(path)


def _file_number(path: Path) -> int:
    return (path / "data.mdb").stat().st_ino


def _open(path: Path, damaged: int = -1) -> lmdb.Environment:
    """The opened store; one that is damaged, or not ours, is set aside with a warning and made anew. `damaged` is the
    number of a file that is known to be so, although it may not show at once."""
    path = Path(os.path.realpath(path))  # the folder itself, and not a link to it, is what may be set aside
    try:
        path.mkdir(parents=True, exist_ok=True)
        with _alone_in(path.parent):
            path.mkdir(exist_ok=True)  # again: another process may just have set it aside
            if any(file.name not in ("data.mdb", "lock.mdb") for file in path.iterdir()):
                raise UserError(f"{path} holds other files; give --atlas a new or an empty folder")
            with contextlib.suppress(*DAMAGE):
                if not (path / "data.mdb").exists() or _file_number(path) != damaged:
                    return _try_open(path)
            aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
            path.rename(aside)
            print(
                f"xtx: the atlas {path} is damaged or not an atlas; it was set aside as {aside.name}", file=sys.stderr
            )
            path.mkdir(exist_ok=True)  # one that comes to open it may have been quicker: see above
            return _try_open(path)
    except (OSError, lmdb.Error) as error:
        raise UserError(f"the atlas {path} cannot be opened ({error}); use --atlas PATH or --no-atlas") from None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time looks whether the store is good: else the second would set the first's new one aside."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_files(path: Path, map_size: int) -> lmdb.Environment:
    """The store as LMDB opens it: which fails for a moment while another process makes it larger than `map_size`."""
    while True:
        try:
            return lmdb.open(str(path), map_size=map_size, sync=False, metasync=False, max_readers=512, readahead=False)
        except lmdb.MapResizedError:
            map_size *= 2


def _try_open(path: Path) -> lmdb.Environment:
    data, lock = path / "data.mdb", path / "lock.mdb"
    # All of this before LMDB maps the file: reading a damaged one may kill the process.
    damage = find_damage(data) if data.exists() else ""
    if not damage and data.exists() and died_while_reading(lock):
        damage = verify_atlas(path)
    if damage:
        raise lmdb.CorruptedError(damage)
    environment = _open_files(path, max(_FIRST_SIZE, data.stat().st_size if data.exists() else 0))
    try:
        environment.reader_check()  # frees what killed processes left
        # Another process may be making it larger at this very moment, so even these first looks go through _within.
        found, entries = _within(environment, False, lambda look: (look.get(_FORMAT_KEY), look.stat()["entries"]))
        if found != _FORMAT:
            if entries:
                raise lmdb.VersionMismatchError("another format")
            _within(environment, True, lambda transaction: transaction.put(_FORMAT_KEY, _FORMAT))
    except BaseException:
        environment.close()
        raise
    return environment
