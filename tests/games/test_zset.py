"""The set-execution engine: it does what Frotz does, in sets as one by one, whatever the story and whatever is typed.

The long version of these checks is tests/zset_verify.py (make verify)."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest

from xtx.games.jericho import Emulator, Snapshot, Status, Verdict
from xtx.games.story import read_story
from xtx.games.zset import UNJUDGED, Engine, MismatchError, Mode, Rules

ROOT = Path(__file__).parents[2]
LOWWATER = ROOT / "xtx/games/data/lowwater.z5"


def load(path: Path) -> ModuleType:
    """A module that is no test and in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


verify = load(ROOT / "tests/zset_verify.py")
zcode = load(ROOT / "tests/games/zcode.py")
Code, Var = zcode.Code, zcode.Var

# --- whole games ------------------------------------------------------------------------------------------------------


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


def test_verdicts_are_those_of_the_door(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    emulator, engine = lowwater
    for state in states[::15]:
        commands = [*verify.real_candidates(emulator, state, most=4), *emulator.walkthrough]
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
        patch.setattr(Engine, "check_merges", lambda *arguments: plain(*arguments, fault=1))
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
        for state, shared in zip(states[5:8], team.filter_each(states[5:8], few), strict=True):
            alone = engine.filter(state, few)
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


# --- single instructions ----------------------------------------------------------------------------------------------

A, B, WORD, TOP = Var(17), Var(18), Var(19), Var(0)
"""The first and the second letter of the command as numbers from 0, the first word's address, and the stack."""
LINES = ["".join(pair) for pair in itertools.product("abcdefg", repeat=2)] + ["take box", "box", "lamp, in", "a all"]

Program = Callable[["Code"], None]


def plus(code: Code, a: object, b: object, to: int) -> None:
    code.op("add", a, b, store=to)


def branching(name: str, *operands: object, store: int | None = None) -> Program:
    """The instruction, and one that is executed where it does not branch; both ways round."""

    def program(code: Code) -> None:
        for on in (True, False):
            skipped = Code(0)
            skipped.op("add", Var(20), 3, store=20)
            code.op(name, *operands, store=store, branch=(on, len(skipped.bytes)))
            code.bytes += skipped.bytes
            plus(code, Var(20), Var(20), 20)

    return program


def storing(name: str, *operands: object) -> Program:
    return lambda code: code.op(name, *operands, store=20)


def doing(*instructions: tuple[object, ...]) -> Program:
    """Instructions: the name and the operands, and what is stored last, after "->"."""

    def program(code: Code) -> None:
        for name, *operands in instructions:
            to = operands[operands.index("->") + 1] if "->" in operands else None
            code.op(name, *(operands[: operands.index("->")] if "->" in operands else operands), store=to)

    return program


OBJECT = ("add", A, 1, "->", 21)
OTHER = ("add", B, 1, "->", 22)
X, Y = Var(21), Var(22)
BUFFER, TABLE, TEXT, PARSE = zcode.BUFFER, zcode.TABLE, zcode.TEXT, zcode.PARSE


def after(first: tuple[object, ...], program: Program, *more: tuple[object, ...]) -> Program:
    def both(code: Code) -> None:
        doing(first, *more)(code)
        program(code)

    return both


PROGRAMS: dict[str, Program] = {
    "je": branching("je", A, B),
    "je constants": branching("je", A, 1, 4, 6),
    "je vectors": branching("je", A, B, 3, WORD),
    "je word": branching("je", WORD, zcode.DICTIONARY + 7 + 9),
    "jl": branching("jl", A, B),
    "jl constant": branching("jl", 3, B),
    "jg": branching("jg", A, 3),
    "jz": branching("jz", A),
    "test": branching("test", A, B),
    "inc_chk": after(("add", A, 0, "->", 21), branching("inc_chk", 21, B)),
    "dec_chk": after(("add", A, 0, "->", 21), branching("dec_chk", 21, B)),
    "inc_chk named by lane": after(("add", A, 20, "->", 40), branching("inc_chk", Var(40), B)),
    "inc and dec": doing(("add", A, 0, "->", 21), ("inc", 21), ("inc", 21), ("dec", 22), ("dec", 17)),
    "inc named by lane": doing(("add", A, 20, "->", 40), ("inc", Var(40)), ("dec", Var(40)), ("inc", Var(40))),
    "or": storing("or", A, B),
    "and": storing("and", A, 5),
    "add": storing("add", 65530, A),
    "sub": storing("sub", A, B),
    "mul": storing("mul", A, -3),
    "div": after(("sub", A, 4, "->", 21), doing(OTHER, ("div", X, Y, "->", 20), ("div", X, -2, "->", 23))),
    "mod": after(("sub", A, 4, "->", 21), doing(OTHER, ("mod", X, Y, "->", 20), ("mod", X, -3, "->", 23))),
    "div by zero in some lanes": doing(("div", 7, A, "->", 20)),
    "not": storing("not", A),
    "log_shift": doing(("sub", B, 3, "->", 21), ("mul", A, 9999, "->", 22), ("log_shift", Y, X, "->", 20)),
    "art_shift": doing(("sub", B, 3, "->", 21), ("mul", A, 9999, "->", 22), ("art_shift", Y, X, "->", 20)),
    "loadw": doing(("loadw", TABLE, A, "->", 20), ("loadw", B, 300, "->", 22)),
    "loadb": doing(("loadb", TABLE, A, "->", 20), ("mul", A, 2, "->", 21), ("loadb", X, B, "->", 22)),
    "storew": doing(("storew", TABLE, 3, A), ("storew", TABLE, A, B), ("loadw", TABLE, 3, "->", 20)),
    "loadw across the end": doing(("loadw", A, -1, "->", 20), ("loadw", 65535, 0, "->", 22)),
    "storeb": doing(("storeb", TABLE, 7, WORD), ("storeb", TABLE, A, B), ("loadw", TABLE, 3, "->", 20)),
    "storew at odd addresses": doing(
        ("storew", TABLE + 1, 2, WORD), ("storew", TABLE, 2, A), ("loadb", TABLE, 5, "->", 20)),
    "storew nowhere": doing(("storew", zcode.RAM_END - 4, A, 7)),
    "stack": doing(
        ("push", A), ("push", B), ("pull", 20), ("add", TOP, 1, "->", 0), ("load", 0, "->", 21), ("pull", 22)),
    "store": doing(
        ("store", 20, A), ("push", 1), ("store", 0, B), ("pull", 21), ("add", A, 20, "->", 40), ("store", Var(40), 7)),
    "jin": after(OBJECT, branching("jin", X, 1)),
    "jin lanes": after(OBJECT, branching("jin", X, B)),
    "jin nothing": branching("jin", A, B),
    "test_attr": after(OBJECT, branching("test_attr", X, B)),
    "test_attr of nothing": branching("test_attr", A, 7),
    "set_attr": doing(OBJECT, ("set_attr", X, 3), ("set_attr", X, B), ("set_attr", 2, 9)),
    "clear_attr": doing(OBJECT, ("clear_attr", X, 3), ("clear_attr", X, B), ("clear_attr", 2, 9)),
    "attributes of nothing": doing(("set_attr", A, 3), ("clear_attr", A, 4)),
    "set_attr then test": after(OBJECT, branching("test_attr", 3, 4), ("set_attr", X, 4)),
    "insert_obj": doing(OBJECT, ("insert_obj", X, 8)),
    "insert_obj to lanes": doing(OTHER, ("insert_obj", 4, Y), ("get_parent", 4, "->", 20)),
    "insert_obj lanes twice": doing(OBJECT, ("insert_obj", X, 8), ("insert_obj", 4, 8), ("insert_obj", X, 6)),
    "insert_obj nothing": doing(("insert_obj", A, 8), ("insert_obj", 3, B)),
    "remove_obj": doing(OBJECT, ("remove_obj", X), ("remove_obj", A), ("remove_obj", 2)),
    "get_child": after(OBJECT, branching("get_child", X, store=23)),
    "get_sibling": after(OBJECT, branching("get_sibling", X, store=23)),
    "get_child of nothing": branching("get_child", A, store=23),
    "get_child after a move": after(OBJECT, branching("get_child", 8, store=23), ("insert_obj", X, 8)),
    "get_parent": doing(("get_parent", A, "->", 20), OBJECT, ("insert_obj", X, 8), ("get_parent", 3, "->", 23)),
    "get_prop": doing(
        OBJECT, ("get_prop", X, 20, "->", 20), ("get_prop", X, 10, "->", 23), ("get_prop", A, 7, "->", 24)),
    "get_prop by lane": doing(OBJECT, ("mul", B, 5, "->", 22), ("add", Y, 1, "->", 22), ("get_prop", 2, Y, "->", 20)),
    "get_prop_addr": doing(
        OBJECT, ("get_prop_addr", X, 5, "->", 20), ("get_prop_len", Var(20), "->", 23),
        ("get_prop_addr", A, 9, "->", 24)),
    "get_next_prop": doing(OBJECT, ("get_next_prop", X, 0, "->", 20), ("get_next_prop", A, 20, "->", 23)),
    "put_prop": doing(OBJECT, ("put_prop", X, 20, WORD), ("put_prop", X, 10, WORD), ("get_prop", 3, 20, "->", 20)),
    "put_prop that is not there": doing(OBJECT, ("put_prop", X, 9, 1)),
    "illegal object": doing(("mul", A, 3000, "->", 21), ("get_parent", X, "->", 20)),
    "random": doing(OBJECT, ("random", X, "->", 20), ("random", 100, "->", 23)),
    "random seed": doing(("random", -5, "->", 20), ("random", 100, "->", 23), ("random", 100, "->", 24)),
    "scan_table": after(("loadw", TABLE, A, "->", 21), branching("scan_table", X, TABLE, 8, store=23)),
    "scan_table bytes": after(("storeb", TABLE, 9, A), branching("scan_table", 3, TABLE, 12, 3, store=23)),
    "copy_table": doing(
        ("storew", TABLE, 1, WORD), ("copy_table", TABLE, BUFFER, 20), ("copy_table", BUFFER, BUFFER + 3, 12)),
    "copy_table by lane": doing(("copy_table", TABLE, BUFFER, A), ("copy_table", BUFFER, BUFFER + 2, -10)),
    "copy_table clears": doing(("storew", TABLE, 1, WORD), ("copy_table", TABLE, 0, 7)),
    "tokenise": doing(("storeb", TEXT, 3, 98), ("tokenise", TEXT, PARSE), ("loadw", PARSE, 1, "->", 20)),
    "tokenise elsewhere": doing(("storeb", BUFFER, 0, 5), ("tokenise", TEXT, BUFFER)),
    "print to memory": doing(
        ("output_stream", 3, BUFFER), ("print_num", A), ("print_char", 65), ("print_char", 13), ("print_num", -77),
        OBJECT, ("print_obj", X), ("new_line",), ("output_stream", -3), ("loadw", BUFFER, 0, "->", 20)),
    "print to memory by lane": doing(
        ("loadb", TEXT, 2, "->", 21), ("output_stream", 3, BUFFER), ("print_char", X),
        ("output_stream", 3, BUFFER + 40), ("print_table", TEXT + 2, 2), ("output_stream", -3), ("print_char", X),
        ("output_stream", -3)),
    "print": doing(
        OBJECT, ("print_obj", X), ("print_num", A), ("loadb", TEXT, 2, "->", 22), ("print_char", Y), ("new_line",)),
    "check_unicode": doing(("mul", A, 40, "->", 21), ("check_unicode", X, "->", 20)),
    "save_undo": storing("save_undo"),
    "catch": storing("catch"),
}  # fmt: skip


def story_of(program: Program, version: int, in_loop: Program | None = None) -> bytes:
    """A story that reads a line, runs the program in a routine of its own, and begins again; with something in its main
    loop too, perhaps."""
    routine = Code(0x2000)
    routine.bytes.append(2)  # locals
    if version <= 4:
        routine.bytes += bytes(4)
    program(routine)
    routine.op("ret", A)
    main = Code(zcode.CODE)
    offset = 1 if version <= 4 else 2
    main.op("nop")  # Jericho executes one instruction before it looks what the next is
    if version >= 5:
        main.op("storeb", TEXT, 1, 0)
    main.op("read", TEXT, PARSE, store=16 if version >= 5 else None)
    for letter, to in ((offset, 17), (offset + 1, 18)):
        main.op("loadb", TEXT, letter, store=to)
        main.op("sub", Var(to), 97, store=to)
    main.op("loadw", PARSE, 1, store=19)
    main.op("call_vs", 0x2000 >> (1 if version <= 3 else 3 if version == 8 else 2), A, WORD, store=30)
    main.op("add", Var(30), Var(31), store=31)
    if in_loop is not None:
        in_loop(main)
    main.op("jump", (zcode.CODE - main.here - 1) & 0xFFFF)
    return zcode.assemble(bytes(main.bytes), version, bytes(routine.bytes))


NEWER = (
    "tokenise",
    "copy",
    "print to memory",
    "check_unicode",
    "save_undo",
    "catch",
    "log_shift",
    "art_shift",
    "not",
    "print_table",
)


@pytest.mark.parametrize("version", [3, 5, 8])
def test_single_instructions(version: int, tmp_path: Path) -> None:
    """Each with operands that differ between lanes: in sets as by itself, and by itself as in Frotz."""
    judged = 0
    for name, program in PROGRAMS.items():
        if version <= 4 and name.startswith(NEWER):
            continue
        path = tmp_path / f"story.z{version}"
        path.write_bytes(story_of(program, version))
        emulator = Emulator(read_story(path))
        emulator.reset(1)
        state = emulator.save()
        engine = Engine.of(emulator)
        assert verify.check_lanes(engine, state, LINES, name).wrong == [], name
        for line in LINES:
            _flags, after = engine.step(state, line)
            if after.pc:
                judged += 1
                emulator.restore(state)
                assert emulator.step(line) is Status.DONE, (name, line)
                frotz = emulator.save()
                wrong = [r for r in verify.REGISTERS if getattr(after, r) != getattr(frotz, r)]
                assert not wrong, (name, line, wrong)
        engine.close()
        emulator.close()
    assert judged > 2000


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("program", [storing("add", Var(8), 1), doing(("inc", 8)), doing(("store", 8, A))])
def test_a_local_that_the_routine_does_not_have_is_left_to_frotz(
    version: int, program: Program, tmp_path: Path
) -> None:
    """Whatever lies there is not the same in a set as alone."""
    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(program, version))
    with verify.opened(path) as (emulator, engine):
        emulator.reset(1)
        for mode in Mode:
            assert (engine.filter(emulator.save(), LINES, mode=mode).flags & UNJUDGED).all()


