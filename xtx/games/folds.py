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
"""Without a byte there must be so many states fewer, or it is not worth the trouble."""
_SOME = 4
"""States with a value, states with the other, and states with neither, in which two values are compared."""
_ENOUGH = 6
"""Two values are told to be alike by so many states at least."""
_EVERYWHERE = 4
"""What varies in so many rooms is compared all over the game, else in each of them by itself."""


class Folding:
    """Finds folds from canonical states of one story."""

    def __init__(
        self, states: Sequence[Snapshot], rooms: Sequence[int], appearance: Callable[[int, Snapshot], Hashable]
    ) -> None:
        """`states` are canonical and all different, with the room of each; those that matter most come first.
        `appearance` says what a state, which is one of them or made of the one with that number, looks like to who
        tries this and that in it."""
        self._states = states
        self._rooms = np.array(rooms)
        self._memory = np.array([np.frombuffer(state.ram, np.uint8) for state in states])
        self._appearance = appearance
        self._seen: dict[tuple[int, bytes], Hashable] = {}

    @property
    def memory(self) -> npt.NDArray[np.uint8]:
        """The states' memories, one in each row."""
        return self._memory

    def folds(self, suspects: Iterable[int], local: Mapping[int, Iterable[int]]) -> tuple[Fold, ...]:
        """Folds of the suspected bytes. `local`, by room: bytes that count there only."""
        found: list[Fold] = []
        for address in suspects:
            if self._gain(address) < _GAIN:
                continue
            for room in self._scopes(address, any(address in bytes_ for bytes_ in local.values())):
                table = self._table(address, room)
                if table is not None:
                    found.append((room, address, table))
        return self._held_to_all(found)

    def _gain(self, address: int) -> int:
        """How many fewer states there would be if a byte did not count."""
        memory = self._memory.copy()
        memory[:, address] = 0
        return len(memory) - len({row.tobytes() for row in memory})

    def _scopes(self, address: int, local: bool) -> list[int]:
        """The rooms in which values are compared; 0 for all at once."""
        values: dict[int, set[int]] = defaultdict(set)
        for room, value in zip(self._rooms.tolist(), self._memory[:, address].tolist(), strict=True):
            values[room].add(value)
        varied = sorted(room for room, seen in values.items() if len(seen) > 1)
        return [0] if len(varied) >= _EVERYWHERE and not local else varied

    def _table(self, address: int, room: int) -> bytes | None:
        """What the values of a byte are to be replaced by in a room; None if all of them matter."""
        rows = np.flatnonzero((self._rooms == room) | (room == 0))
        column = self._memory[rows, address]
        values, counts = np.unique(column, return_counts=True)
        if len(values) < 2 or len(rows) < _ENOUGH:
            return None
        table = bytearray(range(256))
        kinds: list[int] = []
        for value in values[np.argsort(-counts, kind="stable")].tolist():
            alike = next((kind for kind in kinds if self._alike(address, rows, column, value, kind)), None)
            if alike is None:
                kinds.append(value)
            else:
                table[value] = alike
        return bytes(table) if len(kinds) < len(values) else None

    def _alike(
        self, address: int, rows: npt.NDArray[np.intp], column: npt.NDArray[np.uint8], one: int, other: int
    ) -> bool:
        """Whether two values of a byte make no difference in some states."""
        kinds = rows[column == one], rows[column == other], rows[(column != one) & (column != other)]
        chosen = [i for kind in kinds for i in self._spread(kind)]
        return len(chosen) >= _ENOUGH and all(
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
        for index, state in enumerate(self._states):
            room, ram = int(self._rooms[index]), state.ram
            while here := [f for f in tables if f[0] in (0, room) and f[2][ram[f[1]]] != ram[f[1]]]:
                if self._look(index, ram) == self._look(index, _folded(ram, here)):
                    break
                _, address, table = here[-1]
                table[ram[address]] = ram[address]
        unchanged = bytes(range(256))
        return tuple((room, address, bytes(t)) for room, address, t in tables if bytes(t) != unchanged)


def _folded(ram: bytes, folds: Iterable[tuple[int, int, bytes | bytearray]]) -> bytes:
    changed = bytearray(ram)
    for _, address, table in folds:
        changed[address] = table[changed[address]]
    return bytes(changed)
