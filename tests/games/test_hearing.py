"""Answers by the engine: what Frotz says, whoever is asked; and Frotz is asked where the engine cannot be."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import zset_verify as verify

from xtx.games.hearing import Hearing
from xtx.games.jericho import Emulator, Snapshot
from xtx.games.search import Search
from xtx.games.zset import ENGINE, Engine

ROOT = Path(__file__).parents[2]
LOWWATER = ROOT / "xtx/games/data/lowwater.z5"
HANG = ROOT / "stories/hang/hang.z5"
COMMANDS = ("look", "inventory", "examine me", "examine door", "examine lamp", "north", "take all", "jump", "xyzzyq")
LEFT_OPEN = ("examine caf\u00e9", "what is this?", "look \\s", "a" * 250, "")
"""What is typed in another way than it is written, or does not fit."""


class Heard:
    """Notes what an emulator is asked."""

    def __init__(self, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        ask = emulator.ask

        def noting(state: Snapshot, commands: Sequence[str]) -> list[str | None]:
            self.asked += commands
            return ask(state, commands)

        monkeypatch.setattr(emulator, "ask", noting)


def along(emulator: Emulator, every: int) -> list[Snapshot]:
    emulator.reset(emulator.walkthrough_seed)
    states = []
    for command in emulator.walkthrough:
        states.append(emulator.save())
        emulator.step(command)
    return [state for state in states[::every] if emulator.wants_line_in(state)]


@pytest.fixture
def lowwater() -> Iterator[Emulator]:
    emulator = Emulator(verify.read_story(LOWWATER))
    yield emulator
    emulator.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_engine_answers_as_frotz_does(lowwater: Emulator, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    states = along(lowwater, 6)
    with contextlib.closing(Engine.of(lowwater, threads)) as engine:
        plain, hearing = Hearing(lowwater, None), Hearing(lowwater, engine)
        expected = [plain.answers(state, COMMANDS) for state in states]
        hearing.answers(states[0], ("look",))  # at first it is found out whether the engine says the same
        heard = Heard(lowwater, monkeypatch)
        assert [hearing.answers(state, COMMANDS) for state in states] == expected
        assert heard.asked == []
        assert len({answer for answers in expected for answer in answers}) > 15


def test_what_the_engine_leaves_open_is_asked_of_frotz(lowwater: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    (state, *_), mixed = along(lowwater, 100), [c for pair in zip(LEFT_OPEN, COMMANDS, strict=False) for c in pair]
    expected = Hearing(lowwater, None).answers(state, mixed)
    with contextlib.closing(Engine.of(lowwater)) as engine:
        hearing = Hearing(lowwater, engine)
        hearing.answers(state, ())
        heard = Heard(lowwater, monkeypatch)
        assert hearing.answers(state, mixed) == expected
        assert set(heard.asked) < set(LEFT_OPEN) and "what is this?" in heard.asked
        heard.asked.clear()
        assert hearing.answers(state, COMMANDS, engine=False) == Hearing(lowwater, None).answers(state, COMMANDS)
        assert heard.asked == [*COMMANDS, *COMMANDS]


def test_an_engine_that_says_something_else_is_not_believed(
    lowwater: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Liar(Engine):
        def ask(self, state: Snapshot, commands: Sequence[str], limit: int = 1000) -> list[bytes | None]:
            return [text and text.replace(b"the", b"teh") for text in super().ask(state, commands)]

    states = along(lowwater, 9)
    expected = [Hearing(lowwater, None).answers(state, COMMANDS) for state in states]
    with contextlib.closing(Liar.of(lowwater)) as engine:
        hearing = Hearing(lowwater, engine)
        assert [hearing.answers(state, COMMANDS) for state in states] == expected


def test_an_excluded_engine_is_not_asked(lowwater: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    state = along(lowwater, 10)[2]
    with contextlib.closing(Engine.of(lowwater)) as engine:
        search = Search(lowwater, engine=engine)
        usual = search.findings(state)
        for name in ("ask", "filter_each"):
            monkeypatch.setattr(engine, name, lambda *_: pytest.fail("it was asked"))
        assert search.findings(state, excluded={ENGINE}) == usual
        with pytest.raises(pytest.fail.Exception):
            search.findings(state)


def test_endless_commands_have_no_answer() -> None:
    emulator = Emulator(verify.read_story(HANG))
    emulator.reset(1)
    state, commands = emulator.save(), ("look", "hang", "examine bomb", "crash", "inventory")
    with contextlib.closing(Engine.of(emulator)) as engine:
        expected = Hearing(emulator, None).answers(state, commands)
        assert Hearing(emulator, engine).answers(state, commands) == expected
        assert expected[1] == expected[2] == "" and expected[0]
    emulator.close()


@pytest.mark.roms
@pytest.mark.parametrize(
    "name",
    ["zork1", "zork3", "enchanter", "detective", "deephome", "dragon", "balances", "pentari", "inhumane", "library",
     "ludicorp", "omniquest", "snacktime", "905", "advent"],
)  # fmt: skip
def test_real_games_answer_as_in_frotz(name: str, real_story: Callable[[str], Path]) -> None:
    """To whatever is typed, at places along the walkthrough."""
    choose = random.Random(7)
    with verify.opened(real_story(name)) as (emulator, engine):
        assert Hearing(emulator, engine)._trusted
        for state in choose.sample(along(emulator, 1), 4):
            commands = verify.real_candidates(emulator, state, 8)
            some = choose.sample(commands, min(150, len(commands)))
            tally = verify.check_answers(emulator, engine, state, some, name)
            assert tally.wrong == []
            assert tally.unjudged < len(some) // 3
