"""Candidates from the whole dictionary: what `--actions whole` tries beyond the templates and the things in sight.

Every word that the parser knows is tried, in stages, so that it stays cheap:

1. Every word by itself.
2. Every word as the object of a few verbs. What the parser says tells which words name something here, whether or not
   any text speaks of it and whether or not it is dark. Those are tried with every template for one object, and the more
   likely of them with every template for two.
3. One word that names nothing here with every template. Where the parser does not complain of it, that place of a
   command takes any word (speech, spells); there every word is tried.
4. Persons: the same commands as orders to them, and every word as a topic.
5. Numbers, where a command takes one.

All of it is asked of a canonical state, so the result is a function of that state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from xtx.games.actions.candidates import SIDES
from xtx.games.actions.wide_grammar import listens
from xtx.games.zmachine.debug_verbs import debugging_words
from xtx.games.zmachine.story_memory import Dictionary
from xtx.games.zmachine.typed_input import to_the_program
from xtx.search_versions import WHOLE_VERSION as WHOLE_VERSION

WORD_MARK = "\x01"
"""Stands for the word that was typed, in what the parser says of it."""

Ask = Callable[[Sequence[tuple[str, str]]], list[str]]
"""What the story says to commands, each given with a word of it that is replaced by `WORD_MARK` in the answer."""

_PROBES = ("examine", "touch", "take")
"""Verbs by which words are asked whether they name something. `examine` says the most. In the dark it says nothing, and
then the next one that the story knows is asked too."""

_SPELLED = re.compile(r"[a-z][a-z0-9'-]*")
_ASIDE = re.compile(r"^\([^)\n]*\)")
_ONESELF = "me"
QUANTITIES = frozenset(
    ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
     "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "intnum", "intdir", "number",
     "anything", "either", "something", "nothing", "anyone", "he", "she", "they", "one", "ones", "here", "there", "y"),
)  # fmt: skip
"""Words that parsers take for "so many of what is here", or for whatever is."""
SETTINGS = frozenset(
    ("pronouns", "nouns", "notify", "verbose", "brief", "superbrief", "super", "normal", "long", "short", "score",
     "fullscore", "full", "version", "script", "about", "help", "info", "hint", "hints", "credits", "release", "author",
     "authors", "places", "objects", "diagnose"),
)  # fmt: skip
"""Words that change how the program talks, or tell about the program."""
_TALK = ("ask OBJ about OBJ", "tell OBJ about OBJ", "ask OBJ for OBJ", "answer OBJ to OBJ", "say OBJ to OBJ")
"""Forms for a person and a topic, or a topic and a person; lists of templates leave them out."""
_SPOKEN = ("say", "answer", "type")
"""Verbs of which the object may be speech in quotes. More of them find little but commands to oneself."""
_SPEECH = (*(f'{verb} "OBJ"' for verb in _SPOKEN), "say OBJ", "answer OBJ", "shout OBJ", "order OBJ", "buy OBJ")
_CONSULT = ("look up OBJ in OBJ", "consult OBJ about OBJ", "read about OBJ in OBJ")
"""Forms for a thing and a topic."""
_NUMBERED = ("set OBJ to {}", "turn OBJ to {}")
_TYPED = ("dial {}", "type {}", "enter {}", "press {}", "push {}", "say {}", "withdraw {}", "pay {}")
_TRIED_ORDERS = ("wait", "north", "take all")
"""Orders by which it is seen whether a person obeys any."""
_DIRECTIONS = frozenset(
    ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out")
)
_ERRANDS = ("push", "take", "open", "pull")
"""What a person can be told to do with what is out of sight."""
_MOST_WAYS = 4
"""Ways, at most, that a person is sent with something to do."""
_TRIED_NUMBER = "7"
_SMALL = tuple(map(str, range(13)))
_NUMBER = re.compile(r"\b\d{1,5}\b")
_COUNT = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("fifteen", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred"),
)
_SPELLED_NUMBERS = dict(zip(_COUNT, map(str, (*range(13), 15, *range(20, 101, 10))), strict=True))
_RANGE = re.compile(
    rf"\b(\d{{1,5}}|{'|'.join(_COUNT)})(?: *(?:-|to|through) *| and )(\d{{1,5}}|{'|'.join(_COUNT)})\b", re.I
)
"""Numbers of which those between may be meant as well: a dial from 0 to 99."""
_MOST_IN_RANGE = 101
"""Longest range of which all numbers are tried, and offered beside other additions."""

_REFUSED = re.compile(
    r"[Ww]hich .*(do you mean|one)|You used the word|can't use the word|sentence|noun missing|what you're referring to"
    r"|want to talk to someone|multiple direct objects|[Ww]hat do you want to|isn't something you need"
    r"|not something you need|^You can't see .* here"
)
"""What parsers say of commands that they cannot make out, beyond what the search knows."""
_EVERY_CONTROL = 8
"""Of the words that can name nothing, one in so many is asked as well."""
_MOST_UNCLEAR = 100
"""Words, at most, that are asked for with a second verb because the answer to the first leaves open whether they name
something."""
_MOST_NUMBERS = 8
"""Numbers of the text, at most, and of the story's own, that are tried."""
_MOST_FREE = 3
"""Words of a place's name, at most, that are tried where any word will do."""
_MOST_PAIRED = 4
"""Newly found names, at most, that are tried in templates for two objects."""
_MOST_OPEN = 10
"""Templates that take any word, at most, that are tried with the whole dictionary."""
_MOST_TOPICS = 6
"""Forms that take any word beside a name, at most, that are tried with the whole dictionary."""
_MOST_PERSONS = 2
_MOST_ORDERED = 16
"""Names, at most, that stand in orders to a person."""
_MOST_ADDED = 12
"""Actions, at most, that are added in a state. Those are kept that need the least guessing: names of things, then
single words and words that may stand anywhere, numbers, orders, topics, and commands with two objects last."""
_FULL_LIST = 32
"""Where fewer actions are known, as in the dark, so many more are added."""
_CARELESS_PAIRS, _CARELESS_NAMES = 3, 10
"""So many different effects of one form, with two objects or with one, are a story's carelessness or what the parser
remembers."""
_SAMPLED = 16
"""One in so many commands of forms that take any word shows which forms those are."""
_PASSING = ("look", "wait", "inventory")
"""What happens with these as well is the work of time."""
_PUSH_ASIDE = "push OBJ OBJ"
_UPON = ("on", "onto", "over", "upon", "around")
_SPELLS = 20
"""An answer that is given to so many words, each before a name as if it were a verb, is a refusal."""
_REFUSED_BY = 3
"""An answer that so many persons, or words taken for persons, give to an order is a refusal."""
_REFUSED_BY_VERBS = 8
"""An answer that so many templates give to a word that names nothing is a refusal. Fewer mean the same: `look up WORD`,
`find WORD`, `read about WORD`."""


