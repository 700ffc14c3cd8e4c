"""Reuse of verdicts: commands whose effects are known, and several sets of bits watched in one run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from xtx.games.actions.command_effects import RANDOM_STATES
from xtx.games.actions.template_search import CLOCKS, ELSEWHERE
from xtx.games.emulator.frotz import Snapshot
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.zset.command_verdicts import judge_each

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"
WALK = 12
"""Steps along the walkthrough behind which states are tried."""


@pytest.fixture(scope="module")
def game() -> Iterator[StoryGame]:
    with closing(StoryGame(GameSpec(str(LOWWATER), actions="whole"))) as opened:
        yield opened


def list_states(game: StoryGame) -> list[Snapshot]:
    emulator, states = game.emulator, []
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough[:WALK]:
        emulator.step(command)
        states.append(game.world.make_canonical(RANDOM_STATES[0]))
        emulator.restore(states[-1])
    return states


def test_known_commands_have_the_effects_that_they_have_when_tried(game: StoryGame) -> None:
    search = game.search
    for state in list_states(game):
        search.findings(state)
        searched = search.last_searched
        assert searched is not None
        commands = [*searched.candidates[:400], "xyzzy", "dance", "examine me"]
        given = state, commands, searched.watched
        known = search.judge.find_effects(*given, known=searched.working)
        tried = search.judge.find_effects(*given)
        assert searched.working[0], "nothing is known"
        for one, other in ((known.effect, tried.effect), (known.fine, tried.fine), (known.watches, tried.watches)):
            assert one.tolist() == other.tolist()


def test_several_sets_of_bits_are_watched_as_each_by_itself(game: StoryGame) -> None:
    search, differ = game.search, 0
    for state in list_states(game):
        search.findings(state)
        searched = search.last_searched
        assert searched is not None and searched.ticks is not None and searched.all.more_idle is not None
        everything = np.full(len(state.ram), 0xFF, dtype=np.uint8)
        half = np.where(np.arange(len(state.ram)) % 2, 0xFF, 0).astype(np.uint8)
        commands = searched.candidates[:300]
        given = search.emulator, search.engine, state, RANDOM_STATES[:1], commands
        [both] = judge_each(*given, np.stack([everything, half]))
        [one], [other] = judge_each(*given, everything), judge_each(*given, half)
        assert both.more_watches is not None
        assert both.flags.tolist() == one.flags.tolist() == other.flags.tolist()
        assert both.watches.tolist() == one.watches.tolist()
        assert both.more_watches[:, 0].tolist() == other.watches.tolist()
        differ += int((one.watches != other.watches).sum())
        assert searched.all.more_idle.shape[1] == max(ELSEWHERE, CLOCKS) + 1
    assert differ
