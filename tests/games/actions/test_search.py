"""The valid-action search: its findings are a function of the canonical state, and each action does something new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from layouts import layout_of

from xtx.core import FALLBACK_ACTIONS
from xtx.games.actions.nameable_things import Thing, distinguish_things
from xtx.games.actions.search import RANDOM_STATES, Findings, Search
from xtx.games.canonical.canonical_state import World
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Snapshot, Status, Verdict, Verdicts
from xtx.games.zmachine.story_memory import Dictionary, Ram
from xtx.games.zset.engine import Engine

ROOT = Path(__file__).parents[3]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"
HANG = ROOT / "stories/hang/hang.z5"
RNG = RANDOM_STATES[0]
SIDES = {"north", "south", "east", "west"}
STOPPERS = ("hang", "crash", "examine bomb", "burst")
"""What the hang story does not answer to; burst would end this process."""


class Bench:
    """A story with all that a search needs."""

    def __init__(self, path: Path) -> None:
        self.emulator = Emulator(read_story(path))
        self.world = World(self.emulator, layout_of(self.emulator))
        self.search = Search(self.emulator)
        self.tried: list[str] = []

    def go(self, *commands: str, seed: int = 1) -> None:
        self.emulator.reset(seed)
        for command in commands:
            assert self.emulator.step(command) is Status.DONE

    def findings(self, *commands: str, seed: int = 1, search: Search | None = None) -> Findings:
        self.go(*commands, seed=seed)
        return (search or self.search).findings(self.world.make_canonical(RNG), ("burst",))

    def effects(self, actions: Sequence[str], rng: tuple[int, int, int] = RNG) -> list[int]:
        """What each action does from the canonical state of the present one."""
        self.emulator.restore(self.world.make_canonical(rng))
        verdicts = self.emulator.filter(actions)
        return np.where(verdicts.flags & Verdict.CHANGED, verdicts.diffs, 0).tolist()


@pytest.fixture(scope="module")
def hang() -> Iterator[Bench]:
    bench = Bench(HANG)
    yield bench
    bench.emulator.close()


@pytest.fixture(scope="module")
def lowwater() -> Iterator[Bench]:
    bench = Bench(LOWWATER)
    yield bench
    bench.emulator.close()


# --- findings -------------------------------------------------------------------------------------------------------


def test_what_is_found(hang: Bench) -> None:
    found = hang.findings()
    assert found.look.startswith("Hall\nA bare hall.")
    assert found.inventory == "You're carrying nothing."
    assert {"take coin", "down"} <= set(found.actions)
    assert not set(found.actions) & {*STOPPERS, "spin", "look", "wait", "inventory"}


@pytest.mark.parametrize(
    "ways", [((), ("look", "zqx", "inventory")), (("take coin", "drop coin"), ("take coin", "i", "drop coin", "l"))]
)
def test_the_state_alone_decides(hang: Bench, ways: tuple[tuple[str, ...], ...]) -> None:
    found, keys = [], set()
    for seed, way in enumerate(ways, 1):
        hang.go(*way, seed=seed)
        keys.add(hang.world.compute_key(hang.world.make_canonical(RNG)))
        found.append(hang.findings(*way, seed=seed))
    assert len(keys) == 1
    assert found[0] == found[1]


def test_another_emulator_finds_the_same(lowwater: Bench) -> None:
    way = lowwater.emulator.bindings.walkthrough[:9]
    lowwater.go(*way)
    state = lowwater.world.make_canonical(RNG)
    first = lowwater.search.findings(state)
    other = Emulator(read_story(LOWWATER))
    other.reset(7)
    assert Search(other).findings(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))) == first
    other.close()
    # Each action changes the world, and each in another way; the next step of the walkthrough is among them.
    lowwater.go(*way)
    effects = lowwater.effects(first.actions)
    assert 0 not in effects
    assert len(set(effects)) == len(effects) > 3
    (following,) = lowwater.effects([lowwater.emulator.bindings.walkthrough[9]])
    assert following in effects


def test_excluded_commands_are_never_typed(hang: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[str] = []
    step, ask, filter_ = Emulator.step, Emulator.read_responses, Emulator.filter

    def watch_step(self: Emulator, command: str, *rest: int) -> Status:
        typed.append(command)
        return step(self, command, *rest)

    def watch_ask(self: Emulator, state: Snapshot, commands: Sequence[str], *rest: int) -> list[str | None]:
        typed.extend(commands)
        return ask(self, state, commands, *rest)

    def watch_filter(self: Emulator, commands: Sequence[str], *rest: int, watched: Ram | None = None) -> object:
        typed.extend(commands)
        return filter_(self, commands, *rest, watched=watched)

    hang.go()
    state = hang.world.make_canonical(RNG)
    monkeypatch.setattr(Emulator, "step", watch_step)
    monkeypatch.setattr(Emulator, "read_responses", watch_ask)
    monkeypatch.setattr(Emulator, "filter", watch_filter)
    excluded = ("burst", "examine bomb", "inventory", "take coin", "coin, wait")
    search = Search(hang.emulator, whole=True)
    found = search.findings(state, excluded)
    found = search.extended(state, found, excluded)
    assert len(typed) > 100
    assert not set(typed) & set(excluded)
    assert found.inventory == ""
    assert "down" in found.actions


def test_where_nothing_works_something_is_offered(hang: Bench) -> None:
    hang.go()
    assert hang.search.valid(hang.world.make_canonical(RNG), ["look", "zqx", "inventory"]) == ()
    assert hang.search.valid(hang.world.make_canonical(RNG), []) == ()


def test_a_key_prompt_offers_the_usual(hang: Bench) -> None:
    hang.go()
    state = msgspec.structs.replace(hang.world.make_canonical(RNG), opcode=246)
    assert hang.search.findings(state, ("burst",)).actions == FALLBACK_ACTIONS


def test_one_action_for_each_change(hang: Bench) -> None:
    hang.go()
    valid = hang.search.valid(
        hang.world.make_canonical(RNG), ["get coin", "take the coin", "take coin", "d", "down", "hang", "look"]
    )
    assert len(valid) == 2
    assert valid[0] in ("get coin", "take coin") and valid[1] in ("d", "down")
    # The most usual verb among the shortest, whatever the order.
    assert set(hang.search.valid(hang.world.make_canonical(RNG), ["get coin", "take coin"])) == {"take coin"}
    assert set(hang.search.valid(hang.world.make_canonical(RNG), ["take coin", "get coin"])) == {"take coin"}


def test_extra_actions_are_tried_as_they_stand(hang: Bench) -> None:
    found = hang.findings()
    extra = ("down. north", "take coin. down", "look", "take the coin", "hang", "zqx")
    search = Search(hang.emulator, extra)
    hang.go()
    extended = search.extended(hang.world.make_canonical(RNG), found, ("burst",))
    # A new effect is added, and only that: no synonym, nothing idle, nothing that hangs.
    assert set(extended.actions) - set(found.actions) == {"take coin. down"}
    assert set(found.actions) <= set(extended.actions)
    assert (extended.look, extended.inventory) == (found.look, found.inventory)
    assert Search(hang.emulator, ("zqx",)).extended(hang.world.make_canonical(RNG), found, ("burst",)) == found


def test_variants_have_names_of_their_own(hang: Bench) -> None:
    extras: tuple[tuple[str, ...], ...] = ((), ("a",), ("a", "b"))
    searches = [Search(hang.emulator, extra, whole=whole) for extra in extras for whole in (False, True)]
    assert len({s.variant for s in searches}) == 6
    assert len({s.plain_variant for s in searches}) == 1
    assert [s.extends for s in searches] == [False] + [True] * 5


# --- candidates -----------------------------------------------------------------------------------------------------


def test_every_template_is_filled(hang: Bench) -> None:
    candidates = hang.search.candidates([Thing("coin", ("coin",)), Thing("box", ("box",))])
    assert len(candidates) == len(set(candidates))
    assert not any("OBJ" in c for c in candidates)
    assert {"take coin", "take all", "put coin in box", "put box in coin", "put all in box", "look", "wait"} <= set(
        candidates
    )
    assert "put coin in coin" not in candidates


def test_things_can_be_examined(hang: Bench) -> None:
    hang.go()
    state = hang.world.make_canonical(RNG)
    look, inventory = hang.search.describe(state)
    names = {t.name for t in hang.search.things(state, look, inventory)}
    assert "coin" in names
    assert not names & {"hall", "the", "all", "bomb", "nothing", "below"}  # the bomb never answers


def test_buttons_of_different_colours_are_told_apart() -> None:
    words = ["button", "red", "blue", "yellow"]
    owners = {"button": {1, 2, 3}, "red": {1}, "blue": {2}, "yellow": {3}}
    assert [t.name for t in distinguish_things(words, owners, "nothing special")] == ["red", "blue", "yellow"]


def test_words_for_one_thing_are_one_thing() -> None:
    assert distinguish_things(["lamp", "brass", "lantern"], {"lamp": {5}, "brass": {5}}, "It is off.") == [
        Thing("lamp", ("lamp", "brass", "lantern"), "It is off.")
    ]
    # Two objects of which one has no word of its own cannot be told apart.
    assert [t.name for t in distinguish_things(["door", "north"], {"door": {1, 2}, "north": {1}}, "")] == ["door"]
    assert [t.name for t in distinguish_things(["fog"], {}, "")] == ["fog"]


def test_the_best_word_of_each_is_its_name() -> None:
    words = ["knob", "lever", "long", "round"]
    owners = {"knob": {1}, "round": {1}, "lever": {2}, "long": {2}}
    assert distinguish_things(words, owners, "") == [
        Thing("knob", ("knob", "round")),
        Thing("lever", ("lever", "long")),
    ]


def test_spells_are_tried_on_oneself_and_things_pushed_somewhere(hang: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """But usual verbs are not tried on oneself: they kill."""
    search = Search(hang.emulator)
    monkeypatch.setattr(Search, "templates", ("zorble OBJ", "kill OBJ", "push OBJ OBJ", "push OBJ to OBJ"))
    candidates = search.candidates([Thing("coin", ("coin",)), Thing("box", ("box",))])
    assert {"zorble me", "zorble coin", "kill coin", "push coin north", "push box to coin"} <= set(candidates)
    assert not {"kill me", "push coin box"} & set(candidates)


def test_what_only_descriptions_speak_of_is_a_thing(hang: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the game has nothing of its own to say of it."""
    told = {
        "examine book": "The blorb spell and the quux spell. There is a wall of text.",
        "examine blorb": "blorb spell: hide a thing well",
        "examine quux": "quux spell: gain some rust",
        "examine spell": "Which spell do you mean, the blorb spell or the quux spell?",
        "examine wall": "You see nothing special about the wall.",
        "examine text": "You can't see any such thing.",
        "examine door": "The oak door is closed.",
    }
    search = Search(hang.emulator)
    words = frozenset(command.split()[1] for command in told)
    monkeypatch.setattr(
        search, "answers", lambda _, asked: [told.get(c, "You can't see any such thing.") for c in asked]
    )
    monkeypatch.setattr(search, "dictionary", Dictionary(words, 9, words))
    state = hang.world.make_canonical(RNG)
    things = search.things(state, "A book lies here.", "")
    assert [(t.name, t.told) for t in things] == [("blorb", True), ("book", False), ("door", True), ("quux", True)]


