"""A report as Markdown: the same tables and notes; plots are links to files, and what was played is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from xtx.report.formats.figure_files import name_figures
from xtx.report.pages.document import Block, Cell, Document, Gallery, Notes, Row, Section, Table, Text, Transcript


def to_markdown(document: Document, level: int = 1, folder: str | None = None) -> str:
    """The text; `level` is that of its title, `folder` the one in which the plots are, as seen from the text."""
    links = {id(figure): f"{folder}/{name}.svg" for name, figure in name_figures(document.sections)} if folder else {}
    lines = [f"{'#' * level} {_plain(document.title)}", "", *([_plain(document.lead), ""] if document.lead else [])]
    for section in document.sections:
        lines += _section(section, level + 1, links)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section, level: int, links: Mapping[int, str]) -> Iterator[str]:
    yield from (f"{'#' * min(level, 6)} {_plain(section.title)}", "")
    for block in section.blocks:
        yield from _block(block, level, links)


def _block(block: Block, level: int, links: Mapping[int, str]) -> Iterator[str]:
    match block:
        case Section():
            yield from _section(block, level + 1, links)
        case Text():
            yield from (_plain(block.text), "")
        case Notes():
            yield from (*(f"- {_plain(line)}" for line in block.lines), "")
        case Table():
            yield from _table(block)
        case Transcript():
            yield from ("(What the game answered is in the HTML page.)", "")
        case Gallery():
            for figure in block.figures if links else ():
                target = re.sub(r"[ ()]", lambda found: f"%{ord(found[0]):02x}", links[id(figure)])
                yield from (f"![{_plain(figure.caption)}]({target})", "")
            if not links:
                captions = "; ".join(_plain(figure.caption) for figure in block.figures)
                yield from (f"(Plots in the HTML page: {captions}.)", "")


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
