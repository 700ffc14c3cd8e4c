"""Candidates from the whole dictionary: what `--actions whole` tries beyond the templates and the things in sight.

Every word that the parser knows is tried, in stages, so that it stays cheap:

1. Every word by itself.
2. Every word as the object of a few verbs. What the parser says tells which words name something here, whether or not
   any text speaks of it and whether or not it is dark. Those are tried with every template for one object, and the more
   likely of them with every template for two.
3. One word that names nothing here with every template. Where the parser does not complain of it, that place of a
   command takes any word (speech, spells); there every word is tried.
4. Persons: the same commands as orders to them, and every word as a topic.
5. Numbers, where a command takes one.

All of it is asked of a canonical state, so the result is a function of that state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from xtx.games.actions.candidates import SIDES
from xtx.games.actions.number_commands import NumberCommands
from xtx.games.actions.person_commands import PersonCommands
from xtx.games.actions.present_names import REFUSED_BY_VERBS, Named, NameFinder
from xtx.games.actions.story_words import ONESELF, SPELLED, Ask, StoryWords, cut_to_first_line
from xtx.games.zmachine.story_memory import Dictionary

_SPOKEN = ("say", "answer", "type")
"""Verbs of which the object may be speech in quotes. More of them find little but commands to oneself."""
_SPEECH = (*(f'{verb} "OBJ"' for verb in _SPOKEN), "say OBJ", "answer OBJ", "shout OBJ", "order OBJ", "buy OBJ")
_CONSULT = ("look up OBJ in OBJ", "consult OBJ about OBJ", "read about OBJ in OBJ")
"""Forms for a thing and a topic."""
_MOST_FREE = 3
"""Words of a place's name, at most, that are tried where any word will do."""
_MOST_OPEN = 10
"""Templates that take any word, at most, that are tried with the whole dictionary."""
_MOST_TOPICS = 6
"""Forms that take any word beside a name, at most, that are tried with the whole dictionary."""
_PUSH_ASIDE = "push OBJ OBJ"
_UPON = ("on", "onto", "over", "upon", "around")
_SPELLS = 20
"""An answer that is given to so many words, each before a name as if it were a verb, is a refusal."""


