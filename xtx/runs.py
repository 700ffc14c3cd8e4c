"""A run's folder, which explains itself and from which the run can go on.

config.json      what was asked for
versions.json    what it ran with: Python, packages, git state, machine; one entry for each start
metrics.jsonl    one line every `log_every` vector steps; the same whatever happened to the process in between
episodes.jsonl   one line for each finished episode, likewise
rooms.jsonl      one line for each way between two rooms, when it is found, likewise
timing.jsonl     what may differ from start to start: clock, speed, memory
live.json        the newest turns of the first game, for those who look on; replaced every few seconds
checkpoints/     the last two states of the whole run, and `best`: the state at the best mean score
saved            empty; there since the first checkpoint: without one such a run is not begun anew
lock             held by the process that works on the run

Nothing here can execute code when it is read: JSON, and checkpoints of plain arrays (see `write_checkpoint`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from xtx.config import RunConfig
from xtx.core import EpisodeRecord, State, UserError

_MAGIC = b"xtx checkpoint 1"
_DIGEST = 32
_KEPT = 2
_EXACT = ("metrics", "episodes", "rooms")
"""Files of lines that are the same whatever happened to the process."""
SAVED = "saved"
"""An empty file that says that there was a checkpoint."""
_PACKAGES = ("xtx", "torch", "numpy", "jericho", "lmdb", "safetensors", "msgspec")


def warn(line: str) -> None:
    """Tells the user, on the error stream."""
    print(f"xtx: {line}", file=sys.stderr)


# --- checkpoints ------------------------------------------------------------------------------------------------


def write_checkpoint(path: Path, state: State) -> None:
    """Writes a state whole or not at all: nested dictionaries and lists of arrays, numbers, strings, booleans, None.

    The file is a mark, a checksum, and what safetensors makes of all arrays, with the rest as JSON beside them.
    """
    arrays: dict[str, NDArray[Any]] = {}
    tree = _take_arrays(state, arrays)
    content = save_arrays(arrays, {"tree": json.dumps(tree)})
    digest = hashlib.blake2b(content, digest_size=_DIGEST).digest()
    write_whole(path, _MAGIC, digest, content)
    _sync_folder(path.parent)


def read_checkpoint(path: Path) -> State:
    """The state that was written. Raises ValueError if the file is damaged."""
    whole = path.read_bytes()
    content = whole[len(_MAGIC) + _DIGEST :]
    if whole[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not a checkpoint of xtx")
    if whole[len(_MAGIC) : len(_MAGIC) + _DIGEST] != hashlib.blake2b(content, digest_size=_DIGEST).digest():
        raise ValueError("damaged")
    try:
        arrays = load_arrays(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        state = _give_arrays(json.loads(header["__metadata__"]["tree"]), arrays)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"damaged ({error})") from None
    if not isinstance(state, dict):
        raise ValueError("damaged")
    return state


def _take_arrays(tree: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """The tree with a reference in the place of each array."""
    if isinstance(tree, Mapping):
        if tree.keys() in ({"array"}, {"bytes"}) or not all(isinstance(key, str) for key in tree):
            raise TypeError(f"a state's keys are strings, and not `array` or `bytes` alone: {list(tree)[:3]}")
        return {key: _take_arrays(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_take_arrays(value, arrays) for value in tree]
    if isinstance(tree, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.asarray(tree, order="C")  # not ascontiguousarray, which makes a row of a single number
        return {"array": name}
    if isinstance(tree, bytes):
        return {"bytes": tree.hex()}
    if isinstance(tree, np.generic):
        return tree.item()
    return tree


def _give_arrays(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(tree, dict):
        if tree.keys() == {"array"}:
            return arrays[tree["array"]]
        if tree.keys() == {"bytes"}:
            return bytes.fromhex(tree["bytes"])
        return {key: _give_arrays(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_give_arrays(value, arrays) for value in tree]
    return tree


def _copy_cheaply(path: Path, target: Path) -> None:
    """A second name for a file that will not be written to again; a copy where the file system has no such thing."""
    new = target.with_name(f".{target.name}")
    new.unlink(missing_ok=True)
    try:
        new.hardlink_to(path)
    except OSError:  # which one says so differs: EPERM, ENOTSUP, EMLINK, ENOSYS; on a full disk the copy fails too
        try:
            shutil.copyfile(path, new)
            with new.open("rb") as file:
                os.fsync(file.fileno())
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    new.rename(target)


def _sync_folder(folder: Path) -> None:
    """A new name in a folder is on disk only when the folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- the folder -------------------------------------------------------------------------------------------------