def counting(code: Code) -> None:
    """A loop that every lane leaves after another number of turns, and branches in it."""
    body = Code(0)
    for limit in range(1, 6):
        branching("jl", A, limit)(body)
        branching("jg", B, limit)(body)
    body.op("inc", 21)
    code.op("store", 21, 0)
    code.op("jl", Var(21), A, branch=(False, len(body.bytes) + 3))
    code.bytes += body.bytes
    code.op("jump", (-len(body.bytes) - 7) & 0xFFFF)
    plus(code, Var(20), 1, 20)


@pytest.mark.parametrize("version", [3, 5])
def test_parts_meet_in_a_loop_that_never_ends(version: int, tmp_path: Path) -> None:
    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(lambda code: None, version, in_loop=counting))
    with verify.opened(path) as (emulator, engine):
        emulator.reset(1)
        state = emulator.save()
        ends = []
        for mode in (Mode.SPLITTING, Mode.MERGING):
            before = engine.counts["ends"]
            engine.filter(state, LINES, mode=mode)
            ends.append(engine.counts["ends"] - before)
        assert ends[0] > 25 and ends[1] == 1
        assert verify.check_lanes(engine, state, LINES, "loop").wrong == []
        assert verify.check_verdicts(emulator, engine, state, LINES, "loop").wrong == []
        tally = verify.check_merges(engine, state, LINES, "loop", seed=3)
        assert tally.wrong == [] and tally.merges > 40


