"""The set-execution engine on whole games: it does what Frotz does, in sets as one by one, whatever is typed.

The long version of these checks is tests/games/zset/zset_verify.py (make verify)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zcode
import zset_verify as verify

from xtx.games.emulator.frotz import Emulator, Snapshot
from xtx.games.zset.engine import UNJUDGED, Engine, MismatchError
from xtx.games.zset.game_rules import Rules

ROOT = Path(__file__).parents[3]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"


@pytest.fixture(scope="module")
def lowwater() -> Iterator[tuple[Emulator, Engine]]:
    with verify.opened(LOWWATER) as both:
        yield both


@pytest.fixture(scope="module")
def states(lowwater: tuple[Emulator, Engine]) -> list[Snapshot]:
    tally, states = verify.check_walkthrough(*lowwater)
    assert tally.wrong == []
    assert tally.steps == len(states) and tally.unjudged == 0
    return states


def test_the_plain_run_equals_frotz_along_the_walkthrough(states: list[Snapshot]) -> None:
    assert len(states) > 40


@pytest.mark.parametrize("number", [0, 20])
def test_in_sets_commands_end_as_by_themselves(
    lowwater: tuple[Emulator, Engine], states: list[Snapshot], number: int
) -> None:
    emulator, engine = lowwater
    commands = verify.real_candidates(emulator, states[number], most=6)
    assert len(commands) > 400
    tally = verify.check_lanes(engine, states[number], commands, "lowwater")
    assert tally.wrong == []
    assert tally.unjudged < len(commands) // 50


def test_verdicts_are_those_of_frotz(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    emulator, engine = lowwater
    for state in states[::15]:
        commands = [*verify.real_candidates(emulator, state, most=4), *emulator.bindings.walkthrough]
        tally = verify.check_verdicts(emulator, engine, state, commands, "lowwater")
        assert tally.wrong == []


def test_odd_commands(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    emulator, engine = lowwater
    choose = random.Random(3)
    for state in choose.sample(states, 3):
        commands = verify.odd_commands(emulator, state, 150, choose)
        assert verify.check_lanes(engine, state, commands, "lowwater").wrong == []
        assert verify.check_verdicts(emulator, engine, state, commands, "lowwater").wrong == []


def test_at_every_merge_a_lane_is_what_it_is_alone(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    emulator, engine = lowwater
    for seed, state in enumerate(states[::15]):
        tally = verify.check_merges(engine, state, verify.real_candidates(emulator, state, most=4), "lowwater", seed)
        assert tally.wrong == []
        assert tally.merges > 200
        strange = verify.odd_commands(emulator, state, 100, random.Random(seed))
        assert verify.check_merges(engine, state, strange, "lowwater", seed).wrong == []


def test_a_spoiled_merge_is_noticed(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    """A bit is turned over in one lane, which is noticed if that lane is ever chosen, or what became of it."""
    emulator, engine = lowwater
    commands = verify.real_candidates(emulator, states[5], most=4)[:60]
    merges = engine.check_merges(states[5], commands)
    assert merges > 50
    noticed = []
    for fault in range(1, 41):
        try:
            engine.check_merges(states[5], commands, seed=fault, fault=fault)
        except MismatchError as error:
            noticed.append(str(error))
    assert len(noticed) > 25
    assert any("after the merge at 0x" in message for message in noticed)
    assert all(any(repr(command) in message for command in commands) for message in noticed)
    assert engine.check_merges(states[5], commands, seed=1, fault=merges + 1) == merges  # no such merge
    # and verify's check says so
    with pytest.MonkeyPatch.context() as patch:
        plain = Engine.check_merges
        patch.setattr(Engine, "check_merges", lambda *arguments, **more: plain(*arguments, fault=1, **more))
        results = [verify.check_merges(engine, states[5], commands, "lowwater", seed).wrong for seed in range(5)]
    assert any(results)


def test_damaged_stories_end_in_a_verdict(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    emulator, _ = lowwater
    choose = random.Random(5)
    commands = verify.odd_commands(emulator, states[3], 100, choose)
    tally = verify.check_damaged(emulator.story, Rules.of(emulator), states, commands, 12, choose)
    assert tally.damaged > 500
    assert tally.wrong == []


def test_what_cannot_be_judged_is_marked_and_the_rest_is_not(
    lowwater: tuple[Emulator, Engine], states: list[Snapshot]
) -> None:
    _, engine = lowwater
    good = ["look", "wait", "north", "zqx"]
    odd = ["look\\", "lo\0ok", "é", "x" * 199, "look?", "\n", "save", "quit", "restart"]
    flags = engine.filter(states[0], [*good, *odd]).flags
    assert (flags[: len(good)] & UNJUDGED == 0).all()
    assert (flags[len(good) : len(good) + 6] == UNJUDGED).all()
    assert engine.filter(states[0], []).flags.size == 0
    assert engine.filter(states[0], ["look"], limit=10).flags.tolist() == [UNJUDGED]


def test_a_state_that_waits_for_a_key_is_left_to_frotz(
    lowwater: tuple[Emulator, Engine], states: list[Snapshot]
) -> None:
    _, engine = lowwater
    state = msgspec.structs.replace(states[0], opcode=246)
    assert engine.filter(state, ["look", "x"]).flags.tolist() == [UNJUDGED, UNJUDGED]


def test_states_and_rules_of_other_stories_are_refused(
    lowwater: tuple[Emulator, Engine], states: list[Snapshot]
) -> None:
    emulator, engine = lowwater
    with pytest.raises(ValueError, match="another story"):
        engine.filter(msgspec.structs.replace(states[0], ram=b"\0" * 100), ["look"])
    with pytest.raises(ValueError, match="another story"):
        Engine(zcode.assemble(b""), Rules.of(emulator))
    with pytest.raises(ValueError, match="cannot be run"):
        Engine(bytes([6]) + emulator.story.content[1:], Rules.of(emulator))


def test_engines_in_several_threads_do_not_disturb_each_other(
    lowwater: tuple[Emulator, Engine], states: list[Snapshot]
) -> None:
    emulator, engine = lowwater
    rules = Rules.of(emulator)
    commands = verify.real_candidates(emulator, states[5], most=4)
    expected = engine.filter(states[5], commands)
    results: list[bool] = []

    def work() -> None:
        own = Engine(emulator.story.content, rules)
        for _ in range(5):
            found = own.filter(states[5], commands)
            results.append((found.flags == expected.flags).all() and (found.diffs == expected.diffs).all())
        own.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 15


def test_threads_share_the_commands_of_a_state(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    emulator, engine = lowwater
    commands = verify.real_candidates(emulator, states[5], most=12)
    assert len(commands) > 1500
    hashes = [np.zeros(len(commands), dtype=np.uint64) for _ in range(2)]
    alone = engine.filter(states[5], commands, hashes=hashes[0])
    team = Engine(emulator.story.content, Rules.of(emulator), threads=3)
    for _ in range(2):
        shared = team.filter(states[5], commands, hashes=hashes[1])
        assert (shared.flags == alone.flags).all() and (shared.diffs == alone.diffs).all()
        assert (hashes[0] == hashes[1]).all()
    assert team.filter(states[5], commands[:7]).flags.tolist() == alone.flags[:7].tolist()
    for count in (199, 200, 201, 333):  # parts of which the last is small, and parts that end between verbs
        few = commands[40 : 40 + count]
        for state in states[5:8]:
            alone, shared = engine.filter(state, few), team.filter(state, few)
            assert (shared.flags == alone.flags).all() and (shared.diffs == alone.diffs).all()
    same = ["look"] * 450  # no other verb to cut at
    assert len(set(team.filter(states[5], same).flags.tolist())) == 1
    team.close()


@pytest.mark.roms
@pytest.mark.parametrize("name", ["zork1", "detective", "enchanter", "snacktime", "library"])
def test_real_games(real_story: Callable[[str], Path], name: str) -> None:
    tally = verify.verify(real_story(name), states=1, odd=60, rounds=2, seed=2, most=4)
    assert tally.wrong == []
    assert tally.steps > 30


@pytest.mark.roms
def test_texts_are_not_remembered_where_abbreviations_are_others(real_story: Callable[[str], Path]) -> None:
    """A verdict must not depend on what an engine has printed before."""
    with verify.opened(real_story("zork1")) as (emulator, used), closing(Engine.of(emulator)) as fresh:
        emulator.reset(1)
        state, commands = emulator.save(), ["look", "open mailbox", "inventory", "jump", "north"]
        assert not (used.filter(state, commands).flags & UNJUDGED).any()
        table = emulator.header.abbreviations
        ram = state.ram[:table] + b"\xff" * 192 + state.ram[table + 192 :]
        damaged = msgspec.structs.replace(state, ram=ram)
        expected = fresh.filter(damaged, commands).flags
        assert (expected & UNJUDGED).any()
        assert used.filter(damaged, commands).flags.tolist() == expected.tolist()
        assert not (fresh.filter(state, commands).flags & UNJUDGED).any()


@pytest.mark.roms
@pytest.mark.parametrize("name", ["zork1", "detective", "library"])
def test_the_dictionary_of_valid_actions_is_jerichos(real_story: Callable[[str], Path], name: str) -> None:
    """World difference -> commands, in the same order."""
    with verify.opened(real_story(name)) as (emulator, engine):
        _, walked = verify.check_walkthrough(emulator, engine)
        tally = verify.check_dictionaries(emulator, engine, walked, 4, 4)
        assert tally.wrong == []
        assert tally.dictionaries >= 3 and tally.valid > 20
        # and another order would be noticed
        state = walked[3]
        commands = [c for c in verify.real_candidates(emulator, state, 4) if ";" not in c]
        there = verify.jericho_dictionary(emulator, state, commands)
        assert there != verify.jericho_dictionary(emulator, state, commands[::-1])


def test_hashes_tell_states_apart(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    """The proofs stand on them."""
    _, engine = lowwater
    hashes = np.zeros(3, dtype=np.uint64)
    engine.filter(states[0], ["look", "inventory", "look"], hashes=hashes)
    assert hashes[0] == hashes[2] != hashes[1]
