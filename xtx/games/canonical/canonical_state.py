"""The state of the world apart from how the player came to it: canonical states and their keys.

What was found out about a state (its valid actions, `look`, `inventory`) is to be found out once. For that two
states must count as equal that differ only in what the parser left behind, in the number of moves, or in a lamp
that has 181 turns left and not 180; and what is found must be a function of the key alone, in every run.
So the key is not a summary of the state but the state itself, made canonical: every byte that does not belong
to the world is set to a fixed value, and the search then starts *from that canonical state*. Which bytes those
are is found by trying: see survey.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.move_timestamps import count_elapsed, write_word
from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Emulator, Snapshot, Status
from xtx.games.emulator.printed_text import clean
from xtx.games.zmachine.story_memory import Ram, read_word
from xtx.games.zset.engine import UNJUDGED, Engine
from xtx.search_versions import SURVEY_VERSION as SURVEY_VERSION

CANONICAL_VERSION = 8
"""The same for stories with a profile that says what means nothing: changes only when the way of making a state
canonical does, or what is found out of such stories all the same (the survey's first layout). What is shipped of the
embedded adventure must then be found anew."""


ELSEWHERE = 0
"""Stands for a room in `Layout.unchecked`: no object has this number."""


_STORED_NAMES = {
    "scheduled_events": "due", "room_bytes": "local", "equivalent_values": "folds", "move_timestamps": "since",
}  # fmt: skip
"""Names of fields in stored layouts."""


class Layout(msgspec.Struct, frozen=True, rename=_STORED_NAMES):
    """Which parts of a story's memory make up the world, and what the others are set to."""

    mask: bytes
    """One byte for each byte of RAM: the bits that belong to the world."""
    fill: bytes
    """RAM at a usual prompt, from which the other bits are taken."""
    counters: tuple[int, ...]
    """Addresses of bytes that count turns."""
    running: int
    """What those are set to unless they are 0: they run, and no scheduled event is next."""
    idle: tuple[int, ...]
    """Addresses of bytes that belong to the world, but on which nothing that can be seen or done next depends: the key
    leaves them out, but a command that changes them does something."""
    scheduled_events: tuple[tuple[tuple[int, int], ...], ...]
    """Addresses and values of bytes, mostly clocks, that together make something happen this turn, whatever is done:
    where all have these values, they keep them."""
    room_bytes: dict[int, tuple[int, ...]]
    """By room (object number): bytes that belong to the world there though not elsewhere, such as the clock behind
    a trap."""
    equivalent_values: tuple[tuple[int, int, bytes], ...]
    """Rooms (0 for all), addresses of bytes, and what each of their values is set to: values that come to the same."""
    thorough: bool
    """Whether all attributes of the things in the player's room belong to the world, also those that Jericho leaves
    out: where they decide how a thing is described."""
    prompt: tuple[int, int, int]
    """Program counter, opcode and number of frames when the story waits for a command as usual."""
    stack: bytes
    sp: int
    fp: int
    cut_short: tuple[str, ...] = ()
    """Stages of the survey that their budget did not suffice for: keys are finer than they need be."""
    move_timestamps: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Addresses of words that hold the number of moves at which something happened, with the numbers of moves after
    which that makes a difference: not when it was counts, but how long ago."""

    unchecked: dict[int, tuple[int, ...]] = {}
    """By room: bytes that keep their values there because there was no time to see whether anything depends on them.
    The key has them, and so is finer than need be; that a command changes them means nothing. Key 0 stands for all
    rooms that are not listed, which the walkthrough does not visit; where everything was checked nothing is listed."""

    @property
    def num_unchecked_rooms(self) -> int:
        """How many rooms that the walkthrough visits were not checked."""
        return sum(room != ELSEWHERE and bool(kept) for room, kept in self.unchecked.items())

    @property
    def timestamp_bytes(self) -> list[int]:
        """The bytes of those words, of which neither means anything without the other."""
        return [byte for address, _ in self.move_timestamps for byte in (address, address + 1)]


class World:
    """Canonical states and keys for one emulator."""

    def __init__(self, emulator: Emulator, layout: Layout, engine: Engine | None = None) -> None:
        """`engine` runs commands from canonical states, which no story came to by itself and on which Frotz may crash;
        without one they are run in the emulator."""
        self._emulator = emulator
        self._engine = engine
        self.layout = layout
        self._idle = np.array(layout.idle, dtype=np.intp)
        self._unchecked_elsewhere = layout.unchecked.get(ELSEWHERE, ())
        self._mask: Ram = np.frombuffer(layout.mask, np.uint8).copy()
        self._mask[self._idle] = 0
        self._fill: Ram = np.frombuffer(layout.fill, np.uint8) & ~self._mask
        self._counters = np.array(layout.counters, dtype=np.intp)
        self._equivalents = {
            room: self._find_equivalents_in(room) for room in {room for room, _, _ in layout.equivalent_values}
        }
        together = [byte for event in layout.scheduled_events for byte in event]
        self._scheduled = (
            np.array([address for address, _ in together], dtype=np.intp),
            np.array([value for _, value in together], dtype=np.uint8),
            np.cumsum([0, *map(len, layout.scheduled_events)])[:-1],
        )
        """All bytes that make something happen, one after the other, and where each of the sets begins."""
        tree = emulator.tree
        self._watched: Ram = np.frombuffer(layout.mask, np.uint8).copy()
        tree.view_entries(self._watched)[:] = 0
        self._watched[self._counters] = 0
        self._moves = emulator.world_memory.moves_addresses[0] if layout.move_timestamps else 0
        links = tree.read_links(np.frombuffer(emulator.story.content, np.uint8))
        self._homes = {roamer: self._list_places(links, roamer) for roamer in emulator.world_memory.roamers}

    def make_canonical(self, rng: tuple[int, int, int]) -> Snapshot:
        """The emulator's present state made canonical, with the given random numbers to come."""
        emulator, layout = self._emulator, self.layout
        present = self._shift_timestamps(emulator.ram) if layout.move_timestamps else emulator.ram
        ram = present & self._mask
        ram |= self._fill
        around = emulator.tree.list_around(present, emulator.player)
        room = around[-1] if around else emulator.player  # rooms may have no names
        ram[self._counters] = np.where(ram[self._counters] == 0, 0, layout.running)
        local = layout.room_bytes.get(room)
        if local:
            ram[list(local)] = present[list(local)]
        if layout.scheduled_events:
            addresses, values, starts = self._scheduled
            for i in np.flatnonzero(np.logical_and.reduceat(present[addresses] == values, starts)):
                for address, value in layout.scheduled_events[i]:
                    ram[address] = value
        self._keep_attributes(ram, present, around)
        for equivalents in (self._equivalents.get(0), self._equivalents.get(room)):
            if equivalents is not None:
                addresses, tables = equivalents
                ram[addresses] = tables[np.arange(len(addresses)), ram[addresses]]
        unchecked = layout.unchecked.get(room, self._unchecked_elsewhere)
        if unchecked:
            ram[list(unchecked)] = present[list(unchecked)]
        for roamer, homes in self._homes.items():
            self._move_home(ram, roamer, homes)
        pc, opcode, frames = layout.prompt
        usual = Snapshot(ram.tobytes(), layout.stack, pc, layout.sp, layout.fp, frames, opcode, rng, b"")
        state = emulator.save(with_ram=False)
        if read_prompt(state) == layout.prompt:
            return usual
        # A prompt of another kind: what the parser remembers may matter, so nothing is left out.
        odd = msgspec.structs.replace(state, ram=emulator.ram.tobytes(), rng=rng, narration=b"")
        return usual if self._is_clarifying_question(odd, usual) else odd

    def _shift_timestamps(self, ram: Ram) -> Ram:
        """The memory with what happened so many moves ago put as long before the canonical number of moves: as long as
        makes the difference, and no longer."""
        ram, now, canonical = ram.copy(), read_word(ram, self._moves), read_word(self._fill, self._moves)
        for address, breaks in self.layout.move_timestamps:
            ago = count_elapsed(now, read_word(ram, address))
            write_word(ram, address, canonical - max((after for after in breaks if after <= ago), default=0))
        return ram

    def _keep_attributes(self, ram: Ram, present: Ram, around: list[int]) -> None:
        """Keep all attributes of what is around the player. The room was entered before: without its attributes the
        story would describe it as new."""
        if not around:
            return
        tree, places = self._emulator.tree, around
        if self.layout.thorough:
            places = around + tree.list_below(tree.read_links(present), around[-1])
        rows, width = np.array(places) - 1, self._emulator.header.attribute_bytes
        tree.view_entries(ram)[rows, :width] = tree.view_entries(present)[rows, :width]

    def _is_clarifying_question(self, odd: Snapshot, usual: Snapshot) -> bool:
        """Whether the parser only asks for more ("which one do you mean?") and would as well take a new
        command: then `look` begins the same way from here as from the usual prompt. (How it goes on may depend on
        clocks, which run on in one of the two.)"""
        emulator = self._emulator
        if odd.opcode != usual.opcode:
            return False  # it waits for a key
        if self._engine is not None:
            (flags, one), (other_flags, other) = (self._engine.step(state, "look") for state in (odd, usual))
            said = [clean(state.narration.decode("cp1252", "replace"))[:60] for state in (one, other)]
            unjudged = (flags | other_flags) & UNJUDGED
            return not unjudged and said[0] == said[1] and read_prompt(one) == read_prompt(other)
        present = emulator.save()
        results = []
        for state in (odd, usual):
            emulator.restore(state)
            status = emulator.step("look", CANDIDATE_LIMIT)
            results.append((status, clean(emulator.narration)[:60], read_prompt(emulator.save(with_ram=False))))
        emulator.restore(present)
        return results[0] == results[1] and results[0][0] is Status.DONE

    @staticmethod
    def compute_key(state: Snapshot) -> bytes:
        """The key of a canonical state: 16 bytes."""
        digest = hashlib.blake2b(state.ram, digest_size=16)
        digest.update(state.stack)
        digest.update(b"%d,%d,%d" % (state.pc, state.opcode, state.frames))
        return digest.digest()

    def select_watched_bits(self, ram: Ram) -> Ram:
        """The bits beyond the object tree that belong to the world in a state with that RAM, also those that the key
        leaves out: a command that changes one of them does something."""
        local = self.layout.room_bytes.get(self._emulator.tree.find_room(ram, self._emulator.player))
        if not local:
            return self._watched
        mask = self._watched.copy()
        mask[list(local)] = 0xFF
        self._emulator.tree.view_entries(mask)[:] = 0  # changes of the tree are seen anyway
        mask[self._counters] = 0
        return mask

    def select_bits_watched_elsewhere(self, ram: Ram) -> Ram | None:
        """The bytes that belong to the world in some room, but not in the one of a state with that RAM: what is learned
        here may count there. None if there are none."""
        here = self.layout.room_bytes.get(self._emulator.tree.find_room(ram, self._emulator.player), ())
        elsewhere = self._local_bytes.difference(here)
        if not elsewhere:
            return None
        mask = np.zeros_like(self._watched)
        mask[list(elsewhere)] = 0xFF
        mask[self._watched != 0] = 0
        return mask

    @cached_property
    def _local_bytes(self) -> frozenset[int]:
        """The bytes that belong to the world in some rooms only, but for clocks and objects."""
        emulator = self._emulator
        mask = np.zeros_like(self._watched)
        mask[[byte for some in self.layout.room_bytes.values() for byte in some]] = 1
        emulator.tree.view_entries(mask)[:] = 0
        mask[self._counters] = 0
        memory = emulator.world_memory
        mask[[*memory.moves_addresses, *memory.score_addresses]] = 0
        return frozenset(np.flatnonzero(mask).tolist())

    def _find_equivalents_in(self, room: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint8]]:
        """Addresses of the bytes with equivalent values in a room, and a row of new values for each."""
        found = [(address, table) for where, address, table in self.layout.equivalent_values if where == room]
        tables = np.frombuffer(b"".join(table for _, table in found), np.uint8).reshape(len(found), 256)
        return np.array([address for address, _ in found], dtype=np.intp), tables

    @staticmethod
    def _list_places(links: npt.NDArray[np.int64], roamer: int) -> list[int]:
        """Where an object was at the beginning of the game, then the places beside that, the next one first."""
        home = int(links[roamer, 0])
        beside = np.flatnonzero(links[:, 0] == links[home, 0]).tolist()
        return [home, *(o for o in beside if o > home), *(o for o in beside if 0 < o < home)]

    def _move_home(self, ram: Ram, roamer: int, homes: Sequence[int]) -> None:
        """Puts a roamer that is out of the player's sight where it was at the beginning of the game; or next door if
        the player is there, where one sees that it is away but not how far."""
        tree = self._emulator.tree
        links = tree.read_links(ram)
        here = {self._emulator.player}
        room = self._emulator.player
        while 0 < room <= tree.count and links[room, 0] and int(links[room, 0]) not in here:
            room = int(links[room, 0])
            here.add(room)
        home = next((place for place in homes if place not in here), 0)
        if int(links[roamer, 0]) in here or not 0 < home <= tree.count:
            return
        tree.unlink(ram, links, roamer)
        tree.insert(ram, links, roamer, home)


def read_prompt(state: Snapshot) -> tuple[int, int, int]:
    """What distinguishes kinds of prompts: program counter, opcode and number of frames."""
    return state.pc, state.opcode, state.frames
