"""What can be read from a Z-machine's memory without running it: header, object tree, dictionary, text.

Everything works on the story's bytes or on a picture of its dynamic memory (RAM) as a NumPy array, so it serves
games that Jericho knows and games that it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ram = npt.NDArray[np.uint8]

_SMALL_NUMBER, _LARGE_NUMBER = 12, 10_000

_TYPED_DIGITS = re.compile(rb"(?:\x05[\x08-\x11]){3,5}")
"""Three to five digits in a text's 5-bit codes, each behind a shift to the third alphabet."""
_MAX_TEXT_NUMBERS = 24
"""Texts with more numbers than this hold tables or error codes, and none of the numbers is used."""

_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "\0\n0123456789.,!?_#'\"/\\-:()")


def read_word(memory: bytes | Ram, address: int) -> int:
    """Return the unsigned big-endian word at an address."""
    return int(memory[address]) << 8 | int(memory[address + 1])


@dataclass(frozen=True)
class Header:
    """The fields of a story's header that we use, and the layout that follows from the version."""

    version: int
    dictionary: int
    objects: int
    globals: int
    dynamic_size: int
    abbreviations: int
    alphabet: int
    length: int
    """Length the file should have, 0 where the header does not say."""
    checksum: int

    @classmethod
    def read(cls, story: bytes) -> Header:
        """The header of a story of at least 64 bytes."""
        version = story[0]
        scale = 2 if version <= 3 else 4 if version <= 5 else 8
        return cls(
            version=version,
            dictionary=read_word(story, 0x08),
            objects=read_word(story, 0x0A),
            globals=read_word(story, 0x0C),
            dynamic_size=read_word(story, 0x0E),
            abbreviations=read_word(story, 0x18),
            alphabet=read_word(story, 0x34) if version >= 5 else 0,
            length=read_word(story, 0x1A) * scale,
            checksum=read_word(story, 0x1C),
        )

    @property
    def small(self) -> bool:
        """Whether objects have the small layout of versions 1 to 3."""
        return self.version <= 3

    @property
    def attribute_bytes(self) -> int:
        return 4 if self.small else 6

    @property
    def object_size(self) -> int:
        return 9 if self.small else 14

    @property
    def first_object(self) -> int:
        """Address of object 1."""
        return self.objects + (31 if self.small else 63) * 2

    def compute_object_address(self, number: int) -> int:
        """Return the address of an object."""
        return self.first_object + (number - 1) * self.object_size


def decode_text(memory: bytes | Ram, address: int, header: Header, depth: int = 0, size: int | None = None) -> str:
    """The Z-encoded text at an address; stops at the end of memory or after `size` bytes, whatever the text says."""
    codes: list[int] = []
    end = len(memory) if size is None else min(address + size, len(memory))
    while address < end - 1:
        value = read_word(memory, address)
        codes += (value >> 10 & 31, value >> 5 & 31, value & 31)
        address += 2
        if value & 0x8000:
            break
    return _spell(codes, memory, header, depth)


def _spell(codes: list[int], memory: bytes | Ram, header: Header, depth: int) -> str:
    """The text that a sequence of 5-bit codes stands for."""
    out: list[str] = []
    alphabet = i = 0
    while i < len(codes):
        code, following = codes[i], codes[i + 1 : i + 3]
        i += 1
        if code in (4, 5):
            alphabet = code - 3
            continue
        if code == 0:
            out.append(" ")
        elif code <= 3:
            i += 1
            # Abbreviations do not nest.
            if following and depth == 0:
                entry = header.abbreviations + 2 * (32 * (code - 1) + following[0])
                if entry + 1 < len(memory):
                    out.append(decode_text(memory, read_word(memory, entry) * 2, header, 1))
        elif code == 6 and alphabet == 2:
            i += 2
            if len(following) == 2:
                out.append(chr(following[0] << 5 | following[1]))
        else:
            out.append(_decode_letter(code, alphabet, memory, header))
        alphabet = 0
    return "".join(out)