class Run:
    """A run's folder, opened by the one process that works on it."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.config = config
        self._lock: int | None = None
        self._files: dict[str, IO[bytes]] = {}
        self._made = False
        """Whether the folder was not there before."""

    @classmethod
    def create(cls, folder: Path, config: RunConfig) -> Run:
        """A new run. The folder must be new or empty."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            hint = f"go on with: xtx resume {folder}" if (folder / "config.json").exists() else "give another --out"
            raise UserError(f"{folder} exists already; {hint}")
        made = not folder.exists()
        try:
            (folder / "checkpoints").mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(asdict(config), indent=2) + "\n")
        except OSError as error:
            raise UserError(f"{folder} cannot be written ({error.strerror}); give another --out") from None
        run = cls(folder, config)
        run._made = made
        run._begin()
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """A run that exists, to go on with it."""
        run = cls(folder, read_config(folder))
        run._begin()
        return run

    def _begin(self) -> None:
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise UserError(f"another process works on {self.folder}; wait for it, or end it first") from None
        for left in (self.folder / "checkpoints").glob(".*"):  # by a process that was killed while writing
            left.unlink()
        self._note_versions()

    def _note_versions(self) -> None:
        path = self.folder / "versions.json"
        known: list[object] = []
        try:
            known = json.loads(path.read_text()) if path.exists() else []
        except ValueError:
            warn(f"{path} is damaged; what the run's earlier starts ran with is lost")
        replace_text(path, json.dumps([*known, versions()], indent=2) + "\n")

    # --- lines --------------------------------------------------------------------------------------------------

    def write(self, name: str, line: object) -> None:
        """Adds a line to one of the .jsonl files."""
        if name not in self._files:
            self._files[name] = (self.folder / f"{name}.jsonl").open("ab")
        self._files[name].write(msgspec.json.encode(line) + b"\n")

    def flush(self) -> None:
        """Shows the lines so far to whoever reads along."""
        for file in self._files.values():
            file.flush()

    # --- checkpoints --------------------------------------------------------------------------------------------

    def save(self, step: int, state: State, best: bool = False) -> None:
        """Writes a checkpoint, keeps the last two, and notes how far the files of lines were at that moment."""
        self.flush()
        for file in self._files.values():
            os.fsync(file.fileno())
        sizes = {name: self._size(name) for name in _EXACT}
        folder = self.folder / "checkpoints"
        path = folder / f"{step:010d}"
        write_checkpoint(path, {"sizes": sizes, "state": state})
        (self.folder / SAVED).touch()
        if best:
            _copy_cheaply(path, folder / "best")
        for old in checkpoints(self.folder)[_KEPT:]:
            old.unlink()

    def restore(self) -> State | None:
        """The newest good state, with the files of lines cut back to it; None if nothing was saved yet."""
        path, saved = _find_newest(self.folder, warn)
        if saved is None:
            self._begin_anew()
        sizes = saved["sizes"] if saved is not None else {}
        for name in _EXACT:
            size = sizes.get(name, 0)
            lines = self.folder / f"{name}.jsonl"
            if self._size(name) < size:
                raise UserError(f"{lines} is shorter than the checkpoint says; the run cannot go on exactly")
            if lines.exists():
                os.truncate(lines, size)
        for damaged in checkpoints(self.folder):
            if path is not None and damaged.name > path.name:  # else it would count as one of the last two
                damaged.rename(damaged.with_suffix(".damaged"))
        return None if saved is None else dict(saved["state"])

    def _begin_anew(self) -> None:
        """Sets aside the lines of a run that ended before its first checkpoint. Not of one that was saved: its
        checkpoints were deleted, and its lines are all there is."""
        if (self.folder / SAVED).exists():
            raise UserError(f"{self.folder} has no checkpoint any more, so it cannot go on; begin it in another folder")
        written = [self.folder / f"{name}.jsonl" for name in _EXACT if self._size(name)]
        if written:
            warn(f"{self.folder} was never saved, so it begins anew; what it wrote is kept in files that end in .old")
        for lines in written:
            lines.rename(_free_name(lines))

    def discard_unused(self) -> None:
        """Deletes what lies in the folder of a new run that came to nothing, and the folder itself if it was not there
        before."""
        self.flush()
        if checkpoints(self.folder) or any(self._size(name) for name in _EXACT):
            return
        self.close()
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def _size(self, name: str) -> int:
        path = self.folder / f"{name}.jsonl"
        return path.stat().st_size if path.exists() else 0

    def close(self) -> None:
        """Writes out what is left and lets others work on the run."""
        with contextlib.ExitStack() as stack:  # all of them, also if the disk is full
            if self._lock is not None:
                stack.callback(os.close, self._lock)
                self._lock = None
            for file in self._files.values():
                stack.callback(file.close)
            self._files = {}

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_name(lines: Path) -> Path:
    """A name beside the file's that nobody has."""
    number, free = 1, lines.with_name(f"{lines.name}.old")
    while free.exists():
        number += 1
        free = lines.with_name(f"{lines.name}.old-{number}")
    return free


