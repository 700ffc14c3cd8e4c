"""What a report is made of, whatever it is written as."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from xtx.report.plots.svg_plots import Plot
from xtx.runs.viewer_files import Turn


@dataclass(frozen=True)
class Cell:
    """One field of a table."""

    text: str
    hint: str = ""
    """What it means, in words; shown when it is pointed at."""
    share: float | None = None
    """From 0 to 1: how strongly the field is tinted."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    cells: Sequence[Cell | str]
    agent: str = ""
    """The agent of the line: it is hidden when that agent is not chosen."""
    kind: str = ""
    """`group` for a line that says what the next ones are about, `total`, or `absent` for what we did not run."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; the first column names, the others count."""

    header: Sequence[str]
    rows: Sequence[Row]
    agents: Sequence[str] = ()
    """The agent of each column, where columns are agents; empty for other columns."""
    has_words: bool = False
    """Whether the other columns hold words rather than numbers."""

    def drop_columns(self, names: Collection[str]) -> Table:
        """The table without the columns under these headings; lines of the kind `group` stay as they are."""
        kept = [place for place, name in enumerate(self.header) if name not in names]
        rows = [
            row if row.kind == "group" else replace(row, cells=[row.cells[place] for place in kept])
            for row in self.rows
        ]
        return replace(self, header=[self.header[place] for place in kept], rows=rows)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Notes:
    """Things to be known before figures are believed."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A plot."""

    name: str
    """For the name of its file."""
    plot: Plot
    caption: str
    agent: str = ""
    """Its agent, if it is about one: it is hidden with that agent."""
    is_large: bool = False
    """Whether it is drawn larger where there is room."""

    @cached_property
    def svg(self) -> str:
        """As a picture."""
        return self.plot.draw_svg()


@dataclass(frozen=True)
class Gallery:
    """Plots side by side, where there is room."""

    figures: Sequence[Figure]


@dataclass(frozen=True)
class Transcript:
    """Commands and what the game answered."""

    turns: Sequence[Turn]


@dataclass(frozen=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: Sequence[Block]
    folded: bool = False
    """Whether it is shown only on demand."""
    hint: str = ""
    """What is said beside the title while it is folded."""
    agent: str = ""
    key: str = ""
    """What it is known by where its title may change while runs go on."""
    kind: str = ""
    """`opening` for what a reader sees first: its plot and its table stand side by side where there is room."""


Block: TypeAlias = Text | Notes | Table | Gallery | Transcript | Section


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: str
    """What it is about, in a line."""
    sections: Sequence[Section]
    colours: Mapping[str, int] = field(default_factory=dict)
    """Of the agents, in the order in which they are shown."""
