"""Which words of a dictionary name something in a state, by what the parser says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xtx.games.actions.story_words import ONESELF, SPELLED, WORD_MARK, Ask, StoryWords, cut_to_first_line

_PROBES = ("examine", "touch", "take")
"""Verbs by which words are asked whether they name something. `examine` says the most. In the dark it says nothing, and
then the next one that the story knows is asked too."""
_MOST_UNCLEAR = 100
"""Words, at most, that are asked for with a second verb because the answer to the first leaves open whether they name
something."""
_REFUSED_BY = 3
"""An answer that so many persons, or words taken for persons, give to an order is a refusal."""
REFUSED_BY_VERBS = 8
"""An answer that so many templates give to a word that names nothing is a refusal. Fewer mean the same: `look up WORD`,
`find WORD`, `read about WORD`."""


@dataclass(frozen=True)
class Present:
    """What is known of a state before the whole dictionary is tried."""

    names: tuple[str, ...]
    """Names of the things in sight, one each."""
    aliases: frozenset[str]
    """All words that name one of them."""
    text: str
    """What can be read here: `look`, `inventory` and descriptions."""
    around: str
    """The names of the objects that are here by the object tree, whether or not they can be seen."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """Words of `aliases` that name another thing than the one of `names` beside them, although it looks the same."""
    free_forms: tuple[str, ...] = ()
    """Templates for two objects with the second filled in, of which the first can be any word."""

    @cached_property
    def open_forms(self) -> tuple[str, ...]:
        """The same with what is true of things that look the same."""
        twins = [
            (form, twin) for form in self.free_forms for twin, name in self.twins.items() if form.endswith(f" {name}")
        ]
        return (*self.free_forms, *(f"{form.rsplit(' ', 1)[0]} {twin}" for form, twin in twins))


@dataclass
class Named:
    """What the dictionary names in a state beyond the things in sight."""

    names: list[str] = field(default_factory=list)
    """One word for each thing, the most likely first."""
    likely: list[str] = field(default_factory=list)
    """Those of them of which the text or the object tree speaks."""
    absent: str = ""
    """A word that could name something and names nothing here; empty if there is none."""
    refusals: frozenset[str] = frozenset()
    """How answers begin by which the parser says that a word names nothing here."""


class NameFinder:
    """Finds names in the states of one story."""

    def __init__(self, words: StoryWords, owners: Mapping[str, frozenset[int]], names: Sequence[str]) -> None:
        """`owners` says which objects have a word among their names, `names` is what they are called in print, by
        their numbers."""
        self._words = words
        self._owners = owners
        self._names = names

    def find(self, present: Present, ask: Ask) -> Named:
        """Which words name something here that is not among the things in sight, by what the parser says of them."""
        if not self._questions:  # the story knows none of the verbs
            return Named(list(present.twins), list(present.twins))
        heads: list[list[str]] = []
        refusals: set[str] = {""}
        for questions in self._questions:
            said = list(map(cut_to_first_line, ask(questions)))
            refusals |= self._refusals(said)
            heads.append(said)
            if self._words.is_refusal(Counter(said).most_common(1)[0][0]):
                break  # the parser says itself that there is no such thing: it is not dark
        named: dict[str, tuple[str, ...]] = {}
        for word, *said in zip(self._words.nouns, *(said[: len(self._words.nouns)] for said in heads), strict=True):
            if not refusals.issuperset(said):
                # As it was printed: words for the same thing are answered the same.
                named[word] = tuple(head.replace(WORD_MARK, word) for head in said)
        for word, answer in self._find_unseen_names(heads[0], refusals, ask).items():
            named.setdefault(word, (answer.replace(WORD_MARK, word),) * len(heads))
        oneself = tuple(said[-1].replace(WORD_MARK, ONESELF) for said in heads)
        own = self._owners.get(ONESELF, frozenset())
        length = self._words.dictionary.length
        sighted = {part[:length] for alias in present.aliases for part in alias.split()}
        texts = {w[:length] for w in SPELLED.findall(f"{present.text}\n{present.around}".lower())}
        # Where several things in sight look the same, a word of the text may name one more.
        looks = Counter(named[name[:length]] for name in present.names if name[:length] in named)
        others = texts - sighted
        unsighted = (
            g if sighted.isdisjoint(g) else [w for w in g if w in others and looks[named[w]] > 1]
            for g in self.group(named)
        )
        groups = [
            (self.choose_best(group, texts), not texts.isdisjoint(group))
            for group in unsighted
            if group and not (named[group[0]] == oneself and own.issuperset(self._owners.get(group[0], frozenset())))
        ]
        groups.sort(key=lambda one: (not one[1], one[0]))
        absent = next((word for word in self._words.nouns if word not in named), "")
        likely = [*present.twins, *(name for name, is_told in groups if is_told)]
        return Named([*present.twins, *(name for name, _ in groups)], likely, absent, frozenset(refusals))

    def _find_unseen_names(self, said: Sequence[str], refusals: Collection[str], ask: Ask) -> dict[str, str]:
        """Words for which the first verb gets another refusal than most, and the next verb an answer: things that
        cannot be seen well."""
        usual = Counter(said).most_common(1)[0][0]
        asked = zip(self._words.nouns, said, strict=False)
        unclear = [word for word, head in asked if head and head != usual and head in refusals]
        verbs = self._words.known(_PROBES)[1:2]
        if not verbs or len(unclear) > _MOST_UNCLEAR:
            return {}
        heads = [cut_to_first_line(answer) for answer in ask([(f"{verbs[0]} {word}", word) for word in unclear])]
        times = Counter(heads)
        return {
            word: head
            for word, head in zip(unclear, heads, strict=True)
            if head not in refusals and not self._words.is_refusal(head) and times[head] < REFUSED_BY_VERBS
        }

    def group(self, named: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
        """The words that name the same thing, together: those that are answered alike, unless they belong to different
        objects. In the dark everything is answered alike."""
        groups: dict[tuple[str, ...], list[tuple[set[int], list[str]]]] = {}
        for word in sorted(named, key=lambda w: (not self._owners.get(w), w)):
            owners, alike = self._owners.get(word, frozenset()), groups.setdefault(named[word], [])
            for objects, words in alike:
                if not owners or not objects.isdisjoint(owners):
                    objects |= owners
                    words.append(word)
                    break
            else:
                alike.append((set(owners), [word]))
        return [words for alike in groups.values() for _, words in alike]

    @cached_property
    def _questions(self) -> list[list[tuple[str, str]]]:
        """For each verb that tells whether a word names something: the command for every noun, for some other words,
        and for the player."""
        words = (*self._words.nouns, *self._words.controls, ONESELF)
        return [[(f"{verb} {word}", word) for word in words] for verb in self._words.known(_PROBES)[:2]]

    def _refusals(self, said: Sequence[str]) -> set[str]:
        """How the parser says that a word names nothing here, or cannot stand there: what it says of most nouns, what
        it says of words that are no nouns, and what parsers usually say."""
        of_nouns, of_others = Counter(said[: len(self._words.nouns)]), Counter(said[len(self._words.nouns) : -1])
        found = {head for head, _ in of_nouns.most_common(1)}
        for head in {*of_nouns, *of_others}:
            if of_others[head] > 1 or self._words.is_refusal(head):
                found.add(head)
        return found

    def choose_best(self, words: Sequence[str], texts: Collection[str]) -> str:
        """The word of several that names a thing most naturally: one that the text has, or with which its name ends."""
        owners = self._owners.get(words[0], frozenset())
        length = self._words.dictionary.length
        last = {name.lower().split()[-1][:length] for name in (self._names[o] for o in sorted(owners)) if name.strip()}
        return min(words, key=lambda w: (w not in texts, w not in last, len(w), w))

    def find_own(self, names: Sequence[str], named: Named, ask: Ask) -> list[str]:
        """Names before which `my` makes a difference: my name is another one than the name in general."""
        verbs = self._words.known(_PROBES[1:2])
        if not verbs or not self._words.dictionary.has_word("my"):
            return []
        own = [f"my {name}" for name in names if " " not in name]
        said = list(map(cut_to_first_line, ask([(f"{verbs[0]} {name}", name[3:]) for name in own])))
        usual = map(cut_to_first_line, ask([(f"{verbs[0]} {name[3:]}", name[3:]) for name in own]))
        times = Counter(said)
        return [
            name
            for name, head, without in zip(own, said, usual, strict=True)
            if head not in (without, *named.refusals) and not self._words.is_refusal(head) and times[head] < _REFUSED_BY
        ]
