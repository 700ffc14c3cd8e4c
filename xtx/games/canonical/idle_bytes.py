"""Bytes that tell states apart in which all is the same to a player: they belong to the world, but not to the key.

Suspected is every byte beyond the object tree in which two states differ that Jericho's hash takes for one. From states
all over the game it is tried whether commands, `look` or `inventory` depend on any of them. One that matters in a few
rooms counts there; one that matters in many stays as it is, and so does one that there was no time to try.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.byte_roles import NONSENSE, Traces
from xtx.games.canonical.canonical_state import Layout, World
from xtx.games.canonical.command_trials import CHUNK, RNG, Trial, Trials, find_first_to_matter
from xtx.games.emulator.frotz import Snapshot
from xtx.games.zmachine.story_memory import Ram

_ROOMS = 12
"""In so many rooms it is tried with all kinds of commands whether a byte matters."""
_SELDOM = 3
"""A byte that matters in at most one of so many rooms is left out of the key in the others."""
_OFTEN = 4
"""In so many rooms a byte must have mattered before it is no longer tried."""
_MIN_ROOMS = 6
"""A byte that there was no time to try in all rooms must have been tried in so many."""
_TABLE_GAP = 16
"""Bytes that matter are taken to lie in one table if there is no more than that between them."""


@dataclass(frozen=True)
class _ByteTrial:
    """Which of some bytes make a difference in a state if they have their usual values."""

    state: Snapshot
    room: int
    suspects: tuple[int, ...]
    commands: tuple[str, ...]
    watched: Ram


@dataclass(frozen=True)
class _Tried:
    """By suspect: the rooms in which it was tried, in which there was no time to try it, and in which it matters."""

    tested: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    untried: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    affected_rooms: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    @staticmethod
    def add(byte_trials: Sequence[_ByteTrial], rooms: dict[int, set[int]]) -> None:
        """Adds the rooms of some trials for all of their suspects."""
        for byte_trial in byte_trials:
            for address in byte_trial.suspects:
                rooms[address].add(byte_trial.room)

    def is_idle(self, address: int) -> bool:
        """Whether a byte was tried often enough and seldom matters."""
        too_few = self.untried[address] and len(self.tested[address]) < _MIN_ROOMS
        return not too_few and len(self.affected_rooms[address]) * _SELDOM <= len(self.tested[address])


class IdleBytes:
    """Finds the idle bytes of one story."""

    def __init__(
        self, trials: Trials, traces: Traces, layout: Layout, usual: Sequence[str], states: Sequence[Snapshot]
    ) -> None:
        """`usual` are commands that are tried in every state; `states` are of the usual prompt."""
        self._trials = trials
        self._traces = traces
        self._layout = layout
        self._world = World(trials.emulator, layout)
        self._commands = tuple(command for command in usual if command not in trials.avoid)
        made = []
        for state in states:
            trials.emulator.restore(state)
            made.append(self._world.make_canonical(RNG))
        self._states = made
        self._memory = np.array([np.frombuffer(state.ram, np.uint8) for state in made])
        self._rooms = [trials.emulator.tree.find_room(row, trials.emulator.player) for row in self._memory]

    def find(self, needless: npt.NDArray[np.bool_]) -> Layout:
        """The layout without the idle ones of the bytes that seem to be needless."""
        suspects = np.flatnonzero(needless).tolist()
        if not suspects:
            return self._layout
        usual = {a: int(np.bincount(self._memory[:, a]).argmax()) for a in suspects}
        tried = self._try(suspects, usual)
        for address, others in self._find_tables(suspects).items():
            tried.affected_rooms[address] |= (
                set().union(*(tried.affected_rooms[a] for a in others)) & tried.tested[address]
            )
        fill = bytearray(self._layout.fill)
        idle, local = [], dict(self._layout.room_bytes)
        for address in suspects:
            if not tried.is_idle(address):
                continue
            idle.append(address)
            fill[address] = usual[address]
            # Where it was not tried it may matter.
            for room in sorted(tried.affected_rooms[address] | (tried.untried[address] - tried.tested[address])):
                local[room] = (*local.get(room, ()), address)
        return msgspec.structs.replace(self._layout, fill=bytes(fill), idle=tuple(idle), room_bytes=local)

    def _try(self, suspects: Sequence[int], usual: Mapping[int, int]) -> _Tried:
        tried = _Tried()
        for byte_trials in self._split_into_chunks(suspects, usual, tried):
            if self._trials.budget.is_spent:
                tried.add(byte_trials, tried.untried)
                continue
            limit = self._trials.budget.left // (2 * len(byte_trials))
            decisive = self._trials.run_for_each(_make_dependency_finder(usual, limit), byte_trials)
            tried.add(byte_trials, tried.tested)
            for byte_trial, found in zip(byte_trials, decisive, strict=True):
                for address in found:
                    tried.affected_rooms[address].add(byte_trial.room)
        return tried

    def _split_into_chunks(
        self, suspects: Sequence[int], usual: Mapping[int, int], tried: _Tried
    ) -> Iterator[list[_ByteTrial]]:
        thorough = self._choose_states(usual, _ROOMS)
        chosen = sorted(self._choose_states(usual, len(self._memory)), key=lambda i: (i not in thorough, i))
        for begin in range(0, len(chosen), CHUNK):
            some = chosen[begin : begin + CHUNK]
            # A byte that matters in many rooms belongs to the key: it need not be found again.
            doubtful = [a for a in suspects if len(tried.affected_rooms[a]) < _OFTEN or tried.is_idle(a)]
            yield [
                self._make_byte_trial(i, [a for a in doubtful if self._memory[i, a] != usual[a]], i in thorough)
                for i in some
            ]

    def _make_byte_trial(self, index: int, suspects: Sequence[int], thorough: bool) -> _ByteTrial:
        """The trial of a state: what is seen, where one can go, or, thoroughly, what any command does."""
        state, commands = self._states[index], self._commands
        if thorough and not self._trials.budget.is_spent:
            more = self._traces.list_commands(state)[len(NONSENSE) :]
            commands = (*commands, *(c for c in more if c not in self._trials.avoid))
        watched = self._world.select_watched_bits(self._memory[index])
        return _ByteTrial(state, self._rooms[index], tuple(suspects), commands, watched)

    def _find_tables(self, suspects: Sequence[int]) -> dict[int, list[int]]:
        """By suspect: those that lie in the same table, it seems. If one square of a board matters, all do."""
        tables, end = [[-_TABLE_GAP - 1]], self._trials.emulator.header.globals + 480
        for address in suspects:
            if address >= end:
                if address - tables[-1][-1] > _TABLE_GAP:
                    tables.append([])
                tables[-1].append(address)
        return {address: table for table in tables[1:] for address in table}

    def _choose_states(self, usual: Mapping[int, int], max_rooms: int) -> set[int]:
        """Return which states to try, so that every byte has unusual values in up to `max_rooms` rooms."""
        chosen: set[int] = set()
        for address, value in usual.items():
            by_room: dict[int, int] = {}
            for i in np.flatnonzero(self._memory[:, address] != value).tolist():
                by_room.setdefault(self._rooms[i], i)
            places = list(by_room.values())
            chosen |= set(places[:: len(places) // max_rooms + 1])
        return chosen

    @property
    def memory(self) -> npt.NDArray[np.uint8]:
        """RAM of the canonical states, one in each row."""
        return self._memory


def _make_dependency_finder(usual: Mapping[int, int], limit: int) -> Callable[[Trial, _ByteTrial], list[int]]:
    """A function that finds those of a trial's suspects on which something depends. When it has done that much work,
    it counts those that are left as found too."""

    def find_dependencies(trial: Trial, byte_trial: _ByteTrial) -> list[int]:
        raw = np.frombuffer(byte_trial.state.ram, np.uint8)

        def read_appearance(addresses: Sequence[int]) -> tuple[tuple[str, ...], bytes]:
            ram = raw.copy()
            ram[list(addresses)] = [usual[a] for a in addresses]
            state = msgspec.structs.replace(byte_trial.state, ram=ram.tobytes())
            outcomes = trial.compute_outcomes(state, byte_trial.commands, byte_trial.watched)
            return trial.read_responses(state, ("look", "inventory")), outcomes.tobytes()

        end = trial.work + limit
        truth, found, left = read_appearance(()), [], list(byte_trial.suspects)
        while (byte := find_first_to_matter(left, lambda some: read_appearance(some) != truth)) is not None:
            found.append(byte)
            left.remove(byte)
            if trial.work > end:
                return [*found, *left]
        return found

    return find_dependencies
