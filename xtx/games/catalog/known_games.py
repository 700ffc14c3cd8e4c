"""Which games there are, and where their story files lie.

Three kinds of games are known: those that Jericho supports (`games/catalog/data/catalog.json`), the adventure that
comes with xtx, and stories of the user's own that have a profile. Jericho itself is not imported here, so listing games
is quick.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.files.bounded_reads import BadFileError, read_bounded
from xtx.files.user_paths import find_cache_folder
from xtx.games.catalog.bare_profile import make_bare_profile
from xtx.games.catalog.profile import Profile, read_profile
from xtx.games.catalog.story_file import MAX_STORY_BYTES, Story, check_places, read_story
from xtx.games.catalog.story_formats import BLORB_SUFFIXES, FOREIGN_SUFFIXES
from xtx.search_versions import DISCOVERY_VERSION
from xtx.terminal.shell_command import format_command

DATA = Path(__file__).parent / "data"
"""The package's own data."""

SUFFIXES = (*(f".z{version}" for version in range(1, 9)), *BLORB_SUFFIXES)
"""How the names of story files end."""


class Entry(msgspec.Struct, frozen=True):
    """What is known of a game before its story is read."""

    name: str
    file: str
    md5: str
    max_score: int
    walkthrough_length: int
    """Commands in the walkthrough; 0 where there is none."""
    seed: int
    """The emulator seed under which the walkthrough works."""
    paper: bool = False
    """Whether it is one of the XTX paper's twelve games."""
    embedded: bool = False
    """Whether it comes with xtx."""


def find_user_folder() -> Path:
    """The folder into which `xtx games add` copies stories."""
    base = os.environ.get("XDG_DATA_HOME", "")
    # The XDG rules: a path that is empty or relative counts as not set.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return root / "xtx" / "games"


def list_folders() -> tuple[Path, ...]:
    """Return the folders that are searched for stories, in order: those in XTX_GAMES, the user's, the package's."""
    listed = os.environ.get("XTX_GAMES", "").split(os.pathsep)
    return (*(Path(folder).expanduser() for folder in listed if folder), find_user_folder(), DATA)


def list_absent_folders() -> tuple[Path, ...]:
    """The folders named in XTX_GAMES that are not there, or cannot be read."""
    return tuple(f for f in list_folders()[:-2] if not (os.path.isdir(f) and os.access(f, os.R_OK | os.X_OK)))


def is_story_name(path: Path) -> bool:
    """Whether a file is called as stories are."""
    return path.suffix.lower() in SUFFIXES


def is_story_path(text: str) -> bool:
    """Whether what was typed for a game is the path of a file, and not a game's name. Files of other formats count, so
    that they are refused as what they are."""
    path = Path(text)
    named = is_story_name(path) or path.suffix.lower() in FOREIGN_SUFFIXES
    return os.sep in text or (named and path.is_file())


def list_story_files(folder: Path) -> list[Path]:
    """The files in a folder that are called as stories are, by name; none if the folder cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if is_story_name(path) and path.is_file())
    except OSError:
        return []


def list_entries() -> tuple[Entry, ...]:
    """Every game that is known: Jericho's, the embedded adventures, and those that the user described.

    Where two have the same name, the one that comes first counts.
    """
    found = {entry.name: entry for entry in _read_jericho_entries()}
    for folder in (DATA, *list_folders()):
        for _, profile in _read_profiles(folder):
            found.setdefault(profile.name, _make_entry(profile, embedded=folder == DATA))
    return tuple(found.values())


def find_default_game() -> str:
    """The name of the adventure that comes with xtx."""
    for _, profile in _read_profiles(DATA):
        return profile.name
    raise UserError("this copy of xtx lacks its own adventure: install it again, or name a game")


def find_extra_actions(name: str) -> tuple[str, ...]:
    """Return the commands that the paper added to a game's grammar; none for most games."""
    return _read_extra_actions().get(name, ())


def find_story(name_or_path: str) -> Story:
    """The story of that name, or in that file, with its profile where it needs one. Raises `UserError`."""
    if is_story_path(name_or_path):
        return _add_profile(read_story(Path(name_or_path)))
    entry = find_entry(name_or_path)
    found, notes = locate_story(entry)
    if found is None:
        raise UserError(_explain_missing(entry, notes))
    return _add_profile(read_story(found))


def find_entry(name: str) -> Entry:
    """The game of that name; a file ending and upper case do not matter. Raises `UserError`."""
    wanted = name.lower()
    if Path(wanted).suffix in SUFFIXES:
        wanted = Path(wanted).stem
    known = {entry.name.lower(): entry for entry in list_entries()}
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"run `{format_command('games')}` for the names"
    raise UserError(f"there is no game called {name!r}; {hint} (a story file is given by its path: ./{name})")


