"""The system calls with which the files of a run are opened, written, renamed and deleted.

They are in one place so that tests can put others in their place: calls that fail, that stop half way, or after which
the process is gone (see tests/fault_simulator.py). Looking at files (stat, listing a folder) is not among them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

AnyPath = str | Path


class FileCalls:
    """The calls as the operating system has them. Each raises `OSError`."""

    def open(self, path: AnyPath, flags: int, mode: int = 0o666) -> int:
        """Open a file or folder; gives the descriptor."""
        return os.open(path, flags, mode)

    def stream(self, descriptor: int, mode: str) -> IO[bytes]:
        """Make a buffered stream of a descriptor, which is closed with it."""
        return os.fdopen(descriptor, mode)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def sync(self, descriptor: int) -> None:
        """Return when the file's content, or the folder's names, are on disk."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file to a number of bytes."""
        os.ftruncate(descriptor, size)

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        """Give a file another name; what had that name before is gone."""
        os.replace(old, new)

    def link(self, old: AnyPath, new: AnyPath) -> None:
        """Give a file a second name."""
        os.link(old, new)

    def unlink(self, path: AnyPath, *, missing_ok: bool = False) -> None:
        """Delete a name."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def make_folder(self, path: AnyPath) -> None:
        """Make a folder, unless it is there."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not Path(path).is_dir():
                raise


current = FileCalls()
"""The calls in use. Tests put a simulator here; use it as `file_calls.current`, so that they can."""
