"""Values of a byte that come to the same are found, and those that make a difference anywhere are kept apart."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from layouts import layout_of

from xtx.games.canonical.canonical_state import World
from xtx.games.canonical.equivalent_values import EquivalentValueSearch
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Snapshot, Status, Verdict

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"
RNG = (1_000_003, 0, 0)


def states(memories: Iterable[Iterable[int]]) -> list[Snapshot]:
    return [Snapshot(bytes(m), b"", 0, 0, 0, 0, 228, RNG, b"") for m in memories]


def search(
    memories: list[tuple[int, ...]], appearance: Callable[[bytes], Hashable], covered: tuple[int, ...] = (0,) * 4
) -> EquivalentValueSearch:
    """States of which the first byte is the room."""
    bits = np.array(covered, np.uint8)
    return EquivalentValueSearch(
        states(memories), [m[0] for m in memories], lambda asked: [appearance(state.ram) for _, state in asked], bits
    )


def replaced(ram: Sequence[int], tables: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """A memory as canonical states have it."""
    changed = list(ram)
    for room, address, table in tables:
        if room in (0, ram[0]):
            changed[address] = table[changed[address]]
    return changed


def test_only_the_last_draught_of_water_counts() -> None:
    memories = list(itertools.product(range(1, 7), range(5)))
    ((room, address, table),) = search(memories, lambda ram: (ram[0], ram[1] > 0)).find([1], {})
    assert (room, address) == (0, 1)
    assert len({table[value] for value in range(1, 5)}) == 1
    assert table[0] == 0 != table[1]
    assert table[5:] == bytes(range(5, 256))  # what was never met is left alone


@pytest.mark.parametrize("seed", range(60))
def test_no_state_that_was_given_looks_another_way(seed: int) -> None:
    """Whatever the bytes have to do with each other: here some pairs of values count, in some rooms."""
    choose = random.Random(seed)
    memories = [
        (choose.randint(1, 3), choose.randrange(4), choose.randrange(4), choose.randrange(3)) for _ in range(60)
    ]
    counts = {tuple(choose.randrange(4) for _ in range(3)) for _ in range(6)}

    def appearance(ram: bytes) -> Hashable:
        return frozenset(c for c in counts if c in ((ram[0], ram[1], ram[2]), (0, ram[1], ram[2]), (3, ram[2], ram[3])))

    tables = search(memories, appearance).find([1, 2, 3], {})
    assert all(appearance(bytes(replaced(m, tables))) == appearance(bytes(m)) for m in memories)


def test_a_value_that_counts_in_one_state_is_kept() -> None:
    """Only where the second coordinate is 3 too something lies buried at 13."""
    memories = list(itertools.product([1], range(16), range(6)))
    tables = search(memories, lambda ram: ram[1] == 13 and ram[2] == 3).find([1], {1: (1,)})
    assert all(table[13] == 13 and table.count(13) == 1 for _, _, table in tables)


def test_a_byte_of_one_room_is_folded_there() -> None:
    memories = [(1, value) for value in range(8)] + [(2, 0), (3, 0)]
    ((room, address, table),) = search(memories, lambda ram: ram[1] == 7).find([1], {1: (1,)})
    assert (room, address) == (1, 1)
    assert len(set(table[:7])) == 1 and table[7] == 7


def test_nothing_is_folded_where_every_value_counts() -> None:
    memories = list(itertools.product(range(1, 7), range(5)))
    assert search(memories, lambda ram: ram[1]).find([1], {}) == ()


def test_few_states_are_no_evidence() -> None:
    assert search([(1, value) for value in range(3)], lambda _: 0).find([1], {}) == ()
    assert search([(room, room + i) for room in range(1, 6) for i in (0, 1)], lambda _: 0).find([1], {}) != ()
    assert search([(room, room + i) for room in range(1, 3) for i in (0, 1)], lambda _: 0).find([1], {}) == ()


def test_values_are_kept_apart_that_differ_in_bits_that_always_count() -> None:
    """Of an object's attributes Jericho's hash covers some."""
    memories = list(itertools.product(range(1, 7), range(8)))
    ((_, _, table),) = search(memories, lambda _: 0, (0, 4)).find([1], {})
    assert len(set(table[:4])) == len(set(table[4:8])) == 1
    assert table[0] & 4 == 0 and table[4] & 4


def test_what_counts_in_one_room_is_folded_in_the_others() -> None:
    """How far a gate is open, which is seen from one place only."""
    memories = list(itertools.product(range(1, 7), range(6)))
    tables = search(memories, lambda ram: (ram[0], ram[1] if ram[0] == 3 else 0)).find([1], {})
    assert {room for room, _, _ in tables} >= {1, 2, 4}
    for room, _, table in tables:
        assert len(set(table[:6])) == (6 if room == 3 else 1)


def test_rooms_fold_what_is_left_of_a_fold_that_holds_everywhere() -> None:
    """Only the last of the water counts, and in one room not even that."""
    memories = list(itertools.product(range(1, 7), range(5)))
    tables = search(memories, lambda ram: (ram[0], ram[0] != 4 and ram[1] > 0)).find([1], {})
    assert [room for room, _, _ in tables] == [0, 4]  # in the order in which they are made
    values = {memory: replaced(memory, tables)[1] for memory in memories}
    assert len({values[4, value] for value in range(5)}) == 1
    assert all(len({values[room, value] for value in range(5)}) == 2 for room in (1, 2, 3, 5, 6))


def test_the_fold_that_makes_a_difference_is_taken_out_and_no_other() -> None:
    """Of two bytes the first makes a difference, in so few states that it is noticed only when all are tried."""
    missing = {(5, 1, 0, 7), (1, 1, 1, 0), (1, 1, 1, 1)}  # so 1 is replaced into 0 in both
    memories = [m for m in itertools.product(range(1, 7), range(2), range(2), range(12)) if m not in missing]

    def appearance(ram: Sequence[int]) -> bool:
        return (ram[0], ram[1], ram[3]) == (5, 1, 7)

    tables = search(memories, appearance).find([1, 2], {})
    assert all(appearance(ram) == appearance(replaced(ram, tables)) for ram in memories)
    assert [room for room, address, _ in tables if address == 2] == [0]


def test_bytes_that_count_only_together_are_not_both_folded() -> None:
    """Two switches, either of which keeps the light on."""
    memories = [(room, a, b) for room in range(1, 7) for a, b in ((1, 1), (2, 1), (1, 2), (2, 2), (3, 3))]
    tables = search(memories, lambda ram: ram[1] == 1 or ram[2] == 1 or (ram[1], ram[2]) != (2, 2)).find([1, 2], {})
    for ram in memories:
        assert ((ram[1], ram[2]) == (2, 2)) == (replaced(ram, tables)[1:] == [2, 2])


def test_canonical_states_are_folded_in_their_room() -> None:
    emulator = Emulator(read_story(LOWWATER))
    layout = layout_of(emulator)
    emulator.reset(1)
    here = emulator.tree.find_room(emulator.ram, emulator.player)
    address = next(a for a in range(emulator.header.globals, len(layout.mask)) if layout.mask[a] == 0xFF)
    table = bytes([0, 1, 1, *range(3, 256)])
    world = World(emulator, msgspec.structs.replace(layout, equivalent_values=((here, address, table),)))

    def keys() -> list[bytes]:
        found, kept = [], emulator.ram[address]
        for value in (1, 2, 3):
            emulator.ram[address] = value
            found.append(world.compute_key(world.make_canonical(RNG)))
        emulator.ram[address] = kept
        return found

    assert keys()[0] == keys()[1] != keys()[2]
    emulator.step("north")
    assert emulator.tree.find_room(emulator.ram, emulator.player) != here
    assert len(set(keys())) == 3
    emulator.close()


def test_what_falls_due_is_folded_too() -> None:
    """A clock that is about to strike keeps its value, unless that comes to the same as another."""
    emulator = Emulator(read_story(LOWWATER))
    layout = layout_of(emulator)
    emulator.reset(1)
    clock = next(a for a in range(emulator.header.globals, len(layout.mask)) if layout.mask[a] == 0)
    due = (((clock, 1),), ((clock, 2),), ((clock, 3),))
    table = bytes([0, 1, 2, 2, *range(4, 256)])
    world = World(
        emulator, msgspec.structs.replace(layout, scheduled_events=due, equivalent_values=((0, clock, table),))
    )
    keys = []
    for value in range(1, 6):
        emulator.ram[clock] = value
        keys.append(world.compute_key(world.make_canonical(RNG)))
    assert keys[1] == keys[2] and keys[3] == keys[4]
    assert len(set(keys)) == 3
    emulator.close()


@pytest.mark.roms
def test_most_of_a_desert_is_one_place(real_story: Callable[[str], Path]) -> None:
    """In inhumane a byte says how far one is in the desert, which matters at a few places only."""
    emulator = Emulator(read_story(real_story("inhumane")))
    world = World(emulator, layout_of(emulator))
    desert, address, _ = min(world.layout.equivalent_values, key=lambda table: len(set(table[2])))
    emulator.reset(emulator.bindings.walkthrough_seed)
    choice, kept, places = random.Random(3), set(), set()
    for command in emulator.bindings.walkthrough:
        state = emulator.save()
        for _ in range(12):
            if emulator.tree.find_room(emulator.ram, emulator.player) == desert:
                places.add(int(emulator.ram[address]))
                kept.add(world.make_canonical(RNG).ram[address])
            if emulator.step(choice.choice(["north", "south", "east", "west"])) is not Status.DONE or emulator.over:
                break
        emulator.restore(state)
        emulator.step(command)
    assert len(places) > 10
    assert 2 * len(kept) < len(places)
    emulator.close()


@pytest.mark.roms
def test_changes_that_show_nowhere_are_told_apart(real_story: Callable[[str], Path]) -> None:
    """In enchanter's Engine Room a byte says who is under a spell that speeds one up. Cast again it is lost, and that
    is a change as well, but not the same one: values that make such a difference do not come to the same."""
    emulator = Emulator(read_story(real_story("enchanter")))
    world = World(emulator, layout_of(emulator))
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough[:118]:
        emulator.step(command)
    assert emulator.bindings.walkthrough[118] == "EXEX TURTLE"
    spells = ["exex turtle", "exex me"]
    for _ in ("from the real state", "from the canonical one"):
        verdicts = emulator.filter([*spells, "look"], watched=world.select_watched_bits(emulator.ram))
        assert not (verdicts.flags & Verdict.CHANGED).any()
        assert len(set(verdicts.watches.tolist())) == 3
        emulator.restore(world.make_canonical(RNG))
    emulator.close()