def locate_story(entry: Entry) -> tuple[Path | None, list[str]]:
    """Return the path of the game's story, or None; and notes on the files that were passed over."""
    notes: list[str] = []
    for folder in list_folders():
        path = folder / entry.file
        md5 = _find_md5(path)
        if md5 == entry.md5:
            return path, notes
        if md5:
            notes.append(f"{path} is another story or release: its md5 does not fit")
        elif os.path.exists(path):
            notes.append(f"{path} cannot be read")
    for folder in list_folders():
        for path in list_story_files(folder):
            if _find_md5(path) == entry.md5:
                return path, notes
    return None, notes


def find_profile(md5: str) -> Profile | None:
    """The profile of the story with that md5, among those in the searched folders."""
    for folder in list_folders():
        for _, profile in _read_profiles(folder):
            if profile.md5 == md5:
                return profile
    return None


def find_jericho_entry(md5: str) -> Entry | None:
    """Return Jericho's game of the story with that md5."""
    return next((entry for entry in _read_jericho_entries() if entry.md5 == md5), None)


def _add_profile(story: Story) -> Story:
    """The story with a profile where Jericho does not know it: at the least with what its file says."""
    if find_jericho_entry(story.md5) is not None or story.profile is not None:
        return story
    profile = find_profile(story.md5)
    if profile is not None:
        try:
            check_places(profile, story.content)
        except ValueError as error:
            raise UserError(f"the profile of {story.path} does not fit ({error}); add the story again") from None
    profile = profile or _read_kept_profile(story)
    return replace(story, profile=profile or make_bare_profile(story.content, story.md5, story.path))


def locate_found_profile(md5: str) -> Path:
    """Where a profile is kept that was found of a story which was not added."""
    return find_cache_folder() / "found" / f"{md5}-{DISCOVERY_VERSION}.json"


def _read_kept_profile(story: Story) -> Profile | None:
    """Return the profile that was found before of a story that was not added; None if there is none."""
    with contextlib.suppress(ValueError):
        profile = read_profile(locate_found_profile(story.md5))
        check_places(profile, story.content)
        return profile if profile.md5 == story.md5 else None
    return None


def _explain_missing(entry: Entry, notes: list[str]) -> str:
    return "; ".join(
        [
            f"{entry.name} is not here: put {entry.file} into {find_user_folder()} or a folder named in XTX_GAMES, "
            f"or run: {format_command('games', 'add', 'FILE_OR_FOLDER')}",
            f"the community has it in the Jericho game suite (md5 {entry.md5}), "
            "and many free stories are in the Interactive Fiction Archive",
            *(f"XTX_GAMES names {folder}, which is no folder that can be read" for folder in list_absent_folders()),
            *notes,
        ]
    )


@cache
def _read_jericho_entries() -> tuple[Entry, ...]:
    return msgspec.json.decode((DATA / "catalog.json").read_bytes(), type=tuple[Entry, ...])


@cache
def _read_extra_actions() -> dict[str, tuple[str, ...]]:
    return msgspec.json.decode((DATA / "extra_actions.json").read_bytes(), type=dict[str, tuple[str, ...]])


def _read_profiles(folder: Path) -> Iterator[tuple[Path, Profile]]:
    """The stories in a folder that have a good profile beside them. Bad ones are reported when they are played."""
    for path in list_story_files(folder):
        companion = path.with_suffix(".json")
        if companion.is_file():
            try:
                yield path, read_profile(companion)
            except (OSError, ValueError):
                continue


def _make_entry(profile: Profile, embedded: bool) -> Entry:
    return Entry(
        name=profile.name,
        file=profile.file,
        md5=profile.md5,
        max_score=profile.max_score,
        walkthrough_length=len(profile.walkthrough),
        seed=profile.seed,
        embedded=embedded,
    )


def _find_md5(path: Path) -> str:
    """The md5 of a file; empty if it cannot be read, or is too large for a story."""
    try:
        status = path.stat()
        return _compute_md5(path, status.st_size, status.st_mtime_ns)
    except (OSError, BadFileError):
        return ""


@cache
def _compute_md5(path: Path, size: int, changed: int) -> str:
    # Size and time of change are there for the cache alone: a file that was replaced is read again.
    return hashlib.md5(read_bounded(path, MAX_STORY_BYTES), usedforsecurity=False).hexdigest()