def _decode_letter(code: int, alphabet: int, memory: bytes | Ram, header: Header) -> str:
    if header.alphabet:
        return chr(memory[header.alphabet + 26 * alphabet + code - 6])
    return _ALPHABETS[alphabet][code - 6]


_MIN_ROOMS, _OBJECTS_PER_ROOM, _MIN_FULL_ROOMS = 10, 10, 4
"""An object holds the rooms if it holds at least 10 objects and a tenth of all objects in the story as it is shipped,
and at least 4 of these hold something."""


@dataclass(frozen=True)
class ObjectTree:
    """The object tree of one game: where it lies in RAM, and the objects' names (which do not change)."""

    story: bytes
    header: Header
    count: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names by object number; number 0 has none."""
        offset = self.header.object_size - 2
        names = [""]
        for number in range(1, self.count + 1):
            table = read_word(self.story, self.header.compute_object_address(number) + offset)
            named = 0 < table < len(self.story) and self.story[table] > 0
            names.append(decode_text(self.story, table + 1, self.header) if named else "")
        return tuple(names)

    def view_entries(self, ram: Ram) -> Ram:
        """Return a view of the object table, one row an object (object 1 first)."""
        header = self.header
        table = ram[header.first_object : header.compute_object_address(self.count + 1)]
        return table.reshape(self.count, header.object_size)

    def read_links(self, ram: Ram) -> npt.NDArray[np.int64]:
        """Return parent, sibling and child of every object, one row each; row 0 is empty."""
        header = self.header
        table = self.view_entries(ram).astype(np.int64)
        links = np.zeros((self.count + 1, 3), dtype=np.int64)
        if header.small:
            links[1:] = table[:, 4:7]
        else:
            links[1:] = table[:, 6:12:2] << 8 | table[:, 7:13:2]
        return links

    def list_below(self, links: npt.NDArray[np.int64], root: int) -> list[int]:
        """Return all objects inside `root`, at any depth, in the order of the tree; broken links end the walk."""
        found: list[int] = []
        seen = {0, root}
        stack = [int(links[root, 2])] if 0 < root <= self.count else []
        while stack:
            number = stack.pop()
            if number in seen or not 0 < number <= self.count:
                continue
            seen.add(number)
            found.append(number)
            stack.append(int(links[number, 1]))
            stack.append(int(links[number, 2]))
        return found

    def find_parent(self, ram: Ram, number: int) -> int:
        """Return the object that holds another; 0 for none."""
        if not 0 < number <= self.count:
            return 0
        address = self.header.compute_object_address(number) + self.header.attribute_bytes
        return int(ram[address]) if self.header.small else read_word(ram, address)

    def list_around(self, ram: Ram, number: int) -> list[int]:
        """Return what is around an object, from the nearest to the outermost: for the player, from the chair to the
        room. In Infocom's games all rooms lie in one container, which is left out."""
        found: list[int] = []
        while len(found) < self.count:
            number = self.find_parent(ram, number)
            if not 0 < number <= self.count:
                break
            found.append(number)
        while found and found[-1] in self._containers_of_rooms:
            found.pop()
        return found

    @cached_property
    def _containers_of_rooms(self) -> frozenset[int]:
        """Objects that hold many others at the beginning, of which several hold something themselves."""
        if len(self.story) < self.header.compute_object_address(self.count + 1):
            return frozenset()
        parents = self.read_links(np.frombuffer(self.story, np.uint8))[1:, 0]
        parents = np.where(parents <= self.count, parents, 0)
        held = np.bincount(parents, minlength=self.count + 1)
        holding = np.bincount(parents[held[1:] > 0], minlength=self.count + 1)
        min_held = max(_MIN_ROOMS, self.count // _OBJECTS_PER_ROOM)
        return frozenset(np.flatnonzero((held >= min_held) & (holding >= _MIN_FULL_ROOMS)).tolist()) - {0}

    def find_room(self, ram: Ram, number: int) -> int:
        """Return the room in which an object is, or the object itself if it is nowhere."""
        return (self.list_around(ram, number) or [number])[-1]

    def unlink(self, ram: Ram, links: npt.NDArray[np.int64], number: int) -> None:
        """Takes an object out of the tree, in RAM and in `links`; broken links are left as they are."""
        parent, sibling = int(links[number, 0]), int(links[number, 1])
        if not 0 < parent <= self.count:
            return
        before, column = parent, 2  # the object that points here, and with which link
        for _ in range(self.count + 1):
            after = int(links[before, column])
            if after == number:
                self._set_link(ram, links, before, column, sibling)
                break
            if not 0 < after <= self.count:
                break
            before, column = after, 1
        self._set_link(ram, links, number, 0, 0)
        self._set_link(ram, links, number, 1, 0)

    def insert(self, ram: Ram, links: npt.NDArray[np.int64], number: int, parent: int) -> None:
        """Makes an object outside the tree the first child of `parent`."""
        self._set_link(ram, links, number, 1, int(links[parent, 2]))
        self._set_link(ram, links, number, 0, parent)
        self._set_link(ram, links, parent, 2, number)

    def _set_link(self, ram: Ram, links: npt.NDArray[np.int64], number: int, column: int, value: int) -> None:
        links[number, column] = value
        address = self.header.compute_object_address(number) + self.header.attribute_bytes
        if self.header.small:
            ram[address + column] = value
        else:
            ram[address + 2 * column] = value >> 8
            ram[address + 2 * column + 1] = value & 0xFF


def count_objects(story: bytes, header: Header) -> int:
    """The number of objects, judged by where the first property table begins (the usual layout)."""
    lowest = min(len(story), header.dynamic_size)
    number = 1
    while header.compute_object_address(number + 1) <= lowest and number < 65535:
        table = read_word(story, header.compute_object_address(number) + header.object_size - 2)
        if header.compute_object_address(number) < table:
            lowest = min(lowest, table)
        number += 1
    return number - 1


@dataclass(frozen=True)
class Dictionary:
    """The words a game's parser knows."""

    words: frozenset[str]
    length: int
    """Significant characters of a word."""
    nouns: frozenset[str] = frozenset()
    """Those that can name a thing, in version 3 adjectives included; all words where the story does not say."""
    adjectives: frozenset[str] = frozenset()
    """Those that can only stand before such a word, where the story tells them apart."""

    def has_word(self, text: str) -> bool:
        """Return whether a word is in the dictionary, which compares its first letters only."""
        return text[: self.length] in self.words

    def can_name(self, text: str) -> bool:
        """Whether the word can be a part of a thing's name."""
        return text[: self.length] in self.nouns or text[: self.length] in self.adjectives


def _read_dictionary_header(story: bytes, header: Header) -> tuple[int, int, int]:
    """Where the dictionary's first entry lies, how long entries are, and how many there are; (0, 0, 0) for none."""
    start = header.dictionary
    if not 64 <= start < len(story) - 4:
        return 0, 0, 0
    start += 1 + story[start]
    if start + 3 > len(story):
        return 0, 0, 0
    count = abs(int.from_bytes(story[start + 1 : start + 3], "big", signed=True))
    return start + 3, story[start], count


def _read_properties(story: bytes, header: Header, number: int) -> Iterator[tuple[int, bytes]]:
    """The number and the content of each property of an object, as the story file has them; broken tables end it."""
    table = read_word(story, header.compute_object_address(number) + header.object_size - 2)
    if not 0 < table < len(story):
        return
    entry = table + 1 + 2 * story[table]
    while entry + 1 < len(story) and story[entry]:
        first = story[entry]
        if header.small:
            size, data, property_number = (first >> 5) + 1, entry + 1, first & 31
        elif first & 0x80:
            size, data, property_number = story[entry + 1] & 63 or 64, entry + 2, first & 63
        else:
            size, data, property_number = 2 if first & 0x40 else 1, entry + 1, first & 63
        yield property_number, story[data : data + size]
        entry = data + size


def read_name_words(tree: ObjectTree) -> dict[str, frozenset[int]]:
    """Which objects each dictionary word is a name of: those with a property that holds nothing but such words.

    Inform keeps an object's names in its first property, Infocom in one that differs from story to story; adjectives
    are among them in Inform's stories only.
    """
    story, header = tree.story, tree.header
    first, size, count = _read_dictionary_header(story, header)
    letters = 4 if header.small else 6
    if size <= letters:
        return {}
    last = first + size * count
    owners: dict[int, set[int]] = {}
    for number in range(1, tree.count + 1):
        for _, content in _read_properties(story, header, number):
            words = [read_word(content, i) for i in range(0, len(content) - 1, 2)]
            if len(content) % 2 == 0 and all(first <= w < last and (w - first) % size == 0 for w in words):
                for address in words:
                    owners.setdefault(address, set()).add(number)
    return {
        decode_text(story, address, header, size=letters).strip(): frozenset(numbers)
        for address, numbers in owners.items()
    }


def read_initial_numbers(tree: ObjectTree) -> tuple[int, ...]:
    """Numbers with which the story's variables begin that are neither objects nor addresses nor small: years, codes,
    amounts."""
    story, header = tree.story, tree.header
    end = min(header.globals + 480, len(story) - 1)
    values = {read_word(story, address) for address in range(header.globals, end, 2)}
    # Variables hold tables that lie behind the object tree, mostly.
    lowest = min(header.compute_object_address(tree.count + 1), _LARGE_NUMBER)
    return tuple(sorted(v for v in values if max(tree.count, _SMALL_NUMBER) < v < lowest))


def read_text_numbers(story: bytes) -> tuple[int, ...]:
    """Numbers of three to five digits in the story's texts: codes and prizes that are told once and typed later. Such
    a pattern stands nowhere by accident, so texts need not be found; smaller numbers would be."""
    found: set[int] = set()
    for start in (0, 1):
        words = np.frombuffer(story, dtype=">u2", offset=start, count=(len(story) - start) // 2)
        codes = np.stack([words >> 10 & 31, words >> 5 & 31, words & 31], axis=1).astype(np.uint8).tobytes()
        for match in _TYPED_DIGITS.finditer(codes):
            if not (words[match.start() // 3 : (match.end() - 1) // 3] & 0x8000).any():  # no text ends within
                found.add(int("".join(str(code - 8) for code in match[0][1::2])))
    return tuple(sorted(n for n in found if n < 0x8000)) if len(found) <= _MAX_TEXT_NUMBERS else ()


def read_dictionary(story: bytes, header: Header) -> Dictionary:
    """The dictionary of a story."""
    length = 6 if header.small else 9
    start, size, count = _read_dictionary_header(story, header)
    # Behind a word's letters a byte says what kind of word it is. Inform kept Infocom's bit for nouns, and uses the one
    # for adjectives for nothing.
    letters, noun, adjective = (4, 0xA0, 0) if header.small else (6, 0x80, 0x20)
    words, nouns, adjectives = set(), set(), set()
    for i in range(count):
        address = start + i * size
        if size <= letters or address + size > len(story):
            break
        # Enchanter's last word has no mark at its end.
        text = decode_text(story, address, header, size=letters).strip()
        words.add(text)
        if story[address + letters] & noun:
            nouns.add(text)
        elif story[address + letters] & adjective:
            adjectives.add(text)
    return Dictionary(frozenset(words - {""}), length, frozenset(nouns or words) - {""}, frozenset(adjectives))
