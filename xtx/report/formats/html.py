"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from xtx.report.number_format import format_amount, format_count, format_signed
from xtx.report.pages.document import Cell, Document, Figure, Gallery, Notes, Row, Section, Table, Text, Transcript
from xtx.report.plots.room_map import MapPlot
from xtx.report.plots.svg_plots import COLOURS, LinePlot, choose_marker
from xtx.runs.viewer_files import Turn

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""Runs come from anywhere: whatever their texts might say, the page loads nothing."""

HOW_TO = (
    "Point at a plot to see its values; drag across it to zoom in; click twice to see all of it; "
    "log makes the axis of steps logarithmic. A map that is enlarged is dragged, and zoomed with the wheel. "
    "What is folded is not printed."
)
TALL = 24
"""Rows above which a table scrolls within the window, with its header in sight."""
LONG = 34
"""Letters from which on an agent's name may be broken in a table."""
HOW = {"won": "won", "died": "the game ended", "limit": "step limit"}


@dataclass(frozen=True)
class Piece:
    """Part of the page."""

    html: str
    id: str = ""
    """What it is known by, if it can be replaced by a newer version of itself; else it holds others together."""


def to_html(document: Document) -> str:
    """The page."""
    pieces = make_body(document)
    return make_page(document, pieces, POLICY, [(HERE / "page.js").read_text("utf-8")], f"Made by xtx report. {HOW_TO}")


def make_page(
    document: Document, pieces: Iterable[Piece], policy: str, scripts: Sequence[str], said: str, nonce: str = ""
) -> str:
    """A page around pieces: those of the document, and what else is to be on it."""
    style = (HERE / "page.css").read_text("utf-8")
    marked = f' nonce="{nonce}"' if nonce else ""
    script = "\n".join(f"<script{marked}>\n{script}</script>" for script in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(document.title)}</title>
<style>
{style}</style>
</head>
<body>
{make_top(document)}
<main>
{"".join(piece.html for piece in pieces)}
</main>
<footer>{escape(said)}</footer>
{script}
</body>
</html>
"""


def make_top(document: Document) -> str:
    """What stands above the sections: title, contents, and the choice of agents."""
    contents = " · ".join(f'<a href="#{_make_slug(s.title)}">{escape(s.title)}</a>' for s in document.sections)
    hidden = " hidden" if len(document.colours) < 2 else ""
    return f"""<header>
<h1>{escape(document.title)}</h1>
<p class="soft">{escape(document.lead)}</p>
<p class="contents">{contents}</p>
</header>
<nav aria-label="agents to show"{hidden}><div>{"".join(_list_choices(document))}</div></nav>"""


def make_body(document: Document) -> list[Piece]:
    """The document's sections: each is a piece, or, if it is made of nothing but sections, each of those is one."""
    ids = {_make_slug(section.title) for section in document.sections}  # taken, so that the contents lead to them
    pieces = []
    for section in document.sections:
        name = _make_slug(section.title)
        parts = [block for block in section.blocks if isinstance(block, Section)]
        if section.folded or len(parts) < len(section.blocks):
            pieces.append(Piece("\n".join(_format_section(section, 2, ids, name, whole=True)), name))
            continue
        pieces.append(Piece(f'<section><h2 id="{name}">{escape(section.title)}</h2>'))
        for part in parts:
            inner = _make_id(f"{name} {part.key or part.title}", ids)
            pieces.append(Piece("\n".join(_format_section(part, 3, ids, inner, whole=True)), inner))
        pieces.append(Piece("</section>\n"))
    return pieces


def _list_choices(document: Document) -> Iterator[str]:
    for agent, colour in document.colours.items():
        name = escape(agent)
        box = f'<input type="checkbox" checked value="{name}" autocomplete="off">'
        swatch = f'<i class="swatch m-{choose_marker(colour)}"></i>'
        yield f'<label class="c{colour % COLOURS}" title="{name}">{box}{swatch}{name}</label>'
    if len(document.colours) > 2:
        yield '<button title="show all agents, or none">all / none</button>'


def _format_section(section: Section, level: int, ids: set[str], name: str, *, whole: bool = False) -> Iterator[str]:
    """`name` is what links call it; `whole`, if it is a piece of the page."""
    marks = (f' data-piece="{name}"' if whole else "") + _format_agent(section.agent)
    title = escape(section.title)
    if section.folded:
        hint = f' <span class="soft">{escape(section.hint)}</span>' if section.hint else ""
        yield f'<details id="{name}"{marks}><summary>{title}{hint}</summary>'
    else:
        heading = f"h{min(level, 4)}"
        kind = f' class="{section.kind}"' if section.kind else ""
        yield f'<section{kind}{marks}><{heading} id="{name}">{title}</{heading}>'
    for block in section.blocks:
        if isinstance(block, Section):
            inner = _make_id(f"{name} {block.key or block.title}", ids)
            yield from _format_section(block, level + 1, ids, inner)
        else:
            yield from _format_block(block)
    yield "</details>" if section.folded else "</section>"


