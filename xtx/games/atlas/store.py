"""The atlas: a persistent cache of what was found about states, shared by worker processes and by later runs.

It is an LMDB store from keys of 16 bytes to bytes. Every value has a checksum, so a damaged one is only a miss.
story_game.py defines keys and values.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import lmdb

from xtx.core import UserError, warn
from xtx.files.bounded_reads import explain_read_error
from xtx.files.regular_files import open_regular
from xtx.files.user_paths import find_cache_folder
from xtx.games.atlas.atlas_process import verify_atlas
from xtx.games.atlas.lmdb_check import LOCK_SIZE, MAX_READERS, find_damage, has_died_while_reading

DEADLY = b"+"
"""Prefix of a state's key: the value lists the commands that must never be tried in the state, because each of them
ended a process that did nothing else."""

UNPROVEN = b"!"
"""The prefix that earlier versions used, also for commands that were being tried when a process ended for another
reason. Such a state is searched again."""

_FORMAT = b"xtx atlas 1"
_FORMAT_KEY = b"format"
_HITS, _MISSES = b"hits", b"misses"
_FIRST_SIZE = 1 << 28
"""Size of the memory map of a new store in bytes; it doubles when it is full."""
_CHECKSUM = 8
"""Bytes of the checksum before each value."""

DAMAGE = (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.VersionMismatchError)
"""LMDB's errors for a file that is damaged or not LMDB's; a full disk or missing permission raises others."""

_Result = TypeVar("_Result")


def find_default_path() -> Path:
    """Return the default folder of the atlas, in the user's cache folder."""
    return find_cache_folder() / "atlas"


@dataclass(frozen=True)
class Statistics:
    """The figures that `xtx games atlas` shows."""

    entries: int
    bytes: int
    """Size on disk."""
    hits: int
    """How many times a game reached a state that was in the atlas."""
    misses: int
    """How many times a state had to be searched."""


class Atlas:
    """An open atlas. Several objects of a process share one store; open it after a fork, not before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hits = 0
        self.misses = 0
        self._closed = False
        self._key = _acquire(path)

    @property
    def _environment(self) -> lmdb.Environment:
        """The store; a new one after the first was found damaged."""
        return _open_stores[self._key].environment

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none or it is damaged."""
        return _strip_checksum(self._read(key))

    def count(self, known: bool) -> None:
        """Count for the hit rate that a game reached a state, and whether it was known.

        The caller counts because games also have caches of their own. A state that was searched ahead counts as known.
        """
        if known:
            self.hits += 1
        else:
            self.misses += 1

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value."""
        self._change(lambda transaction: transaction.put(key, _make_checksum(value) + value))

    def update(self, choose: Callable[[Callable[[bytes], bytes | None]], Mapping[bytes, bytes | None]]) -> None:
        """Change entries in one transaction.

        choose: returns the new values by key, None to delete one; it is called with a function that returns the current
        value of a key.
        """

        def change(transaction: lmdb.Transaction) -> None:
            chosen = choose(lambda key: _strip_checksum(transaction.get(key)))
            for key, value in sorted(chosen.items()):
                if value is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, _make_checksum(value) + value)

        self._change(change)

    def read_entries(self) -> dict[bytes, bytes]:
        """Return all undamaged entries by key."""
        found = self._run_in_transaction(
            False, lambda transaction: {bytes(key): bytes(value) for key, value in transaction.cursor()}
        )
        for name in (_FORMAT_KEY, _HITS, _MISSES):
            found.pop(name, None)
        undamaged = ((key, _strip_checksum(value)) for key, value in found.items())
        return {key: value for key, value in undamaged if value is not None}

    def read_statistics(self) -> Statistics:
        """Return size and hit rate over all runs so far, including this process."""
        self._save_counts()
        own = {name: self._read(name) for name in (_FORMAT_KEY, _HITS, _MISSES)}
        entries = self._environment.stat()["entries"] - sum(value is not None for value in own.values())
        size = sum(f.stat().st_blocks * 512 for f in self.path.glob("*.mdb"))
        return Statistics(entries, size, int(own[_HITS] or 0), int(own[_MISSES] or 0))

    def close(self) -> None:
        """Write everything to disk and close the store; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(lmdb.Error, UserError):
            self._save_counts()
            self._environment.sync(True)
        _release(self._key)

    def __enter__(self) -> Atlas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _save_counts(self) -> None:
        """Add this process's hits and misses to those in the store."""
        if not (self.hits or self.misses):
            return
        counts = {_HITS: self.hits, _MISSES: self.misses}

        def add(transaction: lmdb.Transaction) -> None:
            for name, count in counts.items():
                transaction.put(name, b"%d" % (int(transaction.get(name) or b"0") + count))

        self._change(add)
        self.hits = self.misses = 0

    def _read(self, key: bytes) -> bytes | None:
        found = self._run_in_transaction(False, lambda transaction: transaction.get(key))
        return None if found is None else bytes(found)

    def _change(self, change: Callable[[lmdb.Transaction], object]) -> None:
        """Make a change in a transaction. Raises `UserError` if the store cannot be written."""
        try:
            self._run_in_transaction(True, change)
        except lmdb.Error as error:
            raise UserError(
                f"the atlas {self.path} cannot be written ({error}); make room, or use --no-atlas"
            ) from None

    def _run_in_transaction(self, write: bool, act: Callable[[lmdb.Transaction], _Result]) -> _Result:
        """Call a function with a transaction; once more with a new store if this one is found damaged."""
        try:
            return _run_in_transaction(self._environment, write, act)
        except DAMAGE:  # the damage happened, or was reached, after the store was opened
            _renew(self._key)
            return _run_in_transaction(self._environment, write, act)


