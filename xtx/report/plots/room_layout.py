"""The map of a game as far as it was found: which rooms, when first, and where they lie on a grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from xtx.runs.line_files import RoomMove

Place = tuple[int, int]
"""Across and down, in fields of the grid."""

_COMPASS: dict[str, Place] = {
    "north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0),
    "northeast": (1, -1), "northwest": (-1, -1), "southeast": (1, 1), "southwest": (-1, 1),
    "up": (1, -1), "down": (-1, 1), "in": (1, 0), "inside": (1, 0), "out": (-1, 0), "outside": (-1, 0),
}  # fmt: skip
DIRECTIONS = _COMPASS | {
    "n": (0, -1), "s": (0, 1), "e": (1, 0), "w": (-1, 0),
    "ne": (1, -1), "nw": (-1, -1), "se": (1, 1), "sw": (-1, 1), "u": (1, -1), "d": (-1, 1),
}  # fmt: skip
"""Where on paper a direction leads; `up` and `down` go aslant, so that the compass has the straight ways."""
MAX_ROOMS = 400
"""Most rooms on one map; a larger one cannot be read."""


@dataclass(frozen=True)
class RoomLink:
    """A line on the map."""

    origin: str
    target: str
    there: tuple[str, ...]
    """Actions that lead from the origin to the target."""
    back: tuple[str, ...]
    """And back; empty where no way back was found."""


@dataclass(frozen=True)
class RoomChart:
    """What was found, by one agent or in one run."""

    first: Mapping[str, int]
    """Each room, in the order of their discovery, and after how many steps of training that was."""
    ways: Sequence[RoomLink]


def merge_in_order(runs: Iterable[Sequence[RoomMove]]) -> list[RoomMove]:
    """The moves of several runs, by the steps after which they were made."""
    return list(merge(*runs, key=lambda move: move.step))


def make_chart(moves: Sequence[RoomMove]) -> RoomChart:
    """The rooms and ways in moves that are in order."""
    first: dict[str, int] = {}
    actions: dict[tuple[str, str], list[str]] = {}
    for move in moves:
        first.setdefault(move.origin, 0)  # no move led into it before, so an episode begins there
        first.setdefault(move.target, move.step)
        known = actions.setdefault((move.origin, move.target), [])
        if move.action not in known:
            known.append(move.action)
    ways, drawn = [], set[tuple[str, str]]()
    for (origin, target), there in actions.items():
        if (target, origin) not in drawn:
            ways.append(RoomLink(origin, target, tuple(there), tuple(actions.get((target, origin), ()))))
            drawn.add((origin, target))
    return RoomChart(first, ways)


def lay_out(moves: Sequence[RoomMove]) -> dict[str, Place]:
    """A field for each room, given moves in order: as the compass says, seen from where it was first walked into.

    Rooms stay where they are when others are found later, so that a map can be watched while it grows.
    """
    places: dict[str, Place] = {}
    taken: set[Place] = set()

    def put(room: str, wanted: Place) -> None:
        if room not in places and len(places) < MAX_ROOMS:
            places[room] = _find_nearest_free(wanted, taken)
            taken.add(places[room])

    for move in moves:
        put(move.origin, (0, 0))
        if move.origin in places:
            across, down = places[move.origin]
            dx, dy = DIRECTIONS.get(move.action.lower().rpartition(" ")[2], (0, 0))
            put(move.target, (across + dx, down + dy))
    return places


def _find_nearest_free(wanted: Place, taken: set[Place]) -> Place:
    """The free field nearest to the wanted one; of several, the first in reading order."""
    if wanted not in taken:
        return wanted
    across, down = wanted
    reach = 1
    while True:
        ring = [
            (across + dx, down + dy)
            for dy in range(-reach, reach + 1)
            for dx in range(-reach, reach + 1)
            if max(abs(dx), abs(dy)) == reach
        ]
        free = [place for place in ring if place not in taken]
        if free:
            return min(free, key=lambda place: (abs(place[0] - across) + abs(place[1] - down), place[1], place[0]))
        reach += 1
