"""Writes files atomically: after a crash, a file holds either the old content or the new one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from xtx.core import UserError
from xtx.files import system_calls
from xtx.files.regular_files import create_file

_KEPT = 40
"""Characters of a file's name in that of its temporary file. They take at most 160 bytes, and file systems limit names
to 255, so that a name of any length can be written."""


def write_atomically(path: Path, *pieces: bytes, mode: int = 0o666) -> None:
    """Write a file: on disk under its name with all pieces, or not at all. `mode`: permissions, before the umask."""
    temporary = name_temporary(path)
    try:
        with create_file(temporary, mode) as file:
            file.writelines(pieces)
            file.flush()
            system_calls.current.sync(file.fileno())
        system_calls.current.rename(temporary, path)
    except BaseException:
        system_calls.current.unlink(temporary, missing_ok=True)
        raise


def name_temporary(path: Path) -> Path:
    """Return a new hidden name beside a file, which no other process or thread uses."""
    return path.with_name(f".{path.name[:_KEPT]}.{secrets.token_hex(8)}")


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically; characters that are not Unicode are escaped."""
    write_atomically(path, text.encode("utf-8", "backslashreplace"))


def write_user_file(target: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file atomically, and its folder if that is missing. Raises `UserError` if it cannot be written.

    A link stays one: what it leads to is replaced. A device or a pipe is written into; nothing may take its place.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            write_atomically(Path(os.path.realpath(target)), content, mode=mode)
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); nothing was changed there") from None
