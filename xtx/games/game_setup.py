"""What a run must know of its game before the first game begins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.games.atlas.store import find_default_path
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.discovery.isolated_discovery import describe_story, make_progress
from xtx.games.story_game import GameSpec
from xtx.games.toy_game import MAX_SCORE, ToyGame
from xtx.processes.isolated_calls import PATIENCE, Report, call_in_child


@dataclass(frozen=True)
class GameSetup:
    """A game that was found, and how it is to be played."""

    name: str
    spec: GameSpec
    max_score: int
    walkthrough: tuple[str, ...]
    """Empty where none is known."""
    has_score: bool = True
    """Whether there is a score, and so a reward other than 0."""

    def count_workers(self, asked: int | None) -> int | None:
        """The number of workers that commands use where `asked` are asked for: a story may crash the process that runs
        it, so it gets at least one worker. The toy world runs no story and may do without (0)."""
        return 1 if asked == 0 and not self.spec.path.startswith("toy:") else asked


SetupFacts = tuple[str, int, tuple[str, ...]]
"""A game's name, the points that it has to give, and its walkthrough."""


@cache
def _read_facts(path: str, md5: str, profile: bytes) -> SetupFacts:
    """The facts about a story; by its checksum and profile too, since files may be replaced."""
    facts: SetupFacts = call_in_child(read_story_facts, path, name=Path(path).name, patience=PATIENCE)
    return facts


def read_story_facts(report: Report, path: str) -> SetupFacts:
    """The same. Runs the story up to its first prompt, so it is called in a process of its own."""
    from xtx.games.emulator.frotz import Emulator

    emulator = Emulator(describe_story(find_story(path), make_progress(report)))
    return emulator.bindings.name, emulator.bindings.max_score, emulator.bindings.walkthrough


def set_up_game(
    game: str,
    *,
    extra_actions: bool = False,
    byte_score: bool = False,
    actions: str = "templates",
    thorough_survey: bool = False,
    atlas: Path | None = None,
    no_atlas: bool = False,
    engine: str = "zset",
    threads: int = 1,
) -> GameSetup:
    """The game of that name or in that file; without a name, the adventure that comes with xtx."""
    if atlas is not None and no_atlas:
        raise UserError("--atlas and --no-atlas exclude each other")
    if game.startswith("toy:"):
        toy = ToyGame(game)
        return GameSetup(game, GameSpec(game), MAX_SCORE, toy.walkthrough)
    story = find_story(game or find_default_game())
    profile = msgspec.msgpack.encode(story.profile)
    name, most, walkthrough = _read_facts(str(story.path.absolute()), story.md5, profile)
    spec = GameSpec(
        path=str(story.path.absolute()),
        extra_actions=extra_actions,
        byte_score=byte_score,
        actions=actions,
        thorough_survey=thorough_survey,
        atlas=None if no_atlas else str((atlas or find_default_path()).expanduser()),
        engine=engine,
        threads=threads,
    )
    described = find_story(str(story.path.absolute())).profile  # with what was found just now, if anything was
    return GameSetup(name, spec, most, walkthrough, described is None or described.has_score)
