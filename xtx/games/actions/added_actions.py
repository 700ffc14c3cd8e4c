"""The commands of the whole dictionary that do something new in a state, one for each change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from xtx.games.actions.number_commands import MOST_IN_RANGE, find_numbers_in_text, find_ranged
from xtx.games.actions.present_names import Present
from xtx.games.actions.story_words import ONESELF, SPELLED, cut_to_first_line
from xtx.games.actions.whole_dictionary import WholeGrammar

_ASIDE = re.compile(r"^\([^)\n]*\)")
_MOST_PAIRED = 4
"""Newly found names, at most, that are tried in templates for two objects."""
_MOST_NUMBERED = 2
"""The same of names with a number."""
_MOST_GUESSED = 6
"""Numbers that were guessed, at most, that do something behind a name, each something else: the holes of a flute."""
_MOST_ADDED = 12
"""Actions, at most, that are added in a state. Those are kept that need the least guessing: names of things, then
single words and words that may stand anywhere, numbers, orders, topics, and commands with two objects last."""
_FULL_LIST = 32
"""Where fewer actions are known, as in the dark, so many more are added."""
_CARELESS_PAIRS, _CARELESS_NAMES = 3, 10
"""So many different effects of one form, with two objects or with one, are a story's carelessness or what the parser
remembers."""
_SAMPLED = 16
"""One in so many commands of forms that take any word shows which forms those are."""
_PASSING = ("look", "wait", "inventory")
"""What happens with these as well is the work of time."""


class CommandTrial(Protocol):
    """One canonical state in which commands can be tried."""

    def ask(self, commands: Sequence[tuple[str, str]]) -> list[str]:
        """What the story says to commands; see `Ask`."""

    def effects(self, commands: Sequence[str]) -> npt.NDArray[np.uint64]:
        """A number for what each command does to the world: equal for equal effects, 0 for none."""

    def frequency(self, command: str) -> int:
        """How usual the command's verb is."""

    def is_fatal(self, command: str) -> bool:
        """Whether the command ends the game without winning it."""


def find_added_actions(grammar: WholeGrammar, present: Present, known: Sequence[str], trial: CommandTrial) -> list[str]:
    """One command for each change that no `known` action brings about and some word of the dictionary does."""
    named = grammar.names.find(present, trial.ask)
    names = (*present.names, *named.likely)
    persons = grammar.persons.find(names, trial.ask)
    anything = [
        *grammar.open_commands(named, trial.ask),
        *grammar.topic_commands(names, named, trial.ask),
        *grammar.persons.talk(persons, names, named, trial.ask, present.aliases),
    ]
    # What takes any word beside a thing takes it beside one like it that was not in sight.
    starts = [form.rsplit(" ", 1)[0] for form in present.open_forms]
    free_forms = (*present.open_forms, *(f"{start} {name}" for start in starts for name in named.likely))
    tried = [
        *(form.replace("OBJ", name) for form in grammar.one_object for name in named.names),
        *grammar.words.single_words,
        *anything,
        *grammar.spoken_verbs(names, trial.ask),
        *grammar.self_commands(names),
        *grammar.push_commands(named.names),
        *grammar.free_commands(free_forms, present.text),
        *grammar.numbers.commands(names, present.text, trial.ask),
    ]
    before = [*known, *_PASSING]
    effects = trial.effects([*before, *tried])
    times = Counter(form for command in anything[::_SAMPLED] for form in _forms(command))
    often = {form for form, count in times.items() if count > 1}
    free = frozenset(form.replace("OBJ", "*") for form in free_forms)
    found = _Found({0, *effects[: len(before)].tolist()}, often, free)
    found.add(tried, effects[len(before) :])
    numbered = _add_numbered(found, grammar, present.text, trial)
    working = {command.rsplit(" ", 1)[-1] for command in found.commands}
    own = grammar.names.find_own(names, named, trial.ask)
    # One alone is named without its number.
    several = numbered[:_MOST_NUMBERED] if len(numbered) > 1 else []
    others = [name for name in named.names if name in working and name not in named.likely]
    paired = [*several, *own, *named.likely, *others]
    two = [c for c in grammar.pairs(paired[:_MOST_PAIRED], names) if not free or free.isdisjoint(_forms(c))]
    if two:
        two.sort(key=trial.frequency, reverse=True)
        found.add(two, trial.effects(two))
    most = max(_MOST_ADDED, _FULL_LIST - len(known))
    return found.choose(grammar, present.text, trial, most)


def _add_numbered(found: _Found, grammar: WholeGrammar, text: str, trial: CommandTrial) -> list[str]:
    """Adds what is done to things that a number tells apart; returns those that the text names."""
    told: dict[str, None] = {}
    forms = grammar.one_object
    for some, is_guess in grammar.numbers.numbered_names(text, trial.ask):
        commands = [form.replace("OBJ", name) for form in forms for name in some]
        effects = trial.effects(commands).reshape(len(forms), len(some)).copy()
        if is_guess:
            # Where nearly any number does, it is not the small ones that are meant.
            effects[[len(set(row) - {0}) > _MOST_GUESSED for row in effects.tolist()]] = 0
        found.add(commands, effects.ravel())
        working = (name for name, column in zip(some, effects.T, strict=True) if column.any())
        told |= dict.fromkeys(name for name in working if re.search(rf"\b{name}\b", text, re.IGNORECASE))
    return list(told)


