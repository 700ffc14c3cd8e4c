"""What can be read of a game's state beside its observation: room, moves, the narration with its paragraphs.

A state is put into a second game of the same kind, in this process, and read there. Story files and the toy worlds for
tests keep these things in different ways; nothing else in this room needs to know.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from xtx.games.game import GameSpec, StoryGame
from xtx.games.jericho import Status
from xtx.games.toy import MAX_SCORE, ToyGame


class Mirror(ABC):
    """A game that states are put into to be read."""

    name: str
    max_score: int
    md5: str
    walkthrough: tuple[str, ...]
    walkthrough_seed: int
    """The emulator seed under which the walkthrough works."""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Puts a saved state into it."""

    @abstractmethod
    def step(self, command: str) -> None:
        """Runs a command that is known to end well."""

    @abstractmethod
    def look(self) -> str:
        """The state as the game describes it; empty if it does not. Another state must be put into it afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Frees the game."""

    @property
    @abstractmethod
    def narration(self) -> str:
        """What was last printed, as it was printed."""

    @property
    @abstractmethod
    def room(self) -> str:
        """The name of the room that the player is in; empty where the game does not say."""

    @property
    @abstractmethod
    def moves(self) -> int:
        """Moves as the game counts them."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether the game has ended."""

    @property
    @abstractmethod
    def won(self) -> bool:
        """Whether it ended well."""

    @property
    @abstractmethod
    def wants_key(self) -> bool:
        """Whether the game waits for a single key and not for a command."""


def open_mirror(spec: GameSpec) -> Mirror:
    """A mirror for games of this kind."""
    return ToyMirror(spec.path) if spec.path.startswith("toy:") else StoryMirror(spec)


class StoryMirror(Mirror):
    """Reads the memory of a story."""

    def __init__(self, spec: GameSpec) -> None:
        self._game = StoryGame(replace(spec, search=False, atlas=None))
        emulator = self._emulator = self._game.emulator
        self.name, self.max_score, self.md5 = emulator.name, emulator.max_score, emulator.story.md5
        self.walkthrough, self.walkthrough_seed = emulator.walkthrough, emulator.walkthrough_seed

    def restore(self, state: bytes) -> None:
        """Puts a saved state into it."""
        self._game.restore(state)

    def step(self, command: str) -> None:
        """Runs a command that is known to end well."""
        self._game.step(command)

    def look(self) -> str:
        """The answer to `look`."""
        return self.narration if self._emulator.step("look") is Status.DONE else ""

    def close(self) -> None:
        """Frees the emulator."""
        self._game.close()

    @property
    def narration(self) -> str:
        """What the emulator printed."""
        return self._emulator.narration

    @property
    def room(self) -> str:
        """From the profile's location, else from where the player is in the object tree."""
        emulator = self._emulator
        names, ram = emulator.tree.names, emulator.ram
        profile = emulator.story.profile
        if profile is not None and profile.location is not None:
            with contextlib.suppress(ValueError, IndexError):
                name = names[profile.location.read(ram)]
                # Inform's names for things that are never shown are in brackets: here, the dark.
                return "Darkness" if name.startswith("(") else name
        links = emulator.tree.links(np.asarray(ram))
        number, seen, room = emulator.player, {0}, ""
        while 0 < number < len(names) and number not in seen:
            seen.add(number)
            number = int(links[number, 0])
            if 0 < number < len(names) and names[number]:
                room = names[number]  # the outermost that has a name: on a bed in a bedroom is in the bedroom
        return room

    @property
    def moves(self) -> int:
        """As the story counts them."""
        return self._emulator.moves

    @property
    def over(self) -> bool:
        """Whether the story has ended."""
        return self._emulator.over

    @property
    def won(self) -> bool:
        """Whether it was won."""
        return self._emulator.won

    @property
    def wants_key(self) -> bool:
        """Whether the story reads a single key."""
        return not self._emulator.wants_line_in(self._emulator.save_registers())


class ToyMirror(Mirror):
    """Asks a toy world."""

    def __init__(self, name: str) -> None:
        self._game = ToyGame(name)
        self.name, self.max_score, self.md5 = name, MAX_SCORE, name
        self.walkthrough, self.walkthrough_seed = self._game.walkthrough, 1
        self._seen = self._game.reset()
        self._over = False

    def restore(self, state: bytes) -> None:
        """Puts a saved state into it."""
        self._seen, self._over = self._game.restore(state), False

    def step(self, command: str) -> None:
        """Runs a command that is known to end well."""
        step = self._game.step(command)
        self._seen, self._over = step.observation, step.terminated

    def look(self) -> str:
        """Look and inventory."""
        return f"{self._seen.look}\n{self._seen.inventory}"

    def close(self) -> None:
        """Nothing to free."""

    @property
    def narration(self) -> str:
        """Toy worlds say all in one paragraph."""
        return self._seen.text

    @property
    def room(self) -> str:
        """The room's number."""
        look = self._seen.look
        return "Darkness" if "dark" in look else look.partition(".")[0]

    @property
    def moves(self) -> int:
        """Every step is one."""
        return self._seen.step

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._over

    @property
    def won(self) -> bool:
        """Whether all points were found."""
        return self._seen.score == MAX_SCORE

    @property
    def wants_key(self) -> bool:
        """Never."""
        return False
