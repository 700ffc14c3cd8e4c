"""Values of a byte that come to the same: a jug with three or four draughts of water left, the middle of a desert.

A byte that belongs to the world counts with every value by itself, though often only one or two of them make a
difference: none is left, or this is where something lies buried. Here values are put in the place of others in states
all over the game: those that never make a difference are folded into one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.jericho import Snapshot

Fold = tuple[int, int, bytes]
"""A room (0 for all), the address of a byte, and what each of its 256 values is replaced by."""

_GAIN = 3
"""Without a byte there must be so many states fewer, or it is not worth comparing its values all over the game."""
_SOME = 4
"""States with a value, states with the other, and states with neither, in which two values are compared."""
_ENOUGH = 6
"""Two values are told to be alike all over the game by so many states at least."""
_ENOUGH_HERE = 4
"""The same in one room."""
_EVERYWHERE = 4
"""What varies in so many rooms is compared all over the game at first, and then in each of them by itself."""
_MANY = 5
"""In no more rooms than that a byte is compared, unless it is worth something there."""


class Folding:
    """Finds folds from canonical states of one story."""

    def __init__(
        self,
        states: Sequence[Snapshot],
        rooms: Sequence[int],
        appearance: Callable[[int, Snapshot], Hashable],
        covered: npt.NDArray[np.uint8],
    ) -> None:
        """`states` are canonical and all different, with the room of each; those that matter most come first.
        `appearance` says what a state, which is one of them or made of the one with that number, looks like to who
        tries this and that in it. `covered` are the bits of memory that always count."""
        self._states = states
        self._rooms = np.array(rooms)
        self._memory = np.array([np.frombuffer(state.ram, np.uint8) for state in states])
        self._appearance = appearance
        self._covered = covered
        self._seen: dict[tuple[int, bytes], Hashable] = {}

    @property
    def memory(self) -> npt.NDArray[np.uint8]:
        """The states' memories, one in each row."""
        return self._memory

    def folds(self, suspects: Iterable[int], local: Mapping[int, Iterable[int]]) -> tuple[Fold, ...]:
        """Folds of the suspected bytes. `local`, by room: bytes that count there only."""
        worth = [address for address in suspects if self._gain(address, 0)]
        only_here = {address for bytes_ in local.values() for address in bytes_}
        found = self._held_to_all(
            [fold for address in worth if address not in only_here for fold in self._everywhere(address)]
        )
        return self._held_to_all([*found, *(fold for address in worth for fold in self._in_rooms(address, found))])

    def _everywhere(self, address: int) -> list[Fold]:
        """A fold of a byte all over the game, if there is one."""
        if len(self._varied(address)) < _EVERYWHERE or self._gain(address, 0) < _GAIN:
            return []
        table = self._table(address, self._rows(0), self._memory[:, address], _ENOUGH)
        return [] if table is None else [(0, address, table)]

    def _in_rooms(self, address: int, everywhere: Sequence[Fold]) -> list[Fold]:
        """Folds of a byte in single rooms, after those all over the game: first where it is worth the most."""
        column, folds = self._memory[:, address], []
        for _, _, table in (fold for fold in everywhere if fold[1] == address):
            column = np.frombuffer(table, np.uint8)[column]
        rooms = [room for room in self._varied(address) if len(self._rows(room)) >= _ENOUGH_HERE]
        gains = {room: self._gain(address, room) for room in rooms}
        rooms.sort(key=lambda room: -gains[room])
        for room in (room for i, room in enumerate(rooms) if gains[room] or i < _MANY):
            rows = self._rows(room)
            table_here = self._table(address, rows, column[rows], _ENOUGH_HERE)
            if table_here is not None:
                folds.append((room, address, table_here))
        return folds

    def _rows(self, room: int) -> npt.NDArray[np.intp]:
        """The states in a room; all for 0."""
        return np.flatnonzero((self._rooms == room) | (room == 0))

    def _gain(self, address: int, room: int) -> int:
        """How many fewer states there would be in a room if a byte did not count."""
        memory = self._memory[self._rows(room)]
        memory[:, address] = 0
        return len(memory) - len({row.tobytes() for row in memory})

    def _varied(self, address: int) -> list[int]:
        """The rooms in which a byte has more than one value."""
        values: dict[int, set[int]] = defaultdict(set)
        for room, value in zip(self._rooms.tolist(), self._memory[:, address].tolist(), strict=True):
            values[room].add(value)
        return [room for room, seen in sorted(values.items()) if len(seen) > 1]

    def _table(
        self, address: int, rows: npt.NDArray[np.intp], column: npt.NDArray[np.uint8], enough: int
    ) -> bytes | None:
        """What the values that a byte has in some states are to be replaced by there; None if all of them matter."""
        values, counts = np.unique(column, return_counts=True)
        table = bytearray(range(256))
        kinds: list[int] = []
        for value in values[np.argsort(-counts, kind="stable")].tolist():
            alike = next((kind for kind in kinds if self._alike(address, rows, column, value, kind, enough)), None)
            if alike is None:
                kinds.append(value)
            else:
                table[value] = alike
        return bytes(table) if len(kinds) < len(values) else None

    def _alike(
        self,
        address: int,
        rows: npt.NDArray[np.intp],
        column: npt.NDArray[np.uint8],
        one: int,
        other: int,
        enough: int,
    ) -> bool:
        """Whether two values of a byte make no difference in some states."""
        if (one ^ other) & int(self._covered[address]):
            return False
        kinds = rows[column == one], rows[column == other], rows[(column != one) & (column != other)]
        chosen = [i for kind in kinds for i in self._spread(kind)]
        return len(chosen) >= enough and all(
            self._with(i, address, one) == self._with(i, address, other) for i in chosen
        )

    def _spread(self, rows: npt.NDArray[np.intp]) -> list[int]:
        """Some of the states: the first ones, of which most is known, and others from all over."""
        some = rows.tolist()
        first, others = some[: _SOME // 2], some[_SOME // 2 :]
        return [*first, *others[:: 1 + len(others) // (_SOME - _SOME // 2)]]

    def _with(self, index: int, address: int, value: int) -> Hashable:
        ram = bytearray(self._states[index].ram)
        ram[address] = value
        return self._look(index, bytes(ram))

    def _look(self, index: int, ram: bytes) -> Hashable:
        if (index, ram) not in self._seen:
            self._seen[index, ram] = self._appearance(index, msgspec.structs.replace(self._states[index], ram=ram))
        return self._seen[index, ram]

    def _held_to_all(self, folds: Sequence[Fold]) -> tuple[Fold, ...]:
        """The folds without what makes a difference in any of the states: values were compared in some of them, and one
        byte at a time."""
        tables = [(room, address, bytearray(table)) for room, address, table in folds]
        changed = True
        while changed:  # what is taken out for one state may matter in another that was right before
            changed = False
            for index, state in enumerate(self._states):
                here = [fold for fold in tables if fold[0] in (0, self._rooms[index])]
                while (guilty := self._guilty(index, here)) is not None:
                    before = _folded(state.ram, here[:guilty])
                    _, address, table = here[guilty]
                    table[before[address]] = before[address]
                    changed = True
        unchanged = bytes(range(256))
        return tuple((room, address, bytes(t)) for room, address, t in tables if bytes(t) != unchanged)

    def _guilty(self, index: int, folds: Sequence[tuple[int, int, bytearray]]) -> int | None:
        """Which of the folds is the first that, with those before it, makes a difference in a state; None if even all
        of them do not."""
        ram = self._states[index].ram
        folded = _folded(ram, folds)
        if folded == ram or self._look(index, folded) == (truth := self._look(index, ram)):
            return None
        return next(i for i in range(len(folds)) if self._look(index, _folded(ram, folds[: i + 1])) != truth)


def _folded(ram: bytes, folds: Iterable[tuple[int, int, bytes | bytearray]]) -> bytes:
    changed = bytearray(ram)
    for _, address, table in folds:
        changed[address] = table[changed[address]]
    return bytes(changed)
