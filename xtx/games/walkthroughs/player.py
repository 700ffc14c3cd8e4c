"""Plays commands from given states of a story and says where they lead: what reach.py decides by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from xtx.games.actions.search import RANDOM_STATES
from xtx.games.emulator.frotz import Emulator, Snapshot, Status
from xtx.games.story_game import StoryGame

_BEAM_WIDTH = 6
"""Worlds from which the search for a replacement goes on, at each depth. Only worlds that differ less from the wanted
one than the world before are followed, so that a few are enough."""

_MAX_FIRST_ACTIONS = 8
"""Most actions whose undoing is looked for."""


@dataclass(frozen=True)
class Outcome:
    """Where a command leads."""

    state: Snapshot
    key: bytes
    """Key of the canonical state, or of the whole state at a prompt of another kind."""
    world: bytes
    """The canonical RAM, but for the order in which things lie in the same place: how near two outcomes are."""
    score: int
    over: bool
    won: bool

    def is_same(self, other: Outcome) -> bool:
        """Whether the two have the same key, score and end."""
        return (self.key, self.score, self.over, self.won) == (other.key, other.score, other.over, other.won)

    def count_differences(self, other: Outcome) -> int:
        """Return in how many bytes the two worlds differ, and one more if the scores differ."""
        ours, theirs = np.frombuffer(self.world, np.uint8), np.frombuffer(other.world, np.uint8)
        return int(np.count_nonzero(ours != theirs)) + (self.score != other.score)

    def measure_memory_distance(self, other: Outcome) -> int:
        """In how many bytes of RAM the two states differ, also where no key knows of it."""
        ours, theirs = np.frombuffer(self.state.ram, np.uint8), np.frombuffer(other.state.ram, np.uint8)
        return int(np.count_nonzero(ours != theirs))


class Player:
    """Plays commands from given states and says where they lead."""

    def __init__(self, game: StoryGame) -> None:
        self._game = game
        self._emulator = game.emulator

    def try_command(self, state: Snapshot, command: str) -> Outcome | None:
        """Return where the command leads from a state; None if the emulator cannot finish it."""
        emulator = self._emulator
        emulator.restore(state)
        if emulator.step(command) is not Status.DONE:
            return None
        return self.read_present()

    def read_present(self) -> Outcome:
        """Return the emulator's present state as an outcome."""
        emulator, world = self._emulator, self._game.world
        score, over, won = emulator.score, emulator.over, emulator.won
        state = emulator.save()
        if over:
            return Outcome(state, b"over", state.ram, score, over, won)
        canonical = world.make_canonical(RANDOM_STATES[0])
        return Outcome(state, world.compute_key(canonical), self._clear_order(canonical.ram), score, over, won)

    def has_effect(self, state: Snapshot, command: str) -> bool:
        """Return whether the command changes the world, the score, or ends the game."""
        self._emulator.restore(state)
        before, after = self.read_present(), self.try_command(state, command)
        return after is not None and not after.is_same(before)

    def _clear_order(self, ram: bytes) -> bytes:
        """Return the RAM without the links to siblings and children: beyond the parents they say only the order."""
        tree, copy = self._emulator.tree, np.frombuffer(ram, np.uint8).copy()
        columns = slice(5, 7) if tree.header.small else slice(8, 12)
        tree.view_entries(copy)[:, columns] = 0
        return copy.tobytes()

    def play_rest(self, state: Snapshot, script: Script, number: int, renamed: tuple[str, str] | None = None) -> int:
        """The most points on the way if the steps of the walkthrough behind one are played from a state, as they are
        written (but for a name that the player made up) and with its random numbers."""
        emulator, best = self._emulator, 0
        for command, at in zip(replace_word(script.commands[number:], renamed), script.states[number:], strict=False):
            emulator.restore(msgspec.structs.replace(state, rng=at.rng))
            if emulator.step(command) is not Status.DONE:
                break
            best = max(best, emulator.score)
            if emulator.over:
                break
            state = emulator.save()
        return best

    def read_texts(self, state: Snapshot) -> tuple[str, str]:
        """Return the look and the inventory of a state."""
        found = self._game.find_in_state(state)
        return found.look, found.inventory

    def list_offered(self, state: Snapshot) -> tuple[str, ...]:
        """Return the valid actions of a state, as an agent would get them."""
        return self._game.find_in_state(state).actions

    def find_replacements(
        self, start: Outcome, wanted: Outcome, offered: Sequence[str], max_actions: int
    ) -> tuple[str, ...] | None:
        """Return the shortest sequence of at most `max_actions` offered actions that leads to the wanted world; None if
        none was found."""
        paths: list[tuple[Outcome, tuple[str, ...]]] = [(start, ())]
        for depth in range(max_actions):
            nearer: dict[bytes, tuple[int, Outcome, tuple[str, ...]]] = {}
            for place, path in paths:
                before = place.count_differences(wanted)
                for action in offered if depth == 0 else self.list_offered(place.state):
                    after = self.try_command(place.state, action)
                    if after is None:
                        continue
                    distance = after.count_differences(wanted)
                    if after.is_same(wanted) or (distance == 0 and after.over == wanted.over):
                        return (*path, action)
                    if not after.over and distance < before and after.key not in nearer:
                        nearer[after.key] = distance, after, (*path, action)
            best = sorted(nearer.values(), key=lambda one: (one[0], one[2]))[:_BEAM_WIDTH]
            paths = [(place, path) for _, place, path in best]
        return None

    def follow(self, start: Outcome, commands: Sequence[str]) -> tuple[str, ...]:
        """For each of some commands the offered action that leaves memory most like it; none if one cannot be
        ended."""
        played: list[str] = []
        here, before = start, start
        for command in commands:
            goal = self.try_command(before.state, command)
            reached = [
                (a, one) for a in self.list_offered(here.state) if (one := self.try_command(here.state, a)) is not None
            ]
            if goal is None or goal.over or not reached:
                return ()
            action, here = min(
                reached, key=lambda one: (not one[1].is_same(goal), one[1].measure_memory_distance(goal))
            )
            before = goal
            played.append(action)
        return tuple(played)

    def find_round_trip(self, start: Outcome, offered: Sequence[str]) -> tuple[str, ...]:
        """Two offered actions of which the second undoes the first, so that only time passes; none if there are no
        such."""
        # What is taken can be dropped, mostly; other actions more seldom.
        for action in sorted(offered, key=lambda a: not a.startswith(("take ", "drop ", "get ")))[:_MAX_FIRST_ACTIONS]:
            there = self.try_command(start.state, action)
            if there is None or there.over or there.score != start.score:
                continue
            for other in self.list_offered(there.state):
                back = self.try_command(there.state, other)
                if back is not None and back.is_same(start):
                    return action, other
        return ()


