"""Valid actions: which commands change the world, found by trying them.

Candidate objects -> templates of the game's grammar -> each candidate tried from the canonical state -> one
action for each distinct change. Everything starts from a canonical state and fixed random numbers (canonical_state.py),
so that the result is a function of the state's key and can be stored for ever.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.core import FALLBACK_ACTIONS
from xtx.games.actions.candidates import Candidates, Grammar
from xtx.games.actions.noisy_bytes import find_noise
from xtx.games.actions.whole_dictionary import (
    QUANTITIES,
    WHOLE_VERSION,
    WORD_MARK,
    Present,
    WholeGrammar,
    find_added_actions,
)
from xtx.games.actions.wide_grammar import listens, wide_candidates
from xtx.games.canonical.canonical_state import World, prompt_of
from xtx.games.canonical.scratch_bytes import find_scratch
from xtx.games.emulator.frotz import Emulator, Snapshot, Status, Verdict, Verdicts, recognized
from xtx.games.emulator.frotz import verb_frequency as count_verb
from xtx.games.zmachine.debug_verbs import without_debugging
from xtx.games.zmachine.story_memory import Dictionary, Ram, read_dictionary, read_initial_numbers, read_name_words
from xtx.games.zmachine.typed_input import to_the_program
from xtx.games.zset.command_list import Commands
from xtx.games.zset.command_responses import CommandResponses
from xtx.games.zset.command_verdicts import judge_each, take_turn
from xtx.games.zset.effects import effects_of
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine
from xtx.search_versions import SEARCH_VERSION

RANDOM_STATES = ((38_216, 0, 0), (2_114, 0, 0), (7_498, 0, 0), (1_856, 0, 0))
"""Random numbers to come, in libfrotz's terms. A candidate that uses any is tried under each: the blow that misses
the troll under one of them hits under another. The first draws of the four, out of a hundred, are all low, all high,
all below and all above the middle. The first is none that a story can set itself."""

_ASKING = ("look", "examine me")
"""Commands that do nothing themselves: what changes with them as well is the work of time."""
_HIDDEN_OF_VERB = 4
_HIDDEN_KINDS = 24
"""Where a verb, or all of them, make more different changes than this that do not show in the object tree, something
of the parser's must be among them."""

_MIXING = np.uint64(0x9E3779B97F4A7C15)
"""Factor by which one hash is made another before the two are put together."""

_SILENT_COMMANDS, _SILENT_KINDS = 8, 6
"""A change that does not touch the object tree counts if at most so many commands bring it about, and if their verb
makes at most so many different ones."""

_NO_SILENT_CHANGE = frozenset(
    ("all", "pronouns", "nouns", "notify", "verbose", "brief", "superbrief", "superb", "normal", "long", "short",
     "score", "full", "version", "script", "off", "on"),
)  # fmt: skip
"""Words of commands that change how the program talks, or what its parser remembers."""

_DIGIT = re.compile(r"\d")

_ABOUT_ONE = 0.35
"""If such a share of commands with the same change name one thing, the change is about it."""

_SAMPLE = 100
"""Commands of the templates that leave the world alone, at most, from which it is seen what is remembered of them."""

_MOVING = ("take", "drop")
"""Verbs that show which of two things that look the same a word means."""

_MOST_FINER = 8
"""Commands of the templates, at most, that are added for a change beyond the object tree."""

_MOST_ELSEWHERE = 6
"""Where more commands than that change what counts in other rooms only, that is something of the parser's."""

_PAUSING_WORDS, _MOST_PAUSING = 2, 32
"""Words of commands that may make the story wait for a key, at most; where they make more different changes beyond the
object tree than that, commands of one word."""

_FINE_KINDS = 10
"""Different changes beyond the object tree, at most, that one verb may bring about beside the same change of it: eight
buttons of a machine that fills a flask."""

_COMMON_EFFECTS, _COMMON_VERBS = 4, 4
"""The same change beyond the object tree beside so many different changes of it, or by so many verbs, with as many
things, that leave it alone, is the work of time or of the parser, and none of the command's own."""

_MOSTLY_CHANCE = 0.6
"""Where more of the candidates than this draw random numbers, it is quicker to try all of them with each at once."""

_FILLED = 16
"""Sets of names whose candidates are remembered: from step to step most things stay the same."""


_REPLIES = ("yes", "no")
"""Offered where a story asks something."""

_TURNS_WAITED = 3
"""Turns after which waiting is given up in `_time_matters`."""

_WORD = re.compile(r"[a-z0-9][a-z0-9'-]*")
_PAIR = re.compile(r"\b(?=([a-z][a-z'-]*)[\"']? [\"']?([a-z][a-z'-]*))")
"""Two words in a row, with no stop between them but perhaps in quotes."""
_PLURAL = re.compile(r"\b([a-z]+) and ([a-z]+) ([a-z]+)s\b")

_ASIDE = re.compile(r"^\([^)\n]*\)\s*")
"""What a parser says when it guesses which thing is meant, as in "(the gull)"."""

_COMPLAINTS = re.compile(
    r"I only understood you as far as|I didn't understand|You can't use multiple objects|You excepted something"
    r"|You seem to have said too little|I beg your pardon|There is no verb|That's not a verb|Nothing to do!"
    r"|You can't see (any|that|him|her|it|them)\b|You don't see (any|that)\b|There's none of that here"
    r"|That noun did not make sense|Which (do you mean|one)|You can only do that to something animate"
    r"|You can't use multiple|What do you want to|I don't know the word|That's not something you need",
    re.IGNORECASE,
)
"""What parsers begin to say when a word names nothing here, beyond Jericho's own list."""

