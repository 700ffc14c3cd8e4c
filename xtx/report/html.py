"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from xtx.report.document import Block, Cell, Document, Gallery, Notes, Row, Section, Table, Text
from xtx.report.figures import COLOURS

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""Runs come from anywhere: whatever their texts might say, the page loads nothing."""


def to_html(document: Document) -> str:
    """The page."""
    style, script = ((HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    ids = {_slug(section.title) for section in document.sections}  # taken, so that the contents lead to them
    contents = " · ".join(f'<a href="#{_slug(s.title)}">{escape(s.title)}</a>' for s in document.sections)
    body = "\n".join(part for section in document.sections for part in _section(section, 2, ids, top=True))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(document.title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(document.title)}</h1>
<p class="soft">{escape(document.lead)}</p>
<p class="contents">{contents}</p>
</header>
<nav aria-label="agents to show"><div>{"".join(_choices(document))}</div></nav>
<main>
{body}
</main>
<footer>Made by xtx report.</footer>
<script>
{script}</script>
</body>
</html>
"""


def _choices(document: Document) -> Iterator[str]:
    for agent, colour in document.colours.items():
        name = escape(agent)
        box = f'<input type="checkbox" checked value="{name}" autocomplete="off">'
        dashed = " dashed" if colour // COLOURS % 2 else ""
        yield f'<label class="c{colour % COLOURS}{dashed}">{box}{name}</label>'


def _section(section: Section, level: int, ids: set[str], *, top: bool = False) -> Iterator[str]:
    name = _slug(section.title) if top else _id(section.title, ids)
    whose = _whose(section.agent)
    title = escape(section.title)
    if section.folded:
        yield f'<details id="{name}"{whose}><summary>{title}</summary>'
    else:
        heading = f"h{min(level, 4)}"
        yield f'<section{whose}><{heading} id="{name}">{title}</{heading}>'
    for block in section.blocks:
        yield from _block(block, level, ids)
    yield "</details>" if section.folded else "</section>"


def _block(block: Block, level: int, ids: set[str]) -> Iterator[str]:
    match block:
        case Section():
            yield from _section(block, level + 1, ids)
        case Text():
            yield f"<p>{escape(block.text)}</p>"
        case Notes():
            yield f'<ul class="notes">{"".join(f"<li>{escape(line)}</li>" for line in block.lines)}</ul>'
        case Table():
            yield from _table(block)
        case Gallery():
            figures = (f"<figure>{f.svg}<figcaption>{escape(f.caption)}</figcaption></figure>" for f in block.figures)
            yield f'<div class="gallery">{"".join(figures)}</div>'


def _table(table: Table) -> Iterator[str]:
    kind = ' class="words"' if table.words else ""
    whose = [_whose(agent) for agent in table.agents] or [""] * len(table.header)
    head = "".join(f'<th scope="col"{of}>{escape(name)}</th>' for name, of in zip(table.header, whose, strict=True))
    yield f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>{head}</tr></thead><tbody>'
    for row in table.rows:
        yield _row(row, whose)
    yield "</tbody></table></div>"


def _row(row: Row, whose: Sequence[str]) -> str:
    kind = f' class="{row.kind}"' if row.kind else ""
    cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row.cells]
    if row.kind == "group":
        inside = f'<td colspan="{len(whose)}"><span>{escape(cells[0].text)}</span></td>'
    else:
        inside = "".join(_cell(cell, of) for cell, of in zip(cells, whose, strict=True))
    return f"<tr{kind}{_whose(row.agent)}>{inside}</tr>"


def _cell(cell: Cell, whose: str) -> str:
    hint = f' title="{escape(cell.hint)}"' if cell.hint else ""
    tint = f' class="tinted" style="--share:{cell.share:.2f}"' if cell.share else ""
    return f"<td{hint}{tint}{whose}>{escape(cell.text)}</td>"


def _whose(agent: str) -> str:
    return f' data-agent="{escape(agent)}"' if agent else ""


def _id(title: str, ids: set[str]) -> str:
    """A name for links, different for each section."""
    base = _slug(title)
    name, number = base, 1
    while name in ids:
        number += 1
        name = f"{base}-{number}"
    ids.add(name)
    return name


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
