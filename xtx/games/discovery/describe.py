"""Stories with all that is known or can be found out of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import msgspec

from xtx.core import UserError
from xtx.games.catalog import found_folder
from xtx.games.child_process import Report, call_in_child
from xtx.games.files import write_whole
from xtx.games.finding import Finding
from xtx.games.profile import Profile
from xtx.games.profile_format import encode_profile
from xtx.games.story import Story, read_story

PATIENCE = 120.0
"""Seconds without a sign of progress after which a story is given up; a stage of the discovery takes some seconds."""


def describe(story: Story) -> Story:
    """The story with what can be found out where only its file is known so far; that is kept in the user's cache. Runs
    the story, so it must be called in a process of its own."""
    if story.profile is None or not story.profile.is_bare:
        return story
    from xtx.games.discovery.discover import discover

    profile = discover(story)
    with suppress(UserError):  # a cache that cannot be written is no cache
        write_whole(found_folder() / f"{story.md5}.json", encode_profile(profile))
    return replace(story, profile=profile)


def discover_in_child(story: Story) -> Profile:
    """The profile that `discover.discover` finds, in a process of its own. Where the story ends that process, what its
    file says."""
    from xtx.games.discovery.from_file import bare_profile, file_findings

    path = story.path.absolute()
    try:
        found: bytes = call_in_child(discover_file, str(path), name=path.name, patience=PATIENCE)
        return msgspec.json.decode(found, type=Profile)
    except UserError as error:
        trouble = Finding("commands", "not tried", "not found", str(error))
        findings = (*file_findings(story.content), trouble)
        return msgspec.structs.replace(bare_profile(story.content, story.md5, path), findings=findings)


def discover_file(report: Report, path: str) -> bytes:
    """The profile of the story in a file, as JSON. Called in a process of its own."""
    from pathlib import Path

    from xtx.games.discovery.discover import discover

    def on_progress(share: float, _: str) -> None:
        report(round(100 * share), 100)

    return msgspec.json.encode(discover(read_story(Path(path)), on_progress))