_USUAL = re.compile(
    r"nothing (special|more|unusual|unexpected|of interest)|\bWhich \w+ do you mean|^There is no\b|multiple objects|"
    r"[Nn]oun error|can't see",
    re.IGNORECASE,
)
"""What games say of things that their authors gave no thought."""

_UNTOLD = ("door",)
"""What may be where nothing speaks of it: many an exit turns out to have one."""

_DESCRIBED = 16
"""So many things at most are taken from descriptions of other things."""

_DIRECTIONS = ("north", "up", "down", "out")
_WAYS = frozenset(
    ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out",
     "n", "s", "e", "w", "ne", "nw", "se", "sw", "u", "d"),
)  # fmt: skip
_COMPASS = _WAYS | {"above", "below", "floor", "ceiling", "ground"}
_NOT_OBJECTS = frozenset(
    ("a", "an", "the", "this", "that", "these", "those", "some", "any", "each", "every", "another", "other", "others",
     "all", "both", "everything", "it", "them", "him", "her", "me", "myself", "yourself", "self", "i", "you", "your",
     "my", "his", "its", "of", "and", "or", "but", "in", "on", "at", "to", "from", "with", "by", "for", "is", "are"),
)  # fmt: skip
"""Words that parsers take for a part of a name, or for whatever is at hand."""
_NO_PART = _NOT_OBJECTS | _COMPASS
"""Words that are no part of a thing's name of two words."""


