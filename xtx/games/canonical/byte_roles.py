"""What a byte of a story's memory is for, by what commands that leave the world alone do to it: the parser's, which
every command changes in its own way, or a clock's, which every turn moves by the same amount."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from xtx.games.canonical.command_trials import Trials
from xtx.games.canonical.survey_budget import FROTZ_WEIGHT
from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Snapshot, Status, Verdict
from xtx.games.zmachine.story_memory import Ram, read_dictionary
from xtx.games.zset.engine import UNJUDGED

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

PAIRS = 240
"""Commands in Frotz that it takes to try pairs of commands in a state, about."""


class Traces:
    """What was seen so far of one story."""

    def __init__(self, trials: Trials, chance: random.Random) -> None:
        """`chance` chooses the commands that are tried."""
        self.emulator = trials.emulator
        self.trials = trials
        self.avoid = trials.avoid
        self.random = chance
        self.dictionary = read_dictionary(self.emulator.story.content, self.emulator.header)
        size = self.emulator.header.dynamic_size
        self.timed = np.zeros(size, dtype=np.int64)
        """By byte: in how many states time changed it, whatever the command."""
        self._verbs = np.zeros(size, dtype=np.int64)
        """By byte: the largest number of verbs that changed it, each in its own way, in one state."""
        self._steps: dict[int, Counter[int]] = {}
        """By byte: by how much time changed it, and how often."""
        self._states = 0
        self._world = self.emulator.world_memory.change.set_mask & self.emulator.world_memory.change.clear_mask
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
        counting = np.zeros(len(self.timed), dtype=bool)
        counting[[address for address, steps in self._steps.items() if self._is_counter(steps)]] = True
        return counting

    @staticmethod
    def _is_counter(steps: Counter[int]) -> bool:
        step, times = steps.most_common(1)[0]
        return (step <= 10 or step >= 246) and times * 2 >= steps.total()

    def mark_parser_bytes(self, bytes_: slice) -> None:
        """For bytes of which it is known already."""
        self._verbs[bytes_] = _VERBS

    def list_commands(self, state: Snapshot) -> list[str]:
        """Commands to try in a state: nonsense, and every template with a few words that are in sight."""
        seen = " ".join(self.trials.read_responses(state, ("look", "inventory"))).lower()
        words = [w for w in dict.fromkeys(re.findall(r"[a-z][a-z'-]+", seen)) if self.dictionary.has_word(w)]
        self._sights = [w for w in words if w not in PRONOUNS]
        words = [*self._sights, "all", "me"]
        commands = list(NONSENSE)
        for template in self.emulator.bindings.templates:
            for _ in range(4 if "OBJ" in template else 1):
                command = template
                while "OBJ" in command:
                    command = command.replace("OBJ", self.random.choice(words), 1)
                commands.append(command)
        return commands

    def record_changes(self, state: Snapshot, with_pairs: bool) -> None:
        """Notes what commands that leave the object tree alone do to the rest of memory; `with_pairs`: also what some
        commands do together with the one that follows."""
        before = np.frombuffer(state.ram, np.uint8)
        commands = [c for c in dict.fromkeys(self.list_commands(state)) if c not in self.avoid]
        examining = [c for s in self._sights if (c := f"examine {s}") not in self.avoid]
        flags, memory = self.trials.run_commands(state, [*commands, *examining])
        harmless = (flags & (UNJUDGED | Verdict.CHANGED)) == 0
        # Most of memory stays as it is: only what some command changes is looked at.
        touched = np.flatnonzero((memory != before).any(axis=0))
        after, first = memory[:, touched], before[touched]
        singles = np.flatnonzero(harmless[: len(commands)])
        moved = np.array([self._count_moves(memory[i]) for i in singles], dtype=np.int64) - self._count_moves(before)
        time = self._note_time(after[singles], moved, touched, before)
        changed = (after != first) & ~time[touched]
        by_verb: dict[str, npt.NDArray[np.bool_]] = {}
        for i in singles.tolist():
            verb = commands[i][:4]
            by_verb[verb] = by_verb[verb] | changed[i] if verb in by_verb else changed[i]
            if commands[i] in NONSENSE:
                # Nonsense changes nothing but the parser's things: once is enough.
                self._verbs[touched[changed[i]]] = _VERBS
        verbs = np.zeros(before.size, dtype=np.int64)
        if by_verb:
            verbs[touched] = np.sum(list(by_verb.values()), axis=0)
        if with_pairs:
            verbs += self._find_changed_by_pairs(state, commands, time)
        self._verbs = np.maximum(self._verbs, verbs)
        looked_at = after[len(commands) :][harmless[len(commands) :]]
        if len(looked_at):
            # What takes on another value for each thing that is named is the parser's too.
            values = np.sort(looked_at, axis=0)
            self._verbs[touched[(np.diff(values, axis=0) != 0).sum(axis=0) >= _NOUNS]] = _VERBS
        self._states += 1

    def _note_time(
        self,
        after: npt.NDArray[np.uint8],
        moved: npt.NDArray[np.int64],
        touched: npt.NDArray[np.intp],
        before: Ram,
    ) -> npt.NDArray[np.bool_]:
        """The bytes that time changes in a state and not the parser: nearly all commands that take a turn do the same
        to them, and others nothing. `after`: the touched bytes after each command; `moved`: the turns it took."""
        time = np.zeros(before.size, dtype=bool)
        turns, pauses = after[moved == 1], after[moved == 0]
        if len(turns) > 5:
            usual = np.sort(turns, axis=0)[len(turns) // 2]
            first = before[touched]
            alike = (usual != first) & ((turns == usual).mean(axis=0) > 0.8)
            if len(pauses):
                alike &= (pauses == first).mean(axis=0) > 0.9
            time[touched] = alike
            self.timed += time
            for address, value in zip(touched[alike].tolist(), usual[alike].tolist(), strict=True):
                self._steps.setdefault(address, Counter())[(value - int(before[address])) & 0xFF] += 1
        return time

    def _count_moves(self, ram: Ram) -> int:
        """The number of moves in a memory, as far as its bytes are known."""
        return int.from_bytes(bytes(ram[list(self.emulator.world_memory.moves_addresses)]), "big")

    def _find_changed_by_pairs(
        self, state: Snapshot, commands: Sequence[str], time: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """By byte: how many pairs of commands changed it. The parser keeps the line before last too, and asks back with
        tables of its own. Tried in Frotz, as the state is one that the story came to."""
        pairs = [(c, "look") for c in (*commands[:: len(commands) // 60 + 1], *NONSENSE)]
        pairs += [(v, answer) for v in _INCOMPLETE for answer in NONSENSE[2:5]]
        before = np.frombuffer(state.ram, np.uint8)
        by_verb: dict[str, npt.NDArray[np.bool_]] = {}
        for pair in pairs:
            ram = self._run_to_memory(state, pair)
            if ram is not None:
                changed = (ram != before) & ~time
                verb = pair[0][:9]
                by_verb[verb] = by_verb[verb] | changed if verb in by_verb else changed
        return np.sum(list(by_verb.values()), axis=0) if by_verb else np.zeros(before.size, dtype=np.int64)

    def _run_to_memory(self, state: Snapshot, sequence: tuple[str, ...]) -> Ram | None:
        """RAM after the commands; None if the object tree changed, or the game ended."""
        emulator = self.emulator
        emulator.restore(state)
        for command in sequence:
            if command in self.avoid:
                return None
            status = emulator.step(command, CANDIDATE_LIMIT)
            self.trials.budget.spend(FROTZ_WEIGHT * emulator.instructions)
            if status is not Status.DONE or emulator.over:
                return None
        ram = emulator.ram.copy()
        difference = self._remove_wanderers(ram) ^ self._remove_wanderers(np.frombuffer(state.ram, np.uint8))
        return None if (difference & self._world).any() else ram

    def _remove_wanderers(self, ram: Ram) -> Ram:
        """A memory without the objects that move by themselves."""
        wanderers = self.emulator.world_memory.change.wanderers
        if not len(wanderers):
            return ram
        ram, tree = ram.copy(), self.emulator.tree
        links = tree.read_links(ram)
        for wanderer in wanderers:
            tree.unlink(ram, links, int(wanderer))
        return ram


def find_ticking(memory: npt.NDArray[np.uint8], run: int) -> npt.NDArray[np.bool_]:
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


def find_score_copies(memory: npt.NDArray[np.uint8], scores: npt.NDArray[np.int64]) -> list[int]:
    """Addresses of bytes that hold the score's low byte: copies that the story keeps for its messages."""
    if len(set(scores.tolist())) < 3:
        return []
    low = (scores & 0xFF).astype(np.uint8)[:, None]
    same = (memory == low) | (memory == np.concatenate([low[:1], low[:-1]]))  # some copies lag a turn behind
    changing = (memory != memory[0]).any(axis=0)
    return [int(a) for a in np.flatnonzero(same.all(axis=0) & changing)]
