"""Names of agents as reports show them: a class in a file goes by the file's name, without its folder."""

from __future__ import annotations

from collections.abc import Iterable


def shorten_agent(name: str) -> str:
    """`FILE.py:CLASS` without the folders before it; other names as they are."""
    path, colon, kind = name.rpartition(":")
    is_file = bool(colon) and path.endswith(".py") and kind.isidentifier()
    return name.replace("\\", "/").rpartition("/")[2] if is_file else name


def shorten_agents(names: Iterable[str]) -> dict[str, str]:
    """A short name for each; those that would be called alike keep their folders."""
    full = list(dict.fromkeys(names))
    short = [shorten_agent(name) for name in full]
    return {name: cut if short.count(cut) == 1 else name for name, cut in zip(full, short, strict=True)}
