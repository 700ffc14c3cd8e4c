"""What a run must know of its game before the first game begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xtx.core import UserError
from xtx.games.atlas import default_path
from xtx.games.catalog import default_game, find_story
from xtx.games.game import GameSpec
from xtx.games.jericho import Emulator
from xtx.games.toy import MAX_SCORE, ToyGame


@dataclass(frozen=True)
class Stage:
    """A game that was found, and how it is to be played."""

    name: str
    spec: GameSpec
    max_score: int
    walkthrough: tuple[str, ...]
    """Empty where none is known."""


def set_stage(
    game: str,
    *,
    extra_actions: bool = False,
    wide_grammar: bool = False,
    actions: str = "templates",
    atlas: Path | None = None,
    no_atlas: bool = False,
    engine: str = "zset",
    threads: int = 1,
) -> Stage:
    """The game of that name or in that file; without a name, the adventure that comes with xtx."""
    if atlas is not None and no_atlas:
        raise UserError("--atlas and --no-atlas exclude each other")
    if game.startswith("toy:"):
        toy = ToyGame(game)
        return Stage(game, GameSpec(game), MAX_SCORE, toy.walkthrough)
    story = find_story(game or default_game())
    emulator = Emulator(story)
    try:
        name, most, walkthrough = emulator.name, emulator.max_score, emulator.walkthrough
    finally:
        emulator.close()
    spec = GameSpec(
        path=str(story.path.absolute()),
        extra_actions=extra_actions,
        wide_grammar=wide_grammar,
        actions=actions,
        atlas=None if no_atlas else str((atlas or default_path()).expanduser()),
        engine=engine,
        threads=threads,
    )
    return Stage(name, spec, most, walkthrough)