class Findings(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a state of the world: what the atlas stores."""

    look: str
    inventory: str
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Thing:
    """Something that can be named in a command."""

    name: str
    aliases: tuple[str, ...]
    answer: str = ""
    """What the game says when it is examined."""
    told: bool = False
    """Whether it cannot be seen itself, and only another thing's description speaks of it."""


@lru_cache(maxsize=4096)  # a search hears the same answers again and again
def _understood(answer: str) -> str:
    """The answer to a question; nothing if the game did not know what was meant."""
    answer = _ASIDE.sub("", answer)
    return "" if not recognized(answer) or _COMPLAINTS.match(answer) else answer


@lru_cache(maxsize=4096)  # it sees the same descriptions and names again and again, too
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def _tell_apart(words: Sequence[str], owners: dict[str, set[int]], answer: str) -> list[Thing]:
    """The things behind words that examine alike: one, unless their names say that they are different objects
    ("nothing special about the button", whether red, yellow or blue). Better words come first."""
    objects = {o for word in words for o in owners.get(word, ())}
    if len(objects) > 1:
        names = {o: [w for w in words if owners.get(w) == {o}] for o in sorted(objects)}
        if sum(bool(own) for own in names.values()) > 1:
            return [Thing(own[0], tuple(own), answer) for own in names.values() if own]
    return [Thing(words[0], tuple(words), answer)]


def _named_clearly(thing: Thing) -> Thing:
    """The thing with a name that is no word for a quantity, if it has such a name."""
    clear = [alias for alias in thing.aliases if alias not in QUANTITIES]
    return thing if thing.name not in QUANTITIES or not clear else replace(thing, name=clear[0])


def _split(thing: Thing, firsts: Collection[str]) -> list[Thing]:
    """The thing, or several if some of its names stand before the same noun: the chasm cube and the cave cube."""
    own = [name for name in thing.aliases if name in firsts]
    if len(own) < 2:
        return [thing]
    return [Thing(name, (name,), thing.answer) for name in own]


def _pairs(dictionary: Dictionary, text: str) -> tuple[tuple[str, str], ...]:
    """The words that stand beside each other in a line and may name a thing together."""
    text = text.lower()
    pairs = dict.fromkeys(_PAIR.findall(text))
    pairs |= {(first, noun[:-1]): None for first, noun in pairs if noun.endswith("s")}
    for first, second, noun in _PLURAL.findall(text):  # "stone and wooden doors"
        pairs |= {(first, noun): None, (second, noun): None}
    return tuple(pair for pair in pairs if all(w not in _NO_PART and dictionary.can_name(w) for w in pair))


def _with_pairs(things: list[Thing], examined: Mapping[tuple[str, str], str]) -> list[Thing]:
    """The things, and those that only two words name: the stone door beside the wooden door, or beside a staff
    that is wooden too. `examined` is what the game says of pairs of words."""
    alone = {alias: t.answer for t in things for alias in t.aliases}
    found: dict[str, dict[str, str]] = {}
    for (first, noun), answer in examined.items():
        if answer:
            found.setdefault(noun, {})[first] = answer
    for noun, answers in sorted(found.items()):
        if len(answers) > 1:
            things = [part for t in things for part in _split(t, answers)]
            new = [first for first, answer in sorted(answers.items()) if alone.get(first) != answer]
            things = things + [Thing(f"{f} {noun}", (f"{f} {noun}",), answers[f]) for f in new]
    return things


def _silent_changes(
    candidates: Sequence[str],
    flags: npt.NDArray[np.uint8],
    watches: npt.NDArray[np.uint64],
    idle: npt.NDArray[np.uint64],
) -> list[int]:
    """Commands that do not even touch the object tree and yet change something in the world, such as what the player
    knows: reading a book. Most such changes are the parser's, so few count: those of commands with an object, or of
    orders of one word, that few commands bring about, with a verb (or to a person) that does not do so with many."""
    nothing = (flags & (Verdict.CHANGED | Verdict.EVENT | Verdict.TAKEN | Verdict.STOPPED)) == 0
    places = np.flatnonzero(nothing & (watches != 0) & ~np.isin(watches, idle)).tolist()
    by_verb: dict[str, set[int]] = {}
    times = Counter(int(watches[i]) for i in places)
    for i in places:
        by_verb.setdefault(_verb_of(candidates[i]), set()).add(int(watches[i]))
    return [
        i
        for i in places
        if times[int(watches[i])] <= _SILENT_COMMANDS
        and len(by_verb[_verb_of(candidates[i])]) <= _SILENT_KINDS
        and 2 <= len(candidates[i].split()) <= 4
        and _NO_SILENT_CHANGE.isdisjoint(candidates[i].split())
        and ("," not in candidates[i] or len(candidates[i].split()) == 2)
        and not _DIGIT.search(candidates[i])
    ]


def _verb_of(command: str) -> str:
    """The first word of a command; of an order of several words also what is ordered."""
    words = command.split(" ")
    return " ".join(words[:2]) if words[0].endswith(",") and len(words) > 2 else words[0]


@dataclass(frozen=True)
class _Searched:
    """What came out of the templates in a state."""

    state: Snapshot
    things: list[Thing]
    candidates: Candidates
    effect: npt.NDArray[np.uint64]
    """What each candidate does, without nonsense."""
    fine: npt.NDArray[np.uint64]
    """The same, told apart by changes beyond the object tree."""
    all_effects: npt.NDArray[np.uint64]
    """What each candidate does, nonsense too."""
    is_noisy: bool
    """Whether so many commands make changes of their own that something of the parser's must be among them."""
    watched: Ram | None = None
    """The bits beyond the object tree that were watched."""
    common: frozenset[int] = frozenset()
    """Changes beyond the object tree that are no command's own."""


@dataclass(frozen=True)
class _StateTrial:
    """One state of a search, for `find_added_actions`."""

    search: Search
    state: Snapshot
    searched: _Searched
    """What the templates do there."""

    def ask(self, commands: Sequence[tuple[str, str]]) -> list[str]:
        return self.search.answers_without(self.state, commands)

    def effects(self, commands: Sequence[str]) -> npt.NDArray[np.uint64]:
        return self.search.fine_effects(self.searched, commands)

    def frequency(self, command: str) -> int:
        return self.search.verb_frequency(command)

    def is_fatal(self, command: str) -> bool:
        return self.search.is_fatal(self.state, command)


def _told_apart(
    candidates: Sequence[str],
    effect: npt.NDArray[np.uint64],
    flags: npt.NDArray[np.uint8],
    watches: npt.NDArray[np.uint64],
) -> npt.NDArray[np.uint64]:
    """The effects, told apart by what else they change in the world; but not those of a verb that makes many different
    ones of the same effect, which are what the parser remembers."""
    fine = effect.copy()
    changed = np.flatnonzero((effect != 0) & (flags & Verdict.CHANGED > 0))
    if not len(changed):
        return fine
    fine[changed] ^= watches[changed] * _MIXING
    # Most commands that do something do nothing else: only where there is a choice is there anything to look at.
    kinds = np.unique(np.stack([effect[changed], fine[changed]]), axis=1)
    ambiguous, times = np.unique(kinds[0], return_counts=True)
    places = changed[np.isin(effect[changed], ambiguous[times > 1])]
    by_verb: dict[tuple[str, int], set[int]] = {}
    verbs = [(candidates[i].split(" ", 1)[0], int(effect[i])) for i in places.tolist()]
    for verb, i in zip(verbs, places.tolist(), strict=True):
        by_verb.setdefault(verb, set()).add(int(fine[i]))
    noisy = [i for verb, i in zip(verbs, places.tolist(), strict=True) if len(by_verb[verb]) > _FINE_KINDS]
    fine[noisy] = effect[noisy]
    return fine


def _common_changes(
    candidates: Sequence[str],
    effect: npt.NDArray[np.uint64],
    flags: npt.NDArray[np.uint8],
    watches: npt.NDArray[np.uint64],
    hidden: npt.NDArray[np.intp],
) -> tuple[frozenset[int], frozenset[int]]:
    """Changes beyond the object tree that go with many different changes of it, and those that many verbs bring about
    with many things and no change of it."""
    alone = np.zeros(len(effect), dtype=bool)
    alone[hidden] = True
    changed = np.flatnonzero((effect != 0) & (watches != 0) & ~alone & ((flags & Verdict.RANDOM) == 0))
    pairs = np.unique(np.stack([watches[changed], effect[changed]]), axis=1)
    kinds, times = np.unique(pairs[0], return_counts=True)
    common = set(kinds[times >= _COMMON_EFFECTS].tolist())
    commands: dict[int, list[list[str]]] = {}
    for i in hidden.tolist():
        commands.setdefault(int(watches[i]), []).append(candidates[i].split(" "))
    return frozenset(common), frozenset(watch for watch, of in commands.items() if _is_anyones(of))


def _is_anyones(commands: Sequence[Sequence[str]]) -> bool:
    """Whether commands, as words, have many verbs and no thing in common."""
    if len({words[0] for words in commands}) < _COMMON_VERBS:
        return False
    things = Counter(word for words in commands for word in set(words[1:]))
    return not things or things.most_common(1)[0][1] < _ABOUT_ONE * len(commands)


class Search:
    """The valid-action search of one emulator."""

    def __init__(
        self,
        emulator: Emulator,
        extra_actions: Sequence[str] = (),
        wide: bool = False,
        engine: Engine | None = None,
        world: World | None = None,
        whole: bool = False,
        *,
        usual_verbs: bool = False,
    ) -> None:
        """`engine` judges candidates by set execution, and nothing is run in Frotz; without one each is tried there,
        the plain way, with the same verdicts but for what the engine gives up. `world` finds changes that do not show
        in the object tree. With `whole` every word of the dictionary is tried. With `usual_verbs` a change is named by
        the command with the most usual verb, not by the shortest."""
        self._emulator = emulator
        self._engine = engine
        self._hearing = CommandResponses(emulator, engine)
        self._world = world
        self._extra = tuple(extra_actions)
        self._wide = wide
        self._whole = whole
        self._usual_verbs = usual_verbs
        self._dictionary = read_dictionary(emulator.story.content, emulator.header)
        self._frequency: dict[str, int] = {}
        self._filled: dict[tuple[str, ...], Candidates] = {}
        self._pairs = lru_cache(maxsize=4096)(partial(_pairs, self._dictionary))
        self._excluded: Collection[str] = ()
        self._hidden_kinds = 0
        """Different changes, in the last verdicts, that touched the object tree and left it as it is."""
        self._searched: _Searched | None = None
        """What came out of the templates in the state that was searched last."""
        self._chance = 0.0
        """Share of the candidates that drew random numbers in the last few states."""

    @property
    def plain_variant(self) -> str:
        """What beside the state decides `findings`: part of every key in the atlas."""
        return f"{SEARCH_VERSION}, usual verbs" if self._usual_verbs else str(SEARCH_VERSION)

    @property
    def variant(self) -> str:
        """What beside the state decides `extended`."""
        extra = "\0".join(self._extra)
        forms = ("wide" if self._wide else "") + (f"whole{WHOLE_VERSION}" if self._whole else "")
        return f"{self.plain_variant};{forms};{extra}"

    @property
    def extends(self) -> bool:
        """Whether anything is tried beyond the game's templates."""
        return self._wide or self._whole or bool(self._extra)

    @cached_property
    def _templates(self) -> tuple[str, ...]:
        """The templates of the story's grammar: Jericho's, and those that it left out."""
        return without_debugging((*self._emulator.templates, *self._emulator.unlisted), self._dictionary)

    def describe(self, state: Snapshot, excluded: Collection[str] = ()) -> tuple[str, str]:
        """Look and inventory in a canonical state; see `findings`."""
        self._excluded = excluded
        look, inventory = self.answers(state, ("look", "inventory"))
        return look, inventory

    def findings(
        self, state: Snapshot, excluded: Collection[str] = (), described: tuple[str, str] | None = None
    ) -> Findings:
        """Look, inventory and valid actions in a canonical state, by the game's templates alone; `excluded` commands
        are not tried, not even to see what is there. `described` is what `describe` says, where that is known. The
        emulator is left in some other state."""
        look, inventory = described or self.describe(state, excluded)
        self._excluded = excluded
        if self._cannot_try(state):
            return Findings(look, inventory, FALLBACK_ACTIONS)
        searched = self._searched = self._judge_things(state, look, inventory)
        return Findings(look, inventory, self._choose(searched.candidates, searched.effect) or FALLBACK_ACTIONS)

    def _cannot_try(self, state: Snapshot) -> bool:
        """Whether the story waits for a key, or the engine was seen to fail in this state."""
        return not self._emulator.wants_line_in(state) or (self._engine is not None and ENGINE in self._excluded)

    def _judge_things(self, state: Snapshot, look: str, inventory: str) -> _Searched:
        """The things that can be named, the templates filled with their names, and what those do."""
        things = self.things(state, look, inventory)
        candidates = self.candidates(things)
        if self._excluded:
            candidates = candidates.without(self._excluded)
        return self._judge_candidates(state, things, candidates, self._watched(state))

    def _judge_candidates(
        self, state: Snapshot, things: list[Thing], candidates: Candidates, watched: Ram | None
    ) -> _Searched:
        """What candidates do, nonsense left out."""
        told = {t.name for t in things if t.told}
        effect, fine, common = self._both_effects(state, candidates, watched)
        sound = candidates.without_nonsense(effect, told)
        fine = np.where((sound == 0) & (effect != 0), np.uint64(0), fine)
        is_noisy = self._hidden_kinds > _HIDDEN_KINDS
        return _Searched(state, things, candidates, sound, fine, effect, is_noisy, watched, common)

    def _watched(self, state: Snapshot) -> Ram | None:
        """The bits beyond the object tree of which a change counts."""
        return None if self._world is None else self._world.watched(np.frombuffer(state.ram, np.uint8))

    def _without_quantities(self, searched: _Searched) -> _Searched:
        """The same with other names for things that a word for a quantity names too: `put one in bag` may mean anything
        that is here."""
        things = [_named_clearly(thing) for thing in searched.things]
        if things == searched.things:
            return searched
        things.sort(key=lambda t: t.name)
        candidates = self.candidates(things)
        if self._excluded:
            candidates = candidates.without(self._excluded)
        return self._judge_candidates(searched.state, things, candidates, self._watched(searched.state))

    def _without_scratch(self, searched: _Searched) -> _Searched:
        """The same without what is remembered of the words that were typed, where some of it is taken for the world."""
        if searched.watched is None:
            return searched
        names = [t.name for t in searched.things]
        quiet = np.flatnonzero(searched.all_effects == 0)
        sample = [searched.candidates[i] for i in quiet[:: 1 + len(quiet) // _SAMPLE].tolist()]
        scratch = find_scratch(self._emulator, self._engine, searched.state, names, sample, self._excluded)
        if (searched.watched[scratch] > 0).any():
            searched = self._unwatched(searched, scratch)
        if searched.is_noisy and self._engine is not None and _ASKING[0] not in self._excluded:
            searched = self._unwatched(searched, self._noise(searched, self._engine))
        return searched

    def _noise(self, searched: _Searched, engine: Engine) -> npt.NDArray[np.bool_]:
        """The bytes in which commands that leave the object tree alone leave traces of their own."""
        asking = [c for c in _ASKING if c not in self._excluded]
        found = self._judge(searched.state, searched.candidates.behind(asking), searched.watched)[0]
        idle, tried = found.watches[: len(asking)], found.part(slice(len(asking), None))
        alone = (tried.flags & (Verdict.CHANGED | Verdict.STOPPED) == 0) & (tried.watches != 0)
        places = np.flatnonzero(alone & ~np.isin(tried.watches, idle))
        commands = [searched.candidates[i] for i in places.tolist()]
        return find_noise(self._emulator, engine, searched.state, commands, tried.watches[places], asking[0])

    def _unwatched(self, searched: _Searched, bytes_: npt.NDArray[np.bool_]) -> _Searched:
        """The same with some bytes taken for none of the world's."""
        assert searched.watched is not None
        watched = searched.watched.copy()
        watched[bytes_] = 0
        return self._judge_candidates(searched.state, searched.things, searched.candidates, watched)

    def extended(self, state: Snapshot, found: Findings, excluded: Collection[str] = ()) -> Findings:
        """The findings with those extra actions and forms of the wide grammar that do something new, and with what the
        whole dictionary adds."""
        self._excluded = excluded
        if self._cannot_try(state):
            return found
        if self._extra or self._wide:
            found = self._extended_by_forms(state, found, excluded)
        return self._extended_by_words(state, found) if self._whole else found

    def _extended_by_forms(self, state: Snapshot, found: Findings, excluded: Collection[str]) -> Findings:
        candidates = list(self._extra)
        if self._wide:
            things = self.things(state, found.look, found.inventory)
            candidates += self._wide_candidates(state, things, f"{found.look}\n{found.inventory}")
        known = [a for a in found.actions if a not in excluded]
        unwanted = {*excluded, *known}
        new = [
            c for c in dict.fromkeys(candidates) if c not in unwanted and not to_the_program(c, self._dictionary.length)
        ]
        effect = self.effects(state, [*known, *new])
        old = set(effect[: len(known)].tolist()) | {0}
        fresh = [i for i in range(len(known), len(effect)) if int(effect[i]) not in old]
        added = self._choose([new[i - len(known)] for i in fresh], effect[fresh])
        if not added:
            return found
        real = tuple(a for a, e in zip(known, effect, strict=False) if e != 0)
        return msgspec.structs.replace(found, actions=(*real, *added))

    def _extended_by_words(self, state: Snapshot, found: Findings) -> Findings:
        """The findings with what the whole dictionary adds."""
        searched = self._searched
        if searched is None or searched.state is not state:
            searched = self._judge_things(state, found.look, found.inventory)
        plain, searched = searched, self._without_scratch(self._without_quantities(searched))
        # What is no command's own change is not offered, although it is with templates alone.
        chosen = self._choose(searched.candidates, np.where(searched.fine == 0, np.uint64(0), searched.effect))
        old = set(self._choose(plain.candidates, plain.effect))
        others = tuple(a for a in found.actions if a not in old and a not in FALLBACK_ACTIONS)
        found = msgspec.structs.replace(found, actions=(*chosen, *others) or FALLBACK_ACTIONS)
        things, finer = searched.things, self._finer(searched, found.actions)
        finer = (*finer, *self._counting_elsewhere(searched), *self._pausing(searched))
        present = Present(
            names=tuple(t.name for t in things),
            aliases=frozenset(alias for t in things for alias in t.aliases),
            text="\n".join((found.look, found.inventory, *(t.answer for t in things))),
            around="\n".join(name for _, name in self._names_around(state)),
            twins=self._twins(searched),
            free_forms=tuple(searched.candidates.free_forms(searched.all_effects)),
        )
        if self._is_question(state):
            finer = tuple(dict.fromkeys((*finer, *(a for a in _REPLIES if a not in found.actions))))
        known = (*found.actions, *finer)
        added = [*finer, *find_added_actions(self._words, present, known, _StateTrial(self, state, searched))]
        real = found.actions if found.actions != FALLBACK_ACTIONS or not added else ()
        if "wait" not in real and self._time_matters(state):
            added = [*added, "wait"]
        if "look" not in (*real, *added) and self._looking_matters(state):
            added = [*added, "look"]
        if not added:
            return found
        return msgspec.structs.replace(found, actions=tuple(dict.fromkeys((*real, *added))))

    def _twins(self, searched: _Searched) -> dict[str, str]:
        """Words that are answered like the name of a thing and yet mean another one, which moves when they are used,
        with that name: one for each such thing."""
        pairs = [(t.name, alias) for t in searched.things for alias in t.aliases if alias != t.name]
        forms = [f"{verb} {{}}" for verb in _MOVING if verb in {t.split()[0] for t in self._templates}]
        commands = [form.format(word) for form in forms for pair in pairs for word in pair]
        if not commands:
            return {}
        moved = self._both_effects(searched.state, commands, searched.watched)[0].reshape(len(forms), len(pairs), 2)
        found: dict[tuple[int, ...], tuple[str, str]] = {}
        for i, (name, alias) in enumerate(pairs):
            if ((moved[:, i, 0] != moved[:, i, 1]) & (moved[:, i] != 0).all(axis=1)).any():
                found.setdefault(tuple(moved[:, i, 1].tolist()), (alias, name))
        return dict(found.values())

    def _finer(self, searched: _Searched, actions: Sequence[str]) -> tuple[str, ...]:
        """Commands of the templates that leave the object tree like one of the actions does, but change something else
        in the world: blows that miss or hit, in a fight in which something happens every turn anyway."""
        chosen = set(actions)
        places = [i for i in np.flatnonzero(searched.effect).tolist() if searched.candidates[i] in chosen]
        fine = searched.fine.copy()
        fine[np.isin(fine, fine[places])] = 0
        names = {word for t in searched.things for word in t.name.split()}
        # Two that differ in a preposition only (push on button, push down button) differ in what the parser remembers.
        distinct: dict[tuple[str, ...], str] = {}
        for command in self._choose(searched.candidates, fine):
            verb, *others = command.split()
            distinct.setdefault((verb, *(word for word in others[:-1] if word in names), *others[-1:]), command)
        return tuple(distinct.values())[:_MOST_FINER]

    def _counting_elsewhere(self, searched: _Searched) -> tuple[str, ...]:
        """Commands of the templates for one object that do nothing but change what belongs to the world in other rooms:
        a spell is learned that is of use in one place."""
        if self._world is None:
            return ()
        watched = self._world.watched_elsewhere(np.frombuffer(searched.state.ram, np.uint8))
        if watched is None:
            return ()
        one = np.array([template.count("OBJ") == 1 for template in self._grammar.templates])
        places = np.flatnonzero((searched.fine == 0) & (searched.all_effects == 0) & one[searched.candidates.forms])
        commands = [searched.candidates[i] for i in places.tolist()]
        if not commands:
            return ()
        asking = [c for c in _ASKING if c not in self._excluded]
        found = self._judge(searched.state, Commands.of(commands).behind(asking), watched)[0]
        tried = found.part(slice(len(asking), None))
        flags = tried.flags & ~np.uint8(Verdict.EVENT)
        silent = _silent_changes(commands, flags, tried.watches, found.watches[: len(asking)])
        effect = np.zeros(len(commands), dtype=np.uint64)
        effect[silent] = tried.watches[silent]
        chosen = self._choose(commands, effect)
        return chosen if len(chosen) <= _MOST_ELSEWHERE else ()

    def _pausing(self, searched: _Searched) -> tuple[str, ...]:
        """Short commands that do nothing yet but make the story wait for something else than a command: for a key, in
        the middle of a scene."""
        watched = self._watched(searched.state)
        if self._engine is None or watched is None or searched.watched is None:
            return ()
        words = searched.candidates.words
        short = np.flatnonzero((searched.all_effects == 0) & (words <= _PAUSING_WORDS))
        kinds = self._silent_kinds(searched, short, searched.watched)
        # Of what is taken for the parser's, commands of one word are the fewest.
        if len(kinds) > _MOST_PAUSING or not np.array_equal(watched, searched.watched):
            kinds = kinds if len(kinds) <= _MOST_PAUSING else {}
            kinds |= self._silent_kinds(searched, short[words[short] == 1], watched)
        self._emulator.note(ENGINE)
        waiting = [(c, self._engine.step(searched.state, c)) for c in sorted(set(kinds.values()))]
        usual = searched.state.opcode
        return tuple(c for c, (flags, after) in waiting if not flags & UNJUDGED and after.opcode != usual)

    def _silent_kinds(self, searched: _Searched, places: npt.NDArray[np.intp], watched: Ram) -> dict[int, str]:
        """The first of those candidates that make a change beyond the object tree, for each such change."""
        commands = [searched.candidates[i] for i in places.tolist()]
        asking = [c for c in _ASKING if c not in self._excluded]
        found = self._judge(searched.state, Commands.of(commands).behind(asking), watched)[0]
        watches, idle = found.watches[len(asking) :].tolist(), {0, *found.watches[: len(asking)].tolist()}
        return {w: c for w, c in reversed(list(zip(watches, commands, strict=True))) if w not in idle}

    def _is_question(self, state: Snapshot) -> bool:
        """Whether the story waits for something else than a command: a yes or no, mostly."""
        return self._world is not None and prompt_of(state) != self._world.layout.prompt

    def is_fatal(self, state: Snapshot, command: str) -> bool:
        """Whether the command ends the game without winning it, or does not end itself."""
        done = take_turn(self._emulator, self._engine, state, command) is Status.DONE
        return not done or (self._emulator.over and not self._emulator.won)

    def _time_matters(self, state: Snapshot) -> bool:
        """Whether something may come of waiting: chance is drawn, a clock runs, or the state is another one after a few
        turns."""
        world, emulator = self._world, self._emulator
        if world is None or "wait" in self._excluded:
            return False
        if any(state.ram[address] for address in world.layout.counters):
            return True
        [waited] = judge_each(emulator, self._engine, state, [state.rng], ["wait"])
        if waited.flags[0] & Verdict.RANDOM:
            return True
        key, here = world.key(state), state
        for _ in range(_TURNS_WAITED):
            if take_turn(emulator, self._engine, here, "wait") is not Status.DONE or emulator.over:
                return False
            here = emulator.save()
            if world.key(world.canonical(state.rng)) != key:
                return True
        return False

    def _looking_matters(self, state: Snapshot) -> bool:
        """Whether to look around leads to another state every time, and not to the one to which waiting does: a story
        that counts how often one looks."""
        world, emulator = self._world, self._emulator
        if world is None or not {"look", "wait"}.isdisjoint(self._excluded):
            return False
        keys, here = [world.key(state)], state
        for _ in range(2):
            if take_turn(emulator, self._engine, here, "look") is not Status.DONE or emulator.over:
                return False
            here = emulator.save()
            keys.append(world.key(world.canonical(state.rng)))
            if keys[-1] == keys[-2]:
                return False
        if take_turn(emulator, self._engine, state, "wait") is not Status.DONE or emulator.over:
            return False
        return keys[1] != world.key(world.canonical(state.rng))

    @cached_property
    def _words(self) -> WholeGrammar:
        """What the whole dictionary can say."""
        tree = self._emulator.tree
        return WholeGrammar(
            self._dictionary,
            self._templates,
            read_name_words(tree),
            tree.names,
            _understood,
            _NO_PART | _WAYS,
            read_initial_numbers(tree),
        )

    def answers_without(self, state: Snapshot, commands: Sequence[tuple[str, str]]) -> list[str]:
        """What the game says to each command, with a word of the command replaced by `WORD_MARK`."""
        return self._hearing.answers_without(state, commands, WORD_MARK, self._excluded)

    def answers(self, state: Snapshot, commands: Sequence[str]) -> list[str]:
        """What the game says to each command; nothing if it cannot finish it, or is not to be asked."""
        return self._hearing.answers(state, commands, self._excluded)

    # --- candidates ---------------------------------------------------------------------------------------------

    def things(self, state: Snapshot, look: str, inventory: str) -> list[Thing]:
        """What can be named here: words that the game can examine, merged where they name the same thing."""
        ranks: dict[str, int] = {}
        owners: dict[str, set[int]] = {}
        around = self._names_around(state)
        for number, name in around:
            parts = _words(name)
            for i, word in enumerate(parts):
                # The last word of an object's name is its noun; those before it are adjectives.
                ranks[word] = max(ranks.get(word, 0), 3 if i == len(parts) - 1 else 1)
                owners.setdefault(word, set()).add(number)
        for word in (*_words(look), *_words(inventory)):
            ranks.setdefault(word, 2)
        named = [
            word
            for word in sorted(ranks, key=lambda w: (-ranks[w], len(w), w))
            if word not in _NOT_OBJECTS and word not in _WAYS and self._dictionary.can_name(word)
        ]
        texts = (look, inventory, *(name for _, name in around))
        pairs = list(dict.fromkeys(pair for text in texts for pair in self._pairs(text)))
        # In one go: to ask at all takes as long as some questions do.
        examined = self._examined(state, (*_DIRECTIONS, *named, *map(" ".join, pairs)))
        # What is said of several directions is said of no thing.
        directions = Counter(examined[: len(_DIRECTIONS)])
        nowhere = {answer for answer, times in directions.items() if times > 1}
        answers: dict[str, list[str]] = {}
        for word, answer in zip(named, examined[len(_DIRECTIONS) : -len(pairs) or None], strict=True):
            if answer and answer not in nowhere:
                answers.setdefault(answer, []).append(word)
        things = [thing for answer, words in answers.items() for thing in _tell_apart(words, owners, answer)]
        things += self._described(state, answers, {*ranks, *_NOT_OBJECTS, *_COMPASS}, nowhere)
        things = _with_pairs(things, dict(zip(pairs, examined[len(examined) - len(pairs) :], strict=True)))
        return sorted(things, key=lambda t: t.name)

    def _described(
        self, state: Snapshot, answers: Mapping[str, Sequence[str]], asked: Collection[str], nowhere: Collection[str]
    ) -> list[Thing]:
        """The things that only the descriptions of other things speak of: the spells in a book, the acorn in a crack.
        Those of which the game has nothing of their own to say are left out: they are everywhere."""
        words = dict.fromkeys((*_UNTOLD, *(word for answer in answers for word in _words(answer))))
        new = [word for word in words if word not in asked and self._dictionary.can_name(word)]
        found: dict[str, list[str]] = {}
        for word, answer in zip(new, self._examined(state, new), strict=True):
            if answer and answer not in nowhere and answer not in answers and not _USUAL.search(answer):
                found.setdefault(answer, []).append(word)
        things = [Thing(words[0], tuple(words), answer, told=True) for answer, words in found.items()]
        return things[:_DESCRIBED]

    def _examined(self, state: Snapshot, names: Sequence[str]) -> list[str]:
        """The answer to examining each, or nothing if the game does not know what is meant."""
        return [_understood(answer) for answer in self.answers(state, [f"examine {name}" for name in names])]

    def _names_around(self, state: Snapshot) -> Sequence[tuple[int, str]]:
        """Numbers and names of the objects in the player's room and on the player."""
        emulator = self._emulator
        tree = emulator.tree
        links = tree.links(np.frombuffer(state.ram, np.uint8))
        player = emulator.player
        if not 0 < player <= tree.count:
            return ()
        room = int(links[player, 0]) or player
        return [(o, tree.names[o]) for o in tree.below(links, room) if o != player]

    def candidates(self, things: Sequence[Thing]) -> Candidates:
        """Every template filled with every name, in the templates' order."""
        names = tuple(t.name for t in things)
        if names not in self._filled:
            if len(self._filled) >= _FILLED:
                self._filled.clear()
            self._filled[names] = self._grammar.fill(names)
        return self._filled[names]

    @cached_property
    def _grammar(self) -> Grammar:
        return Grammar(self._templates, self.verb_frequency, self._dictionary.can_name("wall"), _ASKING)

    def _wide_candidates(self, state: Snapshot, things: Sequence[Thing], text: str) -> list[str]:
        """Candidates beyond the templates, for `--wide-grammar`."""
        names = [t.name for t in things]
        spoken = self.answers(state, [f"{name}, wait" for name in names])
        persons = [name for name, answer in zip(names, spoken, strict=True) if listens(answer)]
        taken = {word for t in things for name in t.aliases for word in name.split()} | _NOT_OBJECTS
        read = {w for t in things for w in _words(t.answer)} - taken
        printed = sorted(
            w for w in read if self._dictionary.knows(w) and not to_the_program(w, self._dictionary.length)
        )
        return list(wide_candidates(names, persons, self._templates, text, printed))

    # --- verdicts -----------------------------------------------------------------------------------------------

    def valid(self, state: Snapshot, candidates: Sequence[str]) -> tuple[str, ...]:
        """One command for each distinct change of the world that some candidate brings about."""
        return self._choose(candidates, self.effects(state, candidates))

    def effects(self, state: Snapshot, candidates: Sequence[str]) -> npt.NDArray[np.uint64]:
        """A number for what each candidate does to the world: equal for equal effects, 0 for none."""
        return self._both_effects(state, candidates, self._watched(state))[0]

    def fine_effects(self, searched: _Searched, candidates: Sequence[str]) -> npt.NDArray[np.uint64]:
        """The same in a state that was searched, where changes of the world beyond the object tree make a difference
        between effects as well. In a noisy state nearly every command makes such a change: there only single words
        count that do nothing else."""
        given = searched.state, candidates, searched.watched, searched.is_noisy, searched.common
        return self._both_effects(*given)[1]

    def _both_effects(
        self,
        state: Snapshot,
        candidates: Sequence[str],
        watched: Ram | None,
        noisy: bool = False,
        common: frozenset[int] = frozenset(),
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], frozenset[int]]:
        """What `effects` and `fine_effects` give, and the changes beyond the object tree that are no command's own:
        those of `common`, and those that are found here."""
        asking = [c for c in _ASKING if c not in self._excluded]
        commands = Commands.of(candidates)
        found = self._judge(state, commands.behind(asking), watched)
        tried = [verdicts.part(slice(len(asking), None)) for verdicts in found]
        effect, touched, chancy = effects_of(tried, found[0].watches[: len(asking)])
        self._chance += (chancy / max(1, len(commands)) - self._chance) / 4
        flags, watches = tried[0].flags, tried[0].watches
        hidden = np.empty(0, dtype=np.intp)
        self._hidden_kinds = len(np.unique(watches[touched]))
        if len(touched):
            # Commands that touch the object tree and leave it as it is, but change something else: a step in a maze of
            # which all places are one room.
            hidden = self._believable(candidates, watches, touched.tolist())
            effect[hidden] = watches[hidden] | np.uint64(1)
        if not self._whole:
            return effect, effect, common
        idle = found[0].watches[: len(asking)]
        beside, alone = _common_changes(candidates, effect, flags, watches, hidden)
        common = common | beside | alone
        own = watches.copy()
        own[np.isin(watches, np.array(sorted(common), dtype=np.uint64))] = idle[0] if len(idle) else 0
        fine = _told_apart(candidates, effect, flags, own)
        # A number that was typed is what the parser remembers first of all.
        fine[[i for i in hidden.tolist() if (noisy and " " in candidates[i]) or _DIGIT.search(candidates[i])]] = 0
        fine[hidden[np.isin(watches[hidden], np.array(sorted(alone), dtype=np.uint64))]] = 0
        if not noisy:
            silent = _silent_changes(candidates, flags, own, idle)
            fine[silent] = watches[silent] * _MIXING | np.uint64(1)
        return effect, fine, common

    @staticmethod
    def _believable(
        candidates: Sequence[str], watches: npt.NDArray[np.uint64], hidden: Sequence[int]
    ) -> npt.NDArray[np.intp]:
        """Those of the commands with hidden changes that are not likely to show only what the parser remembers of them:
        a verb that makes many different ones with longer commands does not count there; and where there are very many
        even so, only single words do."""
        by_verb: dict[str, set[int]] = {}
        commands = {i: candidates[i] for i in hidden}
        long = {i: command.split(" ", 1)[0] for i, command in commands.items() if command.count(" ") > 1}
        for i, verb in long.items():
            by_verb.setdefault(verb, set()).add(int(watches[i]))
        left = [i for i in hidden if i not in long or len(by_verb[long[i]]) <= _HIDDEN_OF_VERB]
        if len({int(watches[i]) for i in left}) > _HIDDEN_KINDS:
            left = [i for i in left if " " not in commands[i]]
        return np.array(left, dtype=np.intp)

    def _judge(self, state: Snapshot, candidates: Sequence[str], watched: Ram | None) -> list[Verdicts]:
        """What becomes of the candidates under each of the random numbers."""
        first_alone = self._chance <= _MOSTLY_CHANCE
        return judge_each(self._emulator, self._engine, state, RANDOM_STATES, candidates, watched, first_alone)

    def _choose(self, candidates: Sequence[str], effect: npt.NDArray[np.uint64]) -> tuple[str, ...]:
        """For each effect the shortest command, with the most usual verb among those (or the other way round); in the
        candidates' order."""
        indices = np.flatnonzero(effect)
        if not len(indices):
            return ()
        if isinstance(candidates, Candidates):
            frequency, length = candidates.frequency(indices), candidates.words[indices]
        else:
            commands = [candidates[i] for i in indices.tolist()]
            frequency = np.array([self.verb_frequency(c) for c in commands])
            length = np.array([len(c.split()) for c in commands])
        merits = (length, -frequency) if self._usual_verbs else (-frequency, length)
        order = np.lexsort((indices, *merits, effect[indices]))
        chosen = indices[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = effect[chosen][1:] != effect[chosen][:-1]
        return tuple(candidates[i] for i in np.sort(chosen[first]).tolist())

    def verb_frequency(self, command: str) -> int:
        """How usual the command's verb is."""
        verb = command.split(maxsplit=1)[0] if command.strip() else ""
        if verb not in self._frequency:
            self._frequency[verb] = count_verb(verb, self._dictionary.length)
        return self._frequency[verb]
