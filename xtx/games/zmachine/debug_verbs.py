"""The verbs with which authors test their stories.

Inform's library has them where a story is compiled for debugging, and some stories were given away so. They show tables
of the program or reach across the walls of the world, so no player is meant to have them, and to list all objects takes
longer than hundreds of other commands.
"""

from __future__ import annotations

from collections.abc import Iterable

from xtx.games.zmachine.story_memory import Dictionary

_SIGNS = ("purloin", "abstract", "gonear")
"""Where the parser knows all of these, the story was compiled for debugging."""

_VERBS = frozenset(
    ("abstract", "actions", "changes", "daemons", "dict", "gonear", "goto", "messages", "purloin", "random", "routines",
     "scope", "showdict", "showobj", "showverb", "timers", "trace", "tree"),
)  # fmt: skip
"""Some of these words are verbs like others in stories that were not: there one may trace a rune or go to a place."""


def find_debugging_words(dictionary: Dictionary) -> frozenset[str]:
    """The debugging verbs of a story as its dictionary has them; none where it was not compiled for debugging."""
    if not all(dictionary.has_word(word) for word in _SIGNS):
        return frozenset()
    return frozenset(verb[: dictionary.length] for verb in _VERBS)


def drop_debugging_templates(templates: Iterable[str], dictionary: Dictionary) -> tuple[str, ...]:
    """Return the templates of a story's grammar without those of debugging verbs."""
    verbs = find_debugging_words(dictionary)
    return tuple(t for t in templates if t.split(" ", 1)[0][: dictionary.length] not in verbs)
