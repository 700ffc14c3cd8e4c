"""Converts texts to ids: a vocabulary of bounded size, and tables that store each distinct text and action set once.

Replay memories and trajectories hold text ids only. An id stays the same as long as its text is in use; `drop_unused`
frees the ids of all other texts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xtx.core import State, warn

Ints = NDArray[np.int32]
_Number = TypeVar("_Number", np.int32, np.int64)

PAD, START, END, SEP = range(4)
"""Tokens that stand for no word."""
MARKS = ("<pad>", "<start>", "<end>", "<sep>")

# Each digit is a word: otherwise every number of moves would take up a row of the vocabulary.
_WORD = re.compile(r"\d|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]|_")


def split(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, in lower case."""
    return _WORD.findall(text.lower())


class Vocabulary:
    """Assigns each word a row of the embedding, in the order in which words are met.

    When all rows are assigned, new words share rows by their hash: the agent can no longer distinguish all words, but
    the run continues.
    """

    def __init__(self, capacity: int, on_full: Callable[[str], None] = warn) -> None:
        """capacity: number of rows, the special tokens included; on_full: called once, when words begin to share
        rows."""
        if capacity < 2 * len(MARKS):
            raise ValueError(f"a vocabulary needs at least {2 * len(MARKS)} rows")
        self.capacity = capacity
        self.shared = 0
        """Number of words that share a row; a word may count again if it is met again after a long time."""
        self._on_full = on_full
        self._has_warned = False
        self._ids = {mark: number for number, mark in enumerate(MARKS)}
        self._shared: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, word: str) -> int:
        """Return the row of a word; a new word gets the next row."""
        known = self._ids.get(word)
        if known is not None:
            return known
        if len(self._ids) < self.capacity:
            self._ids[word] = len(self._ids)
            return self._ids[word]
        if not self._has_warned:
            self._has_warned = True
            self._on_full(f"the vocabulary's {self.capacity} rows are taken; new words share rows from here on")
        if word not in self._shared:
            self.shared += 1
            if len(self._shared) >= self.capacity:  # only a cache: the hash gives the same row again
                self._shared.clear()
            self._shared[word] = self._hash_word(word)
        return self._shared[word]

    def _hash_word(self, word: str) -> int:
        # crc32 because hash() differs from process to process.
        return len(MARKS) + zlib.crc32(word.encode()) % (self.capacity - len(MARKS))

    def encode(self, text: str, longest: int) -> Ints:
        """Return the tokens of a text between START and END, cut to `longest` tokens in all."""
        words = split(text)[: longest - 2]
        return np.array([START, *map(self.id, words), END], np.int32)

    @contextmanager
    def restore_afterwards(self) -> Iterator[None]:
        """Remove the words that are met in the block when it ends."""
        size, shared, sharing = len(self._ids), self.shared, dict(self._shared)
        try:
            yield
        finally:
            while len(self._ids) > size:
                self._ids.popitem()
            self.shared, self._shared = shared, sharing

    def state(self) -> State:
        """Return all words for `load`."""
        return {"words": list(self._ids)[len(MARKS) :], "shared": self.shared, "sharing": list(self._shared)}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self._ids = {word: number for number, word in enumerate((*MARKS, *state["words"]))}
        self.shared = state["shared"]
        self._has_warned = self._has_warned or self.shared > 0
        # The cache too: a word that is no longer in it is counted once more when it is met again.
        self._shared = {word: self._hash_word(word) for word in state["sharing"]}


