"""Copies a run from one machine to another while it is being written, for clusters without a shared folder.

`RunFiles` is data only: new lines, small files, checkpoints. After each the copy is a run that can be continued: a
checkpoint is written atomically, after the lines that it refers to.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import msgspec

from xtx.files.atomic_writes import write_atomically
from xtx.files.file_copies import link_or_copy
from xtx.files.regular_files import check_folders, open_regular, touch_file
from xtx.runs.checkpoint_file import MAX_CHECKPOINTS, list_checkpoints, read_checkpoint
from xtx.runs.run_folder import SAVED

_NOT_COPIED = ("lock", "config.json", "finished", SAVED)
"""Files that are not copied: they are made in each folder."""
_NAME = re.compile(r"\w[\w.-]*")


class FilePiece(msgspec.Struct, frozen=True, array_like=True):
    """The content of a file from `offset` to its end."""

    name: str
    offset: int
    content: bytes


class RunFiles(msgspec.Struct, frozen=True, array_like=True):
    """The changes in a run's folder since the last ones."""

    pieces: list[FilePiece]
    checkpoints: list[FilePiece]
    best: str = ""
    """The numbered checkpoint that has become the best one; empty if none has."""

    def __bool__(self) -> bool:
        return bool(self.pieces or self.checkpoints or self.best)


class Sender:
    """Finds the changes in a run's folder since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: dict[str, int] = {}
        self._files: dict[str, tuple[int, int]] = {}
        self._sent: dict[str, tuple[int, int]] = {}
        """Checkpoints that were sent and still exist, with what identifies each."""
        self._best = (0, 0)

    def pack(self) -> RunFiles:
        """Return the changes. Checkpoints are read first: the lines that they refer to are on disk then."""
        saved = []
        there = list_checkpoints(self._folder)
        self._sent = {name: known for name, known in self._sent.items() if name in {path.name for path in there}}
        for path in there[:1]:
            with contextlib.suppress(OSError), path.open("rb") as file:  # the run may delete it at any moment
                known = _identify(file.fileno())
                if self._sent.get(path.name) != known:
                    self._sent[path.name] = known
                    saved.append(FilePiece(path.name, 0, file.read()))
        best = self._pack_best(saved)
        return RunFiles(self._pack_files(), saved, best)

    def _pack_best(self, saved: list[FilePiece]) -> str:
        """Return the name of a new best checkpoint that was sent under its number; another new one is added to
        `saved`."""
        with contextlib.suppress(OSError), (self._folder / "checkpoints" / "best").open("rb") as file:
            known = _identify(file.fileno())
            if known != self._best:
                self._best = known
                for name, other in self._sent.items():
                    if other == known:
                        return name
                saved.append(FilePiece("best", 0, file.read()))
        return ""

    def _pack_files(self) -> list[FilePiece]:
        """Return the changes of all files beside checkpoints."""
        pieces = []
        for path in sorted(self._folder.iterdir()):
            if path.name in _NOT_COPIED or not _NAME.fullmatch(path.name) or not path.is_file():
                continue
            with contextlib.suppress(OSError):
                if path.suffix in (".jsonl", ".txt"):
                    pieces += self._pack_lines(path)
                else:
                    about = path.stat()
                    if self._files.get(path.name) != (about.st_mtime_ns, about.st_size):
                        self._files[path.name] = about.st_mtime_ns, about.st_size
                        pieces.append(FilePiece(path.name, 0, path.read_bytes()))
        return pieces

    def _pack_lines(self, path: Path) -> list[FilePiece]:
        """Return the lines that a file has grown by, as one piece or none."""
        sent = self._lines.get(path.name, 0)
        if path.stat().st_size < sent:  # it was cut back: send all of it again
            sent = 0
        with path.open("rb") as file:
            file.seek(sent)
            content = file.read()
        if not content and path.name in self._lines:
            return []
        self._lines[path.name] = sent + len(content)
        return [FilePiece(path.name, sent, content)]


def _identify(descriptor: int) -> tuple[int, int]:
    """Return inode and modification time, which identify a checkpoint: it is never written to again."""
    about = os.fstat(descriptor)
    return about.st_ino, about.st_mtime_ns


def pack_whole(folder: Path) -> RunFiles:
    """Return all that another machine needs to continue a run: its lines, and the newest good checkpoint."""
    sender = Sender(folder)
    saved, found = [], ""
    for path in list_checkpoints(folder):
        with contextlib.suppress(ValueError, OSError):
            read_checkpoint(path)
            saved.append(FilePiece(path.name, 0, path.read_bytes()))
            found = path.name
            break
    best = folder / "checkpoints" / "best"
    with contextlib.suppress(OSError):
        if found and best.samefile(folder / "checkpoints" / found):
            return RunFiles(sender._pack_files(), saved, found)
        saved.append(FilePiece("best", 0, best.read_bytes()))
    return RunFiles(sender._pack_files(), saved)


def unpack(folder: Path, files: RunFiles) -> None:
    """Write files into a run's folder. Raises `ValueError` for names of files that are never copied."""
    for piece in [*files.pieces, *files.checkpoints]:
        if not _NAME.fullmatch(piece.name) or piece.name in _NOT_COPIED:
            raise ValueError(f"a file that is not copied, called {piece.name!r}")
    where = folder / "checkpoints"
    check_folders([where])
    where.mkdir(parents=True, exist_ok=True)
    for piece in files.pieces:
        _write_piece(folder / piece.name, piece)
    for piece in files.checkpoints:
        write_atomically(where / piece.name, piece.content)
        touch_file(folder / SAVED)  # not before: a run with this file but no checkpoint cannot continue
    if files.best and (where / files.best).exists():
        link_or_copy(where / files.best, where / "best")
    for old in list_checkpoints(folder)[MAX_CHECKPOINTS:]:
        old.unlink(missing_ok=True)


def _write_piece(path: Path, piece: FilePiece) -> None:
    """Append a piece to a file of lines, or replace another file by it."""
    if piece.offset == 0 and path.suffix not in (".jsonl", ".txt"):
        write_atomically(path, piece.content)
        return
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
        if file.seek(0, os.SEEK_END) < piece.offset:
            raise ValueError(f"{path} is shorter than the {piece.offset:,} bytes before the new ones")
        file.seek(piece.offset)
        file.write(piece.content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
