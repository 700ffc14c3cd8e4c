"""`xtx games survey`: find out, ahead of playing, which bytes of a story's memory make up the world."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from rich.console import Console
from tyro.conf import Positional, arg

from xtx.core import UserError
from xtx.games.atlas.store import find_default_path
from xtx.games.catalog.known_games import find_story
from xtx.terminal.progress_panel import SurveyProgress
from xtx.terminal.shell_command import format_command

if TYPE_CHECKING:
    from xtx.games.canonical.canonical_state import Layout


@dataclass(frozen=True)
class Args:
    """Surveys stories: finds out which bytes of their memory make up the world, and keeps that in the atlas.

    Every game is surveyed when it is first played, within a budget of some seconds. Where that is not enough, more
    states than need be are searched on their own. With --thorough the budget is forty times as large; to play with what
    it finds, add --thorough-survey to `xtx train`. Games whose layout comes with xtx need no usual survey.
    """

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="GAME...")]
    """Names of games, or paths of story files."""
    thorough: bool = False
    """Spend minutes instead of seconds."""
    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder of the atlas; if not given, in the user's cache folder."""


def run(args: Args) -> None:
    """Prints a line for each story, as soon as it is surveyed."""
    if not args.names:
        raise UserError(f"name the games to survey, as in: {format_command('games', 'survey', 'zork1', '--thorough')}")
    stories = [find_story(name) for name in args.names]
    console = Console(highlight=False)
    # Not at the top: Jericho takes a second to load, and a wrong name should be answered at once.
    from xtx.games.canonical.canonical_state import Layout
    from xtx.games.story_game import GameSpec
    from xtx.games.vector.game_vector import GameVector

    atlas = str((args.atlas or find_default_path()).expanduser())
    for story in stories:
        began = time.monotonic()
        spec = GameSpec(str(story.path.absolute()), atlas=atlas, thorough_survey=args.thorough)
        with (
            SurveyProgress(console) as on_survey,
            contextlib.closing(GameVector(spec, 1, 1, on_survey=on_survey)) as game,
        ):
            layout = msgspec.msgpack.decode(game.layout, type=Layout)
        seconds = time.monotonic() - began
        console.print(f"{story.path.name}: {describe_layout(layout)} ({seconds:.1f} s)", markup=False, soft_wrap=True)


def describe_layout(layout: Layout) -> str:
    """What a survey found, in one line."""
    unused = int((np.frombuffer(layout.mask, np.uint8) == 0).sum())
    found = (
        f"{unused:,} of {len(layout.mask):,} bytes mean nothing, {len(layout.counters)} count turns, "
        f"{len(layout.idle)} matter in some rooms only, "
        f"{len(layout.equivalent_values)} have values that come to the same"
    )
    if layout.cut_short:
        rooms = f"; in {layout.num_unchecked_rooms} rooms and off the walkthrough everything counts"
        rooms = rooms if layout.unchecked else ""
        return f"{found}; not finished: {', '.join(layout.cut_short)} (keys are finer than they need be{rooms})"
    return f"{found}; finished"
