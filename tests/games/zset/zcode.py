"""Tiny Z-machine stories, assembled by hand: for tests that need a story of one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

GLOBALS = 0x40
OBJECTS = 0x240
"""Defaults of properties, then eight objects, then their names and properties."""
TEXT, PARSE, TABLE, BUFFER = 0x500, 0x600, 0x700, 0x800
RAM_END = 0xA00
DICTIONARY = 0xA00
CODE = 0xB00
WORDS = ("all", "apple", "box", "in", "lamp", "take")

STACK, LOCAL, GLOBAL = 0, 0, 15
"""A variable's number is one of these plus its own, from 1 on."""


@dataclass(frozen=True)
class Var:
    """A variable as an operand: 0 is the stack, 1 to 15 are locals, 16 and on are globals."""

    number: int


Operand = int | Var


@dataclass
class Code:
    """A piece of code under construction, at an address."""

    at: int
    bytes: bytearray = field(default_factory=bytearray)

    @property
    def here(self) -> int:
        return self.at + len(self.bytes)

    def _types(self, operands: Sequence[Operand]) -> int:
        types = 0
        for i in range(4):
            one = operands[i] if i < len(operands) else None
            types = types << 2 | (3 if one is None else 2 if isinstance(one, Var) else 0)
        return types

    def _operands(self, operands: Sequence[Operand]) -> None:
        for one in operands:
            self.bytes += bytes([one.number]) if isinstance(one, Var) else (one & 0xFFFF).to_bytes(2, "big")

    def op(
        self,
        name: str,
        *operands: Operand,
        store: int | None = None,
        branch: tuple[bool, int] | None = None,
        version: int = 5,
    ) -> None:
        """One instruction. A branch is (on what, how many bytes behind the instruction)."""
        kind, number = OPCODES[name]
        if kind == "0":
            self.bytes.append(0xB0 | number)
        elif kind == "1":
            (one,) = operands
            self.bytes.append(0x80 | (0x20 if isinstance(one, Var) else 0) | number)
            self._operands(operands)
        else:
            self.bytes += {"2": bytes([0xC0 | number]), "V": bytes([0xE0 | number]), "X": bytes([0xBE, number])}[kind]
            self.bytes.append(self._types(operands[:4]))
            if kind == "V" and number in (12, 26):
                self.bytes.append(self._types(operands[4:]))
            self._operands(operands)
        if store is not None:
            self.bytes.append(store)
        if branch is not None:
            on, over = branch
            self.bytes += ((0x8000 if on else 0) | (over + 2) & 0x3FFF).to_bytes(2, "big")


OPCODES = {
    **{n: ("2", i) for i, n in enumerate(
        ("je", "jl", "jg", "dec_chk", "inc_chk", "jin", "test", "or", "and", "test_attr", "set_attr", "clear_attr",
         "store", "insert_obj", "loadw", "loadb", "get_prop", "get_prop_addr", "get_next_prop", "add", "sub", "mul",
         "div", "mod", "call_2s", "call_2n", "set_colour", "throw"), 1)},
    **{n: ("1", i) for i, n in enumerate(
        ("jz", "get_sibling", "get_child", "get_parent", "get_prop_len", "inc", "dec", "print_addr", "call_1s",
         "remove_obj", "print_obj", "ret", "jump", "print_paddr", "load", "call_1n"))},
    "rtrue": ("0", 0), "rfalse": ("0", 1), "nop": ("0", 4), "ret_popped": ("0", 8), "catch": ("0", 9),
    "quit": ("0", 10), "new_line": ("0", 11), "show_status": ("0", 12), "piracy": ("0", 15),
    "call_vs": ("V", 0), "storew": ("V", 1), "storeb": ("V", 2), "put_prop": ("V", 3), "read": ("V", 4),
    "print_char": ("V", 5), "print_num": ("V", 6), "random": ("V", 7), "push": ("V", 8), "pull": ("V", 9),
    "split_window": ("V", 10), "set_window": ("V", 11), "call_vs2": ("V", 12), "set_cursor": ("V", 15),
    "set_text_style": ("V", 17), "buffer_mode": ("V", 18), "output_stream": ("V", 19),
    "scan_table": ("V", 23), "not": ("V", 24), "call_vn": ("V", 25),
    "tokenise": ("V", 27), "copy_table": ("V", 29), "print_table": ("V", 30), "check_arg_count": ("V", 31),
    "old_save": ("0", 5), "old_restore": ("0", 6), "save": ("X", 0), "restore": ("X", 1),
    "log_shift": ("X", 2), "art_shift": ("X", 3), "set_font": ("X", 4), "save_undo": ("X", 9),
    "check_unicode": ("X", 12),
}  # fmt: skip


