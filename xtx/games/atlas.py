"""The atlas: what was found out about a state is never found out twice.

An LMDB store shared by worker processes and by later runs, from keys (16 bytes) to bytes. Every value carries a
checksum, so a damaged one is only a miss. What the keys mean is the games' business (game.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import lmdb

from xtx.core import UserError

_FORMAT = b"xtx atlas 1"
_FORMAT_KEY = b"format"
_HITS, _MISSES = b"hits", b"misses"
_FIRST_SIZE = 1 << 28
_CHECKSUM = 8


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
    misses: int


class Atlas:
    """An open atlas. Open it after forking, once in each process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hits = 0
        self.misses = 0
        self._environment = _share(path)

    def get(self, key: bytes) -> bytes | None:
        """The value stored under a key, if there is an undamaged one."""
        while True:
            try:
                with self._environment.begin(buffers=True) as transaction:
                    found = transaction.get(key)
                    value = None if found is None else bytes(found)
                break
            except lmdb.MapResizedError:  # another process made it larger
                self._environment.set_mapsize(0)
        if value is not None and _checksum(value[_CHECKSUM:]) == value[:_CHECKSUM]:
            self.hits += 1
            return value[_CHECKSUM:]
        self.misses += 1
        return None

    def put(self, key: bytes, value: bytes) -> None:
        """Stores a value; makes the store larger when it is full."""
        self._write({key: _checksum(value) + value})

    def statistics(self) -> Statistics:
        """Size and hit rate over all runs so far, those of this process included."""
        self._save_counts()
        with self._environment.begin() as transaction:
            entries = transaction.stat()["entries"] - 3
            hits, misses = (int(transaction.get(name) or b"0") for name in (_HITS, _MISSES))
        size = sum(f.stat().st_blocks * 512 for f in self.path.glob("*.mdb"))
        return Statistics(max(entries, 0), size, hits, misses)

    def close(self) -> None:
        """Writes everything to disk and frees the store."""
        with contextlib.suppress(lmdb.Error):
            self._save_counts()
            self._environment.sync(True)
        _give_back(self._environment)

    def __enter__(self) -> Atlas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _save_counts(self) -> None:
        if not (self.hits or self.misses):
            return
        hits, misses, self.hits, self.misses = self.hits, self.misses, 0, 0
        with self._environment.begin(write=True) as transaction:
            for name, count in ((_HITS, hits), (_MISSES, misses)):
                transaction.put(name, b"%d" % (int(transaction.get(name) or b"0") + count))

    def _write(self, items: dict[bytes, bytes]) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, value in items.items():
                        transaction.put(key, value)
                return
            except lmdb.MapFullError:
                self._environment.set_mapsize(self._environment.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                self._environment.set_mapsize(0)
            except lmdb.DiskError as error:
                raise UserError(
                    f"the atlas {self.path} cannot be written ({error}); make room, or use --no-atlas"
                ) from None


def _checksum(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_CHECKSUM).digest()


_open_here: dict[tuple[int, str], tuple[lmdb.Environment, int]] = {}
"""Open stores, by process and path, with the number of their users: LMDB refuses to open one twice in a process."""


def _share(path: Path) -> lmdb.Environment:
    """The store, opened once however many games of this process use it."""
    key = os.getpid(), os.path.realpath(path)
    environment, users = _open_here.get(key) or (_open(path), 0)
    _open_here[key] = environment, users + 1
    return environment


def _give_back(environment: lmdb.Environment) -> None:
    for key, (one, users) in list(_open_here.items()):
        if one is environment:
            _open_here[key] = one, users - 1
            if users == 1:
                del _open_here[key]
                environment.close()


def _open(path: Path) -> lmdb.Environment:
    """The opened store; one that is damaged, or not ours, is set aside with a warning and made anew."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(lmdb.Error):
            return _try_open(path)
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        path.rename(aside)
        print(f"xtx: the atlas {path} is damaged or not an atlas; it was set aside as {aside.name}", file=sys.stderr)
        path.mkdir()
        return _try_open(path)
    except (OSError, lmdb.Error) as error:
        raise UserError(f"the atlas {path} cannot be opened ({error}); use --atlas PATH or --no-atlas") from None


def _try_open(path: Path) -> lmdb.Environment:
    data = path / "data.mdb"
    size = data.stat().st_size if data.exists() else 0
    if any(path.iterdir()) and not data.exists():
        raise lmdb.InvalidError("there are other files in the folder")
    environment = lmdb.open(
        str(path), map_size=max(_FIRST_SIZE, size), sync=False, metasync=False, max_readers=512, readahead=False
    )
    try:
        # A file that ends before its last page would kill the process when that page is read.
        last = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        if size and data.stat().st_size < last:
            raise lmdb.CorruptedError("the file is cut short")
        environment.reader_check()  # frees what killed processes left
        with environment.begin() as transaction:
            found = transaction.get(_FORMAT_KEY)
            entries = transaction.stat()["entries"]
        if found != _FORMAT:
            if entries:
                raise lmdb.VersionMismatchError("another format")
            with environment.begin(write=True) as transaction:
                transaction.put(_FORMAT_KEY, _FORMAT)
    except BaseException:
        environment.close()
        raise
    return environment
