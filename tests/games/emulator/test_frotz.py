"""The door to Jericho: plays as Jericho does, and comes back from everything that a command can do to the emulator."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jericho import FrotzEnv

from xtx.core import UserError
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import (
    CANDIDATE_LIMIT,
    Emulator,
    Snapshot,
    Status,
    Trace,
    Verdict,
    count_verb_uses,
    is_recognized,
)
from xtx.games.zmachine.typed_input import COMMAND_LENGTH

ROOT = Path(__file__).parents[3]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"
HANG = ROOT / "stories/hang/hang.z5"
QUICK = 200_000
"""Instructions: enough for any decent command of the hang story."""


@pytest.fixture(scope="module")
def lowwater() -> Iterator[Emulator]:
    emulator = Emulator(read_story(LOWWATER))
    yield emulator
    emulator.close()


@pytest.fixture(scope="module")
def hang() -> Iterator[Emulator]:
    emulator = Emulator(read_story(HANG))
    yield emulator
    emulator.close()


def plain(path: Path, seed: int) -> FrotzEnv:
    """Jericho itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FrotzEnv(str(path), seed=seed)


def tell(emulator: Emulator, commands: Sequence[str]) -> list[tuple[str, int, int, bool, Snapshot]]:
    """All that can be seen after each command."""
    seen = []
    for command in commands:
        assert emulator.step(command) is Status.DONE
        seen.append((emulator.narration, emulator.score, emulator.moves, emulator.over, emulator.save()))
    return seen


# --- as Jericho does ------------------------------------------------------------------------------------------------


@pytest.mark.roms
@pytest.mark.parametrize("name", ["zork1", "detective", "enchanter", "library", "snacktime"])
def test_walkthroughs_go_as_in_jericho(name: str, real_story: Callable[[str], Path]) -> None:
    emulator = Emulator(read_story(real_story(name)))
    env = plain(real_story(name), emulator.bindings.walkthrough_seed)
    opening, info = env.reset()
    assert emulator.reset(emulator.bindings.walkthrough_seed) == opening
    for command in emulator.bindings.walkthrough:
        text, _, done, info = env.step(command)
        assert emulator.step(command) is Status.DONE
        found = (emulator.narration, emulator.score, emulator.moves, emulator.over, emulator.won)
        assert found == (text, info["score"], info["moves"], done, env.victory()), command
    assert list(emulator.bindings.walkthrough) == env.get_walkthrough()
    assert emulator.bindings.max_score == env.get_max_score()
    # And once more from the kept first state, which is quicker than a new set-up and must not differ from it.
    assert emulator.reset(emulator.bindings.walkthrough_seed) == opening
    env.reset()
    for command in emulator.bindings.walkthrough[:60]:
        text = env.step(command)[0]
        emulator.step(command)
        assert emulator.narration == text
        assert bytes(emulator.ram) == bytes(env._get_ram())
    emulator.close()


def test_a_story_of_our_own_goes_as_in_jericho(lowwater: Emulator) -> None:
    env = plain(LOWWATER, 1)
    opening, _ = env.reset()
    assert opening.startswith(lowwater.reset(1))
    for command in lowwater.bindings.walkthrough:
        text = env.step(command)[0]
        lowwater.step(command)
        # Jericho leaves the status line behind the prompt of games that it does not know.
        assert text.startswith(lowwater.narration)
        assert text[len(lowwater.narration) :].lstrip("\n>").startswith("  ") or text == lowwater.narration
        assert bytes(lowwater.ram) == bytes(env._get_ram())
    assert (lowwater.score, lowwater.won, lowwater.over) == (lowwater.bindings.max_score, True, True)


@pytest.mark.roms
@pytest.mark.parametrize("name", ["zork1", "detective"])
def test_the_filters_events_are_jerichos_valid_actions(name: str, real_story: Callable[[str], Path]) -> None:
    emulator = Emulator(read_story(real_story(name)))
    env = plain(real_story(name), emulator.bindings.walkthrough_seed)
    emulator.reset(emulator.bindings.walkthrough_seed)
    env.reset()
    choice = random.Random(3)
    words = ["all", "me", "door", "sword", "lamp", "mailbox", "leaflet", "window", "paper", "gun", "egg", "rug"]
    forms = [t for t in emulator.bindings.templates if t.count("OBJ") < 2]
    compared = 0
    for i, command in enumerate(emulator.bindings.walkthrough[:40]):
        if i % 8 == 0:
            candidates = [t.replace("OBJ", choice.choice(words)) for t in forms for _ in range(1 + t.count("OBJ"))]
            candidates = list(dict.fromkeys([*candidates, *emulator.bindings.walkthrough[i : i + 5]]))
            score = emulator.score
            ended = [self_ended(emulator, c, score) for c in candidates]
            verdicts = emulator.filter(candidates)
            found = env._filter_candidate_actions(candidates, use_ctypes=True)
            theirs = {action for actions in found.values() for action in actions}
            # Jericho also takes those that change the score or end the game, and none that takes by the way.
            ours = {
                c
                for c, flag, end in zip(candidates, verdicts.flags.tolist(), ended, strict=True)
                if (flag & Verdict.EVENT or end) and not flag & Verdict.TAKEN
            }
            assert ours == theirs
            assert len(theirs) > 2
            compared += len(candidates)
        emulator.step(command)
        env.step(command)
    assert compared > 300
    emulator.close()


