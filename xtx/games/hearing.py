"""What a story says to commands, asked of the engine: it is quicker than the emulator, and has several threads.

The engine gives what is printed, and the emulator what Jericho makes of the screen. Whether the one comes to the other,
once it is cleaned, is tried for each story at its beginning; if not, and for commands that the engine leaves open, the
emulator is asked."""

from __future__ import annotations

import re
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


@lru_cache(maxsize=8192)
def _word_pattern(word: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?<![A-Za-z])" + re.escape(word.encode()) + rb"(?![A-Za-z])")


def _mark_word(screen: bytes, word: str, mark: bytes) -> bytes:
    """The screen with a mark in the place of a word."""
    return _word_pattern(word).sub(mark, screen) if word.encode() in screen else screen


def _replace_word(text: str, word: str, mark: str) -> str:
    return re.sub(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", mark, text)


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
        if self._engine is not None and ENGINE not in excluded and self._is_trusted(self._engine, excluded):
            said = dict(zip(said, self._by_engine(self._engine, state, list(said)), strict=True))
        left = [command for command, text in said.items() if text is None]
        said |= dict(zip(left, self._by_emulator(state, left), strict=True))
        return [said.get(command) or "" for command in commands]

    def answers_without(
        self, state: Snapshot, commands: Sequence[tuple[str, str]], mark: str, excluded: Collection[str] = ()
    ) -> list[str]:
        """The same for commands that are given with one of their words, which a mark replaces in the answer. Where
        thousands are asked that differ in that word only, most answers are alike then, and read once."""
        if self._engine is None or ENGINE in excluded or not self._is_trusted(self._engine, excluded):
            said = self.answers(state, [command for command, _ in commands], excluded)
            return [_replace_word(text, name, mark) for text, (_, name) in zip(said, commands, strict=True)]
        asked = [pair for pair in commands if pair[0] not in excluded] if excluded else commands
        self._emulator.note(ENGINE)
        screens = self._engine.ask(state, [command for command, _ in asked])
        read, marked = self._read, mark.encode()
        texts = [
            None if screen is None else read(_mark_word(screen, name, marked))
            for (_, name), screen in zip(asked, screens, strict=True)
        ]
        left = [i for i, text in enumerate(texts) if text is None]
        for i, text in zip(left, self._by_emulator(state, [asked[i][0] for i in left]), strict=True):
            texts[i] = _replace_word(text, asked[i][1], mark)
        if asked is commands:
            return [text or "" for text in texts]
        found = {command: text or "" for (command, _), text in zip(asked, texts, strict=True)}
        return [found.get(command, "") for command, _ in commands]

    def _is_trusted(self, engine: Engine, excluded: Collection[str]) -> bool:
        if self._trusted is None:
            self._trusted = self._agree(engine, excluded)
        return self._trusted

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