@pytest.mark.parametrize("version", [3, 5, 8])
def test_random_main_loops(version: int, tmp_path: Path) -> None:
    """In sets as by themselves, wherever parts of a set meet in them."""
    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(lambda code: None, version))
    emulator = Emulator(read_story(path))
    emulator.reset(1)
    state, rules = emulator.save(), Rules.of(emulator)
    emulator.close()
    merges = 0
    for seed in range(60):
        story = story_of(
            random_program(random.Random(seed)), version, random_program(random.Random(seed + 1000), (20, 21))
        )
        engine = Engine(story, rules)
        assert verify.check_lanes(engine, state, LINES, f"seed {seed}", limit=5_000).wrong == []
        tally = verify.check_merges(engine, state, LINES, f"seed {seed}", seed)
        assert tally.wrong == []
        merges += tally.merges
        engine.close()
    assert merges > 60


def stopping(*how: tuple[object, ...] | bytes) -> Program:
    """A program in which commands that begin with a d do something that ends it all, and others set an attribute."""

    def program(code: Code) -> None:
        end = Code(0)
        for one in how:
            if isinstance(one, bytes):
                end.bytes += one
            else:
                end.op(*one)
        code.op("je", A, 3, branch=(False, len(end.bytes)))
        code.bytes += end.bytes
        doing(OBJECT, ("set_attr", X, 3))(code)

    return program