def self_ended(emulator: Emulator, command: str, score: int) -> bool:
    state = emulator.save()
    emulator.step(command)
    ended = emulator.over or emulator.score != score
    emulator.restore(state)
    return ended


# --- states ---------------------------------------------------------------------------------------------------------


def test_a_restored_state_goes_on_in_the_same_way(lowwater: Emulator) -> None:
    lowwater.reset(1)
    walk = lowwater.bindings.walkthrough
    tell(lowwater, walk[:15])
    middle, narration = lowwater.save(), lowwater.narration
    first = tell(lowwater, walk[15:35])
    lowwater.restore(middle)
    assert (lowwater.save(), lowwater.narration) == (middle, narration)
    assert tell(lowwater, walk[15:35]) == first
    other = Emulator(read_story(LOWWATER))
    other.reset(99)
    tell(other, ["north", "south", "take all"])
    other.restore(middle)
    assert other.save() == middle
    assert tell(other, walk[15:35]) == first
    other.close()


@pytest.mark.roms
def test_random_numbers_belong_to_the_state(real_story: Callable[[str], Path]) -> None:
    """The fight with zork1's troll is a matter of luck: the same luck again, in this emulator and another."""
    emulator, other = (Emulator(read_story(real_story("zork1"))) for _ in range(2))
    emulator.reset(emulator.bindings.walkthrough_seed)
    at_troll = next(i for i, c in enumerate(emulator.bindings.walkthrough) if "troll" in c.lower())
    tell(emulator, emulator.bindings.walkthrough[:at_troll])
    state, blows = emulator.save(), ["attack troll with sword"] * 3
    first = tell(emulator, blows)
    emulator.restore(state)
    assert tell(emulator, blows) == first
    other.reset(5)
    other.restore(state)
    assert tell(other, blows) == first
    lucks = set()
    for luck in range(1, 9):
        emulator.restore(
            Snapshot(*(getattr(state, f) if f != "rng" else (luck * 7919, 0, 0) for f in state.__struct_fields__))
        )
        emulator.step(blows[0])
        lucks.add(emulator.narration)
    assert len(lucks) > 1
    emulator.close()
    other.close()


@pytest.mark.roms
def test_seeds(real_story: Callable[[str], Path]) -> None:
    emulator, other = (Emulator(read_story(real_story("zork1"))) for _ in range(2))
    first = {}
    for seed in (0, 1, 12, 12345):
        emulator.reset(seed)
        first[seed] = emulator.save()
    assert first[0].rng != first[12].rng  # 12 is the walkthrough's seed, which Jericho takes for 0
    assert len({state.rng for state in first.values()}) == 4
    assert first[0].rng[0] == 0 or emulator._env._seed == 12345
    for seed in (12345, 0, 12, 1):
        emulator.step("north")
        emulator.reset(seed)
        assert emulator.save() == first[seed]
        other.reset(seed)
        assert other.save() == first[seed]
    for seed in range(100, 170):  # more than are kept
        emulator.reset(seed)
    emulator.reset(0)
    assert emulator.save() == first[0]
    texts = set()
    for seed in range(1, 9):
        emulator.reset(seed)
        texts.add(tuple(text for text, *_ in tell(emulator, ["jump", "hello", "jump", "yell"] * 2)))
    assert len(texts) > 1
    emulator.close()
    other.close()


