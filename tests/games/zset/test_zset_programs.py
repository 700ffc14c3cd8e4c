"""The set-execution engine on small programs: each instruction with operands that differ between commands, loops, ends,
and random programs."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zcode
import zset_verify as verify
from zcode import BUFFER, PARSE, TABLE, TEXT, Code, Var

from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Status, Verdict, Verdicts
from xtx.games.zset.command_verdicts import judge_each
from xtx.games.zset.engine import UNJUDGED, Engine, Mode
from xtx.games.zset.game_rules import Rules

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
    "print rows to memory": doing(
        ("output_stream", 3, BUFFER), ("print_table", TEXT + 2, 1, 2), ("output_stream", -3)),
    "print": doing(
        OBJECT, ("print_obj", X), ("print_num", A), ("loadb", TEXT, 2, "->", 22), ("print_char", Y), ("new_line",)),
    "check_unicode": doing(("mul", A, 40, "->", 21), ("check_unicode", X, "->", 20)),
    "set_font": doing(("set_font", 1, "->", 20), ("set_font", 4, "->", 21), ("set_font", 0, "->", 22)),
    "set_font by lane": doing(("mod", A, 5, "->", 21), ("set_font", X, "->", 20)),
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
    "set_font",
    "set_font by lane",
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
    emulator.close()
    assert judged > 2000


@pytest.mark.parametrize("version", [3, 5])
def test_random_numbers_that_differ(version: int, tmp_path: Path) -> None:
    """Some commands draw a number more than others, and go on together with them."""

    def program(code: Code) -> None:
        more = Code(0)
        more.op("random", 50, store=20)
        code.op("je", A, 2, branch=(True, len(more.bytes)))
        code.bytes += more.bytes

    story = story_of(
        program, version, doing(("random", 100, "->", 23), ("random", 7, "->", 24), ("random", 2, "->", 25))
    )
    path = tmp_path / f"story.z{version}"
    path.write_bytes(story)
    with verify.opened(path) as (emulator, engine):
        emulator.reset(1)
        state = emulator.save()
        assert verify.check_lanes(engine, state, LINES, "random").wrong == []
        ends = engine.counts["ends"]
        engine.filter(state, LINES)
        assert engine.counts["ends"] - ends < 4  # they did go on together
        assert verify.check_randoms(engine, None, state, LINES, "random").wrong == []
        for randoms in ((), verify.RANDOMS):
            tally = verify.check_merges(engine, state, LINES, "random", 3, randoms)
            assert tally.merges and not tally.wrong
        emulator.restore(state)
        theirs = emulator.filter(LINES)
        assert (engine.filter(state, LINES).flags == theirs.flags).all()
        # One that counts, and one that does not, cannot go together.
        counting = [(5, 3, 1), (5, 0, 0), (7, 3, 1)]
        for rng, found in zip(counting, engine.filter_each(state, counting, LINES), strict=True):
            emulator.restore(msgspec.structs.replace(state, rng=rng))
            assert (found.flags == emulator.filter(LINES).flags).all()


class Hesitating(Engine):
    """An engine that leaves every third command open, under each random number another."""

    def filter_each(self, *given: Any, **named: Any) -> list[Verdicts]:
        found = super().filter_each(*given, **named)
        for number, verdicts in enumerate(found):
            verdicts.flags[number % 3 :: 3] = UNJUDGED
            verdicts.diffs[number % 3 :: 3] = 0
        return found


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("judges", [Engine, Hesitating, None])
@pytest.mark.parametrize("first_alone", [True, False])
def test_what_draws_random_numbers_is_judged_under_each(
    version: int, judges: type[Engine] | None, first_alone: bool, tmp_path: Path
) -> None:
    """Some commands draw none; whoever judges, the verdicts are those of all commands under all numbers."""

    def program(code: Code) -> None:
        draw = Code(0)
        draw.op("random", 20, store=22)
        draw.op("set_attr", 2, Y)
        doing(OBJECT, ("set_attr", X, 3))(code)
        code.op("je", A, 2, 3, branch=(True, len(draw.bytes)))
        code.bytes += draw.bytes

    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(program, version))
    with verify.opened(path) as (emulator, _):
        emulator.reset(1)
        state = emulator.save()
        engine = None if judges is None else judges.of(emulator)
        found = judge_each(emulator, engine, state, verify.RANDOMS, LINES, None, first_alone)
        for rng, verdicts in zip(verify.RANDOMS, found, strict=True):
            emulator.restore(msgspec.structs.replace(state, rng=rng))
            theirs = emulator.filter(LINES)
            assert (verdicts.flags == theirs.flags).all() and (verdicts.diffs == theirs.diffs).all()
        chancy = found[0].flags & Verdict.RANDOM > 0
        assert chancy.any() and (found[0].flags[~chancy] & Verdict.CHANGED).any()
        assert len({tuple(verdicts.diffs[chancy]) for verdicts in found}) > 2
        if engine is not None:
            hashes = np.zeros(len(LINES) * len(found), dtype=np.uint64)
            alone = Engine.filter_each(
                engine, state, verify.RANDOMS, LINES, hashes=hashes, first_alone=first_alone
            )  # fmt: skip
            for verdicts, own in zip(alone, found, strict=True):  # nothing was left to the emulator
                assert (verdicts.flags == own.flags).all() and (verdicts.diffs == own.diffs).all()
            assert (hashes.reshape(len(found), -1)[1, ~chancy] == 0).all() == first_alone
            engine.close()


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


@pytest.mark.parametrize("version", [3, 5])
def test_lines_that_reach_into_the_words_are_left_to_frotz(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stories have buffers that are too short for the lines they allow: a letter becomes the number of words that
    there is room for."""
    fits, parse = 20, TEXT + 22
    for module in (sys.modules[__name__], zcode):
        monkeypatch.setattr(module, "PARSE", parse)
    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(storing("add", A, B), version))
    with verify.opened(path) as (emulator, engine):
        emulator.reset(1)
        state = emulator.save()
        lines = [("a b c d " * 5)[:letters] for letters in range(1, 30)]
        judged = engine.filter(state, lines).flags & UNJUDGED == 0
        assert judged.tolist() == [len(line) <= fits for line in lines]
        for line in lines[:fits]:
            _flags, after = engine.step(state, line)
            emulator.restore(state)
            emulator.step(line)
            assert after.ram == emulator.save().ram, line


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


