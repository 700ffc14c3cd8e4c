"""Commands out of transcripts, and what a story printed at each of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PROMPT = re.compile(r"^\s*>+[ \t]*(\S.*?)\s*$")


@dataclass(frozen=True)
class TranscriptTurn:
    """One command of a transcript, and the text below it; no text in a list of commands."""

    command: str
    text: str = ""


def read_turns(content: str) -> list[TranscriptTurn]:
    """The turns in a transcript, with commands behind a prompt (>), or in a list with one command a line. In a
    list lines that begin with # are left out."""
    lines = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    prompts = [(i, found[1]) for i, line in enumerate(lines) if (found := _PROMPT.match(line))]
    if not prompts:
        return [TranscriptTurn(line.strip()) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    ends = [*(i for i, _ in prompts[1:]), len(lines)]
    return [
        TranscriptTurn(command, "\n".join(lines[i + 1 : end]).strip())
        for (i, command), end in zip(prompts, ends, strict=True)
    ]


def measure_likeness(expected: str, printed: str) -> float:
    """The share of the expected words that were printed, from 0 to 1; 1 where none were expected."""
    words = _split_words(expected)
    return sum(word in _split_words(printed) for word in words) / len(words) if words else 1.0


def _split_words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9']+", text.lower()))


def mean(shares: Sequence[float]) -> float:
    """The mean of some shares; 1 for none."""
    return sum(shares) / len(shares) if shares else 1.0
