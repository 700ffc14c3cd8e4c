"""The things that can be named in a command: words that the game can examine, merged where they name the same thing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from xtx.games.actions.story_words import QUANTITIES
from xtx.games.emulator.frotz import Emulator, Snapshot, is_recognized
from xtx.games.zmachine.story_memory import Dictionary

_WORD = re.compile(r"[a-z0-9][a-z0-9'-]*")

_PAIR = re.compile(r"\b(?=([a-z][a-z'-]*)[\"']? [\"']?([a-z][a-z'-]*))")
"""Two words in a row, with no stop between them but perhaps in quotes."""

_PLURAL = re.compile(r"\b([a-z]+) and ([a-z]+) ([a-z]+)s\b")

_ASIDE = re.compile(r"^(?:\([^)\n]*\)|\[[^\]\n]*\])\s*")
"""What a parser says when it guesses which thing is meant, as in "(the gull)"; in brackets, also when it complains."""

_COMPLAINTS = re.compile(
    r"I only understood you as far as|I didn't understand|You can't use multiple objects|You excepted something"
    r"|You seem to have said too little|I beg your pardon|There is no verb|That's not a verb|Nothing to do!"
    r"|You can't see (any|that|him|her|it|them)\b|You don't see (any|that)\b|There's none of that here"
    r"|That noun did not make sense|Which (do you mean|one)|You can only do that to something animate"
    r"|You can't use multiple|What do you want to|I don't know the word|That's not something you need",
    re.IGNORECASE,
)
"""What parsers begin to say when a word names nothing here, beyond Jericho's own list."""

_USUAL = re.compile(
    r"nothing (special|more|unusual|unexpected|of interest)|\bWhich \w+ do you mean|^There is no\b|multiple objects|"
    r"[Nn]oun error|can't see",
    re.IGNORECASE,
)
"""What games say of things that their authors gave no thought."""

_UNTOLD = ("door",)
"""What may be where nothing speaks of it: many an exit turns out to have one."""

_DESCRIBED = 16
"""So many things at most are taken from descriptions of other things."""

_DIRECTIONS = ("north", "up", "down", "out")

WAYS = frozenset(
    ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out",
     "n", "s", "e", "w", "ne", "nw", "se", "sw", "u", "d"),
)  # fmt: skip

_COMPASS = WAYS | {"above", "below", "floor", "ceiling", "ground"}

NOT_OBJECTS = frozenset(
    ("a", "an", "the", "this", "that", "these", "those", "some", "any", "each", "every", "another", "other", "others",
     "all", "both", "everything", "it", "them", "him", "her", "me", "myself", "yourself", "self", "i", "you", "your",
     "my", "his", "its", "of", "and", "or", "but", "in", "on", "at", "to", "from", "with", "by", "for", "is", "are"),
)  # fmt: skip
"""Words that parsers take for a part of a name, or for whatever is at hand."""

NO_PART = NOT_OBJECTS | _COMPASS
"""Words that are no part of a thing's name of two words."""


@dataclass(frozen=True)
class Thing:
    """Something that can be named in a command."""

    name: str
    aliases: tuple[str, ...]
    answer: str = ""
    """What the game says when it is examined."""
    told: bool = False
    """Whether it cannot be seen itself, and only another thing's description speaks of it."""


@lru_cache(maxsize=4096)  # a search reads the same answers again and again
def understood_answer(answer: str) -> str:
    """The answer to a question; nothing if the game did not know what was meant."""
    answer = _ASIDE.sub("", answer)
    return "" if not is_recognized(answer) or _COMPLAINTS.match(answer) else answer


@lru_cache(maxsize=4096)  # it sees the same descriptions and names again and again, too
def split_words(text: str) -> tuple[str, ...]:
    """The words of a text, in small letters."""
    return tuple(_WORD.findall(text.lower()))


def distinguish_things(words: Sequence[str], owners: dict[str, set[int]], answer: str) -> list[Thing]:
    """The things behind words that examine alike: one, unless their names say that they are different objects
    ("nothing special about the button", whether red, yellow or blue). Better words come first."""
    objects = {o for word in words for o in owners.get(word, ())}
    if len(objects) > 1:
        names = {o: [w for w in words if owners.get(w) == {o}] for o in sorted(objects)}
        if sum(bool(own) for own in names.values()) > 1:
            return [Thing(own[0], tuple(own), answer) for own in names.values() if own]
    return [Thing(words[0], tuple(words), answer)]


def name_clearly(thing: Thing) -> Thing:
    """The thing with a name that is no word for a quantity, if it has such a name."""
    clear = [alias for alias in thing.aliases if alias not in QUANTITIES]
    return thing if thing.name not in QUANTITIES or not clear else replace(thing, name=clear[0])


def _split(thing: Thing, firsts: Collection[str]) -> list[Thing]:
    """The thing, or several if some of its names stand before the same noun: the chasm cube and the cave cube."""
    own = [name for name in thing.aliases if name in firsts]
    if len(own) < 2:
        return [thing]
    return [Thing(name, (name,), thing.answer) for name in own]


