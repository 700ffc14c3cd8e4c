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
import fcntl
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from xtx.config.config_file import dump_config, encode_config
from xtx.config.settings import RunConfig
from xtx.core import State, UserError, warn
from xtx.files import system_calls
from xtx.files.atomic_writes import replace_text, write_atomically
from xtx.files.bounded_reads import MAX_LINES_BYTES, BadFileError, read_json
from xtx.files.file_copies import break_links, link_or_copy, sync_folder
from xtx.files.regular_files import (
    check_folders,
    check_regular,
    open_append,
    open_regular,
    touch_file,
    truncate_file,
)
from xtx.runs.checkpoint_file import MAX_CHECKPOINTS, find_newest_checkpoint, list_checkpoints, write_checkpoint
from xtx.runs.line_files import EXACT_FILES, LineChecksum, find_free_name, read_raw_lines, read_step
from xtx.runs.run_config import read_config
from xtx.runs.verification import RunVerification, compare_files
from xtx.runs.versions import collect_versions, describe_search_changes
from xtx.terminal.shell_command import format_command

SAVED = "saved"
"""Name of an empty file whose existence says that there was a checkpoint."""
CHANGES = "changes"
"""Name of the .jsonl file of accepted changes."""
_WRITTEN = (*(f"{name}.jsonl" for name in (*EXACT_FILES, "timing", CHANGES)), "versions.json", SAVED, "lock")
_UNFINISHED = re.compile(r"\.\w+\.(jsonl?|png)\.([0-9a-f]+|old(-\d+)?)")
"""Names of temporary files, which are left when a process is killed while writing."""


