"""Packs the entries of an atlas into one compressed file, a twentieth of its size, for another machine or a release.

Similar values are adjacent in the file, for better compression. The same entries always give the same bytes.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.files.atomic_writes import write_user_file
from xtx.files.bounded_reads import read_bounded
from xtx.games.atlas.store import DEADLY, UNPROVEN, Atlas

_KEY = 16
"""Bytes of a state's key."""
MAX_BYTES = 4 << 30
"""Limits the unpacked size; the findings of a run of 800,000 steps have some 100 MB."""
MAX_RATIO = 200
"""Limits the unpacked bytes per packed byte, beyond the first `FREE_BYTES`: atlases have 20, decompression bombs
thousands."""
FREE_BYTES = 16 << 20
"""Unpacked bytes to which `MAX_RATIO` does not apply: small files of equal texts compress very well."""
MAX_DICTIONARY = 256 << 20
"""Limits the memory of decompression itself. For files that xz writes it needs 65 MB at most."""
_BLOCK = 1 << 20
"""Bytes that are decompressed at once, so that the limits are checked often."""
_MIN_ENTRY = 5
"""Bytes of the shortest entry: a pair, and two empty byte strings with their lengths."""


def pack(found: dict[bytes, bytes]) -> bytes:
    """Return the content of a packed file with these entries."""
    return lzma.compress(msgspec.msgpack.encode(sorted(found.items(), key=lambda item: (item[1], item[0]))))


def unpack(content: bytes) -> dict[bytes, bytes]:
    """Return the entries of a packed file's content.

    Raises `lzma.LZMAError`, `EOFError` or `ValueError` if it is damaged or exceeds the limits above.
    """
    plain = _decompress(content, min(MAX_BYTES, FREE_BYTES + MAX_RATIO * len(content)))
    _check_count(plain)
    return dict(msgspec.msgpack.decode(plain, type=list[tuple[bytes, bytes]]))


def _decompress(content: bytes, max_bytes: int) -> bytes:
    """Decompress the content of an xz file. Raises `ValueError` if it has more than `max_bytes` bytes."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY)
    plain = bytearray()
    waiting = content
    while not decompressor.eof:
        if decompressor.needs_input and not waiting:
            raise EOFError("cut short")
        plain += decompressor.decompress(waiting, max_length=_BLOCK)
        waiting = b""
        if len(plain) > max_bytes:
            raise ValueError(f"it unpacks to more than {max_bytes:,} bytes")
    return bytes(plain)


def _check_count(plain: bytes) -> None:
    """Raise `ValueError` if the list claims more entries than fit into its bytes: msgpack would allocate them at
    once."""
    kind, header = plain[:1], plain[1:5]
    count = int.from_bytes(header[:2] if kind == b"\xdc" else header if kind == b"\xdd" else b"", "big")
    if count * _MIN_ENTRY > len(plain):
        raise ValueError("more entries than bytes")


def write_packed(atlas: Atlas, path: Path) -> tuple[int, int]:
    """Write the entries of an atlas to a packed file, and return their number and the file's size. Raises
    `UserError`."""
    found = atlas.read_entries()
    if not found:
        raise UserError(f"there is nothing in the atlas {atlas.path} that could be packed")
    content = pack(found)
    write_user_file(path, content)
    return len(found), len(content)


def read_packed(path: Path) -> dict[bytes, bytes]:
    """Read the entries of a packed file. Raises `UserError` if it cannot be read or is damaged."""
    try:
        found = _remove_unproven(unpack(read_bounded(path, MAX_BYTES)))
        good = all(len(key) == _KEY for key in found if not _is_deadly(key))
        for key in filter(_is_deadly, found):
            _collect_commands(found[key])
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


def _remove_unproven(found: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Remove the states with forbidden commands that an earlier version recorded without proof."""
    unproven = {key for key in found if len(key) == _KEY + len(UNPROVEN) and key.startswith(UNPROVEN)}
    states = {key.removeprefix(UNPROVEN) for key in unproven}
    return {key: value for key, value in found.items() if key not in unproven and key not in states}


def _is_deadly(key: bytes) -> bool:
    """Return whether an entry lists forbidden commands."""
    return len(key) == _KEY + len(DEADLY) and key.startswith(DEADLY)


def _collect_commands(value: bytes | None) -> frozenset[str]:
    """Return the forbidden commands of an entry; none if there is no entry."""
    return frozenset() if value is None else frozenset(msgspec.msgpack.decode(value, type=list[str]))


def add_packed(atlas: Atlas, found: dict[bytes, bytes]) -> int:
    """Add the entries that an atlas does not have, and return their number.

    The forbidden commands of a state are united. If the union has more of them than there were when the state was
    searched, its entry is deleted, so that it is searched again.
    """
    new: dict[bytes, bytes | None] = {}

    def choose(known: Callable[[bytes], bytes | None]) -> dict[bytes, bytes | None]:
        new.clear()
        for key, value in found.items():
            if _is_deadly(key):
                ours, theirs = _collect_commands(known(key)), _collect_commands(value)
                if not theirs <= ours:
                    new[key] = msgspec.msgpack.encode(sorted(ours | theirs))
                    state = key.removeprefix(DEADLY)
                    new[state] = found.get(state) if ours <= theirs else None
                continue
            # If the atlas forbids more commands in a state than the file does, the file's entry is not valid here.
            is_valid = _collect_commands(known(DEADLY + key)) <= _collect_commands(found.get(DEADLY + key))
            if key not in new and is_valid and known(key) is None:
                new[key] = value
        return new

    atlas.update(choose)
    return sum(value is not None for value in new.values())
