"""Forms of commands beyond a game's templates: what `--wide-grammar` adds to the candidates.

General and cheap ones only, each the kind of command that walkthroughs need and templates cannot say: an object and
a direction, a number that is printed in the text, an order to somebody present, all but one thing, the wall on one
side, and words that stand in the descriptions of things (spells in a book, say) as objects or as verbs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"\b\d{1,5}\b")
_DIRECTIONS = (
    "north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down",
)  # fmt: skip
_PUSHING = ("push", "press", "pull", "roll", "move")
_SETTING = ("turn", "set", "dial", "tune", "spin")
_DIALS = ("dial", "knob", "wheel", "switch", "lever", "timer", "clock")
_TYPING = ("type", "enter", "press", "push", "dial", "say")
_PRINTED = 80
_REFUSALS = re.compile(
    r"can't talk|can't see|don't (know|see)|not (a verb|understand)|didn't understand|animate|no reply", re.I
)


def wide_candidates(
    names: Sequence[str], persons: Sequence[str], templates: Sequence[str], text: str, printed: Sequence[str]
) -> Iterable[str]:
    """Commands to try where `names` can be named, `persons` talked to, `text` can be seen, and the descriptions of
    things hold the words `printed` beside."""
    verbs = {template.split()[0] for template in templates}
    yield from _pushing(names, verbs)
    yield from _numbers(names, verbs, text)
    for verb in ("take", "drop"):
        yield from (f"{verb} all but {name}" for name in names)
    for person in persons:
        yield from _orders(person, [name for name in names if name != person])
    for word in printed[:_PRINTED]:
        yield from (t.replace("OBJ", word) for t in templates if t.count("OBJ") == 1)
        if word not in verbs:
            yield from (f"{word} {name}" for name in names)


def _pushing(names: Sequence[str], verbs: set[str]) -> Iterable[str]:
    for verb in _PUSHING:
        if verb in verbs:
            yield from (f"{verb} {name} {direction}" for name in names for direction in _DIRECTIONS)
            if verb in ("push", "press"):
                yield from (f"{verb} {direction} wall" for direction in _DIRECTIONS)


def _numbers(names: Sequence[str], verbs: set[str], text: str) -> Iterable[str]:
    for number in sorted(set(_NUMBER.findall(text)), key=int)[:10]:
        yield from (f"{verb} {name} to {number}" for verb in _SETTING if verb in verbs for name in names)
        yield from (f"{verb} {number}" for verb in _TYPING if verb in verbs)
    dials = [name for name in names if name.split()[-1] in _DIALS]
    yield from (
        f"{verb} {name} to {n}" for verb in _SETTING[:2] if verb in verbs for name in dials for n in range(1, 10)
    )


def _orders(person: str, others: Sequence[str]) -> Iterable[str]:
    yield from (f"{person}, {order}" for order in ("follow me", "wait", "stay", "come"))
    yield from (f"{person}, {direction}" for direction in _DIRECTIONS)
    yield from (f"{person}, {verb} {name}" for verb in ("take", "drop", "open") for name in others)
    yield from (f"{person}, give {name} to me" for name in others)


def listens(answer: str) -> bool:
    """Whether what answered `NAME, wait` so is somebody who can be given orders."""
    return not _REFUSALS.search(answer)
