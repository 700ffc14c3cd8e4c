"""Bundled atlas entries for the adventure that comes with xtx, so that the first run need not search for minutes.

They are a read-only packed atlas among the package data, made by stories/shipped.py. The key of an entry includes the
version of the search, so an outdated entry is never used. tests/games/atlas/test_bundled.py searches some of the states
again.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.resources import files

from xtx.games.atlas.archive import unpack

SUFFIX = ".shipped"
"""Suffix of the data file; its stem is that of the story."""


def read_shipped_findings(md5: str) -> dict[bytes, bytes]:
    """Return the bundled entries for a story, given by its MD5, by atlas key; empty for other stories.

    With XTX_NO_SHIPPED in the environment always empty, for tests and measurements of the search.
    """
    return {} if os.environ.get("XTX_NO_SHIPPED") else _read(md5)


@cache
def _read(md5: str) -> dict[bytes, bytes]:
    for file in files("xtx.games.catalog").joinpath("data").iterdir():
        if not file.name.endswith(SUFFIX):
            continue
        story = file.name.removesuffix(SUFFIX) + ".z5"
        content = files("xtx.games.catalog").joinpath("data", story).read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() == md5:
            return unpack(file.read_bytes())
    return {}