@pytest.mark.parametrize("version", [3, 5])
def test_quitting_costs_the_command_that_quits(version: int, tmp_path: Path) -> None:
    """Jericho does not end at `quit` but executes what lies behind it: here a loop, from which its filter would never
    come back. The engine leaves such commands to the door, which counts instructions."""
    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(stopping(("quit",), ("jump", -1)), version))
    with verify.opened(path) as (emulator, engine):
        emulator.reset(1)
        state = emulator.save()
        quitting = np.array([line.startswith("d") for line in LINES])
        assert ((engine.filter(state, LINES).flags & UNJUDGED > 0) == quitting).all()
        verdicts = emulator.filter(LINES)
        assert ((verdicts.flags & Verdict.STOPPED > 0) == quitting).all()
        assert ((verdicts.flags & Verdict.CHANGED > 0) & quitting).sum() == 0
        assert emulator.step("da", 1000) is Status.LIMIT
        emulator.restore(state)
        assert emulator.save() == state
        assert verify.check_lanes(engine, state, LINES, "quit").wrong == []
        assert verify.check_verdicts(emulator, engine, state, LINES, "quit").wrong == []
        tally = verify.check_dictionary(emulator, engine, state, LINES, "quit")
        assert tally.wrong == [] and tally.halting == []
        assert tally.valid == len(LINES) - quitting.sum() and tally.unjudged == quitting.sum()


