"""Bytes of memory that belong to the world, or may be left out of it, by what Jericho and the header say of them."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from xtx.games.canonical.canonical_state import Layout
from xtx.games.emulator.frotz import Emulator
from xtx.games.zmachine.story_memory import Header, Ram


def select_covered_bits(emulator: Emulator) -> Ram:
    """The bits that Jericho's hash covers."""
    covered = emulator.world_memory.tree_mask.copy()
    emulator.tree.view_entries(covered)[emulator.world_memory.hashed :, : emulator.header.attribute_bytes] = 0
    covered[list(emulator.world_memory.special)] = 0xFF
    return covered


def select_kept_bytes(emulator: Emulator) -> npt.NDArray[np.bool_]:
    """The bytes that belong to the world whatever was seen. Not attributes of objects that Jericho does not know:
    most are noise (a room was visited), but not all."""
    kept = np.zeros(emulator.header.dynamic_size, dtype=np.uint8)
    kept[emulator.header.first_object : emulator.header.compute_object_address(emulator.tree.count + 1)] = 1
    emulator.tree.view_entries(kept)[emulator.world_memory.hashed :, : emulator.header.attribute_bytes] = 0
    kept[list(emulator.world_memory.special)] = 1
    return kept.astype(bool)


def find_needless_bytes(emulator: Emulator, layout: Layout, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """The bytes of the world, each by itself, in which two canonical states differ that are equal to Jericho."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for i, row in enumerate(memory & select_covered_bits(emulator)):
        groups[row.tobytes()].append(i)
    varies = np.zeros(memory.shape[1], dtype=bool)
    for group in groups.values():
        varies |= (memory[group] != memory[group[0]]).any(axis=0)
    counts = np.frombuffer(layout.mask, np.uint8) != 0
    counts[[address for local in layout.room_bytes.values() for address in local]] = True
    varies &= counts
    varies[layout.timestamp_bytes] = False
    return varies


def fill_gaps(header: Header, mask: Ram) -> None:
    """Takes the few bytes between two bytes of a parser's table for the table's too.

    Only outside the object table, the properties and the globals, where neighbours have nothing in common."""
    for start, end in ((64, header.objects), (header.globals + 480, header.dynamic_size)):
        masked = np.flatnonzero(mask[start:end] == 0) + start
        for left, right in pairwise(masked):
            if 1 < right - left <= 4:
                mask[left:right] = 0
