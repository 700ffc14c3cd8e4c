"""Run folders, looked at again and again: what has changed since, as pieces of a page.

Folders may be written, deleted or half copied at any moment. What can be read is shown, what cannot is named, and
whatever else goes wrong leaves the last good page as it was.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from xtx.config.settings import RunConfig
from xtx.core import warn
from xtx.report.data.game_facts import GameFacts
from xtx.report.data.load_runs import RunData, Unreadable, find_distinct_run_folders, read_runs
from xtx.report.data.run_groups import Board, FindFacts
from xtx.report.formats.html import Piece, make_body, make_top
from xtx.report.number_format import format_count
from xtx.report.pages.build import Page, build, make_of_readable
from xtx.report.pages.by_run import FindTurns
from xtx.report.pages.document import Document
from xtx.runs.viewer_files import Turn
from xtx.web.live_panels import FILES, make_panels

SEEK_EVERY = 5.0
"""Seconds between two searches for new runs."""
PAGE_SIZE = 50
"""Runs on a page. A run takes some 12 kB of it, and a few milliseconds."""
READ_SECONDS = 2.5
"""Time for reading runs in one look; what is left is read in the next ones, and the page says so."""
FIND_SECONDS = 1.5
"""Time for playing walkthroughs and best episodes in one look, likewise."""
MAX_TROUBLES = 50
MAX_KEPT = 5000
"""Results of slow functions that are kept."""
TITLE = "Runs, live"

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class PageSnapshot:
    """The page at one moment."""

    document: Document = field(default_factory=lambda: Document("Runs", "Nothing was read yet.", []))
    pieces: Sequence[Piece] = ()
    version: int = 0
    shaped: int = 0
    """The version since which pieces have only been replaced; none came, went or moved."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """The version in which each piece last changed."""

    def list_changes(self, version: int) -> dict[str, str] | None:
        """The pieces that are newer than a version; None if the whole page has to be read again."""
        if version < self.shaped or version > self.version:
            return None
        return {piece.id: piece.html for piece in self.pieces if piece.id and self.changed[piece.id] > version}

    def make_next(self, document: Document, pieces: Sequence[Piece]) -> PageSnapshot:
        """The page a moment later; the same object if nothing is different."""
        before = {piece.id: piece.html for piece in self.pieces if piece.id}
        now = self.version + 1
        changed = {
            piece.id: self.changed[piece.id] if before.get(piece.id) == piece.html else now
            for piece in pieces
            if piece.id
        }
        same_shape = self.version > 0 and _describe_shape(document, pieces) == _describe_shape(
            self.document, self.pieces
        )
        if same_shape and now not in changed.values():
            return self
        return PageSnapshot(document, pieces, now, self.shaped if same_shape else now, changed)


def _describe_shape(document: Document, pieces: Sequence[Piece]) -> list[str]:
    """All but what is in the pieces."""
    return [make_top(document), *(piece.id or piece.html for piece in pieces)]


@dataclass(frozen=True)
class _Known:
    """A run as it was read, and what its files were like then."""

    marks: object
    run: RunData | Unreadable
    read_at: float
    """When that was."""


class _Paced(Generic[_Item, _Found]):
    """A slow function that is called for a limited time in each look. What it gave is kept."""

    def __init__(self, find: Callable[[_Item], _Found], key: Callable[[_Item], Hashable], nothing: _Found) -> None:
        self._find = find
        self._key = key
        self._nothing = nothing
        self._known: dict[Hashable, _Found] = {}
        self._until = 0.0
        self._has_called = False
        self.has_missed = False
        """Whether something was asked for since `begin` for which there was no time."""

    def begin(self, seconds: float) -> None:
        """From now on there is so much time."""
        self._until = time.monotonic() + seconds
        self.has_missed = self._has_called = False
        if len(self._known) > MAX_KEPT:
            self._known.clear()

    def __call__(self, item: _Item) -> _Found:
        key = self._key(item)
        if key not in self._known:
            # One at least, so that all have their turn even where making the page takes all of that time.
            if self._has_called and time.monotonic() > self._until:
                self.has_missed = True
                return self._nothing
            self._has_called = True
            self._known[key] = self._find(item)
        return self._known[key]


def _identify_episode(run: RunData) -> Hashable:
    """What the turns of a run's best episode depend on."""
    return str(run.folder), run.config.game, run.finished, run.digest.best and run.digest.best.step