def test_seed_zero_reaches_the_emulator(lowwater: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    setup = lowwater._lib.setup

    def watch(story: bytes, seed: int, *rest: object) -> bytes:
        given.append(seed)
        return setup(story, seed, *rest)

    monkeypatch.setattr(lowwater._lib, "setup", watch)
    lowwater._first.clear()
    lowwater.reset(0)
    assert given == [0]


# --- what a command can do ------------------------------------------------------------------------------------------


def test_a_crash_can_be_undone(hang: Emulator) -> None:
    hang.reset(1)
    state = hang.save()
    for _ in range(2):
        assert hang.step("crash") is Status.HALTED
        assert hang.halted and hang.over and not hang.won
        assert hang.step("look") is Status.HALTED  # nothing goes on by itself
        hang.restore(state)
        assert not hang.halted and not hang.over
        assert hang.save() == state
        assert hang.step("take coin") is Status.DONE
        assert hang.score == 1
    assert hang.step("crash") is Status.HALTED
    assert "A story that stops" in hang.reset(1)
    assert hang.save() == state


@pytest.mark.parametrize("command", ["hang", "examine bomb"])
def test_a_hang_is_cut_off_and_undone(hang: Emulator, command: str) -> None:
    opening = hang.reset(1)
    state = hang.save()
    hang.step("look")
    room = hang.narration
    hang.restore(state)
    for _ in range(2):
        assert hang.step(command, QUICK) is Status.LIMIT
        assert hang.instructions == QUICK
        hang.restore(state)
        assert hang.save() == state
        assert hang.step("look") is Status.DONE
        assert hang.narration == room
    assert hang.step(command, QUICK) is Status.LIMIT
    assert hang.reset(1) == opening
    assert hang.step(command, QUICK) is Status.LIMIT
    hang._first.clear()
    assert hang.reset(7) == opening  # a new set-up does not begin with what was left


def test_a_hang_is_found_without_being_told_the_limit(hang: Emulator) -> None:
    hang.reset(1)
    assert hang.step("hang") is Status.LIMIT


def test_a_long_answer_is_waited_for(hang: Emulator) -> None:
    hang.reset(1)
    assert hang.step("spin") is Status.DONE
    assert "round and round" in hang.narration
    assert hang.instructions > 15_000_000
    assert hang.step("spin", CANDIDATE_LIMIT) is Status.LIMIT
    hang.reset(1)
    hang.step("look")
    needed = hang.instructions
    hang.reset(1)
    assert hang.step("look", needed) is Status.DONE  # the limit itself is not too much
    hang.reset(1)
    assert hang.step("look", needed - 1) is Status.LIMIT
    hang.reset(1)


def test_what_is_tried_is_on_the_trace() -> None:
    trace = Trace()
    emulator = Emulator(read_story(HANG), trace)
    emulator.reset(1)
    emulator.step("take coin")
    before = trace.progress
    assert trace.command == b"take coin"
    emulator.filter(["down", "up"])
    assert (trace.command, trace.progress) == (b"up", before + 2)
    emulator.close()


ODD = [
    "\\help",
    "\\x",
    "look\\",
    "\\U",
    "",
    " ",
    "x" * 500,
    "é" * 150,
    "€" * 66 + "ab",
    "漢字",
    "\t",
    "\x1b[A",
    "\x7f\b",
    "look\nnorth",
    "look\0north",
    "\udcff",
    ";",
]


@pytest.mark.parametrize("command", ODD)
def test_odd_commands_break_nothing(lowwater: Emulator, command: str) -> None:
    lowwater.reset(1)
    state = lowwater.save()
    assert lowwater.step(command) is Status.DONE
    first = lowwater.save()
    assert lowwater.narration
    lowwater.restore(state)
    assert lowwater.step(command) is Status.DONE
    assert lowwater.save() == first
    assert lowwater.step("north") is Status.DONE
    assert "Tide Office" in lowwater.narration


def test_a_command_is_cut_to_what_the_emulator_takes(lowwater: Emulator) -> None:
    lowwater.reset(1)
    state = lowwater.save()
    padded = "north" + " " * (COMMAND_LENGTH - 5)
    lowwater.step(padded)
    assert "Tide Office" in lowwater.narration
    after = lowwater.save()
    lowwater.restore(state)
    lowwater.step(padded + "and then a good deal more")
    assert lowwater.save() == after


@pytest.mark.roms
def test_no_key_is_kept_for_later(real_story: Callable[[str], Path]) -> None:
    """In a menu, where single keys are wanted, a word is one key: the others must not be read after a `restore`."""
    emulator, other = (Emulator(read_story(real_story("detective"))) for _ in range(2))
    emulator.reset(1)
    emulator.step("help")
    menu = emulator.save()
    assert not menu.wants_line
    other.reset(1)
    other.restore(menu)
    (expected,) = tell(other, ["q"])
    emulator.step("nnnnn")
    emulator.restore(menu)
    assert tell(emulator, ["q"]) == [expected]
    emulator.close()
    other.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=st.text(max_size=250))
