"""Numbers as stories print them."""

from __future__ import annotations

_UP_TO_TWENTY = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_WORDS = {word: number for number, word in enumerate(_UP_TO_TWENTY)} | {"no": 0, "a": 1, "nothing": 0}


def read_number(text: str) -> int:
    """The number that is written in digits or, up to twenty, as a word; 0 for anything else."""
    text = text.strip().lower().replace(",", "")
    if text.lstrip("-").isdecimal() and text.count("-") < 2:
        return max(-(2**31), min(2**31 - 1, int(text[:12])))
    return _WORDS.get(text, 0)
