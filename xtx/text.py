"""Words to numbers: a vocabulary that grows up to a fixed size, and tables in which each distinct text, and each
distinct set of actions, is stored once and known by a number.

Whatever is learned from holds those numbers only. A number stays the same as long as somebody needs its text.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xtx.core import State

Ints = NDArray[np.int32]
_Number = TypeVar("_Number", np.int32, np.int64)

PAD, START, END, SEP = range(4)
MARKS = ("<pad>", "<start>", "<end>", "<sep>")

# Digits one by one: else every count of moves would be a word of its own.
_WORD = re.compile(r"\d|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]|_")


def split(text: str) -> list[str]:
    """The words and marks of a text, in lower case."""
    return _WORD.findall(text.lower())


def warn(line: str) -> None:
    """Tells the user, on the error stream."""
    print(f"xtx: {line}", file=sys.stderr)


class Vocabulary:
    """Numbers of words, given in the order in which they are met. When all rows are taken, new words share rows by
    their hash: a run gets worse at telling words apart, but does not end."""

    def __init__(self, capacity: int, on_full: Callable[[str], None] = warn) -> None:
        if capacity < 2 * len(MARKS):
            raise ValueError(f"a vocabulary needs at least {2 * len(MARKS)} rows")
        self.capacity = capacity
        self.shared = 0
        """How many words had to share a row; where they are many, one that was long not met may count again."""
        self._on_full = on_full
        self._told = False
        self._ids = {mark: number for number, mark in enumerate(MARKS)}
        self._shared: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, word: str) -> int:
        """The word's row."""
        known = self._ids.get(word)
        if known is not None:
            return known
        if len(self._ids) < self.capacity:
            self._ids[word] = len(self._ids)
            return self._ids[word]
        if not self._told:
            self._told = True
            self._on_full(f"the vocabulary's {self.capacity} rows are taken; new words share rows from here on")
        if word not in self._shared:
            self.shared += 1
            if len(self._shared) >= self.capacity:  # only a cache: the hash says the same again
                self._shared.clear()
            self._shared[word] = self._hashed(word)
        return self._shared[word]

    def _hashed(self, word: str) -> int:
        # crc32 and not hash(): the latter differs from process to process.
        return len(MARKS) + zlib.crc32(word.encode()) % (self.capacity - len(MARKS))

    def encode(self, text: str, longest: int) -> Ints:
        """The text's words between a start and an end mark, cut to `longest` numbers in all."""
        words = split(text)[: longest - 2]
        return np.array([START, *map(self.id, words), END], np.int32)

    @contextmanager
    def in_passing(self) -> Iterator[None]:
        """Words that are met within are forgotten again."""
        size, shared, sharing = len(self._ids), self.shared, dict(self._shared)
        try:
            yield
        finally:
            while len(self._ids) > size:
                self._ids.popitem()
            self.shared, self._shared = shared, sharing

    def state(self) -> State:
        """For `load`."""
        return {"words": list(self._ids)[len(MARKS) :], "shared": self.shared, "sharing": list(self._shared)}

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self._ids = {word: number for number, word in enumerate((*MARKS, *state["words"]))}
        self.shared = state["shared"]
        self._told = self._told or self.shared > 0
        # Also the cache: a word that it has forgotten is counted once more when it is met again.
        self._shared = {word: self._hashed(word) for word in state["sharing"]}