class _Found:
    """Commands by what they newly do."""

    def __init__(self, seen: Collection[int], open_forms: Collection[str], free_forms: Collection[str]) -> None:
        """`seen` are effects that are no news; `open_forms` were tried with every word, `free_forms` take any."""
        self._seen = np.array(sorted(seen), dtype=np.uint64)
        self._by_effect: dict[int, list[str]] = {}
        self._open = {*open_forms, *free_forms}
        self._free = free_forms

    def add(self, commands: Sequence[str], effects: npt.NDArray[np.uint64]) -> None:
        for i in np.flatnonzero(~np.isin(effects, self._seen)).tolist():
            self._by_effect.setdefault(int(effects[i]), []).append(commands[i])

    @property
    def commands(self) -> list[str]:
        return [command for commands in self._by_effect.values() for command in commands]

    def choose(self, grammar: WholeGrammar, text: str, trial: CommandTrial, most: int) -> list[str]:
        """The most natural command for each effect, the likeliest effects first, and no more than there may be."""
        words = {word[: grammar.words.dictionary.length] for word in SPELLED.findall(text.lower())}
        by_effect = [_prefer_told_errands(commands, words) for commands in self._by_effect.values()]
        best = [_most_natural(commands, trial) for commands in by_effect]
        forms = Counter(form for command in best for form in _forms(command))
        sound = [c for c in best if all(forms[form] < self._careless(form) for form in self._judged(c))]
        answers = trial.ask([(command, command) for command in sound])
        real = [command for command, answer in zip(sound, answers, strict=True) if is_real(grammar, command, answer)]
        real = [c for c in real if not (ONESELF in c.split() and trial.is_fatal(c))]
        # Numbers that stand in the text, and the next ones, then the story's own, before those that were only guessed.
        told, ranged, own = find_numbers_in_text(text), set(find_ranged(text)), grammar.numbers.own
        # Of errands, first those for something that can be seen from here.
        real.sort(
            key=lambda c: (
                not _numbers_in(c) <= told | ranged,
                not _numbers_in(c) <= told | ranged | own,
                _is_errand(c) and c.split()[-1] not in words,
            )
        )
        # Where a text says from where to where a dial goes, one that has all of it does not crowd out other things.
        dialled = [command for command in real if not _numbers_in(command).isdisjoint(ranged)]
        others = [command for command in real if command not in dialled][:most]
        return [grammar.words.spell_out(command, text) for command in (*others, *dialled[:MOST_IN_RANGE])]

    def _judged(self, command: str) -> list[str]:
        """The forms of a command that may be careless: where any word will do, the word says nothing."""
        forms = _forms(command)
        return [form for form in forms if form in self._free] or forms

    def _careless(self, form: str) -> int:
        """From how many different effects on a form does not count: a story that lets anything be poured into the
        water, or that moves whatever is mentioned. Where a thousand words were tried, a few that do something else are
        what one has to find."""
        return _CARELESS_PAIRS if len(form.split()) > 3 and form not in self._open else _CARELESS_NAMES


def is_real(grammar: WholeGrammar, command: str, answer: str) -> bool:
    """Whether what a command does is its own work, by what the story answers: a word that is not understood does
    nothing, and one to which the parser adds an object leaves open which."""
    head = cut_to_first_line(answer)
    if " " not in command and _ASIDE.match(head):
        return False
    return not grammar.words.is_refusal(head)


def _forms(command: str) -> list[str]:
    """The command with each of its words but the first left open; numbers are meant to differ."""
    words = command.split()
    return [" ".join((*words[:i], "*", *words[i + 1 :])) for i in range(1, len(words)) if not words[i].isdigit()]


def _numbers_in(command: str) -> set[int]:
    return {int(word) for word in command.split() if word.isdigit()}


def _is_errand(command: str) -> bool:
    """Whether a command tells a person to go somewhere and do something there."""
    return ", " in command and " and " in command


def _prefer_told_errands(commands: Sequence[str], words: Collection[str]) -> Sequence[str]:
    """The commands, or of errands those for something that some words of the text name."""
    return [c for c in commands if _is_errand(c) and c.split()[-1] in words] or commands


def _most_natural(commands: Sequence[str], trial: CommandTrial) -> str:
    """The one of several commands with the same effect that people would type: of the thing for which most of them are,
    since those are about it."""
    times = Counter(command.split()[-1] for command in commands if " " in command)
    return min(commands, key=lambda c: (_strangeness(c, trial.frequency(c)), -times[c.split()[-1]], len(c), c))


def _strangeness(command: str, frequency: int) -> tuple[bool, bool, int, int]:
    """What the most natural of several commands has the least of: a word by itself leaves open what it is done to, and
    a verb that is also the thing's name is confusing; then usual verbs come first, then short commands."""
    words = command.split()
    return len(words) == 1, len(words) > 1 and words[0] == words[-1], -frequency, len(words)