def checkpoints(folder: Path) -> list[Path]:
    """The run's numbered checkpoints, newest first."""
    with contextlib.suppress(OSError):
        return sorted((p for p in (folder / "checkpoints").iterdir() if p.name.isdigit()), reverse=True)
    return []


def read_newest(folder: Path, on_warning: Callable[[str], None] = warn) -> State | None:
    """The newest checkpoint that can be read; a damaged one is passed over with a warning. None if there is none."""
    return _find_newest(folder, on_warning)[1]


def _find_newest(folder: Path, on_warning: Callable[[str], None]) -> tuple[Path | None, State | None]:
    """Where the newest checkpoint is that can be read, and what it holds."""
    paths, troubles = checkpoints(folder), []
    for path in paths:
        try:
            saved = read_checkpoint(path)
        except (ValueError, OSError) as error:
            troubles.append(f"the checkpoint {path} cannot be read ({error})")
            continue
        for trouble in troubles:
            on_warning(f"{trouble}; going on from the one before")
        return path, saved
    if paths:
        raise UserError(f"no checkpoint in {folder} can be read; start the run again in another folder")
    return None, None


def read_config(folder: Path) -> RunConfig:
    """What the run in this folder was asked for."""
    path = folder / "config.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunConfig)
    except OSError as error:
        raise UserError(f"{folder} is not a run ({error.strerror}: config.json); give the folder of one") from None
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is damaged ({error}); start the run again in another folder") from None


def read_lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """The lines of one of the run's .jsonl files; a last line that is still being written is left out."""
    path = folder / f"{name}.jsonl"
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield msgspec.json.decode(line)


def read_episodes(folder: Path) -> list[EpisodeRecord]:
    """All finished episodes."""
    return [msgspec.convert(line, EpisodeRecord) for line in read_lines(folder, "episodes")]


# --- circumstances ----------------------------------------------------------------------------------------------


def versions() -> dict[str, object]:
    """What the program runs with."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "packages": packages,
        "machine": platform.platform(),
        "processors": len(os.sched_getaffinity(0)),
        "git": git_state(),
    }


def git_state() -> str:
    """The commit of the program's own source, with a star if files were changed; empty outside a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "-C", here, "describe", "--always", "--dirty=*", "--abbrev=12"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit.stdout.strip()


def write_whole(path: Path, *pieces: bytes) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str) -> None:
    """The same for a text."""
    write_whole(path, text.encode())
