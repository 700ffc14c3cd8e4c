"""Links and copies of files, and writing the names of a folder to disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from xtx.files import system_calls
from xtx.files.regular_files import create_file, open_readable


def link_or_copy(path: Path, target: Path) -> None:
    """Make a hard link to a file that will not be written to again; a copy if the file system has no hard links."""
    if target.exists() and target.samefile(path):  # renaming one link of a file to another would do nothing
        return
    new = target.with_name(f".{target.name}")
    system_calls.current.unlink(new, missing_ok=True)
    try:
        system_calls.current.link(path, new)
    except OSError:  # EPERM, ENOTSUP, EMLINK or ENOSYS, by file system; on a full disk the copy fails too
        copy_file(path, new)
    system_calls.current.rename(new, target)


def copy_file(path: Path, new: Path) -> None:
    """Copy a file to a new name, on disk when this returns."""
    try:
        with open_readable(path) as file, create_file(new) as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            system_calls.current.sync(copy.fileno())
    except BaseException:
        system_calls.current.unlink(new, missing_ok=True)
        raise


def break_links(path: Path) -> None:
    """Replace a file that has several hard links by a copy: a backup made of links must not change with it."""
    if path.lstat().st_nlink > 1:
        new = path.with_name(f".{path.name}.{os.getpid()}")
        copy_file(path, new)
        system_calls.current.rename(new, path)


def sync_folder(folder: Path) -> None:
    """Write a folder's names to disk: a new file is safe only after that."""
    descriptor = system_calls.current.open(folder, os.O_RDONLY)
    try:
        system_calls.current.sync(descriptor)
    finally:
        system_calls.current.close(descriptor)
