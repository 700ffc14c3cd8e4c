"""Answers by the engine are what Frotz says, and Frotz is not asked about canonical states."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import zset_verify as verify
from test_zset_programs import A, Code, doing, story_of
from zcode import BUFFER, PARSE, TEXT

from xtx.core import FALLBACK_ACTIONS
from xtx.games.actions.search import Findings, Search
from xtx.games.emulator.frotz import Emulator, Snapshot
from xtx.games.emulator.printed_text import clean
from xtx.games.zset import command_responses as hearing_module
from xtx.games.zset.command_responses import CommandResponses, find_prompt_prefix
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine

ROOT = Path(__file__).parents[3]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"
HANG = ROOT / "stories/hang/hang.z5"
GAMES = (
    "905", "acorncourt", "advent", "adventureland", "balances", "deephome", "detective", "dragon", "enchanter",
    "inhumane", "library", "ludicorp", "omniquest", "pentari", "reverb", "snacktime", "temple", "trinity", "zork1",
    "zork2", "zork3",
)  # fmt: skip
MENUS = ("help", "hint", "info", "about", "full", "score", "version", "help", "look", "inventory")
COMMANDS = ("look", "inventory", "examine me", "examine door", "examine lamp", "north", "take all", "jump", "xyzzyq")
LEFT_OPEN = ("examine caf\u00e9", "what is this?", "look \\s", "a" * 250, "")
"""What is typed in another way than it is written, or does not fit."""


class Heard:
    """Notes what an emulator is asked."""

    def __init__(self, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        ask = emulator.read_responses

        def noting(state: Snapshot, commands: Sequence[str]) -> list[str | None]:
            self.asked += commands
            return ask(state, commands)

        monkeypatch.setattr(emulator, "read_responses", noting)


def along(emulator: Emulator, every: int) -> list[Snapshot]:
    emulator.reset(emulator.bindings.walkthrough_seed)
    states = []
    for command in emulator.bindings.walkthrough:
        states.append(emulator.save())
        emulator.step(command)
    return [state for state in states[::every] if state.wants_line]


@pytest.fixture
def lowwater() -> Iterator[Emulator]:
    emulator = Emulator(verify.read_story(LOWWATER))
    yield emulator
    emulator.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_engine_answers_as_frotz_does(lowwater: Emulator, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    states = along(lowwater, 6)
    words = [word for command in lowwater.bindings.walkthrough for word in command.split()]
    commands = [*COMMANDS, *(f"examine {word}" for word in dict.fromkeys(words))]
    with contextlib.closing(Engine.of(lowwater, threads)) as engine:
        plain, hearing = CommandResponses(lowwater, None), CommandResponses(lowwater, engine)
        expected = [plain.answers(state, commands) for state in states]
        hearing.answers(states[0], ("look",))  # at first it is found out whether the engine says the same
        heard = Heard(lowwater, monkeypatch)
        assert [hearing.answers(state, commands) for state in states] == expected
        assert heard.asked == []
        assert engine.helpers == threads - 1
        assert len({answer for answers in expected for answer in answers}) > 40


def test_what_the_engine_leaves_open_has_no_answer(lowwater: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frotz is not asked: the state may be altered memory."""
    (state, *_), mixed = along(lowwater, 100), [c for pair in zip(LEFT_OPEN, COMMANDS, strict=False) for c in pair]
    expected = CommandResponses(lowwater, None).answers(state, mixed)
    with contextlib.closing(Engine.of(lowwater)) as engine:
        hearing = CommandResponses(lowwater, engine)
        hearing.answers(state, ())
        heard = Heard(lowwater, monkeypatch)
        said = hearing.answers(state, mixed)
    assert heard.asked == []
    for command, ours, theirs in zip(mixed, said, expected, strict=True):
        assert ours == theirs or (command in LEFT_OPEN and not ours)
    assert said[mixed.index("what is this?")] == "" != expected[mixed.index("what is this?")]


