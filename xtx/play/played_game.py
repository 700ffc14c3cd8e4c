"""A game that is being played: its present scene, moves that can be taken back, valid actions on demand."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from xtx.core import Game, Observation, Step
from xtx.games.emulator.printed_text import clean
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import NO_ANSWER, GameSpec
from xtx.games.vector.isolated_game import IsolatedGame

UNDO_LEVELS = 500

BROKEN = "(The story broke off.)"
"""Shown where a story ends without a word: the emulator found an error in it."""

_STATUS_LINE = re.compile(r" {20,}\S[^\n]*\Z")
_GAPS = re.compile(r"\n[ \t]*\n\s*\n")
# Everything that could move the cursor or change the terminal; a story is foreign text.
_CONTROL = {code: None for code in (*range(10), *range(11, 32), *range(127, 160))}


@dataclass(frozen=True)
class Scene:
    """The state of the game as it is shown."""

    text: str
    """The narration with its paragraphs."""
    room: str
    score: int
    moves: int
    """Moves as the game counts them."""
    over: bool
    won: bool
    reward: int = 0
    wants_key: bool = False
    """Whether the game waits for a single key and not for a command."""


class DetailedGame(Game, Protocol):
    """A game that also gives details for the screen: room, moves, paragraphs."""

    @property
    def details(self) -> Details:
        """Of the present state."""

    @property
    def facts(self) -> Facts:
        """Of the story."""


class PlayedGame:
    """One game being played. `open_game` makes the games behind it, here or in another process."""

    def __init__(self, spec: GameSpec, open_game: Callable[[GameSpec], DetailedGame] = IsolatedGame) -> None:
        self._open = open_game
        self._spec = spec = replace(spec, details=True)
        # An atlas that nothing is looked up in need not be opened.
        self._game = open_game(spec if spec.search else replace(spec, atlas=None))
        self._finder: Game | None = None
        facts = self._game.facts
        self.name, self.max_score, self.md5 = facts.name, facts.max_score, facts.md5
        self.walkthrough, self.seed = facts.walkthrough, facts.walkthrough_seed
        """The emulator seed under which the game is played."""
        self._past: deque[tuple[bytes, Scene, tuple[str, ...]]] = deque(maxlen=UNDO_LEVELS)
        self._state = b""
        """The state of the game, as long as it goes on."""
        self.previous: tuple[str, ...] = ()
        """The commands that led here, since the game began or was loaded."""
        self.observation: Observation
        self.scene: Scene

    def close(self) -> None:
        """Frees the games."""
        for game in (self._game, self._finder):
            if game is not None:
                game.close()

    # --- moves --------------------------------------------------------------------------------------------------

    def begin(self) -> Scene:
        """The first scene of a new game."""
        self._past.clear()
        self.previous = ()
        return self._arrive(self._game.reset(self.seed))

    def restart(self) -> Scene:
        """The first scene again; that can be taken back, unless the game was over."""
        self._remember()
        self.previous = ()
        return self._arrive(self._game.reset(self.seed))

    def move(self, command: str, *, last: bool = False) -> tuple[Scene, Step]:
        """The scene after a command, and what the game gave back."""
        state, before = self._state, self.scene
        step = self._game.step(command, last=last)
        self._past.append((state, before, self.previous))
        self.previous = (*self.previous, command)
        return self._arrive(step.observation, step), step

    def undo(self, levels: int = 1) -> int:
        """How many moves could be taken back, of those asked for."""
        levels = min(levels, len(self._past))
        if levels:
            state, self.scene, self.previous = [self._past.pop() for _ in range(levels)][-1]
            self.observation = self._game.restore(state)
            self._state = state
        return levels

    def save(self) -> bytes:
        """The state of the game, for `load`."""
        return self._state

    def load(self, state: bytes) -> Scene:
        """The scene in a saved state; that can be taken back, unless the game was over."""
        loaded = self._game.restore(state)  # first: a state that is refused must change nothing
        self._remember()
        self._arrive(loaded)
        self.previous = ()
        if not self.scene.over and not self.scene.wants_key:
            described = self._game.details.description or self._look(state)
            self.scene = replace(self.scene, text=split_paragraphs(described) or self.scene.text)
        return self.scene

    def _look(self, state: bytes) -> str:
        """The answer to `look` in the present state, which is left as it is; empty if there is none."""
        step, narration = self._game.step("look"), self._game.details.narration
        self._game.restore(state)
        return "" if step.terminated or step.observation.text == NO_ANSWER else narration

    def _remember(self) -> None:
        if not self.scene.over:
            self._past.append((self._state, self.scene, self.previous))

    @property
    def is_prepared(self) -> bool:
        """Whether `observe` need not look into the game for the first time, which takes longer."""
        return self._spec.search or self._finder is not None or bool(self.observation.actions)

    def observe(self) -> Observation:
        """All that an agent sees of the present state; finding it may take seconds."""
        if self.scene.over or self.observation.actions:
            return self.observation
        if self._finder is None:
            self._finder = self._open(replace(self._spec, search=True))
        try:
            return replace(self._finder.restore(self._state), text=self.observation.text)
        except KeyboardInterrupt:
            self._finder.close()  # stopped halfway: its state is not known
            self._finder = None
            raise

    # --- scenes -------------------------------------------------------------------------------------------------

    def _arrive(self, observation: Observation, step: Step | None = None) -> Scene:
        self.observation = observation
        if step is None or not step.terminated:
            self._state = self._game.save()
        details = self._game.details
        raw = details.narration
        over = step.terminated if step is not None else details.over
        # What the emulator printed has the paragraphs; it is not used where the game says something instead.
        text = split_paragraphs(raw) if clean(raw) == observation.text else split_paragraphs(observation.text)
        self.scene = Scene(
            text=text or (BROKEN if over else ""),
            room=details.room,
            score=observation.score,
            moves=details.moves,
            over=over,
            won=step.won if step is not None else over and details.won,
            reward=step.reward if step is not None else 0,
            wants_key=not over and details.wants_key,
        )
        return self.scene


def split_paragraphs(text: str) -> str:
    """A narration as it is shown: paragraphs apart, without the prompt and signs that steer terminals."""
    text = _STATUS_LINE.sub("", text.replace("\r", "\n").replace("\t", " ").translate(_CONTROL))
    text = text.rstrip().removesuffix(">").rstrip()
    return _GAPS.sub("\n\n", text).strip("\n")
