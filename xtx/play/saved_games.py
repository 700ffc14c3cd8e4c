"""Saved games of `xtx play`: one file each in the user's data folder.

A file is a first line, a checksum and plain msgpack data: a damaged one is noticed before the emulator sees it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.files.atomic_writes import write_user_file
from xtx.files.bounded_reads import BadFileError, read_bounded
from xtx.games.catalog.known_games import find_user_folder

_MAGIC = b"xtx saved game 1\n"
_DIGEST = 16
_MAX_BYTES = 16 << 20
"""Limits the file of a saved game, which has at most some hundred kilobytes."""
_NAME = re.compile(r"[\w-][\w .-]{0,59}")
_ENDING = ".save"
_FOR_ME = 0o600


class SavedGame(msgspec.Struct, frozen=True):
    """A saved game."""

    md5: str
    """The story's."""
    state: bytes
    room: str
    score: int
    moves: int


def find_folder(game: str) -> Path:
    """The folder of a game's saved games."""
    return find_user_folder().parent / "saves" / game


def list_saved_games(game: str) -> list[str]:
    """The names of a game's saved games, the latest first."""
    found = []
    with contextlib.suppress(OSError):
        found = [(-path.stat().st_mtime, path.stem) for path in find_folder(game).glob(f"*{_ENDING}")]
    return [name for _, name in sorted(found)]


def write_save(game: str, name: str, saved: SavedGame) -> Path:
    """The file that now holds the saved game: the old one or the new one, whenever the power fails."""
    path = find_path(game, name)
    content = msgspec.msgpack.encode(saved)
    write_user_file(path, _MAGIC + _compute_digest(content) + content, _FOR_ME)
    return path


def read_save(game: str, name: str, md5: str) -> SavedGame:
    """The saved game of that name. Raises `UserError` with one line if there is no good one."""
    path = find_path(game, name)
    try:
        content = read_bounded(path, _MAX_BYTES)
    except FileNotFoundError:
        there = ", ".join(list_saved_games(game)[:8])
        raise UserError(
            f"There is no saved game {name!r}; " + (f"there are: {there}" if there else "none yet")
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except BadFileError as error:
        raise UserError(f"{path} is no saved game: it is {error}") from None
    body = content[len(_MAGIC) + _DIGEST :]
    if not content.startswith(_MAGIC) or content[len(_MAGIC) :][:_DIGEST] != _compute_digest(body):
        raise UserError(f"{path} is damaged or no saved game; nothing was loaded")
    try:
        saved = msgspec.msgpack.decode(body, type=SavedGame)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise UserError(f"{path} was saved by another version of xtx; nothing was loaded") from None
    if saved.md5 != md5:
        raise UserError(f"{path} was saved from another story or release; nothing was loaded")
    return saved


def find_path(game: str, name: str) -> Path:
    """The file of a saved game. Raises `UserError` for a name that no file may have."""
    if not _NAME.fullmatch(name):
        raise UserError("A name for a saved game has letters, digits, spaces, dots and dashes, 60 at most")
    return find_folder(game) / (name + _ENDING)


def _compute_digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()
