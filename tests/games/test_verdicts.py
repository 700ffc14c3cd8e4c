"""Searches run no altered memory in Frotz, and what the engine cannot judge is no action."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zset_verify as verify

from xtx.games.actions.search import RANDOM_STATES, Search
from xtx.games.emulator.frotz import STEP_LIMIT, Emulator, Snapshot, Status, Verdict, Verdicts
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.zset.command_verdicts import judge_each, take_turn
from xtx.games.zset.engine import END_OPEN, UNJUDGED, Engine
from xtx.games.zset.game_rules import Rules

ROOT = Path(__file__).parents[2]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"
TURNS = 3


class Reached:
    """The memories that a story came to by itself; fails where Frotz is to run another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memories: set[bytes] = set()
        self.runs = 0
        step, read, filter_ = Emulator.step, Emulator.read_responses, Emulator.filter
        reset = Emulator.reset

        def resetting(emulator: Emulator, seed: int, *, is_detour: bool = False) -> str:
            text = reset(emulator, seed, is_detour=is_detour)
            self.memories.add(emulator.ram.tobytes())
            return text

        def stepping(emulator: Emulator, command: str, limit: int = STEP_LIMIT) -> Status:
            self.check(emulator.ram.tobytes(), command)
            status = step(emulator, command, limit)
            self.memories.add(emulator.ram.tobytes())
            return status

        def asking(emulator: Emulator, state: Snapshot, commands: Sequence[str], *rest: int) -> list[str | None]:
            self.check(state.ram, commands)
            return read(emulator, state, commands, *rest)

        def filtering(emulator: Emulator, commands: Sequence[str], *rest: Any, **more: Any) -> Verdicts:
            self.check(emulator.ram.tobytes(), commands)
            return filter_(emulator, commands, *rest, **more)

        monkeypatch.setattr(Emulator, "reset", resetting)
        monkeypatch.setattr(Emulator, "step", stepping)
        monkeypatch.setattr(Emulator, "read_responses", asking)
        monkeypatch.setattr(Emulator, "filter", filtering)

    def check(self, ram: bytes, what: object) -> None:
        self.runs += 1
        assert ram in self.memories, f"Frotz is to run {what!r} from memory that no story came to"


def play(path: Path, turns: int, every: int = 1) -> StoryGame:
    """Searches in all ways at some states along the walkthrough."""
    game = StoryGame(GameSpec(str(path), actions="whole", extra_actions=True))
    game.reset(game.emulator.bindings.walkthrough_seed)
    for number, command in enumerate(game.emulator.bindings.walkthrough[: turns * every], 1):
        step = game.step(command) if number % every == 0 else game.move(command)
        if step.terminated:
            break
    return game


def test_a_search_runs_no_altered_memory_in_frotz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTX_NO_SHIPPED", "1")
    reached = Reached(monkeypatch)
    game = play(LOWWATER, TURNS)
    assert game.states.searches > 0 and reached.runs > TURNS
    canonical = game.world.make_canonical(RANDOM_STATES[0])
    assert canonical.ram not in reached.memories
    with pytest.raises(AssertionError, match="that no story came to"):  # the plain way
        Search(game.emulator).answers(canonical, ["look"])
    game.close()


