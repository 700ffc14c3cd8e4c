"""Commands to persons: orders and topics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from xtx.games.actions.number_commands import NUMBERED, NumberCommands
from xtx.games.actions.present_names import Named, NameFinder
from xtx.games.actions.story_words import ONESELF, WORD_MARK, Ask, StoryWords, cut_to_first_line

_TALK = ("ask OBJ about OBJ", "tell OBJ about OBJ", "ask OBJ for OBJ", "answer OBJ to OBJ", "say OBJ to OBJ")
"""Forms for a person and a topic, or a topic and a person; lists of templates leave them out."""
_TRIED_ORDERS = ("wait", "north", "take all")
"""Orders by which it is seen whether a person obeys any."""
_DIRECTIONS = frozenset(
    ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out",
     "ne", "nw", "se", "sw"),
)  # fmt: skip
"""The last four for stories that have no longer words for them."""
_ERRANDS = ("push", "take", "open", "pull")
"""What a person can be told to do with what is out of sight."""
_MOST_WAYS = 4
"""Ways, at most, that a person is sent with something to do."""
_MOST_PERSONS = 2
_MOST_ORDERED = 16
"""Names, at most, that stand in orders to a person."""
_REFUSALS = re.compile(
    r"can't talk|can't see|don't (know|see)|not (a verb|understand)|didn't understand|animate|no reply", re.I
)
_REFUSED_BY = 3
"""An answer that so many persons, or words taken for persons, give to an order is a refusal."""


class PersonCommands:
    """What can be said to the persons of one story."""

    def __init__(self, words: StoryWords, names: NameFinder, numbers: NumberCommands) -> None:
        self._words = words
        self._names = names
        self._numbers = numbers

    def find(self, names: Sequence[str], ask: Ask) -> list[str]:
        """Those of the names that can be talked to, each person once."""
        # A verb before a comma is a command of its own.
        named = [n for n in names if n[: self._words.dictionary.length] not in self._words.unwanted | self._words.verbs]
        said = [cut_to_first_line(answer) for answer in ask([(f"{name}, wait", name) for name in named])]
        times = Counter(said)
        persons = {
            head.replace(WORD_MARK, name): name
            for name, head in reversed(list(zip(named, said, strict=True)))
            if head and not _REFUSALS.search(head) and not self._words.is_refusal(head) and times[head] < _REFUSED_BY
        }
        # Some stories have words for everybody who talks to a thing.
        return sorted(persons.values(), key=lambda person: (not self._accepts_orders(person, ask), person))[
            :_MOST_PERSONS
        ]

    def _accepts_orders(self, person: str, ask: Ask) -> bool:
        """Whether a person has different answers to different orders."""
        said = ask([(f"{person}, {order}", person) for order in _TRIED_ORDERS])
        return len(set(map(cut_to_first_line, said))) > 1

    def talk(
        self, persons: Sequence[str], names: Sequence[str], named: Named, ask: Ask, in_sight: Collection[str] = ()
    ) -> Iterator[str]:
        """Orders to persons, and every word as a topic. `in_sight` are all words for the things in sight."""
        for person in persons:
            if self._accepts_orders(person, ask):
                yield from self._orders(person, names, ask, in_sight)
        forms = self._words.known(_TALK) if named.absent else []
        asked = [(_fill_talk(form, person, named.absent), named.absent) for form in forms for person in persons]
        heads = iter([cut_to_first_line(answer) for answer in ask(asked)])
        for form in forms:
            for person in persons:
                if not self._words.is_refusal(next(heads)):
                    yield from (_fill_talk(form, person, word) for word in self._words.nouns)

    def _orders(self, person: str, names: Sequence[str], ask: Ask, in_sight: Collection[str]) -> Iterator[str]:
        """Orders to a person about what is here, and about what is where the person is."""
        yield from (f"{person}, {order}" for order in self._words.plain)
        yield from self._errands(person, ask, in_sight)
        # What is to be had may be out of sight, for the person too.
        yield from (f"{person}, {verb} {word}" for verb in self._words.known(_ERRANDS) for word in self._words.nouns)
        said = [
            cut_to_first_line(answer)
            for answer in ask([(f"{person}, examine {word}", word) for word in self._words.nouns])
        ]
        usual = Counter(said).most_common(1)[0][0] if said else ""
        there = {
            word: (head.replace(WORD_MARK, word),)
            for word, head in zip(self._words.nouns, said, strict=True)
            if head not in (usual, "") and not self._words.is_refusal(head)
        }
        own = [self._names.choose_best(group, ()) for group in self._names.group(there)]
        others = dict.fromkeys((*own[:_MOST_ORDERED], *(name for name in names if name != person)))
        objects = [*list(others)[: 2 * _MOST_ORDERED], ONESELF]
        yield from (f"{person}, {form.replace('OBJ', name)}" for form in self._words.one_object for name in objects)
        yield from (f"{person}, give {name} to me" for name in objects)
        yield from self._numbers.fill([f"{person}, {form}" for form in NUMBERED], objects, "", ask)

    def _errands(self, person: str, ask: Ask, in_sight: Collection[str]) -> Iterator[str]:
        """Orders to go somewhere and do something there, where one cannot be heard any more, with what is not here."""
        known = {word[: self._words.dictionary.length] for word in in_sight}
        ways = [order for order in self._words.plain if order in _DIRECTIONS]
        said = [cut_to_first_line(answer) for answer in ask([(f"{person}, {way}", person) for way in ways])]
        times = Counter(said)
        going = [way for way, head in zip(ways, said, strict=True) if times[head] == min(times.values())]
        going = [way for way, head in zip(ways, said, strict=True) if way in going and not self._words.is_refusal(head)]
        for way in going[:_MOST_WAYS]:
            yield from (f"{person}, {way} and {other}" for other in ways)
            yield from (
                f"{person}, {way} and {verb} {word}"
                for verb in self._words.known(_ERRANDS)
                for word in self._words.nouns
                if word not in known
            )


def _fill_talk(form: str, person: str, topic: str) -> str:
    """A form of talk with a person and a topic in their places."""
    first, second = (topic, person) if form.endswith("to OBJ") else (person, topic)
    return form.replace("OBJ", first, 1).replace("OBJ", second, 1)