class Run:
    """The folder of a run, opened and locked by the one process that works on it."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.config = config
        self._lock: int | None = None
        self._files: dict[str, IO[bytes]] = {}
        self._has_new_names = True
        """Whether files may have been created since the folder was last written to disk."""
        self._checksums: dict[str, LineChecksum] = {}
        """By name, the checksums of the files of `EXACT_FILES` that were computed already; see `_get_checksum`."""
        self._verification: RunVerification | None = None
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
            hint = (
                f"go on with: {format_command('resume', folder)}"
                if (folder / "config.json").exists()
                else "give another --out"
            )
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
        """Lock the folder, and delete temporary files of a process that was killed. Raises `UserError` if a file of the
        run is a link, a pipe or a folder; nothing has been written then."""
        for name in _WRITTEN:
            check_regular(self.folder / name)
        check_folders([self.folder / "checkpoints"])
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
        if changes := describe_search_changes(known[-1] if known else None, self.config):
            warn(
                f"the search for valid actions has another version than at the last start of {self.folder}: {changes}; "
                "from here on, states may have other valid actions"
            )
        replace_text(path, json.dumps([*known, collect_versions()], indent=2) + "\n")

    # --- lines --------------------------------------------------------------------------------------------------

    def write(self, name: str, line: object) -> None:
        """Append a line to one of the .jsonl files, given by its name without the suffix."""
        if name not in self._files:
            if name in EXACT_FILES:
                self._get_checksum(name)  # computed from the file, so before the line is added
            self._files[name] = open_append(self.folder / f"{name}.jsonl")
            self._has_new_names = True
        content = msgspec.json.encode(line) + b"\n"
        self._files[name].write(content)
        if name in EXACT_FILES:
            self._checksums[name].add(content)

    def _get_checksum(self, name: str) -> LineChecksum:
        """Return the checksum of a file of `EXACT_FILES`; reads what earlier processes wrote to it."""
        if name not in self._checksums:
            checksum = LineChecksum()
            checksum.add_file(self.folder / f"{name}.jsonl", self._measure_file(name))
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
            sync_folder(self.folder)
            self._has_new_names = False
        folder = self.folder / "checkpoints"
        path = folder / f"{step:010d}"
        write_checkpoint(path, {**self._describe_files(), "best": best, "state": state})
        touch_file(self.folder / SAVED)
        if best:
            link_or_copy(path, folder / "best")
            sync_folder(folder)  # before a later checkpoint can be named
        for old in list_checkpoints(self.folder)[MAX_CHECKPOINTS:]:
            system_calls.current.unlink(old)

    def _describe_files(self) -> State:
        """Return the part of a checkpoint that describes the other files: the config, and the .jsonl files so far."""
        checksums = {name: self._get_checksum(name) for name in EXACT_FILES}
        return {
            "sizes": {name: checksum.size for name, checksum in checksums.items()},
            "digests": {name: checksum.compute_digest() for name, checksum in checksums.items()},
            "config": dump_config(self.config),
        }

    def verify(self, *, accept_changes: bool = False) -> list[str]:
        """Read the newest good checkpoint for `restore`, and compare the config and the .jsonl files with it.

        Returns the differences as text. Raises `UserError` if there are any and they are not accepted. Writes nothing.
        """
        path, saved = find_newest_checkpoint(self.folder, warn)
        self.restored_from = path
        if path is None or saved is None:
            return []
        found = compare_files(self.folder, self.config, path, saved)
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
        for damaged in list_checkpoints(self.folder):
            if damaged.name > found.path.name:  # otherwise it would count as one of the last two
                system_calls.current.rename(damaged, damaged.with_suffix(".damaged"))
        if found.saved.get("best"):  # the process may have ended before it made that link
            link_or_copy(found.path, found.path.with_name("best"))
        return dict(found.saved["state"])

    def _cut_lines(self) -> None:
        """Cut the .jsonl files back to the lengths of the checkpoint; files with several hard links are copied
        first."""
        for name in (*EXACT_FILES, "timing"):
            if (lines := self.folder / f"{name}.jsonl").exists():
                break_links(lines)
                if name in EXACT_FILES:
                    truncate_file(lines, self._get_checksum(name).size)

    def _accept_changes(self, found: RunVerification) -> None:
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
        write_atomically(notes, notes.read_bytes() if notes.exists() else b"", msgspec.json.encode(line) + b"\n")
        write_checkpoint(found.path, {**found.saved, **self._describe_files()})

    def _keep_readable(self, name: str, step: int) -> tuple[int, int]:
        """Rewrite a .jsonl file with its readable lines up to a step; the old file is kept beside it.

        Returns the numbers of lines that were kept, and that were left out because they cannot be read.
        """
        path = self.folder / f"{name}.jsonl"
        kept, left_out = [], 0
        if path.exists():
            for line in read_raw_lines(path, MAX_LINES_BYTES):
                at = read_step(name, line)
                if at is None:
                    left_out += 1
                elif at <= step:
                    kept.append(line)
            link_or_copy(path, find_free_name(path))
        write_atomically(path, *kept)
        self._checksums.pop(name, None)  # computed again from the new file
        return len(kept), left_out

    def _set_aside_lines(self) -> None:
        """Rename the .jsonl files of a run that ended before its first checkpoint, so that it begins again.

        Raises `UserError` for a run whose checkpoints were deleted: its lines are all that is left of it.
        """
        if (self.folder / SAVED).exists():
            raise UserError(f"{self.folder} has no checkpoint any more, so it cannot go on; begin it in another folder")
        written = [self.folder / f"{name}.jsonl" for name in EXACT_FILES if self._measure_file(name)]
        if written:
            warn(f"{self.folder} was never saved, so it begins anew; what it wrote is kept in files that end in .old")
        for lines in written:
            system_calls.current.rename(lines, find_free_name(lines))

    def discard_unused(self) -> None:
        """Delete the files of a new run that failed before its first line, and the folder if `create` created it."""
        self.flush()
        if list_checkpoints(self.folder) or any(self._measure_file(name) for name in EXACT_FILES):
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

    def _measure_file(self, name: str) -> int:
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