def _format_block(block: Text | Notes | Table | Gallery | Transcript) -> Iterator[str]:
    match block:
        case Text():
            yield f"<p>{escape(block.text)}</p>"
        case Notes():
            yield f'<ul class="notes">{"".join(f"<li>{escape(line)}</li>" for line in block.lines)}</ul>'
        case Table():
            yield from _format_table(block)
        case Transcript():
            yield f'<div class="turns" tabindex="0">{make_transcript_html(block.turns)}</div>'
        case Gallery():
            yield f'<div class="gallery">{"".join(make_figure_html(figure) for figure in block.figures)}</div>'


def make_figure_html(figure: Figure) -> str:
    """A plot with its caption."""
    name = f' data-name="{escape(figure.name)}"'
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    inside, kind = figure.svg, ""
    if isinstance(figure.plot, MapPlot):
        inside = f'<div class="pan" tabindex="0">{figure.svg}</div>{figure.plot.draw_legend()}'
    elif figure.is_large and isinstance(figure.plot, LinePlot):
        inside, kind = (
            f'<div class="small">{inside}</div><div class="large">{figure.plot.draw_svg(True)}</div>',
            ' class="both"',
        )
    return f"<figure{kind}{name}{_format_agent(figure.agent)}>{caption}{inside}</figure>"


def make_transcript_html(turns: Sequence[Turn]) -> str:
    """Turns as they are read, with the points that they brought."""
    return "".join(_format_turn(turn, before) for turn, before in zip(turns, [None, *turns], strict=False))


def _format_turn(turn: Turn, before: Turn | None) -> str:
    parts = []
    if not turn.action:
        parts.append("<hr>" if before is not None else "")
    else:
        phase = f" <i>{escape(turn.phase)}</i>" if turn.phase else ""
        parts.append(f'<p class="command">&gt; {escape(turn.action)}{phase}</p>')
    text = escape(turn.text).replace("\n", "<br>")
    gained = turn.score - before.score if before is not None and turn.action else 0
    points = f" <b>{format_signed(gained, 0)} · {format_count(turn.score)}</b>" if gained else ""
    parts.append(f"<p>{text}{points}</p>")
    if turn.ended:
        when = format_amount(turn.number, "step")
        said = f"{HOW.get(turn.ended, turn.ended)} · {format_count(turn.score)} points after {when}"
        parts.append(f'<p class="soft">{escape(said)}</p>')
    return "".join(parts)


def _format_table(table: Table) -> Iterator[str]:
    kind = ' class="words"' if table.has_words else ""
    columns = [_format_agent(agent) for agent in table.agents] or [""] * len(table.header)
    kinds = [' class="long"' if len(agent) > LONG else "" for agent in table.agents] or [""] * len(table.header)
    head = "".join(
        f'<th scope="col"{of}{long}>{escape(name)}</th>'
        for name, of, long in zip(table.header, columns, kinds, strict=True)
    )
    tall = " tall" if len(table.rows) > TALL else ""
    yield f'<div class="scroll{tall}" tabindex="0"><table{kind}><thead><tr>{head}</tr></thead><tbody>'
    for row in table.rows:
        yield _format_row(row, columns)
    yield "</tbody></table></div>"


def _format_row(row: Row, columns: Sequence[str]) -> str:
    kinds = [row.kind, "long" if len(row.agent) > LONG else ""]
    kind = f' class="{" ".join(filter(None, kinds))}"' if any(kinds) else ""
    cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row.cells]
    if row.kind == "group":
        inside = f'<td colspan="{len(columns)}"><span>{_keep_together(cells[0].text)}</span></td>'
    else:
        inside = "".join(_format_cell(cell, of) for cell, of in zip(cells, columns, strict=True))
    return f"<tr{kind}{_format_agent(row.agent)}>{inside}</tr>"


def _format_cell(cell: Cell, mark: str) -> str:
    hint = f' title="{escape(cell.hint)}"' if cell.hint else ""
    tint = f' class="tinted" style="--share:{cell.share:.2f}"' if cell.share is not None else ""
    return f"<td{hint}{tint}{mark}>{_keep_together(cell.text)}</td>"


def _keep_together(text: str) -> str:
    """The text so that a narrow column breaks it before "±" and after units, not before these."""
    return re.sub(r"(\d) (%|h|min|s)(?= |$|,)", r"\1&nbsp;\2", escape(text).replace("± ", "±&nbsp;"))


def _format_agent(agent: str) -> str:
    return f' data-agent="{escape(agent)}"' if agent else ""


def _make_id(title: str, ids: set[str]) -> str:
    """A name for links, different for each section."""
    base = _make_slug(title)
    name, number = base, 1
    while name in ids:
        number += 1
        name = f"{base}-{number}"
    ids.add(name)
    return name


def _make_slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