class Watcher:
    """Looks at folders. One thread at a time looks; any may read snapshots."""

    def __init__(self, paths: Sequence[Path], find_facts: FindFacts, find_turns: FindTurns = lambda run: ()) -> None:
        self.start = secrets.token_hex(4)
        """Distinguishes versions of this process from those of another."""
        self._paths = paths
        self._find_facts: _Paced[RunConfig, GameFacts | None] = _Paced(find_facts, lambda config: config.game, None)
        self._find_turns: _Paced[RunData, Sequence[Turn]] = _Paced(find_turns, _identify_episode, ())
        self._folders: list[Path] = []
        self._runs: dict[Path, _Known] = {}
        self._unread = 0
        """Runs that are still to be read."""
        self._pages: dict[int, tuple[Document, list[Piece]]] = {}
        """As they were made from the runs as they are known; a page that is not there is to be made."""
        self._snapshots: dict[int, PageSnapshot] = {}
        self._seek_at = 0.0
        self._build_at = 0.0
        self._told: set[str] = set()
        self._one = threading.Lock()

    @property
    def folders(self) -> Sequence[Path]:
        """The runs that are there, as far as is known."""
        return list(self._folders)

    def get_snapshot(self, page: int = 1) -> PageSnapshot:
        """A page as it was at the last look at it."""
        return self._snapshots.get(page, PageSnapshot())

    def look(self, page: int = 1) -> PageSnapshot:
        """A page as it is now; the first one where there are fewer."""
        with self._one:
            try:
                return self._look(page)
            except Exception as error:
                # A half-copied folder may hold anything: browsers keep the page that they have and get more later.
                self._tell(f"the page could not be made anew ({type(error).__name__}: {error})")
            return self.get_snapshot(page)

    def _look(self, number: int) -> PageSnapshot:
        began = time.monotonic()
        if began >= self._seek_at:
            self._folders = find_distinct_run_folders(self._paths)
            # A folder tree so large that walking through it takes long is walked through rarely.
            self._seek_at = time.monotonic() + max(SEEK_EVERY, 20 * (time.monotonic() - began))
        if began >= self._build_at and (self._read() or self._find_facts.has_missed or self._find_turns.has_missed):
            self._pages.clear()
        if number not in self._pages:
            self._pages[number] = self._build(Page(number, PAGE_SIZE))
            rest = 0.5 if self._unread else 3.0  # sooner while runs are still to be read
            self._build_at = time.monotonic() + rest * (time.monotonic() - began)
        document, pieces = self._pages[number]
        runs = [known.run for known in self._runs.values() if isinstance(known.run, RunData)]
        above = [*make_panels(runs)] if number == 1 else []
        links = make_page_links(Page(number, PAGE_SIZE), len(runs), self._unread)
        self._snapshots[number] = self.get_snapshot(number).make_next(document, [*above, *links, *pieces, *links])
        return self._snapshots[number]

    def _read(self) -> bool:
        """Whether anything is different; reads what is, as far as there is time, what was read longest ago first."""
        began = time.monotonic()
        marks = {folder: found for folder in self._folders if (found := _read_marks(folder)) is not None}
        before = {folder: known for folder, known in self._runs.items() if folder in marks}
        changed = [folder for folder in marks if folder not in before or before[folder].marks != marks[folder]]
        changed.sort(key=lambda folder: before[folder].read_at if folder in before else 0.0)
        fresh: dict[Path, _Known] = {}
        for folder in changed:
            if fresh and time.monotonic() - began > READ_SECONDS:
                break
            fresh[folder] = _Known(marks[folder], _read(folder), time.monotonic())
        known = {**before, **fresh}
        self._unread = len(marks) - len(known)
        different = bool(fresh) or len(before) != len(self._runs)
        self._runs = {folder: known[folder] for folder in marks if folder in known}
        return different

    def _build(self, page: Page) -> tuple[Document, list[Piece]]:
        self._find_facts.begin(FIND_SECONDS)
        self._find_turns.begin(FIND_SECONDS)

        def make(board: Board) -> tuple[Document, list[Piece]]:
            document = build(board, TITLE, self._find_turns, page)
            return document, make_body(document)

        read = [known.run for known in self._runs.values()]
        failed = [run for run in read if isinstance(run, Unreadable)]
        runs = [run for run in read if isinstance(run, RunData)]
        board, made = make_of_readable(runs, failed, self._find_facts, make)
        for one in board.unreadable[len(failed) :]:  # not tried again until its files change
            self._runs[one.folder] = replace(self._runs[one.folder], run=one)
        return made

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told and len(self._told) < MAX_TROUBLES:
            self._told.add(trouble)
            warn(trouble)


def make_page_links(page: Page, runs: int, unread: int) -> list[Piece]:
    """Links to all pages, if there are several, and how many runs are still to be read."""
    said = []
    if unread:
        said.append(f"{format_count(unread)} more runs are being read")
    last = page.count(runs)
    if last > 1:
        near = {1, 2, last - 1, last, *range(page.number - 2, page.number + 3)}
        links, before = [], 0
        for number in sorted(number for number in near if 1 <= number <= last):
            links += ["…"] if number > before + 1 else []
            links.append(f"<b>{number}</b>" if number == page.number else f'<a href="/?page={number}">{number}</a>')
            before = number
        said.append(f"Pages of {page.size} runs: {' '.join(links)}")
    return [Piece(f'<p class="soft pages">{" · ".join(said)}</p>\n')] if said else []


def _read(folder: Path) -> RunData | Unreadable:
    runs, failed = read_runs([folder])
    return runs[0] if runs else failed[0]


def _read_marks(folder: Path) -> object:
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
