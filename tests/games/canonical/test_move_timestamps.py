"""Words that hold the number of moves at which something happened are found, and count as how long ago it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from layouts import layout_of

from xtx.games.canonical.canonical_state import World
from xtx.games.canonical.move_timestamps import count_elapsed, find_breaks, find_timestamps, write_word
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Verdict
from xtx.games.zmachine.story_memory import read_word

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"
RNG = (1_000_003, 0, 0)


def test_a_word_that_is_set_to_the_number_of_moves_is_a_stamp() -> None:
    """Beside a word that was set to something else as well, one that was set once, and one that never changes."""
    moves = np.arange(300, dtype=np.int64)
    memory = np.zeros((300, 16), np.uint8)
    for i, row in enumerate(memory):
        write_word(row, 2, 0 if i < 90 else 90 if i < 270 else 269)
        write_word(row, 6, 0 if i < 90 else 90 if i < 270 else 7)
        write_word(row, 10, 0 if i < 90 else 90)
        write_word(row, 14, 90)
    assert find_timestamps(memory, moves) == [2]


def test_moves_that_make_a_difference_are_found() -> None:
    assert find_breaks(lambda ago: ago >= 76, 335, 3) == [76]
    assert find_breaks(lambda ago: (ago >= 76) + (ago >= 200), 335, 3) == [76, 200]
    assert find_breaks(lambda ago: 0, 335, 3) == []
    assert find_breaks(lambda ago: ago >= 76, 40, 3) == []
    assert find_breaks(lambda ago: ago >= 76, 0, 3) == []
    assert len(find_breaks(lambda ago: ago, 1000, 3)) == 4  # and not a thousand


def test_stories_reckon_with_16_bits() -> None:
    ram = np.zeros(4, np.uint8)
    write_word(ram, 1, -60)
    assert ram.tolist() == [0, 0xFF, 0xC4, 0]
    assert count_elapsed(16, read_word(ram, 1)) == 76
    assert count_elapsed(5, 9) == -4


def test_the_key_knows_how_long_ago_something_was_and_not_when() -> None:
    emulator = Emulator(read_story(LOWWATER))
    layout = layout_of(emulator)
    emulator.reset(1)
    now = emulator.world_memory.moves_addresses[0]
    stamp = next(
        a
        for a in range(emulator.header.globals, len(layout.mask))
        if layout.mask[a : a + 2] == b"\xff\xff" and not any(emulator.ram[a : a + 2])
    )
    world = World(emulator, msgspec.structs.replace(layout, move_timestamps=((stamp, (10, 300)),)))

    def key(moves: int, ago: int) -> bytes:
        write_word(emulator.ram, now, moves)
        write_word(emulator.ram, stamp, moves - ago)
        canonical = world.make_canonical(RNG)
        present = emulator.save()
        emulator.restore(canonical)
        assert world.make_canonical(RNG) == canonical
        emulator.restore(present)
        return world.compute_key(canonical)

    just_now, long_ago, very_long_ago = key(20, 0), key(20, 10), key(500, 300)
    assert len({just_now, long_ago, very_long_ago}) == 3
    assert {key(30, 9), key(700, 1)} == {just_now}
    assert {key(30, 11), key(700, 299)} == {long_ago}
    assert {key(700, 301), key(700, 650)} == {very_long_ago}
    emulator.close()


@pytest.mark.roms
def test_who_is_tired_can_sleep(real_story: Callable[[str], Path]) -> None:
    """In enchanter so many moves after one slept last, which the key would know nothing of."""
    emulator = Emulator(read_story(real_story("enchanter")))
    world = World(emulator, layout_of(emulator))
    emulator.reset(emulator.bindings.walkthrough_seed)
    for number, command in enumerate(emulator.bindings.walkthrough[:246]):
        if number in (70, 244, 245):
            real = emulator.save()
            emulator.restore(msgspec.structs.replace(real, rng=RNG))
            truth = emulator.filter(["sleep"]).diffs
            emulator.restore(world.make_canonical(RNG))
            verdicts = emulator.filter(["sleep"])
            assert bool(verdicts.flags[0] & Verdict.CHANGED) == (number == 244)
            assert verdicts.diffs == truth
            emulator.restore(real)
        emulator.step(command)
    emulator.close()
