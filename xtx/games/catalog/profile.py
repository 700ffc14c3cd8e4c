"""A profile: what must be known about a story that Jericho does not know, and how it is made from Inform 6.

Inform writes the addresses of a story's variables into `gameinfo.dbg` (option -k); the grammar is read from the
story itself. `xtx games profile` is the command.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import msgspec

from xtx.files.bounded_reads import read_json
from xtx.games.catalog.finding import Finding
from xtx.games.zmachine.infocom_grammar import HOLE
from xtx.games.zmachine.story_memory import Header, Ram, decode_text, read_word

Address = Annotated[int, msgspec.Meta(ge=0, lt=0x10000)]
Size = Annotated[int, msgspec.Meta(ge=1, le=4)]
Number = Annotated[int, msgspec.Meta(ge=1, lt=0x10000)]


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signed big-endian number in the story's RAM."""

    address: Address
    size: Size = 2

    def read(self, ram: bytes | Ram) -> int:
        """The number as it stands in a picture of the RAM."""
        content = bytes(ram[self.address : self.address + self.size])
        if len(content) < self.size:
            raise ValueError(f"the RAM has no byte {self.address + self.size - 1}")
        return int.from_bytes(content, "big", signed=True)


class End(Word, frozen=True, forbid_unknown_fields=True):
    """The number that says how the game ended: 0 while it goes on, one of `won`, or anything else for lost."""

    won: tuple[int, ...] = (2,)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a game is called, where its numbers lie in RAM, and what can be typed."""

    name: str
    title: str
    author: str = ""
    file: str
    """Name of the story file, which lies beside the profile."""
    md5: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    max_score: int
    player: Number | None = None
    """Object number of the player; None where it is not known."""
    objects: Number
    """Number of objects in the object table."""
    score: Word | None = None
    """None where no number in RAM is the score: see `printed_score`."""
    moves: Word | None = None
    end: End | None = None
    """None where no number in RAM says it: the end is then read from what is printed."""
    location: Word | None = None
    """Object number of the room shown in the status line; in the dark, Inform's object for darkness."""
    special: tuple[Address, ...] = ()
    """RAM bytes that belong to the world beyond object moves and attributes."""
    ignored_objects: tuple[Number, ...] = ()
    ignored_attributes: tuple[Annotated[int, msgspec.Meta(ge=0, lt=48)], ...] = ()
    """Attributes that do not belong to the world."""
    volatile: tuple[tuple[int, int], ...] = ()
    """Half-open address ranges that are no part of the world: text buffers, the parser's variables, the clock."""
    word_length: Annotated[int, msgspec.Meta(ge=1)]
    """Significant characters of a dictionary word."""
    grammar: tuple[str, ...]
    """Templates such as "take/get OBJ" or "put OBJ in/into OBJ"."""
    seed: int = 1
    """The emulator seed under which the walkthrough works."""
    walkthrough: tuple[str, ...] = ()
    printed_score: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """A regular expression; its first group is the score in the answer to the command `score`; used where `score` is
    None."""
    opening: tuple[str, ...] = ()
    """What is typed at the beginning of every game, up to the first prompt for a command."""
    prompt: tuple[int, int] | None = None
    """Program counter and number of frames at a usual prompt; at any other one a printed end is looked for."""
    spoken: dict[str, str] = {}
    """The story's words for commands such as "look" and "score", where it does not know the English."""
    findings: tuple[Finding, ...] = ()
    """How each of these was found; empty where a compiler said it."""
    verified: bool = True
    """Whether the compiler said it, or a transcript or list of commands was played with this profile and fitted."""

    @property
    def is_bare(self) -> bool:
        """Whether it holds only what the story file says, and nothing that was found by trying."""
        return not self.verified and not self.findings

    @property
    def has_score(self) -> bool:
        """Whether the score can be read, in memory or from what is printed."""
        return self.score is not None or bool(self.printed_score)

    @property
    def places(self) -> tuple[Word, ...]:
        """All the numbers in RAM that are known."""
        return tuple(place for place in (self.score, self.moves, self.end, self.location) if place is not None)


