"""Valid actions: which commands change the world, found by trying them.

Candidate objects -> templates of the game's grammar -> each candidate tried from the canonical state -> one
action for each distinct change. Everything starts from a canonical state and fixed random numbers (world.py),
so that the result is a function of the state's key and can be stored for ever.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from xtx.games.jericho import Emulator, Snapshot, Status, Verdict, recognized, verb_frequency
from xtx.games.narration import clean
from xtx.games.zmachine import read_dictionary

SEARCH_VERSION = 1
"""Changes whenever the same state may give other actions: part of every key in the atlas."""

RANDOM_STATES = ((1_000_003, 0, 0), (7_654_321, 0, 0), (31_415_927, 0, 0))
"""Random numbers to come, in libfrotz's terms. A candidate that uses any is tried under each: the blow that misses
the troll under one of them hits under another."""

FALLBACK_ACTIONS = ("wait", "yes", "no")
"""Offered where no valid action is found."""

_WORD = re.compile(r"[a-z0-9][a-z0-9'-]*")

# Words that many parsers answer to without naming a thing that can be handled.
_NOT_OBJECTS = frozenset(
    "a an and are as at be but by can do for from he her here him his i in into is it its me my no not of off on or "
    "out over she that the their them there they this to under up very was were what which with you your yourself "
    "all everything again wait look inventory examine north south east west northeast northwest southeast southwest "
    "n s e w ne nw se sw u d down one two then".split()
)


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


class Search:
    """The valid-action search of one emulator."""

    def __init__(self, emulator: Emulator, extra_actions: Sequence[str] = (), wide: bool = False) -> None:
        self._emulator = emulator
        self._extra = tuple(extra_actions)
        self._wide = wide
        self._dictionary = read_dictionary(emulator.story.content, emulator.header)
        self._frequency: dict[str, int] = {}

    @property
    def variant(self) -> str:
        """What beside the state decides the result: part of every key in the atlas."""
        extra = "\0".join(self._extra)
        return f"{SEARCH_VERSION};{'wide' if self._wide else ''};{extra}"

    def findings(self, state: Snapshot, excluded: Collection[str] = ()) -> Findings:
        """Look, inventory and valid actions in a canonical state; `excluded` commands are not tried.

        The emulator is left in some other state."""
        look, inventory = self._answer(state, "look"), self._answer(state, "inventory")
        if not self._emulator.wants_line_in(state):
            return Findings(look, inventory, FALLBACK_ACTIONS)
        things = self.things(state, look, inventory)
        candidates = [c for c in self.candidates(things, look + "\n" + inventory) if c not in excluded]
        return Findings(look, inventory, self.valid(state, candidates) or FALLBACK_ACTIONS)

    def _answer(self, state: Snapshot, command: str) -> str:
        self._emulator.restore(state)
        status = self._emulator.step(command)
        return clean(self._emulator.narration) if status is Status.DONE else ""

    # --- candidates ---------------------------------------------------------------------------------------------

    def things(self, state: Snapshot, look: str, inventory: str) -> list[Thing]:
        """What can be named here: words that the game can examine, merged where it answers the same."""
        words: dict[str, int] = {}
        for name in self._names_around(state):
            parts = _WORD.findall(name.lower())
            for i, word in enumerate(parts):
                # The last word of an object's name is its noun; those before it are adjectives.
                words[word] = max(words.get(word, 0), 3 if i == len(parts) - 1 else 1)
        for word in _WORD.findall(f"{look} {inventory}".lower()):
            words.setdefault(word, 2)
        answers: dict[str, list[tuple[int, int, str]]] = {}
        for word, rank in sorted(words.items()):
            if word in _NOT_OBJECTS or not self._dictionary.knows(word):
                continue
            answer = self._answer(state, f"examine {word}")
            if recognized(answer):
                answers.setdefault(answer, []).append((-rank, len(word), word))
        things = []
        for names in answers.values():
            ordered = [word for _, _, word in sorted(names)]
            things.append(Thing(ordered[0], tuple(ordered)))
        return sorted(things, key=lambda t: t.name)

    def _names_around(self, state: Snapshot) -> Iterable[str]:
        """Names of the objects in the player's room and on the player."""
        emulator = self._emulator
        tree = emulator.tree
        links = tree.links(np.frombuffer(state.ram, np.uint8))
        player = emulator.player
        if not 0 < player <= tree.count:
            return ()
        room = int(links[player, 0]) or player
        return [tree.names[o] for o in tree.below(links, room) if o != player]

    def candidates(self, things: Sequence[Thing], text: str) -> list[str]:
        """Every template filled with every name, in the templates' order, then the extra actions."""
        names = [t.name for t in things] + ["all"]
        out: list[str] = []
        for template in self._emulator.templates:
            holes = template.count("OBJ")
            if holes == 0:
                out.append(template)
            elif holes == 1:
                out += [template.replace("OBJ", name) for name in names]
            else:
                head, middle, tail = template.split("OBJ", 2)
                out += [f"{head}{a}{middle}{b}{tail}" for a in names for b in names if a != b]
        out += self._extra
        return list(dict.fromkeys(out))

    # --- verdicts -----------------------------------------------------------------------------------------------

    def valid(self, state: Snapshot, candidates: Sequence[str]) -> tuple[str, ...]:
        """One command for each distinct change of the world that some candidate brings about."""
        emulator = self._emulator
        emulator.restore(state)
        verdicts = emulator.filter(candidates)
        effect = self._effects(verdicts.flags, verdicts.diffs)
        stopped = (verdicts.flags & Verdict.STOPPED) > 0
        chancy = np.flatnonzero((verdicts.flags & Verdict.RANDOM) > 0)
        if len(chancy):
            for rng in RANDOM_STATES[1:]:
                emulator.restore(msgspec.structs.replace(state, rng=rng))
                again = emulator.filter([candidates[i] for i in chancy])
                other = self._effects(again.flags, again.diffs)
                stopped[chancy] |= (again.flags & Verdict.STOPPED) > 0
                # A combination that is 0 only if all effects are 0.
                effect[chancy] = effect[chancy] * np.uint64(0x9E3779B97F4A7C15) + other
        indices = np.flatnonzero((effect != 0) & ~stopped)
        if not len(indices):
            return ()
        frequency = np.array([self._verb_frequency(candidates[i]) for i in indices])
        length = np.array([len(candidates[i].split()) for i in indices])
        order = np.lexsort((indices, -frequency, length, effect[indices]))
        chosen = indices[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = effect[chosen][1:] != effect[chosen][:-1]
        return tuple(candidates[i] for i in np.sort(chosen[first]))

    @staticmethod
    def _effects(flags: np.ndarray, diffs: np.ndarray) -> np.ndarray:
        counts = ((flags & Verdict.CHANGED) > 0) & ((flags & Verdict.TAKEN) == 0)
        return np.where(counts, diffs, np.uint64(0))

    def _verb_frequency(self, command: str) -> int:
        verb = command.split(maxsplit=1)[0] if command.strip() else ""
        if verb not in self._frequency:
            self._frequency[verb] = verb_frequency(verb, self._dictionary.length)
        return self._frequency[verb]
