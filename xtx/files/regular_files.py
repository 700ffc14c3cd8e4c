"""Opens the files of a run folder only where they are regular files, and never writes through a symbolic link.

A run folder may have been copied, shared or prepared by another program. A link in the place of one of its files would
lead writes into a foreign file, and a named pipe would block the process. Links on the way to the folder are followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from xtx.core import UserError
from xtx.files import system_calls

_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""O_NONBLOCK: opening a named pipe must not wait for its other end. It has no effect on regular files."""
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a regular file as `os.open` does, but not through a symbolic link, and return the descriptor.

    Raises `UserError` if the name belongs to something else, and `OSError` for all other errors.
    """
    try:
        descriptor = system_calls.current.open(path, flags | _CAREFUL, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO, errno.ENODEV):
            check_regular(path)
        raise
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        system_calls.current.close(descriptor)
        raise _explain_refusal(path, found)
    return descriptor


def open_append(path: Path) -> IO[bytes]:
    """Open a file for appending; it is created if it is missing."""
    return system_calls.current.stream(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def truncate_file(path: Path, size: int) -> None:
    """Cut a file to a number of bytes."""
    descriptor = open_regular(path, os.O_WRONLY)
    try:
        system_calls.current.truncate(descriptor, size)
    finally:
        system_calls.current.close(descriptor)


def touch_file(path: Path) -> None:
    """Create an empty file, unless it is there."""
    system_calls.current.close(open_regular(path, os.O_WRONLY | os.O_CREAT))


def create_file(path: Path, mode: int = 0o666) -> IO[bytes]:
    """Create a file and open it for writing. An existing file or link with this name is deleted first."""
    system_calls.current.unlink(path, missing_ok=True)
    return system_calls.current.stream(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")


def open_readable(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Links are followed here: reading changes nothing."""
    descriptor = system_calls.current.open(path, os.O_RDONLY | (_CAREFUL & ~os.O_NOFOLLOW))
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        system_calls.current.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {_describe_kind(found)}", str(path))
    return system_calls.current.stream(descriptor, "rb")


def check_regular(path: Path) -> None:
    """Raise `UserError` if something other than a regular file has this name."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path).st_mode
        if not stat.S_ISREG(found):
            raise _explain_refusal(path, found)


def check_folders(paths: Iterable[Path]) -> None:
    """Raise `UserError` if one of these exists but is not a folder, for example a link to one."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(path).st_mode
            if not stat.S_ISDIR(found):
                raise UserError(
                    f"{path} is {_describe_kind(found)}, and xtx writes only into a folder there; put the folder "
                    "itself in its place"
                )


def _explain_refusal(path: Path, found: int) -> UserError:
    """Return the error for something that is not a regular file. `found`: its mode, from `os.stat`."""
    return UserError(
        f"{path} is {_describe_kind(found)}, and xtx writes only to a regular file there; move it away, and put back "
        "the file itself if there was one"
    )


def _describe_kind(mode: int) -> str:
    """Return the kind of file of a mode, in words."""
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "a file" if stat.S_ISREG(mode) else "a device")
