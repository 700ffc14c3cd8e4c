"""Candidates: the templates of a grammar filled with the names of things, and what of their effects is nonsense."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from xtx.games.zset.command_list import Commands
from xtx.games.zset.engine import library

EffectNumbers = npt.NDArray[np.uint64]

SIDES = ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest")
"""Where things can be pushed: what the second hole of `push OBJ OBJ` is for."""

_PLAIN, _NAME, _NAME_OR_ME, _TWO_NAMES, _NAME_AND_SIDE = range(5)
"""What a template is filled with, in template_fill.c's terms."""

_OWN_VERB = 25
"""Verbs that players of all kinds of games have used less often than this are the story's own, spells above all. Only
those are tried on the player: the others would mostly kill him."""

_SLACK = 16
"""Bytes behind the candidates that template_fill.c may write to, as it copies whole words."""

_NONSENSE = 4
"""So many immovable things that all work in the same place of a command are a story's carelessness."""

_CARELESS = 7
"""The same for what a thing can be put on, or aimed at: a room may well have some such places."""


class Grammar:
    """The templates of a story, made ready to be filled."""

    def __init__(
        self,
        templates: Sequence[str],
        frequency: Callable[[str], int],
        walls: bool = False,
        before: Sequence[str] = (),
    ) -> None:
        """`frequency` says how usual a command's verb is; with `walls` those of a room can be pushed and entered.
        `before` are commands that candidates are likely to be put behind."""
        self.before = tuple(before)
        # `look` and `wait` do nothing themselves, but what they wait for may change the world.
        wall = [f"{verb} {side} wall" for verb in ("push", "enter") for side in SIDES[:4]] if walls else []
        self.templates = tuple(dict.fromkeys((*templates, "look", "wait", *wall)))
        usual = [frequency(template) for template in self.templates]
        kinds = [_kind(template, often) for template, often in zip(self.templates, usual, strict=True)]
        parts = [[part.encode() for part in (*template.split("OBJ", 2), "", "")[:3]] for template in self.templates]
        self.frequency = np.array(usual, dtype=np.int64)
        self.kinds = np.array(kinds, dtype=np.uint8)
        self._parts = b"".join(part + b"\0" for three in parts for part in three)
        self._lengths = np.array([sum(map(len, three)) + 1 for three in parts])
        self.pairs = np.flatnonzero(self.kinds == _TWO_NAMES)
        """The templates for two names."""
        self.moving = [self.templates.index(form) for form in ("take OBJ", "drop OBJ") if form in self.templates]
        """Those that show what can be carried."""

    def fill(self, names: Sequence[str]) -> Candidates:
        """Every template filled with every name, in the templates' order, each command once."""
        names = tuple(dict.fromkeys((*names, "all")))
        n, letters = len(names), sum(len(name.encode()) for name in names)
        s, side_letters = len(SIDES), sum(map(len, SIDES))
        # For each kind: how many commands a template gives, and how many letters are filled in.
        counts = np.array([1, n, n + 1, n * (n - 1), n * s])
        filled = np.array([0, letters, letters + 2, 2 * (n - 1) * letters, s * letters + n * side_letters])
        most = int(counts[self.kinds].sum())
        ahead = _joined(self.before)
        first = len(self.before)
        room = len(ahead) + int((counts[self.kinds] * self._lengths + filled[self.kinds]).sum())
        text = np.empty(room + _SLACK, dtype=np.uint8)
        text[: len(ahead)] = np.frombuffer(ahead, np.uint8)
        starts = np.empty(first + most + 1, dtype=np.uint32)
        starts[: first + 1] = np.cumsum([0, *(len(command.encode()) + 1 for command in self.before)])
        forms = np.empty(first + most, dtype=np.uint16)
        forms[:first] = len(self.templates) + np.arange(first)
        words = np.empty(most, dtype=np.uint8)
        lines = np.full((len(self.templates), n), -1, dtype=np.int32)
        squares = np.empty((len(self.pairs), n, n), dtype=np.int32)
        count = library().zset_fill(
            self._parts, self.kinds.ctypes.data, len(self.templates), _joined(names), n, _joined(SIDES), s, most,
            text.ctypes.data, *(a.ctypes.data for a in (starts[first:], forms[first:], words, lines, squares)),
        )  # fmt: skip
        if count < 0:
            raise MemoryError("no memory for the candidates")
        all_of_them = Commands(text, starts[: first + count + 1], forms[: first + count])
        return Candidates(all_of_them, self.before, self, names, words[:count], lines, squares)


def _kind(template: str, often: int) -> int:
    holes = template.count("OBJ")
    if holes < 2:
        return (_NAME_OR_ME if often < _OWN_VERB else _NAME) if holes else _PLAIN
    return _NAME_AND_SIDE if template == "push OBJ OBJ" else _TWO_NAMES


def _joined(words: Sequence[str]) -> bytes:
    return "".join(f"{word}\0" for word in words).encode()


