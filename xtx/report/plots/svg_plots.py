"""Plots as SVG, drawn without any library. Colours are classes (`c0` to `c11`), so the page decides light or dark.

A plot is about as wide as a phone, so that its letters stay readable there; wide screens show several in a row.
What is plotted also lies beside it as data, for the page's script that shows values under the pointer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import TypeAlias

import numpy as np

from xtx.report.data.statistics import Estimate, Floats
from xtx.report.number_format import format_number, format_short
from xtx.report.plots.room_map import MapPlot, make_map_style

WIDTH, HEIGHT = 440, 260
LARGE_WIDTH, LARGE_HEIGHT = 640, 345
LEFT, RIGHT, TOP, BOTTOM = 48, 20, 12, 40
COLOURS = 12
MARKERS = {
    "circle": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
    "square": "M-3 -3h6v6h-6z",
    "up": "M0 -4L4 3h-8z",
    "diamond": "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
    "down": "M0 4L4 -3h-8z",
    "plus": "M-1.2 -4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z",
}
"""Shapes that tell agents apart beside their colours, as paths around a point."""
NUM_MARKS = 6
"""Markers on a line."""
MAX_ROOM_TO_TOP = 3
"""The most points are shown as a line where they are at most so many times the highest value."""
LETTER = 6.6
"""About the width of a letter."""


@dataclass(frozen=True)
class Line:
    """One agent's line, with a band around it where low and high are given."""

    agent: str
    colour: int
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    is_stepped: bool = False
    """Whether it jumps from value to value."""
    is_dashed: bool = False
    name: str = ""
    """If it is not the agent's."""


@dataclass(frozen=True)
class Bar:
    """One agent's bar, or point with an interval."""

    agent: str
    colour: int
    estimate: Estimate | None
    """None where there is nothing to show."""


@dataclass(frozen=True, eq=False)
class LinePlot:
    """Lines over common axes."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    top: float | None = None
    """Where the dotted line is: the most points that the game has."""
    unit: str = ""
    reference: tuple[str, float] | None = None
    """A dashed line across the plot, by its name and value."""

    def shows_top(self) -> bool:
        """Whether the dotted line is drawn: not if it is far above everything else."""
        return self.top is not None and self.top <= MAX_ROOM_TO_TOP * _find_limits(self.lines, self.reference)[1]

    def draw_svg(self, is_large: bool = False) -> str:
        """The picture; larger, it is for wide screens only, since its letters are too small elsewhere."""
        return _draw_line_plot(self, (LARGE_WIDTH, LARGE_HEIGHT) if is_large else (WIDTH, HEIGHT))


@dataclass(frozen=True, eq=False)
class BarPlot:
    """Lying bars, or points with intervals, one below the other with the agents' names before them."""

    bars: Sequence[Bar]
    x_label: str
    shows_points: bool = False

    def draw_svg(self) -> str:
        """The picture."""
        return _draw_bar_plot(self)


Plot: TypeAlias = LinePlot | BarPlot | MapPlot


def choose_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within a range, at most so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 10) + 0.0 for n in range(first, math.floor(high / step + 1e-9) + 1)]