class Ragged:
    """Rows of numbers of any length, one after the other in one array, so that many can be gathered at once."""

    def __init__(self) -> None:
        self.flat: Ints = np.zeros(1024, np.int32)
        """All rows, and room for more."""
        self._used = 0
        self.starts: NDArray[np.int64] = np.zeros(64, np.int64)
        """By number of the row: where it begins."""
        self.lengths: NDArray[np.int64] = np.zeros(64, np.int64)
        """By number of the row; 0 for one that is free."""
        self.size = 0
        """One more than the highest number given."""
        self._free: list[int] = []

    def add(self, row: Ints) -> int:
        """The number of a new row: the lowest that was freed, else the next."""
        number = self._free.pop() if self._free else self.size
        self.size = max(self.size, number + 1)
        if number >= len(self.starts):
            self.starts, self.lengths = _longer(self.starts, number + 1), _longer(self.lengths, number + 1)
        self.flat = _longer(self.flat, self._used + len(row))
        self.flat[self._used : self._used + len(row)] = row
        self.starts[number], self.lengths[number] = self._used, len(row)
        self._used += len(row)
        return number

    def row(self, number: int) -> Ints:
        """One row."""
        start = self.starts[number]
        return self.flat[start : start + self.lengths[number]]

    def gather(self, numbers: NDArray[np.integer]) -> tuple[Ints, NDArray[np.int64]]:
        """The rows, one after the other, and where each begins: offsets, one more than rows."""
        lengths = self.lengths[numbers]
        offsets = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        where = np.arange(offsets[-1]) + np.repeat(self.starts[numbers] - offsets[:-1], lengths)
        return self.flat[where], offsets

    def keep(self, live: NDArray[np.integer]) -> NDArray[np.int64]:
        """The numbers that were freed: all that were in use and are not in `live` (sorted, distinct)."""
        used = np.flatnonzero(self.lengths[: self.size])
        freed = np.setdiff1d(used, live)
        flat, offsets = self.gather(live)
        self.flat, self._used = _longer(flat, 1024), len(flat)
        self.lengths[freed] = 0
        self.starts[live] = offsets[:-1]
        self._free = sorted({*self._free, *map(int, freed)}, reverse=True)
        return freed

    @contextmanager
    def in_passing(self) -> Iterator[list[int]]:
        """Rows that are added within are taken away again; their numbers, the newest first, once that is done."""
        size, used, free = self.size, self._used, len(self._free)
        given = self._free[:]
        freed: list[int] = []
        try:
            yield freed
        finally:
            freed += [*range(self.size - 1, size - 1, -1), *given[len(self._free) : free]]
            self.lengths[freed] = 0
            self.size, self._used, self._free = size, used, given

    @classmethod
    def of(cls, size: int, numbers: NDArray[np.integer], flat: Ints, offsets: NDArray[np.int64]) -> Ragged:
        """Rows under given numbers, out of `size`; the numbers between them are free, as they were."""
        ragged = cls()
        ragged.flat, ragged._used, ragged.size = _longer(flat, 1024), len(flat), size
        ragged.starts, ragged.lengths = _longer(ragged.starts, size), _longer(ragged.lengths, size)
        ragged.starts[numbers], ragged.lengths[numbers] = offsets[:-1], np.diff(offsets)
        ragged._free = [int(number) for number in np.setdiff1d(np.arange(size), numbers)[::-1]]
        return ragged


def _longer(array: NDArray[_Number], size: int) -> NDArray[_Number]:
    """The array, or a copy of at least twice its length if `size` does not fit."""
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


