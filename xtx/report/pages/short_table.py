"""One table for a page that is read in a minute: the cells of the paper's two main tables that our runs fill."""

from __future__ import annotations

from xtx.report.data.paper_cells import READ_OFF, READ_OFF_WORDS, FilledCell, describe_filled_cells, fill_cells
from xtx.report.data.row_marks import UNFINISHED, describe_marks, find_common_signs
from xtx.report.data.run_groups import Board
from xtx.report.pages.beside_paper import format_over_seeds, format_published, make_steps_cell
from xtx.report.pages.document import Block, Cell, Document, Row, Section, Table, Text

HEADER = ("game", "agent", "Avg", "paper", "Max", "paper", "seeds", "steps")


def build_short(board: Board, title: str) -> Document:
    """Return a document with one table. Ablations, agents past the paper and runs that another run replaces are left
    out."""
    cells = [*fill_cells(board, False), *fill_cells(board, True)]
    common_signs = find_common_signs([cell.group for cell in cells])
    if any(cell.is_read_off for cell in cells):
        common_signs.discard(UNFINISHED)  # a cell that is read off has another mark instead
    marks = [mark for cell in cells for mark in cell.marks]
    read_off = f" · {READ_OFF} {READ_OFF_WORDS}" if any(cell.is_read_off for cell in cells) else ""
    blocks: list[Block] = [Table(HEADER, [_make_row(cell, common_signs) for cell in cells])]
    blocks += [Text(describe_marks(marks, common_signs) + read_off)] if marks else []
    blocks += [Text(describe_filled_cells(board))]
    return Document(title, "", [Section("The paper's main tables, as far as they are filled", blocks)], board.colours)


def _make_row(cell: FilledCell, common_signs: set[str]) -> Row:
    group, (avg, best) = cell.group, format_published(cell.paper)
    cells: list[Cell | str] = [group.variant.title, group.agent, format_over_seeds(cell.avg), avg]
    cells += [format_over_seeds(cell.max), best, str(len(group.runs))]
    return Row([*cells, make_steps_cell(cell.steps, cell.marks, common_signs)], group.agent)