def test_any_text_can_be_typed(lowwater: Emulator, command: str) -> None:
    lowwater.reset(1)
    status = lowwater.step(command)
    assert status in (Status.DONE, Status.LIMIT)
    lowwater.reset(1)
    lowwater.step("north")
    assert "Tide Office" in lowwater.narration


# --- the filter -----------------------------------------------------------------------------------------------------


def test_the_filter_says_what_each_command_did(hang: Emulator) -> None:
    hang.reset(1)
    state = hang.save()
    commands = [
        "look",
        "take coin",
        "hang",
        "get coin",
        "crash",
        "down",
        "examine bomb",
        "d",
        "take bomb",
        "up",
        "spin",
    ]
    verdicts = hang.filter(commands)
    assert hang.save() == state
    flags = dict(zip(commands, verdicts.flags.tolist(), strict=True))
    diffs = dict(zip(commands, verdicts.diffs.tolist(), strict=True))
    assert {c for c in commands if flags[c] & Verdict.STOPPED} == {"hang", "crash", "examine bomb", "spin"}
    assert {c for c in commands if flags[c] & Verdict.CHANGED} == {"take coin", "get coin", "down", "d"}
    assert all(diffs[c] for c in ("take coin", "get coin", "down", "d"))
    assert diffs["take coin"] == diffs["get coin"] != diffs["down"] == diffs["d"]
    assert hang.filter([]).flags.size == 0
    assert (hang.filter(commands).diffs == verdicts.diffs).all()


def test_what_is_asked_at_once_is_what_single_steps_say(hang: Emulator, lowwater: Emulator) -> None:
    """Also of commands that end the emulator or never end, in whatever place, and of more than are asked at once."""
    commands = [
        "examine bomb",
        "look",
        "hang",
        "hang",
        "examine me",
        "inventory",
        "crash",
        *["look", "wait"] * 40,
        "hang",
    ]
    for emulator, limit in ((hang, QUICK), (lowwater, CANDIDATE_LIMIT)):
        emulator.reset(1)
        state, said = emulator.save(), []
        for command in commands:
            emulator.restore(state)
            said.append(emulator.narration if emulator.step(command, limit) is Status.DONE else None)
        assert emulator.read_responses(state, commands, limit) == said
        assert emulator.read_responses(state, [], limit) == []
        emulator.restore(state)
        assert emulator.save() == state
        assert (said.count(None) >= 4) == (emulator is hang)


def test_the_end_of_the_game_is_a_change(hang: Emulator) -> None:
    hang.reset(1)
    tell(hang, ["take coin", "down"])
    won, lost, nothing = hang.filter(["north", "south", "wait"]).diffs.tolist()
    assert won and lost and won != lost
    assert not nothing


