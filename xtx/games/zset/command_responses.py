"""What a story says to commands, asked of the engine: Frotz must not run canonical states, which are altered memory.

The engine gives what is printed, and Jericho cuts the answer out of that as it does out of Frotz's screen. Frotz keeps
the last word of a text back until something follows, which in some stories is the prompt: then every screen begins with
it. Whether it does is found out for each story at its beginning, from states that the story came to by itself. Without
an engine Frotz is asked: the plain way, for comparisons."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache, partial

from xtx.games.emulator.frotz import Emulator, Snapshot, Status
from xtx.games.emulator.printed_text import clean
from xtx.games.zset.command_verdicts import extract_screen
from xtx.games.zset.engine import ENGINE, Engine

_TRIED = ("look", "inventory", "examine me", "examine north", "examine door")
_TURNS = 8
"""So many turns of the walkthrough they are tried in."""
_LONGEST_WORD = 200
"""Bytes; Frotz ends at a word that is longer than its screen."""


def _read(emulator: Emulator, screen: bytes) -> str:
    return clean(emulator.clean_screen(screen)) if screen else ""


@lru_cache(maxsize=8192)
def _make_word_pattern(word: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?<![A-Za-z])" + re.escape(word.encode()) + rb"(?![A-Za-z])")


def _mark_word(screen: bytes, word: str, mark: bytes) -> bytes:
    """The screen with a mark in the place of a word."""
    return _make_word_pattern(word).sub(mark, screen) if word.encode() in screen else screen


def _replace_word(text: str, word: str, mark: str) -> str:
    return re.sub(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", mark, text)


def find_prompt_prefix(emulator: Emulator, engine: Engine, excluded: Collection[str] = ()) -> None:
    """Find the word with which Frotz's screens begin in this story, for `Emulator.clean_screen`.

    It is the one with which the engine's texts most often equal Frotz's, at the first turns of the walkthrough. The
    emulator is left in some other state.
    """
    tried = [command for command in _TRIED if command not in excluded]
    read_texts: list[tuple[bytes, str]] = []
    words = {b"": 0}
    emulator.prompt_prefix = b""
    emulator.reset(emulator.bindings.walkthrough_seed, is_detour=True)
    for command in ("look", *emulator.bindings.walkthrough[:_TURNS]):
        before = emulator.save()
        if command in excluded or emulator.step(command) is not Status.DONE or emulator.over:
            break
        state = emulator.save()
        emulator.note(ENGINE)
        printed = engine.step(before, command)[1].narration if before.wants_line else b""
        last = re.split(rb"[\r\n ]", printed)[-1]
        if len(last) <= _LONGEST_WORD:
            words.setdefault(last, 0)
        # What the engine gives up may be what kills the emulator.
        screens = zip(tried, engine.read_responses(state, tried), strict=True)
        answered = {command: screen for command, screen in screens if screen is not None}
        texts = [clean(text or "") for text in emulator.read_responses(state, list(answered))]
        read_texts += zip(answered.values(), texts, strict=True)
        emulator.restore(state)
    for word in words:
        emulator.prompt_prefix = word
        words[word] = sum(_read(emulator, screen) == text for screen, text in read_texts)
    emulator.prompt_prefix = max(words, key=lambda word: words[word])


class CommandResponses:
    """The answers of one story."""

    def __init__(self, emulator: Emulator, engine: Engine | None) -> None:
        self._emulator = emulator
        self._engine = engine
        self._read = lru_cache(maxsize=1024)(partial(_read, emulator))

    def answers(self, state: Snapshot, commands: Sequence[str], excluded: Collection[str] = ()) -> list[str]:
        """What the story says to each command in a state, cleaned; nothing if it cannot finish it, or is not to be
        asked. The emulator is left in some other state."""
        asked = list(dict.fromkeys(command for command in commands if command not in excluded))
        if self._engine is None:
            texts = self._answer_by_emulator(state, asked)
        elif ENGINE in excluded:
            texts = [""] * len(asked)
        else:
            texts = [self._read(screen) for screen in self._run_to_screens(self._engine, state, asked, excluded)]
        said = dict(zip(asked, texts, strict=True))
        return [said.get(command, "") for command in commands]

    def answers_without(
        self, state: Snapshot, commands: Sequence[tuple[str, str]], mark: str, excluded: Collection[str] = ()
    ) -> list[str]:
        """The same for commands that are given with one of their words, which a mark replaces in the answer. Where
        thousands are asked that differ in that word only, most answers are alike then, and read once."""
        if self._engine is None or ENGINE in excluded:
            said = self.answers(state, [command for command, _ in commands], excluded)
            return [_replace_word(text, name, mark) for text, (_, name) in zip(said, commands, strict=True)]
        asked = [pair for pair in commands if pair[0] not in excluded] if excluded else commands
        screens = self._run_to_screens(self._engine, state, [command for command, _ in asked], excluded)
        read, marked = self._read, mark.encode()
        texts = [read(_mark_word(screen, name, marked)) for (_, name), screen in zip(asked, screens, strict=True)]
        if asked is commands:
            return texts
        found = {command: text for (command, _), text in zip(asked, texts, strict=True)}
        return [found.get(command, "") for command, _ in commands]

    def _answer_by_emulator(self, state: Snapshot, commands: Sequence[str]) -> list[str]:
        return [clean(text or "") for text in self._emulator.read_responses(state, commands)]

    def _run_to_screens(
        self, engine: Engine, state: Snapshot, commands: Sequence[str], excluded: Collection[str]
    ) -> list[bytes]:
        """What each command prints. Where the engine does not know how Frotz would show that (tables, long lines), it
        is taken as it is printed; nothing for a command that cannot be finished."""
        if self._emulator.prompt_prefix is None:
            find_prompt_prefix(self._emulator, engine, excluded)
        self._emulator.note(ENGINE)
        screens = engine.read_responses(state, commands)
        return [
            self._extract_printed(engine, state, command) if screen is None else screen
            for command, screen in zip(commands, screens, strict=True)
        ]

    def _extract_printed(self, engine: Engine, state: Snapshot, command: str) -> bytes:
        self._emulator.note(ENGINE)
        after = engine.step(state, command)[1]
        return extract_screen(after) if after.pc else b""