def _encode(word: str, length: int) -> bytes:
    codes = ([ord(c) - 97 + 6 for c in word] + [5] * length)[:length]
    words = [codes[i] << 10 | codes[i + 1] << 5 | codes[i + 2] for i in range(0, length, 3)]
    words[-1] |= 0x8000
    return b"".join(w.to_bytes(2, "big") for w in words)


def _objects(version: int) -> bytes:
    """Eight objects: 1 holds 2, 3 and 4; 2 holds 5. Each has property 20 (a word), 10 (a byte) and 5 (six bytes)."""
    small = version <= 3
    table = bytearray(b"".join(i.to_bytes(2, "big") for i in range(100, 100 + (31 if small else 63))))
    tree = {1: (0, 0, 2), 2: (1, 3, 5), 3: (1, 4, 0), 4: (1, 0, 0), 5: (2, 0, 0)}
    size = 9 if small else 14
    properties = OBJECTS + len(table) + 8 * size
    tail = bytearray()
    for number in range(1, 9):
        links = tree.get(number, (0, 0, 0))
        attributes = bytes((number * 37 + i * 11) & 255 for i in range(4 if small else 6))
        table += attributes + b"".join(n.to_bytes(1 if small else 2, "big") for n in links)
        table += (properties + len(tail)).to_bytes(2, "big")
        name = _encode("thing" + "abcdefgh"[number - 1], 6)
        tail += bytes([len(name) // 2]) + name
        sizes = (1 << 5 | 20, 10, 5 << 5 | 5) if small else (0x40 | 20, 10, 0x80 | 5)
        tail += bytes([sizes[0], number, number + 1, sizes[1], number * 3, sizes[2]])
        tail += (b"" if small else bytes([0x80 | 6])) + bytes(range(number, number + 6)) + b"\0"
    return bytes(table + tail)


def assemble(code: bytes, version: int = 5, routines: bytes = b"") -> bytes:
    """A story that runs `code`, which begins at CODE; `routines` are placed at 0x2000."""
    story = bytearray(0x11000)  # so that whatever 16-bit address is read, there is something
    story[0] = version
    story[2:4] = (1).to_bytes(2, "big")
    for address, number in ((4, 0xA00), (6, CODE), (8, DICTIONARY), (10, OBJECTS), (12, GLOBALS), (14, RAM_END)):
        story[address : address + 2] = number.to_bytes(2, "big")
    story[18:24] = b"260101"
    story[GLOBALS + 1] = 1  # up to version 3 the first global is the room that Frotz shows in the status line
    objects = _objects(version)
    story[OBJECTS : OBJECTS + len(objects)] = objects
    story[TEXT], story[PARSE] = 60, 8
    story[TABLE : TABLE + 64] = bytes((i * 73 + 5) & 255 for i in range(64))
    length = 6 if version <= 3 else 9
    entry = length // 3 * 2 + 3
    words = b"".join(_encode(w, length) + bytes([i, i + 1, i + 2]) for i, w in enumerate(WORDS))
    dictionary = bytes([3]) + b'.,"' + bytes([entry]) + len(WORDS).to_bytes(2, "big") + words
    story[DICTIONARY : DICTIONARY + len(dictionary)] = dictionary
    story[CODE : CODE + len(code)] = code
    story[0x2000 : 0x2000 + len(routines)] = routines
    scale = 2 if version <= 3 else 4 if version <= 5 else 8
    story[26:28] = (len(story) // scale).to_bytes(2, "big")
    story[28:30] = (sum(story[64:]) & 0xFFFF).to_bytes(2, "big")
    return bytes(story)
