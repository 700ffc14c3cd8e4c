"""What commands do to the world: a number for each, equal for equal effects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from xtx.games.actions.mention_marks import merge_effects
from xtx.games.emulator.frotz import Emulator, Snapshot, Verdict, Verdicts
from xtx.games.zmachine.story_memory import Ram
from xtx.games.zset.command_list import Commands
from xtx.games.zset.command_verdicts import judge_each
from xtx.games.zset.effects import number_effects
from xtx.games.zset.engine import Engine

RANDOM_STATES = ((38_216, 0, 0), (2_114, 0, 0), (7_498, 0, 0), (1_856, 0, 0))
"""Random numbers to come, in libfrotz's terms. A candidate that uses any is tried under each: the blow that misses
the troll under one of them hits under another. The first draws of the four, out of a hundred, are all low, all high,
all below and all above the middle. The first is none that a story can set itself."""

ASKING = ("look", "examine me")
"""Commands that do nothing themselves: what changes with them as well is the work of time."""

_HIDDEN_OF_VERB = 4

HIDDEN_KINDS = 24
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

_FINE_KINDS = 10
"""Different changes beyond the object tree, at most, that one verb may bring about beside the same change of it: eight
buttons of a machine that fills a flask."""

_COMMON_EFFECTS, _COMMON_VERBS = 4, 4
"""The same change beyond the object tree beside so many different changes of it, or by so many verbs, with as many
things, that leave it alone, is the work of time or of the parser, and none of the command's own."""

_MOSTLY_CHANCE = 0.6
"""Where more of the candidates than this draw random numbers, it is quicker to try all of them with each at once."""


def find_silent_changes(
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
    done = {candidates[i]: int(watches[i]) for i in places}
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
        # What differs with the two objects swapped is which of them the parser remembers as the first.
        and done.get(_swap(candidates[i]), int(watches[i])) == int(watches[i])
    ]


def _swap(command: str) -> str:
    """The command with its two objects swapped, if it has two of one word each: `connect b to j`, or with another
    preposition before them `rub between m and v`."""
    words = command.split(" ")
    if len(words) not in (4, 5):
        return command
    *verb, one, between, other = words
    return " ".join((*verb, other, between, one))


def find_swapped(candidates: Sequence[str], watches: npt.NDArray[np.uint64], touched: Sequence[int]) -> list[int]:
    """Those of the commands with hidden changes that change the same with their two objects swapped (`connect b to j`):
    what the parser remembers of them would be another thing."""
    swapped = [(i, candidates[i], other) for i in touched if (other := _swap(candidates[i])) != candidates[i]]
    done = {command: int(watches[i]) for i, command, _ in swapped}
    # Forms with another preposition are counted by themselves: each verb has several.
    times = Counter((command.count(" "), watch) for command, watch in done.items())
    return [
        i
        for i, command, other in swapped
        if done.get(other) == done[command] and times[command.count(" "), done[command]] <= _SILENT_COMMANDS
    ]


def _verb_of(command: str) -> str:
    """The first word of a command; of an order of several words also what is ordered."""
    words = command.split(" ")
    return " ".join(words[:2]) if words[0].endswith(",") and len(words) > 2 else words[0]


