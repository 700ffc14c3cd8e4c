"""The grammar of a story that Infocom's compiler made, read from the story file.

A pointer for each verb stands where static memory begins; verbs are numbered downwards from 255, and the dictionary
says which word is which verb or preposition. The lines of a verb come in two layouts: eight bytes each, or two, four or
seven bytes for lines with no, one or two objects. The layout is the one in which all tables lie end to end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from xtx.games.zmachine.story_memory import Header, decode_text, read_word
from xtx.games.zmachine.typed_input import find_interpreter_word

HOLE = "OBJ"

_VERB, _PREPOSITION = 0x40, 0x08
"""Flags of a dictionary word; the lowest two bits say for which use its first byte of data is."""
_MAX_VERBS = 255
_FIXED_LINE = 8
_VARIABLE_LINES = (2, 4, 7)
_TO_THE_PROGRAM = frozenset(
    ("quit", "q", "restart", "restore", "save", "script", "unscript", "verbose", "brief", "superbrief", "version",
     "score", "diagnose", "time", "verify", "notify", "undo", "record", "unrecord", "command", "random"),
)  # fmt: skip

SyntaxLine = tuple[int, int, int]
"""The number of objects, and the prepositions before the first and before the second; 0 for none."""
_TableReader = Callable[[bytes, int], tuple[list[SyntaxLine], int]]
_MIN_NAMED = 0.8
"""Share of the lines with prepositions that the dictionary must know; it lacks those that no player can type."""


def read_infocom_templates(story: bytes) -> list[str]:
    """The templates of all commands that an Infocom story's grammar knows, fewest holes first, in the manner of
    `profile.read_grammar_templates`. Words are cut off after as many letters as the dictionary has.

    Raises `ValueError` for a story without such a grammar.
    """
    try:
        verbs, prepositions = _read_words(story)
        tables = _find_tables(story, prepositions)
    except IndexError:
        raise ValueError("the dictionary or the grammar points outside the story") from None
    if len(verbs.keys() & tables.keys()) < 2:
        raise ValueError("the dictionary names no verbs of the grammar")
    length = 6 if Header.read(story).small else 9
    templates = set()
    for number, names in verbs.items():
        usable = sorted(name for name in names if _is_for_the_story(name, length))
        for line in tables.get(number, ()) if usable else ():
            templates.add(" ".join(["/".join(usable), *_spell_tail(line, prepositions)]))
    return sorted(templates, key=lambda template: (template.split().count(HOLE), template))


def _is_for_the_story(verb: str, length: int) -> bool:
    whole = {name[:length] for name in _TO_THE_PROGRAM}
    return verb[:1].isalpha() and verb not in whole and not find_interpreter_word(verb, length)


def _spell_tail(line: SyntaxLine, prepositions: dict[int, list[str]]) -> Iterator[str]:
    """What stands behind the verb."""
    objects, first, second = line
    for number, preposition in ((1, first), (2, second)):
        if preposition:
            yield "/".join(prepositions[preposition])
        if objects >= number:
            yield HOLE


def _read_words(story: bytes) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """The words of each verb and of each preposition, by its number."""
    header = Header.read(story)
    start = header.dictionary
    start += 1 + story[start]
    letters, size, count = 4 if header.small else 6, story[start], read_word(story, start + 1)
    if size < letters + 3:
        raise ValueError("the dictionary says nothing of its words")
    verbs: defaultdict[int, list[str]] = defaultdict(list)
    prepositions: defaultdict[int, list[str]] = defaultdict(list)
    for address in range(start + 3, start + 3 + size * count, size):
        flags, *data = story[address + letters : address + letters + 3]
        text = decode_text(story, address, header, size=letters).strip()
        if flags & _VERB:
            verbs[data[flags & 3 != 1]].append(text)
        if flags & _PREPOSITION:
            prepositions[data[flags & 3 != 0]].append(text)
    return verbs, {number: sorted(names) for number, names in prepositions.items()}


def _find_tables(story: bytes, prepositions: Iterable[int]) -> dict[int, list[SyntaxLine]]:
    """The lines by verb number."""
    start = Header.read(story).dynamic_size
    first = read_word(story, start)
    count = (first - start) // 2
    if not 1 <= count <= _MAX_VERBS or first - start != 2 * count:
        raise ValueError("no Infocom grammar found in the story")
    addresses = [read_word(story, start + 2 * i) for i in range(count)]
    known = {0, *prepositions}
    for read in (_read_fixed_lines, _read_variable_lines):
        for padding in (0, 1):  # some tables end with a byte of their own
            tables = _read_tables(story, addresses, read, padding)
            named = sum(line[1] in known and line[2] in known for lines in tables for line in lines)
            if tables and named >= _MIN_NAMED * sum(map(len, tables)):
                return {
                    255 - i: [line for line in lines if line[1] in known and line[2] in known]
                    for i, lines in enumerate(tables)
                }
    raise ValueError("no Infocom grammar found in the story")


def _read_tables(story: bytes, addresses: Sequence[int], read: _TableReader, padding: int) -> list[list[SyntaxLine]]:
    """The lines of all verbs; none if they do not lie end to end."""
    tables: list[list[SyntaxLine]] = []
    at = addresses[0]
    for address in addresses:
        if address != at:
            return []
        try:
            lines, at = read(story, address)
        except ValueError:
            return []
        tables.append(lines)
        at += padding
    return tables


def _read_fixed_lines(story: bytes, address: int) -> tuple[list[SyntaxLine], int]:
    """The lines of one verb and the address after them: number of objects, two prepositions, what else the objects must
    be, action."""
    lines: list[SyntaxLine] = []
    count, address = story[address], address + 1
    for line in range(address, address + count * _FIXED_LINE, _FIXED_LINE):
        objects, first, second = story[line : line + 3]
        lines.append((objects & 3, first, second))
    return lines, address + count * _FIXED_LINE


def _read_variable_lines(story: bytes, address: int) -> tuple[list[SyntaxLine], int]:
    """The same in the layout that leaves out what a line does not need. Prepositions have six bits there."""
    lines: list[SyntaxLine] = []
    count, address = story[address], address + 1
    for _ in range(count):
        objects, first = story[address] >> 6, story[address] & 63
        if objects >= len(_VARIABLE_LINES):
            raise ValueError("no line of a grammar")
        second = story[address + 4] & 63 if objects == 2 else 0
        lines.append((objects, first and first | 0xC0, second and second | 0xC0))
        address += _VARIABLE_LINES[objects]
    return lines, address
