"""Valid actions beyond the templates: what the whole dictionary and changes beyond the object tree add in a state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.core import FALLBACK_ACTIONS
from xtx.games.actions.added_actions import find_added_actions
from xtx.games.actions.command_effects import ASKING, RANDOM_STATES, find_silent_changes, find_swapped
from xtx.games.actions.mention_marks import FEWEST_THINGS, FEWEST_VERBS, MENTIONING, find_mention_marks
from xtx.games.actions.nameable_things import NO_PART, WAYS, name_clearly, names_around, understood_answer
from xtx.games.actions.noisy_bytes import find_noise
from xtx.games.actions.present_names import Present
from xtx.games.actions.template_search import CLOCKS, ELSEWHERE, Findings, Searched, TemplateSearch
from xtx.games.actions.whole_dictionary import WholeGrammar
from xtx.games.canonical.canonical_state import read_prompt
from xtx.games.canonical.scratch_bytes import find_scratch
from xtx.games.emulator.frotz import Snapshot, Status, Verdict
from xtx.games.zmachine.story_memory import read_initial_numbers, read_name_words, read_text_numbers
from xtx.games.zset.command_list import Commands
from xtx.games.zset.command_verdicts import judge_each, take_turn
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine

_SKY = "sky"
"""A name of the direction up in Inform's library, which some stories let the player drop."""

_SAMPLE = 40
"""Commands of the templates that leave the world alone, at most, from which it is seen what is remembered of them."""

_MOVING = ("take", "drop")
"""Verbs that show which of two things that look the same a word means."""

_MOST_FINER = 20
"""Commands of the templates, at most, that are added for a change beyond the object tree."""

_MOST_ELSEWHERE = 6
"""Where more commands than that change what counts in other rooms only, that is something of the parser's."""

_SHORT, _MOST_CLOCKS = 2, 6
"""Words of commands that may set a clock back, at most. Where more different ones do, those are no clocks."""

_PASSING = ("look", "wait")
_IS_ALL = re.compile(r"\ball\b")

_MOST_LUCKY = 6
"""Where more different changes than that happen by chance, something of the parser's is among them."""

_PAUSING_WORDS, _MOST_PAUSING = 2, 32
"""Words of commands that may make the story wait for a key, at most; where they make more different changes beyond the
object tree than that, commands of one word."""

_REPLIES = ("yes", "no")
"""Offered where a story asks something."""

_MOST_INITIAL = 8
"""Numbers with which variables begin, at most, that are tried where a command takes one."""

_TURNS_WAITED = 3
"""Turns after which waiting is given up in `_depends_on_time`."""


@dataclass(frozen=True)
class _StateTrial:
    """One state of a search, for `find_added_actions`."""

    whole: WholeSearch
    search: TemplateSearch
    state: Snapshot
    searched: Searched
    """What the templates do there."""

    def ask(self, commands: Sequence[tuple[str, str]]) -> list[str]:
        return self.search.answers_without(self.state, commands)

    def effects(self, commands: Sequence[str]) -> npt.NDArray[np.uint64]:
        return self.search.fine_effects(self.searched, commands)

    def frequency(self, command: str) -> int:
        return self.search.verb_frequency(command)

    def is_fatal(self, command: str) -> bool:
        return self.whole.is_fatal(self.state, command)


