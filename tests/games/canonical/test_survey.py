"""The survey keeps to its budget, finds the same with any number of threads, and runs no altered memory in Frotz."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from xtx.games.canonical.canonical_state import ELSEWHERE, World
from xtx.games.canonical.layout_check import LayoutCheck
from xtx.games.canonical.shipped_layouts import pack_layouts, read_shipped_layout, strip_layout
from xtx.games.canonical.survey import survey_layout
from xtx.games.canonical.survey_budget import QUICK, Budget
from xtx.games.catalog.story_file import Story, read_story
from xtx.games.emulator.frotz import Emulator, Snapshot, Status
from xtx.games.known_layouts import is_layout_valid
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.vector.isolated_game import IsolatedGame
from xtx.games.zset.engine import UNJUDGED, Engine

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"
RNG = (1_000_003, 0, 0)
SMALL = QUICK // 12
"""A budget that does not suffice for Low Water."""


def blind() -> Emulator:
    """Low Water without what its profile says of the parser's memory, so that all of it must be found out."""
    found = read_story(LOWWATER)
    assert found.profile is not None
    profile = msgspec.structs.replace(found.profile, volatile=())
    return Emulator(Story(found.path, found.content, found.md5, profile))


def test_a_survey_keeps_to_its_budget_and_says_what_it_left_out() -> None:
    shares: list[float] = []
    budget = Budget(SMALL, lambda share, stage: shares.append(share))
    layout = survey_layout(blind(), budget=budget)
    assert layout.cut_short
    assert set(layout.cut_short) == set(budget.cut_short)
    assert budget.spent < 1.3 * SMALL  # some things are done whatever they cost
    assert shares == sorted(shares)
    assert len(set(shares)) > 20  # progress is told often


def test_a_layout_that_was_cut_short_tells_states_apart_as_it_should() -> None:
    """A key may be finer than need be, and never the same for two worlds: along the walkthrough commands do the same
    from the canonical state as from the real one."""
    emulator = blind()
    world = World(emulator, survey_layout(emulator, budget=Budget(SMALL)))
    emulator.reset(emulator.bindings.walkthrough_seed)
    engine, wrong, tried = Engine.of(emulator), 0, 0
    for command in emulator.bindings.walkthrough:
        before = msgspec.structs.replace(emulator.save(), rng=RNG)
        canonical = world.make_canonical(RNG)
        commands = [command, "look", "north", "south", "east", "west", "take all"]
        truth, found = (engine.filter(state, commands) for state in (before, canonical))
        wrong += int((truth.diffs != found.diffs).sum())
        tried += len(commands)
        emulator.step(command)
        if emulator.over:
            break
    engine.close()
    assert wrong <= 0.03 * tried


