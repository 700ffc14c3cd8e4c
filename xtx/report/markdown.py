"""A report as Markdown: the same tables and notes, without the plots."""

from __future__ import annotations

import re
from collections.abc import Iterator

from xtx.report.document import Block, Cell, Document, Gallery, Notes, Row, Section, Table, Text, Transcript


def to_markdown(document: Document, level: int = 1) -> str:
    """The text; `level` is that of its title."""
    lines = [f"{'#' * level} {_plain(document.title)}", "", _plain(document.lead), ""]
    for section in document.sections:
        lines += _section(section, level + 1)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section, level: int) -> Iterator[str]:
    yield from (f"{'#' * min(level, 6)} {_plain(section.title)}", "")
    for block in section.blocks:
        yield from _block(block, level)


def _block(block: Block, level: int) -> Iterator[str]:
    match block:
        case Section():
            yield from _section(block, level + 1)
        case Text():
            yield from (_plain(block.text), "")
        case Notes():
            yield from (*(f"- {_plain(line)}" for line in block.lines), "")
        case Table():
            yield from _table(block)
        case Transcript():
            yield from _transcript(block)
        case Gallery():
            captions = "; ".join(_plain(figure.caption) for figure in block.figures)
            yield from (f"(Plots in the HTML page: {captions}.)", "")


def _transcript(transcript: Transcript) -> Iterator[str]:
    for turn in transcript.turns:
        said = f"**\\> {_plain(turn.action)}** " if turn.action else ""
        yield from (f"{said}{_plain(turn.text)}", "")


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(_plain(name) for name in table.header)} |"
    rest = "---" if table.words else "---:"
    yield f"|{'|'.join(['---', *[rest] * (len(table.header) - 1)])}|"
    for row in table.rows:
        yield f"| {' | '.join(_cells(row, len(table.header)))} |"
    yield ""


def _cells(row: Row, columns: int) -> list[str]:
    texts = [_plain(cell.text if isinstance(cell, Cell) else cell) for cell in row.cells]
    if row.kind == "group":
        return [f"**{texts[0]}**", *[""] * (columns - 1)]
    return texts


def _plain(text: str) -> str:
    """Text that means itself: runs may be called anything."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