@dataclass(frozen=True)
class Present:
    """What is known of a state before the whole dictionary is tried."""

    names: tuple[str, ...]
    """Names of the things in sight, one each."""
    aliases: frozenset[str]
    """All words that name one of them."""
    text: str
    """What can be read here: `look`, `inventory` and descriptions."""
    around: str
    """The names of the objects that are here by the object tree, whether or not they can be seen."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """Words of `aliases` that name another thing than the one of `names` beside them, although it looks the same."""
    free_forms: tuple[str, ...] = ()
    """Templates for two objects with the second filled in, of which the first can be any word."""

    @cached_property
    def open_forms(self) -> tuple[str, ...]:
        """The same with what is true of things that look the same."""
        twins = [
            (form, twin) for form in self.free_forms for twin, name in self.twins.items() if form.endswith(f" {name}")
        ]
        return (*self.free_forms, *(f"{form.rsplit(' ', 1)[0]} {twin}" for form, twin in twins))


@dataclass
class Named:
    """What the dictionary names in a state beyond the things in sight."""

    names: list[str] = field(default_factory=list)
    """One word for each thing, the most likely first."""
    likely: list[str] = field(default_factory=list)
    """Those of them of which the text or the object tree speaks."""
    absent: str = ""
    """A word that could name something and names nothing here; empty if there is none."""
    refusals: frozenset[str] = frozenset()
    """How answers begin by which the parser says that a word names nothing here."""


@lru_cache(maxsize=4096)  # most answers are alike
def head_of(answer: str) -> str:
    """The beginning of an answer, without what happens afterwards: the first line, with an aside before it."""
    lines = [line for line in answer.strip().split("\n") if line.strip()]
    if len(lines) > 1 and lines[0].startswith("("):
        return f"{lines[0]}\n{lines[1]}"
    return lines[0] if lines else ""


class WholeGrammar:
    """The candidates that a story's whole dictionary gives, state by state."""

    def __init__(
        self,
        dictionary: Dictionary,
        templates: Sequence[str],
        owners: Mapping[str, frozenset[int]],
        names: Sequence[str],
        understood: Callable[[str], str],
        unwanted: Collection[str] = (),
        numbers: Iterable[int] = (),
    ) -> None:
        """`owners` says which objects have a word among their names, `names` is what they are called in print, by
        their numbers. `understood` gives nothing for an answer by which a parser complains. `unwanted` words name no
        thing: pronouns, articles, directions. `numbers` are the story's own, beside those that the text shows."""
        self._dictionary = dictionary
        self._owners = owners
        self._names = names
        self._understood = understood
        self._unwanted = frozenset(word[: dictionary.length] for word in unwanted) | {
            word[: dictionary.length] for word in QUANTITIES
        }
        self._numbers = tuple(map(str, numbers))
        self._one = tuple(t for t in templates if t.count("OBJ") == 1)
        self._two = tuple(t for t in templates if t.count("OBJ") == 2)
        self._plain = tuple(t for t in templates if "OBJ" not in t)
        self._whole_words: dict[str, str] = {}
        for name in names:
            self._learn_words(name)

    def _learn_words(self, text: str) -> None:
        length = self._dictionary.length
        for word in _SPELLED.findall(text.lower()):
            if len(word) > length and self._dictionary.knows(word):
                self._whole_words.setdefault(word[:length], word)

    def _known(self, forms: Iterable[str]) -> list[str]:
        """The forms of which the story knows the verb."""
        return [form for form in forms if self._dictionary.knows(form.split()[0])]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Every word that can be typed and is not an order to the program, as long as the dictionary has it."""
        spelled = (w for w in self._dictionary.words if _SPELLED.fullmatch(w))
        program = debugging_words(self._dictionary)
        return tuple(sorted(w for w in spelled if w not in program and not to_the_program(w, self._dictionary.length)))

    @cached_property
    def single_words(self) -> tuple[str, ...]:
        """The words that may be commands by themselves: all but the verbs of the templates, which are tried as these
        have them."""
        return tuple(word for word in self.words if word not in self._verbs and word not in self._settings)

    @cached_property
    def _settings(self) -> frozenset[str]:
        """Words that change how the program talks, or tell about the program."""
        return frozenset(word[: self._dictionary.length] for word in SETTINGS)

    @cached_property
    def one_object(self) -> tuple[str, ...]:
        """The templates for one object, with those for speech."""
        return tuple(dict.fromkeys((*self._known(_SPEECH), *self._one)))

    @cached_property
    def two_objects(self) -> tuple[str, ...]:
        """The templates for two objects."""
        return self._two

    def spell_out(self, command: str, text: str) -> str:
        """The command with whole words where the dictionary cuts them off and some text shows the rest."""
        length = self._dictionary.length
        if all(len(word) != length for word in command.split(" ")):
            return command
        here = {w[:length]: w for w in _SPELLED.findall(text.lower()) if len(w) > length}
        full = self._whole_words | here
        return " ".join(full.get(word, word) for word in command.split(" "))

    # --- what is here ---------------------------------------------------------------------------------------------

    def find_names(self, present: Present, ask: Ask) -> Named:
        """Which words name something here that is not among the things in sight, by what the parser says of them."""
        heads: list[list[str]] = []
        refusals: set[str] = {""}
        for questions in self._questions:
            said = list(map(head_of, ask(questions)))
            refusals |= self._refusals(said)
            heads.append(said)
            if self._is_refusal(Counter(said).most_common(1)[0][0]):
                break  # the parser says itself that there is no such thing: it is not dark
        named: dict[str, tuple[str, ...]] = {}
        for word, *said in zip(self._nouns, *(said[: len(self._nouns)] for said in heads), strict=True):
            if not refusals.issuperset(said):
                # As it was printed: words for the same thing are answered the same.
                named[word] = tuple(head.replace(WORD_MARK, word) for head in said)
        for word, answer in self._hardly_seen(heads[0], refusals, ask).items():
            named.setdefault(word, (answer.replace(WORD_MARK, word),) * len(heads))
        oneself = tuple(said[-1].replace(WORD_MARK, _ONESELF) for said in heads)
        own = self._owners.get(_ONESELF, frozenset())
        length = self._dictionary.length
        sighted = {part[:length] for alias in present.aliases for part in alias.split()}
        texts = {w[:length] for w in _SPELLED.findall(f"{present.text}\n{present.around}".lower())}
        groups = [
            (self._best(group, texts), not texts.isdisjoint(group))
            for group in self._group(named)
            if sighted.isdisjoint(group)
            and not (named[group[0]] == oneself and own.issuperset(self._owners.get(group[0], frozenset())))
        ]
        groups.sort(key=lambda one: (not one[1], one[0]))
        absent = next((word for word in self._nouns if word not in named), "")
        likely = [*present.twins, *(name for name, is_told in groups if is_told)]
        return Named([*present.twins, *(name for name, _ in groups)], likely, absent, frozenset(refusals))

    def _hardly_seen(self, said: Sequence[str], refusals: Collection[str], ask: Ask) -> dict[str, str]:
        """Words for which the first verb gets another refusal than most, and the next verb an answer: things that
        cannot be seen well."""
        usual = Counter(said).most_common(1)[0][0]
        asked = zip(self._nouns, said, strict=False)
        unclear = [word for word, head in asked if head and head != usual and head in refusals]
        verbs = self._known(_PROBES)[1:2]
        if not verbs or len(unclear) > _MOST_UNCLEAR:
            return {}
        heads = [head_of(answer) for answer in ask([(f"{verbs[0]} {word}", word) for word in unclear])]
        times = Counter(heads)
        return {
            word: head
            for word, head in zip(unclear, heads, strict=True)
            if head not in refusals and not self._is_refusal(head) and times[head] < _REFUSED_BY_VERBS
        }

    def _group(self, named: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """The words that name the same thing, together: those that are answered alike, unless they belong to different
        objects. In the dark everything is answered alike."""
        groups: dict[tuple[str, ...], list[tuple[set[int], list[str]]]] = {}
        for word in sorted(named, key=lambda w: (not self._owners.get(w), w)):
            owners, alike = self._owners.get(word, frozenset()), groups.setdefault(named[word], [])
            for objects, words in alike:
                if not owners or not objects.isdisjoint(owners):
                    objects |= owners
                    words.append(word)
                    break
            else:
                alike.append((set(owners), [word]))
        return [words for alike in groups.values() for _, words in alike]

    @cached_property
    def _questions(self) -> list[list[tuple[str, str]]]:
        """For each verb that tells whether a word names something: the command for every noun, for some other words,
        and for the player."""
        words = (*self._nouns, *self._controls, _ONESELF)
        return [[(f"{verb} {word}", word) for word in words] for verb in self._known(_PROBES)[:2]]

    @cached_property
    def _verbs(self) -> frozenset[str]:
        """The first words of all templates, as the dictionary has them."""
        length = self._dictionary.length
        return frozenset(template.split()[0][:length] for template in (*self._plain, *self._one, *self._two))

    @cached_property
    def _no_verbs(self) -> tuple[str, ...]:
        """The nouns that are no verbs of the grammar."""
        return tuple(word for word in self._nouns if word not in self._verbs)

    @cached_property
    def _nouns(self) -> tuple[str, ...]:
        """Every word that can name a thing."""
        nouns = self._dictionary.nouns
        return tuple(word for word in self.words if word in nouns and word not in self._unwanted)

    @cached_property
    def _controls(self) -> tuple[str, ...]:
        """Some words that can name nothing: what is said of them is said of no thing."""
        nouns = self._dictionary.nouns
        return tuple(word for word in self.words if word not in nouns)[::_EVERY_CONTROL]

    def _refusals(self, said: Sequence[str]) -> set[str]:
        """How the parser says that a word names nothing here, or cannot stand there: what it says of most nouns, what
        it says of words that are no nouns, and what parsers usually say."""
        of_nouns, of_others = Counter(said[: len(self._nouns)]), Counter(said[len(self._nouns) : -1])
        found = {head for head, _ in of_nouns.most_common(1)}
        for head in {*of_nouns, *of_others}:
            if of_others[head] > 1 or self._is_refusal(head):
                found.add(head)
        return found

    def _is_refusal(self, head: str) -> bool:
        text = head.replace(WORD_MARK, "thing")
        return not self._understood(text) or bool(_REFUSED.search(text))

    def _best(self, words: Sequence[str], texts: Collection[str]) -> str:
        """The word of several that names a thing most naturally: one that the text has, or with which its name ends."""
        owners = self._owners.get(words[0], frozenset())
        length = self._dictionary.length
        last = {name.lower().split()[-1][:length] for name in (self._names[o] for o in sorted(owners)) if name.strip()}
        return min(words, key=lambda w: (w not in texts, w not in last, len(w), w))

    def find_own(self, names: Sequence[str], named: Named, ask: Ask) -> list[str]:
        """Names before which `my` makes a difference: my name is another one than the name in general."""
        verbs = self._known(_PROBES[1:2])
        if not verbs or not self._dictionary.knows("my"):
            return []
        own = [f"my {name}" for name in names if " " not in name]
        said = list(map(head_of, ask([(f"{verbs[0]} {name}", name[3:]) for name in own])))
        usual = map(head_of, ask([(f"{verbs[0]} {name[3:]}", name[3:]) for name in own]))
        times = Counter(said)
        return [
            name
            for name, head, without in zip(own, said, usual, strict=True)
            if head not in (without, *named.refusals) and not self._is_refusal(head) and times[head] < _REFUSED_BY
        ]

    # --- what to try ----------------------------------------------------------------------------------------------

    def open_commands(self, named: Named, ask: Ask) -> list[str]:
        """Commands of forms that take any word: each with every word of the dictionary."""
        if not named.absent:
            return []
        forms = self.one_object
        taking = self._taking([(form, form.replace("OBJ", named.absent)) for form in forms], named, ask)
        # What stands in quotes need not be a thing.
        spoken = [word for word in self.words if word not in self._settings]
        every = {form: spoken if '"' in form else self._nouns for form in taking[:_MOST_OPEN]}
        return [form.replace("OBJ", word) for form, words in every.items() for word in words]

    def _taking(self, forms: Sequence[tuple[str, str]], named: Named, ask: Ask) -> list[str]:
        """The forms, given with a command that has a word which names nothing, of which the parser does not complain;
        one of those that are answered alike."""
        said = [head_of(answer) for answer in ask([(command, named.absent) for _, command in forms])]
        times = Counter(said)
        taking: dict[str, str] = {}
        for (form, _), head in zip(forms, said, strict=True):
            if head not in named.refusals and times[head] < _REFUSED_BY_VERBS and not self._is_refusal(head):
                taking.setdefault(head, form)
        return list(taking.values())

    def topic_commands(self, names: Sequence[str], named: Named, ask: Ask) -> list[str]:
        """Commands of forms with two objects of which one can be any word: a thing in which words are looked up, or a
        person who is asked, with every word of the dictionary."""
        if not named.absent or not names:
            return []
        # Whether the parser takes any word is asked with one name first: it complains of the word before all else.
        forms = [half for form in dict.fromkeys((*self._two, *self._known(_CONSULT))) for half in _halves(form)]
        tried = [(form, form.replace("OBJ", names[0]).replace("WORD", named.absent)) for form in forms]
        said = [head_of(answer) for answer in ask([(command, named.absent) for _, command in tried])]
        topics = [
            form
            for (form, _), head in zip(tried, said, strict=True)
            if head not in named.refusals and not self._is_refusal(head)
        ]
        each = [(f, f.replace("WORD", named.absent)) for form in topics for f in _fill_each(form, names)]
        taking = self._taking(each, named, ask)
        return [form.replace("WORD", word) for form in taking[:_MOST_TOPICS] for word in self._nouns]

    def spoken_verbs(self, names: Sequence[str], ask: Ask) -> list[str]:
        """Words that are no verbs of the grammar and yet stand before a name like one, as some stories take spells,
        with every name."""
        if not names:
            return []
        words = self._no_verbs
        said = [head_of(answer) for answer in ask([(f"{word} {names[0]}", word) for word in words])]
        times = Counter(said)
        taken = [
            word
            for word, head in zip(words, said, strict=True)
            if times[head] < _SPELLS and head and not self._is_refusal(head)
        ]
        return [f"{word} {name}" for word in taken for name in names]

    def pushed_aside(self, names: Sequence[str]) -> list[str]:
        """Every name pushed to every side, where the grammar has a form for that."""
        if _PUSH_ASIDE not in self._two:
            return []
        return [_PUSH_ASIDE.replace("OBJ", name, 1).replace("OBJ", side) for name in names for side in SIDES]

    def self_commands(self, names: Sequence[str]) -> list[str]:
        """Templates in which something is put on the player: with other forms he would mostly kill himself."""
        forms = [form.split("OBJ", 2) for form in self._two if form.split()[-2] in _UPON]
        return [f"{a}{name}{b}{_ONESELF}{c}" for a, b, c in forms for name in names]

    def find_persons(self, names: Sequence[str], ask: Ask) -> list[str]:
        """Those of the names that can be talked to, each person once."""
        # A verb before a comma is a command of its own.
        named = [n for n in names if n[: self._dictionary.length] not in self._unwanted | self._verbs]
        said = [head_of(answer) for answer in ask([(f"{name}, wait", name) for name in named])]
        times = Counter(said)
        persons = {
            head.replace(WORD_MARK, name): name
            for name, head in reversed(list(zip(named, said, strict=True)))
            if head and listens(head) and not self._is_refusal(head) and times[head] < _REFUSED_BY
        }
        # Some stories have words for everybody who talks to a thing.
        return sorted(persons.values(), key=lambda person: (not self._obeys(person, ask), person))[:_MOST_PERSONS]

    def _obeys(self, person: str, ask: Ask) -> bool:
        """Whether a person has different answers to different orders."""
        said = ask([(f"{person}, {order}", person) for order in _TRIED_ORDERS])
        return len(set(map(head_of, said))) > 1

    def talk(self, persons: Sequence[str], names: Sequence[str], named: Named, ask: Ask) -> Iterator[str]:
        """Orders to persons, and every word as a topic."""
        for person in persons:
            if self._obeys(person, ask):
                yield from self._orders(person, names, ask)
        forms = self._known(_TALK) if named.absent else []
        asked = [(_fill_talk(form, person, named.absent), named.absent) for form in forms for person in persons]
        heads = iter([head_of(answer) for answer in ask(asked)])
        for form in forms:
            for person in persons:
                if not self._is_refusal(next(heads)):
                    yield from (_fill_talk(form, person, word) for word in self._nouns)

    def _orders(self, person: str, names: Sequence[str], ask: Ask) -> Iterator[str]:
        """Orders to a person about what is here, and about what is where the person is."""
        yield from (f"{person}, {order}" for order in self._plain)
        yield from self._errands(person, ask)
        # What is to be had may be out of sight, for the person too.
        yield from (f"{person}, {verb} {word}" for verb in self._known(_ERRANDS) for word in self._nouns)
        said = [head_of(answer) for answer in ask([(f"{person}, examine {word}", word) for word in self._nouns])]
        usual = Counter(said).most_common(1)[0][0] if said else ""
        there = {
            word: (head.replace(WORD_MARK, word),)
            for word, head in zip(self._nouns, said, strict=True)
            if head not in (usual, "") and not self._is_refusal(head)
        }
        own = [self._best(group, ()) for group in self._group(there)]
        others = dict.fromkeys((*own[:_MOST_ORDERED], *(name for name in names if name != person)))
        objects = [*list(others)[: 2 * _MOST_ORDERED], _ONESELF]
        yield from (f"{person}, {form.replace('OBJ', name)}" for form in self._one for name in objects)
        yield from (f"{person}, give {name} to me" for name in objects)
        yield from self._with_numbers([f"{person}, {form}" for form in _NUMBERED], objects, "", ask)

    def _errands(self, person: str, ask: Ask) -> Iterator[str]:
        """Orders to go somewhere and do something there, where one cannot be heard any more."""
        ways = [order for order in self._plain if order in _DIRECTIONS]
        said = [head_of(answer) for answer in ask([(f"{person}, {way}", person) for way in ways])]
        times = Counter(said)
        going = [way for way, head in zip(ways, said, strict=True) if times[head] == min(times.values())]
        going = [way for way, head in zip(ways, said, strict=True) if way in going and not self._is_refusal(head)]
        for way in going[:_MOST_WAYS]:
            yield from (f"{person}, {way} and {other}" for other in ways)
            yield from (f"{person}, {way} and {verb} {word}" for verb in self._known(_ERRANDS) for word in self._nouns)

    def pairs(self, new: Sequence[str], names: Sequence[str]) -> Iterator[str]:
        """Every template for two objects with a newly found name in one place and any name in the other."""
        both = list(dict.fromkeys((*names, *new)))
        for form in self._two:
            before, between, after = form.split("OBJ", 2)
            for one in new:
                for other in both:
                    if one != other:
                        yield f"{before}{one}{between}{other}{after}"
                        if other not in new:
                            yield f"{before}{other}{between}{one}{after}"

    def is_real(self, command: str, answer: str) -> bool:
        """Whether what a command does is its own work, by what the story answers: a word that is not understood does
        nothing, and one to which the parser adds an object leaves open which."""
        head = head_of(answer)
        if " " not in command and _ASIDE.match(head):
            return False
        return not self._is_refusal(head)

    def number_commands(self, names: Sequence[str], text: str, ask: Ask) -> list[str]:
        """Commands with numbers, where the parser takes one."""
        return self._with_numbers([*self._known(_NUMBERED), *self._known(_TYPED)], names, text, ask)

    def _with_numbers(self, forms: Sequence[str], names: Sequence[str], text: str, ask: Ask) -> list[str]:
        """The forms that take a number, with those that the text has (and the next ones: the year before), the story's
        own, and small ones."""
        filled = [
            form.replace("OBJ", name) for form in forms for name in (names if "OBJ" in form else names[:1] or ("",))
        ]
        said = ask([(form.format(_TRIED_NUMBER), _TRIED_NUMBER) for form in filled])
        taking = [form for form, answer in zip(filled, said, strict=True) if not self._is_refusal(head_of(answer))]
        read = sorted(set(map(int, _NUMBER.findall(text))))[:_MOST_NUMBERS]
        told = [str(n) for number in read for n in ((number, number - 1, number + 1) if number > 12 else (number,))]
        numbers = list(dict.fromkeys((*told, *map(str, _ranged(text)), *self._numbers[:_MOST_NUMBERS], *_SMALL)))
        return [form.format(number) for form in taking for number in numbers]

    def free_commands(self, present: Present) -> list[str]:
        """Forms that take any word, with the words by which the place is called: those are the first that come to
        mind."""
        title = present.text.strip().split("\n", 1)[0].lower()
        words = [w for w in _SPELLED.findall(title) if self._dictionary.knows(w) and w not in self._unwanted]
        return [form.replace("OBJ", word) for form in present.open_forms for word in words[:_MOST_FREE]]


def _ranged(text: str) -> list[int]:
    """The numbers of the ranges that a text speaks of."""
    ends = [[int(_SPELLED_NUMBERS.get(end.lower(), end)) for end in pair] for pair in _RANGE.findall(text)]
    return [n for first, last in ends if last - first < _MOST_IN_RANGE for n in range(first, last + 1)]


def _halves(form: str) -> list[str]:
    """A form for two objects with each of them in turn replaced by WORD, the other one by OBJ."""
    before, between, after = form.split("OBJ", 2)
    return [f"{before}WORD{between}OBJ{after}", f"{before}OBJ{between}WORD{after}"]


def _fill_each(form: str, names: Sequence[str]) -> list[str]:
    return [form.replace("OBJ", name) for name in names]


def _fill_talk(form: str, person: str, topic: str) -> str:
    """A form of talk with a person and a topic in their places."""
    first, second = (topic, person) if form.endswith("to OBJ") else (person, topic)
    return form.replace("OBJ", first, 1).replace("OBJ", second, 1)


class CommandTrial(Protocol):
    """One canonical state in which commands can be tried."""

    def ask(self, commands: Sequence[tuple[str, str]]) -> list[str]:
        """What the story says to commands; see `Ask`."""

    def effects(self, commands: Sequence[str]) -> npt.NDArray[np.uint64]:
        """A number for what each command does to the world: equal for equal effects, 0 for none."""

    def frequency(self, command: str) -> int:
        """How usual the command's verb is."""

    def is_fatal(self, command: str) -> bool:
        """Whether the command ends the game without winning it."""


