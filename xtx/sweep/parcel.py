"""Bringing a run from one machine to another, while it is written: for clusters whose machines share no folder.

A parcel is data only: lines that were added, small files, checkpoints. It is unpacked so that the run can go on from
what was unpacked, whatever is lost afterwards: a checkpoint comes after the lines that it counts on, and whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

import msgspec

from xtx.regular_files import check_folders, open_regular, touch_file
from xtx.runs import SAVED, checkpoints, read_checkpoint, write_whole

_KEPT = 2
"""Checkpoints of a run, beside the best."""
_STAYS = ("lock", "config.json", "finished", SAVED)
"""What is not brought: it belongs to the folder in which it lies."""
_NAME = re.compile(r"\w[\w.-]*")


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A part of a file: what lies behind `offset`, up to its end."""

    name: str
    offset: int
    content: bytes


class Parcel(msgspec.Struct, frozen=True, array_like=True):
    """What is new in a run's folder."""

    pieces: list[Piece]
    checkpoints: list[Piece]
    best: str = ""
    """The numbered checkpoint that is the best one too; empty if that is not new."""

    def __bool__(self) -> bool:
        return bool(self.pieces or self.checkpoints or self.best)


class Sender:
    """Finds out what is new in a run's folder since the last parcel."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: dict[str, int] = {}
        self._files: dict[str, tuple[int, int]] = {}
        self._sent: dict[str, tuple[int, int]] = {}
        """Checkpoints that were sent and are still there: what tells each from all others."""
        self._best = (0, 0)

    def pack(self) -> Parcel:
        """What is new. Checkpoints are looked for first: the lines that they count on are on disk by then."""
        saved = []
        there = checkpoints(self._folder)
        self._sent = {name: known for name, known in self._sent.items() if name in {path.name for path in there}}
        for path in there[:1]:
            with contextlib.suppress(OSError), path.open("rb") as file:  # it may be deleted at any moment
                known = _tell_apart(file.fileno())
                if self._sent.get(path.name) != known:
                    self._sent[path.name] = known
                    saved.append(Piece(path.name, 0, file.read()))
        best = self._pack_best(saved)
        return Parcel(self._pack_files(), saved, best)

    def _pack_best(self, saved: list[Piece]) -> str:
        """The checkpoint that is the best; one that was not sent is added to those that are."""
        with contextlib.suppress(OSError), (self._folder / "checkpoints" / "best").open("rb") as file:
            known = _tell_apart(file.fileno())
            if known != self._best:
                self._best = known
                for name, other in self._sent.items():
                    if other == known:
                        return name
                saved.append(Piece("best", 0, file.read()))
        return ""

    def _pack_files(self) -> list[Piece]:
        pieces = []
        for path in sorted(self._folder.iterdir()):
            if path.name in _STAYS or not _NAME.fullmatch(path.name) or not path.is_file():
                continue
            with contextlib.suppress(OSError):
                if path.suffix in (".jsonl", ".txt"):
                    pieces += self._pack_lines(path)
                else:
                    about = path.stat()
                    if self._files.get(path.name) != (about.st_mtime_ns, about.st_size):
                        self._files[path.name] = about.st_mtime_ns, about.st_size
                        pieces.append(Piece(path.name, 0, path.read_bytes()))
        return pieces

    def _pack_lines(self, path: Path) -> list[Piece]:
        sent = self._lines.get(path.name, 0)
        if path.stat().st_size < sent:  # cut back: from the beginning, so that both ends agree
            sent = 0
        with path.open("rb") as file:
            file.seek(sent)
            content = file.read()
        if not content and path.name in self._lines:
            return []
        self._lines[path.name] = sent + len(content)
        return [Piece(path.name, sent, content)]


def _tell_apart(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_ino, about.st_mtime_ns


def pack_whole(folder: Path) -> Parcel:
    """All that another machine needs to go on with a run: its lines, and the newest checkpoint that can be read."""
    sender = Sender(folder)
    saved, found = [], ""
    for path in checkpoints(folder):
        with contextlib.suppress(ValueError, OSError):
            read_checkpoint(path)
            saved.append(Piece(path.name, 0, path.read_bytes()))
            found = path.name
            break
    best = folder / "checkpoints" / "best"
    with contextlib.suppress(OSError):
        if found and best.samefile(folder / "checkpoints" / found):
            return Parcel(sender._pack_files(), saved, found)
        saved.append(Piece("best", 0, best.read_bytes()))
    return Parcel(sender._pack_files(), saved)


def unpack(folder: Path, parcel: Parcel) -> None:
    """Writes a parcel into a run's folder. Raises ValueError for names that do not belong into one."""
    for piece in [*parcel.pieces, *parcel.checkpoints]:
        if not _NAME.fullmatch(piece.name) or piece.name in _STAYS:
            raise ValueError(f"a parcel with a file called {piece.name!r}")
    where = folder / "checkpoints"
    check_folders([where])
    where.mkdir(parents=True, exist_ok=True)
    for piece in parcel.pieces:
        _write_piece(folder / piece.name, piece)
    for piece in parcel.checkpoints:
        write_whole(where / piece.name, piece.content)
        touch_file(folder / SAVED)  # not before: whoever has it and no checkpoint cannot go on
    if parcel.best and (where / parcel.best).exists():
        _write_best(where, parcel.best)
    for old in checkpoints(folder)[_KEPT:]:
        old.unlink(missing_ok=True)


def _write_piece(path: Path, piece: Piece) -> None:
    if piece.offset == 0 and path.suffix not in (".jsonl", ".txt"):
        write_whole(path, piece.content)
        return
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
        if file.seek(0, os.SEEK_END) < piece.offset:
            raise ValueError(f"{path} lacks what came before")
        file.seek(piece.offset)
        file.write(piece.content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _write_best(folder: Path, name: str) -> None:
    link = folder / ".best"
    link.unlink(missing_ok=True)
    try:
        link.hardlink_to(folder / name)
    except OSError:  # no hard links here
        shutil.copyfile(folder / name, link)
    link.rename(folder / "best")
