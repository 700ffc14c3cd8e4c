"""The system calls with which the files of a run are opened, written, renamed and deleted.

Tests replace them by calls that fail, that stop half way, or that end the process (see tests/fault_simulator.py).
Reading metadata (stat, listing a folder) is not among them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

AnyPath = str | Path


class FileCalls:
    """The calls of the operating system. Each raises `OSError`."""

    def open(self, path: AnyPath, flags: int, mode: int = 0o666) -> int:
        """Open a file or folder, and return the descriptor."""
        return os.open(path, flags, mode)

    def stream(self, descriptor: int, mode: str) -> IO[bytes]:
        """Make a buffered stream of a descriptor; closing it closes the descriptor."""
        return os.fdopen(descriptor, mode)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def sync(self, descriptor: int) -> None:
        """Write a file's content, or a folder's names, to disk."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file to a number of bytes."""
        os.ftruncate(descriptor, size)

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        """Rename a file, replacing an existing one of the new name."""
        os.replace(old, new)

    def link(self, old: AnyPath, new: AnyPath) -> None:
        """Make a hard link."""
        os.link(old, new)

    def unlink(self, path: AnyPath, *, missing_ok: bool = False) -> None:
        """Delete a name."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def make_folder(self, path: AnyPath) -> None:
        """Create a folder, unless it exists."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not Path(path).is_dir():
                raise


current = FileCalls()
"""The calls in use. Always written as `file_calls.current`, so that tests can replace it."""
