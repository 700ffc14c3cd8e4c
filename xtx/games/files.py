"""Files that appear whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from xtx.core import UserError


def write_whole(target: Path, content: bytes) -> bool:
    """Whether the file had to be written: it holds the old content or the new one, whenever the power fails. Raises
    `UserError`."""
    try:
        if target.is_file() and target.read_bytes() == content:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); nothing was changed there") from None
    return True