def beginning(version: int, folder: Path) -> Emulator:
    """An emulator where all such stories wait for their first command. Rules hold functions of it, so it must be kept
    as long as there are engines with its rules."""
    path = folder / f"story.z{version}"
    path.write_bytes(story_of(lambda code: None, version))
    emulator = Emulator(read_story(path))
    emulator.reset(1)
    return emulator


@pytest.mark.parametrize("version", [3, 5, 8])
def test_random_main_loops(version: int, tmp_path: Path) -> None:
    """In sets as by themselves, wherever parts of a set meet in them."""
    emulator = beginning(version, tmp_path)
    state, rules = emulator.save(), Rules.of(emulator)
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
    emulator.close()
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
    emulator = beginning(version, tmp_path)
    state, rules = emulator.save(), Rules.of(emulator)
    judged = 0
    choose = random.Random(version)
    for number in range(150):
        engine = Engine(story_of(random_program(choose), version), rules)
        assert verify.check_lanes(engine, state, LINES, f"program {number}", limit=5000).wrong == []
        assert verify.check_randoms(engine, None, state, LINES, f"program {number}", limit=5000).wrong == []
        judged += int((engine.filter(state, LINES, 5000, Mode.MERGING).flags & UNJUDGED == 0).sum())
        engine.close()
    emulator.close()
    assert judged > 2000
