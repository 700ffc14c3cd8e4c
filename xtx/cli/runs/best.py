"""`xtx best`: the best episode of a run, to be read or played again."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from xtx.cli.runs.agent_loading import PlayOptions, read_records, set_up_game_of
from xtx.cli.runs.report_replays import open_replay, replay_scenes
from xtx.core import EpisodeRecord, warn
from xtx.files.user_paths import open_output
from xtx.runs.run_config import read_config
from xtx.terminal.shell_command import format_command

if TYPE_CHECKING:
    from xtx.games.game_setup import GameSetup
    from xtx.play.screen import Screen

PAGE = 80
"""Columns of a transcript in a file."""


@dataclass(frozen=True)
class Args:
    """Plays the best episode of a run once more and prints it as a transcript, with its actions at the end."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    walkthrough: bool = False
    """Print the actions only, one in each line, as `xtx play` reads them from a pipe."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write to this file instead."""


def run(args: Args) -> int:
    """0, or 2 if playing it again does not give the same score."""
    config = read_config(args.run)
    best = max(read_records(args.run), key=lambda episode: episode.score)
    game_setup = set_up_game_of(config, PlayOptions(no_atlas=True))
    from xtx.play.screen import Screen

    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_output(args.out)) if args.out is not None else None
        console = Console(file=file, width=PAGE if file else None, highlight=False, markup=False, emoji=False)
        screen = Screen(console)
        if not args.walkthrough:
            most = f" of {game_setup.max_score}" if game_setup.max_score > 0 else ""
            screen.show_note(
                f"The best episode of {config.agent} in {game_setup.name}: {best.score}{most} points in {best.length} "
                f"steps (episode {best.episode:,} of the run, emulator seed {best.seed})"
            )
        score = _replay(game_setup, best, None if args.walkthrough else screen)
        if args.walkthrough:
            console.print("\n".join(best.actions), soft_wrap=True)
        else:
            screen.show_note(f"\nIts actions: {' / '.join(best.actions)}")
    same = score == best.score
    line = f"played again under emulator seed {best.seed}, it gives {score} points"
    if not same:
        warn(f"{line}, but the run says {best.score}: the story or the emulator is not the one of the run")
    elif args.walkthrough and args.out is None:
        warn(f"{line}, as in the run")  # not among the actions
    else:
        said = Console(highlight=False, markup=False, emoji=False)
        said.print(f"Verified: {line}, as in the run.", soft_wrap=True)
        there = args.out if args.walkthrough else "FILE"
        if not args.walkthrough:
            alone = format_command("best", args.run, "--walkthrough", "--out", "FILE")
            said.print(f"Its actions alone, as a walkthrough: {alone}", soft_wrap=True)
        play = format_command("play", config.game or game_setup.name, "--seed", best.seed)
        said.print(f"To play them: {play} < {shlex.quote(str(there))}", soft_wrap=True)
    return 0 if same else 2


def _replay(game_setup: GameSetup, best: EpisodeRecord, screen: Screen | None) -> int:
    """The final score when the episode is played again; shown as it goes, if there is a screen."""
    with contextlib.closing(open_replay(game_setup, warn)) as played:
        for action, scene in replay_scenes(played, best):
            if screen is not None:
                if action:
                    screen.show_command(action)
                screen.show_scene(scene, played.max_score)
        return scene.score
