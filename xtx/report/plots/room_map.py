"""A map of rooms as SVG. Colours are classes (`v0` to `v7`, early to late), so the page decides light or dark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from xtx.report.number_format import format_count, format_short
from xtx.report.plots.room_layout import Place, RoomChart, RoomLink

ACROSS, DOWN = 132, 62
"""Size of a field."""
BOX_WIDTH, BOX_HEIGHT = 112, 38
LETTERS = 17
"""In a line of a room's name."""
SHADES = 8
SHADE_COLOURS = ("#fff0a8", "#e9eb95", "#c3e6a0", "#a2dfbd", "#93d4dc", "#9cc3ee", "#b9b4f0", "#dcb0ea")
"""For maps that are files of their own: those of the page when it is light."""
LEGEND = 34
MARGIN = 12


@dataclass(frozen=True, eq=False)
class MapPlot:
    """What one agent found, on the common map of a game."""

    chart: RoomChart
    places: Mapping[str, Place]
    """Of all rooms that any agent found; those that are not in the chart are drawn empty."""
    latest: int
    """Steps that the last colour stands for."""

    @property
    def origin(self) -> Place:
        """The field that is leftmost and uppermost."""
        across, down = zip(*self.places.values(), strict=True) if self.places else ((0,), (0,))
        return min(across), min(down)

    @property
    def size(self) -> tuple[int, int]:
        """Of the picture."""
        across, down = zip(*self.places.values(), strict=True) if self.places else ((0,), (0,))
        width, height = max(across) - min(across) + 1, max(down) - min(down) + 1
        return max(380, width * ACROSS + 2 * MARGIN), height * DOWN + 2 * MARGIN + LEGEND

    def find_middle(self, room: str) -> tuple[float, float]:
        """Where a room lies on the picture."""
        left, top = self.origin
        x, y = self.places[room]
        return MARGIN + (x - left + 0.5) * ACROSS, MARGIN + (y - top + 0.5) * DOWN

    def choose_shade(self, step: float) -> int:
        """The colour of a room that was first walked into after so many steps: even in the logarithm, since most
        rooms are found early."""
        return min(SHADES - 1, int(SHADES * math.log1p(step) / math.log1p(max(1, self.latest))))

    def find_first_step(self, shade: int) -> int:
        """The steps at which a colour begins."""
        return round(math.expm1(shade / SHADES * math.log1p(max(1, self.latest))))

    def draw_svg(self) -> str:
        """The picture."""
        width, height = self.size
        shown = [way for way in self.chart.ways if way.origin in self.places and way.target in self.places]
        parts = [self._draw_way(way) for way in shown]
        parts += [self._draw_room(room, shown) for room in self.places]
        parts.append(f'<g transform="translate(0 {height - LEGEND})">{self._draw_legend_content()}</g>')
        size = f'viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" style="--natural:{width}px"'
        said = f"map of {len(self.chart.first)} rooms"
        return f'<svg class="map" {size} role="img" aria-label="{said}">{"".join(parts)}</svg>'

    def _draw_room(self, room: str, ways: list[RoomLink]) -> str:
        x, y = self.find_middle(room)
        first = self.chart.first.get(room)
        if first is None:
            kind, said = "unseen", f"{room}\nnot found by this agent"
        else:
            kind = f"v{self.choose_shade(first)}" + (" start" if room == next(iter(self.chart.first)) else "")
            when = "from the beginning" if first == 0 else f"after {format_count(first)} steps"
            said = "\n".join([room, f"first visited {when}", *_list_exits(room, ways)])
        lines = wrap(room)
        text = "".join(
            f'<text x="{x:.0f}" y="{y + 4 + 13 * (place - (len(lines) - 1) / 2):.0f}">{escape(line)}</text>'
            for place, line in enumerate(lines)
        )
        box = f'x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
        return f'<g class="room {kind}" data-tip="{escape(said)}"><rect {box} rx="5"/>{text}</g>'

    def _draw_way(self, way: RoomLink) -> str:
        path = self.trace(way)
        said = f"{way.origin} → {way.target}: {', '.join(way.there)}"
        said += f"\n{way.target} → {way.origin}: {', '.join(way.back)}" if way.back else ""
        kind = "way" if way.back else "way once"
        return f'<g data-tip="{escape(said)}"><path class="feel" d="{path}"/><path class="{kind}" d="{path}"/></g>'

    def trace(self, way: RoomLink) -> str:
        """Straight between neighbours; bowed where it would run behind other rooms."""
        (x0, y0), (x1, y1) = self.find_middle(way.origin), self.find_middle(way.target)
        across, down = (x1 - x0) / ACROSS, (y1 - y0) / DOWN
        if max(abs(across), abs(down)) <= 1.01:
            return f"M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}"
        bow = 0.5 / math.hypot(across, down)
        x, y = (x0 + x1) / 2 - down * bow * ACROSS, (y0 + y1) / 2 + across * bow * DOWN
        return f"M{x0:.0f} {y0:.0f}Q{x:.0f} {y:.0f} {x1:.0f} {y1:.0f}"

    def draw_legend(self) -> str:
        """What the colours mean, as a picture of its own: beside a map that is larger than its place."""
        size = f'viewBox="0 0 380 {LEGEND}" xmlns="http://www.w3.org/2000/svg" style="--natural:380px"'
        return f'<svg class="map" {size} role="img" aria-label="colours">{self._draw_legend_content()}</svg>'

    def _draw_legend_content(self) -> str:
        y, parts = 6, [f'<text x="{MARGIN}" y="17">first visit</text>']
        for shade in range(SHADES):
            x = MARGIN + 66 + 26 * shade
            parts.append(f'<g class="v{shade}"><rect x="{x}" y="{y}" width="26" height="12"/></g>')
            if shade % 2 == 0:
                parts.append(f'<text x="{x}" y="{y + 24}">{format_short(self.find_first_step(shade))}</text>')
        parts.append(f'<text x="{x + 30}" y="{y + 11}">{format_short(float(f"{self.latest:.2g}"))} steps</text>')
        return f'<g class="legend">{"".join(parts)}</g>'


def _list_exits(room: str, ways: list[RoomLink]) -> list[str]:
    lines = [f"{', '.join(way.there)} → {way.target}" for way in ways if way.origin == room]
    lines += [f"{', '.join(way.back)} → {way.origin}" for way in ways if way.target == room and way.back]
    return lines if len(lines) <= 12 else [*lines[:12], f"and {len(lines) - 12} more"]


def wrap(name: str) -> list[str]:
    """A room's name in at most two lines that fit into its box."""
    lines = [""]
    for word in name.split():
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) <= LETTERS or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    if len(lines) > 2:
        lines = [lines[0], f"{lines[1]}…"]
    return [line if len(line) <= LETTERS else f"{line[: LETTERS - 1]}…" for line in lines]


def make_map_style() -> str:
    """Plain rules for a map that is a file of its own."""
    rules = [
        ".map text{font-size:11px;text-anchor:middle}.map .legend text{text-anchor:start}",
        ".way{fill:none;stroke:#999;stroke-width:1.4}.once{stroke-dasharray:4 3}.feel{fill:none;stroke:none}",
        ".map rect{stroke:#777}.map .start rect{stroke:#222;stroke-width:2.5}",
        ".map .unseen rect{fill:#fff;stroke:#bbb;stroke-dasharray:3 3}.map .unseen text{fill:#999}",
    ]
    rules += [f".v{shade} rect{{fill:{colour}}}" for shade, colour in enumerate(SHADE_COLOURS)]
    return "".join(rules)
