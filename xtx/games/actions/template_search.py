"""Valid actions by the templates of a game's grammar.

Things that can be named -> templates filled with their names -> each candidate tried from the canonical state -> one
action for each distinct change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.core import FALLBACK_ACTIONS
from xtx.games.actions.candidates import Candidates, Grammar
from xtx.games.actions.command_effects import ASKING, HIDDEN_KINDS, EffectJudge, Effects
from xtx.games.actions.nameable_things import Thing, ThingFinder
from xtx.games.actions.story_words import WORD_MARK
from xtx.games.canonical.canonical_state import World
from xtx.games.emulator.frotz import Emulator, Snapshot, Verdict
from xtx.games.emulator.frotz import count_verb_uses as count_verb
from xtx.games.zmachine.debug_verbs import drop_debugging_templates
from xtx.games.zmachine.story_memory import Ram, read_dictionary
from xtx.games.zset.command_responses import CommandResponses
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine
from xtx.search_versions import SEARCH_VERSION

Ticks = npt.NDArray[np.int16]

ELSEWHERE, CLOCKS = 0, 1
"""Sets of bits that are watched besides: those that belong to the world in other rooms, and those of clocks."""

_FILLED = 16
"""Sets of names whose candidates are cached: from step to step most things stay the same."""


class Findings(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a state of the world: what the atlas stores."""

    look: str
    inventory: str
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Searched:
    """What came out of the templates in a state."""

    state: Snapshot
    things: list[Thing]
    candidates: Candidates
    effect: npt.NDArray[np.uint64]
    """What each candidate does, without nonsense."""
    fine: npt.NDArray[np.uint64]
    """The same, told apart by changes beyond the object tree."""
    is_noisy: bool
    """Whether so many commands make changes of their own that something of the parser's must be among them."""
    watched: Ram | None
    """The bits beyond the object tree that were watched."""
    all: Effects
    """What each candidate does, nonsense too."""
    widest: Effects
    """The same with all the bits that are watched at first."""
    ignored: Ram | None = None
    """The bits of the object tree of which a change is none."""
    ticks: Ticks | None = None
    """How far each byte that is a clock goes on in a turn, 0 for all others; None where that is not known. Set together
    with `all.more_idle`, whose columns are for what belongs to the world elsewhere and for the clocks."""

    @cached_property
    def working(self) -> tuple[Sequence[str], Effects]:
        """The commands that do something, and what that is: they need not be tried again."""
        places = np.flatnonzero(self.all.effect)
        return [self.candidates[i] for i in places.tolist()], self.all.select_rows(places)