class TextTable:
    """Each distinct text once: its words' numbers, by the number of the text."""

    def __init__(self, vocabulary: Vocabulary, longest: int) -> None:
        if longest < 3:
            raise ValueError("the longest text must have room for a word between its two marks: at least 3")
        self.vocabulary = vocabulary
        self.longest = longest
        """No text has more numbers than this, its two marks included; the rest is cut off."""
        self.rows = Ragged()
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, text: str) -> int:
        """The text's number; a new one for a new text."""
        known = self._ids.get(text)
        if known is None:
            known = self._put(text)
        return known

    def _put(self, text: str) -> int:
        number = self.rows.add(self.vocabulary.encode(text, self.longest))
        self._ids[text] = number
        self._texts[number] = text
        return number

    def text(self, number: int) -> str:
        """The text itself."""
        return self._texts[number]

    def tokens(self, number: int) -> Ints:
        """The text's words between its marks."""
        return self.rows.row(number)

    @contextmanager
    def in_passing(self) -> Iterator[list[int]]:
        """Texts and words that are met within are forgotten again; the numbers of those texts, once that is done."""
        size = len(self._ids)
        with self.vocabulary.in_passing(), self.rows.in_passing() as freed:
            try:
                yield freed
            finally:
                while len(self._ids) > size:
                    del self._texts[self._ids.popitem()[1]]

    def sweep(self, live: Iterable[int]) -> NDArray[np.int64]:
        """The numbers of the texts that nobody needs any more, now forgotten; `live` holds those that are needed."""
        freed = self.rows.keep(np.unique(np.fromiter(live, np.int64)))
        for number in freed:
            del self._ids[self._texts.pop(int(number))]
        return freed

    def state(self) -> State:
        """For `load`: texts in the order of their numbers, so that the same ones are given again."""
        numbers = sorted(self._texts)
        return {
            "vocabulary": self.vocabulary.state(),
            "numbers": np.array(numbers, np.int64),
            "texts": [self._texts[number] for number in numbers],
            "size": self.rows.size,
        }

    def load(self, state: State) -> None:
        """Goes on from a saved state. Words are looked up again: a word's row never changes."""
        self.vocabulary.load(state["vocabulary"])
        self._ids, self._texts = {}, {}
        rows = [self.vocabulary.encode(text, self.longest) for text in state["texts"]]
        self.vocabulary.load(state["vocabulary"])  # as if nothing had been looked up
        offsets = np.cumsum([0, *map(len, rows)])
        flat = np.concatenate([*rows, np.zeros(0, np.int32)])
        self.rows = Ragged.of(state["size"], state["numbers"], flat, offsets)
        for number, text in zip(map(int, state["numbers"]), state["texts"], strict=True):
            self._ids[text] = number
            self._texts[number] = text


class ActionSets:
    """Each distinct list of actions once: the numbers of their texts, by the number of the list."""

    def __init__(self) -> None:
        self.rows = Ragged()
        self._ids: dict[tuple[int, ...], int] = {}
        self.none = self.id(())
        """The number of the list without actions, which the end of a game has."""

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, actions: Sequence[int]) -> int:
        """The list's number; a new one for a new list."""
        key = tuple(actions)
        if key not in self._ids:
            # The empty list is stored as one mark: a row of length 0 is a free one.
            self._ids[key] = self.rows.add(np.array(key or (-1,), np.int32))
        return self._ids[key]

    def actions(self, number: int) -> Ints:
        """The numbers of the list's actions."""
        row = self.rows.row(number)
        return row[row >= 0]

    @contextmanager
    def in_passing(self) -> Iterator[None]:
        """Lists that are met within are forgotten again."""
        size = len(self._ids)
        with self.rows.in_passing():
            try:
                yield
            finally:
                while len(self._ids) > size:
                    self._ids.popitem()

    def sweep(self, live: Iterable[int]) -> NDArray[np.int64]:
        """The numbers of the lists that nobody needs any more, now forgotten."""
        keep = np.unique(np.fromiter((self.none, *live), np.int64))
        freed = set(map(int, self.rows.keep(keep)))
        self._ids = {key: number for key, number in self._ids.items() if number not in freed}
        return np.array(sorted(freed), np.int64)

    def live_texts(self) -> Ints:
        """The numbers of all texts in the lists."""
        return np.fromiter({text for key in self._ids for text in key}, np.int32)

    def state(self) -> State:
        """For `load`."""
        numbers = np.array(sorted(self._ids.values()), np.int64)
        flat, offsets = self.rows.gather(numbers)
        return {"numbers": numbers, "flat": flat, "offsets": offsets, "size": self.rows.size}

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self.rows = Ragged.of(state["size"], state["numbers"], state["flat"], state["offsets"])
        self._ids = {tuple(self.actions(number).tolist()): number for number in map(int, state["numbers"])}
