"""What is read from a story's memory is what Jericho reads, and the object tree stays whole when it is changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jericho import FrotzEnv

from xtx.games.zmachine.story_memory import (
    Header,
    ObjectTree,
    count_objects,
    decode_text,
    read_dictionary,
    read_text_numbers,
)

STORIES = (
    "zork1", "zork3", "enchanter", "detective", "library", "pentari", "balances", "deephome", "dragon", "temple",
    "snacktime", "905",
)  # fmt: skip


MORE_OBJECTS = {"temple": 1, "zork3": 3, "deephome": 37}
"""Objects that a story has beyond those that Jericho counts."""


def header(version: int) -> Header:
    return Header(version, 64, 64, 64, 40_000, 64, 0, 0, 0)


# --- against Jericho ------------------------------------------------------------------------------------------------


@pytest.mark.roms
@pytest.mark.parametrize("name", STORIES)
def test_objects_and_words_are_jerichos(name: str, real_story: Callable[[str], Path]) -> None:
    path = real_story(name)
    story, env = path.read_bytes(), FrotzEnv(str(path))
    objects = env.get_world_objects()
    head = Header.read(story)
    tree = ObjectTree(story, head, len(objects) - 1)
    ram = np.array(env.get_state()[0], dtype=np.uint8)
    links = tree.read_links(ram)
    known = [o for o in objects if o.num > 0]  # Jericho leaves out those whose names have no length
    assert {i for i, name in enumerate(tree.names) if name} <= {o.num for o in known}
    assert [tuple(links[o.num].tolist()) for o in known] == [(o.parent, o.sibling, o.child) for o in known]
    assert [tree.find_parent(ram, o.num) for o in known] == [o.parent for o in known]
    equal = 0
    for o in known:
        ours, theirs = tree.names[o.num].strip(), o.name.strip()
        equal += ours == theirs
        # Jericho drops some abbreviations: it says "pair hands" for "pair of hands".
        rest = iter(ours)
        assert all(letter in rest for letter in theirs), (ours, theirs)
    assert equal > 0.6 * len(known)
    assert MORE_OBJECTS.get(name, 0) == count_objects(story, head) - (len(objects) - 1)
    words = {w.word for w in env.get_dictionary()}
    dictionary = read_dictionary(story, head)
    # Two words of library's hold characters beyond ZSCII, of which Jericho keeps the lower byte.
    assert {"".join(chr(ord(c) & 0xFF) for c in w) for w in dictionary.words} == words
    assert dictionary.length == (6 if head.version <= 3 else 9)


@pytest.mark.roms
def test_all_versions_are_among_those(real_story: Callable[[str], Path]) -> None:
    assert {real_story(name).read_bytes()[0] for name in ("zork1", "detective", "snacktime")} == {3, 5, 8}


def test_the_embedded_storys_words_are_jerichos() -> None:
    path = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = FrotzEnv(str(path))
    dictionary = read_dictionary(path.read_bytes(), Header.read(path.read_bytes()))
    assert dictionary.words == {w.word for w in env.get_dictionary()}
    assert dictionary.has_word("inventory") and dictionary.has_word("inventorying")  # nine letters count
    assert not dictionary.has_word("inventor")


# --- text -----------------------------------------------------------------------------------------------------------


def encode(codes: list[int]) -> bytes:
    """Z-characters packed into words, the last one marked."""
    codes = codes + [5] * (-len(codes) % 3)
    words = [a << 10 | b << 5 | c for a, b, c in zip(*[iter(codes)] * 3, strict=True)]
    words[-1] |= 0x8000
    return b"".join(w.to_bytes(2, "big") for w in words)


def test_text_is_decoded() -> None:
    memory = bytearray(300)
    head = Header(5, 64, 64, 64, 300, 100, 0, 0, 0)
    memory[100:102] = (200 // 2).to_bytes(2, "big")  # abbreviation 0 ...
    hello = encode([ord(c) - ord("a") + 6 for c in "hello"])
    memory[200 : 200 + len(hello)] = hello
    # ... then a space, a capital, a digit, and a character by its number.
    text = encode([1, 0, 0, 4, 6, 5, 9, 5, 6, ord("@") >> 5, ord("@") & 31])
    memory[230 : 230 + len(text)] = text
    assert decode_text(bytes(memory), 230, head) == "hello A1@"


def test_an_alphabet_of_the_storys_own() -> None:
    memory = bytearray(200)
    memory[100:178] = bytes(range(0x21, 0x21 + 78))
    head = Header(5, 64, 64, 64, 200, 64, 100, 0, 0)
    memory[180:186] = encode([6, 31, 4, 6])
    assert decode_text(bytes(memory), 180, head) == chr(0x21) + chr(0x21 + 25) + chr(0x21 + 26)


@settings(deadline=None)
@given(st.binary(min_size=64, max_size=400), st.integers(0, 500), st.sampled_from([3, 5, 8]), st.integers(0, 500))
def test_any_bytes_can_be_decoded(memory: bytes, address: int, version: int, abbreviations: int) -> None:
    head = Header(version, 64, 64, 64, len(memory), abbreviations, 0, 0, 0)
    assert isinstance(decode_text(memory, address, head), str)


@settings(deadline=None)
@example(b"\0" * 9 + b"C" + b"\0" * 57 + b"\x04" + b"\0" * 4, 3)  # separators up to the very end
@given(st.binary(min_size=64, max_size=400), st.sampled_from([3, 5, 8]))
def test_any_bytes_have_a_dictionary(story: bytes, version: int) -> None:
    story = bytes([version]) + story[1:]
    for word in read_dictionary(story, Header.read(story)).words:
        assert word.strip()


# --- the object tree ------------------------------------------------------------------------------------------------


class Forest:
    """A synthetic object table, and beside it what the tree should be: the children of each object, in order."""

    def __init__(self, version: int, parents: list[int]) -> None:
        self.count = len(parents)
        self.tree = ObjectTree(b"", header(version), self.count)
        self.ram = np.zeros(self.tree.header.compute_object_address(self.count + 1) + 50, dtype=np.uint8)
        self.children: list[list[int]] = [[] for _ in range(self.count + 1)]
        for number, parent in enumerate(parents, 1):
            if 0 < parent < number:  # only older objects hold younger ones: no circles
                self.children[parent].append(number)
        links = np.zeros((self.count + 1, 3), dtype=np.int64)
        for parent, inside in enumerate(self.children):
            for one, following in pairwise([*inside, 0]):
                links[one, :2] = parent, following
            links[parent, 2] = inside[0] if inside else 0
        links[0] = 0
        self.write(links)

    def write(self, links: np.ndarray) -> None:
        entries = self.tree.view_entries(self.ram)
        if self.tree.header.small:
            entries[:, 4:7] = links[1:]
        else:
            entries[:, 6:12:2], entries[:, 7:13:2] = links[1:] >> 8, links[1:] & 0xFF

    def parent(self, number: int) -> int:
        return next((p for p, inside in enumerate(self.children) if number in inside), 0)

    def read(self) -> list[list[int]]:
        """The children of each object as they stand in RAM; fails where parent and sibling links disagree."""
        links = self.tree.read_links(self.ram)
        found: list[list[int]] = [[] for _ in range(self.count + 1)]
        for parent in range(1, self.count + 1):
            number = int(links[parent, 2])
            while number:
                assert links[number, 0] == parent
                assert number not in found[parent]
                found[parent].append(number)
                number = int(links[number, 1])
        assert sum(map(len, found)) == np.count_nonzero(links[1:, 0])
        return found

    def below(self, root: int) -> list[int]:
        return [o for child in self.children[root] for o in (child, *self.below(child))]


forests = st.builds(Forest, st.sampled_from([3, 5]), st.lists(st.integers(0, 40), min_size=1, max_size=40))
big_forests = st.builds(lambda n: Forest(5, [0] + [1] * n), st.integers(255, 270))  # numbers beyond a byte


@settings(deadline=None, max_examples=60)
@given(st.one_of(forests, big_forests), st.data())
def test_moves_keep_the_tree_whole(forest: Forest, data: st.DataObject) -> None:
    tree, links = forest.tree, forest.tree.read_links(forest.ram)
    rest = forest.ram.copy()
    for _ in range(data.draw(st.integers(1, 6))):
        number = data.draw(st.integers(1, forest.count))
        targets = [o for o in range(1, forest.count + 1) if o != number and o not in forest.below(number)]
        tree.unlink(forest.ram, links, number)
        if parent := forest.parent(number):
            forest.children[parent].remove(number)
        assert forest.read() == forest.children
        assert tree.find_parent(forest.ram, number) == 0
        if targets and data.draw(st.booleans()):
            target = data.draw(st.sampled_from(targets))
            tree.insert(forest.ram, links, number, target)
            forest.children[target].insert(0, number)
            assert forest.read() == forest.children
        assert (links == tree.read_links(forest.ram)).all()
    for root in range(1, min(forest.count, 8) + 1):
        assert tree.list_below(links, root) == forest.below(root)
    first = tree.header.attribute_bytes
    changed = tree.view_entries(forest.ram) != tree.view_entries(rest)
    assert not changed[:, :first].any() and not changed[:, -2:].any()  # attributes and properties are as they were
    assert (forest.ram[: tree.header.first_object] == rest[: tree.header.first_object]).all()


@settings(deadline=None)
@given(st.sampled_from([3, 5]), st.data())
def test_damaged_links_end_walks(version: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    forest = Forest(version, [0] * count)
    numbers = st.integers(0, 255 if version == 3 else 65535)
    some = st.one_of(st.integers(0, count + 2), numbers)
    damaged = np.array([[data.draw(some) for _ in range(3)] for _ in range(count + 1)])
    damaged[0] = 0
    forest.write(damaged)
    tree = ObjectTree(b"", forest.tree.header, count)
    tree.__dict__["names"] = ("", *("thing" for _ in range(count)))
    links = tree.read_links(forest.ram)
    assert (links == damaged).all()
    for number in range(1, count + 1):
        below = tree.list_below(links, number)
        assert len(below) == len(set(below)) <= count
        assert all(0 < o <= count and o != number for o in below)
        assert 0 <= tree.find_room(forest.ram, number) <= count
    number = data.draw(st.integers(1, count))
    tree.unlink(forest.ram, links, number)
    # At most its own links and those of the one that pointed to it are other ones now.
    changed = np.flatnonzero((links != damaged).any(axis=1))
    assert len([o for o in changed if o != number]) <= 1
    for other in changed:
        assert other == number or number in damaged[other, 1:]
    assert (links == tree.read_links(forest.ram)).all()


def test_a_link_outside_the_table_is_no_object() -> None:
    forest = Forest(5, [0, 1, 1])
    assert forest.tree.find_parent(forest.ram, 0) == forest.tree.find_parent(forest.ram, 4) == 0


@pytest.mark.parametrize("is_named", [True, False])
def test_the_container_of_all_rooms_is_no_room(is_named: bool) -> None:
    # 1 holds the rooms 2 to 13, of which several hold things; the player, 14, sits on the chair 15 in room 2.
    forest = Forest(5, [0, *[1] * 12, *[3, 4, 5, 6]])
    tree = ObjectTree(forest.ram.tobytes(), forest.tree.header, forest.count)
    tree.__dict__["names"] = ("", *("thing" if is_named else "" for _ in range(forest.count)))
    player, chair, room = 14, 15, 2
    links = tree.read_links(forest.ram)
    for number, parent in ((chair, room), (player, chair)):
        tree.unlink(forest.ram, links, number)
        tree.insert(forest.ram, links, number, parent)
    assert tree.list_around(forest.ram, player) == [chair, room]
    assert tree.find_room(forest.ram, player) == room


def test_a_room_with_many_things_is_a_room() -> None:
    forest = Forest(5, [0, *[1] * 20])  # no thing holds another
    tree = ObjectTree(forest.ram.tobytes(), forest.tree.header, forest.count)
    assert tree.find_room(forest.ram, 5) == 1


def _encode_digits(digits: str) -> bytes:
    """The digits as a text of their own."""
    codes = [code for digit in digits for code in (5, 8 + int(digit))]
    codes += [5] * (-len(codes) % 3)
    words = [codes[i] << 10 | codes[i + 1] << 5 | codes[i + 2] for i in range(0, len(codes), 3)]
    words[-1] |= 0x8000
    return b"".join(value.to_bytes(2, "big") for value in words)


def test_numbers_are_read_from_a_storys_texts() -> None:
    codes = b"\0\0" + _encode_digits("2306") + b"\0" + _encode_digits("0384") + _encode_digits("12")
    assert read_text_numbers(codes) == (384, 2306)
    # Two texts in a row are not one number, and a word that is no number stays one.
    assert read_text_numbers(_encode_digits("12") + _encode_digits("34")) == ()
    assert read_text_numbers(bytes(1000)) == ()


def test_a_story_that_is_full_of_numbers_says_nothing_by_them() -> None:
    few, many = (b"\0\0".join(_encode_digits(str(100 + i)) for i in range(count)) for count in (24, 25))
    assert len(read_text_numbers(few)) == 24
    assert read_text_numbers(many) == ()
