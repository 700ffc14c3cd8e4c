"""What a story says to commands, asked of the engine: it is quicker than the emulator, and has several threads.

The engine gives what is printed, and the emulator what Jericho makes of the screen. Whether the one comes to the other,
once it is cleaned, is tried for each story at its beginning; if not, and for commands that the engine leaves open, the
emulator is asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from xtx.games.jericho import Emulator, Snapshot, Status
from xtx.games.narration import clean
from xtx.games.zset import ENGINE, Engine

_TRIED = ("look", "inventory", "examine me", "examine north", "examine door")
_TURNS = 8
"""So many turns of the walkthrough they are tried in."""


class Hearing:
    """The answers of one story."""

    def __init__(self, emulator: Emulator, engine: Engine | None) -> None:
        self._emulator = emulator
        self._engine = engine

    def answers(self, state: Snapshot, commands: Sequence[str], engine: bool = True) -> list[str]:
        """What the story says to each command in a state, cleaned; nothing if it cannot finish it. Without `engine`
        that is not asked. The emulator is left in some other state."""
        said: list[str | None] = [None] * len(commands)
        if engine and self._trusted:
            said = self._by_engine(state, commands)
        left = [i for i, text in enumerate(said) if text is None]
        if left:
            for i, text in zip(left, self._by_emulator(state, [commands[i] for i in left]), strict=True):
                said[i] = text
        return [text or "" for text in said]

    def _by_emulator(self, state: Snapshot, commands: Sequence[str]) -> list[str]:
        return [clean(text or "") for text in self._emulator.ask(state, commands)]

    def _by_engine(self, state: Snapshot, commands: Sequence[str]) -> list[str | None]:
        if self._engine is None:
            return [None] * len(commands)
        self._emulator.note(ENGINE)
        tidy = self._emulator.tidy
        return [None if text is None else clean(tidy(text)) for text in self._engine.ask(state, commands)]

    @cached_property
    def _trusted(self) -> bool:
        """Whether the engine was heard to say the same as the emulator, at the first turns of the walkthrough."""
        emulator, heard = self._emulator, 0
        if self._engine is None:
            return False
        emulator.reset(emulator.walkthrough_seed)
        for command in ("look", *emulator.walkthrough[:_TURNS]):
            if emulator.step(command) is not Status.DONE or emulator.over:
                break
            state = emulator.save()
            by_engine, by_emulator = self._by_engine(state, _TRIED), self._by_emulator(state, _TRIED)
            if any(text is not None and text != other for text, other in zip(by_engine, by_emulator, strict=True)):
                return False
            heard += sum(text is not None for text in by_engine)
            emulator.restore(state)
        return heard > 0