class WholeGrammar:
    """The candidates that a story's whole dictionary gives, state by state."""

    def __init__(
        self,
        dictionary: Dictionary,
        templates: Sequence[str],
        owners: Mapping[str, frozenset[int]],
        names: Sequence[str],
        understood: Callable[[str], str],
        unwanted: Collection[str] = (),
        numbers: Iterable[int] = (),
    ) -> None:
        """`owners` says which objects have a word among their names, `names` is what they are called in print, by
        their numbers. `understood` gives nothing for an answer by which a parser complains. `unwanted` words name no
        thing: pronouns, articles, directions. `numbers` are the story's own, beside those that the text shows."""
        self.words = StoryWords(dictionary, templates, names, understood, unwanted)
        self.names = NameFinder(self.words, owners, names)
        self.numbers = NumberCommands(self.words, numbers)
        self.persons = PersonCommands(self.words, self.names, self.numbers)

    @cached_property
    def one_object(self) -> tuple[str, ...]:
        """The templates for one object, with those for speech."""
        return tuple(dict.fromkeys((*self.words.known(_SPEECH), *self.words.one_object)))

    def open_commands(self, named: Named, ask: Ask) -> list[str]:
        """Commands of forms that take any word: each with every word of the dictionary."""
        if not named.absent:
            return []
        forms = self.one_object
        taking = self._taking([(form, form.replace("OBJ", named.absent)) for form in forms], named, ask)
        # What stands in quotes need not be a thing.
        spoken = [word for word in self.words.words if word not in self.words.settings]
        every = {form: spoken if '"' in form else self.words.nouns for form in taking[:_MOST_OPEN]}
        return [form.replace("OBJ", word) for form, words in every.items() for word in words]

    def _taking(self, forms: Sequence[tuple[str, str]], named: Named, ask: Ask) -> list[str]:
        """The forms, given with a command that has a word which names nothing, of which the parser does not complain;
        one of those that are answered alike."""
        said = [cut_to_first_line(answer) for answer in ask([(command, named.absent) for _, command in forms])]
        times = Counter(said)
        taking: dict[str, str] = {}
        for (form, _), head in zip(forms, said, strict=True):
            if head not in named.refusals and times[head] < REFUSED_BY_VERBS and not self.words.is_refusal(head):
                taking.setdefault(head, form)
        return list(taking.values())

    def topic_commands(self, names: Sequence[str], named: Named, ask: Ask) -> list[str]:
        """Commands of forms with two objects of which one can be any word: a thing in which words are looked up, or a
        person who is asked, with every word of the dictionary."""
        if not named.absent or not names:
            return []
        # Whether the parser takes any word is asked with one name first: it complains of the word before all else.
        forms = [
            half
            for form in dict.fromkeys((*self.words.two_objects, *self.words.known(_CONSULT)))
            for half in _split_pair_form(form)
        ]
        tried = [(form, form.replace("OBJ", names[0]).replace("WORD", named.absent)) for form in forms]
        said = [cut_to_first_line(answer) for answer in ask([(command, named.absent) for _, command in tried])]
        topics = [
            form
            for (form, _), head in zip(tried, said, strict=True)
            if head not in named.refusals and not self.words.is_refusal(head)
        ]
        each = [(f, f.replace("WORD", named.absent)) for form in topics for f in _fill_each(form, names)]
        taking = self._taking(each, named, ask)
        return [form.replace("WORD", word) for form in taking[:_MOST_TOPICS] for word in self.words.nouns]

    def spoken_verbs(self, names: Sequence[str], ask: Ask) -> list[str]:
        """Words that are no verbs of the grammar and yet stand before a name like one, as some stories take spells,
        with every name."""
        if not names:
            return []
        words = self.words.no_verbs
        said = [cut_to_first_line(answer) for answer in ask([(f"{word} {names[0]}", word) for word in words])]
        times = Counter(said)
        taken = [
            word
            for word, head in zip(words, said, strict=True)
            if times[head] < _SPELLS and head and not self.words.is_refusal(head)
        ]
        return [f"{word} {name}" for word in taken for name in names]

    def push_commands(self, names: Sequence[str]) -> list[str]:
        """Every name pushed to every side, where the grammar has a form for that."""
        if _PUSH_ASIDE not in self.words.two_objects:
            return []
        return [_PUSH_ASIDE.replace("OBJ", name, 1).replace("OBJ", side) for name in names for side in SIDES]

    def self_commands(self, names: Sequence[str]) -> list[str]:
        """Templates in which something is put on the player: with other forms he would mostly kill himself."""
        forms = [form.split("OBJ", 2) for form in self.words.two_objects if form.split()[-2] in _UPON]
        return [f"{a}{name}{b}{ONESELF}{c}" for a, b, c in forms for name in names]

    def pairs(self, new: Sequence[str], names: Sequence[str]) -> Iterator[str]:
        """Every template for two objects with a newly found name in one place and any name in the other."""
        both = list(dict.fromkeys((*names, *new)))
        for form in self.words.two_objects:
            before, between, after = form.split("OBJ", 2)
            for one in new:
                for other in both:
                    if one != other:
                        yield f"{before}{one}{between}{other}{after}"
                        if other not in new:
                            yield f"{before}{other}{between}{one}{after}"

    def free_commands(self, forms: Sequence[str], text: str) -> list[str]:
        """Forms that take any word, with the words by which the place is called, or the first of the text if the story
        knows none of those: they come to mind first."""
        title, _, rest = text.strip().lower().partition("\n")
        words = self._usable(title)[:_MOST_FREE] or self._usable(rest)[:1]
        return list(dict.fromkeys(form.replace("OBJ", word) for form in forms for word in words))

    def _usable(self, text: str) -> list[str]:
        words = SPELLED.findall(text)
        return [w for w in words if self.words.dictionary.has_word(w) and w not in self.words.unwanted]


def _split_pair_form(form: str) -> list[str]:
    """A form for two objects with each of them in turn replaced by WORD, the other one by OBJ."""
    before, between, after = form.split("OBJ", 2)
    return [f"{before}WORD{between}OBJ{after}", f"{before}OBJ{between}WORD{after}"]


def _fill_each(form: str, names: Sequence[str]) -> list[str]:
    return [form.replace("OBJ", name) for name in names]
