"""Formats of story files: names those that are not Z-code, and takes a Z-code story out of a Blorb package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

BLORB_SUFFIXES = (".zblorb", ".zlb")
"""How the names of Blorb packages with a Z-code story end."""

FOREIGN_SUFFIXES = {
    ".ulx": "Glulx",
    ".gblorb": "Glulx",
    ".glb": "Glulx",
    ".gam": "TADS 2",
    ".t3": "TADS 3",
    ".hex": "Hugo",
    ".agx": "AGT",
    ".acd": "Alan 2",
    ".a3c": "Alan 3",
    ".taf": "ADRIFT",
    ".mag": "Magnetic Scrolls",
}
"""Formats by how the names of their files end."""

_MAGIC = {
    b"Glul": "Glulx",
    b"TADS2 bin": "TADS 2",
    b"T3-image": "TADS 3",
    b"\x58\xc7\xc1\x51": "AGT",
    b"ALAN": "Alan 3",
    b"\x3c\x42\x3f\xc9\x6a\x87\xc2\xcf": "ADRIFT",
    b"MaSc": "Magnetic Scrolls",
}
"""Formats by how their files begin."""

_EXECUTABLES = {
    b"GLUL": "Glulx",
    b"TAD2": "TADS 2",
    b"TAD3": "TADS 3",
    b"HUGO": "Hugo",
    b"ALAN": "Alan 3",
    b"ADRI": "ADRIFT",
    b"MAGS": "Magnetic Scrolls",
    b"AGT ": "AGT",
}
"""Formats of stories in Blorb packages, by the type of their chunk."""


def find_foreign_format(content: bytes, path: Path) -> str:
    """The name of the format of a story that is not Z-code, by how the file begins or else by how its name ends; empty
    for any other file. A name counts only where the content cannot be Z-code."""
    for magic, name in _MAGIC.items():
        if content.startswith(magic):
            return name
    if content[:4] == b"FORM" or (content[:1] and 1 <= content[0] <= 8):
        return ""
    return FOREIGN_SUFFIXES.get(path.suffix.lower(), "")


def is_blorb(content: bytes) -> bool:
    """Whether the content is a Blorb package."""
    return content[:4] == b"FORM" and content[8:12] == b"IFRS"


def read_blorb(content: bytes) -> bytes:
    """The Z-code story in a Blorb package. Raises `ValueError` with the rest of a sentence about the package."""
    for kind, chunk in _read_chunks(content):
        if kind == b"ZCOD":
            return chunk
        if kind in _EXECUTABLES:
            raise ValueError(
                f"is a Blorb package with a {_EXECUTABLES[kind]} story; "
                "only Z-machine stories (.z3, .z4, .z5, .z8) can be played"
            )
    raise ValueError("is a Blorb package without a story in it")


def _read_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and content of each chunk of a package."""
    start = 12
    while start + 8 <= len(content):
        size = int.from_bytes(content[start + 4 : start + 8], "big")
        end = start + 8 + size
        if end > len(content):
            raise ValueError("is a Blorb package that is cut short; get the file again")
        yield content[start : start + 4], content[start + 8 : end]
        start = end + size % 2  # chunks begin at even places