def distinguish_effects(
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


def find_common_changes(
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
        words = candidates[i].split(" ")
        commands.setdefault(int(watches[i]), []).append(words[words[0].endswith(",") :])  # an order without the person
    return frozenset(common), frozenset(watch for watch, of in commands.items() if _have_many_verbs(of))


def _have_many_verbs(commands: Sequence[Sequence[str]]) -> bool:
    """Whether commands, as words, have many verbs and no thing in common."""
    if len({words[0] for words in commands}) < _COMMON_VERBS:
        return False
    things = Counter(word for words in commands for word in set(words[1:]))
    return not things or things.most_common(1)[0][1] < _ABOUT_ONE * len(commands)


@dataclass(frozen=True)
class Effects:
    """What commands do in a state. Equal numbers stand for equal effects, 0 for none."""

    effect: npt.NDArray[np.uint64]
    """What each command does to the object tree, or to the world without touching it."""
    fine: npt.NDArray[np.uint64]
    """The same, told apart by changes beyond the object tree."""
    watches: npt.NDArray[np.uint64]
    """What each changes of the watched bits beyond the object tree, under the first random numbers."""
    idle: npt.NDArray[np.uint64]
    """What commands change there that do nothing themselves."""
    common: frozenset[int]
    """Changes beyond the object tree that are no command's own."""
    tried: tuple[Verdicts, ...] = ()
    """The verdicts under each of the random numbers; none where some of the commands were not to be tried."""
    more_idle: npt.NDArray[np.uint64] | None = None
    """As `idle`, of further sets of bits, one column for each; of those `tried[0].more_watches` has what each command
    changes."""

    def select_rows(self, which: npt.NDArray[np.intp]) -> Effects:
        """What some of the commands do."""
        tried = tuple(verdicts.select_rows(which) for verdicts in self.tried)
        return replace(self, effect=self.effect[which], fine=self.fine[which], watches=self.watches[which], tried=tried)

    def find_silent_kinds(self, candidates: Sequence[str], places: npt.NDArray[np.intp]) -> dict[int, str]:
        """The first of the candidates at some places that makes a change beyond the object tree, for each such
        change."""
        known = {0, *self.idle.tolist()}
        kinds: dict[int, str] = {}
        for place, watch in zip(places.tolist(), self.watches[places].tolist(), strict=True):
            if watch not in known and watch not in kinds:
                kinds[watch] = candidates[place]
        return kinds


def _stack_bits(watched: Ram | None, more_bits: Ram | None) -> Ram | None:
    """The watched bits as the engine takes them: one set, or with further ones in rows."""
    return watched if watched is None or more_bits is None else np.concatenate([watched[None], more_bits])


class EffectJudge:
    """Tries commands in the states of one story and tells their effects apart."""

    def __init__(self, emulator: Emulator, engine: Engine | None, whole: bool) -> None:
        """`engine`: None tries every command in Frotz. With `whole` changes beyond the object tree are told apart."""
        self._emulator = emulator
        self._engine = engine
        self.is_whole = whole
        self.excluded: Collection[str] = ()
        """Commands that are not to be tried in the present state."""
        self.hidden_kinds = 0
        """Different changes, in the last verdicts, that touched the object tree and left it as it is."""
        self.chance = 0.0
        """Share of the candidates that drew random numbers in the last few states."""

    @property
    def asking(self) -> list[str]:
        """Commands that do nothing themselves and may be tried."""
        return [c for c in ASKING if c not in self.excluded]

    def find_effects(
        self,
        state: Snapshot,
        candidates: Sequence[str],
        watched: Ram | None,
        noisy: bool = False,
        common: frozenset[int] = frozenset(),
        ignored: Ram | None = None,
        more_bits: Ram | None = None,
        known: tuple[Sequence[str], Effects] | None = None,
    ) -> Effects:
        """What the candidates do. `common` are changes beyond the object tree that are no command's own; more of them
        are found here. Changes of the `ignored` bits are none. Commands that are not to be tried do nothing.
        `more_bits` are further sets of bits of which the changes are noted. `known` are commands that were tried in the
        same state with the same bits, and their effects."""
        kept = [i for i, command in enumerate(candidates) if command not in self.excluded] if self.excluded else []
        if self.excluded and len(kept) < len(candidates):
            tried = self.find_effects(state, [candidates[i] for i in kept], watched, noisy, common, ignored)
            effect, fine, watches = np.zeros((3, len(candidates)), dtype=np.uint64)
            effect[kept], fine[kept], watches[kept] = tried.effect, tried.fine, tried.watches
            return Effects(effect, fine, watches, tried.idle, tried.common)
        if known is not None and known[1].tried:
            behind = self._judge_new(state, candidates, watched, more_bits, *known)
            effects = self._tell_apart(state, candidates, behind, known[1].idle, noisy, common, ignored)
            return replace(effects, more_idle=known[1].more_idle)
        asking = self.asking
        bits = _stack_bits(watched, more_bits)
        found = self.judge(state, Commands.of(candidates).behind(asking), bits)
        behind = tuple(verdicts.select_rows(slice(len(asking), None)) for verdicts in found)
        idle = found[0].select_rows(slice(len(asking)))
        effects = self._tell_apart(state, candidates, behind, idle.watches, noisy, common, ignored)
        return replace(effects, more_idle=idle.more_watches)

    def _judge_new(
        self,
        state: Snapshot,
        candidates: Sequence[str],
        watched: Ram | None,
        more_bits: Ram | None,
        known_commands: Sequence[str],
        known: Effects,
    ) -> tuple[Verdicts, ...]:
        """The verdicts on candidates of which some are known: only the others are tried."""
        place_of = {command: place for place, command in enumerate(known_commands)}
        places = np.array([place_of.get(command, -1) for command in candidates])
        old, new = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        bits = _stack_bits(watched, more_bits)
        judged = self.judge(state, Commands.of(candidates).chosen(new), bits) if len(new) else known.tried
        behind = tuple(verdicts.make_empty(len(candidates)) for verdicts in judged)
        for ours, before, now in zip(behind, known.tried, judged, strict=True):
            ours.replace_rows(old, before.select_rows(places[old]))
            ours.replace_rows(new, now.select_rows(slice(len(new))))
        return behind

    def find_fewer_effects(
        self, state: Snapshot, candidates: Sequence[str], before: Effects, watched: Ram | None, ignored: Ram | None
    ) -> Effects:
        """What the candidates do where fewer bits are `watched` than `before`, or some are `ignored`. Commands that
        changed the same of more bits change the same of fewer, so that one of them is tried."""
        if not before.tried:
            return self.find_effects(state, candidates, watched, ignored=ignored)
        asking, first = self.asking, before.tried[0]
        kinds, places, numbers = np.unique(before.watches, return_index=True, return_inverse=True)
        some = Commands.of([candidates[i] for i in places.tolist()])
        found = self.judge_once(state, some.behind(asking), watched).watches
        fewer = np.where(kinds == 0, np.uint64(0), found[len(asking) :])[numbers]
        behind = (replace(first, watches=fewer), *before.tried[1:])
        effects = self._tell_apart(state, candidates, behind, found[: len(asking)], False, frozenset(), ignored)
        return replace(effects, more_idle=before.more_idle)

    def _tell_apart(
        self,
        state: Snapshot,
        candidates: Sequence[str],
        behind: tuple[Verdicts, ...],
        idle: npt.NDArray[np.uint64],
        noisy: bool,
        common: frozenset[int],
        ignored: Ram | None,
    ) -> Effects:
        """The effects by the verdicts on the candidates under each of the random numbers; `idle` is what commands that
        do nothing change of the watched bits."""
        effect, touched, chancy = number_effects(behind, idle)
        if ignored is not None and self._engine is not None:
            effect = merge_effects(self._emulator, self._engine, state, RANDOM_STATES, candidates, effect, ignored)
        self.chance += (chancy / max(1, len(candidates)) - self.chance) / 4
        flags, watches = behind[0].flags, behind[0].watches
        hidden = np.empty(0, dtype=np.intp)
        self.hidden_kinds = len(np.unique(watches[touched]))
        if len(touched):
            # Commands that touch the object tree and leave it as it is, but change something else: a step in a maze of
            # which all places are one room.
            hidden = self._select_lasting(candidates, watches, touched.tolist())
            effect[hidden] = watches[hidden] | np.uint64(1)
        if not self.is_whole:
            return Effects(effect, effect, watches, idle, common, behind)
        beside, alone = find_common_changes(candidates, effect, flags, watches, hidden)
        common = common | beside | alone
        own = watches.copy()
        own[np.isin(watches, np.array(sorted(common), dtype=np.uint64))] = idle[0] if len(idle) else 0
        fine = distinguish_effects(candidates, effect, flags, own)
        # A number that was typed is what the parser remembers first of all.
        fine[[i for i in hidden.tolist() if (noisy and " " in candidates[i]) or _DIGIT.search(candidates[i])]] = 0
        fine[hidden[np.isin(watches[hidden], np.array(sorted(alone), dtype=np.uint64))]] = 0
        if not noisy:
            swapped = find_swapped(candidates, watches, touched.tolist())
            fine[swapped] = watches[swapped] | np.uint64(1)
            silent = find_silent_changes(candidates, flags, own, idle)
            fine[silent] = watches[silent] * _MIXING | np.uint64(1)
        return Effects(effect, fine, watches, idle, common, behind)

    @staticmethod
    def _select_lasting(
        candidates: Sequence[str], watches: npt.NDArray[np.uint64], hidden: Sequence[int]
    ) -> npt.NDArray[np.intp]:
        """Those of the commands with hidden changes that are not likely to show only what the parser remembers of them:
        a verb that makes many different ones with longer commands does not count there; and where there are very many
        even so, only single words do."""
        by_verb: dict[str, set[int]] = {}
        commands = {i: candidates[i] for i in hidden}
        long = {i: _verb_of(command) for i, command in commands.items() if command.count(" ") > 1}
        for i, verb in long.items():
            by_verb.setdefault(verb, set()).add(int(watches[i]))
        left = [i for i in hidden if i not in long or len(by_verb[long[i]]) <= _HIDDEN_OF_VERB]
        # A number that was typed is remembered too, and never counts.
        if len({int(watches[i]) for i in left if not _DIGIT.search(commands[i])}) > HIDDEN_KINDS:
            left = [i for i in left if " " not in commands[i]]
        return np.array(left, dtype=np.intp)

    def judge(self, state: Snapshot, candidates: Sequence[str], watched: Ram | None) -> list[Verdicts]:
        """What becomes of the candidates under each of the random numbers."""
        first_alone = self.chance <= _MOSTLY_CHANCE
        return judge_each(self._emulator, self._engine, state, RANDOM_STATES, candidates, watched, first_alone)

    def judge_once(self, state: Snapshot, candidates: Sequence[str], watched: Ram | None) -> Verdicts:
        """What becomes of the candidates under the first of the random numbers."""
        return judge_each(self._emulator, self._engine, state, RANDOM_STATES[:1], candidates, watched)[0]