class TemplateSearch:
    """The search of one emulator with the templates of its story."""

    def __init__(
        self,
        emulator: Emulator,
        engine: Engine | None = None,
        world: World | None = None,
        *,
        whole: bool = False,
        usual_verbs: bool = False,
    ) -> None:
        """See `Search`."""
        self.emulator = emulator
        self.engine = engine
        self.world = world
        self.judge = EffectJudge(emulator, engine, whole)
        self.last_searched: Searched | None = None
        """What came out of the templates in the state that was searched last."""
        self._hearing = CommandResponses(emulator, engine)
        self._usual_verbs = usual_verbs
        self.dictionary = read_dictionary(emulator.story.content, emulator.header)
        self._frequency: dict[str, int] = {}
        self._filled: dict[tuple[str, ...], Candidates] = {}

    @property
    def plain_variant(self) -> str:
        """What beside the state decides `findings`: part of every key in the atlas."""
        return f"{SEARCH_VERSION}, usual verbs" if self._usual_verbs else str(SEARCH_VERSION)

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """The templates of the story's grammar: Jericho's, and those that it left out."""
        return drop_debugging_templates(
            (*self.emulator.bindings.templates, *self.emulator.bindings.unlisted), self.dictionary
        )

    def describe(self, state: Snapshot, excluded: Collection[str] = ()) -> tuple[str, str]:
        """Look and inventory in a canonical state; see `findings`."""
        self.judge.excluded = excluded
        look, inventory = self.answers(state, tuple(map(self.emulator.bindings.translate, ("look", "inventory"))))
        return look, inventory

    def findings(
        self, state: Snapshot, excluded: Collection[str] = (), described: tuple[str, str] | None = None
    ) -> Findings:
        """Look, inventory and valid actions in a canonical state, by the game's templates alone; `excluded` commands
        are not tried, not even to see what is there. `described` is what `describe` says, where that is known. The
        emulator is left in some other state."""
        look, inventory = described or self.describe(state, excluded)
        self.judge.excluded = excluded
        if self.cannot_try(state):
            return Findings(look, inventory, FALLBACK_ACTIONS)
        searched = self.last_searched = self.judge_things(state, look, inventory)
        return Findings(look, inventory, self.choose(searched.candidates, searched.effect) or FALLBACK_ACTIONS)

    def cannot_try(self, state: Snapshot) -> bool:
        """Whether the story waits for a key, or the engine was seen to fail in this state."""
        return not state.wants_line or (self.engine is not None and ENGINE in self.judge.excluded)

    def judge_things(self, state: Snapshot, look: str, inventory: str) -> Searched:
        """The things that can be named, the templates filled with their names, and what those do."""
        things = self.things(state, look, inventory)
        candidates = self.candidates(things)
        if self.judge.excluded:
            candidates = candidates.without(self.judge.excluded)
        watched, ticks = self.watched(state), self._find_ticks(state) if self.judge.is_whole else None
        more_bits = None if ticks is None else self._more_bits(state, ticks)
        found = self.judge.find_effects(state, candidates, watched, more_bits=more_bits)
        return self._without_nonsense(state, things, candidates, watched, None, found, ticks)

    def judge_renamed(self, before: Searched, things: list[Thing]) -> Searched:
        """The same with other names for some of the things: only commands that are new are tried."""
        state, watched, ticks = before.state, self.watched(before.state), before.ticks
        candidates = self.candidates(things)
        if self.judge.excluded:
            candidates = candidates.without(self.judge.excluded)
        more_bits = None if ticks is None else self._more_bits(state, ticks)
        known = before.candidates, before.all
        found = self.judge.find_effects(state, candidates, watched, more_bits=more_bits, known=known)
        return self._without_nonsense(state, things, candidates, watched, None, found, ticks)

    def _more_bits(self, state: Snapshot, ticks: Ticks) -> Ram:
        """What is watched besides, by ELSEWHERE and CLOCKS."""
        assert self.world is not None
        elsewhere = self.world.select_bits_watched_elsewhere(np.frombuffer(state.ram, np.uint8))
        clocks = np.where(ticks != 0, 255, 0).astype(np.uint8)
        return np.stack([np.zeros_like(clocks) if elsewhere is None else elsewhere, clocks])

    def _find_ticks(self, state: Snapshot) -> Ticks | None:
        """How far each byte goes on in a turn in which nothing is done, if it is a clock, which goes on by one with
        every command; 0 for all others. None where that cannot be tried."""
        asking = self.judge.asking
        if self.engine is None or self.world is None or not asking:
            return None
        self.emulator.note(ENGINE)
        flags, after = self.engine.finals(state, asking)
        if (flags & (UNJUDGED | Verdict.STOPPED)).any():
            return None
        ticks = after.astype(np.int16) - np.frombuffer(state.ram, np.uint8)
        is_clock = (np.abs(ticks[0]) == 1) & (ticks == ticks[0]).all(axis=0)
        return np.where(is_clock, ticks[0], np.int16(0))

    def judge_again(self, searched: Searched, watched: Ram | None, ignored: Ram | None) -> Searched:
        """The same where fewer bits are `watched`, and changes of the `ignored` ones are none."""
        state, candidates = searched.state, searched.candidates
        found = self.judge.find_fewer_effects(state, candidates, searched.all, watched, ignored)
        return self._without_nonsense(state, searched.things, candidates, watched, ignored, found, searched.ticks)

    def _without_nonsense(
        self,
        state: Snapshot,
        things: list[Thing],
        candidates: Candidates,
        watched: Ram | None,
        ignored: Ram | None,
        found: Effects,
        ticks: Ticks | None,
    ) -> Searched:
        told = {t.name for t in things if t.told}
        sound = candidates.without_nonsense(found.effect, told)
        fine = np.where((sound == 0) & (found.effect != 0), np.uint64(0), found.fine)
        is_noisy = self.judge.hidden_kinds > HIDDEN_KINDS
        return Searched(state, things, candidates, sound, fine, is_noisy, watched, found, found, ignored, ticks)

    def watched(self, state: Snapshot) -> Ram | None:
        """The bits beyond the object tree of which a change counts."""
        return None if self.world is None else self.world.select_watched_bits(np.frombuffer(state.ram, np.uint8))

    def answers_without(self, state: Snapshot, commands: Sequence[tuple[str, str]]) -> list[str]:
        """What the game says to each command, with a word of the command replaced by `WORD_MARK`."""
        return self._hearing.answers_without(state, commands, WORD_MARK, self.judge.excluded)

    def answers(self, state: Snapshot, commands: Sequence[str]) -> list[str]:
        """What the game says to each command; nothing if it cannot finish it, or is not to be asked."""
        return self._hearing.answers(state, commands, self.judge.excluded)

    @cached_property
    def _thing_finder(self) -> ThingFinder:
        return ThingFinder(self.emulator, self.dictionary, lambda state, commands: self.answers(state, commands))

    def things(self, state: Snapshot, look: str, inventory: str) -> list[Thing]:
        """What can be named here: words that the game can examine, merged where they name the same thing."""
        return self._thing_finder.find(state, look, inventory)

    def candidates(self, things: Sequence[Thing]) -> Candidates:
        """Every template filled with every name, in the templates' order."""
        names = tuple(t.name for t in things)
        if names not in self._filled:
            if len(self._filled) >= _FILLED:
                self._filled.clear()
            self._filled[names] = self.grammar.fill(names)
        return self._filled[names]

    @cached_property
    def grammar(self) -> Grammar:
        return Grammar(self.templates, self.verb_frequency, self.dictionary.can_name("wall"), ASKING)

    def valid(self, state: Snapshot, candidates: Sequence[str]) -> tuple[str, ...]:
        """One command for each distinct change of the world that some candidate brings about."""
        return self.choose(candidates, self.effects(state, candidates))

    def effects(self, state: Snapshot, candidates: Sequence[str]) -> npt.NDArray[np.uint64]:
        """A number for what each candidate does to the world: equal for equal effects, 0 for none."""
        return self.judge.find_effects(state, candidates, self.watched(state)).effect

    def fine_effects(self, searched: Searched, candidates: Sequence[str]) -> npt.NDArray[np.uint64]:
        """The same in a state that was searched, where changes of the world beyond the object tree make a difference
        between effects as well. In a noisy state nearly every command makes such a change: there only single words
        count that do nothing else."""
        given = searched.state, candidates, searched.watched, searched.is_noisy, searched.all.common, searched.ignored
        return self.judge.find_effects(*given, known=searched.working).fine

    def choose(self, candidates: Sequence[str], effect: npt.NDArray[np.uint64]) -> tuple[str, ...]:
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
            self._frequency[verb] = count_verb(verb, self.dictionary.length)
        return self._frequency[verb]
