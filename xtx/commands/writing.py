"""Files and folders that the user names."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from xtx.core import UserError

DISK_TROUBLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS,
)  # fmt: skip
"""What the user can mend, or must know, when something cannot be written."""


def check_out(path: Path, option: str = "--out") -> None:
    """Refuses a file that cannot be written: now, and not after minutes of work. Raises `UserError`."""
    path = path.expanduser()
    why = ""
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = "there is no such folder"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "permission denied"
    if why:
        raise UserError(f"{path} cannot be written ({why}); name another file with {option}")


@contextlib.contextmanager
def open_out(path: Path, option: str = "--out") -> Iterator[TextIO]:
    """The file, to be written anew. It takes the place of an old one when all is written, so that a full disk leaves
    the old one, or none. Raises `UserError`."""
    check_out(path, option)
    path = path.expanduser()
    try:
        if path.exists() and not path.is_file():  # a pipe or a terminal: nothing that could take its place
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        path = path.resolve()  # a link stays one
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                yield file
            os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        if error.errno not in DISK_TROUBLE or error.filename is not None:  # that is another file than this one
            raise
        raise UserError(f"{path} cannot be written ({error.strerror}); name another file with {option}") from None


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@contextlib.contextmanager
def run_written(folder: Path) -> Iterator[None]:
    """While a run is at work: what a full disk, or one that is gone, means for it. Raises `UserError`."""
    try:
        yield
    except OSError as error:
        inside = error.filename is None or folder.absolute() in Path(os.fsdecode(error.filename)).absolute().parents
        if error.errno not in DISK_TROUBLE or not inside:
            raise
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); when that is mended, go on with: xtx resume {folder}"
        ) from None
