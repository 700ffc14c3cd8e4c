"""What is known from the start about states of the adventure that comes with xtx, so that learning it need not begin
with minutes of searching: a read-only part of the atlas that is shipped as data (stories/shipped.py makes it).

An entry is what a search would find, under the key that says by which version of the search: one that does not fit the
present version is never looked up. tests/games/test_shipped.py searches some of them again.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.resources import files

from xtx.games.packed import unpack

SUFFIX = ".shipped"


def shipped_findings(md5: str) -> dict[bytes, bytes]:
    """What is known about a story, by the keys of the atlas; nothing for a story that did not come with xtx. With
    XTX_NO_SHIPPED in the environment, nothing at all: for tests and measurements of the search."""
    return {} if os.environ.get("XTX_NO_SHIPPED") else _read(md5)


@cache
def _read(md5: str) -> dict[bytes, bytes]:
    for file in files("xtx.games").joinpath("data").iterdir():
        if not file.name.endswith(SUFFIX):
            continue
        story = file.name.removesuffix(SUFFIX) + ".z5"
        content = files("xtx.games").joinpath("data", story).read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() == md5:
            return unpack(file.read_bytes())
    return {}