_TURNING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def _is_control_character(sign: str) -> bool:
    """Return whether a character has no glyph in a terminal, or changes the direction of what follows."""
    return unicodedata.category(sign) in {"Cc", "Cs", "Zl", "Zp"} or unicodedata.bidirectional(sign) in _TURNING


def read_profile(path: Path) -> Profile:
    """The profile in a JSON file. Raises `ValueError` with one line if there is none."""
    try:
        profile: Profile = read_json(path, Profile)
        if profile.printed_score and not re.compile(profile.printed_score).groups:
            raise ValueError("printed_score has no group (...) around the score")
        for name in ("name", "title", "author", "file"):
            if any(map(_is_control_character, getattr(profile, name))):  # they are shown in a terminal
                raise ValueError(f"not a game profile: its {name} has control characters")
        return profile
    except re.error as error:
        raise ValueError(f"printed_score is no regular expression: {error}") from None
    except OSError as error:
        raise ValueError(f"the profile cannot be read ({error.strerror})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not a game profile: {error}") from None


def write_profile(profile: Profile, path: Path) -> None:
    """Writes a profile as JSON that people can read; the same profile always gives the same bytes."""
    from xtx.games.catalog.profile_format import encode_profile  # which needs this module

    path.write_bytes(encode_profile(profile))


# --- the grammar, from the story itself ----------------------------------------------------------------------------

_END = 15  # closes a grammar line
_GV1_LINE = 8  # bytes of a line in Inform's older table: parameter count, six tokens, action
_TOKEN = 3  # bytes of a token in the newer table: type, data
_FILTER = 3  # token type of noun=Routine
_NUMBERS, _TOPIC = (7, 8), 9  # elementary tokens: special and number, where no object's name fits; free text
_VERB, _META, _PREPOSITION = 1, 2, 8  # flags of a dictionary word

Token = tuple[str, int, int]
"""The text of a template's part, and type and data of the token it came from (0, 0 for prepositions)."""
GrammarLine = tuple[int, tuple[Token, ...]]
"""The action with its flags, and the tokens."""


def read_grammar_templates(story: bytes, topics: bool = True) -> list[str]:
    """The templates of all commands that an Inform 6 story's grammar knows, fewest holes first.

    Verbs that mean the same stand together ("get/take OBJ"), and so do prepositions ("in/into"). With `topics`, free
    text beside an object's name is a hole too ("ask OBJ about OBJ"). Left out are commands to the program (save,
    score), lines that want a number, a direction or nothing but free text, and lines with more than two holes.
    Raises `ValueError` for a story without an Inform grammar.
    """
    try:
        entries = list(_read_dictionary_entries(story))
        verbs = {number: word_ for word_, flags, number, _ in reversed(entries) if flags & _VERB}
        tables = _read_tables(story, len(set(verbs)))
        directions = _find_direction_filters(entries, tables)
    except IndexError:
        raise ValueError("the dictionary or the grammar points outside the story") from None
    words: defaultdict[tuple[int, tuple[Token, ...]], set[str]] = defaultdict(set)
    for word_, flags, number, _ in entries:
        if not flags & _VERB or flags & _META or number not in tables:
            continue
        # of two lines that read the same, the later one is the more general
        shapes = {
            tuple(text for text, _, _ in tokens): (action, tokens)
            for action, tokens in tables[number]
            if _can_fill(tokens, directions, topics)
        }
        for line in shapes.values():
            words[line].add(word_)
    templates = {" ".join(["/".join(sorted(group)), *(t[0] for t in line[1])]) for line, group in words.items()}
    return sorted(templates, key=lambda template: (template.split().count(HOLE), template))


_TALK = frozenset(
    ("answer", "say", "shout", "speak", "scream", "yell", "ask", "tell", "consult", "read", "l", "look", "define",
     "explain", "how", "what", "who"),
)  # fmt: skip