class _Axes:
    """Where values lie on the picture."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        left: float = LEFT,
        height: int = HEIGHT,
        width: int = WIDTH,
    ) -> None:
        self.x0, self.x1 = x if x[1] > x[0] else (x[0], x[0] + 1)
        self.y0, self.y1 = y if y[1] > y[0] else (y[0], y[0] + 1)
        self.left, self.height, self.right = left, height, width - RIGHT

    def map_x(self, value: float) -> float:
        return round(self.left + (value - self.x0) / (self.x1 - self.x0) * (self.right - self.left), 1)

    def map_y(self, value: float) -> float:
        low = self.height - BOTTOM
        return round(low - (value - self.y0) / (self.y1 - self.y0) * (low - TOP), 1)

    def draw_frame(self, x_label: str, y_label: str) -> list[str]:
        """Grid, numbers and labels of both axes."""
        low, parts = self.height - BOTTOM, []
        for value in choose_ticks(self.y0, self.y1):
            y = self.map_y(value)
            parts.append(f'<line class="grid" x1="{self.left}" x2="{self.right}" y1="{y}" y2="{y}"/>')
            parts.append(
                f'<text class="tick" x="{self.left - 6}" y="{y + 4}" text-anchor="end">{format_short(value)}</text>'
            )
        parts += self.draw_numbers(x_label)
        parts.append(f'<line class="axis" x1="{self.left}" x2="{self.right}" y1="{low}" y2="{low}"/>')
        middle = (TOP + low) / 2
        turned = f'transform="rotate(-90 11 {middle})" text-anchor="middle"'
        parts.append(f'<text x="11" y="{middle}" {turned} class="label">{escape(y_label)}</text>')
        return parts

    def draw_numbers(self, label: str) -> list[str]:
        low, parts = self.height - BOTTOM, []
        for value in choose_ticks(self.x0, self.x1):
            at = f'x="{self.map_x(value)}" y="{low + 16}" text-anchor="middle"'
            parts.append(f'<text class="tick" {at}>{format_short(value)}</text>')
        middle = (self.left + self.right) / 2
        parts.append(
            f'<text x="{middle}" y="{self.height - 6}" text-anchor="middle" class="label">{escape(label)}</text>'
        )
        return parts


def choose_marker(colour: int) -> str:
    """The shape that goes with an agent's colour: with more agents than colours, the second of a colour has another."""
    return list(MARKERS)[(colour + colour // COLOURS) % len(MARKERS)]


def _draw_line_plot(plot: LinePlot, size: tuple[int, int]) -> str:
    top, reference = plot.top if plot.shows_top() else None, plot.reference
    shown = [line for line in plot.lines if np.isfinite(line.y).any()]
    low, high = _find_limits(shown, reference)
    high = high if top is None else max(high, top)
    first = min((float(line.x.min()) for line in shown), default=0.0)
    last = max((float(line.x.max()) for line in shown), default=1.0)
    axes = _Axes((min(first, 0.0), last), (low, high + 0.02 * (high - low)), height=size[1], width=size[0])
    parts = axes.draw_frame(plot.x_label, plot.y_label)
    if top is not None:
        parts.append(_draw_level(axes, top, "top"))
    if reference is not None:
        parts.append(_draw_level(axes, reference[1], "reference"))
    several = len({line.agent for line in shown}) > 1
    for line in shown:
        parts.append(f'<g data-agent="{escape(line.agent)}" class="c{line.colour % COLOURS}">')
        if line.low is not None and line.high is not None:
            parts.append(f'<path class="band" d="{_trace_band(axes, line)}"/>')
        dashed = " dashed" if line.is_dashed else ""
        parts.append(f'<path class="line{dashed}" d="{_trace(axes, line.x, line.y, line.is_stepped)}"/>')
        parts += _draw_marks(axes, line) if several or np.isfinite(line.y).sum() == 1 else []
        parts.append("</g>")
    if reference is not None:  # over the curves
        y, said = axes.map_y(reference[1]) - 5, escape(_name_level(*reference))
        parts.append(f'<text class="level" x="{axes.right - 4}" y="{y:.1f}" text-anchor="end">{said}</text>')
    return _wrap_svg(
        parts, size, f"{plot.y_label} over {plot.x_label}", _encode_data(axes, shown, plot.unit, top, reference)
    )


def _find_limits(lines: Sequence[Line], reference: tuple[str, float] | None) -> tuple[float, float]:
    """The least and the highest value of a plot; zero is in it."""
    values = [v[np.isfinite(v)] for line in lines for v in (line.y, line.low, line.high) if v is not None]
    everything = np.concatenate([*values, [0.0, reference[1] if reference else 0.0]])
    return float(everything.min()), float(everything.max())


def _draw_level(axes: _Axes, value: float, kind: str) -> str:
    """A level across the plot: `top`, the most points there are, or `reference`."""
    y = axes.map_y(value)
    return f'<line class="{kind}" x1="{axes.left}" x2="{axes.right}" y1="{y}" y2="{y}"/>'


def _name_level(name: str, value: float) -> str:
    return f"{name} {format_number(value)}"


def _draw_marks(axes: _Axes, line: Line) -> list[str]:
    """Markers evenly along the axis, each at a known point of the line; those of other lines are elsewhere."""
    known = np.flatnonzero(np.isfinite(line.y))
    begin = axes.x0 + (axes.x1 - axes.x0) * (0.5 + line.colour % 5 / 5) / NUM_MARKS
    wanted = begin + np.arange(NUM_MARKS) * (axes.x1 - axes.x0) / NUM_MARKS
    places = np.unique(known[np.minimum(np.searchsorted(line.x[known], wanted), len(known) - 1)])
    shape = MARKERS[choose_marker(line.colour)]
    return [
        f'<path class="mark" data-at="{place}" d="{shape}" '
        f'transform="translate({axes.map_x(float(line.x[place]))} {axes.map_y(float(line.y[place]))})"/>'
        for place in places
    ]


def _trace(axes: _Axes, x: Floats, y: Floats, steps: bool = False) -> str:
    """The way along the points; where one is lacking, the line has a gap."""
    way, last, on = [], 0.0, False
    for a, b in zip(x, y, strict=True):
        if not math.isfinite(b):
            on = False
            continue
        across, up = axes.map_x(float(a)), axes.map_y(float(b))
        if steps and on and up != last:
            way.append(f"L{across} {last}")
        way.append(f"{'L' if on else 'M'}{across} {up}")
        last, on = up, True
    return "".join(way)


def _trace_band(axes: _Axes, line: Line) -> str:
    assert line.low is not None and line.high is not None
    known = np.isfinite(line.low) & np.isfinite(line.high)
    if not known.any():
        return ""
    upper = _trace(axes, line.x[known], line.high[known], line.is_stepped)
    lower = _trace(axes, line.x[known][::-1], line.low[known][::-1], line.is_stepped)
    return f"{upper}L{lower[1:]}Z"


def _encode_data(
    axes: _Axes, lines: Sequence[Line], unit: str, top: float | None, reference: tuple[str, float] | None
) -> str:
    """What is plotted, for the page's script: the frame in which values lie, and each line's points."""

    def round_all(values: Floats) -> list[float | None]:
        return [float(f"{v:.4g}") if math.isfinite(v) else None for v in values]

    series = []
    for line in lines:
        one = {"agent": line.agent, "name": line.name or line.agent, "steps": line.is_stepped}
        one |= {"x": [float(f"{v:.6g}") for v in line.x], "y": round_all(line.y)}
        if line.low is not None and line.high is not None:
            one |= {"low": round_all(line.low), "high": round_all(line.high)}
        series.append(one)
    frame = [axes.left, axes.right, TOP, axes.height - BOTTOM, axes.x0, axes.x1, axes.y0, axes.y1]
    levels: list[list[str | float]] = [] if top is None else [["top", top, ""]]
    levels += [["reference", reference[1], _name_level(*reference)]] if reference else []
    data = {"frame": frame, "unit": unit, "levels": levels, "series": series}
    return json.dumps(data, separators=(",", ":"))


def _draw_bar_plot(plot: BarPlot) -> str:
    bars = plot.bars
    shown = [bar for bar in bars if bar.estimate is not None]
    left = 14 + LETTER * max((min(len(bar.agent), 26) for bar in bars), default=1)
    row, height = 26, TOP + BOTTOM + 26 * max(1, len(bars))
    limits = [v for bar in shown if bar.estimate for v in (bar.estimate.value, bar.estimate.low, bar.estimate.high)]
    low, high = min([0.0, *limits]), max([*limits, 0.0])
    if plot.shows_points and limits:  # intervals need no zero, and one far away would make them small
        low, high = min(limits), max(limits)
        room = 0.1 * (high - low) or 0.05
        low, high = low - room, high + room
    axes = _Axes((low, high), (0, 1), left, height)
    parts = []
    for value in choose_ticks(axes.x0, axes.x1):
        x = axes.map_x(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{height - BOTTOM}"/>')
    parts += axes.draw_numbers(plot.x_label)
    for place, bar in enumerate(bars):
        y = TOP + row * place + row / 2
        parts.append(f'<g data-agent="{escape(bar.agent)}" class="c{bar.colour % COLOURS}">')
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(_shorten(bar.agent))}</text>')
        if bar.estimate is not None:
            parts += _draw_bar(axes, bar.estimate, y, plot.shows_points)
        parts.append("</g>")
    return _wrap_svg(parts, (WIDTH, height), plot.x_label)


def _draw_bar(axes: _Axes, estimate: Estimate, y: float, points: bool) -> list[str]:
    value, low, high = (axes.map_x(v) for v in (estimate.value, estimate.low, estimate.high))
    figure, *ends = (format_number(number, 2) for number in (estimate.value, estimate.low, estimate.high))
    parts = [f"<title>{figure}, {' to '.join(ends)}</title>"]
    if points:
        parts.append(f'<circle class="dot" cx="{value}" cy="{y}" r="4"/>')
    else:
        zero = axes.map_x(0.0)
        start, width = min(zero, value), round(abs(value - zero), 1)
        parts.append(f'<rect class="bar" x="{start}" y="{y - 8}" width="{width}" height="16"/>')
    if estimate.high > estimate.low:
        parts.append(f'<line class="whisker" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>')
    return parts


def _shorten(name: str) -> str:
    return name if len(name) <= 26 else f"{name[:25]}…"


def _wrap_svg(parts: Sequence[str], size: tuple[int, int], said: str, data: str = "") -> str:
    plotted = f' data-plot="{escape(data)}"' if data else ""
    box = f'viewBox="0 0 {size[0]} {size[1]}" xmlns="http://www.w3.org/2000/svg"'
    return f'<svg {box} role="img" aria-label="{escape(said)}"{plotted}>{"".join(parts)}</svg>'


PALETTE = (
    "#c8102e", "#7b3fb5", "#1f6fb4", "#c46a00", "#1a8a5a", "#6b6b6b",
    "#a8458a", "#008b94", "#857400", "#8b4a2b", "#4a5fc1", "#e0559a",
)  # fmt: skip
"""The colours of plots that are files of their own: those of the page when it is light."""


def _make_style() -> str:
    """Plain rules without variables, which few programs beside browsers understand."""
    rules = [
        "svg{background:#fff;font:12px sans-serif}text{fill:#333}.grid{stroke:#e3e3e3}.axis{stroke:#888}",
        ".top{stroke:#888;stroke-dasharray:2 3}.line{fill:none;stroke-width:1.8}.dashed{stroke-dasharray:5 3}",
        ".reference{stroke:#555;stroke-dasharray:6 4}.mark{stroke:#fff;stroke-width:.6}",
        ".level{paint-order:stroke;stroke:#fff;stroke-width:3px}",
        ".band{opacity:.16}.bar{opacity:.85}.whisker{stroke:#333;stroke-width:1.6}",
    ]
    for place, colour in enumerate(PALETTE):
        filled = ",".join(f".c{place} .{kind}" for kind in ("band", "bar", "dot", "mark"))
        rules.append(f".c{place} .line{{stroke:{colour}}}{filled}{{fill:{colour}}}")
    return "".join(rules) + make_map_style()


def make_standalone(svg: str) -> str:
    """The plot as a file of its own, light, with the names of its lines, which on the page stand above all plots."""
    head, _, rest = svg.partition(">")
    head, _, plotted = head.partition(" data-plot=")
    if plotted:
        names = dict(re.findall(r'<g data-agent="([^"]*)" class="c(\d+)', svg))
        shapes = dict(re.findall(r'<g data-agent="([^"]*)"[^§]*?<path class="mark" data-at="\d+" d="([^"]*)"', svg))
        legend, height = _draw_legend(names, shapes)
        head = head.replace(f'viewBox="0 0 {WIDTH} {HEIGHT}"', f'viewBox="0 0 {WIDTH} {HEIGHT + height}"')
        rest = rest.removesuffix("</svg>") + legend + "</svg>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}><style>{_make_style()}</style>{rest}\n'


def _draw_legend(names: dict[str, str], shapes: dict[str, str]) -> tuple[str, int]:
    """Names, still as they stand in the SVG, with a bit of their lines, below the plot; and how high that is."""
    parts, x, y = [], float(LEFT), HEIGHT + 10
    for name, colour in names.items():
        width = 34 + LETTER * len(unescape(name))
        if x > LEFT and x + width > WIDTH:
            x, y = float(LEFT), y + 18
        shape = (
            f'<path class="mark" d="{shapes[name]}" transform="translate({x + 9:.0f} {y})"/>' if name in shapes else ""
        )
        parts.append(f'<g class="c{colour}"><path class="line" d="M{x:.0f} {y}h18"/>{shape}</g>')
        parts.append(f'<text x="{x + 24:.0f}" y="{y + 4}">{name}</text>')
        x += width + 8
    return "".join(parts), y + 10 - HEIGHT
