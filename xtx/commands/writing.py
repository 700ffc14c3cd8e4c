"""Files that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from xtx.core import UserError


def open_out(path: Path) -> TextIO:
    """The file, opened to be written anew. Raises `UserError`."""
    try:
        return path.expanduser().open("w", encoding="utf-8")
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{path} cannot be written ({reason}); name another file with --out") from None