class Script:
    """The walkthrough as it is written: the state before each step, up to the end of the game."""

    def __init__(self, emulator: Emulator, limit: int = 0) -> None:
        emulator.reset(emulator.bindings.walkthrough_seed)
        self.commands = _spell_out_words(emulator.bindings.walkthrough)[: limit or None]
        self.states = [emulator.save()]
        self.best = emulator.score
        """The most points it has at any time."""
        for command in self.commands:
            done = emulator.step(command) is Status.DONE
            self.best = max(self.best, emulator.score)
            if not done or emulator.over:
                break
            self.states.append(emulator.save())
        self.states = self.states[: len(self.commands)]


def replace_word(commands: Sequence[str], names: tuple[str, str] | None) -> list[str]:
    """Return the commands with one word replaced by another; unchanged without names."""
    if names is None:
        return list(commands)
    old, new = names
    return [re.sub(rf"\b{re.escape(old)}\b", new, command, flags=re.IGNORECASE) for command in commands]


def _spell_out_words(walkthrough: Sequence[str]) -> list[str]:
    """The steps with what is to be done again in full: another action may have been played for it."""
    steps: list[str] = []
    for command in walkthrough:
        again = command.strip().lower() in ("again", "g") and steps
        steps.append(steps[-1] if again else command)
    return steps