def _pairs(dictionary: Dictionary, text: str) -> tuple[tuple[str, str], ...]:
    """The words that stand beside each other in a line and may name a thing together."""
    text = text.lower()
    pairs = dict.fromkeys(_PAIR.findall(text))
    pairs |= {(first, noun[:-1]): None for first, noun in pairs if noun.endswith("s")}
    for first, second, noun in _PLURAL.findall(text):  # "stone and wooden doors"
        pairs |= {(first, noun): None, (second, noun): None}
    return tuple(pair for pair in pairs if all(w not in NO_PART and dictionary.can_name(w) for w in pair))


def _add_two_word_names(things: list[Thing], examined: Mapping[tuple[str, str], str]) -> list[Thing]:
    """The things, and those that only two words name: the stone door beside the wooden door, or beside a staff
    that is wooden too. `examined` is what the game says of pairs of words."""
    alone = {alias: t.answer for t in things for alias in t.aliases}
    found: dict[str, dict[str, str]] = {}
    for (first, noun), answer in examined.items():
        if answer:
            found.setdefault(noun, {})[first] = answer
    for noun, answers in sorted(found.items()):
        if len(answers) > 1:
            things = [part for t in things for part in _split(t, answers)]
            new = [first for first, answer in sorted(answers.items()) if alone.get(first) != answer]
            things = things + [Thing(f"{f} {noun}", (f"{f} {noun}",), answers[f]) for f in new]
    return things


def names_around(emulator: Emulator, state: Snapshot) -> Sequence[tuple[int, str]]:
    """Numbers and names of the objects in the player's room and on the player."""
    tree = emulator.tree
    links = tree.read_links(np.frombuffer(state.ram, np.uint8))
    player = emulator.player
    if not 0 < player <= tree.count:
        return ()
    room = int(links[player, 0]) or player
    return [(o, tree.names[o]) for o in tree.list_below(links, room) if o != player]


class ThingFinder:
    """Finds what can be named in the states of one story."""

    def __init__(
        self, emulator: Emulator, dictionary: Dictionary, answers: Callable[[Snapshot, Sequence[str]], Sequence[str]]
    ) -> None:
        """`answers` gives what the story says to each of some commands in a state."""
        self._emulator = emulator
        self._dictionary = dictionary
        self._answers = answers
        self._pairs = lru_cache(maxsize=4096)(partial(_pairs, dictionary))

    def find(self, state: Snapshot, look: str, inventory: str) -> list[Thing]:
        """What can be named here: words that the game can examine, merged where they name the same thing."""
        ranks: dict[str, int] = {}
        owners: dict[str, set[int]] = {}
        around = names_around(self._emulator, state)
        for number, name in around:
            parts = split_words(name)
            for i, word in enumerate(parts):
                # The last word of an object's name is its noun; those before it are adjectives.
                ranks[word] = max(ranks.get(word, 0), 3 if i == len(parts) - 1 else 1)
                owners.setdefault(word, set()).add(number)
        for word in (*split_words(look), *split_words(inventory)):
            ranks.setdefault(word, 2)
        named = [
            word
            for word in sorted(ranks, key=lambda w: (-ranks[w], len(w), w))
            if word not in NOT_OBJECTS and word not in WAYS and self._dictionary.can_name(word)
        ]
        texts = (look, inventory, *(name for _, name in around))
        pairs = list(dict.fromkeys(pair for text in texts for pair in self._pairs(text)))
        # In one go: to ask at all takes as long as some questions do.
        examined = self._examined(state, (*_DIRECTIONS, *named, *map(" ".join, pairs)))
        # What is said of several directions is said of no thing.
        directions = Counter(examined[: len(_DIRECTIONS)])
        nowhere = {answer for answer, times in directions.items() if times > 1}
        answers: dict[str, list[str]] = {}
        for word, answer in zip(named, examined[len(_DIRECTIONS) : -len(pairs) or None], strict=True):
            if answer and answer not in nowhere:
                answers.setdefault(answer, []).append(word)
        things = [thing for answer, words in answers.items() for thing in distinguish_things(words, owners, answer)]
        things += self._described(state, answers, {*ranks, *NOT_OBJECTS, *_COMPASS}, nowhere)
        things = _add_two_word_names(things, dict(zip(pairs, examined[len(examined) - len(pairs) :], strict=True)))
        return sorted(things, key=lambda t: t.name)

    def _described(
        self, state: Snapshot, answers: Mapping[str, Sequence[str]], asked: Collection[str], nowhere: Collection[str]
    ) -> list[Thing]:
        """The things that only the descriptions of other things speak of: the spells in a book, the acorn in a crack.
        Those of which the game has nothing of their own to say are left out: they are everywhere."""
        words = dict.fromkeys((*_UNTOLD, *(word for answer in answers for word in split_words(answer))))
        new = [word for word in words if word not in asked and self._dictionary.can_name(word)]
        found: dict[str, list[str]] = {}
        for word, answer in zip(new, self._examined(state, new), strict=True):
            if answer and answer not in nowhere and answer not in answers and not _USUAL.search(answer):
                found.setdefault(answer, []).append(word)
        things = [Thing(words[0], tuple(words), answer, told=True) for answer, words in found.items()]
        return things[:_DESCRIBED]

    def _examined(self, state: Snapshot, names: Sequence[str]) -> list[str]:
        """The answer to examining each, or nothing if the game does not know what is meant."""
        verb = self._emulator.bindings.translate("examine")
        return [understood_answer(answer) for answer in self._answers(state, [f"{verb} {name}" for name in names])]