def test_what_is_excluded_is_not_asked(lowwater: Emulator) -> None:
    state = along(lowwater, 100)[0]
    with contextlib.closing(Engine.of(lowwater)) as engine:
        hearing = CommandResponses(lowwater, engine)
        expected = hearing.answers(state, COMMANDS)
        said = hearing.answers(state, COMMANDS, excluded={"look", "jump"})
    assert said == ["" if c in ("look", "jump") else text for c, text in zip(COMMANDS, expected, strict=True)]
    assert all(text for text in expected[:3])


def test_a_state_in_which_the_engine_failed_has_the_fallback_actions(
    lowwater: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = along(lowwater, 10)[2]
    with contextlib.closing(Engine.of(lowwater)) as engine:
        search = Search(lowwater, engine=engine)
        assert search.findings(state).actions != FALLBACK_ACTIONS
        heard = Heard(lowwater, monkeypatch)
        for name in ("read_responses", "filter_each"):
            monkeypatch.setattr(engine, name, lambda *_: pytest.fail("it was asked"))
        assert search.findings(state, excluded={ENGINE}) == Findings("", "", FALLBACK_ACTIONS)
        assert heard.asked == []
        with pytest.raises(pytest.fail.Exception):
            search.findings(state)


@pytest.fixture
def hang() -> Iterator[Emulator]:
    emulator = Emulator(verify.read_story(HANG))
    emulator.reset(1)
    yield emulator
    emulator.close()


def test_endless_commands_have_no_answer(hang: Emulator) -> None:
    state, commands = hang.save(), ("look", "hang", "examine bomb", "crash", "inventory")
    with contextlib.closing(Engine.of(hang)) as engine:
        expected = CommandResponses(hang, None).answers(state, commands)
        assert CommandResponses(hang, engine).answers(state, commands) == expected
        assert expected[1] == expected[2] == "" and expected[0]


def test_what_kills_frotz_is_not_asked_to_find_out_how_it_shows_texts(
    hang: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For it would kill every process that takes the place of the last one."""
    monkeypatch.setattr(hearing_module, "_TRIED", ("look", "burst", "inventory"))
    state, heard = hang.save(), Heard(hang, monkeypatch)
    with contextlib.closing(Engine.of(hang)) as engine:
        assert CommandResponses(hang, engine).answers(state, ("look",))[0]
    assert "look" in heard.asked and "burst" not in heard.asked


# --- small stories, that print in all ways there are ----------------------------------------------------------------


def saying(code: Code, text: str) -> None:
    for letter in text:
        code.op("print_char", ord(letter))


def prompt(code: Code) -> None:
    """As Inform's library has it: a status line behind the prompt."""
    code.op("new_line")
    saying(code, ">")
    code.op("split_window", 1)
    code.op("set_window", 1)
    saying(code, "        Room         ")
    code.op("set_window", 0)


def rows(code: Code) -> None:
    for number, letter in enumerate("abcdef"):
        code.op("storeb", BUFFER, number, ord(letter))
    code.op("print_table", BUFFER, 3, 2)


def question(code: Code) -> None:
    """One without an end of line, of which Frotz keeps a word back."""
    saying(code, "Is it well-known?")
    code.op("storeb", TEXT, 1, 0)
    code.op("read", TEXT, PARSE, store=16)


def unbuffered(code: Code) -> None:
    code.op("buffer_mode", 0)
    saying(code, "a long line" * 15)
    code.op("buffer_mode", 1)


def too_long(code: Code) -> None:
    """Of 8,320 letters."""
    for number, letter in enumerate("long"):
        code.op("storeb", BUFFER, number, ord(letter))
    code.op("storeb", BUFFER, 4, 32)
    for size in (5, 10, 20, 40, 80, 160):
        code.op("copy_table", BUFFER, BUFFER + size, size)
    for _ in range(26):
        code.op("print_table", BUFFER, 320)


TEXTS = {
    "rows": rows,
    "question": question,
    "unbuffered": unbuffered,
    "buffered": doing(("buffer_mode", 1), ("print_num", 7)),
    "status line": doing(("show_status",), ("print_num", 7)),
    "long word": lambda code: saying(code, "=" * 300),
    "latin": doing(("print_char", 155), ("print_char", 169), ("print_char", 223), ("print_char", 220)),
    "latin in a table": doing(
        ("output_stream", 3, BUFFER), ("print_char", 155), ("output_stream", -3), ("loadb", BUFFER, 2)
    ),
    "silent": doing(("output_stream", -1), ("print_num", 7), ("output_stream", 1), ("print_num", 8)),
    "memory": doing(("output_stream", 3, BUFFER), ("print_num", 7), ("output_stream", -3), ("print_num", 8)),
    "upper window": doing(("set_window", 1), ("set_cursor", 1, 4), ("print_num", 7), ("set_window", 0)),
    "style": doing(("set_text_style", 2), ("print_num", 7), ("set_text_style", 0)),
    "too long": too_long,
}
EARLY = ("silent", "memory", "status line", "long word", "latin")
"""Those of them that are made of instructions of version 3."""


@pytest.mark.parametrize(("version", "name"), [*((5, name) for name in TEXTS), *((3, name) for name in EARLY)])
def test_what_is_printed_in_other_ways(version: int, name: str, tmp_path: Path) -> None:
    """In one of three lanes; whatever the engine does not print as Frotz does, it leaves to that."""
    body = Code(0)
    TEXTS[name](body)

    def program(code: Code) -> None:
        saying(code, "ok. ")
        code.op("je", A, 1, branch=(False, len(body.bytes)))
        code.bytes += body.bytes

    path = tmp_path / f"story.z{version}"
    path.write_bytes(story_of(program, version, prompt if version == 5 else doing(("new_line",), ("print_char", 62))))
    with verify.opened(path) as (emulator, engine):
        emulator.reset(1)
        emulator.step("cc")
        state, lines = emulator.save(), ["aa", "bb", "cc"]
        ours = engine.read_responses(state, lines)
        # `ask` of the emulator begins with what was kept back before.
        theirs = emulator.read_responses(state, ["aa", "aa", "aa", "bb", "aa", "cc"])[1::2]
        assert ours[0] is not None and ours[2] is not None
        left_open = {"latin in a table", "rows", "unbuffered", "status line", "long word", "too long"}
        assert (ours[1] is None) == (name in left_open)
        flags, memory = engine.finals(state, lines)
        for line, flag, ram in zip(lines, flags.tolist(), memory, strict=True):
            emulator.restore(state)
            emulator.step(line)
            # Letters in a table are left open, as a text in which they occur.
            assert name != "latin" or not flag & UNJUDGED
            assert "latin" not in name or flag & UNJUDGED or (emulator.ram == ram).all()
        for screen, text in zip(ours, theirs, strict=True):
            if screen is not None and text is not None:
                # Up to version 3 Frotz writes the status line before all else.
                assert clean(emulator.clean_screen(screen)) == clean(text.partition("\n")[2] if version == 3 else text)


@pytest.mark.roms
@pytest.mark.parametrize("name", GAMES)
def test_real_games_answer_as_in_frotz(name: str, real_story: Callable[[str], Path]) -> None:
    """To candidates, to odd commands and to those that open menus, at places along the walkthrough."""
    choose = random.Random(7)
    with verify.opened(real_story(name)) as (emulator, engine):
        find_prompt_prefix(emulator, engine)
        assert emulator.prompt_prefix == (b">" if name == "trinity" else b"")
        states = along(emulator, 1)
        for state in choose.sample(states, 4):
            commands = verify.real_candidates(emulator, state, 8)
            some = [
                *choose.sample(commands, min(100, len(commands))),
                *verify.odd_commands(emulator, state, 40, choose),
            ]
            tally = verify.check_answers(emulator, engine, state, [*some, *MENUS], name)
            assert tally.wrong == []
            assert tally.unjudged < len(some) // 3
