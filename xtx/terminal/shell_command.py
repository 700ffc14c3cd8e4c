"""How `xtx` is called in the shell of the user, for messages that name a command to run next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

from xtx.core import escape_controls


def format_command(*words: object) -> str:
    """Format a command line of xtx that runs as printed in the present folder: `xtx resume runs/a`.

    The program is `xtx` only where the shell finds this environment's; otherwise it is the path of the script, or
    `python -m xtx.cli` where there is no script.
    """
    return " ".join([_find_program(Path.cwd()), *(_quote(str(word)) for word in words)])


def _quote(word: str) -> str:
    if escape_controls(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{escape_controls(escaped)}'"


@cache
def _find_program(present: Path) -> str:
    script, found = Path(sys.executable).parent / "xtx", shutil.which("xtx")
    if found is not None and os.path.realpath(found) == os.path.realpath(script):
        return "xtx"
    if not os.access(script, os.X_OK):
        return "xtx" if found is not None else f"{shlex.quote(sys.executable)} -m xtx.cli"
    return shlex.quote(str(script.relative_to(present) if script.is_relative_to(present) else script))