def test_jerichos_filter_stops_at_a_command_that_halts(tmp_path: Path) -> None:
    """An illegal instruction halts the emulator: what comes behind such a command is lost to Jericho, not to us."""
    path = tmp_path / "story.z5"
    path.write_bytes(story_of(stopping(b"\x00\x01\x01"), 5))
    with verify.opened(path) as (emulator, engine):
        emulator.reset(1)
        state = emulator.save()
        tally = verify.check_dictionary(emulator, engine, state, LINES, "halt")
        assert tally.wrong == []
        assert len(tally.halting) == sum(line.startswith("d") for line in LINES)
        there = verify.jericho_dictionary(emulator, state, LINES)
        assert {line[0] for _, lines in there for line in lines} == set("abc")
        # a difference before the halting command, or one in the others, would be noticed
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(verify, "jericho_dictionary", lambda *arguments: there[1:])
            assert len(verify.check_dictionary(emulator, engine, state, LINES, "halt").wrong) == 2


def random_program(choose: random.Random, own: tuple[int, int] = (1, 2)) -> Program:
    """Some instructions of any kind, with operands of any kind that is not illegal too often; `own` are the numbers of
    variables beside the globals."""
    variables = [A, B, WORD, *(Var(n) for n in (*range(20, 28), *own))]

    def operand() -> object:
        kind = choose.random()
        return choose.choice(variables) if kind < 0.6 else choose.choice((0, 1, 2, 3, 5, 8, 20, TABLE, BUFFER, 65535))

    stores = ("or", "and", "add", "sub", "mul", "div", "mod", "loadw", "loadb", "get_prop", "get_prop_addr", "not",
              "get_parent", "get_prop_len", "load", "random", "log_shift")  # fmt: skip
    branches = ("je", "jl", "jg", "test", "jz", "jin", "test_attr", "inc_chk", "get_child", "get_sibling")
    plain = ("set_attr", "clear_attr", "insert_obj", "remove_obj", "storew", "storeb", "push", "pull", "inc", "store",
             "put_prop", "print_obj", "print_num", "print_char")  # fmt: skip
    one = {"not", "jz", "get_parent", "get_prop_len", "load", "random", "get_child", "get_sibling", "remove_obj",
           "push", "pull", "inc", "print_obj", "print_num", "print_char"}  # fmt: skip

    about_objects = {"get_prop", "get_prop_addr", "get_parent", "jin", "test_attr", "get_child", "get_sibling",
                     "set_attr", "clear_attr", "insert_obj", "remove_obj", "put_prop", "print_obj"}  # fmt: skip

    def program(code: Code) -> None:
        doing(("and", A, 7, "->", 28), ("inc", 28), ("and", B, 7, "->", 29), ("inc", 29))(code)
        for _ in range(12):
            name = choose.choice((*stores, *branches, *plain))
            operands = [
                operand() for _ in range(1 if name in one else 3 if name in ("storew", "storeb", "put_prop") else 2)
            ]
            if name in ("storew", "storeb"):
                operands[0] = choose.choice((TABLE, BUFFER))
            if name in about_objects:
                operands[0] = choose.choice((Var(28), Var(29), A, 0, 1, 2, 3, 4))
            if name in ("test_attr", "set_attr", "clear_attr", "insert_obj", "div", "mod", "log_shift"):
                operands[1] = choose.choice((Var(28), Var(29), 1, 2, 5, 8))
            if name in ("get_prop", "get_prop_addr", "put_prop"):
                operands[1] = choose.choice((20, 10, 5, 7))
            if name in ("inc", "inc_chk", "store", "load", "pull"):
                operands[0] = choose.choice((20, 21, 22, 23, *own))
            store = choose.randint(20, 27) if name in (*stores, "get_child", "get_sibling") else None
            if name in branches:
                skipped = Code(0)
                skipped.op("add", operand(), operand(), store=choose.randint(20, 27))
                code.op(name, *operands, store=store, branch=(choose.random() < 0.5, len(skipped.bytes)))
                code.bytes += skipped.bytes
            else:
                code.op(name, *operands, store=store)

    return program


@pytest.mark.parametrize("version", [3, 4, 5, 8])
def test_random_programs(version: int, tmp_path: Path) -> None:
    """In sets as by themselves, whatever the program; Frotz is not asked, for it would not survive some of them."""
    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(lambda code: None, version))
    emulator = Emulator(read_story(path))
    emulator.reset(1)
    state, rules = emulator.save(), Rules.of(emulator)
    emulator.close()
    judged = 0
    choose = random.Random(version)
    for number in range(150):
        engine = Engine(story_of(random_program(choose), version), rules)
        assert verify.check_lanes(engine, state, LINES, f"program {number}", limit=5000).wrong == []
        judged += int((engine.filter(state, LINES, 5000, Mode.MERGING).flags & UNJUDGED == 0).sum())
        engine.close()
    assert judged > 2000


def test_hashes_tell_states_apart(lowwater: tuple[Emulator, Engine], states: list[Snapshot]) -> None:
    """The proofs stand on them."""
    _, engine = lowwater
    hashes = np.zeros(3, dtype=np.uint64)
    engine.filter(states[0], ["look", "inventory", "look"], hashes=hashes)
    assert hashes[0] == hashes[2] != hashes[1]