@pytest.mark.roms
@pytest.mark.parametrize(("name", "every"), [("zork1", 9), ("trinity", 70)])
def test_searches_of_real_games_run_no_altered_memory_in_frotz(
    name: str, every: int, real_story: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = Reached(monkeypatch)
    game = play(real_story(name), TURNS, every)
    assert game.states.searches > 0 and reached.runs >= TURNS
    game.close()


@pytest.mark.roms
def test_verdicts_where_time_runs_out_are_those_of_frotz(
    real_story: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a place in trinity where most commands end the game; without asking Frotz."""
    game = StoryGame(GameSpec(str(real_story("trinity"))))
    emulator = game.emulator
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough[:350]:
        emulator.step(command)
    state = emulator.save()
    found = game.find_in_state(state)
    assert len(found.actions) > 10
    canonical = game.world.make_canonical(RANDOM_STATES[0])
    commands = ["wait", "look", *found.actions, *(f"examine {word}" for word in "abcdefgh")]
    plain = judge_each(emulator, None, canonical, RANDOM_STATES, commands)
    assert (plain[0].flags & Verdict.CHANGED).any()
    monkeypatch.setattr(Emulator, "filter", lambda *_: pytest.fail("Frotz was asked"))
    ours = judge_each(emulator, game._engine, canonical, RANDOM_STATES, commands)
    for one, other in zip(ours, plain, strict=True):
        assert (one.flags == other.flags).all() and (one.diffs == other.diffs).all()
    game.close()


def test_an_end_that_only_jericho_can_see_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every text that may end the game left to Jericho, verdicts are the same."""
    with verify.opened(LOWWATER) as (emulator, engine):
        emulator.reset(emulator.bindings.walkthrough_seed)
        for command in emulator.bindings.walkthrough[:9]:
            emulator.step(command)
        state = msgspec.structs.replace(emulator.save(), rng=RANDOM_STATES[0])
        commands = ["look", "wait", "north", "south", "take all", "drop all", "examine me", "xyzzy"]
        expected = judge_each(emulator, engine, state, RANDOM_STATES, commands)
        final = np.flatnonzero(np.frombuffer(state.ram, np.uint8) != engine.finals(state, ["wait"])[1][0])
        asked: list[bytes] = []
        read = Emulator.read_ending

        def reading(self: Emulator, here: Snapshot, screen: bytes) -> int:
            asked.append(screen)
            return read(self, here, screen)

        monkeypatch.setattr(Emulator, "read_ending", reading)
        with contextlib.closing(watching(emulator, final[:3].tolist())) as careful:
            flags = careful.filter(state, commands).flags
            assert (flags & END_OPEN > 0).sum() > 1 and (flags[flags & END_OPEN > 0] & UNJUDGED).all()
            found = judge_each(emulator, careful, state, RANDOM_STATES, commands)
        assert asked and len(asked) <= len(commands) * len(RANDOM_STATES)
        for one, other in zip(found, expected, strict=True):
            assert (one.flags == other.flags).all() and (one.diffs == other.diffs).all()


def watching(emulator: Emulator, final: list[int]) -> Engine:
    """An engine that takes some bytes for those by which Jericho sees the end."""
    return Engine(emulator.story.content, replace(Rules.of(emulator), final=tuple(final)))


def test_what_the_engine_gives_up_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    with verify.opened(LOWWATER) as (emulator, engine):
        emulator.reset(emulator.bindings.walkthrough_seed)
        state = emulator.save()
        monkeypatch.setattr(Emulator, "filter", lambda *_: pytest.fail("Frotz was asked"))
        commands = ["look", "what?", "quit. yes", "take all"]
        [found] = judge_each(emulator, engine, state, [RANDOM_STATES[0]], commands)
        assert found.flags[1] == Verdict.STOPPED and not found.diffs[1]
        assert not (found.flags & UNJUDGED).any() and not found.flags[0] & Verdict.STOPPED


def test_a_turn_that_the_engine_takes_leads_where_frotz_goes() -> None:
    with verify.opened(LOWWATER) as (emulator, engine):
        emulator.reset(emulator.bindings.walkthrough_seed)
        for command in emulator.bindings.walkthrough[:20]:
            state = emulator.save()
            assert take_turn(emulator, None, state, command) is Status.DONE
            there, over = emulator.save(), emulator.over
            assert take_turn(emulator, engine, state, command) is Status.DONE
            assert emulator.save() == msgspec.structs.replace(there, narration=emulator.save().narration)
            assert emulator.over == over
            emulator.restore(there)
        assert take_turn(emulator, engine, there, "what?") is Status.LIMIT