class WholeSearch:
    """Extends what the templates find by what the whole dictionary does."""

    def __init__(self, search: TemplateSearch) -> None:
        """`search` says what the templates do."""
        self._search = search

    def extend(self, state: Snapshot, found: Findings) -> Findings:
        """The findings with what the whole dictionary adds."""
        searched = self._search.last_searched
        if searched is None or searched.state is not state:
            searched = self._search.judge_things(state, found.look, found.inventory)
        plain, searched = searched, self._without_scratch(self._without_mentions(self._without_quantities(searched)))
        # What is no command's own change is not offered, although it is with templates alone.
        chosen = self._search.choose(searched.candidates, np.where(searched.fine == 0, np.uint64(0), searched.effect))
        old = set(self._search.choose(plain.candidates, plain.effect))
        others = tuple(a for a in found.actions if a not in old and a not in FALLBACK_ACTIONS)
        found = msgspec.structs.replace(found, actions=(*chosen, *others) or FALLBACK_ACTIONS)
        things, finer = searched.things, self._find_finer_actions(searched, found.actions)
        finer = (
            *finer,
            *self._find_changes_elsewhere(searched),
            *self._without_effect(searched),
            *self._find_pausing_commands(searched),
        )
        present = Present(
            names=tuple(t.name for t in things),
            aliases=frozenset(alias for t in things for alias in t.aliases),
            text="\n".join((found.look, found.inventory, *(t.answer for t in things))),
            around="\n".join(name for _, name in names_around(self._search.emulator, state)),
            twins=self._find_ambiguous_words(searched),
            free_forms=tuple(searched.candidates.free_forms(searched.all.effect)),
        )
        if self._is_question(state):
            finer = tuple(dict.fromkeys((*finer, *(a for a in _REPLIES if a not in found.actions))))
        known = (*found.actions, *finer)
        added = [
            *finer,
            *find_added_actions(self._words, present, known, _StateTrial(self, self._search, state, searched)),
        ]
        real = found.actions if found.actions != FALLBACK_ACTIONS or not added else ()
        if "wait" not in real and self._depends_on_time(state):
            added = [*added, "wait"]
        if "look" not in (*real, *added) and self._depends_on_looking(state):
            added = [*added, "look"]
        if not added:
            return found
        return msgspec.structs.replace(found, actions=tuple(dict.fromkeys((*real, *added))))

    def _without_quantities(self, searched: Searched) -> Searched:
        """The same with other names for things that a word for a quantity names too: `put one in bag` may mean anything
        that is here."""
        things = [name_clearly(thing) for thing in searched.things]
        if things == searched.things:
            return searched
        things.sort(key=lambda t: t.name)
        return self._search.judge_renamed(searched, things)

    def _without_mentions(self, searched: Searched) -> Searched:
        """The same without what a story notes of each thing of which it prints the name, where several harmless verbs
        seem to change the world with each thing in another way."""
        engine, idle = self._search.engine, ASKING[1]
        if engine is None or {idle, ENGINE} & set(self._search.judge.excluded):
            return searched
        forms = [
            form for form in MENTIONING if searched.candidates.count_kinds(searched.all.effect, form) >= FEWEST_THINGS
        ]
        if len(forms) < FEWEST_VERBS:
            return searched
        names = [thing.name for thing in searched.things]
        marks = find_mention_marks(self._search.emulator, engine, searched.state, forms, names, idle)
        if marks is None:
            return searched
        return self._search.judge_again(searched, searched.watched, marks)

    def _without_scratch(self, searched: Searched) -> Searched:
        """The same without what is remembered of the words that were typed, where some of it is taken for the world."""
        if searched.watched is None:
            return searched
        names = [t.name for t in searched.things]
        quiet = np.flatnonzero(searched.all.effect == 0)
        sample = [searched.candidates[i] for i in quiet[:: 1 + len(quiet) // _SAMPLE].tolist()]
        scratch = find_scratch(
            self._search.emulator, self._search.engine, searched.state, names, sample, self._search.judge.excluded
        )
        if (searched.watched[scratch] > 0).any():
            searched = self._unwatched(searched, scratch)
        engine, can_ask = self._search.engine, ASKING[0] not in self._search.judge.excluded
        if searched.is_noisy and engine is not None and can_ask and searched.all.tried:
            searched = self._unwatched(searched, self._noise(searched, engine))
        return searched

    def _noise(self, searched: Searched, engine: Engine) -> npt.NDArray[np.bool_]:
        """The bytes in which commands that leave the object tree alone leave traces of their own, but for those that
        commands change which do the same with their two objects swapped."""
        idle, tried, asked = searched.all.idle, searched.all.tried[0], self._search.judge.asking[0]
        alone = (tried.flags & (Verdict.CHANGED | Verdict.STOPPED) == 0) & (tried.watches != 0)
        places = np.flatnonzero(alone & ~np.isin(tried.watches, idle))
        commands = [searched.candidates[i] for i in places.tolist()]
        given = self._search.emulator, engine, searched.state
        noise = find_noise(*given, commands, tried.watches[places], asked)
        swapped = find_swapped(searched.candidates, tried.watches, places.tolist())
        kinds = {int(tried.watches[i]): searched.candidates[i] for i in swapped}
        if kinds:
            _, memory = engine.finals(searched.state, [asked, *kinds.values()])
            noise[(memory[1:] != memory[0]).any(axis=0)] = False
        return noise

    def _unwatched(self, searched: Searched, bytes_: npt.NDArray[np.bool_]) -> Searched:
        """The same with some bytes taken for none of the world's."""
        assert searched.watched is not None
        watched = searched.watched.copy()
        watched[bytes_] = 0
        found = self._search.judge_again(searched, watched, searched.ignored)
        return replace(found, widest=searched.widest)

    def _find_ambiguous_words(self, searched: Searched) -> dict[str, str]:
        """Words that are answered like the name of a thing and yet mean another one, which moves when they are used,
        with that name: one for each such thing."""
        pairs = [(t.name, alias) for t in searched.things for alias in t.aliases if alias != t.name]
        forms = [f"{verb} {{}}" for verb in _MOVING if verb in {t.split()[0] for t in self._search.templates}]
        commands = [form.format(word) for form in forms for pair in pairs for word in pair]
        if not commands:
            return {}
        tried = self._search.judge.find_effects(searched.state, commands, searched.watched, ignored=searched.ignored)
        moved = tried.effect.reshape(len(forms), len(pairs), 2)
        found: dict[tuple[int, ...], tuple[str, str]] = {}
        for i, (name, alias) in enumerate(pairs):
            if ((moved[:, i, 0] != moved[:, i, 1]) & (moved[:, i] != 0).all(axis=1)).any():
                found.setdefault(tuple(moved[:, i, 1].tolist()), (alias, name))
        return dict(found.values())

    def _find_finer_actions(self, searched: Searched, actions: Sequence[str]) -> tuple[str, ...]:
        """Commands of the templates that leave the object tree like one of the actions does, but change something else
        in the world: blows that miss or hit, in a fight in which something happens every turn anyway."""
        chosen = set(actions)
        places = [i for i in np.flatnonzero(searched.effect).tolist() if searched.candidates[i] in chosen]
        fine = searched.fine.copy()
        fine[np.isin(fine, fine[places])] = 0
        names = {word for t in searched.things for word in t.name.split()}
        # Two that differ in a preposition only (push on button, push down button) differ in what the parser remembers.
        distinct: dict[tuple[str, ...], str] = {}
        for command in self._search.choose(searched.candidates, fine):
            verb, *others = command.split()
            distinct.setdefault((verb, *(word for word in others[:-1] if word in names), *others[-1:]), command)
        # As many of each verb as of the others, where there are too many.
        times: Counter[str] = Counter()
        turns: list[tuple[int, str]] = []
        for verb, command in ((words[0], command) for words, command in distinct.items()):
            turns.append((times[verb], command))
            times[verb] += 1
        return tuple(command for _, command in sorted(turns, key=lambda turn: turn[0])[:_MOST_FINER])

    def _find_changes_elsewhere(self, searched: Searched) -> tuple[str, ...]:
        """Commands of the templates for one object that do nothing but change what belongs to the world in other rooms:
        a spell is learned that is of use in one place."""
        tried, idle = searched.all.tried[:1], searched.all.more_idle
        if not tried or idle is None or tried[0].more_watches is None:
            return ()
        one = np.array([template.count("OBJ") == 1 for template in self._search.grammar.templates])
        places = np.flatnonzero((searched.fine == 0) & (searched.all.effect == 0) & one[searched.candidates.forms])
        commands = [searched.candidates[i] for i in places.tolist()]
        flags, watches = tried[0].flags[places] & ~np.uint8(Verdict.EVENT), tried[0].more_watches[places, ELSEWHERE]
        silent = find_silent_changes(commands, flags, watches, idle[:, ELSEWHERE])
        effect = np.zeros(len(commands), dtype=np.uint64)
        effect[silent] = watches[silent]
        chosen = self._search.choose(commands, effect)
        return chosen if len(chosen) <= _MOST_ELSEWHERE else ()

    def _without_effect(self, searched: Searched) -> tuple[str, ...]:
        """Commands of one or two words that do nothing but set back a clock that always runs (what is eaten puts hunger
        off), or that do something beyond the object tree, but not with the first random numbers (a step in a maze that
        is sometimes blocked)."""
        engine, ticks, more_idle = self._search.engine, searched.ticks, searched.all.more_idle
        candidates, state = searched.candidates, searched.state
        idle = (searched.fine == 0) & (searched.all.effect == 0)
        places = np.flatnonzero(idle & (candidates.words <= _SHORT) & self._active[candidates.forms])
        if engine is None or ticks is None or more_idle is None or not len(places):
            return ()
        commands, tried = candidates.chosen(places), searched.all.tried[0].select_rows(places)
        assert tried.more_watches is not None
        watches = tried.more_watches[:, CLOCKS]
        own = (tried.flags & (Verdict.CHANGED | Verdict.STOPPED) == 0) & ~np.isin(watches, more_idle[:, CLOCKS])
        setting = self._search.choose(commands, np.where(own, watches, np.uint64(0)))
        setting = tuple(command for command in setting if not _IS_ALL.search(command))  # with it the parser counts, too
        if setting:
            self._search.emulator.note(ENGINE)
            flags, after = engine.finals(state, setting)
            gone = after.astype(np.int16) - np.frombuffer(state.ram, np.uint8)
            is_back = (gone * ticks < 0).any(axis=1) & (flags & UNJUDGED == 0)
            setting = tuple(command for command, back in zip(setting, is_back.tolist(), strict=True) if back)
        drawing = (commands[i] for i in np.flatnonzero(tried.flags & Verdict.RANDOM).tolist())
        lucky = self._lucky(searched, [command for command in drawing if command in self._steps])
        return (*(setting if len(setting) <= _MOST_CLOCKS else ()), *(lucky if len(lucky) <= _MOST_LUCKY else ()))

    def _lucky(self, searched: Searched, commands: Sequence[str]) -> tuple[str, ...]:
        """Those of some commands that draw random numbers which change something beyond the object tree with other
        numbers than the first, one for each change."""
        if not commands or searched.is_noisy:
            return ()
        asking = self._search.judge.asking
        effect = np.zeros(len(commands), dtype=np.uint64)
        given = self._search.emulator, self._search.engine, searched.state
        for random in RANDOM_STATES[1:]:
            [found] = judge_each(*given, [random], Commands.of([*asking, *commands]), searched.watched)
            tried, idle = found.select_rows(slice(len(asking), None)), found.watches[: len(asking)]
            touched = (
                tried.flags & (Verdict.EVENT | Verdict.CHANGED | Verdict.TAKEN | Verdict.STOPPED)
            ) == Verdict.EVENT
            own = touched & (tried.watches != 0) & ~np.isin(tried.watches, idle)
            effect = np.where(own & (effect == 0), tried.watches, effect)
        return self._search.choose(commands, effect)

    def _find_pausing_commands(self, searched: Searched) -> tuple[str, ...]:
        """Short commands that do nothing yet but make the story wait for something else than a command: for a key, in
        the middle of a scene."""
        watched = self._search.watched(searched.state)
        if self._search.engine is None or watched is None or searched.watched is None:
            return ()
        words = searched.candidates.words
        short = np.flatnonzero((searched.all.effect == 0) & (words <= _PAUSING_WORDS))
        kinds = searched.all.find_silent_kinds(searched.candidates, short)
        # Of what is taken for the parser's, commands of one word are the fewest.
        if len(kinds) > _MOST_PAUSING or not np.array_equal(watched, searched.watched):
            kinds = kinds if len(kinds) <= _MOST_PAUSING else {}
            kinds |= searched.widest.find_silent_kinds(searched.candidates, short[words[short] == 1])
        self._search.emulator.note(ENGINE)
        waiting = [(c, self._search.engine.step(searched.state, c)) for c in sorted(set(kinds.values()))]
        usual = searched.state.opcode
        return tuple(c for c, (flags, after) in waiting if not flags & UNJUDGED and after.opcode != usual)

    def _is_question(self, state: Snapshot) -> bool:
        """Whether the story waits for something else than a command: a yes or no, mostly."""
        return self._search.world is not None and read_prompt(state) != self._search.world.layout.prompt

    def is_fatal(self, state: Snapshot, command: str) -> bool:
        """Whether the command ends the game without winning it, or does not end itself."""
        done = take_turn(self._search.emulator, self._search.engine, state, command) is Status.DONE
        return not done or (self._search.emulator.over and not self._search.emulator.won)

    def _depends_on_time(self, state: Snapshot) -> bool:
        """Whether something may come of waiting: chance is drawn, a clock runs, or the state is another one after a few
        turns."""
        world, emulator = self._search.world, self._search.emulator
        if world is None or "wait" in self._search.judge.excluded:
            return False
        if any(state.ram[address] for address in world.layout.counters):
            return True
        [waited] = judge_each(emulator, self._search.engine, state, [state.rng], ["wait"])
        if waited.flags[0] & Verdict.RANDOM:
            return True
        key, here = world.compute_key(state), state
        for _ in range(_TURNS_WAITED):
            if take_turn(emulator, self._search.engine, here, "wait") is not Status.DONE or emulator.over:
                return False
            here = emulator.save()
            if world.compute_key(world.make_canonical(state.rng)) != key:
                return True
        return False

    def _depends_on_looking(self, state: Snapshot) -> bool:
        """Whether to look around leads to another state every time, and not to the one to which waiting does: a story
        that counts how often one looks."""
        world, emulator = self._search.world, self._search.emulator
        if world is None or not {"look", "wait"}.isdisjoint(self._search.judge.excluded):
            return False
        keys, here = [world.compute_key(state)], state
        for _ in range(2):
            if take_turn(emulator, self._search.engine, here, "look") is not Status.DONE or emulator.over:
                return False
            here = emulator.save()
            keys.append(world.compute_key(world.make_canonical(state.rng)))
            if keys[-1] == keys[-2]:
                return False
        if take_turn(emulator, self._search.engine, state, "wait") is not Status.DONE or emulator.over:
            return False
        return keys[1] != world.compute_key(world.make_canonical(state.rng))

    @cached_property
    def _steps(self) -> frozenset[str]:
        """The templates for no object: ways, mostly. With an object chance decides more often what is said than what is
        done."""
        return frozenset(template for template in self._search.grammar.templates if "OBJ" not in template)

    @cached_property
    def _active(self) -> npt.NDArray[np.bool_]:
        """Which templates are for more than letting time pass."""
        return np.array([template not in _PASSING for template in self._search.grammar.templates])

    @cached_property
    def _words(self) -> WholeGrammar:
        """What the whole dictionary can say."""
        tree = self._search.emulator.tree
        return WholeGrammar(
            self._search.dictionary,
            self._search.templates,
            read_name_words(tree),
            tree.names,
            understood_answer,
            NO_PART | WAYS | {_SKY},
            (*read_initial_numbers(tree)[:_MOST_INITIAL], *read_text_numbers(self._search.emulator.story.content)),
        )
