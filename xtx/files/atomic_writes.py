"""Files that appear whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from xtx.core import UserError
from xtx.files import system_calls

_FOR_ALL = 0o644


def write_whole(target: Path, content: bytes, mode: int = _FOR_ALL) -> None:
    """The file holds the old content or the new one, whenever the power fails. Raises `UserError`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".writing-")
        try:
            with system_calls.current.stream(handle, "wb") as file:
                file.write(content)
                file.flush()
                system_calls.current.sync(file.fileno())
            os.chmod(name, mode)
            system_calls.current.rename(name, target)
        except BaseException:
            system_calls.current.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); nothing was changed there") from None
