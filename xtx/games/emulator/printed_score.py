"""Numbers as stories print them."""

from __future__ import annotations

_UP_TO_TWENTY = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS = {word: number for number, word in enumerate(_UP_TO_TWENTY)} | {"no": 0, "a": 1, "nothing": 0}
_WORDS |= {word: 10 * number for number, word in enumerate(_TENS, 2)}
_WORD = "|".join(sorted((*_WORDS, "hundred", "thousand"), key=len, reverse=True))
NUMBER_WORDS = rf"(?:minus )?(?:{_WORD})(?:(?: and |, |[ -])(?:{_WORD}))*"
"""A regular expression for a number in words, such as "two hundred and seven"."""


def read_number(text: str) -> int:
    """The number that is written in digits or in English words; 0 for anything else."""
    text = text.strip().lower().replace(",", "")
    if text.lstrip("-").isdecimal() and text.count("-") < 2:
        return max(-(2**31), min(2**31 - 1, int(text[:12])))
    words = text.replace("-", " ").split()
    total = part = 0
    for word in words:
        if word == "thousand":
            total, part = total + 1000 * max(part, 1), 0
        elif word == "hundred":
            part = 100 * max(part, 1)
        elif word in _WORDS:
            part += _WORDS[word]
        elif word not in ("and", "minus"):
            return 0
    return (total + part) * (-1 if words[:1] == ["minus"] else 1)