def _run_in_transaction(
    environment: lmdb.Environment, write: bool, act: Callable[[lmdb.Transaction], _Result]
) -> _Result:
    """Return what `act` returns in a transaction; enlarge the store and repeat as often as it is full."""
    while True:
        try:
            # If LMDB crashes on a damaged page, the read transaction stays in the table of readers, which
            # `has_died_while_reading` detects. A write transaction alone has no entry there, so it gets a reader too.
            with contextlib.ExitStack() as stack:
                if write:
                    stack.enter_context(environment.begin())
                return act(stack.enter_context(environment.begin(write=write)))
        except lmdb.MapFullError:
            environment.set_mapsize(environment.info()["map_size"] * 2)
        except lmdb.MapResizedError:  # another process made it larger
            environment.set_mapsize(0)


def _make_checksum(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_CHECKSUM).digest()


def is_entry_whole(key: bytes, stored: bytes) -> bool:
    """Return whether a stored value has the right checksum; the atlas's own keys have none."""
    return key in (_FORMAT_KEY, _HITS, _MISSES) or _strip_checksum(stored) is not None


def _strip_checksum(stored: bytes | memoryview | None) -> bytes | None:
    """Return a stored value without its checksum; None if that is wrong."""
    if stored is None:
        return None
    value = bytes(stored[_CHECKSUM:])
    return value if _make_checksum(value) == stored[:_CHECKSUM] else None


_StoreKey = tuple[int, str]
"""The id of a process and the path of a store."""


@dataclass
class _OpenStore:
    """An open store and the number of its users in this process."""

    environment: lmdb.Environment
    file: int
    """The inode of its data file."""
    users: int = 0


_open_stores: dict[_StoreKey, _OpenStore] = {}
"""All open stores: LMDB cannot open one twice in a process."""


def _acquire(path: Path) -> _StoreKey:
    """Open a store, or add a user to it if it is open in this process, and return its key."""
    key = os.getpid(), os.path.realpath(path)
    if key not in _open_stores:
        _open_stores[key] = _OpenStore(_open(path), _read_inode(path))
    _open_stores[key].users += 1
    return key


def _release(key: _StoreKey) -> None:
    """Remove a user of a store, and close it after the last."""
    shared = _open_stores[key]
    shared.users -= 1
    if not shared.users:
        del _open_stores[key]
        shared.environment.close()


