"""What a story file alone says of its game: enough to play by hand, whatever else is missing."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from xtx.games.catalog.finding import Finding
from xtx.games.catalog.profile import Profile, read_grammar_templates
from xtx.games.zmachine.infocom_grammar import read_infocom_templates
from xtx.games.zmachine.story_memory import Header, count_objects

SEED = 1
"""The emulator seed with which a game begins of which no walkthrough is known."""

_COMMON_TEMPLATES = (
    "close OBJ", "drop OBJ", "drop all", "eat OBJ", "enter OBJ", "examine OBJ", "give OBJ to OBJ", "look", "open OBJ",
    "pull OBJ", "push OBJ", "put OBJ in OBJ", "put OBJ on OBJ", "read OBJ", "take OBJ", "take all", "talk to OBJ",
    "turn OBJ", "turn on OBJ", "unlock OBJ with OBJ", "wait", "wear OBJ",
)  # fmt: skip
"""What is tried in a story if its grammar cannot be read."""


def make_bare_profile(content: bytes, md5: str, path: Path) -> Profile:
    """The profile of a story as far as its file says it."""
    header, name = Header.read(content), make_name(path)
    return Profile(
        name=name,
        title=name,
        file=f"{name}.z{header.version}",
        md5=md5,
        max_score=0,
        objects=_count_objects(content, header),
        word_length=6 if header.small else 9,
        grammar=_find_grammar(content)[0],
        seed=SEED,
        verified=False,
    )


def list_file_findings(content: bytes) -> tuple[Finding, ...]:
    """How good what the file says is."""
    count = _count_objects(content, Header.read(content))
    return _find_grammar(content)[1], Finding("objects", str(count), "likely", "read from the object table")


def _count_objects(content: bytes, header: Header) -> int:
    with suppress(IndexError):  # a table that reaches behind the end of the file
        return max(1, min(0xFFFF, count_objects(content, header)))
    return 1


def make_name(path: Path) -> str:
    """Make a game's name of a file's name: letters, digits, - and _."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-_").lower() or "story"


def _find_grammar(story: bytes) -> tuple[tuple[str, ...], Finding]:
    for compiler, read in (("Inform", read_grammar_templates), ("Infocom", read_infocom_templates)):
        with suppress(ValueError, IndexError):
            templates = tuple(read(story))
            if templates:
                return templates, Finding("grammar", f"{len(templates)} templates", "sure", f"read as {compiler}'s")
    how = "no grammar of Inform's or Infocom's was read; common commands are tried"
    return _COMMON_TEMPLATES, Finding("grammar", "not found", "not found", how)