def find_added_actions(grammar: WholeGrammar, present: Present, known: Sequence[str], trial: CommandTrial) -> list[str]:
    """One command for each change that no `known` action brings about and some word of the dictionary does."""
    named = grammar.find_names(present, trial.ask)
    names = (*present.names, *named.likely)
    persons = grammar.find_persons(names, trial.ask)
    anything = [
        *grammar.open_commands(named, trial.ask),
        *grammar.topic_commands(names, named, trial.ask),
        *grammar.talk(persons, names, named, trial.ask),
    ]
    tried = [
        *(form.replace("OBJ", name) for form in grammar.one_object for name in named.names),
        *grammar.single_words,
        *anything,
        *grammar.spoken_verbs(names, trial.ask),
        *grammar.self_commands(names),
        *grammar.pushed_aside(named.names),
        *grammar.free_commands(present),
        *grammar.number_commands(names, present.text, trial.ask),
    ]
    before = [*known, *_PASSING]
    effects = trial.effects([*before, *tried])
    times = Counter(form for command in anything[::_SAMPLED] for form in _forms(command))
    open_forms = {form for form, count in times.items() if count > 1}
    free = frozenset(form.replace("OBJ", "*") for form in present.open_forms)
    open_forms |= free
    found = _Found({0, *effects[: len(before)].tolist()}, open_forms)
    found.add(tried, effects[len(before) :])
    working = {command.rsplit(" ", 1)[-1] for command in found.commands}
    own = grammar.find_own(names, named, trial.ask)
    paired = [*own, *named.likely, *(name for name in named.names if name in working and name not in named.likely)]
    two = [c for c in grammar.pairs(paired[:_MOST_PAIRED], names) if not free or free.isdisjoint(_forms(c))]
    if two:
        found.add(two, trial.effects(two))
    most = max(_MOST_ADDED, _FULL_LIST - len(known))
    return found.choose(grammar, present.text, trial, most)