def _renew(key: _StoreKey) -> None:
    """Replace a store that was found damaged by a new one, unless another process did that already."""
    shared, path = _open_stores[key], Path(key[1])
    shared.environment.close()
    shared.environment = _open(path, damaged=shared.file)
    shared.file = _read_inode(path)


def _read_inode(path: Path) -> int:
    """Return the inode of a store's data file."""
    return (path / "data.mdb").stat().st_ino


def _open(path: Path, damaged: int = -1) -> lmdb.Environment:
    """Open a store. One that is damaged, or not an atlas, is renamed with a warning and replaced by an empty one.

    damaged: the inode of a data file that is known to be damaged, although opening it may succeed. Raises `UserError`.
    """
    path = Path(os.path.realpath(path))  # the folder itself, not a link to it, may be renamed
    try:
        path.mkdir(parents=True, exist_ok=True)
        with _hold_lock(path.parent):
            path.mkdir(exist_ok=True)  # again: another process may have renamed it meanwhile
            if any(file.name not in ("data.mdb", "lock.mdb") for file in path.iterdir()):
                raise UserError(f"{path} holds other files; give --atlas a new or an empty folder")
            with contextlib.suppress(*DAMAGE):
                if not (path / "data.mdb").exists() or _read_inode(path) != damaged:
                    return _try_open(path)
            aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
            path.rename(aside)
            warn(f"the atlas {path} is damaged or not an atlas; it was set aside as {aside.name}")
            path.mkdir(exist_ok=True)  # another process that opens it may have made it already
            return _try_open(path)
    except (OSError, lmdb.Error) as error:
        raise UserError(
            f"the atlas {path} cannot be opened ({explain_read_error(error)}); use --atlas PATH or --no-atlas"
        ) from None


@contextlib.contextmanager
def _hold_lock(folder: Path) -> Iterator[None]:
    """Lock a folder within `with`: only one process at a time may check a store and replace it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_files(path: Path, map_size: int) -> lmdb.Environment:
    """Open a store with LMDB, with a larger map if another process is enlarging it beyond `map_size`."""
    while True:
        try:
            return lmdb.open(
                str(path), map_size=map_size, sync=False, metasync=False, max_readers=MAX_READERS, readahead=False
            )
        except lmdb.MapResizedError:
            map_size *= 2


def _allocate(lock: Path) -> None:
    """Give a store's lock file all its blocks. LMDB maps it into memory and makes it with holes: where the disk is full
    when one is filled, the process ends with SIGBUS. Raises `OSError` if there is no room."""
    descriptor = open_regular(lock, os.O_RDWR | os.O_CREAT)
    try:
        status = os.fstat(descriptor)
        size = max(status.st_size, LOCK_SIZE)
        if status.st_blocks * 512 < size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # of file systems that cannot do it
            raise
    finally:
        os.close(descriptor)


def _try_open(path: Path) -> lmdb.Environment:
    """Open a store after checking it. Raises one of `DAMAGE` if it is damaged or not an atlas."""
    data, lock = path / "data.mdb", path / "lock.mdb"
    # Before LMDB maps the file: reading a damaged one may crash the process.
    damage = find_damage(data) if data.exists() else ""
    if not damage and data.exists() and has_died_while_reading(lock):
        damage = verify_atlas(path)
    if damage:
        raise lmdb.CorruptedError(damage)
    _allocate(lock)
    environment = _open_files(path, max(_FIRST_SIZE, data.stat().st_size if data.exists() else 0))
    try:
        environment.reader_check()  # frees the reader slots of processes that were killed
        # In a transaction that can be repeated: another process may be enlarging the store right now.
        found, entries = _run_in_transaction(
            environment, False, lambda look: (look.get(_FORMAT_KEY), look.stat()["entries"])
        )
        if found != _FORMAT:
            if entries:
                raise lmdb.VersionMismatchError("another format")
            _run_in_transaction(environment, True, lambda transaction: transaction.put(_FORMAT_KEY, _FORMAT))
    except BaseException:
        environment.close()
        raise
    return environment
