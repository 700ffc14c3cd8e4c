"""Works on an atlas in a child process, because LMDB crashes on a damaged file (SIGBUS, SIGSEGV).

The parent calls `run_task`; the child is this module's `main`. The child prints one JSON object: `{"result": ...}`, or
`{"error": ...}` with the text of a `UserError`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from xtx.core import UserError
from xtx.files.bounded_reads import explain_read_error
from xtx.processes.child_processes import name_signal

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from xtx.games.atlas.atlas_process import main; main()"
_DEATHS_BY_DAMAGE = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""Signals that end a process that reads a damaged store. Others have other causes, SIGKILL mostly a lack of memory."""


class ProcessDiedError(Exception):
    """The child process crashed; the text says how."""

    def __init__(self, status: int) -> None:
        """status: its return code, which is negative for a signal."""
        super().__init__(name_signal(-status) if status < 0 else f"exit status {status}")
        self.by_damage = -status in _DEATHS_BY_DAMAGE


def run_task(task: str, atlas: Path, file: Path | None = None) -> dict[str, Any]:
    """Run a task in a child process and return its result: `verify`, `pack` to a file, `add` from a file, or `show`.

    Raises `UserError` if the task does, and `ProcessDiedError` if its process crashed, because of a damaged atlas or a
    lack of memory.
    """
    words = [task, str(atlas), *([str(file)] if file is not None else [])]
    root = str(Path(__file__).parents[3])
    child = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, root, *map(os.fsencode, words)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    if child.returncode < 0:
        raise ProcessDiedError(child.returncode)
    try:
        answer = json.loads(child.stdout)
    except ValueError:
        raise ProcessDiedError(child.returncode) from None
    if "error" in answer:
        raise UserError(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def verify_atlas(atlas: Path) -> str:
    """Return why the store in a folder is damaged; empty if it is not, or if that cannot be determined.

    Entries with a wrong checksum do no harm and do not count.
    """
    try:
        return str(run_task("verify", atlas)["damage"])
    except UserError:
        return ""
    except ProcessDiedError as error:
        return f"reading it ended with {error}" if error.by_damage else ""


# --- the child --------------------------------------------------------------------------------------------------


def main() -> None:
    """Run a task, as the child process. Arguments: the task, the folder of an atlas, and for some tasks a file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an expected result here
    task, atlas, *files = sys.argv[1:]
    answer: dict[str, Any]
    try:
        answer = {"result": _carry_out(task, Path(atlas), *map(Path, files))}
    except UserError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": f"there is not enough memory to {task} the atlas {atlas}"}
    sys.stdout.write(json.dumps(answer))


def _carry_out(task: str, atlas: Path, *files: Path) -> dict[str, Any]:
    if task == "verify":
        return _verify(atlas)
    # Not at the top, so that a verification, which any run may need, loads as little as possible.
    from xtx.games.atlas.archive import add_packed, read_packed, write_packed
    from xtx.games.atlas.store import Atlas

    found = read_packed(files[0]) if task == "add" else {}  # first: a bad file must not create an atlas
    result: dict[str, Any] = {}
    with Atlas(atlas) as opened:
        if task == "add":
            result |= {"new": add_packed(opened, found), "entries": len(found)}
        if task == "pack":
            result["entries"], result["bytes"] = write_packed(opened, files[0])
        now = opened.read_statistics()
    return {**result, "now": {"entries": now.entries, "bytes": now.bytes, "hits": now.hits, "misses": now.misses}}


def _verify(atlas: Path) -> dict[str, Any]:
    """Read all pages and verify all checksums."""
    import lmdb

    from xtx.games.atlas.lmdb_check import find_damage
    from xtx.games.atlas.store import DAMAGE, is_entry_whole

    try:
        damage = find_damage(atlas / "data.mdb")
    except OSError as error:
        raise UserError(f"the atlas {atlas} cannot be read ({error.strerror}); use --atlas PATH") from None
    entries = damaged = 0
    if not damage:
        try:
            size = max(1 << 20, (atlas / "data.mdb").stat().st_size)
            with lmdb.open(str(atlas), map_size=size, readonly=True, max_readers=512, readahead=False) as environment:
                with environment.begin() as transaction:
                    expected = transaction.stat()["entries"]
                    for key, value in transaction.cursor():
                        entries += 1
                        damaged += not is_entry_whole(key, value)
                        if entries > expected:
                            break
                if entries != expected:
                    damage = f"{entries:,} entries of {expected:,}"
                with open(os.devnull, "wb") as null:  # a copy also reads the list of free pages
                    environment.copyfd(null.fileno(), compact=True)
        except DAMAGE as error:
            damage = damage or str(error)
        except lmdb.Error as error:
            raise UserError(
                f"the atlas {atlas} cannot be opened ({explain_read_error(error)}); use --atlas PATH"
            ) from None
    return {"damage": damage, "entries": entries, "damaged": damaged}
