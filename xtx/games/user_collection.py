"""The user's own collection: verifying story files and copying them to where the catalog finds them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Literal

import msgspec

from xtx.core import UserError
from xtx.files.atomic_writes import write_user_file
from xtx.games.catalog import known_games
from xtx.games.catalog.finding import Finding
from xtx.games.catalog.profile import Profile, Word, read_profile
from xtx.games.catalog.profile_format import encode_profile
from xtx.games.catalog.story_file import Story, read_story
from xtx.games.discovery.isolated_discovery import discover_in_child
from xtx.games.zmachine.story_memory import Header


@dataclass(frozen=True)
class Addition:
    """What became of one story file."""

    path: Path
    outcome: Literal["added", "there", "refused"]
    detail: str
    """The game's name; for a refused file, the reason in one line."""
    findings: tuple[Finding, ...] = ()
    """What was found out about a story that Jericho does not know."""


def add_games(
    path: Path,
    profile: Path | None = None,
    printed_score: str = "",
    score_address: int | None = None,
    on_addition: Callable[[Addition], None] = lambda addition: None,
) -> list[Addition]:
    """What became of a story file, or of each one in a folder and its subfolders.

    `printed_score` and `score_address` are for a single story with a score that is not found: a regular expression for
    the answer to `score`, or where in memory it stands. `on_addition` is told of each story as soon as it is done.

    Good stories are copied into the user's folder, whole or not at all. One bad file in a folder does not stop the
    others; raises `UserError` where a single file is bad, where there is nothing to add, or where nothing can be
    written.
    """
    hint = ScoreHint(printed_score, score_address)
    if not path.is_dir():
        addition = _add(path, profile, hint)
        on_addition(addition)
        return [addition]
    if profile is not None or hint:
        raise UserError(f"{path} is a folder; --profile and --score describe one story: name that story file")
    files, additions = _find_stories_below(path)
    if not files and not additions:
        raise UserError(f"{path} holds no story files (names that end in .z3, .z4, .z5 or .z8)")
    for file in files:
        try:
            additions.append(_add(file, None, ScoreHint()))
        except Refusal as refusal:
            additions.append(Addition(file, "refused", str(refusal)))
        on_addition(additions[-1])
    return additions


@dataclass(frozen=True)
class ScoreHint:
    """Where a user says that the score is; false if nowhere."""

    printed: str = ""
    address: int | None = None

    def __bool__(self) -> bool:
        return bool(self.printed) or self.address is not None


class Refusal(UserError):
    """One file is not good enough; others may be."""


def _find_stories_below(folder: Path) -> tuple[list[Path], list[Addition]]:
    """The story files in a folder and below it, and the folders that cannot be looked into."""
    found: list[Path] = []
    closed: list[Addition] = []

    def refuse(error: OSError) -> None:
        reason = f"{error.filename} cannot be read ({error.strerror}); check its permissions"
        closed.append(Addition(Path(error.filename), "refused", reason))

    for root, _, names in os.walk(folder, onerror=refuse):
        found += [Path(root, name) for name in names if known_games.is_story_name(Path(name))]
    return sorted(found), closed


def _add(path: Path, profile: Path | None, hint: ScoreHint) -> Addition:
    story = _read(path, profile)
    entry = known_games.find_jericho_entry(story.md5)
    if entry is not None:
        if profile is not None or hint:
            raise Refusal(f"{path} is {entry.name}, which Jericho knows: add it without --profile and --score")
        changed = _write_if_changed(known_games.find_user_folder() / entry.file, story.content)
        return Addition(path, "added" if changed else "there", entry.name)
    described = story.profile
    if described is None:
        described = None if hint else known_games.find_profile(story.md5)
        if described is not None:
            return Addition(path, "there", described.name, described.findings)
        described = _choose_free_name(_apply_hint(_discover(story), story, hint))
    elif hint:
        described = _apply_hint(described, story, hint)
    name = described.name
    _check_name(name, story.md5)
    target = known_games.find_user_folder() / f"{name}.z{story.content[0]}"
    described = msgspec.structs.replace(described, file=target.name)
    changed = _write_if_changed(target, story.content)
    changed |= _write_if_changed(target.with_suffix(".json"), encode_profile(described))
    return Addition(path, "added" if changed else "there", name, described.findings if not described.verified else ())


def _discover(story: Story) -> Profile:
    try:
        return discover_in_child(story)
    except UserError as error:  # a story that cannot be played, or whose process died
        raise Refusal(str(error)) from None


def _apply_hint(profile: Profile, story: Story, hint: ScoreHint) -> Profile:
    """Return the profile with the score where the user says that it is."""
    if not hint:
        return profile
    header = Header.read(story.content)
    findings = tuple(finding for finding in profile.findings if finding.what != "score")
    if hint.address is not None:
        if not 64 <= hint.address <= header.dynamic_size - 2:
            raise Refusal(f"--score takes an address in the story's memory, from 64 to {header.dynamic_size - 2}")
        said = Finding("score", f"address {hint.address}", "likely", "named by the user")
        score, printed = Word(hint.address), ""
    else:
        said = Finding("score", "printed", "likely", "named by the user")
        score, printed = None, hint.printed
    return msgspec.structs.replace(profile, score=score, printed_score=printed, findings=(*findings, said))


def _choose_free_name(profile: Profile) -> Profile:
    """Return the profile under a name that no other game has: with a number behind it if need be."""
    taken = {entry.name.lower(): entry.md5 for entry in known_games.list_entries()}
    names_left = chain((profile.name,), (f"{profile.name}-{number}" for number in count(2)))
    name = next(name for name in names_left if taken.get(name.lower(), profile.md5) == profile.md5)
    return msgspec.structs.replace(profile, name=name)


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
    fixed = next((e for e in known_games.list_entries() if e.name.lower() == name.lower()), None)
    if fixed is not None and fixed.md5 != md5 and (fixed.embedded or known_games.find_jericho_entry(fixed.md5)):
        raise Refusal(f"there is another game called {name}: give the story another name in its profile")


def _write_if_changed(target: Path, content: bytes) -> bool:
    """Write a file unless it has this content; return whether it was written."""
    try:
        if target.is_file() and target.read_bytes() == content:
            return False
    except OSError as error:
        raise UserError(f"{target} cannot be read ({error.strerror}); nothing was changed there") from None
    write_user_file(target, content)
    return True
