"""Run folders, looked at again and again: what has changed since, as pieces of a page.

Folders may be written, deleted or half copied at any moment. What can be read is shown, what cannot is named, and
whatever else goes wrong leaves the last good page as it was.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from xtx.report.build import build, make_of_readable
from xtx.report.by_run import FindTurns
from xtx.report.document import Document
from xtx.report.groups import Board, FindFacts
from xtx.report.html import Piece, body, top
from xtx.report.load import RunData, Unreadable, read_runs, runs_below
from xtx.runs import warn
from xtx.web.now import FILES, panels

SEEK_EVERY = 5.0
"""Seconds between two searches for new runs."""
MOST_TROUBLES = 50
TITLE = "Runs, live"


@dataclass(frozen=True)
class Snapshot:
    """The page at one moment."""

    document: Document = field(default_factory=lambda: Document("Runs", "Nothing was read yet.", []))
    pieces: Sequence[Piece] = ()
    version: int = 0
    shaped: int = 0
    """The version since which pieces have only been replaced; none came, went or moved."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """The version in which each piece last changed."""

    def since(self, version: int) -> dict[str, str] | None:
        """The pieces that are newer than a version; None if the whole page has to be read again."""
        if version < self.shaped or version > self.version:
            return None
        return {piece.id: piece.html for piece in self.pieces if piece.id and self.changed[piece.id] > version}

    def next(self, document: Document, pieces: Sequence[Piece]) -> Snapshot:
        """The page a moment later; the same object if nothing is different."""
        before = {piece.id: piece.html for piece in self.pieces if piece.id}
        now = self.version + 1
        changed = {
            piece.id: self.changed[piece.id] if before.get(piece.id) == piece.html else now
            for piece in pieces
            if piece.id
        }
        same_shape = self.version > 0 and _shape(document, pieces) == _shape(self.document, self.pieces)
        if same_shape and now not in changed.values():
            return self
        return Snapshot(document, pieces, now, self.shaped if same_shape else now, changed)


def _shape(document: Document, pieces: Sequence[Piece]) -> list[str]:
    """All but what is in the pieces."""
    return [top(document), *(piece.id or piece.html for piece in pieces)]


@dataclass(frozen=True)
class _Known:
    """A run as it was read, and what its files were like then."""

    marks: object
    run: RunData | Unreadable


class Watcher:
    """Looks at folders. One thread at a time looks; any may read `snapshot`."""

    def __init__(self, paths: Sequence[Path], find_facts: FindFacts, find_turns: FindTurns = lambda run: ()) -> None:
        self.start = secrets.token_hex(4)
        """Tells versions of this process from those of another."""
        self.snapshot = Snapshot()
        self._paths = paths
        self._find_facts = find_facts
        self._find_turns = find_turns
        self._folders: list[Path] = []
        self._runs: dict[Path, _Known] = {}
        self._page: tuple[Document, list[Piece]] | None = None
        self._stale = True
        self._seek_at = 0.0
        self._build_at = 0.0
        self._told: set[str] = set()
        self._one = threading.Lock()

    @property
    def folders(self) -> Sequence[Path]:
        """The runs that are there, as far as is known."""
        return list(self._folders)

    def look(self) -> Snapshot:
        """The page as it is now."""
        with self._one:
            try:
                self._look()
            except Exception as error:
                # Whatever a half-copied folder may hold: those who look on keep what they have, and see more later.
                self._tell(f"the page could not be made anew ({type(error).__name__}: {error})")
            return self.snapshot

    def _look(self) -> None:
        began = time.monotonic()
        if began >= self._seek_at:
            self._folders = find(self._paths)
            # A folder tree so large that walking through it takes long is walked through rarely.
            self._seek_at = time.monotonic() + max(SEEK_EVERY, 20 * (time.monotonic() - began))
        if began >= self._build_at and self._read():
            self._stale = True
        if began >= self._build_at and self._stale:
            self._page, self._stale = self._build(), False
            self._build_at = time.monotonic() + 3 * (time.monotonic() - began)
        assert self._page is not None
        document, pieces = self._page
        runs = [known.run for known in self._runs.values() if isinstance(known.run, RunData)]
        self.snapshot = self.snapshot.next(document, [*panels(runs), *pieces])

    def _read(self) -> bool:
        """Whether anything is different; reads what is."""
        known: dict[Path, _Known] = {}
        for folder in self._folders:
            marks = _marks(folder)
            if marks is None:  # it was here a moment ago
                continue
            before = self._runs.get(folder)
            known[folder] = before if before is not None and before.marks == marks else _Known(marks, _read(folder))
        different = known != self._runs
        self._runs = known
        return different

    def _build(self) -> tuple[Document, list[Piece]]:
        def make(board: Board) -> tuple[Document, list[Piece]]:
            document = build(board, TITLE, self._find_turns)
            return document, body(document)

        read = [known.run for known in self._runs.values()]
        failed = [run for run in read if isinstance(run, Unreadable)]
        runs = [run for run in read if isinstance(run, RunData)]
        board, page = make_of_readable(runs, failed, self._find_facts, make)
        for one in board.unreadable[len(failed) :]:  # not tried again until its files change
            self._runs[one.folder] = replace(self._runs[one.folder], run=one)
        return page

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told and len(self._told) < MOST_TROUBLES:
            self._told.add(trouble)
            warn(trouble)


def find(paths: Iterable[Path]) -> list[Path]:
    """The runs in these folders, each once, in an order that stays the same."""
    found: dict[Path, Path] = {}
    for path in paths:
        for run in runs_below(path):
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _read(folder: Path) -> RunData | Unreadable:
    runs, failed = read_runs([folder])
    return runs[0] if runs else failed[0]


def _marks(folder: Path) -> object:
    """What changes when a run's files do; None if it is no run any more."""
    marks: list[object] = []
    for name in FILES[:-1]:
        try:
            known = (folder / name).stat()
            marks.append((known.st_ino, known.st_size, known.st_mtime_ns))
        except OSError:
            if name == "config.json":
                return None
            marks.append(None)
    try:
        marks.append((folder / "checkpoints").stat().st_mtime_ns)
    except OSError:
        marks.append(None)
    return marks
