"""Maps: which rooms and ways there are, where they lie, and how they are drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from xtx.report.plots.room_layout import MAX_ROOMS, lay_out, make_chart, merge_in_order
from xtx.report.plots.room_map import LETTERS, SHADES, MapPlot, wrap
from xtx.report.plots.svg_plots import make_standalone
from xtx.runs.line_files import RoomMove

MOVES = [
    RoomMove(8, "House", "north", "Field"),
    RoomMove(16, "Field", "south", "House"),
    RoomMove(24, "House", "enter cellar", "Cellar"),
    RoomMove(32, "House", "go down", "Cellar"),
    RoomMove(800, "Field", "west", "Hut & Shed"),
]


def test_rooms_and_ways() -> None:
    found = make_chart(MOVES)
    assert found.first == {"House": 0, "Field": 8, "Cellar": 24, "Hut & Shed": 800}
    assert [(way.origin, way.target, way.there, way.back) for way in found.ways] == [
        ("House", "Field", ("north",), ("south",)),
        ("House", "Cellar", ("enter cellar", "go down"), ()),
        ("Field", "Hut & Shed", ("west",), ()),
    ]


def test_runs_are_put_together_by_steps() -> None:
    early = [RoomMove(4, "House", "east", "Barn")]
    assert [move.step for move in merge_in_order([MOVES, early])] == [4, 8, 16, 24, 32, 800]


def test_rooms_lie_as_the_compass_says_and_stay_there() -> None:
    places = lay_out(MOVES)
    assert places["House"] == (0, 0) and places["Field"] == (0, -1) and places["Hut & Shed"] == (-1, -1)
    assert len(set(places.values())) == 4
    for end in range(1, len(MOVES)):
        part = lay_out(MOVES[:end])
        assert part == {room: place for room, place in places.items() if room in part}


def test_rooms_in_one_place_are_moved_apart() -> None:
    moves = [RoomMove(n, "Hub", f"press button {n}", f"Cell {n}") for n in range(60)]
    places = lay_out(moves)
    assert len(set(places.values())) == 61
    assert max(max(abs(x), abs(y)) for x, y in places.values()) <= 4


def test_there_is_an_end_to_what_is_drawn() -> None:
    moves = [RoomMove(n, f"Room {n}", "east", f"Room {n + 1}") for n in range(2 * MAX_ROOMS)]
    assert len(lay_out(moves)) == MAX_ROOMS
    ElementTree.fromstring(MapPlot(make_chart(moves), lay_out(moves), 800).draw_svg())


def test_a_map_is_drawn() -> None:
    seen = MapPlot(make_chart(MOVES[:3]), lay_out(MOVES), 800)
    svg = seen.draw_svg()
    ElementTree.fromstring(svg)
    ElementTree.fromstring(make_standalone(svg).encode())
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
    for x, y in re.findall(r' x="(\d+)" y="(\d+)"', svg):
        assert int(x) < width and int(y) < height
    assert svg.count('class="room') == 4 and svg.count("room unseen") == 1 and svg.count("v0 start") == 1
    assert "Hut &amp; Shed" in svg and svg.count('class="way"') == 1 and svg.count('class="way once"') == 1


def test_colours_go_from_the_first_to_the_last_room() -> None:
    plot = MapPlot(make_chart(MOVES), lay_out(MOVES), 800)
    assert (plot.choose_shade(0), plot.choose_shade(800)) == (0, SHADES - 1)
    for shade in range(1, SHADES):
        assert plot.choose_shade(plot.find_first_step(shade) + 1) >= shade
    assert MapPlot(make_chart([]), {}, 0).choose_shade(0) == 0


def test_long_names_are_cut() -> None:
    assert wrap("Quay") == ["Quay"]
    assert wrap("Twisty little passages all alike and then some") == ["Twisty little", "passages all…"]
    assert all(len(line) <= LETTERS for line in wrap("x" * 80 + " " + "y" * 80))
