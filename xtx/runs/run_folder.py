"""The folder of a run: every file in it, and the checkpoints from which the run can continue.

config.json      the settings of the run
versions.json    what it ran with: Python, packages, git state, machine; one entry for each start
metrics.jsonl    one line every `log_every` vector steps; the same whatever happened to the process in between
episodes.jsonl   one line for each finished episode, likewise
rooms.jsonl      one line for each way between two rooms, when it is found, likewise
timing.jsonl     what may differ from start to start: clock, speed, memory
live.json        the newest turns of the first game, for `xtx watch`; replaced every few seconds
loggers.json     TensorBoard and Weights & Biases, if the run logs to them, for when it goes on
changes.jsonl    one line for each `xtx resume --accept-changes`: what was changed from outside, and at which step
checkpoints/     the last two states of the whole run, and `best`: the state at the best mean score
saved            empty; exists since the first checkpoint: a run that has it but no checkpoint is not begun again
lock             locked by the process that works on the run

Reading these files executes no code: they are JSON, and checkpoints of plain arrays (see `write_checkpoint`).

A checkpoint contains the config that it was made with, and the length and a checksum of metrics.jsonl, episodes.jsonl
and rooms.jsonl up to that moment. If the files do not match the checkpoint, the run continues only if the user accepts
the changes. Checkpoints of earlier versions contain the lengths alone; the next one is complete.
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

from xtx.files import system_calls
from xtx.files.bounded_reads import (
    MAX_LINE_BYTES,
    MAX_LINES_BYTES,
    BadFileError,
    check_bounds,
    read_bounded,
    read_json,
    read_json_lines,
)
from xtx.config.settings import RunConfig
from xtx.config.config_file import ConfigError, decode_config, dump_config, encode_config, list_differences
from xtx.core import EpisodeRecord, State, UserError
from xtx.core import warn as warn
from xtx.cpu_count import usable_processors
from xtx.files.regular_files import (
    check_folders,
    check_regular,
    create_file,
    open_append,
    open_readable,
    open_regular,
    touch_file,
    truncate_file,
)
from xtx.search_versions import search_versions
from xtx.shell_command import format_command

_MAGIC = b"xtx checkpoint 1"
"""The first bytes of a checkpoint, with the version of the format."""
_DIGEST_BYTES = 32
"""Size of a checksum (BLAKE2b)."""
MAX_CHECKPOINTS = 2
"""Numbered checkpoints that are kept: if the newest is damaged, the run continues from the one before."""
_EXACT = ("metrics", "episodes", "rooms")
"""Names of the .jsonl files whose content is the same whatever happened to the process."""
SAVED = "saved"
"""Name of an empty file whose existence says that there was a checkpoint."""
CHANGES = "changes"
"""Name of the .jsonl file of accepted changes."""
_WRITTEN = (*(f"{name}.jsonl" for name in (*_EXACT, "timing", CHANGES)), "versions.json", SAVED, "lock")
_UNFINISHED = re.compile(r"\.\w+\.(jsonl?|png)\.(\d+|old(-\d+)?)")
"""Names of temporary files, which are left when a process is killed while writing."""
_BLOCK_BYTES = 1 << 20
"""Bytes of one read when a checksum is computed: a whole checkpoint need not fit into memory."""
_MAX_CONFIG_BYTES = 1 << 20
"""Limits the size of config.json; the largest preset's has 2,000 bytes."""
MAX_NUMBER = 2**53
"""Steps and scores of a run are below this, so that float64 represents them exactly."""
_MAX_CHECKPOINT_BYTES = 64 << 30
"""Limits the size of a checkpoint; the largest, with a full replay memory, have some 100 MB."""
_NO_FILE = (errno.ENOENT, errno.EINVAL, errno.ELOOP, errno.ENXIO)
"""Errors of opening a file that mean that no regular file has the name. Others may be temporary."""
_STEP = re.compile(r"[0-9]{1,18}")
"""The name of a checkpoint: its game steps."""
_PACKAGES = ("xtx", "torch", "numpy", "jericho", "lmdb", "safetensors", "msgspec")


# --- checkpoints ------------------------------------------------------------------------------------------------


def write_checkpoint(path: Path, state: State) -> None:
    """Write a state atomically: nested dictionaries and lists of arrays, numbers, strings, booleans, None.

    The file has a magic number, a checksum, and a safetensors file of all arrays whose metadata is the rest as JSON.
    """
    arrays: dict[str, NDArray[Any]] = {}
    tree = _extract_arrays(state, arrays)
    content = save_arrays(arrays, {"tree": json.dumps(tree)})
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
    write_whole(path, _MAGIC, digest, content)
    _sync_folder(path.parent)


