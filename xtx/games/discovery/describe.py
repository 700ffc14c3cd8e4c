"""Stories with all that is known or can be found out of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from xtx.core import UserError
from xtx.files.atomic_writes import write_whole
from xtx.games.catalog.known_games import found_file
from xtx.games.catalog.profile_format import encode_profile
from xtx.games.catalog.story_file import Story


def describe(story: Story) -> Story:
    """The story with what can be found out where only its file is known so far; that is kept in the user's cache. Runs
    the story, so it must be called in a process of its own."""
    if story.profile is None or not story.profile.is_bare:
        return story
    from xtx.games.discovery.discover import discover

    profile = discover(story)
    with suppress(UserError):  # a cache that cannot be written is no cache
        write_whole(found_file(story.md5), encode_profile(profile))
    return replace(story, profile=profile)