def test_any_change_of_a_score_is_a_change(hang: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a score is all that changes: here the number of turns, taken for one."""
    hang.reset(1)
    profile = hang.story.profile
    assert profile is not None
    nothing = np.zeros_like(hang.world_memory.change.set_mask)
    world = type(hang.world_memory.change_struct)(
        nothing.ctypes.data, nothing.ctypes.data, None, 0, hang.header.first_object, 0, hang.tree.count,
        profile.moves.address, profile.moves.size,
    )  # fmt: skip
    monkeypatch.setitem(hang.world_memory.__dict__, "change_struct", world)
    verdicts = hang.filter([". ".join(["wait"] * turns) for turns in range(1, 11)])
    assert ((verdicts.flags & Verdict.CHANGED) > 0).all()
    assert len(set(verdicts.diffs.tolist())) == 10


def test_the_score_is_a_change(lowwater: Emulator) -> None:
    """A step that scores differs from all that do not, along the walkthrough."""
    lowwater.reset(1)
    for command in lowwater.bindings.walkthrough:
        state, score = lowwater.save(), lowwater.score
        flag = int(lowwater.filter([command]).flags[0])
        assert lowwater.save() == state
        lowwater.step(command)
        if lowwater.score != score:
            assert flag & Verdict.CHANGED
    assert lowwater.won


def test_the_filter_does_what_single_steps_do(lowwater: Emulator) -> None:
    lowwater.reset(1)
    tell(lowwater, lowwater.bindings.walkthrough[:10])
    state = lowwater.save()
    commands = [t for t in lowwater.bindings.templates if "OBJ" not in t] + list(lowwater.bindings.walkthrough[10:14])
    together = lowwater.filter(commands)
    for command, flag, diff in zip(commands, together.flags.tolist(), together.diffs.tolist(), strict=True):
        alone = lowwater.filter([command])
        assert (alone.flags[0], alone.diffs[0]) == (flag, diff), command
    assert lowwater.save() == state
    backwards = lowwater.filter(commands[::-1])
    assert np.array_equal(backwards.diffs[::-1], together.diffs)


def test_words_of_jerichos() -> None:
    assert is_recognized("You can't do that to a mailbox.\nReally.")
    assert not is_recognized("That's not a verb I recognise.")
    assert count_verb_uses("take", 6) > count_verb_uses("annihilate", 6)


def test_emulators_can_be_opened_and_closed_many_times() -> None:
    story = read_story(HANG)
    for _ in range(30):
        emulator = Emulator(story)
        emulator.reset(1)
        emulator.close()
        emulator.close()


@pytest.mark.roms
def test_a_halting_candidate_costs_itself_only(
    real_story: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """In balances `take her` halts the emulator; Jericho's own filter then drops all candidates that follow."""
    emulator = Emulator(read_story(real_story("balances")))
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough[:18]:
        emulator.step(command)
    candidates = ["look", "take her", "north", "take all"]
    verdicts = emulator.filter(candidates)
    assert [bool(f & Verdict.STOPPED) for f in verdicts.flags] == [False, True, False, False]
    assert verdicts.flags[3] & Verdict.CHANGED
    theirs = emulator._env._filter_candidate_actions(candidates, use_ctypes=True)
    assert list(theirs.values()) == []
    assert "halted" in capfd.readouterr().out
    emulator.close()


@pytest.mark.parametrize("command", ["save", "script", "restore", "script on", "recording on"])
def test_no_story_opens_files(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frotz would write a saved game or a transcript into the present folder. Where a story saves, it cannot go on."""
    monkeypatch.chdir(tmp_path)
    emulator = Emulator(read_story(LOWWATER))
    emulator.reset(1)
    state = emulator.save()
    for word in (command, "mine", "look", "save", "theirs"):
        if emulator.step(word) is not Status.DONE:
            emulator.restore(state)
    emulator.close()
    assert not list(tmp_path.iterdir())


def with_opening(path: Path, *opening: str) -> Emulator:
    """An emulator with a story that is taken for one that asks something at its beginning."""
    story = read_story(path)
    assert story.profile is not None
    return Emulator(replace(story, profile=msgspec.structs.replace(story.profile, opening=opening)))


def test_a_game_under_a_new_seed_has_not_quit_because_the_one_before_did() -> None:
    story = read_story(LOWWATER)
    assert story.profile is not None
    emulator = Emulator(story)
    emulator.reset(1)
    at_prompt = emulator.save()
    emulator.close()
    found = msgspec.structs.replace(story.profile, prompt=(at_prompt.pc, at_prompt.frames), verified=False)
    emulator = Emulator(replace(story, profile=found))
    try:
        emulator.reset(1)
        emulator.step("quit")
        emulator.step("yes")
        assert emulator.over
        emulator.reset(2)
        assert not emulator.over
    finally:
        emulator.close()


def test_an_answer_in_the_opening_may_take_as_long_as_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xtx.games.emulator.frotz.CANDIDATE_LIMIT", 10)
    emulator = with_opening(LOWWATER, "north")
    try:
        texts = emulator.reset(1), emulator.reset(1)
        assert texts[0] == texts[1] and emulator.save().wants_line
    finally:
        emulator.close()


def test_an_opening_that_cannot_be_finished_is_named() -> None:
    emulator = with_opening(HANG, "hang")
    try:
        for _ in range(2):
            with pytest.raises(UserError, match=r"hang.z5 does not begin: it cannot finish 'hang'"):
                emulator.reset(1)
    finally:
        emulator.close()


def test_a_detour_from_a_game_that_was_loaded_does_not_make_the_next_one_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulator = Emulator(read_story(LOWWATER))
    set_ups = []
    set_up = emulator._set_up
    monkeypatch.setattr(emulator, "_set_up", lambda seed: (set_ups.append(seed), set_up(seed)))
    try:
        emulator.reset(1)
        state = emulator.save()
        emulator.restore_foreign(state)
        emulator.reset(1, is_detour=True)
        emulator.restore(state)
        set_ups.clear()
        emulator.reset(1)
        emulator.reset(1)
        assert set_ups == [1]
    finally:
        emulator.close()