class _Found:
    """Commands by what they newly do."""

    def __init__(self, seen: Collection[int], open_forms: Collection[str] = ()) -> None:
        """`seen` are effects that are no news; `open_forms` were tried with every word."""
        self._seen = np.array(sorted(seen), dtype=np.uint64)
        self._by_effect: dict[int, list[str]] = {}
        self._open = open_forms

    def add(self, commands: Sequence[str], effects: npt.NDArray[np.uint64]) -> None:
        for i in np.flatnonzero(~np.isin(effects, self._seen)).tolist():
            self._by_effect.setdefault(int(effects[i]), []).append(commands[i])

    @property
    def commands(self) -> list[str]:
        return [command for commands in self._by_effect.values() for command in commands]

    def choose(self, grammar: WholeGrammar, text: str, trial: CommandTrial, most: int) -> list[str]:
        """The most natural command for each effect, the likeliest effects first, and no more than there may be."""
        best = [_most_natural(commands, trial) for commands in self._by_effect.values()]
        forms = Counter(form for command in best for form in _forms(command))
        sound = [c for c in best if all(forms[form] < self._careless(form) for form in _forms(c))]
        answers = trial.ask([(command, command) for command in sound])
        real = [command for command, answer in zip(sound, answers, strict=True) if grammar.is_real(command, answer)]
        real = [c for c in real if not (_ONESELF in c.split() and trial.is_fatal(c))]
        # Numbers that stand in the text, and the next ones, before those that were only guessed.
        told = {n for number in map(int, _NUMBER.findall(text)) for n in (number - 1, number, number + 1)}
        ranged = set(_ranged(text))
        real.sort(key=lambda c: not _numbers_in(c) <= told | ranged)
        # Where a text says from where to where a dial goes, one that has all of it does not crowd out other things.
        dialled = [command for command in real if not _numbers_in(command).isdisjoint(ranged)]
        others = [command for command in real if command not in dialled][:most]
        return [grammar.spell_out(command, text) for command in (*others, *dialled[:_MOST_IN_RANGE])]

    def _careless(self, form: str) -> int:
        """From how many different effects on a form does not count: a story that lets anything be poured into the
        water, or that moves whatever is mentioned. Where a thousand words were tried, a few that do something else are
        what one has to find."""
        return _CARELESS_PAIRS if len(form.split()) > 3 and form not in self._open else _CARELESS_NAMES


def _forms(command: str) -> list[str]:
    """The command with each of its words but the first left open; numbers are meant to differ."""
    words = command.split()
    return [" ".join((*words[:i], "*", *words[i + 1 :])) for i in range(1, len(words)) if not words[i].isdigit()]


def _numbers_in(command: str) -> set[int]:
    return {int(word) for word in command.split() if word.isdigit()}


def _most_natural(commands: Sequence[str], trial: CommandTrial) -> str:
    """The one of several commands with the same effect that people would type: of the thing for which most of them are,
    since those are about it."""
    times = Counter(command.split()[-1] for command in commands if " " in command)
    return min(commands, key=lambda c: (_strangeness(c, trial.frequency(c)), -times[c.split()[-1]], len(c), c))


def _strangeness(command: str, frequency: int) -> tuple[bool, bool, int, int]:
    """What the most natural of several commands has the least of: a word by itself leaves open what it is done to, and
    a verb that is also the thing's name is confusing; then usual verbs come first, then short commands."""
    words = command.split()
    return len(words) == 1, len(words) > 1 and words[0] == words[-1], -frequency, len(words)