def read_checkpoint(path: Path) -> State:
    """Read a state from a checkpoint. Raises `ValueError` if the file is damaged, or `OSError`.

    The checksum is verified block by block before the file is read into memory.
    """
    with open_readable(path) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("not a checkpoint of xtx")
        if os.fstat(file.fileno()).st_size > _MAX_CHECKPOINT_BYTES:
            raise ValueError(f"larger than {_MAX_CHECKPOINT_BYTES:,} bytes")
        expected, found = file.read(_DIGEST_BYTES), hashlib.blake2b(digest_size=_DIGEST_BYTES)
        while block := file.read(_BLOCK_BYTES):
            found.update(block)
        if expected != found.digest():
            raise ValueError("damaged")
        file.seek(len(_MAGIC) + _DIGEST_BYTES)
        content = file.read()
    try:
        arrays = load_arrays(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        state = _insert_arrays(json.loads(header["__metadata__"]["tree"]), arrays)
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"damaged ({error})") from None
    if not isinstance(state, dict):
        raise ValueError("damaged")
    return state


def _extract_arrays(tree: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Move the arrays of a state into `arrays`, and return the state with a reference in the place of each."""
    if isinstance(tree, Mapping):
        if tree.keys() in ({"array"}, {"bytes"}) or not all(isinstance(key, str) for key in tree):
            raise TypeError(f"a state's keys are strings, and not `array` or `bytes` alone: {list(tree)[:3]}")
        return {key: _extract_arrays(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_extract_arrays(value, arrays) for value in tree]
    if isinstance(tree, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.asarray(tree, order="C")  # ascontiguousarray would make a scalar one-dimensional
        return {"array": name}
    if isinstance(tree, bytes):
        return {"bytes": tree.hex()}
    if isinstance(tree, np.generic):
        return tree.item()
    return tree


def _insert_arrays(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return a state with its arrays in the place of the references."""
    if isinstance(tree, dict):
        if tree.keys() == {"array"}:
            return arrays[tree["array"]]
        if tree.keys() == {"bytes"}:
            return bytes.fromhex(tree["bytes"])
        return {key: _insert_arrays(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_insert_arrays(value, arrays) for value in tree]
    return tree


def link_or_copy(path: Path, target: Path) -> None:
    """Make a hard link to a file that will not be written to again; a copy if the file system has no hard links."""
    if target.exists() and target.samefile(path):  # renaming one link of a file to another would do nothing
        return
    new = target.with_name(f".{target.name}")
    system_calls.current.unlink(new, missing_ok=True)
    try:
        system_calls.current.link(path, new)
    except OSError:  # EPERM, ENOTSUP, EMLINK or ENOSYS, by file system; on a full disk the copy fails too
        _copy_file(path, new)
    system_calls.current.rename(new, target)


def _copy_file(path: Path, new: Path) -> None:
    """Copy a file to a new name, on disk when this returns."""
    try:
        with open_readable(path) as file, create_file(new) as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            system_calls.current.sync(copy.fileno())
    except BaseException:
        system_calls.current.unlink(new, missing_ok=True)
        raise


def _break_links(path: Path) -> None:
    """Replace a file that has several hard links by a copy: a backup made of links must not change with it."""
    if path.lstat().st_nlink > 1:
        new = path.with_name(f".{path.name}.{os.getpid()}")
        _copy_file(path, new)
        system_calls.current.rename(new, path)


def _sync_folder(folder: Path) -> None:
    """Write a folder's names to disk: a new file is safe only after that."""
    descriptor = system_calls.current.open(folder, os.O_RDONLY)
    try:
        system_calls.current.sync(descriptor)
    finally:
        system_calls.current.close(descriptor)


# --- the folder -------------------------------------------------------------------------------------------------


class _Checksum:
    """The length and the checksum of a .jsonl file, updated with every line."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def add(self, content: bytes) -> None:
        """Add bytes that are appended to the file."""
        self.size += len(content)
        self._hash.update(content)

    def add_file(self, path: Path, most: int) -> None:
        """Add the first `most` bytes of a file; nothing if it is missing."""
        with contextlib.suppress(FileNotFoundError), open_readable(path) as file:
            while block := file.read(min(_BLOCK_BYTES, most)):
                most -= len(block)
                self.add(block)

    def digest(self) -> str:
        """Return the checksum so far, in hexadecimal."""
        return self._hash.copy().hexdigest()


@dataclass(frozen=True)
class _Verification:
    """The newest readable checkpoint, and how it differs from the other files of the run."""

    path: Path
    saved: State
    checksums: dict[str, _Checksum]
    """For each file of `_EXACT`, its checksum up to the length that the checkpoint records."""
    altered: list[str]
    """The names of those files that differ from the checkpoint."""
    changes: list[str]
    """All differences, as text, each with the name of its file."""


class Run:
    """The folder of a run, opened and locked by the one process that works on it."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.config = config
        self._lock: int | None = None
        self._files: dict[str, IO[bytes]] = {}
        self._has_new_names = True
        """Whether files may have been created since the folder was last written to disk."""
        self._checksums: dict[str, _Checksum] = {}
        """By name, the checksums of the files of `_EXACT` that were computed already; see `_checksum`."""
        self._verification: _Verification | None = None
        self.restored_from: Path | None = None
        """The checkpoint that `verify` read."""
        self._has_noted_versions = False
        """Whether versions.json has an entry for this start."""
        self._has_created_folder = False
        """Whether `create` created the folder."""

    @classmethod
    def create(cls, folder: Path, config: RunConfig) -> Run:
        """Create the folder of a new run, or use an empty one. Raises `UserError` if it cannot."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            hint = f"go on with: {format_command('resume', folder)}" if (folder / "config.json").exists() else "give another --out"
            raise UserError(f"{folder} exists already; {hint}")
        made = not folder.exists()
        try:
            (folder / "checkpoints").mkdir(parents=True)
            replace_text(folder / "config.json", encode_config(config))
        except OSError as error:
            raise UserError(f"{folder} cannot be written ({error.strerror}); give another --out") from None
        run = cls(folder, config)
        run._has_created_folder = made
        run._lock_folder()
        run._note_versions()
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open the folder of an existing run to continue it. Raises `UserError` if it cannot."""
        run = cls(folder, read_config(folder))
        run._lock_folder()
        return run

    def _lock_folder(self) -> None:
        """Check the folder's files, lock it, and delete temporary files of a process that was killed."""
        self._check_files()
        self._lock = open_regular(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            system_calls.current.close(self._lock)
            self._lock = None
            raise UserError(f"another process works on {self.folder}; wait for it, or end it first") from None
        system_calls.current.make_folder(self.folder / "checkpoints")
        unfinished = [path for path in self.folder.glob(".*") if _UNFINISHED.fullmatch(path.name)]
        for path in [*unfinished, *(self.folder / "checkpoints").glob(".*")]:
            if path.is_symlink() or not path.is_dir():
                system_calls.current.unlink(path)

    def _check_files(self) -> None:
        """Raise `UserError` if a file of the run is a link, a pipe or a folder; nothing has been written then."""
        for name in _WRITTEN:
            check_regular(self.folder / name)
        check_folders([self.folder / "checkpoints"])

    def _note_versions(self) -> None:
        """Add an entry to versions.json, once for each start: not before the run actually continues."""
        if self._has_noted_versions:
            return
        self._has_noted_versions = True
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
        """Append a line to one of the .jsonl files, given by its name without the suffix."""
        if name not in self._files:
            if name in _EXACT:
                self._checksum(name)  # computed from the file, so before the line is added
            self._files[name] = open_append(self.folder / f"{name}.jsonl")
            self._has_new_names = True
        content = msgspec.json.encode(line) + b"\n"
        self._files[name].write(content)
        if name in _EXACT:
            self._checksums[name].add(content)

    def _checksum(self, name: str) -> _Checksum:
        """Return the checksum of a file of `_EXACT`; reads what earlier processes wrote to it."""
        if name not in self._checksums:
            checksum = _Checksum()
            checksum.add_file(self.folder / f"{name}.jsonl", self._size(name))
            self._checksums[name] = checksum
        return self._checksums[name]

    def flush(self) -> None:
        """Write buffered lines to the files, so that other processes can read them."""
        for file in self._files.values():
            file.flush()

    # --- checkpoints --------------------------------------------------------------------------------------------

    def save(self, step: int, state: State, best: bool = False) -> None:
        """Write a checkpoint with the lengths and checksums of the .jsonl files, and delete all but the last two.

        step: game steps of the run; best: whether the checkpoint also becomes `best`.
        """
        self._note_versions()
        self.flush()
        for file in self._files.values():
            system_calls.current.sync(file.fileno())
        if self._has_new_names:
            _sync_folder(self.folder)
            self._has_new_names = False
        folder = self.folder / "checkpoints"
        path = folder / f"{step:010d}"
        write_checkpoint(path, {**self._describe_files(), "best": best, "state": state})
        touch_file(self.folder / SAVED)
        if best:
            link_or_copy(path, folder / "best")
            _sync_folder(folder)  # before a later checkpoint can be named
        for old in checkpoints(self.folder)[MAX_CHECKPOINTS:]:
            system_calls.current.unlink(old)

    def _describe_files(self) -> State:
        """Return the part of a checkpoint that describes the other files: the config, and the .jsonl files so far."""
        checksums = {name: self._checksum(name) for name in _EXACT}
        return {
            "sizes": {name: checksum.size for name, checksum in checksums.items()},
            "digests": {name: checksum.digest() for name, checksum in checksums.items()},
            "config": dump_config(self.config),
        }

    def verify(self, *, accept_changes: bool = False) -> list[str]:
        """Read the newest good checkpoint for `restore`, and compare the config and the .jsonl files with it.

        Returns the differences as text. Raises `UserError` if there are any and they are not accepted. Writes nothing.
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
                f"go on with the change, if it is meant: {format_command('resume', self.folder, '--accept-changes')}"
            )
        self._verification = found
        return found.changes

    @property
    def saved_state(self) -> State | None:
        """The state that `verify` read and `restore` will return; None if there is none."""
        return None if self._verification is None else self._verification.saved["state"]

    def _compare(self, path: Path, saved: State) -> _Verification:
        """Compare a checkpoint with the config and the .jsonl files."""
        sizes, digests = _read_file_descriptions(path, saved)
        changes = [f"config.json: {change}" for change in find_config_changes(path, saved, self.config)]
        checksums, altered = {}, []
        for name in _EXACT:
            checksum, size = _Checksum(), sizes.get(name, 0)
            lines = self.folder / f"{name}.jsonl"
            checksum.add_file(lines, size)
            difference = ""
            if checksum.size < size:
                short = f"is shorter than it was: {checksum.size:,} of {size:,} bytes"
                difference = short if lines.exists() else "is missing"
            elif digests is not None and checksum.digest() != digests.get(name):
                difference = _describe_damage(name, lines, size)
            if difference:
                altered.append(name)
                changes.append(f"{name}.jsonl {difference}")
            checksums[name] = checksum
        return _Verification(path, saved, checksums, altered, changes)

    def restore(self) -> State | None:
        """Return the newest good state, and cut the .jsonl files back to it; None if there is no checkpoint yet.

        Raises `UserError` if files were changed and `verify` was not called with `accept_changes`.
        """
        if self._verification is None:
            self.verify()
        if self._lock is not None:  # without the lock the files are only put in order for another process
            self._note_versions()
        found, self._verification = self._verification, None
        if found is None:
            self._set_aside_lines()
            self._checksums = {}
            return None
        if found.changes:
            self._accept_changes(found)
        else:
            self._checksums = dict(found.checksums)
            self._cut_lines()
        for damaged in checkpoints(self.folder):
            if damaged.name > found.path.name:  # otherwise it would count as one of the last two
                system_calls.current.rename(damaged, damaged.with_suffix(".damaged"))
        if found.saved.get("best"):  # the process may have ended before it made that link
            link_or_copy(found.path, found.path.with_name("best"))
        return dict(found.saved["state"])

    def _cut_lines(self) -> None:
        """Cut the .jsonl files back to the lengths of the checkpoint; files with several hard links are copied
        first."""
        for name in (*_EXACT, "timing"):
            if (lines := self.folder / f"{name}.jsonl").exists():
                _break_links(lines)
                if name in _EXACT:
                    truncate_file(lines, self._checksum(name).size)

    def _accept_changes(self, found: _Verification) -> None:
        """Adopt changed files: drop unreadable lines, record the changes, and write the checkpoint again to match.

        If the process is killed here, `verify` finds a change again.
        """
        step, changes = int(found.path.name), list(found.changes)
        self._checksums = {name: known for name, known in found.checksums.items() if name not in found.altered}
        for name in found.altered:
            kept, left_out = self._keep_readable(name, step)
            changes.append(f"{name}.jsonl: {kept:,} lines kept, {left_out:,} left out that cannot be read")
        self._cut_lines()
        notes = self.folder / f"{CHANGES}.jsonl"
        line = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "changes": changes}
        write_whole(notes, notes.read_bytes() if notes.exists() else b"", msgspec.json.encode(line) + b"\n")
        write_checkpoint(found.path, {**found.saved, **self._describe_files()})

    def _keep_readable(self, name: str, step: int) -> tuple[int, int]:
        """Rewrite a .jsonl file with its readable lines up to a step; the old file is kept beside it.

        Returns the numbers of lines that were kept, and that were left out because they cannot be read.
        """
        path = self.folder / f"{name}.jsonl"
        kept, left_out = [], 0
        if path.exists():
            for line in _read_raw_lines(path, MAX_LINES_BYTES):
                at = _read_step(name, line)
                if at is None:
                    left_out += 1
                elif at <= step:
                    kept.append(line)
            link_or_copy(path, _free_name(path))
        write_whole(path, *kept)
        self._checksums.pop(name, None)  # computed again from the new file
        return len(kept), left_out

    def _set_aside_lines(self) -> None:
        """Rename the .jsonl files of a run that ended before its first checkpoint, so that it begins again.

        Raises `UserError` for a run whose checkpoints were deleted: its lines are all that is left of it.
        """
        if (self.folder / SAVED).exists():
            raise UserError(f"{self.folder} has no checkpoint any more, so it cannot go on; begin it in another folder")
        written = [self.folder / f"{name}.jsonl" for name in _EXACT if self._size(name)]
        if written:
            warn(f"{self.folder} was never saved, so it begins anew; what it wrote is kept in files that end in .old")
        for lines in written:
            system_calls.current.rename(lines, _free_name(lines))

    def discard_unused(self) -> None:
        """Delete the files of a new run that failed before its first line, and the folder if `create` created it."""
        self.flush()
        if checkpoints(self.folder) or any(self._size(name) for name in _EXACT):
            return
        self.close()
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                system_calls.current.unlink(path, missing_ok=True)
        if self._has_created_folder:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def _size(self, name: str) -> int:
        """Return the size of a .jsonl file; 0 if it is missing."""
        path = self.folder / f"{name}.jsonl"
        return path.stat().st_size if path.exists() else 0

    def close(self) -> None:
        """Close the files and release the lock."""
        with contextlib.ExitStack() as stack:  # closes all of them, also if the disk is full
            if self._lock is not None:
                stack.callback(system_calls.current.close, self._lock)
                self._lock = None
            for file in self._files.values():
                stack.callback(file.close)
            self._files = {}

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_config_changes(path: Path, saved: State, config: RunConfig) -> list[str]:
    """Return the differences between a config and that of the checkpoint at `path`, as text; none if an earlier version
    wrote the checkpoint. Raises `UserError` if the checkpoint's config cannot be read."""
    if saved.get("config") is None:
        return []
    try:
        return list_differences(str(saved["config"]), config)
    except ConfigError as error:
        raise UserError(f"the config in {path} {error}") from None


def _read_file_descriptions(path: Path, saved: State) -> tuple[dict[str, int], dict[str, str] | None]:
    """Return lengths and checksums of the .jsonl files, by name, from a checkpoint; earlier versions have no checksums,
    which are None then. Raises `UserError` if it is not the checkpoint of a run."""
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
"""Decoders for the lines of the files of `_EXACT`: a line is readable if it has these fields."""


def _read_step(name: str, line: bytes) -> int | None:
    """Return the step of a line of a file of `_EXACT`; None if the line cannot be read."""
    if line.endswith(b"\n"):
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            return _LINES[name].decode(line).step
    return None


def _describe_damage(name: str, path: Path, size: int) -> str:
    """Describe how the first `size` bytes of a file of `_EXACT` were changed."""
    for number, line in enumerate(_read_raw_lines(path, size), 1):
        if _read_step(name, line) is None:
            return f"is damaged: line {number} cannot be read"
    return "is not what was written: lines differ"


def _read_raw_lines(path: Path, max_bytes: int) -> Iterator[bytes]:
    """Yield the lines in the first `max_bytes` bytes of a file, without a line that continues behind them.

    Of a line longer than `MAX_LINE_BYTES` only the beginning is yielded, without the line end.
    """
    with open_readable(path) as file:
        is_beginning = True
        while part := file.readline(min(MAX_LINE_BYTES, max_bytes)):
            max_bytes -= len(part)
            is_end = part.endswith(b"\n")
            if is_beginning and (is_end or max_bytes > 0):
                yield part
            is_beginning = is_end


def _free_name(lines: Path) -> Path:
    """Return an unused name beside a file: its own with `.old`, and a number if that is taken."""
    number, free = 1, lines.with_name(f"{lines.name}.old")
    while free.exists():
        number += 1
        free = lines.with_name(f"{lines.name}.old-{number}")
    return free


def checkpoints(folder: Path) -> list[Path]:
    """Return the numbered checkpoints of a run, newest first."""
    with contextlib.suppress(OSError):
        return sorted((p for p in (folder / "checkpoints").iterdir() if _STEP.fullmatch(p.name)), reverse=True)
    return []


def find_newest(folder: Path, on_warning: Callable[[str], None] = warn) -> tuple[Path | None, State | None]:
    """Find and read the newest good checkpoint; returns its path and content, or None twice if there is none.

    Damaged ones are skipped with a warning. Raises `UserError` if all are damaged, or for one that cannot be read now
    but may be good, because of permissions or the disk.
    """
    paths, warnings = checkpoints(folder), []
    for path in paths:
        try:
            saved = read_checkpoint(path)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise _refuse_unreadable(path, paths, error) from None
            warnings.append(f"the checkpoint {path} cannot be read ({error})")
            continue
        except ValueError as error:
            warnings.append(f"the checkpoint {path} cannot be read ({error})")
            continue
        for warning in warnings:
            on_warning(f"{warning}; going on from the one before")
        return path, saved
    if paths:
        raise UserError(f"no checkpoint in {folder} can be read; start the run again in another folder")
    return None, None


def _refuse_unreadable(path: Path, paths: list[Path], error: OSError) -> UserError:
    """Return the error for a checkpoint that cannot be read now. `paths`: all checkpoints, newest first."""
    line = f"the checkpoint {path} cannot be read ({error.strerror}); try again when that is put right"
    return UserError(f"{line}, or move it away to go on from the one before" if path != paths[-1] else line)


def read_config(folder: Path) -> RunConfig:
    """Read the config of a run. Raises `UserError` if the folder is not a run, or config.json cannot be used."""
    path = folder / "config.json"
    try:
        content = read_bounded(path, _MAX_CONFIG_BYTES)
        check_bounds(content)
        return decode_config(content)
    except OSError as error:
        raise UserError(f"{folder} is not a run ({error.strerror}: config.json); give the folder of one") from None
    except ConfigError as error:
        raise UserError(f"{path} {error}") from None
    except BadFileError as error:
        raise UserError(f"{path} is damaged ({error}); start the run again in another folder") from None


def read_lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of one of the run's .jsonl files, without a last line that is still being written."""
    return read_json_lines(folder / f"{name}.jsonl")


def read_episodes(folder: Path) -> list[EpisodeRecord]:
    """Return all finished episodes. Raises `BadFileError` for a damaged file, impossible numbers or decreasing
    steps."""
    episodes: list[EpisodeRecord] = []
    step = 0
    for episode in read_json_lines(folder / "episodes.jsonl", EpisodeRecord):
        figures = (episode.episode, episode.game, episode.score, episode.peak, episode.length, episode.seed)
        if not step <= episode.step < MAX_NUMBER or max(map(abs, figures)) >= MAX_NUMBER or episode.length < 0:
            raise BadFileError(f"line {len(episodes) + 1}: numbers that no episode has")
        step = episode.step
        episodes.append(episode)
    return episodes


# --- versions ----------------------------------------------------------------------------------------------


def versions() -> dict[str, object]:
    """Return the versions that the program runs with: Python, packages, machine, commit; and the time."""
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
        "searching": search_versions(),
    }


def git_state() -> str:
    """Return the commit of the program's own source, with a star if files were changed; empty outside a checkout."""
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
    """Write a file atomically: on disk under its name with all pieces, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with create_file(temporary) as file:
            file.writelines(pieces)
            file.flush()
            system_calls.current.sync(file.fileno())
        system_calls.current.rename(temporary, path)
    except BaseException:
        system_calls.current.unlink(temporary, missing_ok=True)
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically; characters that are not Unicode are escaped."""
    write_whole(path, text.encode("utf-8", "backslashreplace"))