class Ragged:
    """Rows of integers of different lengths in one array, so that many rows can be gathered in one operation.

    Rows have ids; the id of a removed row is given to a later one.
    """

    def __init__(self) -> None:
        self.flat: Ints = np.zeros(1024, np.int32)
        """The integers of all rows, and free space."""
        self._used = 0
        self.starts: NDArray[np.int64] = np.zeros(64, np.int64)
        """By row id, the index in `flat` at which the row begins."""
        self.lengths: NDArray[np.int64] = np.zeros(64, np.int64)
        """By row id, the length of the row; 0 for a free id."""
        self.size = 0
        """One more than the highest id in use so far."""
        self._free: list[int] = []

    def add(self, row: Ints) -> int:
        """Store a row and return its id: the lowest free one, or the next if none is free."""
        number = self._free.pop() if self._free else self.size
        self.size = max(self.size, number + 1)
        if number >= len(self.starts):
            self.starts, self.lengths = _lengthen(self.starts, number + 1), _lengthen(self.lengths, number + 1)
        self.flat = _lengthen(self.flat, self._used + len(row))
        self.flat[self._used : self._used + len(row)] = row
        self.starts[number], self.lengths[number] = self._used, len(row)
        self._used += len(row)
        return number

    def row(self, number: int) -> Ints:
        """Return a view of one row."""
        start = self.starts[number]
        return self.flat[start : start + self.lengths[number]]

    def gather(self, numbers: NDArray[np.integer]) -> tuple[Ints, NDArray[np.int64]]:
        """Return the rows concatenated, and the offsets at which they begin and end, [rows + 1]."""
        lengths = self.lengths[numbers]
        offsets = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        where = np.arange(offsets[-1]) + np.repeat(self.starts[numbers] - offsets[:-1], lengths)
        return self.flat[where], offsets

    def keep(self, live: NDArray[np.integer]) -> NDArray[np.int64]:
        """Remove all rows but those in `live` (sorted, distinct ids), and return the freed ids."""
        used = np.flatnonzero(self.lengths[: self.size])
        freed = np.setdiff1d(used, live)
        flat, offsets = self.gather(live)
        self.flat, self._used = _lengthen(flat, 1024), len(flat)
        self.lengths[freed] = 0
        self.starts[live] = offsets[:-1]
        self._free = sorted({*self._free, *map(int, freed)}, reverse=True)
        return freed

    @contextmanager
    def restore_afterwards(self) -> Iterator[list[int]]:
        """Remove the rows that are added in the block when it ends; yields a list that holds their ids afterwards,
        newest first."""
        size, used, free = self.size, self._used, len(self._free)
        free_ids = self._free[:]
        freed: list[int] = []
        try:
            yield freed
        finally:
            freed += [*range(self.size - 1, size - 1, -1), *free_ids[len(self._free) : free]]
            self.lengths[freed] = 0
            self.size, self._used, self._free = size, used, free_ids

    @classmethod
    def from_rows(cls, size: int, numbers: NDArray[np.integer], flat: Ints, offsets: NDArray[np.int64]) -> Ragged:
        """Build a table from rows and their ids; the other ids below `size` are free."""
        ragged = cls()
        ragged.flat, ragged._used, ragged.size = _lengthen(flat, 1024), len(flat), size
        ragged.starts, ragged.lengths = _lengthen(ragged.starts, size), _lengthen(ragged.lengths, size)
        ragged.starts[numbers], ragged.lengths[numbers] = offsets[:-1], np.diff(offsets)
        ragged._free = [int(number) for number in np.setdiff1d(np.arange(size), numbers)[::-1]]
        return ragged


def _lengthen(array: NDArray[_Number], size: int) -> NDArray[_Number]:
    """Return the array, or a copy of at least twice its length if it is shorter than `size`."""
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


