"""A run's folder, which explains itself and from which the run can go on.

config.json      what was asked for
versions.json    what it ran with: Python, packages, git state, machine; one entry for each start
metrics.jsonl    one line every `log_every` vector steps; the same whatever happened to the process in between
episodes.jsonl   one line for each finished episode, likewise
rooms.jsonl      one line for each way between two rooms, when it is found, likewise
timing.jsonl     what may differ from start to start: clock, speed, memory
live.json        the newest turns of the first game, for those who look on; replaced every few seconds
changes.jsonl    one line for each `xtx resume --accept-changes`: what was changed from outside, and at which step
checkpoints/     the last two states of the whole run, and `best`: the state at the best mean score
saved            empty; there since the first checkpoint: without one such a run is not begun anew
lock             held by the process that works on the run

Nothing here can execute code when it is read: JSON, and checkpoints of plain arrays (see `write_checkpoint`).

The files know each other: a checkpoint holds the config that it was made with, and the length and a checksum of
metrics.jsonl, episodes.jsonl and rooms.jsonl up to that moment. A run whose files do not fit together goes on only
where the user accepts that. Checkpoints of earlier versions hold the lengths alone; the next one is complete.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from xtx import file_calls
from xtx.bounded_files import (
    MAX_LINE_BYTES,
    MAX_LINES_BYTES,
    BadFileError,
    check_bounds,
    read_bounded,
    read_json,
    read_json_lines,
)
from xtx.config import RunConfig
from xtx.config_file import ConfigError, decode_config, dump_config, encode_config, list_differences
from xtx.core import EpisodeRecord, State, UserError
from xtx.cpu_count import usable_processors
from xtx.regular_files import (
    check_folders,
    check_regular,
    create_file,
    open_append,
    open_readable,
    open_regular,
    touch_file,
    truncate_file,
)

_MAGIC = b"xtx checkpoint 1"
_DIGEST = 32
_KEPT = 2
_EXACT = ("metrics", "episodes", "rooms")
"""Files of lines that are the same whatever happened to the process."""
SAVED = "saved"
"""An empty file that says that there was a checkpoint."""
CHANGES = "changes"
"""The file of lines that says which changes from outside were accepted."""
_WRITTEN = (*(f"{name}.jsonl" for name in (*_EXACT, "timing", CHANGES)), "versions.json", SAVED, "lock")
_UNFINISHED = re.compile(r"\.\w+\.(jsonl?|png)\.(\d+|old(-\d+)?)")
"""Names of files that were being written when their process was killed."""
_BLOCK = 1 << 20
"""Bytes that are read at once when a checksum is computed."""
_LARGEST_CONFIG = 1 << 20
"""Bytes of config.json; the largest preset's has 2,000."""
MAX_NUMBER = 2**53
"""Steps and scores of a run are below this, so that floating-point figures of them are exact."""
_MAX_CHECKPOINT_BYTES = 64 << 30
"""Size of a checkpoint; the largest, with a replay memory, have some 100 MB."""
_NO_FILE = (errno.ENOENT, errno.EINVAL, errno.ELOOP, errno.ENXIO)
"""Errors of opening that say that no regular file has the name. All others may pass: the file may be good."""
_STEP = re.compile(r"[0-9]{1,18}")
"""The name of a checkpoint: game steps."""
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
    """The state that was written. Raises ValueError if the file is damaged. A file is read as a whole only if its
    checksum is right."""
    with open_readable(path) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("not a checkpoint of xtx")
        if os.fstat(file.fileno()).st_size > _MAX_CHECKPOINT_BYTES:
            raise ValueError(f"larger than {_MAX_CHECKPOINT_BYTES:,} bytes")
        expected, found = file.read(_DIGEST), hashlib.blake2b(digest_size=_DIGEST)
        while block := file.read(_BLOCK):
            found.update(block)
        if expected != found.digest():
            raise ValueError("damaged")
        file.seek(len(_MAGIC) + _DIGEST)
        content = file.read()
    try:
        arrays = load_arrays(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        state = _give_arrays(json.loads(header["__metadata__"]["tree"]), arrays)
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
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
    if target.exists() and target.samefile(path):  # to rename one name of a file to another would do nothing
        return
    new = target.with_name(f".{target.name}")
    file_calls.current.unlink(new, missing_ok=True)
    try:
        file_calls.current.link(path, new)
    except OSError:  # which one says so differs: EPERM, ENOTSUP, EMLINK, ENOSYS; on a full disk the copy fails too
        _copy_file(path, new)
    file_calls.current.rename(new, target)


def _copy_file(path: Path, new: Path) -> None:
    try:
        with open_readable(path) as file, create_file(new) as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            file_calls.current.sync(copy.fileno())
    except BaseException:
        file_calls.current.unlink(new, missing_ok=True)
        raise


def _separate(path: Path) -> None:
    """Replace a file that has other names too by a copy: a backup made of hard links must not change with it."""
    if path.lstat().st_nlink > 1:
        new = path.with_name(f".{path.name}.{os.getpid()}")
        _copy_file(path, new)
        file_calls.current.rename(new, path)


def _sync_folder(folder: Path) -> None:
    """A new name in a folder is on disk only when the folder is."""
    descriptor = file_calls.current.open(folder, os.O_RDONLY)
    try:
        file_calls.current.sync(descriptor)
    finally:
        file_calls.current.close(descriptor)


# --- the folder -------------------------------------------------------------------------------------------------


class _Checksum:
    """The length and the checksum of a file of lines, kept up to date while lines are added."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.blake2b(digest_size=_DIGEST)

    def add(self, content: bytes) -> None:
        self.size += len(content)
        self._hash.update(content)

    def add_file(self, path: Path, most: int) -> None:
        """Add the content of a file, up to `most` bytes; nothing if it is missing."""
        with contextlib.suppress(FileNotFoundError), open_readable(path) as file:
            while block := file.read(min(_BLOCK, most)):
                most -= len(block)
                self.add(block)

    def digest(self) -> str:
        """The checksum so far, as hexadecimal digits."""
        return self._hash.copy().hexdigest()


@dataclass(frozen=True)
class _Found:
    """The newest checkpoint that can be read, compared with the other files of the run."""

    path: Path
    saved: State
    checksums: dict[str, _Checksum]
    """Of each exact file of lines, up to the checkpoint's length."""
    altered: list[str]
    """The names of those files that are not what they were at the checkpoint."""
    changes: list[str]
    """Everything that is not as it was, in words, each with the name of its file."""


class Run:
    """A run's folder, opened by the one process that works on it."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.config = config
        self._lock: int | None = None
        self._files: dict[str, IO[bytes]] = {}
        self._has_new_names = True
        """Whether files may have been created since the folder was last synced."""
        self._checksums: dict[str, _Checksum] = {}
        """Of the exact files of lines, as far as they are known; see `_checksum`."""
        self._verified: _Found | None = None
        self.restored_from: Path | None = None
        """The checkpoint that `verify` has read."""
        self._noted = False
        """Whether versions.json has an entry for this start."""
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
            replace_text(folder / "config.json", encode_config(config))
        except OSError as error:
            raise UserError(f"{folder} cannot be written ({error.strerror}); give another --out") from None
        run = cls(folder, config)
        run._made = made
        run._begin()
        run._note_versions()
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """A run that exists, to go on with it."""
        run = cls(folder, read_config(folder))
        run._begin()
        return run

    def _begin(self) -> None:
        self._check_files()
        self._lock = open_regular(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file_calls.current.close(self._lock)
            self._lock = None
            raise UserError(f"another process works on {self.folder}; wait for it, or end it first") from None
        file_calls.current.make_folder(self.folder / "checkpoints")
        left = [path for path in self.folder.glob(".*") if _UNFINISHED.fullmatch(path.name)]
        for path in [*left, *(self.folder / "checkpoints").glob(".*")]:  # by a process that was killed while writing
            if path.is_symlink() or not path.is_dir():
                file_calls.current.unlink(path)

    def _check_files(self) -> None:
        """Raise `UserError` before anything is written if a file of the run is a link, a pipe or a folder."""
        for name in _WRITTEN:
            check_regular(self.folder / name)
        check_folders([self.folder / "checkpoints"])

    def _note_versions(self) -> None:
        """Note what the program runs with, once for each start. A start that is refused is not one."""
        if self._noted:
            return
        self._noted = True
        path = self.folder / "versions.json"
        known: list[object] = []
        try:
            known = read_json(path, list[Any])
        except FileNotFoundError:
            pass
        except BadFileError:
            warn(f"{path} is damaged; what the run's earlier starts ran with is lost")
        replace_text(path, json.dumps([*known, versions()], indent=2) + "\n")

    # --- lines --------------------------------------------------------------------------------------------------

    def write(self, name: str, line: object) -> None:
        """Adds a line to one of the .jsonl files."""
        if name not in self._files:
            if name in _EXACT:
                self._checksum(name)  # before there is anything to be written
            self._files[name] = open_append(self.folder / f"{name}.jsonl")
            self._has_new_names = True
        content = msgspec.json.encode(line) + b"\n"
        self._files[name].write(content)
        if name in _EXACT:
            self._checksums[name].add(content)

    def _checksum(self, name: str) -> _Checksum:
        """The checksum of a file of lines; the file is read if lines were there before this process."""
        if name not in self._checksums:
            checksum = _Checksum()
            checksum.add_file(self.folder / f"{name}.jsonl", self._size(name))
            self._checksums[name] = checksum
        return self._checksums[name]

    def flush(self) -> None:
        """Shows the lines so far to whoever reads along."""
        for file in self._files.values():
            file.flush()

    # --- checkpoints --------------------------------------------------------------------------------------------

    def save(self, step: int, state: State, best: bool = False) -> None:
        """Writes a checkpoint, keeps the last two, and notes how far the files of lines were at that moment."""
        self._note_versions()
        self.flush()
        for file in self._files.values():
            file_calls.current.sync(file.fileno())
        if self._has_new_names:
            _sync_folder(self.folder)
            self._has_new_names = False
        folder = self.folder / "checkpoints"
        path = folder / f"{step:010d}"
        write_checkpoint(path, {**self._ties(), "best": best, "state": state})
        touch_file(self.folder / SAVED)
        if best:
            _copy_cheaply(path, folder / "best")
            _sync_folder(folder)  # before a later checkpoint can be named
        for old in checkpoints(self.folder)[_KEPT:]:
            file_calls.current.unlink(old)

    def _ties(self) -> State:
        """What ties a checkpoint to the other files of the run: the config, and the lines so far."""
        checksums = {name: self._checksum(name) for name in _EXACT}
        return {
            "sizes": {name: checksum.size for name, checksum in checksums.items()},
            "digests": {name: checksum.digest() for name, checksum in checksums.items()},
            "config": dump_config(self.config),
        }

    def verify(self, *, accept_changes: bool = False) -> list[str]:
        """Read the newest good checkpoint for `restore`, and compare config and lines with what it says of them.

        Gives what is not as it was, in words. Raises `UserError` if there is such a thing and it is not accepted.
        Nothing is written.
        """
        path, saved = find_newest(self.folder, warn)
        self.restored_from = path
        if path is None or saved is None:
            return []
        found = self._compare(path, saved)
        if found.changes and not accept_changes:
            some, rest = found.changes[:3], len(found.changes) - 3
            more = f", and {rest} more" if rest > 0 else ""
            raise UserError(
                f"{self.folder} was changed since its checkpoint: {'; '.join(some)}{more}. Put back what was there, or "
                f"go on with the change, if it is meant: xtx resume {self.folder} --accept-changes"
            )
        self._verified = found
        return found.changes

    @property
    def saved_state(self) -> State | None:
        """The state that `verify` has read and `restore` will give; None if there is none."""
        return None if self._verified is None else self._verified.saved["state"]

    def _compare(self, path: Path, saved: State) -> _Found:
        sizes, digests = _read_ties(path, saved)
        changes = [f"config.json: {difference}" for difference in find_config_changes(path, saved, self.config)]
        checksums, altered = {}, []
        for name in _EXACT:
            checksum, size = _Checksum(), sizes.get(name, 0)
            lines = self.folder / f"{name}.jsonl"
            checksum.add_file(lines, size)
            trouble = ""
            if checksum.size < size:
                short = f"is shorter than it was: {checksum.size:,} of {size:,} bytes"
                trouble = short if lines.exists() else "is missing"
            elif digests is not None and checksum.digest() != digests.get(name):
                trouble = _describe_damage(name, lines, size)
            if trouble:
                altered.append(name)
                changes.append(f"{name}.jsonl {trouble}")
            checksums[name] = checksum
        return _Found(path, saved, checksums, altered, changes)

    def restore(self) -> State | None:
        """The newest good state, with the files of lines cut back to it; None if nothing was saved yet. Changes from
        outside must have been accepted: see `verify`."""
        if self._verified is None:
            self.verify()
        if self._lock is not None:  # else the files are only brought into order for a process to come
            self._note_versions()
        found, self._verified = self._verified, None
        if found is None:
            self._begin_anew()
            self._checksums = {}
            return None
        if found.changes:
            self._accept(found)
        else:
            self._checksums = dict(found.checksums)
            self._cut_lines()
        for damaged in checkpoints(self.folder):
            if damaged.name > found.path.name:  # else it would count as one of the last two
                file_calls.current.rename(damaged, damaged.with_suffix(".damaged"))
        if found.saved.get("best"):  # the process may have ended before it was given that name
            _copy_cheaply(found.path, found.path.with_name("best"))
        return dict(found.saved["state"])

    def _cut_lines(self) -> None:
        """Cut the files of lines back to their known lengths. None of them shares its content with a hard link then."""
        for name in (*_EXACT, "timing"):
            if (lines := self.folder / f"{name}.jsonl").exists():
                _separate(lines)
                if name in _EXACT:
                    truncate_file(lines, self._checksum(name).size)

    def _accept(self, found: _Found) -> None:
        """Make a run whole again whose files were changed from outside: lines that cannot be read are left out, the
        change is noted, and the checkpoint is tied to the files as they are now.

        A process that is killed here leaves a run for which `verify` finds a change again.
        """
        step, changes = int(found.path.name), list(found.changes)
        self._checksums = {name: sum_ for name, sum_ in found.checksums.items() if name not in found.altered}
        for name in found.altered:
            kept, left_out = self._keep_readable(name, step)
            changes.append(f"{name}.jsonl: {kept:,} lines kept, {left_out:,} left out that cannot be read")
        self._cut_lines()
        notes = self.folder / f"{CHANGES}.jsonl"
        line = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "changes": changes}
        write_whole(notes, notes.read_bytes() if notes.exists() else b"", msgspec.json.encode(line) + b"\n")
        write_checkpoint(found.path, {**found.saved, **self._ties()})

    def _keep_readable(self, name: str, step: int) -> tuple[int, int]:
        """Rewrite a file of lines with those up to a step that can be read; the file as it was is kept beside it.
        Gives how many lines were kept, and how many were left out because they cannot be read."""
        path = self.folder / f"{name}.jsonl"
        kept, left_out = [], 0
        if path.exists():
            for line in _read_raw_lines(path, MAX_LINES_BYTES):
                at = _read_step(name, line)
                if at is None:
                    left_out += 1
                elif at <= step:
                    kept.append(line)
            _copy_cheaply(path, _free_name(path))
        write_whole(path, *kept)
        self._checksums.pop(name, None)  # to be read anew
        return len(kept), left_out

    def _begin_anew(self) -> None:
        """Sets aside the lines of a run that ended before its first checkpoint. Not of one that was saved: its
        checkpoints were deleted, and its lines are all there is."""
        if (self.folder / SAVED).exists():
            raise UserError(f"{self.folder} has no checkpoint any more, so it cannot go on; begin it in another folder")
        written = [self.folder / f"{name}.jsonl" for name in _EXACT if self._size(name)]
        if written:
            warn(f"{self.folder} was never saved, so it begins anew; what it wrote is kept in files that end in .old")
        for lines in written:
            file_calls.current.rename(lines, _free_name(lines))

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
                file_calls.current.unlink(path, missing_ok=True)
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
                stack.callback(file_calls.current.close, self._lock)
                self._lock = None
            for file in self._files.values():
                stack.callback(file.close)
            self._files = {}

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_config_changes(path: Path, saved: State, config: RunConfig) -> list[str]:
    """Say in words in which keys a config differs from that of the checkpoint at `path`; empty if in none, or if an
    earlier version wrote the checkpoint. Raises `UserError` if it holds something else."""
    if saved.get("config") is None:
        return []
    try:
        return list_differences(str(saved["config"]), config)
    except ConfigError as error:
        raise UserError(f"the config in {path} {error}") from None


def _read_ties(path: Path, saved: State) -> tuple[dict[str, int], dict[str, str] | None]:
    """What a checkpoint says of the files of lines: lengths, and checksums, which are None in those of earlier
    versions. Raises `UserError` if it is not a checkpoint of a run."""
    sizes, digests = saved.get("sizes"), saved.get("digests")
    if (
        isinstance(saved.get("state"), dict)
        and isinstance(sizes, dict)
        and all(isinstance(size, int) and size >= 0 for size in sizes.values())
        and isinstance(digests, dict | None)
    ):
        return sizes, digests
    raise UserError(f"{path} is not the checkpoint of a run; move it away, or begin the run in another folder")


class _MetricsLine(msgspec.Struct):
    step: int


class _RoomsLine(msgspec.Struct):
    step: int
    origin: str
    action: str
    target: str


_LINES: dict[str, msgspec.json.Decoder[_MetricsLine | EpisodeRecord | _RoomsLine]] = {
    "metrics": msgspec.json.Decoder(_MetricsLine),
    "episodes": msgspec.json.Decoder(EpisodeRecord),
    "rooms": msgspec.json.Decoder(_RoomsLine),
}
"""What a line of each exact file must have to be readable."""


def _read_step(name: str, line: bytes) -> int | None:
    """The step that a line of an exact file belongs to; None if the line cannot be read."""
    if line.endswith(b"\n"):
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            return _LINES[name].decode(line).step
    return None


def _describe_damage(name: str, path: Path, size: int) -> str:
    """Say where the first `size` bytes of an exact file show that they were changed."""
    for number, line in enumerate(_read_raw_lines(path, size), 1):
        if _read_step(name, line) is None:
            return f"is damaged: line {number} cannot be read"
    return "is not what was written: lines differ"


def _read_raw_lines(path: Path, max_bytes: int) -> Iterator[bytes]:
    """The lines in the first `max_bytes` bytes of a file, without a line that goes on behind them. Of a line that is
    longer than any of a run only the beginning is given, without its end."""
    with open_readable(path) as file:
        is_beginning = True
        while part := file.readline(min(MAX_LINE_BYTES, max_bytes)):
            max_bytes -= len(part)
            is_end = part.endswith(b"\n")
            if is_beginning and (is_end or max_bytes > 0):
                yield part
            is_beginning = is_end


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
        return sorted((p for p in (folder / "checkpoints").iterdir() if _STEP.fullmatch(p.name)), reverse=True)
    return []


def read_newest(folder: Path, on_warning: Callable[[str], None] = warn) -> State | None:
    """The newest checkpoint that can be read; a damaged one is passed over with a warning. None if there is none."""
    return find_newest(folder, on_warning)[1]


def find_newest(folder: Path, on_warning: Callable[[str], None] = warn) -> tuple[Path | None, State | None]:
    """Where the newest checkpoint is that can be read, and what it holds. Damaged ones are passed over; one that may be
    good but cannot be read now, because of permissions or the disk, is a `UserError`."""
    paths, troubles = checkpoints(folder), []
    for path in paths:
        try:
            saved = read_checkpoint(path)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise _refuse_unreadable(path, paths, error) from None
            troubles.append(f"the checkpoint {path} cannot be read ({error})")
            continue
        except ValueError as error:
            troubles.append(f"the checkpoint {path} cannot be read ({error})")
            continue
        for trouble in troubles:
            on_warning(f"{trouble}; going on from the one before")
        return path, saved
    if paths:
        raise UserError(f"no checkpoint in {folder} can be read; start the run again in another folder")
    return None, None


def _refuse_unreadable(path: Path, paths: list[Path], error: OSError) -> UserError:
    """`paths`: all checkpoints, newest first."""
    line = f"the checkpoint {path} cannot be read ({error.strerror}); try again when that is put right"
    return UserError(f"{line}, or move it away to go on from the one before" if path != paths[-1] else line)


def read_config(folder: Path) -> RunConfig:
    """What the run in this folder was asked for."""
    path = folder / "config.json"
    try:
        content = read_bounded(path, _LARGEST_CONFIG)
        check_bounds(content)
        return decode_config(content)
    except OSError as error:
        raise UserError(f"{folder} is not a run ({error.strerror}: config.json); give the folder of one") from None
    except ConfigError as error:
        raise UserError(f"{path} {error}") from None
    except BadFileError as error:
        raise UserError(f"{path} is damaged ({error}); start the run again in another folder") from None


def read_lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """The lines of one of the run's .jsonl files; a last line that is still being written is left out."""
    return read_json_lines(folder / f"{name}.jsonl")


def read_episodes(folder: Path) -> list[EpisodeRecord]:
    """All finished episodes. Raises `BadFileError` also for numbers that no episode has, or steps that go back."""
    episodes: list[EpisodeRecord] = []
    step = 0
    for episode in read_json_lines(folder / "episodes.jsonl", EpisodeRecord):
        figures = (episode.episode, episode.game, episode.score, episode.peak, episode.length, episode.seed)
        if not step <= episode.step < MAX_NUMBER or max(map(abs, figures)) >= MAX_NUMBER or episode.length < 0:
            raise BadFileError(f"line {len(episodes) + 1}: numbers that no episode has")
        step = episode.step
        episodes.append(episode)
    return episodes


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
        "processors": len(usable_processors()),
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
        with create_file(temporary) as file:
            file.writelines(pieces)
            file.flush()
            file_calls.current.sync(file.fileno())
        file_calls.current.rename(temporary, path)
    except BaseException:
        file_calls.current.unlink(temporary, missing_ok=True)
        raise


def replace_text(path: Path, text: str) -> None:
    """The same for a text."""
    write_whole(path, text.encode("utf-8", "backslashreplace"))
