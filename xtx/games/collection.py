"""The user's own collection: verifying story files and copying them to where the catalog finds them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from xtx.core import UserError
from xtx.games import catalog
from xtx.games.files import write_whole
from xtx.games.profile import read_profile
from xtx.games.story import Story, read_story


@dataclass(frozen=True)
class Addition:
    """What became of one story file."""

    path: Path
    outcome: Literal["added", "there", "refused"]
    detail: str
    """The game's name; for a refused file, the reason in one line."""


def add_games(path: Path, profile: Path | None = None) -> list[Addition]:
    """What became of a story file, or of each one in a folder and its subfolders.

    Good stories are copied into the user's folder, whole or not at all. One bad file in a folder does not stop the
    others; raises `UserError` where a single file is bad, where there is nothing to add, or where nothing can be
    written.
    """
    if not path.is_dir():
        return [_add(path, profile)]
    if profile is not None:
        raise UserError(f"{path} is a folder; --profile describes one story: name that story file")
    files, additions = _stories_below(path)
    if not files and not additions:
        raise UserError(f"{path} holds no story files (names that end in .z3, .z4, .z5 or .z8)")
    for file in files:
        try:
            additions.append(_add(file, None))
        except Refusal as refusal:
            additions.append(Addition(file, "refused", str(refusal)))
    return additions


class Refusal(UserError):
    """One file is not good enough; others may be."""


def _stories_below(folder: Path) -> tuple[list[Path], list[Addition]]:
    """The story files in a folder and below it, and the folders that cannot be looked into."""
    found: list[Path] = []
    closed: list[Addition] = []

    def refuse(error: OSError) -> None:
        reason = f"{error.filename} cannot be read ({error.strerror}); check its permissions"
        closed.append(Addition(Path(error.filename), "refused", reason))

    for root, _, names in os.walk(folder, onerror=refuse):
        found += [Path(root, name) for name in names if catalog.is_story_name(Path(name))]
    return sorted(found), closed


def _add(path: Path, profile: Path | None) -> Addition:
    story = _read(path, profile)
    entry = catalog.supported(story.md5)
    if entry is not None:
        if profile is not None:
            raise Refusal(f"{path} is {entry.name}, which Jericho knows: add it without --profile")
        changed = _put(catalog.user_folder() / entry.file, story.content)
        return Addition(path, "added" if changed else "there", entry.name)
    if story.profile is None:
        known = catalog.find_profile(story.md5)
        if known is None:
            raise Refusal(catalog.needs_profile(str(path)))
        return Addition(path, "there", known.name)
    name = story.profile.name
    _check_name(name, story.md5)
    target = catalog.user_folder() / (name + path.suffix.lower())
    changed = _put(target, story.content)
    changed |= _put(target.with_suffix(".json"), (profile or path.with_suffix(".json")).read_bytes())
    return Addition(path, "added" if changed else "there", name)


def _read(path: Path, profile: Path | None) -> Story:
    try:
        story = read_story(path)
        if profile is None:
            return story
        try:
            described = read_profile(profile)
        except ValueError as error:
            raise UserError(f"{profile}: {error}") from None
    except UserError as error:
        raise Refusal(str(error)) from None
    if described.md5 != story.md5:
        raise Refusal(f"{profile} describes another story than {path} (md5 {described.md5}, not {story.md5})")
    return replace(story, profile=described)


def _check_name(name: str, md5: str) -> None:
    """Nothing, if a profile's name can be the name of a file and of a game; else raises `Refusal`."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise Refusal(f"the profile's name {name!r} cannot be typed as a game's: use letters, digits, - and _")
    fixed = next((e for e in catalog.entries() if e.name.lower() == name.lower()), None)
    if fixed is not None and fixed.md5 != md5 and (fixed.embedded or catalog.supported(fixed.md5)):
        raise Refusal(f"there is another game called {name}: give the story another name in its profile")


def _put(target: Path, content: bytes) -> bool:
    """Whether the file had to be written."""
    try:
        if target.is_file() and target.read_bytes() == content:
            return False
    except OSError as error:
        raise UserError(f"{target} cannot be read ({error.strerror}); nothing was changed there") from None
    write_whole(target, content)
    return True
