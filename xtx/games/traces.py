"""Whose a byte of a story's memory is, by what commands do to it that leave the world alone: the parser's, which every
command changes in its own way, or a clock's, which every turn moves by the same amount."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from xtx.games.jericho import CANDIDATE_LIMIT, Emulator, Snapshot, Status
from xtx.games.zmachine import Ram, read_dictionary

_NOUNS = 2
"""What has more values than this after as many things were examined is the parser's."""
_VERBS = 2
"""So many verbs must have changed a byte in one state before it is taken for the parser's."""

NONSENSE = (
    "zqx", "zqx wvj", "zqxjkw " * 3, "zqxjkwvb " * 13, "wv " * 39, "wvzq " * 19, "q z x w v k j " * 6,
    "take zqxj", "examine zqxj", "put zqxj in wvkj", "take zqxj from wvkj with jkzq on zqww and kjqz",
    "zqx, zqx", "zqx, wvj and kqx then " * 5, "abc. " * 23, "wait. zqxjkw wvj zqxjk kjq",
    "look. " * 19, "look then " * 11,
    "examine me and me and me and me and me and me and me and me and me and me and me", "g",
    "oops", "oops zqxj", "take all but zqxj", "take all", "drop all", "examine all", "put all in all",
    "look then wait then inventory then look", "e" * 100, "look", "wait", "inventory", "examine me", "listen",
    "take me", "give me to me", "show me to me", "examine floor", "ask me about me",
)  # fmt: skip
"""Commands that change nothing in any game, long and odd enough to fill the parser's tables."""

PRONOUNS = frozenset(("it", "them", "him", "her", "that", "those", "this", "these", "again", "g"))
"""Words that mean what was named before. No candidate has one, so what they stand for is the parser's business."""

_INCOMPLETE = ("take", "put", "give", "unlock", "open", "examine", "ask")
"""Verbs that make the parser ask back, which uses tables of its own; each is followed by an answer."""


