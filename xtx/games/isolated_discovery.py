"""Finding out what a story's file does not say, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.games.catalog.bare_profile import bare_profile, file_findings
from xtx.games.catalog.finding import Finding
from xtx.games.catalog.profile import Profile
from xtx.games.catalog.story_file import Story, read_story
from xtx.games.isolated_calls import Report, call_in_child

PATIENCE = 120.0
"""Seconds without a sign of progress after which a story is given up; a stage of the discovery takes some seconds."""


def discover_in_child(story: Story) -> Profile:
    """The profile that `discover.discover` finds, in a process of its own. Where the story ends that process, what its
    file says."""
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
    from xtx.games.discovery.discover import discover

    def on_progress(share: float, _: str) -> None:
        report(round(100 * share), 100)

    return msgspec.json.encode(discover(read_story(Path(path)), on_progress))
