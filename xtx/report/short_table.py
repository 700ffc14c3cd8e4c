"""One table for a page that is read in a minute: each agent and game that the paper has, at the most steps we have."""

from __future__ import annotations

from collections.abc import Iterator

from xtx.report.beside_paper import Side, describe_filled_cells, over_seeds, sides, steps_cell
from xtx.report.document import Block, Document, Row, Section, Table, Text
from xtx.report.groups import Board, Variant
from xtx.report.paper import Figures, read_paper
from xtx.report.row_marks import legend, marks_of, signs_of_all
from xtx.report.words import spread

HEADER = ("game", "agent", "Avg", "paper", "Max", "paper", "seeds", "steps")


def build_short(board: Board, title: str) -> Document:
    """Return a document with one table. Ablations, agents past the paper and runs that another run replaces are left
    out."""
    shown = [pair for variant in board.variants for pair in _longest(board, variant)]
    groups = [side.ours for _, side in shown if side.ours is not None]
    told = signs_of_all(groups)
    marks = [mark for group in groups for mark in marks_of(group)]
    blocks: list[Block] = [Table(HEADER, [_row(variant, side, told) for variant, side in shown])]
    blocks += [Text(legend(marks, told))] if marks else []
    for stochastic, figure in ((False, 1), (True, 2)):
        filled = describe_filled_cells(board, read_paper().table(stochastic), figure)
        blocks += [Text(filled)] if filled else []
    return Document(title, "", [Section("Beside the paper", blocks)], board.colours)


def _longest(board: Board, variant: Variant) -> Iterator[tuple[Variant, Side]]:
    """Of each agent that the paper has on this game, the group with the most steps."""
    longest: dict[str, Side] = {}
    for side in sides(board, variant):
        if side.ours is not None and side.paper is not None:
            before = longest.get(side.ours.agent)
            if before is None or before.ours is None or before.ours.steps < side.ours.steps:
                longest[side.ours.agent] = side
    return ((variant, side) for side in longest.values())


def _row(variant: Variant, side: Side, told: set[str]) -> Row:
    group, paper = side.ours, side.paper
    assert group is not None and paper is not None
    avg, best = _published(paper)
    return Row(
        [
            variant.title,
            group.agent,
            over_seeds(group.avg_by_game),
            avg,
            over_seeds(group.max),
            best,
            str(len(group.runs)),
            steps_cell(group.steps, marks_of(group), told),
        ],
        group.agent,
    )


def _published(paper: Figures) -> tuple[str, str]:
    return spread(paper.avg, paper.avg_std), spread(paper.max, paper.max_std)
