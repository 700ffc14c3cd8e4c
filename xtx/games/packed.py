"""What an atlas holds as one small file, a twentieth of its size: for another machine, or to be shipped.

Texts that are alike stand together in it. The same entries always give the same bytes.
"""

from __future__ import annotations

import lzma
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
    """Writes all that an atlas holds; how many entries, and how many bytes they are packed in."""
    found = atlas.entries()
    content = pack(found)
    write_whole(path, content)
    return len(found), len(content)


def read_packed(path: Path) -> dict[bytes, bytes]:
    """What such a file holds. Raises `UserError`."""
    try:
        found = unpack(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (lzma.LZMAError, EOFError, msgspec.MsgspecError, MemoryError):
        found = {}
    if not found or any(len(key.removeprefix(DEADLY) if len(key) > _KEY else key) != _KEY for key in found):
        raise UserError(f"{path} is no packed atlas, or damaged; make one with xtx games atlas --pack FILE")
    return found


def add_packed(atlas: Atlas, found: dict[bytes, bytes]) -> int:
    """Adds the entries that an atlas does not have, and returns how many those were. What was found out about a state
    goes with what must not be tried there."""
    known = atlas.entries()
    new = {key: value for key, value in found.items() if key not in known}
    for key in [key for key in new if len(key) > _KEY and key.startswith(DEADLY)]:
        state = key.removeprefix(DEADLY)
        if state in found:
            new[state] = found[state]
    atlas.put_all(new)
    return len(new)
