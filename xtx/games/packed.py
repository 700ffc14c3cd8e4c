"""What an atlas holds as one small file, a twentieth of its size: for another machine, or to be shipped.

Texts that are alike stand together in it. The same entries always give the same bytes.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import msgspec

from xtx.bounded_files import read_bounded
from xtx.core import UserError
from xtx.games.atlas import DEADLY, UNPROVEN, Atlas
from xtx.games.files import write_whole

_KEY = 16
MAX_BYTES = 4 << 30
"""Unpacked size of an atlas; what a run of 800,000 steps finds has some 100 MB."""
MAX_RATIO = 200
"""Unpacked bytes for each packed byte, beyond the first `FREE_BYTES`: atlases have 20, files made to fill memory have
thousands."""
FREE_BYTES = 16 << 20
MAX_DICTIONARY = 256 << 20
"""Memory that decompression itself may take. xz needs 65 MB at most for what it writes."""
_BLOCK = 1 << 20
_LEAST_ENTRY = 5
"""Bytes of the shortest entry: a pair, and two empty byte strings with their lengths."""


def pack(found: dict[bytes, bytes]) -> bytes:
    """The entries as a file."""
    return lzma.compress(msgspec.msgpack.encode(sorted(found.items(), key=lambda item: (item[1], item[0]))))


def unpack(content: bytes) -> dict[bytes, bytes]:
    """The entries of such a file. Raises `lzma.LZMAError`, `EOFError` or `ValueError` if it is damaged, or unpacks to
    more than the limits above."""
    plain = _decompress(content, min(MAX_BYTES, FREE_BYTES + MAX_RATIO * len(content)))
    _check_count(plain)
    return dict(msgspec.msgpack.decode(plain, type=list[tuple[bytes, bytes]]))


def _decompress(content: bytes, most: int) -> bytes:
    """The content of an xz file, as long as it has at most so many bytes."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY)
    plain = bytearray()
    waiting = content
    while not decompressor.eof:
        if decompressor.needs_input and not waiting:
            raise EOFError("cut short")
        plain += decompressor.decompress(waiting, max_length=_BLOCK)
        waiting = b""
        if len(plain) > most:
            raise ValueError(f"it unpacks to more than {most:,} bytes")
    return bytes(plain)


def _check_count(plain: bytes) -> None:
    """Raise `ValueError` if the list says to have more entries than there is room for: its memory is taken at once."""
    kind, header = plain[:1], plain[1:5]
    count = int.from_bytes(header[:2] if kind == b"\xdc" else header if kind == b"\xdd" else b"", "big")
    if count * _LEAST_ENTRY > len(plain):
        raise ValueError("more entries than bytes")


def write_packed(atlas: Atlas, path: Path) -> tuple[int, int]:
    """Writes all that an atlas holds; how many entries, and how many bytes they are packed in. Raises `UserError`."""
    found = atlas.entries()
    if not found:
        raise UserError(f"there is nothing in the atlas {atlas.path} that could be packed")
    content = pack(found)
    write_whole(path, content)
    return len(found), len(content)


def read_packed(path: Path) -> dict[bytes, bytes]:
    """What such a file holds. Raises `UserError`."""
    try:
        found = _without_unproven(unpack(read_bounded(path, MAX_BYTES)))
        good = all(len(key) == _KEY for key in found if not _is_deadly(key))
        for key in filter(_is_deadly, found):
            _commands(found[key])
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (lzma.LZMAError, EOFError, ValueError) as error:  # msgspec's errors are among them
        why = f" ({error})" if type(error) is ValueError else ""
        raise UserError(_NO_ATLAS.format(path, why)) from None
    except MemoryError:
        raise UserError(f"there is not enough memory to unpack {path}") from None
    if not found or not good:
        raise UserError(_NO_ATLAS.format(path, ""))
    return found


_NO_ATLAS = "{} is no packed atlas, or damaged{}; make one with xtx games atlas --pack FILE"


def _without_unproven(found: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What is left without the states whose verdicts an earlier version noted without proof: to be searched again."""
    doubtful = {key for key in found if len(key) == _KEY + len(UNPROVEN) and key.startswith(UNPROVEN)}
    states = {key.removeprefix(UNPROVEN) for key in doubtful}
    return {key: value for key, value in found.items() if key not in doubtful and key not in states}


def _is_deadly(key: bytes) -> bool:
    return len(key) == _KEY + len(DEADLY) and key.startswith(DEADLY)


def _commands(value: bytes | None) -> frozenset[str]:
    return frozenset() if value is None else frozenset(msgspec.msgpack.decode(value, type=list[str]))


def add_packed(atlas: Atlas, found: dict[bytes, bytes]) -> int:
    """Adds the entries that an atlas does not have, and returns how many those were. What is never to be tried in a
    state is what either knows; where that is more than it was when the state was searched, it is searched anew."""
    new: dict[bytes, bytes | None] = {}

    def choose(known: Callable[[bytes], bytes | None]) -> dict[bytes, bytes | None]:
        new.clear()
        for key, value in found.items():
            if _is_deadly(key):
                ours, theirs = _commands(known(key)), _commands(value)
                if not theirs <= ours:
                    new[key] = msgspec.msgpack.encode(sorted(ours | theirs))
                    state = key.removeprefix(DEADLY)
                    new[state] = found.get(state) if ours <= theirs else None
                continue
            # Where we know of more that must not be tried than they do, what they found does not count.
            heeded = _commands(known(DEADLY + key)) <= _commands(found.get(DEADLY + key))
            if key not in new and heeded and known(key) is None:
                new[key] = value
        return new

    atlas.update(choose)
    return sum(value is not None for value in new.values())
