"""Layouts of canonical states: those that come with xtx, those that an atlas holds, and those that a survey finds."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec

from xtx.games.atlas.store import Atlas
from xtx.games.canonical.canonical_state import CANONICAL_VERSION, ELSEWHERE, SURVEY_VERSION, Layout
from xtx.games.canonical.shipped_layouts import read_shipped_layout
from xtx.games.canonical.survey import ONLY_WALKED, survey_layout
from xtx.games.canonical.survey_budget import QUICK, THOROUGH, Budget, Progress
from xtx.games.catalog.profile_format import make_profile_key
from xtx.games.catalog.story_file import Story
from xtx.games.emulator.frotz import Emulator
from xtx.games.emulator.snapshots import STACK_WORDS
from xtx.games.state_findings import decode_entry


def find_layout(
    emulator: Emulator,
    atlas: Atlas | None,
    thorough: bool,
    avoid: Collection[str] = (),
    on_progress: Progress | None = None,
) -> Layout:
    """Return the layout of the emulator's story, surveyed if it is not known.

    avoid: commands that killed a process in the survey. The atlas gets a layout that was found without any.
    """
    layout = recall_layout(emulator, atlas, thorough)
    if layout is None:
        layout = survey_layout(emulator, avoid, Budget(THOROUGH if thorough else QUICK, on_progress))
        if atlas is not None and not avoid and ONLY_WALKED not in layout.cut_short:
            atlas.put(_make_layout_key(emulator.story, thorough), msgspec.msgpack.encode(layout))
    return layout


def recall_layout(emulator: Emulator, atlas: Atlas | None, thorough: bool = False) -> Layout | None:
    """The layout that comes with xtx, or that an earlier survey left in the atlas; None if there is none."""
    shipped = None if thorough else read_shipped_layout(emulator)
    if shipped is not None or atlas is None:
        return shipped
    stored = decode_entry(atlas.get(_make_layout_key(emulator.story, thorough)), Layout)
    if stored is None or not is_layout_valid(stored, len(emulator.ram)):
        return None
    # An earlier survey said nothing of rooms off the walkthrough.
    is_whole = not stored.unchecked or ELSEWHERE in stored.unchecked
    return stored if is_whole else None


def _make_layout_key(story: Story, thorough: bool) -> bytes:
    return hashlib.blake2b(
        f"layout;{make_version(story, thorough)};{make_story_key(story)}".encode(), digest_size=16
    ).digest()


def make_story_key(story: Story) -> str:
    """The story's part of every key in the atlas: its md5 and, where there is one, its profile, which says what belongs
    to the world and what can be typed."""
    if story.profile is None:
        return story.md5
    return f"{story.md5}+{hashlib.blake2b(make_profile_key(story.profile), digest_size=16).hexdigest()}"


def make_version(story: Story, thorough: bool) -> str:
    """Return the version of the survey, or of canonical states alone where a profile says what the survey would find.

    So what is shipped of the embedded adventure stays valid when only the survey changes."""
    if story.profile is not None and story.profile.volatile:
        return str(CANONICAL_VERSION)
    return f"{SURVEY_VERSION}, thorough" if thorough else str(SURVEY_VERSION)


def is_layout_valid(layout: Layout, size: int) -> bool:
    """Return whether all addresses in a layout lie within `size` bytes of RAM, and its stack is one."""
    if not 0 <= layout.sp <= STACK_WORDS or len(layout.stack) != 2 * (STACK_WORDS - layout.sp):
        return False
    addresses = [
        *layout.counters,
        *layout.idle,
        *layout.timestamp_bytes,
        *(address for _, address, _ in layout.equivalent_values),
    ]
    addresses += [
        address for local in (layout.room_bytes, layout.unchecked) for bytes_ in local.values() for address in bytes_
    ]
    addresses += [address for together in layout.scheduled_events for address, _ in together]
    whole = all(len(table) == 256 for _, _, table in layout.equivalent_values) and all(layout.scheduled_events)
    whole &= all(0 <= value < 256 for together in layout.scheduled_events for _, value in together)
    return len(layout.mask) == len(layout.fill) == size and whole and all(0 <= a < size for a in addresses)
