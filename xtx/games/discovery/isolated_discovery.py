"""Finds out what a story's file does not say, in a process of its own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.files.atomic_writes import write_user_file
from xtx.games.canonical.survey_budget import Progress
from xtx.games.catalog.bare_profile import list_file_findings, make_bare_profile
from xtx.games.catalog.finding import Finding
from xtx.games.catalog.known_games import locate_found_profile
from xtx.games.catalog.profile import Profile
from xtx.games.catalog.profile_format import encode_profile
from xtx.games.catalog.story_file import Story, read_story
from xtx.processes.isolated_calls import ChildCall, Failed, Finished, Report, run_in_children

PATIENCE = 120.0
"""Seconds without a sign of progress after which a story is given up; a stage of the discovery takes some seconds."""
_STAGE = "looking for score, end and player"


class UnplayableStoryError(UserError):
    """A story that ends the emulator's process, or keeps it busy for ever, before it asks for anything."""


def describe_story(story: Story, on_progress: Progress | None = None) -> Story:
    """Return the story with a profile, discovered if only its file is known so far.

    What was discovered is kept in the user's cache. `on_progress` is called about once a second meanwhile. Raises
    `UnplayableStoryError`.
    """
    if story.profile is None or not story.profile.is_bare:
        return story
    try:
        profile = _discover_in_child(story, on_progress)
        with suppress(UserError):  # a cache that cannot be written is no cache
            write_user_file(locate_found_profile(story.md5), encode_profile(profile))
    except UnplayableStoryError:
        raise
    except UserError as error:
        profile = _fall_back(story, error)
    return replace(story, profile=profile)


def discover_in_child(story: Story, on_progress: Progress | None = None) -> Profile:
    """Return what `discover.discover` finds, in a process of its own; if the story ends that process, what its file
    says. Raises `UnplayableStoryError`."""
    try:
        return _discover_in_child(story, on_progress)
    except UnplayableStoryError:
        raise
    except UserError as error:
        return _fall_back(story, error)


def _discover_in_child(story: Story, on_progress: Progress | None) -> Profile:
    """Return what is discovered. Raises `UserError` if the process dies, or shows no progress for `PATIENCE`; an
    `UnplayableStoryError` if it does so while the story is being loaded."""
    path = story.path.absolute()
    call = ChildCall(discover_file, (str(path),), path.name)
    share = 0.0
    is_loaded = False

    def tell() -> None:
        if on_progress is not None:
            on_progress(share, _STAGE)

    # The caller also shows signs of life while the story shows none: how long that may last is decided here.
    for event in run_in_children([call], 1, PATIENCE, on_wait=tell):
        if isinstance(event, Failed):
            raise event.error if is_loaded else UnplayableStoryError(f"{event.error}: it cannot be played")
        if isinstance(event, Finished):
            return msgspec.json.decode(event.result, type=Profile)
        share, is_loaded = event.done / event.total, True
        tell()
    raise AssertionError("a call must end")


def make_progress(report: Report) -> Progress:
    """Return a function for `describe_story` that reports progress to the parent of this process."""
    return lambda share, _: report(round(100 * share), 100)


def _fall_back(story: Story, error: UserError) -> Profile:
    """Return what a story's file says, with the error that ended its discovery among the findings."""
    trouble = Finding("commands", "not tried", "not found", str(error))
    findings = (*list_file_findings(story.content), trouble)
    return msgspec.structs.replace(make_bare_profile(story.content, story.md5, story.path), findings=findings)


def discover_file(report: Report, path: str) -> bytes:
    """Discover the story in a file and return its profile as JSON. Called in a process of its own."""
    from xtx.games.discovery.discover import discover

    told = -1

    def on_progress(share: float, _: str) -> None:
        nonlocal told
        if (percent := int(100 * share)) > told:
            told = percent
            report(percent, 100)

    return msgspec.json.encode(discover(read_story(Path(path)), on_progress))