class Candidates(Commands):
    """The commands that a filled grammar gives, and how they were made."""

    def __init__(
        self,
        commands: Commands,
        before: Sequence[str],
        grammar: Grammar,
        names: tuple[str, ...],
        words: npt.NDArray[np.uint8],
        lines: npt.NDArray[np.int32],
        squares: npt.NDArray[np.int32],
    ) -> None:
        """The groups of `commands` are the templates' numbers. It begins with those of `before`, which do not count."""
        assert commands.groups is not None
        first = len(before)
        super().__init__(commands.text, commands.starts[first:], commands.groups[first:])
        self._behind = tuple(before), commands
        self._grammar = grammar
        self.names = names
        self.forms = commands.groups[first:]
        """From which template each command was made."""
        self.words = words
        """How many words it has."""
        self._lines = lines
        """For each template: the command with each name, -1 for none."""
        self._squares = squares
        """For each template for two names: the command with each pair of them, -1 for none."""

    def frequency(self, which: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """How usual the verbs of some commands are."""
        return self._grammar.frequency[self.forms[which]]

    def count_kinds(self, effect: EffectNumbers, template: str) -> int:
        """How many different effects a template for one object has."""
        if template not in self._grammar.templates:
            return 0
        places = self._lines[self._grammar.templates.index(template)]
        return len(set(effect[places[places >= 0]].tolist()) - {0})

    def without(self, excluded: Collection[str]) -> Candidates:
        """The candidates but for those."""
        kept = np.array([command not in excluded for command in self])
        left = np.flatnonzero(kept)
        number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)  # the last for -1 itself
        return Candidates(
            self.chosen(left), (), self._grammar, self.names, self.words[left], number[self._lines],
            number[self._squares],
        )  # fmt: skip

    def behind(self, first: Sequence[str]) -> Commands:
        """These commands with others before them."""
        before, commands = self._behind
        return commands if tuple(first) == before else super().behind(first)

    def without_nonsense(self, effect: EffectNumbers, told: Collection[str] = ()) -> EffectNumbers:
        """The effects without repeated nonsense: a sloppy story lets one throw the castle, the gate, the road and
        every spell at the jug, and does something else each time. Where one form takes many things that can be
        neither taken nor dropped, one of them will do; and where those are what is thrown, it is no better with
        things that can be: one will do of all. `told` are names of things that only another thing's description
        speaks of."""
        names, squares = self.names, self._squares
        fixed = ~self._portable(effect)
        if np.count_nonzero(fixed) < _NONSENSE:
            return effect
        # What is left of an effect can only grow less: where there are too few now, nothing needs to be looked at.
        taken, aimed = np.zeros((2, *squares.shape[:2]), dtype=np.bool_)
        found = library().zset_suspects(
            effect.ctypes.data, squares.ctypes.data, *squares.shape[:2], fixed.ctypes.data, _NONSENSE, _CARELESS,
            taken.ctypes.data, aimed.ctypes.data,
        )  # fmt: skip
        if found < 0:
            raise MemoryError("no memory for the candidates")
        if not found:
            return effect
        effect = effect.copy()
        for t in np.flatnonzero(taken.any(axis=1) | aimed.any(axis=1)).tolist():
            for b in np.flatnonzero(taken[t]).tolist():
                at_work = {a: i for a, i in enumerate(squares[t, :, b].tolist()) if i >= 0 and effect[i]}
                if len({int(effect[i]) for a, i in at_work.items() if fixed[a]}) >= _NONSENSE:
                    best = min(at_work, key=lambda a: (fixed[a], names[a] == "all"))
                    effect[[i for a, i in at_work.items() if a != best]] = 0
            for a in np.flatnonzero(aimed[t]).tolist():
                at_work = {b: i for b, i in enumerate(squares[t, a].tolist()) if i >= 0 and effect[i] and fixed[b]}
                # What is in sight is not crowded out by what is only told of.
                for unseen in (False, True):
                    alike = [i for b, i in at_work.items() if (names[b] in told) == unseen]
                    if len(set(effect[alike].tolist())) >= _CARELESS:
                        effect[alike[1:]] = 0
        return effect

    def free_forms(self, effect: EffectNumbers) -> list[str]:
        """Templates for two names, with the second filled in, that do something else with each of many first names:
        there any word will do. `effect` is what `without_nonsense` is given."""
        squares, fixed = self._squares, ~self._portable(effect)
        taken, aimed = np.zeros((2, *squares.shape[:2]), dtype=np.bool_)
        library().zset_suspects(
            effect.ctypes.data, squares.ctypes.data, *squares.shape[:2], fixed.ctypes.data, _NONSENSE, _CARELESS,
            taken.ctypes.data, aimed.ctypes.data,
        )  # fmt: skip
        forms = [self._grammar.templates[self._grammar.pairs[t]].split("OBJ", 2) for t in range(len(squares))]
        return [
            f"{forms[t][0]}OBJ{forms[t][1]}{self.names[b]}{forms[t][2]}"
            for t, b in zip(*np.nonzero(taken), strict=True)
        ]

    def _portable(self, effect: EffectNumbers) -> npt.NDArray[np.bool_]:
        """Which of the names are of things that can be taken or dropped."""
        rows = self._lines[self._grammar.moving]
        known = np.append(effect, np.uint64(0))
        moved = [set(column) - {0} for column in zip(*(known[row].tolist() for row in rows), strict=True)]
        moved = moved or [set() for _ in self.names]
        # Where something happens whatever is done, "taking" the castle does that too.
        shared = Counter(e for effects in moved for e in effects)
        able = zip(self.names, moved, strict=True)
        return np.array([name == "all" or any(shared[e] < 3 for e in effects) for name, effects in able])
