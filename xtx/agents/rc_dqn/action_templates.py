"""Turns actions into questions about a text: splits a command into a template and up to two objects, by words alone.

Rule. The first word of an action is its verb and belongs to the template, and so do particles: prepositions, `all`
and the like. The other words are the names of things. Names that stand side by side in the text in the same order are
one object (`put brass lantern in case`), others are an object each (`give attendant card`). An object that occurs
nowhere in the text cannot be pointed at; its words stay in the question, so that `take lamp` and `take rope` are
different questions in the dark. The same holds for a third object.

Only the first words of a long text are read. An object that is mentioned behind them counts as standing at the text's
end.

A story may know only the first letters of its words (`exting`, `frobozzica`), so a word of an action also stands for
longer words in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xtx.text.text_table import split

OBJECT = "<obj>"
"""Placeholder of an object in a template."""

PARTICLES = frozenset((
    "about", "above", "across", "after", "against", "all", "along", "and", "any", "around", "as", "aside", "at",
    "away", "back", "before", "behind", "below", "beneath", "beside", "between", "beyond", "but", "by", "down",
    "except", "for", "forward", "from", "in", "inside", "into", "near", "of", "off", "on", "onto", "out", "outside",
    "over", "past", "through", "to", "toward", "towards", "under", "underneath", "up", "upon", "using", "via",
    "with", "within", "without", "the", "a", "an",
))  # fmt: skip
"""Words of an action that are not part of its objects."""
SHORTEST_CUT = 6
"""Letters of the shortest word that may stand for longer ones: the oldest stories store six letters of a word."""


@dataclass(frozen=True, slots=True)
class TemplateQuestion:
    """An action as a question about a text."""

    template: str
    """The action with a placeholder for every object; exploration counts how often each template was used."""
    words: tuple[str, ...]
    """The question: the template's words, but with the names of the objects that the text does not mention."""
    objects: tuple[str, ...]
    """The names of all objects of the action, whether the text mentions them or not."""
    first: tuple[int, ...]
    """Positions of the first object in the text; empty if there is no object (`objects` is empty) or no mention."""
    second: tuple[int, ...]
    """Positions of the second object, likewise."""


MARK = "|"
"""Separator of the segments of a text: look, inventory, narration, and the observations of a history."""


def find_object_words(action: str) -> list[str]:
    """Return the words of an action that name objects, whatever the text."""
    return [word for word in split(action)[1:] if word not in PARTICLES]


class Passage:
    """A text with an index of its words, in which objects are looked up. Positions count words from 0."""

    def __init__(self, text: str, longest: int) -> None:
        """`longest`: number of words that are read; a word behind them is found at the position `longest`."""
        words = split(text)
        self.words = words[:longest]
        self._places: dict[str, list[int]] = {}
        for place, word in enumerate(words):
            self._places.setdefault(word, []).append(place)

    def find(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the positions of the last of these words wherever they stand side by side in this order."""
        end = len(self.words)
        return tuple(min(place, end) for place in self._find_rows(names))

    def _find_rows(self, names: Sequence[str]) -> list[int]:
        places = self._find(names[0])
        for offset, name in enumerate(names[1:], start=1):
            following = set(self._find(name))
            places = [place for place in places if place + offset in following]
        return [place + len(names) - 1 for place in places]

    def _find(self, name: str) -> list[int]:
        places = self._places.get(name)
        if places is None:
            cut = len(name) >= SHORTEST_CUT
            longer = (at for word, at in self._places.items() if word.startswith(name)) if cut else ()
            places = self._places[name] = sorted(place for at in longer for place in at) if cut else []
        return places

    def make_question(self, action: str) -> TemplateQuestion:
        """Turn an action into a question about this text."""
        words = split(action)
        template, question = words[:1], words[:1]
        objects: list[str] = []
        slots: list[tuple[int, ...]] = []
        start = 1
        while start < len(words):
            if words[start] in PARTICLES:
                template.append(words[start])
                question.append(words[start])
                start += 1
                continue
            end = self._end_of_object(words, start)
            name = words[start:end]
            slots.append(self.find(name))
            objects.append(" ".join(name))
            template.append(OBJECT)
            question.extend([OBJECT] if slots[-1] and len(slots) <= 2 else name)
            start = end
        first, second, *_ = [*slots, (), ()]
        return TemplateQuestion(" ".join(template), tuple(question), tuple(objects), first, second)

    def _end_of_object(self, words: Sequence[str], start: int) -> int:
        """Return the index behind the longest row of names from `start` that stands in the text; at least `start` +
        1."""
        end = start + 1
        while end < len(words) and words[end] not in PARTICLES:
            end += 1
        while end > start + 1 and not self.find(words[start:end]):
            end -= 1
        return end
