"""Which bytes of a story's memory make up the world, as Jericho or a profile has it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jericho
import numpy as np
import numpy.typing as npt

from xtx.games.catalog.profile import Profile, Word
from xtx.games.emulator.jericho_library import WorldStruct
from xtx.games.zmachine.story_memory import Header, ObjectTree, Ram


@dataclass(frozen=True)
class Change:
    """What counts as a change of the world."""

    set_mask: Ram
    """One byte for each byte of RAM: the bits that count when they are set."""
    clear_mask: Ram
    """The same for bits that are cleared."""
    wanderers: npt.NDArray[np.uint16]
    """Objects whose moves do not count."""


class WorldMemory:
    """The parts of one story's memory, by what they are for. Each is found out when it is first asked for."""

    def __init__(
        self,
        lib: ctypes.CDLL,
        profile: Profile | None,
        header: Header,
        tree: ObjectTree,
        read_ram: Callable[[], Ram],
    ) -> None:
        """lib: the copy of libfrotz that has loaded the story. profile: of a story that Jericho does not know.
        read_ram: gives a view of the story's present memory."""
        self._lib = lib
        self._profile = profile
        self._header = header
        self._tree = tree
        self._read_ram = read_ram

    @cached_property
    def tree_mask(self) -> Ram:
        """One byte for each byte of RAM: the bits of the object tree that belong to the state of the world, which
        are those that Jericho's own world hash covers."""
        header, profile = self._header, self._profile
        attributes = np.full((self._tree.count, header.attribute_bytes), 0xFF, dtype=np.uint8)
        if profile is not None:
            for attribute in profile.ignored_attributes:
                attributes[:, attribute // 8] &= ~(0x80 >> attribute % 8) & 0xFF
        else:
            # Jericho clears noisy attributes before it hashes: give it objects with all of them set, and see.
            objects = (jericho.jericho.ZObject * (self._tree.count + 1))()
            for one in objects:
                one._attr[:] = [-1] * 4
            self._lib.clean_world_objs(objects)
            # One by one: where it does not know how many objects there are it leaves the last ones as they are. What
            # is noise elsewhere may count in those (in deephome whether somebody prayed).
            kept = np.array([one._attr[:] for one in objects[1:]], dtype=np.int8).view(np.uint8)
            attributes[:, :4] = kept
        mask = np.zeros(header.dynamic_size, dtype=np.uint8)
        entries = self._tree.view_entries(mask)
        entries[:, : header.attribute_bytes] = attributes
        entries[:, header.attribute_bytes : -2] = 0xFF
        return mask

    @cached_property
    def hashed(self) -> int:
        """How many objects Jericho's own world hash covers; in some stories it does not know of the last ones."""
        known = self._tree.count if self._profile is not None else int(self._lib.get_num_world_objs())
        return min(known, self._tree.count)

    @cached_property
    def roamers(self) -> tuple[int, ...]:
        """Objects that move by themselves and do not belong to the state of the world (zork1's thief)."""
        profile = self._profile
        if profile is not None:
            return profile.ignored_objects
        objects = (jericho.jericho.ZObject * (self._tree.count + 1))()
        for one in objects:
            one.parent = 1
        self._lib.clean_world_objs(objects)
        return tuple(i for i, one in enumerate(objects) if i and one.parent == 0)

    @cached_property
    def change(self) -> Change:
        """What counts as a change of the world beside the score: what Jericho does not ignore in the object tree, its
        special RAM, and the end of the game."""
        header, profile, count = self._header, self._profile, self._tree.count
        outside = np.zeros(header.dynamic_size, dtype=np.uint8)
        outside[list(self.special)] = 0xFF
        if profile is not None:
            outside[list(_find_span(profile.end))] = 0xFF
            mask = self.tree_mask | outside
            return Change(mask, mask, np.array(profile.ignored_objects, dtype=np.uint16))
        masks = []
        for ignored in (self._lib.ignore_attr_diff, self._lib.ignore_attr_clr):
            mask = outside.copy()
            entries = self._tree.view_entries(mask)
            entries[:, header.attribute_bytes : -2] = 0xFF
            bits = [[not ignored(o, a) for a in range(8 * header.attribute_bytes)] for o in range(1, count + 1)]
            entries[:, : header.attribute_bytes] = np.packbits(np.array(bits, dtype=bool), axis=1)
            entries &= self._tree.view_entries(self.tree_mask)  # what is no part of the world cannot change it
            masks.append(mask)
        # Wherever it goes: of most of lostpig's things Jericho ignores only moves that are not to the player.
        moved, objects = self._lib.ignore_moved_obj, range(1, count + 1)
        wanderers = [one for one in objects if all(moved(one, place) for place in objects)]
        return Change(masks[0], masks[1], np.array(wanderers, dtype=np.uint16))

    @cached_property
    def special(self) -> tuple[int, ...]:
        """RAM bytes beyond the object tree that belong to the world."""
        profile = self._profile
        if profile is not None:
            return profile.special
        count = self._lib.get_special_ram_size()
        addresses = ctypes.POINTER(ctypes.c_uint16).in_dll(self._lib, "special_ram_addrs")
        return tuple(addresses[i] for i in range(count))

    @cached_property
    def score_addresses(self) -> tuple[int, ...]:
        profile = self._profile
        if profile is not None:
            return tuple(_find_span(profile.score))
        return self._list_addresses_behind(self._lib.get_score)

    @cached_property
    def moves_addresses(self) -> tuple[int, ...]:
        profile = self._profile
        if profile is not None:
            return tuple(_find_span(profile.moves))
        return self._list_addresses_behind(self._lib.get_moves)

    def _list_addresses_behind(self, value: Callable[[], int]) -> tuple[int, ...]:
        """The RAM bytes that a number of Jericho's depends on, found by turning every byte over once."""
        ram, before, found = self._read_ram(), value(), []
        for address in range(64, self._header.dynamic_size):
            ram[address] ^= 0xFF
            if value() != before:
                found.append(address)
            ram[address] ^= 0xFF
        return tuple(found)

    @cached_property
    def change_struct(self) -> WorldStruct:
        change = self.change
        return WorldStruct(
            change.set_mask.ctypes.data, change.clear_mask.ctypes.data, change.wanderers.ctypes.data,
            len(change.wanderers), self._header.first_object, self._header.small, self._tree.count,
            min(self.score_addresses, default=0), len(self.score_addresses),
        )  # fmt: skip


def _find_span(place: Word | None) -> range:
    """The addresses of a number's bytes; none for no number."""
    return range(0) if place is None else range(place.address, place.address + place.size)
