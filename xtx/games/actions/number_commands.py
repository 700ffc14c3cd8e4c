"""Commands with numbers: those that texts show, the next ones, the story's own, and small ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from xtx.games.actions.story_words import Ask, StoryWords, head_of

NUMBERED = ("set OBJ to {}", "turn OBJ to {}")
_TYPED = ("dial {}", "type {}", "enter {}", "press {}", "push {}", "say {}", "withdraw {}", "pay {}")
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
MOST_IN_RANGE = 101
"""Longest range of which all numbers are tried, and offered beside other additions."""
_MOST_NUMBERS = 8
"""Numbers of the text, at most, and of the story's own, that are tried."""


class NumberCommands:
    """Fills the forms of one story that take a number."""

    def __init__(self, words: StoryWords, numbers: Iterable[int] = ()) -> None:
        """`numbers` are the story's own, beside those that the text shows."""
        self._words = words
        self._numbers = tuple(map(str, numbers))

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
            form for form, answer in zip(filled, said, strict=True) if not self._words.is_refusal(head_of(answer))
        ]
        read = sorted(set(map(int, _NUMBER.findall(text))))[:_MOST_NUMBERS]
        told = [str(n) for number in read for n in ((number, number - 1, number + 1) if number > 12 else (number,))]
        numbers = list(dict.fromkeys((*told, *map(str, find_ranged(text)), *self._numbers[:_MOST_NUMBERS], *_SMALL)))
        return [form.format(number) for form in taking for number in numbers]


def find_ranged(text: str) -> list[int]:
    """The numbers of the ranges that a text speaks of."""
    ends = [[int(_SPELLED_NUMBERS.get(end.lower(), end)) for end in pair] for pair in _RANGE.findall(text)]
    return [n for first, last in ends if last - first < MOST_IN_RANGE for n in range(first, last + 1)]


def told_numbers(text: str) -> set[int]:
    """Numbers that stand in a text, and the next ones."""
    return {n for number in map(int, _NUMBER.findall(text)) for n in (number - 1, number, number + 1)}
