"""Candidates from the whole dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from xtx.games.actions.added_actions import find_added_actions
from xtx.games.actions.command_effects import (
    distinguish_effects,
    find_common_changes,
    find_silent_changes,
    find_swapped,
)
from xtx.games.actions.nameable_things import Thing, name_clearly
from xtx.games.actions.present_names import Named, Present
from xtx.games.actions.search import RANDOM_STATES, Search
from xtx.games.actions.story_words import WORD_MARK, cut_to_first_line
from xtx.games.actions.whole_dictionary import WholeGrammar
from xtx.games.catalog.known_games import find_story
from xtx.games.emulator.frotz import Emulator, Verdict
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.zmachine.story_memory import Dictionary, read_initial_numbers, read_name_words
from xtx.games.zset.command_responses import CommandResponses
from xtx.games.zset.engine import Engine

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"

LAMP, BOX, GUARD = 1, 2, 3
NOUNS = frozenset(("lamp", "light", "crate", "box", "guard", "pebble", "red", "blue", "magica", "me"))
DICTIONARY = Dictionary(
    NOUNS | {"take", "drop", "examin", "touch", "into", "and", "say", "frobni", "save", "ask"}, 6, NOUNS
)
TEMPLATES = ("frobnicate", "take OBJ", "drop OBJ", "turn on OBJ", "say OBJ", "put OBJ in OBJ", "rub OBJ on OBJ")


def _grammar(numbers: Sequence[int] = ()) -> WholeGrammar:
    owners = {"lamp": {LAMP}, "light": {LAMP}, "box": {BOX}, "crate": {BOX}, "guard": {GUARD}, "magica": {BOX}}
    return WholeGrammar(
        DICTIONARY, TEMPLATES, {word: frozenset(objects) for word, objects in owners.items()},
        ("", "brass lamp", "magical box", "guard"), lambda answer: "" if "can't see" in answer else answer,
        ("and", "into"), numbers,
    )  # fmt: skip


class Story:
    """Answers and effects of a tiny story: a lamp and a box in the dark, and a guard."""

    def __init__(self, does: dict[str, int], says: dict[str, str] | None = None) -> None:
        self.does = does
        self.says = says or {}
        self.asked: list[str] = []

    def ask(self, commands: Sequence[tuple[str, str]]) -> list[str]:
        self.asked += [command for command, _ in commands]
        return [self.says.get(command, self._usual(command)).replace(word, WORD_MARK) for command, word in commands]

    def _usual(self, command: str) -> str:
        verb, *rest = command.split()
        if verb == "examine":
            return "It is too dark."
        here = {"lamp": "a lamp", "light": "a lamp", "box": "a box", "crate": "a box", "magica": "a box"}
        if verb == "touch" and rest[0] in here:
            return f"You feel {here[rest[0]]}."
        return "Done." if command in self.does else f"You can't see any {rest[-1] if rest else 'sense'} here."

    def effects(self, commands: Sequence[str]) -> npt.NDArray[np.uint64]:
        return np.array([self.does.get(command, 0) for command in commands], dtype=np.uint64)

    def frequency(self, command: str) -> int:
        return {"take": 100, "turn": 50}.get(command.split()[0], 1)

    def is_fatal(self, command: str) -> bool:
        return self.says.get(command, "").startswith("You die")


NOTHING = Present((), frozenset(), "Darkness", "")


def test_words_that_name_something_are_found_in_the_dark() -> None:
    named = _grammar().names.find(NOTHING, Story({}).ask)
    assert named.names == ["box", "lamp"]
    assert named.absent in NOUNS - {"lamp", "light", "box", "crate", "magica"}
    assert named.likely == []


def test_a_thing_that_cannot_be_seen_well_is_found_by_touch() -> None:
    says = {f"examine {word}": f"You can't see any {word} here." for word in NOUNS}
    says |= {"examine pebble": "You can't see it from here.", "touch pebble": "You feel a pebble."}
    assert _grammar().names.find(NOTHING, Story({}, says).ask).names == ["pebble"]


def test_topics_are_looked_up_in_things() -> None:
    grammar = WholeGrammar(
        Dictionary(DICTIONARY.words | {"look", "up", "in"}, 6, NOUNS), ("look up OBJ in OBJ",), {}, (), lambda a: a
    )
    says = {f"look up {word} in lamp": "There is no such entry." for word in NOUNS}
    named = Named(absent="guard")
    commands = grammar.topic_commands(("lamp",), named, Story({}, says).ask)
    assert "look up pebble in lamp" in commands
    assert not any(command.endswith("in pebble") for command in commands)  # there is none


def test_persons_are_sent_on_errands() -> None:
    words = DICTIONARY.words | {"push", "north", "south", "guard"}
    grammar = WholeGrammar(Dictionary(words, 6, NOUNS), ("north", "south", "take OBJ"), {}, (), lambda a: a)
    says = {"guard, wait": "He waits.", "guard, take all": "He takes nothing.", "guard, south": "He is here."}
    says |= {"guard, north": "He leaves."} | {f"guard, examine {word}": "He sees no such thing." for word in NOUNS}
    commands = list(grammar.persons.talk(["guard"], (), Named(), Story({}, says).ask))
    assert {"guard, north and south", "guard, north and push red"} <= set(commands)


def test_persons_can_be_told_to_get_what_is_out_of_sight() -> None:
    grammar = WholeGrammar(Dictionary(DICTIONARY.words, 6, NOUNS), ("take OBJ",), {}, (), lambda a: a)
    says = {"guard, wait": "He waits.", "guard, take all": "He takes nothing.", "guard, north": "He shrugs."}
    commands = list(grammar.persons.talk(["guard"], (), Named(), Story({}, says).ask))
    assert {"guard, take pebble", "guard, take red"} <= set(commands)


def test_persons_that_obey_come_first() -> None:
    grammar = WholeGrammar(Dictionary(DICTIONARY.words | {"north"}, 6, NOUNS), TEMPLATES, {}, (), lambda a: a)
    says = {f"{thing}, {order}": f"Talking to the {thing}, of {i} letters?" for i, thing in enumerate(("box", "lamp"))
            for order in ("wait", "north", "take all")}  # fmt: skip
    says |= {"pebble, wait": "It waits.", "pebble, north": "It leaves.", "pebble, take all": "It takes nothing."}
    assert grammar.persons.find(("box", "lamp", "pebble"), Story({}, says).ask)[0] == "pebble"


def test_any_word_can_be_said_in_quotes() -> None:
    verbs = DICTIONARY.words | {"type", "plugh"}
    grammar = WholeGrammar(Dictionary(verbs, 6, NOUNS), ("rub OBJ",), {}, (), lambda a: "" if "can't" in a else a)
    says = {f'type "{word}"': "The keys click." for word in NOUNS}
    commands = grammar.open_commands(Named(absent="pebble"), Story({}, says).ask)
    assert 'type "plugh"' in commands  # no noun
    assert "rub red" not in commands


def test_all_positions_of_a_dial_are_tried_and_crowd_nothing_out() -> None:
    verbs = DICTIONARY.words | {"turn", "to"}
    grammar = WholeGrammar(Dictionary(verbs, 6, NOUNS), ("touch OBJ",), {}, (), lambda a: "" if "can't see" in a else a)
    text = "The lamp has a dial, calibrated from one to sixty."
    does = {f"turn lamp to {n}": 100 + n for n in range(1, 61)} | {"touch box": 7}
    present = Present(("lamp",), frozenset(("lamp",)), text, "")
    story = Story(does, {"turn lamp to 7": "Click."})
    added = find_added_actions(grammar, present, (), story)
    assert {"turn lamp to 47", "turn lamp to 60", "touch box"} <= set(added)
    assert not any(command.endswith(" 61") for command in added)


def test_my_name_is_another_thing_than_the_name() -> None:
    nouns = NOUNS | {"my"}
    grammar = WholeGrammar(Dictionary(nouns | DICTIONARY.words, 6, nouns), (), {}, (), lambda a: a)
    says = {"touch red": "You feel red.", "touch my red": "Huh?", "touch lamp": "Warm.", "touch my lamp": "Warm."}
    assert grammar.names.find_own(("red", "lamp"), Named(), Story({}, says).ask) == ["my red"]


def test_a_thing_is_not_called_by_a_quantity() -> None:
    assert name_clearly(Thing("one", ("one", "stalk"))).name == "stalk"
    assert name_clearly(Thing("one", ("one",))).name == "one"
    assert name_clearly(Thing("lamp", ("lamp", "one"))).name == "lamp"


def test_what_no_text_names_is_pushed_to_all_sides() -> None:
    grammar = WholeGrammar(DICTIONARY, ("push OBJ OBJ", "rub OBJ on OBJ"), {}, (), lambda a: a)
    assert grammar.push_commands(("box",))[:2] == ["push box north", "push box south"]
    assert _grammar().push_commands(("box",)) == []  # it has no such form


def test_what_looks_the_same_takes_the_same_words() -> None:
    present = Present(("box",), frozenset(("box", "crate")), "Cave", "", {"crate": "box"}, ("say OBJ to box",))
    assert present.open_forms == ("say OBJ to box", "say OBJ to crate")


def test_what_is_in_sight_is_no_news() -> None:
    present = Present(("lamp",), frozenset(("lamp",)), "A lamp is here.", "magical box")
    named = _grammar().names.find(present, Story({}).ask)
    assert named.names == named.likely == ["box"]  # the noun, of the words that the object tree has


def test_one_command_for_each_change_in_its_most_natural_wording() -> None:
    story = Story(
        {"turn on light": 1, "turn on lamp": 1, "light": 1, "blue": 2, "take lamp": 3, "drop lamp": 3, "take box": 4},
        {"light": "(the lamp)\nDone."},
    )
    added = find_added_actions(_grammar(), NOTHING, ["take box"], story)
    assert sorted(added) == ["blue", "take lamp", "turn on lamp"]


def test_known_changes_and_those_of_time_are_not_added() -> None:
    story = Story({"take lamp": 1, "get up": 1, "wait": 2, "look": 2, "drop lamp": 2})
    assert find_added_actions(_grammar(), NOTHING, ["get up"], story) == []


def test_a_single_word_to_which_the_parser_adds_an_object_is_left_out() -> None:
    story = Story({"blue": 5}, {"blue": "(the box)\nYou paint it."})
    assert find_added_actions(_grammar(), NOTHING, [], story) == []


def test_a_form_that_works_with_anything_is_carelessness() -> None:
    present = Present(("lamp", "box", "red", "blue"), frozenset(("lamp", "box", "red", "blue")), "", "")
    does = {f"put pebble in {name}": 10 + i for i, name in enumerate(present.names)}
    says = {
        "examine pebble": "It is round.",
        **{f"examine {name}": f"It is number {i}." for i, name in enumerate(does)},
    }
    story = Story({**does, "take pebble": 9}, says)
    assert find_added_actions(_grammar(), present, [], story) == ["take pebble"]


def test_orders_to_the_program_are_never_tried() -> None:
    grammar = _grammar()
    assert "save" not in grammar.words.words and "take" in grammar.words.words
    story = Story({})
    find_added_actions(grammar, NOTHING, [], story)
    assert not any(command.startswith("save") for command in story.asked)


def test_words_are_spelled_out_where_a_text_shows_the_rest() -> None:
    grammar = _grammar()
    assert grammar.words.spell_out("take magica", "") == "take magical"  # from an object's name
    assert grammar.words.spell_out("frobni lamp", "Frobnicating is fun.") == "frobnicating lamp"
    assert grammar.words.spell_out("take lamp", "lampshades") == "take lamp"


def test_numbers_are_tried_where_the_parser_takes_one() -> None:
    says = {"turn lamp to 7": "The lamp turns."}
    grammar = WholeGrammar(
        Dictionary(DICTIONARY.words | {"turn"}, 6, NOUNS), TEMPLATES, {}, ("",),
        lambda answer: "" if "can't see" in answer else answer, (), (948,),
    )  # fmt: skip
    commands = grammar.numbers.commands(["lamp", "box"], "It was 1776.", Story({}, says).ask)
    assert commands[:5] == [f"turn lamp to {number}" for number in (1776, 1775, 1777, 948, 0)]
    assert not any("box" in command for command in commands)


def test_a_number_tells_which_of_several_things_is_meant() -> None:
    grammar = WholeGrammar(
        DICTIONARY, TEMPLATES, {}, ("",), lambda answer: "" if "can't see" in answer else answer, (), (2306,)
    )
    present = Present(("guard",), frozenset(("guard",)), "A guard sells crates.", "")
    examined = {"examine guard": "A guard.", "examine red": "A red thing."}
    says = {"take crate 7": "You take crate 7.", "take crate 1": "You take crate 1.", **examined}
    any_number = {f"take crate {number}": 100 + number for number in (*range(13), 2306)}
    # Small numbers that all do something were only guessed.
    assert find_added_actions(grammar, present, [], Story(any_number, says)) == ["take crate 2306"]
    few = {f"rub crate {number}": number for number in (1, 2, 3)}
    grammar = WholeGrammar(DICTIONARY, ("rub OBJ", "take OBJ"), {}, ("",), grammar.words._understood, (), ())
    assert find_added_actions(grammar, present, [], Story(few, says)) == ["rub crate 1", "rub crate 2", "rub crate 3"]


def test_what_takes_any_word_does_so_beside_a_thing_that_looks_like_others() -> None:
    # The lamp and the box look the same, and so does a crate of which only the text speaks.
    looks = {f"examine {word}": "A white cube." for word in ("lamp", "box", "crate")}
    unknown = {f"examine {word}": f"You can't see any {word} here." for word in NOUNS - {"lamp", "box", "crate"}}
    around = "Red Room\nA lamp, a box and a crate."
    present = Present(("lamp", "box"), frozenset(("lamp", "box")), around, "", {}, ("rub OBJ on box",))
    things = [(word, thing) for word in ("red", "box", "lamp") for thing in ("box", "lamp", "crate")]
    story = Story({f"rub {word} on {thing}": i for i, (word, thing) in enumerate(things, 1)}, {**looks, **unknown})
    assert "rub red on crate" in find_added_actions(_grammar(), present, [], story)


def test_nothing_is_done_to_the_player_that_kills() -> None:
    present = Present(("lamp",), frozenset(("lamp",)), "", "")
    story = Story({"rub lamp on me": 7}, {"examine lamp": "A lamp."})
    assert find_added_actions(_grammar(), present, [], story) == ["rub lamp on me"]
    story.says["rub lamp on me"] = "You die."
    assert find_added_actions(_grammar(), present, [], story) == []


def test_orders_go_to_persons_that_obey() -> None:
    present = Present(("guard", "lamp"), frozenset(("guard", "lamp")), "", "")
    says = {"guard, wait": "He waits.", "guard, north": "He goes north.", "lamp, wait": "You can't talk to the lamp!"}
    story = Story({"guard, take box": 3}, {**says, "guard, examine box": "He looks at the box."})
    assert find_added_actions(_grammar(), present, [], story) == ["guard, take box"]
    story.says["guard, north"] = story.says["guard, take all"] = "He waits."
    assert find_added_actions(_grammar(), present, [], story) == []


def test_verbs_before_a_comma_are_no_persons() -> None:
    says = {"turn, wait": "Time passes.", "guard, wait": "He waits."}
    assert _grammar().persons.find(["turn", "guard"], Story({}, says).ask) == ["guard"]


def _numbers(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, dtype=np.uint64)


def test_changes_beyond_the_object_tree_aretell_effects_apart() -> None:
    settings = [f"set a to {letter}" for letter in "bcdefghijklm"]
    commands = ["wait", "hit guard", "kill guard", *settings, "look"]
    flags = np.array([Verdict.CHANGED] * (3 + len(settings)) + [0], dtype=np.uint8)
    fine = distinguish_effects(commands, _numbers(*[5] * 15, 0), flags, _numbers(1, 2, 2, *range(3, 15), 99))
    assert fine[1] == fine[2] != fine[0]
    assert fine[15] == 0
    assert set(fine[3:15].tolist()) == {5}  # a verb with too many: what the parser remembers
    few = distinguish_effects(commands[:7], _numbers(*[5] * 7), flags[:7], _numbers(1, 2, 2, 3, 4, 5, 6))
    assert len(set(few[3:].tolist())) == 4  # the buttons of a machine


def test_a_change_beside_many_others_is_no_commands_own() -> None:
    commands = ["drop lamp", "drop box", "drop pebble", "drop guard", "put down lamp"]
    flags = np.full(5, Verdict.CHANGED, dtype=np.uint8)
    none = np.empty(0, dtype=np.intp)
    beside, alone = find_common_changes(commands, _numbers(1, 2, 3, 4, 1), flags, _numbers(7, 7, 7, 7, 8), none)
    assert (beside, alone) == ({7}, set())


def test_a_change_that_many_verbs_make_with_anything_is_the_parsers() -> None:
    anything = [
        f"{verb} {name}" for verb in ("rub", "smell", "taste", "kiss") for name in ("lamp", "box", "tin", "hat")
    ]
    dragon = [f"{verb} dragon" for verb in ("hit", "kill", "cut", "stab", "kick")]
    for commands, expected in ((anything, {7}), (dragon, set())):
        count = len(commands)
        given = np.zeros(count, dtype=np.uint8), _numbers(*[7] * count), np.arange(count)
        assert find_common_changes(commands, _numbers(*[7] * count), *given) == (set(), expected)


def test_a_change_that_shows_nowhere_counts_if_few_commands_make_it() -> None:
    commands = ["read book", "examine book", "superbrief", "turn a on", "turn b on", "drop all", "hello", "set a to b"]
    commands += [f"set a to {name}" for name in "cdefgh"]
    watches = _numbers(7, 7, 8, 1, 1, 2, 9, *range(11, 18))
    found = find_silent_changes(commands, np.zeros(len(commands), dtype=np.uint8), watches, _numbers(1))
    assert [commands[i] for i in found] == ["read book", "examine book"]


def test_a_change_that_does_not_depend_on_the_order_of_words_is_no_memory_of_theirs() -> None:
    pairs = ("join a to b", "join b to a", "join a to c", "join c to a", "join b to b")
    many = tuple(f"ask {one} about {other}" for one in "abcd" for other in "abcd" if one != other)
    watches = _numbers(1, 1, 2, 3, 4, *[5] * len(many))
    assert find_swapped((*pairs, *many), watches, range(len(watches))) == [0, 1]
    assert find_swapped((*pairs, *many), watches, [0, 2]) == []


def test_a_silent_change_that_depends_on_the_order_of_words_is_the_parsers() -> None:
    commands = ("set bunk to sword", "set sword to bunk", "read book", "join a to b", "join b to a")
    watches = _numbers(2, 3, 4, 5, 5)
    found = find_silent_changes(commands, np.zeros(len(commands), dtype=np.uint8), watches, _numbers(1))
    assert [commands[i] for i in found] == ["read book", "join a to b", "join b to a"]


def test_orders_of_one_word_count_where_only_a_variable_changes() -> None:
    commands = ["mouse, north", "mouse, south", *(f"mouse, take {i}" for i in "abcdefghij")]
    flags = np.zeros(len(commands), dtype=np.uint8)
    watches = np.arange(1, len(commands) + 1, dtype=np.uint64)
    assert find_silent_changes(commands, flags, watches, np.zeros(1, dtype=np.uint64)) == [0, 1]


def test_the_head_of_an_answer_leaves_out_what_happens_afterwards() -> None:
    assert cut_to_first_line("Taken.\nA bird sings.") == "Taken."
    assert cut_to_first_line("(the lamp)\nTaken.\nA bird sings.") == "(the lamp)\nTaken."
    assert cut_to_first_line("") == ""


# --- in stories -----------------------------------------------------------------------------------------------------


@contextmanager
def _search(path: Path) -> Iterator[tuple[Emulator, Search]]:
    emulator = Emulator(find_story(str(path)))
    engine = Engine.of(emulator)
    try:
        yield emulator, Search(emulator, engine=engine, whole=True)
    finally:
        engine.close()
        emulator.close()


def _actions(emulator: Emulator, search: Search, steps: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the templates give after some steps of the walkthrough, and what is added."""
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough[:steps]:
        emulator.step(command)
    state = msgspec.structs.replace(emulator.save(), rng=RANDOM_STATES[0], narration=b"")
    found = search.findings(state)
    actions = search.extended(state, found).actions
    assert actions[: len(found.actions)] == found.actions or found.actions == ("wait", "yes", "no")
    return found.actions, tuple(action for action in actions if action not in found.actions)