def find_unlisted_templates(story: bytes, listed: Iterable[str]) -> list[str]:
    """The templates of an Inform 6 story's grammar that none of the listed ones stands for.

    Not those for talking and looking things up: they are many, and without the right topic nothing comes of them.
    Raises `ValueError` for a story without an Inform grammar.
    """
    known = {command for template in listed for command in _split_readings(template)}
    return [
        template
        for template in read_grammar_templates(story)
        if known.isdisjoint(_split_readings(template)) and _TALK.isdisjoint(template.split()[0].split("/"))
    ]


def find_overshadowed_readings(listed: Sequence[str], chosen: Collection[str]) -> Iterator[str]:
    """One reading of its own for each listed template of which only a reading was chosen that another one has too, so
    that the parser takes it for that: "drop OBJ on OBJ" is putting down, and "drop OBJ at OBJ" throwing."""
    readings = [list(_split_readings(template)) for template in listed]
    owners = Counter(reading for one in readings for reading in set(one))
    for one in readings:
        used = [reading for reading in one if reading in chosen]
        if used and all(owners[reading] > 1 for reading in used):
            verb = used[0].split()[0]
            yield from [r for r in one if owners[r] == 1 and r.split()[0] == verb][:1]


def _split_readings(template: str) -> Iterator[str]:
    """The template with each choice of its alternatives."""
    return map(" ".join, product(*(part.split("/") for part in template.split())))


