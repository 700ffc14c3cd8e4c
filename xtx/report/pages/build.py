"""A report from what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from xtx.core import UserError
from xtx.report.data.load_runs import RunData, Unreadable
from xtx.report.data.paper_tables import read_paper
from xtx.report.data.run_groups import Board, FindFacts, group_runs
from xtx.report.number_format import format_amount
from xtx.report.pages import across_games, beside_paper, by_game, by_run, opening, training_numbers
from xtx.report.pages.document import Block, Document, Gallery, Notes, Section, Text

TITLE = "Runs beside the paper"
TITLE_WITHOUT_PAPER = "Runs"
"""Of a report without a game that the paper has."""

KINDS_OF_NOTES = (
    ("Not finished", "finished"),
    ("One seed only", "one seed only"),
    ("Seeds that are there more than once", "there more than once"),
    ("Made by different versions", "different versions"),
    ("Settings that differ between games", "not the same on all games"),
    ("Changed from outside", "changed from outside"),
    ("Read from summaries", "read from summaries"),
    ("The same run twice", "is the same run as"),
)
"""Kinds of remarks, in the order in which they are shown, and the words by which they are recognised."""

_Made = TypeVar("_Made")


def make_of_readable(
    runs: Sequence[RunData], unreadable: Sequence[Unreadable], find_facts: FindFacts, make: Callable[[Board], _Made]
) -> tuple[Board, _Made]:
    """What `make` gives for a board of the runs. If it fails, each run is tried alone, and those for which it fails
    are left out and listed as unreadable; so one odd run never spoils the page of the others. Raises what `make`
    raises if no run alone is the cause."""
    try:
        board = group_runs(runs, unreadable, find_facts)
        return board, make(board)
    except (UserError, MemoryError):
        raise
    except Exception:
        bad = {run.folder: why for run in runs if (why := _explain_failure(run, find_facts, make))}
        if not bad:
            raise
    left_out = [Unreadable(folder, why) for folder, why in bad.items()]
    rest = [run for run in runs if run.folder not in bad]
    return make_of_readable(rest, [*unreadable, *left_out], find_facts, make)


def _explain_failure(run: RunData, find_facts: FindFacts, make: Callable[[Board], object]) -> str:
    """Why nothing can be made of one run; empty if something can."""
    try:
        make(group_runs([run], [], find_facts))
    except Exception as error:
        return f"it cannot be shown ({type(error).__name__}: {error})"
    return ""


@dataclass(frozen=True)
class Page:
    """One of the pages on which runs are shown; all that is not about one run is on the first."""

    number: int
    """From 1."""
    size: int
    """Runs on a page."""

    @property
    def first(self) -> int:
        """The place of its first run among all."""
        return (self.number - 1) * self.size

    def count(self, runs: int) -> int:
        """How many pages so many runs need; at least one."""
        return max(1, -(-runs // self.size))


def build(
    board: Board, title: str = "", find_turns: by_run.FindTurns = lambda run: (), page: Page | None = None
) -> Document:
    """The whole report, or one of its pages."""
    if page is not None and page.number > 1:
        return _make_document(board, title, [_make_runs_section(board, find_turns, page)])
    sections: list[Section | None] = []
    if board.groups:
        sections += [opening.make_section(board), _make_remarks(board)]
        sections.append(None if opening.shows_all_curves(board) else by_game.make_training_plots(board))
        sections += [beside_paper.make_section(board, stochastic) for stochastic in (False, True)]
        sections += [across_games.make_section(board, stochastic) for stochastic in (False, True)]
        sections.append(across_games.make_ablations(board))
        sections.append(Section("Games", by_game.make_sections(board)))
        numbers = training_numbers.make_sections(board)
        sections.append(Section("Losses, values and speed", numbers) if numbers else None)
        sections.append(by_game.make_statistics(board))
    sections.append(
        by_run.make_section(board, find_turns) if page is None else _make_runs_section(board, find_turns, page)
    )
    return _make_document(board, title, sections)


def _make_runs_section(board: Board, find_turns: by_run.FindTurns, page: Page) -> Section:
    runs = board.runs[page.first : page.first + page.size]
    if len(runs) == len(board.runs):
        return by_run.make_section(board, find_turns)
    title = f"Runs {page.first + 1:,} to {page.first + len(runs):,} of {len(board.runs):,}"
    return by_run.make_section(board, find_turns, runs, title)


def build_brief(board: Board, title: str = "") -> Document:
    """The same in tables only, with curves as figures at some steps and a line for each run: to be read as text."""
    sections: list[Section | None] = []
    if board.groups:
        sections += [opening.make_section(board), _make_remarks(board)]
        sections += [beside_paper.make_section(board, stochastic) for stochastic in (False, True)]
        sections.append(by_game.make_training_tables(board))
        sections += [across_games.make_section(board, stochastic) for stochastic in (False, True)]
        sections.append(Section("Games", by_game.make_sections(board, maps=False)))
        sections.append(by_game.make_statistics(board))
    sections.append(by_run.make_listing(board))
    return _make_document(board, title, [_drop_plots(section) for section in sections if section is not None])


def _drop_plots(section: Section) -> Section:
    blocks = [block for block in section.blocks if not isinstance(block, Gallery)]
    return replace(section, blocks=[_drop_plots(block) if isinstance(block, Section) else block for block in blocks])


def _make_document(board: Board, title: str, sections: Sequence[Section | None]) -> Document:
    games, ways = len({variant.game for variant in board.variants}), len(board.variants)
    where = format_amount(games, "game") + (f", played in {ways} ways" if ways > games else "")
    lead = f"{format_amount(len(board.runs), 'run')} of {format_amount(len(board.labels), 'agent')} on {where}."
    shown = [section for section in sections if section is not None]
    if not board.groups:
        shown = [section for section in (_make_remarks(board),) if section is not None] + shown
    title = title or (TITLE if any(variant.is_in_paper for variant in board.variants) else TITLE_WITHOUT_PAPER)
    return Document(title, lead, [*shown, _list_sources()], board.colours)


def _make_remarks(board: Board) -> Section | None:
    """What limits the figures, grouped by kind and folded; what cannot be read is named at once."""
    lines = [f"{run.folder} cannot be read and is left out: {run.why}" for run in board.unreadable]
    blocks: list[Block] = [Notes(lines)] if lines else []
    kinds: dict[str, list[str]] = {}
    for note in board.notes:
        kind = next((kind for kind, part in KINDS_OF_NOTES if part in note), "Other remarks")
        kinds.setdefault(kind, []).append(note)
    order = [*(kind for kind, _ in KINDS_OF_NOTES), "Other remarks"]
    for kind in sorted(kinds, key=order.index):
        title = f"{kind} ({len(kinds[kind])})"
        blocks.append(Section(title, [Notes(kinds[kind])], folded=True, key=kind))
    return Section("Limits of these figures", blocks) if blocks else None


def _list_sources() -> Section:
    lines = [
        f"The paper's figures: {read_paper().source}; means and standard deviations over {read_paper().seeds} seeds.",
        "Aggregate metrics, performance profiles and probability of improvement: Agarwal, Schwarzer, Castro, "
        "Courville, Bellemare: Deep Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021.",
        "All scores are training scores, exploration included, from each run's episodes.jsonl or its summary.",
    ]
    return Section("Sources", [Text(line) for line in lines])
