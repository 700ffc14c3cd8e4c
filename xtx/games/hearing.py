"""What a story says to commands, asked of the engine: it is quicker than the emulator, and has several threads.

The engine gives what is printed, and the emulator what Jericho makes of the screen. Whether the one comes to the other,
once it is cleaned, is tried for each story at its beginning; if not, and for commands that the engine leaves open, the
emulator is asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache, partial

from xtx.games.jericho import Emulator, Snapshot, Status
from xtx.games.narration import clean
from xtx.games.zset import ENGINE, Engine

_TRIED = ("look", "inventory", "examine me", "examine north", "examine door")
_TURNS = 8
"""So many turns of the walkthrough they are tried in."""


def _read(emulator: Emulator, screen: bytes) -> str:
    return clean(emulator.tidy(screen))


class Hearing:
    """The answers of one story."""

    def __init__(self, emulator: Emulator, engine: Engine | None) -> None:
        self._emulator = emulator
        self._engine = engine
        self._trusted: bool | None = None
        """Whether the engine says the same as the emulator; None: not tried yet."""
        self._read = lru_cache(maxsize=1024)(partial(_read, emulator))

    def answers(self, state: Snapshot, commands: Sequence[str], excluded: Collection[str] = ()) -> list[str]:
        """What the story says to each command in a state, cleaned; nothing if it cannot finish it, or is not to be
        asked. The emulator is left in some other state."""
        said: dict[str, str | None] = dict.fromkeys(command for command in commands if command not in excluded)
        if self._engine is not None and ENGINE not in excluded:
            if self._trusted is None:
                self._trusted = self._agree(self._engine, excluded)
            if self._trusted:
                said = dict(zip(said, self._by_engine(self._engine, state, list(said)), strict=True))
        left = [command for command, text in said.items() if text is None]
        said |= dict(zip(left, self._by_emulator(state, left), strict=True))
        return [said.get(command) or "" for command in commands]

    def _by_emulator(self, state: Snapshot, commands: Sequence[str]) -> list[str]:
        return [clean(text or "") for text in self._emulator.ask(state, commands)]

    def _by_engine(self, engine: Engine, state: Snapshot, commands: Sequence[str]) -> list[str | None]:
        self._emulator.note(ENGINE)
        return [None if screen is None else self._read(screen) for screen in engine.ask(state, commands)]

    def _agree(self, engine: Engine, excluded: Collection[str]) -> bool:
        """Whether the engine is heard to say the same as the emulator, at the first turns of the walkthrough."""
        emulator, heard = self._emulator, 0
        tried = [command for command in _TRIED if command not in excluded]
        emulator.reset(emulator.walkthrough_seed)
        for command in ("look", *emulator.walkthrough[:_TURNS]):
            if command in excluded or emulator.step(command) is not Status.DONE or emulator.over:
                break
            state = emulator.save()
            answers = zip(tried, self._by_engine(engine, state, tried), strict=True)
            # What the engine gives up may be what kills the emulator.
            answered = {command: text for command, text in answers if text is not None}
            if self._by_emulator(state, list(answered)) != list(answered.values()):
                return False
            heard += len(answered)
            emulator.restore(state)
        return heard > 0
