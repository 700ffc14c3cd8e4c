"""Typed commands, converted to what the emulator can read."""

from __future__ import annotations

import re
import unicodedata

COMMAND_LENGTH = 198
"""Longest command in bytes that the emulator's input buffer takes."""

READABLE = frozenset(map(chr, range(32, 127))) - {"\\"}
"""Characters that games can be told; after a backslash the emulator takes what follows for an order to itself."""

_NOT_TYPED = dict.fromkeys((*range(32), 127, ord("\\")), " ")
"""Characters that libfrotz would take for more than letters: a backslash begins commands to the interpreter, some of
which never end, and what follows a line's end is kept for the next line, beyond the reach of `restore`."""

# Quotation marks, dashes and dots as editors and telephones make them, and letters that do not come apart.
_PLAIN = str.maketrans(
    "\u2018\u2019\u201a\u201c\u201d\u201e\u00b4\u2013\u2014\u2212\u2026\u00df\u00e6\u00f8\u0142\u0111",
    "'''\"\"\"'---.saold",
)
_SENTENCES = re.compile(r"\.|,|;|\bthen\b")
_TO_THE_PROGRAM = re.compile(
    r"(save|restore|restart|quit|q|undo|replay|(script|transcript|noscript|unscript|notranscript|recording|record)"
    r"( (on|off))?)"
)

_PROGRAM_WORDS = (
    "restore", "restart", "transcript", "noscript", "unscript", "notranscript", "recording", "script", "replay",
)  # fmt: skip


def encode_command(command: str) -> bytes:
    """Return the command as the emulator is given it: plain ASCII, with a question mark for what is not."""
    return command.translate(_NOT_TYPED).encode("ascii", "replace")[:COMMAND_LENGTH]


def make_plain_command(command: str) -> str:
    """Return the command with its typographic signs and accents replaced by the plain letters that games know."""
    decomposed = unicodedata.normalize("NFKD", command.translate(_PLAIN))
    bare = "".join(sign for sign in decomposed if not unicodedata.combining(sign))
    return " ".join(bare.split())


def describe_fault(command: str) -> str:
    """Return why the emulator cannot read a plain command, as a sentence; empty if it can."""
    foreign = sorted({sign for sign in command if sign not in READABLE})
    if foreign:
        shown = " ".join(sign if sign.isprintable() and sign != "\ufffd" else "?" for sign in foreign[:5])
        return f"The game reads plain letters only, and cannot read: {shown}"
    if len(command) > COMMAND_LENGTH:
        return f"That is too long: the game reads {COMMAND_LENGTH} letters at most, and these are {len(command)}."
    return ""


def fit_command(command: str) -> str:
    """Return the nearest command that the emulator can read, for programs, which cannot be asked to type it again."""
    return "".join(sign if sign in READABLE else " " for sign in make_plain_command(command))[:COMMAND_LENGTH]


def find_interpreter_word(command: str, length: int = 0) -> str:
    """The first word of a command that is meant for the interpreter and not for the story, or nothing.

    An interpreter writes files at such a word (`save`, `script`), or stops. With a `length` other than 0 words may
    be cut off after so many letters, as a story's dictionary has them.
    """
    for sentence in _SENTENCES.split(command.lower()):
        words = sentence.split()
        if length and words and len(words[0]) == length:
            words[0] = next((word for word in _PROGRAM_WORDS if word[:length] == words[0]), words[0])
        if _TO_THE_PROGRAM.fullmatch(" ".join(words)):
            return words[0]
    return ""
