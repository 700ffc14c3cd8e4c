"""The one place where a game's texts are cleaned; lower-casing and tokenising happen later, elsewhere."""

from __future__ import annotations

import re
from functools import lru_cache

_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" ?\n\s*")
_PROMPT = re.compile(r"\s*>\s*$")


@lru_cache(maxsize=4096)  # a search reads the same answers again and again
def clean(text: str) -> str:
    """The text without the prompt at its end, with single spaces and without empty lines."""
    text = _SPACES.sub(" ", text.replace("\r", "\n"))
    text = _LINES.sub("\n", text)
    return _PROMPT.sub("", text).strip()
