"""What an atlas holds as one small file, a twentieth of its size: for another machine, or to be shipped.

Texts that are alike stand together in it. The same entries always give the same bytes.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.games.atlas import DEADLY, Atlas
from xtx.games.files import write_whole

_KEY = 16


def pack(found: dict[bytes, bytes]) -> bytes:
    """The entries as a file."""
    return lzma.compress(msgspec.msgpack.encode(sorted(found.items(), key=lambda item: (item[1], item[0]))))


def unpack(content: bytes) -> dict[bytes, bytes]:
    """The entries of such a file."""
    return dict(msgspec.msgpack.decode(lzma.decompress(content), type=list[tuple[bytes, bytes]]))


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
        found = unpack(path.read_bytes())
        good = all(len(key) == _KEY for key in found if not _is_deadly(key))
        for key in filter(_is_deadly, found):
            _commands(found[key])
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (lzma.LZMAError, EOFError, msgspec.MsgspecError, MemoryError):
        found, good = {}, False
    if not found or not good:
        raise UserError(f"{path} is no packed atlas, or damaged; make one with xtx games atlas --pack FILE")
    return found


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
