"""Layouts for tests of several files: to find one out takes seconds to a minute for a real story."""

from __future__ import annotations

from xtx.games.canonical.canonical_state import Layout
from xtx.games.canonical.shipped_layouts import read_shipped_layout
from xtx.games.canonical.survey import survey_layout
from xtx.games.emulator.frotz import Emulator

_KNOWN: dict[str, Layout] = {}


def layout_of(emulator: Emulator) -> Layout:
    """What `survey_layout` finds: as it comes with xtx, else found out once for each story."""
    md5 = emulator.story.md5
    if md5 not in _KNOWN:
        _KNOWN[md5] = read_shipped_layout(emulator) or survey_layout(emulator)
    return _KNOWN[md5]
