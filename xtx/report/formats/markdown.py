"""A report as Markdown: the same tables and notes; plots are links to files, and what was played is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from xtx.report.formats.figure_files import name_figures
from xtx.report.pages.document import Block, Cell, Document, Gallery, Notes, Row, Section, Table, Text, Transcript


def to_markdown(document: Document, level: int = 1, folder: str | None = None) -> str:
    """The text; `level` is that of its title, `folder` the one in which the plots are, as seen from the text."""
    links = {id(figure): f"{folder}/{name}.svg" for name, figure in name_figures(document.sections)} if folder else {}
    lines = [f"{'#' * level} {_escape(document.title)}", "", *([_escape(document.lead), ""] if document.lead else [])]
    for section in document.sections:
        lines += _format_section(section, level + 1, links)
    return "\n".join(lines).rstrip() + "\n"


def _format_section(section: Section, level: int, links: Mapping[int, str]) -> Iterator[str]:
    yield from (f"{'#' * min(level, 6)} {_escape(section.title)}", "")
    for block in section.blocks:
        yield from _format_block(block, level, links)


def _format_block(block: Block, level: int, links: Mapping[int, str]) -> Iterator[str]:
    match block:
        case Section():
            yield from _format_section(block, level + 1, links)
        case Text():
            yield from (_escape(block.text), "")
        case Notes():
            yield from (*(f"- {_escape(line)}" for line in block.lines), "")
        case Table():
            yield from _format_table(block)
        case Transcript():
            yield from ("(What the game answered is in the HTML page.)", "")
        case Gallery():
            for figure in block.figures if links else ():
                target = re.sub(r"[ ()]", lambda found: f"%{ord(found[0]):02x}", links[id(figure)])
                yield from (f"![{_escape(figure.caption)}]({target})", "")
            if not links:
                captions = "; ".join(_escape(figure.caption) for figure in block.figures)
                yield from (f"(Plots in the HTML page: {captions}.)", "")


def _format_table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(_escape(name) for name in table.header)} |"
    rest = "---" if table.has_words else "---:"
    yield f"|{'|'.join(['---', *[rest] * (len(table.header) - 1)])}|"
    for row in table.rows:
        yield f"| {' | '.join(_format_cells(row, len(table.header)))} |"
    yield ""


def _format_cells(row: Row, columns: int) -> list[str]:
    texts = [_escape(cell.text if isinstance(cell, Cell) else cell) for cell in row.cells]
    if row.kind == "group":
        return [f"**{texts[0]}**", *[""] * (columns - 1)]
    return texts


def _escape(text: str) -> str:
    """Text that means itself: runs may be called anything."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
