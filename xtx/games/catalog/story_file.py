"""A story file that was read and found good, with all that is known about it."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from xtx.core import UserError
from xtx.files.bounded_reads import BadFileError, read_bounded, read_json
from xtx.games.catalog.profile import Profile, read_profile
from xtx.games.catalog.story_formats import find_foreign_format, is_blorb, read_blorb
from xtx.games.zmachine.story_memory import Header
from xtx.terminal.shell_command import format_command

VERSIONS = (3, 4, 5, 8)
"""The Z-machine versions that can be played here."""

MAX_STORY_BYTES = 256 << 20
"""Limits a story file. Stories themselves have 512 KB at most; a Blorb package also holds pictures and sounds."""

_ARCHIVES = (b"PK\3\4", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!")
"""How zip, gzip, bzip2, xz, 7z and rar files begin."""


@dataclass(frozen=True)
class Story:
    """A story file's content and, for a game that Jericho does not know, its profile."""

    path: Path
    content: bytes
    """The story itself, also where the file is a Blorb package."""
    md5: str
    """Of the content."""
    profile: Profile | None = None
    is_packaged: bool = False
    """Whether the file is a Blorb package, in which the story lies."""


def read_story(path: Path) -> Story:
    """The story in a file. A profile is taken from the file of the same name that ends in .json, if there is one.

    Raises `UserError` with one line if the file cannot be played.
    """
    content = _read_content(path)
    if str(path.absolute()).encode("utf-8", "ignore").decode() != str(path.absolute()):
        # Jericho, config.json and the messages to workers have names in UTF-8 only.
        raise UserError(f"{path} can be played only where its name and its folders' names are UTF-8; rename them")
    foreign = find_foreign_format(content, path)
    if foreign:
        raise UserError(f"{path} is a {foreign} story; only Z-machine stories (.z3, .z4, .z5, .z8) can be played")
    is_packaged = is_blorb(content)
    if is_packaged:
        try:
            content = read_blorb(content)
        except ValueError as error:
            raise UserError(f"{path} {error}") from None
    check_story(content, str(path))
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    companion = path.with_suffix(".json")
    described = companion.is_file() and not _is_of_another_program(companion)
    profile = _read_companion(companion, path, content, md5) if described else None
    return Story(path, content, md5, profile, is_packaged)


def _read_content(path: Path) -> bytes:
    try:
        if path.is_dir():
            command = format_command("games", "add", path)
            raise UserError(f"{path} is a folder; name a story file in it, or run: {command}")
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be read for ever
            raise UserError(f"{path} is no file; give the path of a story file (.z3, .z5, .z8)")
        return read_bounded(path, MAX_STORY_BYTES)
    except BadFileError as error:
        raise UserError(f"{path} is not a Z-machine story: it is {error}") from None
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give the path of a story file (.z3, .z5, .z8)") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check its permissions") from None


def _is_of_another_program(companion: Path) -> bool:
    """Whether a JSON file beside a story was not meant as a profile: TextWorld writes one of its own."""
    try:
        fields = read_json(companion)
    except (OSError, ValueError):
        return False  # which `read_profile` complains of
    return isinstance(fields, dict) and not {"name", "md5"} & fields.keys()


def _read_companion(companion: Path, path: Path, content: bytes, md5: str) -> Profile:
    try:
        profile = read_profile(companion)
    except ValueError as error:
        raise UserError(f"{companion}: {error}") from None
    if profile.md5 != md5:
        raise UserError(f"{companion} describes another story than {path.name}: make the profile anew")
    try:
        check_places(profile, content)
    except ValueError as error:
        raise UserError(f"{companion} does not fit {path.name} ({error}): make the profile anew") from None
    return profile


def check_places(profile: Profile, content: bytes) -> None:
    """Raise ValueError if a profile names an address that is not in the story's changing memory."""
    memory = content[: Header.read(content).dynamic_size]
    for place in profile.places:
        place.read(memory)


def check_story(content: bytes, name: str) -> None:
    """Nothing, if the bytes are a whole Z-machine story of a version we play; else raises `UserError`."""
    if content[:4] == b"FORM" and content[8:12] == b"IFZS":
        raise UserError(f"{name} is a saved game and no story; give the story that it was saved in")
    if content.startswith(_ARCHIVES):
        raise UserError(f"{name} is an archive; unpack it and give the story in it (.z3, .z4, .z5, .z8)")
    if content[:4] == b"FORM":
        raise UserError(f"{name} is a Blorb package; take the plain story (.z5, .z8) out of it")
    if len(content) < 64 or not 1 <= content[0] <= 8:
        raise UserError(f"{name} is not a Z-machine story")
    header = Header.read(content)
    if header.version not in VERSIONS:
        raise UserError(f"{name} is of Z-machine version {header.version}; versions 3, 4, 5 and 8 can be played")
    inside = (header.dictionary, header.objects, header.globals, header.dynamic_size)
    if header.length > len(content):
        raise UserError(f"{name} is cut short: {len(content)} of {header.length} bytes; get the file again")
    if not all(64 <= address < len(content) for address in inside):
        raise UserError(f"{name} is not a Z-machine story: its header points outside the file")
    changing = (header.globals, header.first_object + header.object_size)
    if not all(address <= header.dynamic_size for address in changing):
        raise UserError(
            f"{name} is not a Z-machine story: its header puts objects or variables outside changing memory"
        )
    if header.length and header.checksum and sum(content[64 : header.length]) & 0xFFFF != header.checksum:
        raise UserError(f"{name} is damaged: its checksum does not fit; get the file again")
