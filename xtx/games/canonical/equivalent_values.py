"""Values of a byte that come to the same: a jug with three or four draughts of water left, the middle of a desert.

A byte that belongs to the world counts with every value by itself, though often only one or two of them make a
difference: none is left, or this is where something lies buried. Here values are put in the place of others in states
all over the game: those that never make a difference are replaced by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.command_trials import CHUNK
from xtx.games.emulator.frotz import Snapshot

ValueTable = tuple[int, int, bytes]
"""A room (0 for all), the address of a byte, and what each of its 256 values is replaced by."""

_MIN_GAIN = 3
"""How many states must become equal without a byte for its values to be compared all over the game."""
_SAMPLE_SIZE = 4
"""States with a value, states with the other, and states with neither, in which two values are compared."""
_MIN_STATES = 6
"""Fewest states in which two values must be compared before they count as alike all over the game."""
_MIN_STATES_IN_ROOM = 4
"""The same in one room."""
_MIN_ROOMS = 4
"""A byte that varies in at least this many rooms is compared all over the game, and then in each of them by itself."""
_MAX_ROOMS = 5
"""A byte is compared in at most this many rooms, except where leaving it out makes states equal."""


class EquivalentValueSearch:
    """Finds equivalent values of bytes, from canonical states of one story."""

    def __init__(
        self,
        states: Sequence[Snapshot],
        rooms: Sequence[int],
        read_appearances: Callable[[Sequence[tuple[int, Snapshot]]], Sequence[Hashable]],
        covered: npt.NDArray[np.uint8],
        may_compare: Callable[[], bool] = lambda: True,
        may_verify: Callable[[], bool] = lambda: True,
    ) -> None:
        """`states` are canonical and all different, with the room of each; those that matter most come first.
        `read_appearances` says what states look like to a player who tries this and that in them; each is one of the
        states, or made of the one with that number. `covered` are the bits of memory that always count. `may_compare`
        and `may_verify` say whether there is time left for either: values that were not compared, or with a table that
        was not verified in all states, count each by itself."""
        self._states = states
        self._rooms = np.array(rooms)
        self._memory = np.array([np.frombuffer(state.ram, np.uint8) for state in states])
        self._read_appearances = read_appearances
        self._may_compare, self._may_verify = may_compare, may_verify
        varying = np.flatnonzero((self._memory != self._memory[:1]).any(axis=0))
        weights = np.random.default_rng(0).integers(2**64, size=len(varying), dtype=np.uint64)
        self._weights = dict(zip(varying.tolist(), weights, strict=True))
        """By address of a byte in which the memories differ: what it is multiplied with in their hashes."""
        self._hashes = self._memory[:, varying].astype(np.uint64) @ weights
        """Hashes of the memories, sums of their bytes, of which one byte can be taken out again."""
        self._covered = covered
        self._seen: dict[tuple[int, bytes], Hashable] = {}

    @property
    def memory(self) -> npt.NDArray[np.uint8]:
        """The states' memories, one in each row."""
        return self._memory

    def find(self, suspects: Iterable[int], room_bytes: Mapping[int, Iterable[int]]) -> tuple[ValueTable, ...]:
        """Return the tables of the suspected bytes. `room_bytes`, by room: bytes that count there only."""
        worth = [address for address in suspects if self._count_gain(address, 0)]
        # What is worth most comes first, should there be no time for all.
        worth.sort(key=lambda address: -self._count_gain(address, 0))
        only_here = {address for bytes_ in room_bytes.values() for address in bytes_}
        found = self._verify(
            [table for address in worth if address not in only_here for table in self._search_everywhere(address)]
        )
        return self._verify([*found, *(table for address in worth for table in self._search_in_rooms(address, found))])

    def _search_everywhere(self, address: int) -> list[ValueTable]:
        """A table for a byte all over the game, if there is one."""
        if (
            not self._may_compare()
            or len(self._find_varied(address)) < _MIN_ROOMS
            or self._count_gain(address, 0) < _MIN_GAIN
        ):
            return []
        table = self._make_table(address, self._find_rows(0), self._memory[:, address], _MIN_STATES)
        return [] if table is None else [(0, address, table)]

    def _search_in_rooms(self, address: int, everywhere: Sequence[ValueTable]) -> list[ValueTable]:
        """Tables for a byte in single rooms, after those all over the game: first where it is worth the most."""
        column, found = self._memory[:, address], []
        for _, _, table in (table for table in everywhere if table[1] == address):
            column = np.frombuffer(table, np.uint8)[column]
        rooms = [room for room in self._find_varied(address) if len(self._find_rows(room)) >= _MIN_STATES_IN_ROOM]
        gains = {room: self._count_gain(address, room) for room in rooms}
        rooms.sort(key=lambda room: -gains[room])
        for room in (room for i, room in enumerate(rooms) if gains[room] or i < _MAX_ROOMS):
            if not self._may_compare():
                break
            rows = self._find_rows(room)
            replaced = self._make_table(address, rows, column[rows], _MIN_STATES_IN_ROOM)
            if replaced is not None:
                found.append((room, address, replaced))
        return found

    def _find_rows(self, room: int) -> npt.NDArray[np.intp]:
        """The states in a room; all for 0."""
        return np.flatnonzero((self._rooms == room) | (room == 0))

    def _count_gain(self, address: int, room: int) -> int:
        """How many fewer states there would be in a room if a byte did not count."""
        rows = self._find_rows(room)
        without = self._memory[rows, address] * self._weights.get(address, np.uint64(0))
        return len(rows) - len(np.unique(self._hashes[rows] - without))

    def _find_varied(self, address: int) -> list[int]:
        """The rooms in which a byte has more than one value."""
        values: dict[int, set[int]] = defaultdict(set)
        for room, value in zip(self._rooms.tolist(), self._memory[:, address].tolist(), strict=True):
            values[room].add(value)
        return [room for room, seen in sorted(values.items()) if len(seen) > 1]

    def _make_table(
        self, address: int, rows: npt.NDArray[np.intp], column: npt.NDArray[np.uint8], enough: int
    ) -> bytes | None:
        """What the values that a byte has in some states are to be replaced by there; None if all of them matter."""
        values, counts = np.unique(column, return_counts=True)
        table = bytearray(range(256))
        kinds: list[int] = []
        for value in values[np.argsort(-counts, kind="stable")].tolist():
            alike = next((kind for kind in kinds if self._are_alike(address, rows, column, value, kind, enough)), None)
            if alike is None:
                kinds.append(value)
            else:
                table[value] = alike
        return bytes(table) if len(kinds) < len(values) else None

    def _are_alike(
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
        chosen = [i for kind in kinds for i in self._choose_spread_out(kind)]
        if len(chosen) < enough or not self._may_compare():
            return False
        for begin in range(0, len(chosen), CHUNK // 2):
            some = chosen[begin : begin + CHUNK // 2]
            looks = self._read_looks(
                [(i, self._replace_byte(i, address, value)) for value in (one, other) for i in some]
            )
            if looks[: len(some)] != looks[len(some) :] or not self._may_compare():
                return False
        return True

    def _choose_spread_out(self, rows: npt.NDArray[np.intp]) -> list[int]:
        """Some of the states: the first ones, of which most is known, and others from all over."""
        some = rows.tolist()
        first, others = some[: _SAMPLE_SIZE // 2], some[_SAMPLE_SIZE // 2 :]
        return [*first, *others[:: 1 + len(others) // (_SAMPLE_SIZE - _SAMPLE_SIZE // 2)]]

    def _replace_byte(self, index: int, address: int, value: int) -> bytes:
        ram = bytearray(self._states[index].ram)
        ram[address] = value
        return bytes(ram)

    def _read_looks(self, states_tried: Sequence[tuple[int, bytes]]) -> list[Hashable]:
        """What states look like, each given by the number of the state that it was made of, and its RAM."""
        new = [pair for pair in dict.fromkeys(states_tried) if pair not in self._seen]
        states = [(index, msgspec.structs.replace(self._states[index], ram=ram)) for index, ram in new]
        self._seen |= dict(zip(new, self._read_appearances(states), strict=True))
        return [self._seen[pair] for pair in states_tried]

    def _verify(self, found: Sequence[ValueTable]) -> tuple[ValueTable, ...]:
        """Return the tables without the values that make a difference in any state, since values were compared in some
        states, and one byte at a time. Returns none if there is no time for that."""
        tables = [(room, address, bytearray(table)) for room, address, table in found]
        changed = True
        while changed:  # what is taken out for one state may matter in another that was right before
            changed = False
            for begin in range(0, len(self._states), CHUNK):
                some = range(begin, min(begin + CHUNK, len(self._states)))
                here = {i: [table for table in tables if table[0] in (0, self._rooms[i])] for i in some}
                replaced = {i: _replace_values(self._states[i].ram, here[i]) for i in some}
                different = [i for i in some if replaced[i] != self._states[i].ram]
                self._read_looks([(i, ram) for i in different for ram in (self._states[i].ram, replaced[i])])
                for i in different:
                    while (wrong := self._find_wrong(i, here[i])) is not None:
                        before = _replace_values(self._states[i].ram, here[i][:wrong])
                        _, address, table = here[i][wrong]
                        table[before[address]] = before[address]
                        changed = True
                        if not self._may_verify():
                            return ()
                if not self._may_verify():
                    return ()
        unchanged = bytes(range(256))
        return tuple((room, address, bytes(t)) for room, address, t in tables if bytes(t) != unchanged)

    def _find_wrong(self, index: int, tables: Sequence[tuple[int, int, bytearray]]) -> int | None:
        """Which of the tables is the first that, with those before it, makes a difference in a state; None if even all
        of them do not."""
        ram = self._states[index].ram
        replaced = _replace_values(ram, tables)
        if replaced == ram:
            return None
        truth, look = self._read_looks([(index, ram), (index, replaced)])
        if look == truth:
            return None
        without, needed = 0, len(tables)  # halving
        while needed - without > 1:
            middle = (without + needed) // 2
            if self._read_looks([(index, _replace_values(ram, tables[:middle]))])[0] != truth:
                needed = middle
            else:
                without = middle
        return needed - 1


def _replace_values(ram: bytes, tables: Iterable[tuple[int, int, bytes | bytearray]]) -> bytes:
    changed = bytearray(ram)
    for _, address, table in tables:
        changed[address] = table[changed[address]]
    return bytes(changed)
