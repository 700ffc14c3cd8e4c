"""Files and folders that the user names."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from xtx.core import UserError
from xtx.terminal.shell_command import format_command

DISK_TROUBLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.EIO, errno.EMFILE, errno.ENFILE, errno.EINTR, errno.ESTALE, errno.ENODEV,
)  # fmt: skip
"""Errors of reading and writing that the user can fix: a full disk, permissions, a disk that fails or is
gone, a limit on open files, a call that was interrupted."""


def find_cache_folder() -> Path:
    """Return the folder for what can be found again, in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "xtx"


def check_output_path(path: Path, option: str = "--out") -> Path:
    """The file's path, or `UserError` if it cannot be written: now, and not after minutes of work."""
    try:
        found = path.expanduser()
        why = ""
        if found.is_dir():
            why = "it is a folder"
        elif not found.parent.is_dir():
            why = "there is no such folder"
        elif not os.access(found if found.exists() else found.parent, os.W_OK):
            why = "permission denied"
    except (OSError, RuntimeError, ValueError) as error:  # no such user, a name that is too long or none at all
        why = error.strerror or "" if isinstance(error, OSError) else str(error)
    if why:
        raise UserError(f"{path} cannot be written ({why}); name another file with {option}")
    return found


@contextlib.contextmanager
def open_output(path: Path, option: str = "--out", bit_by_bit: bool = False) -> Iterator[TextIO]:
    """The file, to be written anew. It takes the place of an old one when all is written, so that a full disk leaves
    the old one, or none; `bit_by_bit`, where the beginning is worth something by itself, it does so at once. Raises
    `UserError`."""
    target = check_output_path(path, option)
    beside = None if bit_by_bit else _create_temporary(target)
    try:
        with contextlib.ExitStack() as stack:
            if beside is not None:
                stack.callback(beside.unlink, missing_ok=True)
            # Names of folders need not be UTF-8: such bytes are written as \\udcff.
            with (beside or target).open("w", encoding="utf-8", errors="backslashreplace") as file:
                yield file
            if beside is not None:
                _replace_file(beside, Path(os.path.realpath(target)))  # a link stays one
    except OSError as error:
        own = (None, str(target), str(beside))
        if error.errno not in DISK_TROUBLE or error.filename not in own:
            raise
        raise UserError(f"{path} cannot be written ({error.strerror}); name another file with {option}") from None


def _create_temporary(target: Path) -> Path | None:
    """A new file in the same folder; None where there can be none, or nothing could take the place of a pipe or a
    terminal."""
    if target.exists() and not target.is_file():
        return None
    try:
        handle, name = tempfile.mkstemp(dir=os.path.dirname(os.path.realpath(target)), prefix=".writing-")
    except OSError:
        return None
    os.close(handle)
    return Path(name)


def _replace_file(whole: Path, target: Path) -> None:
    """Puts a file in the place of another."""
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_read_umask()
    with contextlib.suppress(OSError):  # there are file systems without permissions
        whole.chmod(mode)
    try:
        whole.replace(target)
    except OSError:  # a file that was mounted by itself can only be written over
        shutil.copyfile(whole, target)


def _read_umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@contextlib.contextmanager
def explain_write_errors(folder: Path) -> Iterator[None]:
    """While a run is at work: what a full disk, or one that is gone, means for it. Raises `UserError`."""
    try:
        yield
    except OSError as error:
        path = folder.absolute() if error.filename is None else Path(os.fsdecode(error.filename)).absolute()
        inside = folder.absolute() in (path, *path.parents)
        if error.errno not in DISK_TROUBLE or not inside:
            raise
        resume = format_command("resume", folder)
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); when that is fixed, go on with: {resume}"
        ) from None
