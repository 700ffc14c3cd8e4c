"""Layouts of canonical states that come with xtx, so that games which were surveyed already start at once.

They are what a quick survey finds: tests compare some of them with a survey made afresh, `make verify` all. A layout
has addresses and numbers only; the memory that canonical states are filled with is kept as differences from the story's
own, so nothing of a story is in the file. tools/ship_layouts.py makes it.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec
import numpy as np

from xtx.games.canonical.canonical_state import SURVEY_VERSION, Layout
from xtx.games.emulator.frotz import Emulator

FILE = "layouts.xz"
"""In xtx/games/catalog/data."""


class ShippedLayout(msgspec.Struct, frozen=True, array_like=True):
    """A layout without the memory that canonical states are filled with."""

    layout: Layout
    """Its `fill` is empty."""
    differences: dict[int, int]
    """Values of the fill by address, where they differ from memory at the first prompt."""


class _Contents(msgspec.Struct, frozen=True, array_like=True):
    version: int
    layouts: dict[str, ShippedLayout]
    """By the story's md5."""


def read_shipped_layout(emulator: Emulator) -> Layout | None:
    """The layout of an emulator's story, if one comes with xtx; the emulator is then at the beginning of the game."""
    shipped = read_shipped().get(emulator.story.md5)
    if shipped is None or emulator.story.profile is not None:
        return None
    fill = _read_first_memory(emulator)
    fill[list(shipped.differences)] = list(shipped.differences.values())
    return msgspec.structs.replace(shipped.layout, fill=fill.tobytes())


def strip_layout(emulator: Emulator, layout: Layout) -> ShippedLayout:
    """The layout as it is shipped."""
    fill, first = np.frombuffer(layout.fill, np.uint8), _read_first_memory(emulator)
    differences = {int(a): int(fill[a]) for a in np.flatnonzero(fill != first)}
    return ShippedLayout(msgspec.structs.replace(layout, fill=b""), differences)


def pack_layouts(layouts: Mapping[str, ShippedLayout]) -> bytes:
    """The content of the file, by the stories' md5."""
    contents = _Contents(SURVEY_VERSION, dict(sorted(layouts.items())))
    return lzma.compress(msgspec.msgpack.encode(contents), preset=9)


def _read_first_memory(emulator: Emulator) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    emulator.reset(emulator.bindings.walkthrough_seed)
    return emulator.ram.copy()


@cache
def read_shipped() -> dict[str, ShippedLayout]:
    """What comes with xtx, by the stories' md5; nothing if another version of the survey made it."""
    file = files("xtx.games.catalog").joinpath("data", FILE)
    if not file.is_file():
        return {}
    contents = msgspec.msgpack.decode(lzma.decompress(file.read_bytes()), type=_Contents)
    return contents.layouts if contents.version == SURVEY_VERSION else {}