class Traces:
    """What was seen so far of one story."""

    def __init__(self, emulator: Emulator, avoid: Collection[str], chance: random.Random) -> None:
        """`avoid` are commands that are not to be tried; `chance` chooses those that are."""
        self.emulator = emulator
        self.avoid = avoid
        self.random = chance
        self.dictionary = read_dictionary(emulator.story.content, emulator.header)
        size = emulator.header.dynamic_size
        self.timed = np.zeros(size, dtype=np.int64)
        """By byte: in how many states time changed it, whatever the command."""
        self._verbs = np.zeros(size, dtype=np.int64)
        """By byte: the largest number of verbs that changed it, each in its own way, in one state."""
        self._steps: list[Counter[int]] = [Counter() for _ in range(size)]
        """By byte: by how much time changed it, and how often."""
        self._states = 0
        self._world = emulator.change.set_mask & emulator.change.clear_mask
        self._sights: list[str] = []
        """Words that were in sight when commands were last made up."""

    @property
    def parsers(self) -> npt.NDArray[np.bool_]:
        """The parser's bytes."""
        return self._verbs >= _VERBS

    @property
    def always_running(self) -> npt.NDArray[np.bool_]:
        """Bytes of clocks that always run."""
        return (self.timed > 0) & (self.timed * 2 >= self._states)

    @property
    def counting(self) -> npt.NDArray[np.bool_]:
        """Bytes that time changes, mostly by the same small step up or down."""
        return np.array([self._counts(steps) for steps in self._steps])

    @staticmethod
    def _counts(steps: Counter[int]) -> bool:
        if not steps:
            return False
        step, times = steps.most_common(1)[0]
        return (step <= 10 or step >= 246) and times * 2 >= steps.total()

    def take_for_the_parsers(self, bytes_: slice) -> None:
        """For bytes of which it is known already."""
        self._verbs[bytes_] = _VERBS

    def commands(self) -> list[str]:
        """Commands to try in the present state: nonsense, and every template with a few words that are in sight."""
        emulator = self.emulator
        state = emulator.save()
        seen = ""
        for command in ("look", "inventory"):
            emulator.step(command)
            seen += " " + emulator.narration.lower()
            emulator.restore(state)
        words = [w for w in dict.fromkeys(re.findall(r"[a-z][a-z'-]+", seen)) if self.dictionary.knows(w)]
        self._sights = [w for w in words if w not in PRONOUNS]
        words = [*self._sights, "all", "me"]
        commands = list(NONSENSE)
        for template in emulator.templates:
            for _ in range(4 if "OBJ" in template else 1):
                command = template
                while "OBJ" in command:
                    command = command.replace("OBJ", self.random.choice(words), 1)
                commands.append(command)
        return commands

    def look_for(self, state: Snapshot) -> None:
        """Notes what commands that leave the object tree alone do to the rest of memory."""
        emulator = self.emulator
        emulator.restore(state)
        before = np.frombuffer(state.ram, np.uint8)
        commands = self.commands()
        single = {(c,): self._after(state, (c,)) for c in commands}
        # The parser keeps the line before last too, and asks back with tables of its own: so pairs as well.
        pairs = [(c, "look") for c in commands[:: len(commands) // 60 + 1] + list(NONSENSE)]
        pairs += [(v, answer) for v in _INCOMPLETE for answer in NONSENSE[2:5]]
        double = {pair: self._after(state, pair) for pair in pairs}
        emulator.restore(state)
        moves = emulator.moves
        turns = np.array([ram for ram, moved in filter(None, single.values()) if moved == moves + 1])
        pauses = np.array([ram for ram, moved in filter(None, single.values()) if moved == moves])
        time = np.zeros(before.size, dtype=bool)
        if len(turns) > 5:
            # Not the parser but time: nearly all commands that take a turn do the same to it, and others nothing.
            usual = np.sort(turns, axis=0)[len(turns) // 2]
            time = (usual != before) & ((turns == usual).mean(axis=0) > 0.8)
            if len(pauses):
                time &= (pauses == before).mean(axis=0) > 0.9
            self.timed += time
            for address in np.flatnonzero(time):
                self._steps[address][(int(usual[address]) - int(before[address])) & 0xFF] += 1
        by_verb: dict[str, npt.NDArray[np.bool_]] = {}
        for sequence, result in (single | double).items():
            if result is None:
                continue
            changed = (result[0] != before) & ~time
            verb = sequence[0][:4] if len(sequence) == 1 else sequence[0][:9]
            by_verb[verb] = by_verb[verb] | changed if verb in by_verb else changed
        self._verbs = np.maximum(self._verbs, np.sum(list(by_verb.values()), axis=0))
        for sequence, result in single.items():
            # Nonsense changes nothing but the parser's things: once is enough.
            if result is not None and sequence[0] in NONSENSE:
                self._verbs[(result[0] != before) & ~time] = _VERBS
        looked_at = [result[0] for c in self._sights if (result := self._after(state, (f"examine {c}",))) is not None]
        if looked_at:
            # What takes on another value for each thing that is named is the parser's too.
            values = np.sort(np.array(looked_at), axis=0)
            self._verbs[(np.diff(values, axis=0) != 0).sum(axis=0) >= _NOUNS] = _VERBS
        self._states += 1

    def _after(self, state: Snapshot, sequence: tuple[str, ...]) -> tuple[Ram, int] | None:
        """RAM and number of moves after the commands; None if the object tree or the score changed."""
        emulator = self.emulator
        emulator.restore(state)
        for command in sequence:
            if command in self.avoid or emulator.step(command, CANDIDATE_LIMIT) is not Status.DONE or emulator.over:
                return None
        ram = emulator.ram.copy()
        difference = self._still(ram) ^ self._still(np.frombuffer(state.ram, np.uint8))
        if (difference & self._world).any():
            return None
        return ram, emulator.moves

    def _still(self, ram: Ram) -> Ram:
        """A memory without the objects that move by themselves."""
        wanderers = self.emulator.change.wanderers
        if not len(wanderers):
            return ram
        ram, tree = ram.copy(), self.emulator.tree
        links = tree.links(ram)
        for wanderer in wanderers:
            tree.unlink(ram, links, int(wanderer))
        return ram


def ticking(memory: npt.NDArray[np.uint8], run: int) -> npt.NDArray[np.bool_]:
    """Which bytes count turns, by the walk itself: they go up, or down, by one in several turns running, and seldom
    do anything else."""
    steps = np.diff(memory, axis=0).view(np.int8)  # from 0 down to 255 is a step of one too
    changes = (steps != 0).sum(axis=0)
    ticking = np.zeros(memory.shape[1], dtype=bool)
    for step in (1, -1):
        hit = steps == step
        running = np.lib.stride_tricks.sliding_window_view(hit, run, axis=0).all(axis=-1) if len(hit) >= run else hit
        ticking |= (hit.sum(axis=0) * 3 >= changes * 2) & running.any(axis=0) & (changes > 0)
    return ticking


def score_copies(memory: npt.NDArray[np.uint8], scores: npt.NDArray[np.int64]) -> list[int]:
    """Addresses of bytes that hold the score's low byte: copies that the story keeps for its messages."""
    if len(set(scores.tolist())) < 3:
        return []
    low = (scores & 0xFF).astype(np.uint8)[:, None]
    same = (memory == low) | (memory == np.concatenate([low[:1], low[:-1]]))  # some copies lag a turn behind
    changing = (memory != memory[0]).any(axis=0)
    return [int(a) for a in np.flatnonzero(same.all(axis=0) & changing)]
