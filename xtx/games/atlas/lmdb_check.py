"""Checks an LMDB data file before it is mapped into memory.

LMDB does not validate its file: reading a page behind the end of a truncated file ends the process with SIGBUS. The two
meta pages at the beginning contain the number of pages, so two small reads detect a file that is truncated or not
LMDB's. Damage in other pages is found only by reading all of them (see atlas_process.py), which is done if the lock
file shows that a process ended while it was reading.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

from xtx.files.regular_files import open_readable

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_HEADER = struct.Struct("=QHHHH")
"""Page number, padding, flags, and two offsets."""
_IS_META = 0x08
_META = struct.Struct("=IIQQ IHHQQQQQ IHHQQQQQ QQ")
"""Magic, version, address and size of the map; for the free list and for the main tree: page size (of the file, in the
first) or padding, flags, depth, numbers of branch, leaf and overflow pages, entries, root; last page, transaction."""
_NO_ROOT = 2**64 - 1
"""The root of an empty tree."""
_MAX_DEPTH = 32
"""Limits the levels of a tree, as LMDB's cursors do."""
_LOCK_HEADER, _READER = 128, struct.Struct("=QixxxxQ40x")
"""The lock file: a header with two mutexes, then readers: transaction, process, thread, each in 64 bytes."""
_NO_TRANSACTION = 2**64 - 1
MAX_READERS = 512
"""Readers of a store at a time, in all processes."""
LOCK_SIZE = _LOCK_HEADER + MAX_READERS * _READER.size
"""Bytes of the lock file for so many."""
_MAX_READERS = 4096
"""Limits what is read of a lock file."""
_ATTEMPTS = 3
"""Readings that must all find damage: a meta page may be read while another process writes it."""


def find_damage(data: Path) -> str:
    """Return why an LMDB data file cannot be mapped safely; empty if its meta pages are good, or it is empty and so
    new.

    Raises `OSError` if the file cannot be read or is not a regular file.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(0.01)
        damage = _find_damage(data)
        if not damage:
            return ""
    return damage


def _find_damage(data: Path) -> str:
    """Make one reading of the meta pages for `find_damage`."""
    with open_readable(data) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return ""
        first = _read_meta(file.fileno(), 0)
        if first is None:
            return "not an LMDB file"
        page = first[4]
        if not 512 <= page <= 65536 or page & (page - 1):
            return f"pages of {page} bytes"
        second = _read_meta(file.fileno(), page)
        if second is None or second[4] != page:
            return "its second meta page is damaged"
        meta = max(first, second, key=lambda meta: meta[-1])  # the newer transaction counts
        size = os.fstat(file.fileno()).st_size  # again: it may have grown
    last = meta[-2]
    if (last + 1) * page > size:
        return f"cut short: {size:,} bytes of {(last + 1) * page:,}"
    for depth, root in ((meta[6], meta[11]), (meta[14], meta[19])):
        if depth > _MAX_DEPTH or not (root == _NO_ROOT or 1 < root <= last):
            return "its meta page points outside the file"
    return ""


def _read_meta(descriptor: int, offset: int) -> tuple[int, ...] | None:
    """Read the fields of a meta page; None if there is no valid one."""
    content = os.pread(descriptor, _PAGE_HEADER.size + _META.size, offset)
    if len(content) < _PAGE_HEADER.size + _META.size:
        return None
    flags = _PAGE_HEADER.unpack_from(content)[2]
    meta: tuple[int, ...] = _META.unpack_from(content, _PAGE_HEADER.size)
    return meta if flags & _IS_META and meta[0] == _MAGIC and meta[1] == _VERSION else None


def has_died_while_reading(lock: Path) -> bool:
    """Return whether the lock file has an open transaction of a process that has ended: it was killed, or crashed on a
    damaged page.

    Must be called before LMDB opens the store, which may clear the file. Raises `OSError` if it is not a regular file.
    """
    try:
        with open_readable(lock) as file:
            content = file.read(_LOCK_HEADER + _MAX_READERS * _READER.size)
    except FileNotFoundError:
        return False
    if content[:4] != _MAGIC.to_bytes(4, sys.byteorder):
        return False
    readers = content[_LOCK_HEADER : _LOCK_HEADER + len(content[_LOCK_HEADER:]) // _READER.size * _READER.size]
    return any(
        process > 0 and transaction not in (0, _NO_TRANSACTION) and not _is_running(process)
        for transaction, process, _ in _READER.iter_unpack(readers)
    )


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
