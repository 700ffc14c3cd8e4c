"""The words of a story's dictionary and the forms of its grammar, as `--actions whole` needs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache

from xtx.games.zmachine.debug_verbs import find_debugging_words
from xtx.games.zmachine.story_memory import Dictionary
from xtx.games.zmachine.typed_input import find_interpreter_word

WORD_MARK = "\x01"
"""Stands for the word that was typed, in what the parser says of it."""
Ask = Callable[[Sequence[tuple[str, str]]], list[str]]
"""What the story says to commands, each given with a word of it that is replaced by `WORD_MARK` in the answer."""

SPELLED = re.compile(r"[a-z][a-z0-9'-]*")
ONESELF = "me"
QUANTITIES = frozenset(
    ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
     "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "intnum", "intdir", "number",
     "anything", "either", "something", "nothing", "anyone", "he", "she", "they", "one", "ones", "here", "there", "y"),
)  # fmt: skip
"""Words that parsers take for "so many of what is here", or for whatever is."""
SETTINGS = frozenset(
    ("pronouns", "nouns", "notify", "verbose", "brief", "superbrief", "super", "normal", "long", "short", "score",
     "fullscore", "full", "version", "script", "about", "help", "info", "hint", "hints", "credits", "release", "author",
     "authors", "places", "objects", "diagnose"),
)  # fmt: skip
"""Words that change how the program talks, or tell about the program."""
_REFUSED = re.compile(
    r"[Ww]hich .*(do you mean|one)|You used the word|can't use the word|sentence|noun missing|what you're referring to"
    r"|want to talk to someone|multiple direct objects|[Ww]hat do you want to|isn't something you need"
    r"|not something you need|^You can't see .* here"
)
"""What parsers say of commands that they cannot make out, beyond what the search knows."""
_EVERY_CONTROL = 8
"""Of the words that can name nothing, one in so many is asked as well."""


@lru_cache(maxsize=4096)  # most answers are alike
def cut_to_first_line(answer: str) -> str:
    """The beginning of an answer, without what happens afterwards: the first line, with an aside before it."""
    lines = [line for line in answer.strip().split("\n") if line.strip()]
    if len(lines) > 1 and lines[0].startswith("("):
        return f"{lines[0]}\n{lines[1]}"
    return lines[0] if lines else ""


class StoryWords:
    """Words and forms of one story, sorted by what they are good for."""

    def __init__(
        self,
        dictionary: Dictionary,
        templates: Sequence[str],
        names: Sequence[str],
        understood: Callable[[str], str],
        unwanted: Collection[str] = (),
    ) -> None:
        """`names` is what objects are called in print. `understood` gives nothing for an answer by which a parser
        complains. `unwanted` words name no thing: pronouns, articles, directions."""
        self.dictionary = dictionary
        self._understood = understood
        self.unwanted = frozenset(word[: dictionary.length] for word in unwanted) | {
            word[: dictionary.length] for word in QUANTITIES
        }
        self.one_object = tuple(t for t in templates if t.count("OBJ") == 1)
        self.two_objects = tuple(t for t in templates if t.count("OBJ") == 2)
        self.plain = tuple(t for t in templates if "OBJ" not in t)
        self._whole_words: dict[str, str] = {}
        for name in names:
            self._learn_words(name)

    def _learn_words(self, text: str) -> None:
        length = self.dictionary.length
        for word in SPELLED.findall(text.lower()):
            if len(word) > length and self.dictionary.has_word(word):
                self._whole_words.setdefault(word[:length], word)

    def known(self, forms: Iterable[str]) -> list[str]:
        """The forms of which the story knows the verb."""
        return [form for form in forms if self.dictionary.has_word(form.split()[0])]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Every word that can be typed and is not an order to the program, as long as the dictionary has it."""
        spelled = (w for w in self.dictionary.words if SPELLED.fullmatch(w))
        program = find_debugging_words(self.dictionary)
        return tuple(
            sorted(w for w in spelled if w not in program and not find_interpreter_word(w, self.dictionary.length))
        )

    @cached_property
    def single_words(self) -> tuple[str, ...]:
        """The words that may be commands by themselves: all but the verbs of the templates, which are tried as these
        have them."""
        return tuple(word for word in self.words if word not in self.verbs and word not in self.settings)

    @cached_property
    def settings(self) -> frozenset[str]:
        """Words that change how the program talks, or tell about the program."""
        return frozenset(word[: self.dictionary.length] for word in SETTINGS)

    def spell_out(self, command: str, text: str) -> str:
        """The command with whole words where the dictionary cuts them off and some text shows the rest."""
        length = self.dictionary.length
        if all(len(word) != length for word in command.split(" ")):
            return command
        here = {w[:length]: w for w in SPELLED.findall(text.lower()) if len(w) > length}
        full = self._whole_words | here
        return " ".join(full.get(word, word) for word in command.split(" "))

    @cached_property
    def verbs(self) -> frozenset[str]:
        """The first words of all templates, as the dictionary has them."""
        length = self.dictionary.length
        return frozenset(
            template.split()[0][:length] for template in (*self.plain, *self.one_object, *self.two_objects)
        )

    @cached_property
    def no_verbs(self) -> tuple[str, ...]:
        """The nouns that are no verbs of the grammar."""
        return tuple(word for word in self.nouns if word not in self.verbs)

    @cached_property
    def nouns(self) -> tuple[str, ...]:
        """Every word that can name a thing."""
        nouns = self.dictionary.nouns
        return tuple(word for word in self.words if word in nouns and word not in self.unwanted)

    @cached_property
    def controls(self) -> tuple[str, ...]:
        """Some words that can name nothing: what is said of them is said of no thing."""
        nouns = self.dictionary.nouns
        return tuple(word for word in self.words if word not in nouns)[::_EVERY_CONTROL]

    def is_refusal(self, head: str) -> bool:
        """Whether the beginning of an answer says that the command was not understood, or refuses it."""
        text = head.replace(WORD_MARK, "thing")
        return not self._understood(text) or bool(_REFUSED.search(text))