def _read_dictionary_entries(story: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Each dictionary word with its three bytes of data: flags, verb number, preposition number."""
    header = Header.read(story)
    start = header.dictionary
    start += 1 + story[start]
    size, count = story[start], read_word(story, start + 1)
    text_size = 4 if header.small else 6
    if size < text_size + 2:
        raise ValueError("the dictionary is not one that Inform 6 makes")
    for address in range(start + 3, start + 3 + size * count, size):
        # an encoded word has no end mark of its own when cut out, so decode exactly its bytes
        text = decode_text(story[: address + text_size], address, header).strip()
        data = story[address + text_size : address + size]
        yield text, data[0], data[1], data[2] if len(data) > 2 else 0


def _read_tables(story: bytes, verbs: int) -> dict[int, list[GrammarLine]]:
    """The grammar lines by verb number. The header does not say which of two layouts Inform used: one fits."""
    start = read_word(story, 0x0E)
    addresses = [read_word(story, start + 2 * i) for i in range(verbs)]
    for read in (_read_lines_gv2, _read_lines_gv1):
        try:
            lines, ends = zip(*(read(story, address) for address in addresses), strict=True)
        except (ValueError, IndexError):
            continue
        if list(ends[:-1]) == addresses[1:]:  # the tables lie end to end
            return {255 - i: table for i, table in enumerate(lines)}
    raise ValueError("no Inform 6 grammar found in the story")


def _read_lines_gv2(story: bytes, address: int) -> tuple[list[GrammarLine], int]:
    """The lines of one verb and the address after them, in the layout of Inform since 6.10."""
    header = Header.read(story)
    lines: list[GrammarLine] = []
    count, address = story[address], address + 1
    for _ in range(count):
        action, address = read_word(story, address), address + 2
        tokens: list[Token] = []
        while story[address] != _END:
            kind, data = story[address], read_word(story, address + 1)
            address += _TOKEN
            if not 1 <= kind & 15 <= 6:
                raise ValueError("not a token")
            if kind & 15 == 2:
                text = decode_text(story[: data + (4 if header.small else 6)], data, header).strip()
                if kind & 16 and tokens:  # an alternative to the one before
                    tokens[-1] = (f"{tokens[-1][0]}/{text}", 0, 0)
                else:
                    tokens.append((text, 0, 0))
            else:
                tokens.append((HOLE, kind & 15, data))
        address += 1
        lines.append((action, tuple(tokens)))
    return lines, address


def _read_lines_gv1(story: bytes, address: int) -> tuple[list[GrammarLine], int]:
    """The lines of one verb and the address after them, in Inform's older layout."""
    prepositions: defaultdict[int, list[str]] = defaultdict(list)
    for text, flags, _, number in _read_dictionary_entries(story):
        if flags & _PREPOSITION:
            prepositions[number].append(text)
    lines: list[GrammarLine] = []
    count, address = story[address], address + 1
    for line in range(address, address + count * _GV1_LINE, _GV1_LINE):
        wanted, action = story[line], story[line + 7]
        tokens: list[Token] = []
        for code in story[line + 1 : line + 7]:
            if code >= 180:
                if code not in prepositions:
                    raise ValueError("not a preposition")
                tokens.append(("/".join(sorted(prepositions[code])), 0, 0))
            elif wanted:
                wanted -= 1
                elementary = code <= 8
                kind = 1 if elementary else _FILTER if 16 <= code < 48 else 6
                # here number is 8 like there, but special is 7 and there is no topic
                tokens.append((HOLE, kind, code))
            else:
                break
        if wanted:
            raise ValueError("too few tokens")
        lines.append((action, tuple(tokens)))
    return lines, address + count * _GV1_LINE


def _find_direction_filters(
    entries: Iterable[tuple[str, int, int, int]], tables: dict[int, list[GrammarLine]]
) -> set[int]:
    """The routines by which the verb "go" tells a direction from a thing: directions need no template."""
    go = [number for text, flags, number, _ in entries if text == "go" and flags & _VERB]
    lines = [line for number in go for line in tables.get(number, ())]
    return {data for _, tokens in lines for _, kind, data in tokens if kind == _FILTER}


def _can_fill(tokens: tuple[Token, ...], directions: set[int], topics: bool) -> bool:
    """Whether names of objects can fill all the holes of a line, and there are at most two."""
    holes = [(kind, data) for _, kind, data in tokens if kind]
    if len(holes) > 2 or any(kind == 1 and data in _NUMBERS for kind, data in holes):
        return False
    if (1, _TOPIC) in holes and (not topics or len(holes) == 1):
        return False
    return not any(kind == _FILTER and data in directions for kind, data in holes)


# --- the rest, from Inform's debugging information ------------------------------------------------------------------

_LIBRARY_FILES = ("parser", "parserm", "verblib", "verblibm", "english", "linklpa", "grammar")
_WORLD = {
    *("score", "places_score", "things_score", "task_done", "deadflag"),
    *("player", "location", "real_location", "lightflag", "top_object"),
    *("the_time", "time_rate", "time_step", "the_timers", "active_timers"),
}
"""What the library's files declare that is part of the world; all else in them serves parsing and printing."""
_NOISE = ("workflag", "visited")


def make_profile_from_debug(
    story: bytes,
    debug_xml: bytes,
    *,
    file: str,
    name: str = "",
    title: str = "",
    author: str = "",
    walkthrough: Sequence[str] = (),
    special: Sequence[str] = ("task_done",),
    topics: bool = True,
    seed: int = 1,
) -> Profile:
    """The profile of a story compiled with Inform 6 and its library.

    `special` names the variables and arrays that belong to the world; names the story does not have
    are passed over. `topics` is that of `read_grammar_templates`. Raises `ValueError` if the debugging information is
    damaged or belongs to another story.
    """
    try:
        debug = ElementTree.fromstring(debug_xml)
        if not story.startswith(base64.b64decode(debug.findtext("story-file-prefix", ""))):
            raise ValueError("the debugging information belongs to another story; compile again with -k")
        facts = _DebugNames(debug)
        header = Header.read(story)
        tree = next(s for s in debug.findall("story-file-section") if s.findtext("type") == "object tree")
        objects = (int(tree.findtext("end-address", "")) - header.first_object) // header.object_size
        return Profile(
            name=name or Path(file).stem,
            title=title or decode_text(story, facts.constants["Story"] * (8 if header.version == 8 else 4), header),
            author=author,
            file=file,
            md5=hashlib.md5(story, usedforsecurity=False).hexdigest(),
            max_score=facts.constants["MAX_SCORE"],
            player=facts.objects["selfobj"],
            objects=objects,
            score=Word(facts.spans["score"][0]),
            moves=Word(facts.spans["turns"][0]),
            end=End(facts.spans["deadflag"][0]),
            location=Word(facts.spans["location"][0]),
            special=tuple(address for key in special for address in range(*facts.spans.get(key, (0, 0)))),
            ignored_attributes=tuple(sorted(facts.attributes[key] for key in _NOISE if key in facts.attributes)),
            volatile=_join_spans(
                [
                    *(facts.spans[key] for key in facts.library - _WORLD),
                    *_read_individual_properties(story, header, facts.objects.get("LibraryExtensions", 0)),
                ]
            ),
            word_length=6 if header.small else 9,
            grammar=tuple(read_grammar_templates(story, topics)),
            seed=seed,
            walkthrough=tuple(walkthrough),
        )
    except ElementTree.ParseError as error:
        raise ValueError(f"the debugging information is not XML ({error})") from None
    except (KeyError, StopIteration) as error:
        raise ValueError(f"the debugging information does not name {str(error) or 'the object tree'}") from None


class _DebugNames:
    """The names that debugging information gives to numbers."""

    def __init__(self, debug: ElementTree.Element) -> None:
        files = {s.get("index"): Path(s.findtext("given-path", "")).stem.lower() for s in debug.findall("source")}
        self.constants = {n: int(e.findtext("value", "0")) for n, e in _find_named(debug, "constant")}
        self.objects = {n: int(e.findtext("value", "0")) for n, e in _find_named(debug, "object")}
        self.attributes = {n: int(e.findtext("value", "0")) for n, e in _find_named(debug, "attribute")}
        self.spans: dict[str, tuple[int, int]] = {}
        """First address and the address after the last, of variables and arrays."""
        self.library: set[str] = set()
        """The variables and arrays that the library or the compiler declared."""
        for name, element in _find_named(debug, "global-variable"):
            address = int(element.findtext("address", "0"))
            self.spans[name] = address, address + 2
        for name, element in _find_named(debug, "array"):
            address = int(element.findtext("value", "0"))
            self.spans[name] = address, address + int(element.findtext("byte-count", "0"))
        for tag in ("global-variable", "array"):
            for name, element in _find_named(debug, tag):
                source = element.findtext("source-code-location/file-index")
                # the compiler's sys__glob* are other names for the first of the story's own variables
                if (source is None and not name.startswith("sys__")) or files.get(source) in _LIBRARY_FILES:
                    self.library.add(name)


def _read_individual_properties(story: bytes, header: Header, number: int) -> Iterator[tuple[int, int]]:
    """Where an object keeps the properties it does not share; nothing for object 0.

    The parser of library 6.12 keeps its place in the typed line in such a property, and so in no variable.
    """
    if number == 0:
        return
    table = read_word(story, header.compute_object_address(number) + header.object_size - 2)
    entry = table + 1 + 2 * story[table]
    while story[entry]:
        long = story[entry] & 0x80
        size = story[entry + 1] & 63 if long else 2 if story[entry] & 0x40 else 1
        data = entry + (2 if long else 1)
        if story[entry] & 63 == 3:  # Inform's pointer to the table of these properties
            start = end = read_word(story, data)
            while read_word(story, end):
                end += 3 + story[end + 2]
            yield start, end
        entry = data + size


def _find_named(debug: ElementTree.Element, tag: str) -> Iterator[tuple[str, ElementTree.Element]]:
    for element in debug.findall(tag):
        yield element.findtext("identifier", ""), element


def _join_spans(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same addresses in as few ranges as possible, in order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return tuple(joined)


def read_walkthrough(path: Path) -> list[str]:
    """The commands in a file, one a line; empty lines and lines that begin with # are left out."""
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]