class TextTable:
    """Stores the tokens of each distinct text once, by the id of the text."""

    def __init__(self, vocabulary: Vocabulary, longest: int) -> None:
        if longest < 3:
            raise ValueError("the longest text must have room for a word between its two marks: at least 3")
        self.vocabulary = vocabulary
        self.longest = longest
        """Tokens of a text at most, START and END included; the rest is cut off."""
        self.rows = Ragged()
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, text: str) -> int:
        """Return the id of a text; a new text is stored and gets a free one."""
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
        """Return the text with this id."""
        return self._texts[number]

    def tokens(self, number: int) -> Ints:
        """Return the tokens of the text with this id, START and END included."""
        return self.rows.row(number)

    @contextmanager
    def restore_afterwards(self) -> Iterator[list[int]]:
        """Remove the texts and words that are met in the block when it ends; yields a list that holds the ids of those
        texts afterwards."""
        size = len(self._ids)
        with self.vocabulary.restore_afterwards(), self.rows.restore_afterwards() as freed:
            try:
                yield freed
            finally:
                while len(self._ids) > size:
                    del self._texts[self._ids.popitem()[1]]

    def drop_unused(self, live: Iterable[int]) -> NDArray[np.int64]:
        """Remove all texts but those with the ids in `live`, and return the freed ids."""
        freed = self.rows.keep(np.unique(np.fromiter(live, np.int64)))
        for number in freed:
            del self._ids[self._texts.pop(int(number))]
        return freed

    def state(self) -> State:
        """Return texts in the order of their ids for `load`, so that new texts get the same ids as without a
        restart."""
        numbers = sorted(self._texts)
        return {
            "vocabulary": self.vocabulary.state(),
            "numbers": np.array(numbers, np.int64),
            "texts": [self._texts[number] for number in numbers],
            "size": self.rows.size,
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned. Texts are tokenised again, with the same result: a word's row never
        changes."""
        self.vocabulary.load(state["vocabulary"])
        self._ids, self._texts = {}, {}
        rows = [self.vocabulary.encode(text, self.longest) for text in state["texts"]]
        self.vocabulary.load(state["vocabulary"])  # undo what tokenising changed
        offsets = np.cumsum([0, *map(len, rows)])
        flat = np.concatenate([*rows, np.zeros(0, np.int32)])
        self.rows = Ragged.from_rows(state["size"], state["numbers"], flat, offsets)
        for number, text in zip(map(int, state["numbers"]), state["texts"], strict=True):
            self._ids[text] = number
            self._texts[number] = text


class ActionSets:
    """Stores each distinct list of actions once, as text ids, by the id of the list."""

    def __init__(self) -> None:
        self.rows = Ragged()
        self._ids: dict[tuple[int, ...], int] = {}
        self.none = self.id(())
        """The id of the empty list, which the end of a game has."""

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, actions: Sequence[int]) -> int:
        """Return the id of a list of actions; a new list is stored and gets a free one."""
        key = tuple(actions)
        if key not in self._ids:
            # The empty list is stored as [-1], because a row of length 0 is a free id.
            self._ids[key] = self.rows.add(np.array(key or (-1,), np.int32))
        return self._ids[key]

    def actions(self, number: int) -> Ints:
        """Return the text ids of a list's actions."""
        row = self.rows.row(number)
        return row[row >= 0]

    @contextmanager
    def restore_afterwards(self) -> Iterator[None]:
        """Remove the lists that are met in the block when it ends."""
        size = len(self._ids)
        with self.rows.restore_afterwards():
            try:
                yield
            finally:
                while len(self._ids) > size:
                    self._ids.popitem()

    def drop_unused(self, live: Iterable[int]) -> NDArray[np.int64]:
        """Remove all lists but those with the ids in `live` and the empty one, and return the freed ids."""
        keep = np.unique(np.fromiter((self.none, *live), np.int64))
        freed = set(map(int, self.rows.keep(keep)))
        self._ids = {key: number for key, number in self._ids.items() if number not in freed}
        return np.array(sorted(freed), np.int64)

    def list_live_texts(self) -> Ints:
        """Return the text ids of all actions in the lists."""
        return np.fromiter({text for key in self._ids for text in key}, np.int32)

    def state(self) -> State:
        """Return all lists for `load`."""
        numbers = np.array(sorted(self._ids.values()), np.int64)
        flat, offsets = self.rows.gather(numbers)
        return {"numbers": numbers, "flat": flat, "offsets": offsets, "size": self.rows.size}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self.rows = Ragged.from_rows(state["size"], state["numbers"], state["flat"], state["offsets"])
        self._ids = {tuple(self.actions(number).tolist()): number for number in map(int, state["numbers"])}
