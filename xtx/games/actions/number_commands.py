"""Commands with numbers: those that texts show, the next ones, the story's own, and small ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from xtx.games.actions.story_words import ONESELF, SPELLED, Ask, StoryWords, cut_to_first_line

NUMBERED = ("set OBJ to {}", "turn OBJ to {}")
_TYPED = ("dial {}", "type {}", "enter {}", "press {}", "push {}", "say {}", "withdraw {}", "pay {}")
_TRIED_NUMBER = "7"
_FIRST = "1"
"""The number by which it is seen whether a name takes one behind it."""
_NAMED = ("examine {} {}", "take {} {}")
_MOST_ALIKE = 6
"""An answer that so many words with a number get is a refusal."""
_AT_ONCE = 8
"""Where a verb makes more different changes than this at a time, they are taken for what the parser remembers."""
_SMALL = tuple(map(str, range(13)))
_COUNTED = re.compile(r"\b([a-z]+) \d{1,5}\b")
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
MOST_IN_RANGE = 101
"""Longest range of which all numbers are tried, and offered beside other additions."""
_MOST_NUMBERS = 8
"""Numbers of the text, at most, that are tried."""


class NumberCommands:
    """Fills the forms of one story that take a number."""

    def __init__(self, words: StoryWords, numbers: Iterable[int] = ()) -> None:
        """`numbers` are the story's own, beside those that the text shows."""
        self._words = words
        self._numbers = tuple(map(str, numbers))
        self.own = frozenset(map(int, self._numbers))

    def commands(self, names: Sequence[str], text: str, ask: Ask) -> list[str]:
        """Commands with numbers, where the parser takes one."""
        return self.fill([*self._words.known(NUMBERED), *self._words.known(_TYPED)], names, text, ask)

    def fill(self, forms: Sequence[str], names: Sequence[str], text: str, ask: Ask) -> list[str]:
        """The forms that take a number, with those that the text has (and the next ones: the year before), the story's
        own, and small ones."""
        filled = [
            form.replace("OBJ", name) for form in forms for name in (names if "OBJ" in form else names[:1] or ("",))
        ]
        said = ask([(form.format(_TRIED_NUMBER), _TRIED_NUMBER) for form in filled])
        taking = [
            form
            for form, answer in zip(filled, said, strict=True)
            if not self._words.is_refusal(cut_to_first_line(answer))
        ]
        read = sorted(set(map(int, _NUMBER.findall(text))))[:_MOST_NUMBERS]
        told = [str(n) for number in read for n in ((number, number - 1, number + 1) if number > 12 else (number,))]
        numbers = list(dict.fromkeys((*told, *map(str, find_ranged(text)), *self._numbers, *_SMALL)))
        return [form.format(number) for form in taking for number in numbers]

    def numbered_names(self, text: str, ask: Ask) -> list[tuple[list[str], bool]]:
        """Words with numbers behind them that tell which of several things is meant: ticket 2306, where one can see
        tickets. For each word some lists: of the numbers that the text or the story has, and of small ones, which are
        guessed."""
        length = self._words.dictionary.length
        several = (word.removesuffix("s") for word in SPELLED.findall(text.lower()) if word.endswith("s"))
        nouns = {word[:length] for word in (*several, *_COUNTED.findall(text.lower()))}
        words = sorted(nouns & self._words.dictionary.nouns - self._words.unwanted)
        asked = [(form, word) for form in self._words.known(_NAMED) for word in words]
        heads = self._heads([(form.format(word, _FIRST), word) for form, word in asked], ask)
        times = Counter(head for head, _ in {(head, word) for head, (_, word) in zip(heads, asked, strict=True)})
        taken = [
            (one, head)
            for one, head in zip(asked, heads, strict=True)
            if head and times[head] < _MOST_ALIKE and not self._words.is_refusal(head)
        ]
        # What takes any word behind a name says nothing of numbers.
        others = self._heads([(form.format(word, ONESELF), word) for (form, word), _ in taken], ask)
        taking = dict.fromkeys(word for ((_, word), head), other in zip(taken, others, strict=True) if head != other)
        told = tuple(dict.fromkeys((*_NUMBER.findall(text)[:_MOST_NUMBERS], *self._numbers)))
        parts = [(told[i : i + _AT_ONCE], False) for i in range(0, len(told), _AT_ONCE)]
        parts.append((_SMALL[1 : 1 + _AT_ONCE], True))
        return [([f"{word} {number}" for number in part], guessed) for word in taking for part, guessed in parts]

    @staticmethod
    def _heads(commands: Sequence[tuple[str, str]], ask: Ask) -> list[str]:
        return [cut_to_first_line(answer) for answer in ask(commands)]


def find_ranged(text: str) -> list[int]:
    """The numbers of the ranges that a text speaks of."""
    ends = [[int(_SPELLED_NUMBERS.get(end.lower(), end)) for end in pair] for pair in _RANGE.findall(text)]
    return [n for first, last in ends if last - first < MOST_IN_RANGE for n in range(first, last + 1)]


def find_numbers_in_text(text: str) -> set[int]:
    """Numbers that stand in a text, and the next ones."""
    return {n for number in map(int, _NUMBER.findall(text)) for n in (number - 1, number, number + 1)}
