"""Bytes in which a story notes what was typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from layouts import layout_of

from xtx.games.actions.search import RANDOM_STATES
from xtx.games.canonical.canonical_state import World
from xtx.games.canonical.scratch_bytes import find_scratch, list_harmless_commands
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator
from xtx.games.zset.engine import Engine

LOWWATER = Path(__file__).parents[2] / "xtx/games/catalog/data/lowwater.z5"


def test_what_is_excluded_is_not_tried() -> None:
    tried = [command for command, _ in list_harmless_commands(("lamp",), ("take lamp",), ("examine lamp", "listen"))]
    assert "touch lamp" in tried and "take lamp" in tried
    assert not {"examine lamp", "listen"} & set(tried)


def test_engine_and_emulator_find_the_same_bytes() -> None:
    emulator = Emulator(read_story(LOWWATER))
    engine = Engine.of(emulator)
    emulator.reset(0)
    state = World(emulator, layout_of(emulator), engine).make_canonical(RANDOM_STATES[0])
    found = find_scratch(emulator, engine, state, ("boat", "oar", "lamp"))
    slowly = find_scratch(emulator, None, state, ("boat", "oar", "lamp"))
    engine.close()
    emulator.close()
    assert found.any()
    assert np.array_equal(found, slowly)


@pytest.mark.roms
def test_a_creature_that_minds_being_looked_at_is_no_scratch(real_story: Callable[[str], Path]) -> None:
    """zork2's dragon: a byte that tells how long it has been patient."""
    emulator = Emulator(read_story(real_story("zork2")))
    engine = Engine.of(emulator)
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough[:41]:
        emulator.step(command)
    found = find_scratch(emulator, engine, emulator.save(), ("dragon", "lamp", "sword", "newspaper"))
    engine.close()
    emulator.close()
    assert found.any() and not found[9426]