def test_what_was_not_checked_stays_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every room with a state that the check did not get to, the canonical state keeps all that changes."""
    skipped: list[tuple[LayoutCheck, Snapshot]] = []
    note = LayoutCheck._note_unchecked

    def noting(self: LayoutCheck, state: Snapshot) -> None:
        skipped.append((self, state))
        note(self, state)

    monkeypatch.setattr(LayoutCheck, "_note_unchecked", noting)
    emulator = blind()
    layout = survey_layout(emulator, budget=Budget(SMALL // 2))
    assert skipped and layout.unchecked and layout.cut_short
    world = World(emulator, layout)
    free = {
        *emulator.world_memory.moves_addresses,
        *emulator.world_memory.score_addresses,
        *layout.timestamp_bytes,
        *range(64),
    }
    room_bytes = layout.unchecked[ELSEWHERE]
    rooms = {check.find_room(state) for check, state in skipped}
    assert {room for room, kept in layout.unchecked.items() if kept} == {ELSEWHERE, *rooms}
    for _, state in skipped:
        emulator.restore(state)
        canonical = world.make_canonical(RNG)
        differ = {a for a, (x, y) in enumerate(zip(canonical.ram, state.ram, strict=True)) if x != y}
        assert not differ & set(room_bytes) - free
    # Nor is anything left out in a room that the walkthrough does not visit.
    elsewhere = msgspec.structs.replace(layout, unchecked={ELSEWHERE: room_bytes})
    emulator.restore(state)
    assert World(emulator, elsewhere).make_canonical(RNG) == World(emulator, layout).make_canonical(RNG)
    # What is kept there is not watched: that a command changes it means nothing.
    emulator.restore(skipped[0][1])
    watched = world.select_watched_bits(emulator.ram)
    mask = layout.mask
    assert not any(watched[a] and not mask[a] for a in room_bytes if a not in sum(layout.room_bytes.values(), ()))


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for processors in ({0}, {0, 1}, {0, 1, 2}):
        with monkeypatch.context() as patched:
            patched.setattr(os, "sched_getaffinity", lambda _, these=processors: these)
            budget = Budget(SMALL)
            found.append((survey_layout(blind(), budget=budget), budget.spent))
    assert found[0] == found[1] == found[2]


def test_frotz_runs_only_states_that_the_story_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state that is given to Frotz was saved from it before: altered memory could crash it."""
    reached: set[bytes] = set()
    save, restore = Emulator.save, Emulator.restore
    restored = 0

    def saving(self: Emulator, *, with_ram: bool = True) -> Snapshot:
        saved = save(self, with_ram=with_ram)
        reached.add(saved.ram)
        return saved

    def restoring(self: Emulator, state: Snapshot) -> None:
        nonlocal restored
        restored += 1
        assert state.ram in reached
        restore(self, state)

    monkeypatch.setattr(Emulator, "save", saving)
    monkeypatch.setattr(Emulator, "restore", restoring)
    survey_layout(blind(), budget=Budget(QUICK // 5))
    assert restored > 100


def test_memory_after_each_command_is_that_of_frotz() -> None:
    emulator = blind()
    emulator.reset(1)
    for command in emulator.bindings.walkthrough[:12]:
        emulator.step(command)
    state = emulator.save()
    commands = [
        "look",
        "inventory",
        "take all",
        "drop all",
        "north",
        "zqxj",
        "wait",
        "examine me",
        "south",
        "take zqxj",
    ]
    engine = Engine.of(emulator)
    flags, memory = engine.finals(state, commands)
    engine.close()
    for command, flag, ram in zip(commands, flags.tolist(), memory, strict=True):
        assert not flag & UNJUDGED, command
        emulator.restore(state)
        assert emulator.step(command) is Status.DONE
        assert (emulator.ram == ram).all(), command


def test_layouts_can_be_shipped_without_the_storys_memory() -> None:
    emulator = blind()
    layout = survey_layout(emulator, budget=Budget(SMALL))
    shipped = strip_layout(emulator, layout)
    assert not shipped.layout.fill
    assert len(shipped.differences) < 0.05 * len(layout.fill)
    assert len(pack_layouts({emulator.story.md5: shipped})) < 4000


def test_a_story_that_is_surveyed_tells_how_far_it_is(tmp_path: Path) -> None:
    story = tmp_path / "lowwater.z5"
    story.write_bytes(LOWWATER.read_bytes())
    found = read_story(LOWWATER)
    assert found.profile is not None
    profile = msgspec.structs.replace(found.profile, volatile=())
    story.with_suffix(".json").write_bytes(msgspec.json.encode(profile))
    shares: list[float] = []
    game = IsolatedGame(GameSpec(str(story)), on_survey=shares.append)
    game.close()
    assert shares
    assert 0 < min(shares) <= max(shares) <= 1


@pytest.mark.roms
@pytest.mark.parametrize("name", ["zork1", "detective", "hhgg"])
def test_what_is_shipped_is_what_a_survey_finds(name: str, real_story: Callable[[str], Path]) -> None:
    emulator = Emulator(read_story(real_story(name)))
    shipped = read_shipped_layout(emulator)
    assert shipped is not None, "run tools/ship_layouts.py"
    assert survey_layout(emulator) == shipped


@pytest.mark.roms
@pytest.mark.parametrize("name", ["wishbringer", "planetfall", "lostpig", "trinity"])
def test_games_that_used_to_crash_or_hang_start_at_once(
    name: str, real_story: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("its layout comes with xtx")

    monkeypatch.setattr("xtx.games.known_layouts.survey_layout", refuse)
    game = StoryGame(GameSpec(str(real_story(name))))
    assert len(game.reset().actions) > 1
    game.close()


@pytest.mark.parametrize("change", [{"sp": -5}, {"sp": 1000}, {"stack": b""}])
def test_a_layout_with_another_stack_does_not_fit(change: dict[str, object]) -> None:
    game = StoryGame(GameSpec(str(LOWWATER)))
    layout, size = game.layout, len(game.emulator.ram)
    game.close()
    assert is_layout_valid(layout, size)
    assert not is_layout_valid(msgspec.structs.replace(layout, **change), size)
