"""How the end of a game reads: for stories in which no number in memory says it."""

from __future__ import annotations

import re

_TAIL = 400
"""Characters at the end of a narration in which the question stands that follows the end of a game."""

_QUESTION = re.compile(r"\brestart\b.*\b(restore|quit|end)\b|\b(restore|quit)\b.*\brestart\b", re.I | re.S)
"""What a story asks at the end of a game: whether to restart, to restore a saved game or to quit."""

_ENDING = re.compile(r"\*\*([^*\n]{3,120})\*\*")
"""What a story prints at the end of a game, as in "*** You have won ***"."""

_VICTORY = re.compile(
    r"\b(you|you've|you have)\s+(have\s+)?(finally\s+)?(won|triumphed|succeeded|finished|completed)\b"
    r"|\b(victory|congratulations|well done)\b",
    re.I,
)


def is_end_text(narration: str) -> bool:
    """Return whether a narration ends with the question whether to restart, restore or quit.

    A story may also say so in an answer of its help: it is an end only at a prompt that is not the usual one."""
    return bool(_QUESTION.search(narration[-_TAIL:]))


def find_ending(narration: str) -> str:
    """The words between asterisks with which a story ends a game; empty for none."""
    found = (match.strip() for match in _ENDING.findall(narration))
    return next((words for words in found if 3 <= len(words) <= 80), "")


def is_victory_text(narration: str) -> bool:
    """Return whether the end of a game is a victory: by the words between asterisks, or else by the last paragraphs."""
    words = find_ending(narration)
    return bool(_VICTORY.search(words or narration[-2 * _TAIL :]))