def test_what_is_added_depends_on_the_state_alone() -> None:
    with _search(LOWWATER) as (emulator, search):
        one_way = [_actions(emulator, search, steps) for steps in (0, 6, 12)]
    with _search(LOWWATER) as (emulator, search):
        other_way = [_actions(emulator, search, steps) for steps in (12, 0, 6)]
    assert one_way == [other_way[1], other_way[2], other_way[0]]


@pytest.mark.roms
@pytest.mark.parametrize("name", ["balances", "enchanter"])
def test_what_the_templates_find_is_the_same_with_the_whole_dictionary(
    real_story: Callable[[str], Path], name: str
) -> None:
    """It is kept under the same key: what one search leaves in the atlas the other takes out."""
    found = []
    emulator = Emulator(find_story(str(real_story(name))))
    for whole in (False, True):
        engine = Engine.of(emulator)
        search = Search(emulator, engine=engine, whole=whole)
        emulator.reset(emulator.bindings.walkthrough_seed)
        for i, command in enumerate(emulator.bindings.walkthrough[:31]):
            if i % 10 == 0:
                state = emulator.save()
                found.append(search.findings(msgspec.structs.replace(state, rng=RANDOM_STATES[0], narration=b"")))
                emulator.restore(state)
            emulator.step(command)
        engine.close()
    emulator.close()
    assert found[: len(found) // 2] == found[len(found) // 2 :]


def test_answers_are_heard_with_a_mark_for_the_word() -> None:
    emulator = Emulator(find_story(str(LOWWATER)))
    engine = Engine.of(emulator)
    emulator.reset(1)
    state = emulator.save()
    asked = [(f"examine {word}", word) for word in ("quay", "gull", "sea", "xyzzy")]
    by_engine = CommandResponses(emulator, engine).answers_without(state, asked, WORD_MARK)
    by_emulator = CommandResponses(emulator, None).answers_without(state, asked, WORD_MARK)
    engine.close()
    emulator.close()
    assert by_engine == by_emulator
    assert all(by_engine) and not any("gull" in answer.lower().split() for answer in by_engine[1:2])


def test_the_words_of_objects_are_read_from_the_story() -> None:
    emulator = Emulator(find_story(str(LOWWATER)))
    owners, names = read_name_words(emulator.tree), emulator.tree.names
    numbers = read_initial_numbers(emulator.tree)
    emulator.close()
    named = {word for word, objects in owners.items() for o in objects if word in names[o].lower().split()}
    assert len(named) > 20
    assert all(number > 12 for number in numbers)


@pytest.mark.roms
def test_the_dark_first_room_of_hhgg_can_be_left(real_story: Callable[[str], Path]) -> None:
    with _search(real_story("hhgg")) as (emulator, search):
        templates, added = _actions(emulator, search, 0)
    assert templates == ("stand",)
    assert any(action.startswith("turn on ") for action in added)
    assert len(added) < 8


@pytest.mark.roms
def test_a_spell_is_cast_in_the_dark(real_story: Callable[[str], Path]) -> None:
    with _search(real_story("balances")) as (emulator, search):
        templates, added = _actions(emulator, search, 32)
    assert "frotz coin" in added and "frotz coin" not in templates


@pytest.mark.roms
def test_a_riddle_is_answered_in_quotes(real_story: Callable[[str], Path]) -> None:
    with _search(real_story("zork2")) as (emulator, search):
        templates, added = _actions(emulator, search, 79)
    assert 'say "well"' in added and 'say "well"' not in templates


@pytest.mark.roms
@pytest.mark.parametrize(
    ("name", "step", "action"),
    [
        ("wishbringer", 137, "push joystick west"),  # the same change of the object tree in four directions
        ("hhgg", 71, 'type "bleem"'),
        ("hhgg", 101, "look"),  # which counts how often one looks
        ("hhgg", 133, "write my name in memorial"),
        ("planetfall", 282, "floyd, take shiny"),
        ("anchor", 93, "turn large to 47"),
        ("balances", 48, "write chasm on featureless"),  # beside a cube that looks the same
        ("snacktime", 22, "push bumpy"),  # where nearly every command leaves a trace of its own
        ("trinity", 49, "east"),  # through a door that is open, seconds before it is too late
        ("trinity", 119, "push tree north"),  # which no text names
        ("curses", 88, "hole, north"),  # an order that only a variable shows
        ("partyfoul", 5, "west"),  # into a scene that waits for a key
        ("partyfoul", 46, "put stalk in bag"),  # where every command notes the things that are mentioned
        ("balances", 97, "take ticket 2306"),  # a number that only a text elsewhere has
        ("balances", 114, "write road on featureless"),  # beside several things that look the same
        ("planetfall", 360, "type 384"),
        ("hhgg", 312, "north"),  # in a maze that is one room, where chance blocks the way
        ("enchanter", 208, "connec b to j"),  # one of many changes of a verb, none of which the object tree shows
        ("enchanter", 142, "eat bread"),  # which only puts hunger off
        ("enchanter", 247, "learn gondar"),  # a spell that counts in one room only
        ("enchanter", 32, "open handle"),  # one of several like parts of a machine
        ("enchanter", 207, "rub betwee m to v"),  # one of eight changes of a verb that needs two words
        ("enchanter", 121, "turtle, se and take old"),  # an errand for what lies far off, in short words for ways
        ("enchanter", 113, "turtle, follow"),  # an order that is understood only after a spell
        ("lostpig", 33, "put coin across slot"),  # Jericho ignores moves of things that are not to the player
        ("trinity", 413, "put emerald down green boot"),  # beside a red one; colours are adjectives there
    ],
)
def test_kinds_that_blocked_games_are_offered(
    real_story: Callable[[str], Path], name: str, step: int, action: str
) -> None:
    game = StoryGame(GameSpec(str(real_story(name)), actions="whole"))
    emulator = game.emulator
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough[: step - 1]:
        emulator.step(command)
    found = game.find_in_state(emulator.save())
    game.close()
    assert action in found.actions


def test_the_way_up_is_no_thing() -> None:
    game = StoryGame(GameSpec(str(find_story("lowwater").path), actions="whole"))
    assert game.reset(1).actions == ("north", "west", "down")  # the story lets a player drop the sky
    game.close()