def test_ways_are_no_things(hang: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the game says the same of several. What it says of one only may be a door that lies there."""
    told = {f"examine {way}": "You see nothing unexpected that way." for way in ("up", "down", "out", "floor")}
    told |= dict.fromkeys(("examine north", "examine crypt"), "The crypt is closed.")
    search = Search(hang.emulator)
    words = frozenset(command.split()[1] for command in told)
    monkeypatch.setattr(
        search, "answers", lambda _, asked: [told.get(c, "You can't see any such thing.") for c in asked]
    )
    monkeypatch.setattr(search, "dictionary", Dictionary(words, 9, words))
    things = search.things(hang.world.make_canonical(RNG), "A crypt to the north. Go up. A bare floor.", "")
    assert [t.name for t in things] == ["crypt"]


@pytest.mark.roms
def test_spells_in_a_book_can_be_learned_and_cast(real_story: Callable[[str], Path]) -> None:
    """In balances: `learn` and `write` are in the story's grammar but not in Jericho's list of it."""
    bench = Bench(real_story("balances"))
    walkthrough = bench.emulator.bindings.walkthrough
    with closing(Engine.of(bench.emulator)) as engine:
        search = Search(bench.emulator, engine=engine, world=bench.world)
        bench.go(*walkthrough[:1], seed=bench.emulator.bindings.walkthrough_seed)
        assert "learn rezrov" in search.findings(bench.world.make_canonical(RNG)).actions
        bench.go(*walkthrough[:2], seed=bench.emulator.bindings.walkthrough_seed)
        offered = search.findings(bench.world.make_canonical(RNG)).actions
        assert [a for a in offered if a.startswith("cast rezrov") and a.endswith(" box")], offered
    bench.emulator.close()


# --- chance ---------------------------------------------------------------------------------------------------------


@pytest.mark.roms
def test_the_troll_can_be_attacked(real_story: Callable[[str], Path]) -> None:
    """Most blows miss: under one set of random numbers alone the search would find no use in them."""
    bench = Bench(real_story("zork1"))
    emulator = bench.emulator
    at_troll = next(i for i, c in enumerate(emulator.bindings.walkthrough) if "troll" in c.lower())
    bench.go(*emulator.bindings.walkthrough[:at_troll], seed=emulator.bindings.walkthrough_seed)
    found = bench.search.findings(bench.world.make_canonical(RNG))
    assert "troll" in found.look.lower()
    attacks = [a for a in found.actions if "troll" in a and "sword" in a]
    assert attacks, found.actions
    bench.go(*emulator.bindings.walkthrough[:at_troll], seed=emulator.bindings.walkthrough_seed)
    assert len({tuple(bench.effects(attacks[:1], rng)) for rng in RANDOM_STATES}) > 1
    emulator.close()


@pytest.mark.roms
@pytest.mark.parametrize("name", ["zork1", "pentari"])
def test_all_random_numbers_at_once_find_the_same(
    real_story: Callable[[str], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How a search tries them depends on the states before, and on the engine; what it finds must not."""
    bench = Bench(real_story(name))
    asked: list[bool] = []
    plain = Engine.filter_each

    def filter_each(self: Engine, *given: Any, first_alone: bool, **named: Any) -> list[Verdicts]:
        asked.append(first_alone)
        return plain(self, *given, first_alone=first_alone, **named)

    monkeypatch.setattr(Engine, "filter_each", filter_each)
    with closing(Engine.of(bench.emulator)) as engine:
        for length in (0, 6, 12):
            found = []
            for chance, judge in ((0.0, engine), (1.0, engine), (0.0, None)):
                search = Search(bench.emulator, engine=judge, world=bench.world)
                search.judge.chance = chance
                bench.go(*bench.emulator.bindings.walkthrough[:length], seed=bench.emulator.bindings.walkthrough_seed)
                found.append(search.findings(bench.world.make_canonical(RNG)))
            assert found[0] == found[1] == found[2]
    assert asked == [True, False] * 3
    bench.emulator.close()


@pytest.mark.roms
def test_a_careless_form_is_offered_once(real_story: Callable[[str], Path]) -> None:
    """Enchanter lets one throw every spell and every thing at the jug, and each is gone then."""
    bench = Bench(real_story("enchanter"))
    bench.go(*bench.emulator.bindings.walkthrough[:100], seed=bench.emulator.bindings.walkthrough_seed)
    with closing(Engine.of(bench.emulator)) as engine:
        search = Search(bench.emulator, engine=engine, world=bench.world)
        state = bench.world.make_canonical(RNG)
        offered = search.findings(state).actions
        thrown = [a for a in offered if a.startswith("throw ")]
        assert thrown == ["throw book at jug"]
        assert {"drop book", "drop jug", "take scroll", "learn frotz"} <= set(offered)
        things = search.things(state, *search.describe(state))
        candidates = [c for c in search.candidates(things) if c.startswith("throw ")]
        assert len(search.valid(state, candidates)) > 15  # so many there would be
    bench.emulator.close()


@pytest.mark.roms
def test_steps_in_a_maze_that_is_one_room_are_told_apart(real_story: Callable[[str], Path]) -> None:
    """In zork3's Royal Puzzle every step moves the player into the room where he is."""
    bench = Bench(real_story("zork3"))
    bench.search = Search(bench.emulator, world=bench.world)
    walkthrough = bench.emulator.bindings.walkthrough
    bench.go(*walkthrough[:166], seed=bench.emulator.bindings.walkthrough_seed)
    assert bench.emulator.tree.names[
        bench.emulator.tree.find_room(bench.emulator.ram, bench.emulator.player)
    ].startswith("Room in")
    offered = bench.search.findings(bench.world.make_canonical(RNG)).actions
    assert walkthrough[166].lower() == "s" and "south" in offered and len(set(offered) & SIDES) > 1, offered
    bench.go(*walkthrough[:166], seed=bench.emulator.bindings.walkthrough_seed)
    assert not SIDES & set(Search(bench.emulator).findings(bench.world.make_canonical(RNG)).actions)
    bench.emulator.close()
