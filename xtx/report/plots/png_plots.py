"""Plots as PNG for papers and slides, drawn by matplotlib (extra `report`)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

import numpy as np

from xtx.report.number_format import format_number, format_short
from xtx.report.plots.room_map import BOX_HEIGHT, BOX_WIDTH, SHADE_COLOURS, MapPlot, wrap
from xtx.report.plots.svg_plots import COLOURS, NUM_MARKS, PALETTE, BarPlot, LinePlot, Plot, choose_marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
PRINTED_MARKERS = {"circle": "o", "square": "s", "up": "^", "diamond": "D", "down": "v", "plus": "P"}
MAX_INCHES = 40.0
"""Inches: a map with hundreds of rooms is drawn smaller beyond that."""


def to_png(plot: Plot, title: str = "") -> bytes:
    """The picture. Raises ImportError where matplotlib is not installed."""
    file = io.BytesIO()
    draw_figure(plot, title).savefig(file, dpi=DPI, metadata={"Software": None})
    return file.getvalue()


def draw_figure(plot: Plot, title: str = "") -> Figure:
    """The picture as matplotlib has it. Raises ImportError where that is not installed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_measure(plot), layout="constrained")
    axes = figure.add_subplot()
    match plot:
        case LinePlot():
            _draw_lines(plot, axes)
        case BarPlot():
            _draw_bars(plot, axes)
        case MapPlot():
            _draw_map(plot, axes)
    if isinstance(plot, LinePlot) and len(plot.lines) > 1:
        axes.legend(fontsize=8, frameon=False)
    if title:
        axes.set_title(_escape(title), fontsize=9)
    return figure


def _measure(plot: Plot) -> tuple[float, float]:
    if isinstance(plot, MapPlot):
        width, height = plot.size
        scale = min(1.0, MAX_INCHES / (max(width, height) / 80))
        return width / 80 * scale, height / 80 * scale
    return (4.6, 3.0) if isinstance(plot, LinePlot) else (4.6, 0.8 + 0.3 * len(plot.bars))


def _draw_lines(plot: LinePlot, axes: Axes) -> None:
    several = len({line.agent for line in plot.lines}) > 1
    for line in plot.lines:
        colour = PALETTE[line.colour % COLOURS]
        kind = "steps-post" if line.is_stepped else "default"
        style = "--" if line.is_dashed else "-"
        marked = several or np.isfinite(line.y).sum() == 1
        marker = PRINTED_MARKERS[choose_marker(line.colour)] if marked else None
        name = _escape(line.name or line.agent)
        axes.plot(line.x, line.y, style, color=colour, drawstyle=kind, linewidth=1.4, label=name, marker=marker,
                  markersize=4, markevery=max(1, len(line.x) // NUM_MARKS))  # fmt: skip
        if line.low is not None and line.high is not None:
            step: Literal["post"] | None = "post" if line.is_stepped else None
            axes.fill_between(line.x, line.low, line.high, step=step, color=colour, alpha=0.16, linewidth=0)
    if plot.lines:
        axes.set_xlim(min(0.0, *(line.x[0] for line in plot.lines)), max(line.x[-1] for line in plot.lines))
    values = [line.y[np.isfinite(line.y)] for line in plot.lines]
    if plot.top is not None and plot.shows_top():
        axes.axhline(plot.top, color="#888888", linestyle=":", linewidth=1)
    if plot.reference is not None:
        axes.axhline(plot.reference[1], color="#555555", linestyle="--", linewidth=1)
        axes.annotate(_escape(plot.reference[0]), (1, plot.reference[1]), xycoords=("axes fraction", "data"),
                      ha="right", va="bottom", fontsize=7)  # fmt: skip
    if min((float(v.min()) for v in values if v.size), default=0.0) >= 0:
        axes.set_ylim(bottom=0)
    axes.set(xlabel=plot.x_label, ylabel=plot.y_label)
    axes.xaxis.set_major_formatter(lambda value, _: format_short(value))
    axes.grid(color="#e3e3e3")
    axes.set_axisbelow(True)


def _draw_bars(plot: BarPlot, axes: Axes) -> None:
    for place, bar in enumerate(plot.bars):
        estimate, colour = bar.estimate, PALETTE[bar.colour % COLOURS]
        if estimate is None:
            continue
        around = [[max(0.0, estimate.value - estimate.low)], [max(0.0, estimate.high - estimate.value)]]
        shown = around if estimate.high > estimate.low else None
        if plot.shows_points:
            axes.errorbar([estimate.value], [place], xerr=shown, fmt="o", color=colour, capsize=3)
        else:
            axes.barh([place], [estimate.value], xerr=shown, color=colour, capsize=3)
    axes.set_yticks(range(len(plot.bars)), [_escape(bar.agent) for bar in plot.bars])
    axes.invert_yaxis()
    axes.set_xlabel(plot.x_label)
    axes.grid(axis="x", color="#e3e3e3")
    axes.set_axisbelow(True)


def _draw_map(plot: MapPlot, axes: Axes) -> None:
    from matplotlib.patches import FancyBboxPatch

    for way in plot.chart.ways:
        if way.origin in plot.places and way.target in plot.places:
            (x0, y0), (x1, y1) = plot.find_middle(way.origin), plot.find_middle(way.target)
            axes.plot([x0, x1], [y0, y1], "-" if way.back else "--", color="#999999", linewidth=0.9, zorder=1)
    for room in plot.places:
        x, y = plot.find_middle(room)
        first = plot.chart.first.get(room)
        corner = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
        fill = "#ffffff" if first is None else SHADE_COLOURS[plot.choose_shade(first)]
        edge = "#bbbbbb" if first is None else "#777777"
        style = "round,pad=0,rounding_size=5"
        axes.add_patch(
            FancyBboxPatch(corner, BOX_WIDTH, BOX_HEIGHT, boxstyle=style, facecolor=fill, edgecolor=edge, zorder=2)
        )
        name = _escape("\n".join(wrap(room)))
        axes.text(x, y, name, ha="center", va="center", fontsize=7, color="#999999" if first is None else "#222222")
    width, height = plot.size
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.set_axis_off()
    axes.set_title(f"yellow: found first; violet: after {format_number(plot.latest, 0)} steps", fontsize=7, loc="left")


def _escape(text: str) -> str:
    """Text that is no formula: matplotlib takes what is between dollar signs for one."""
    return text.replace("$", r"\$")
