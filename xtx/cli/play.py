"""`xtx play`: a game in the terminal."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tyro.conf import Positional, arg

from xtx.agents.random import RandomAgent
from xtx.agents.walkthrough import WalkthroughAgent
from xtx.cli.option_numbers import check_seed
from xtx.cli.runs.agent_loading import LoadedAgent, PlayOptions, Which, load_agent
from xtx.config.bounds import check_least
from xtx.config.settings import Actions
from xtx.core import Agent, Brief, NoSettings, UserError
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.runs.run_config import read_config
from xtx.terminal.shell_command import format_command

if TYPE_CHECKING:
    from xtx.play.played_game import PlayedGame
    from xtx.play.screen import Screen

RANDOM_STEPS = 100
WATCHING_DELAY = 0.4
MAX_DELAY = 3600
UNTRAINED = ("random", "walkthrough")


@dataclass(frozen=True)
class Args:
    """Plays a game in the terminal, by hand or with an agent; /help while playing lists the commands."""

    USUAL: ClassVar = (
        "agent", "hint", "checkpoint", "delay", "episodes", "steps", "seed", "extra_actions", "actions",
        "transcript",
    )  # fmt: skip

    game: Annotated[Positional[str], arg(metavar="GAME")] = ""
    """A game's name, or the path of a story file; if not given, the run's game, or else the adventure that comes with
    xtx."""
    agent: Annotated[str | None, arg(metavar="random|walkthrough|RUN")] = None
    """Let an agent play: one that takes any valid action, one that knows the way, or the trained one of a run, by the
    run's folder."""
    hint: Annotated[Path | None, arg(metavar="RUN")] = None
    """While you play, /hint shows what the trained agent of this run would do."""
    checkpoint: Which = "newest"
    """Which state of the trained agent: the last one, or the one at its best mean score."""
    delay: Annotated[float | None, arg(metavar="SECONDS")] = None
    """Pause before each of the agent's steps; 0.4 if not given, and none if the output is no terminal."""
    episodes: Annotated[int | None, arg(metavar="N")] = None
    """How often the agent plays; once if not given."""
    steps: Annotated[int | None, arg(metavar="LIMIT")] = None
    """Steps after which an episode of the agent ends; if not given 100, the length of the walkthrough, or the trained
    agent's own limit."""
    seed: Annotated[int | None, arg(metavar="N")] = None
    """Where random numbers begin: with --agent random the agent's, else the emulator's (if not given, those of the run,
    or the game's)."""
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
    actions: Actions | None = None
    """What is tried for valid actions: the grammar's templates with the things in sight, or the whole dictionary too.
    If not given, what the run was trained with, or whole."""
    search: Literal["zset", "jericho"] = "zset"
    """How valid actions are searched: all candidates at once by set execution, or one by one."""
    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder in which found actions are kept; if not given, in the user's cache folder."""
    no_atlas: bool = False
    """Keep what is found in memory only."""
    transcript: Annotated[Path | None, arg(metavar="FILE")] = None
    """Also write the game to the end of this file."""


def run(args: Args) -> int:
    """0, or 130 if Ctrl-C ended it."""
    _check(args)
    folder = _run_folder(args)
    config = read_config(folder) if folder is not None else None
    game = args.game or (config.game if config is not None else "") or find_default_game()
    path = game if game.startswith("toy:") else str(find_story(game).path.absolute())
    # Not at the top: Jericho takes a while to load, and a wrong name should be answered at once.
    from xtx.games.atlas.store import find_default_path
    from xtx.games.story_game import GameSpec
    from xtx.games.vector.isolated_game import IsolatedGame
    from xtx.play.played_game import PlayedGame
    from xtx.play.screen import Screen

    for stream in (sys.stdin, sys.stdout):
        # What a terminal cannot show or a pipe cannot say must not end the game.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    searching = args.agent is not None and args.agent != "walkthrough"
    spec = GameSpec(
        path=path,
        # A trained agent is to find the actions that it was trained with.
        extra_actions=args.extra_actions or (config is not None and config.extra_actions),
        actions=args.actions or (config.actions if config is not None else "whole"),
        thorough_survey=config is not None and config.thorough_survey,
        atlas=None if args.no_atlas else str((args.atlas or find_default_path()).expanduser()),
        search=searching,
        engine=args.search,
    )
    with contextlib.closing(Screen()) as screen:
        if args.transcript is not None:
            screen.open_transcript(args.transcript)
        loaded = None if folder is None else _load(args, folder, screen)
        with screen.show_progress("looking into the game...") if searching else contextlib.nullcontext() as on_survey:
            played = PlayedGame(spec, lambda spec: IsolatedGame(spec, screen.show_note, on_survey))
        with contextlib.closing(played):
            return (
                _play_by_hand(args, played, screen, loaded)
                if args.agent is None
                else _watch(args, played, screen, loaded)
            )


def _load(args: Args, folder: Path, screen: Screen) -> LoadedAgent:
    with screen.show_progress("loading the agent..."):
        return load_agent(
            folder, args.checkpoint, PlayOptions(atlas=args.atlas, no_atlas=args.no_atlas, search=args.search)
        )


def _run_folder(args: Args) -> Path | None:
    """The folder of the run whose agent plays or is asked."""
    if args.agent is None or args.agent in UNTRAINED:
        return args.hint
    folder = Path(args.agent)
    if not folder.is_dir():
        raise UserError(f"--agent takes random, walkthrough or the folder of a run; there is no folder {args.agent!r}")
    return folder


def _draw_seeds(args: Args, played: PlayedGame, loaded: LoadedAgent) -> Iterator[int]:
    """The emulator's, by the rule that holds in the run."""
    from xtx.training.evaluation import draw_evaluation_seeds

    if args.seed is not None:
        return repeat(args.seed)
    return draw_evaluation_seeds(loaded.config, played.seed, loaded.seeds_drawn)


def _play_by_hand(args: Args, played: PlayedGame, screen: Screen, loaded: LoadedAgent | None) -> int:
    from xtx.play.interactive import InteractivePlay, Keyboard

    if loaded is not None:
        played.seed = next(_draw_seeds(args, played, loaded))
    elif args.seed is not None:
        played.seed = args.seed
    return InteractivePlay(played, screen, Keyboard(), loaded.agent if loaded is not None else None).run()


def _watch(args: Args, played: PlayedGame, screen: Screen, loaded: LoadedAgent | None) -> int:
    from xtx.play.watch_agent import Watch

    agent: Agent
    seeds: Iterator[int] | None = None
    if loaded is not None:
        agent, seeds = loaded.agent, _draw_seeds(args, played, loaded)
        limit, words = args.steps or agent.episode_limit, "stopped at the step limit"
    elif args.agent == "random":
        agent = RandomAgent(NoSettings(), Brief(num_envs=1, seed=args.seed or 0))
        limit, words = args.steps or RANDOM_STEPS, "stopped at the step limit"
    else:
        if not played.walkthrough:
            random = format_command("play", args.game, "--agent", "random")
            raise UserError(f"no walkthrough of {played.name} is known; try: {random}")
        agent = WalkthroughAgent(NoSettings(), Brief(num_envs=1, seed=0, walkthrough=tuple(played.walkthrough)))
        played.seed = played.seed if args.seed is None else args.seed
        limit, words = len(played.walkthrough), "the walkthrough ends here"
        if args.steps is not None and args.steps < limit:
            limit, words = args.steps, "stopped at the step limit"
    delay = args.delay if args.delay is not None else WATCHING_DELAY if screen.console.is_terminal else 0.0
    watch = Watch(played, agent, screen, delay, seeds=seeds, thoughts=loaded is not None)
    return watch.run(args.episodes or 1, limit, words)


def _check(args: Args) -> None:
    for name in ("delay", "episodes", "steps"):
        if args.agent is None and getattr(args, name) is not None:
            raise UserError(f"--{name} is for agents; add --agent random or --agent walkthrough")
    if args.agent is not None and args.hint is not None:
        raise UserError("--hint is for people; leave out --agent")
    if args.delay is not None and not 0 <= args.delay <= MAX_DELAY:
        raise UserError(f"--delay takes seconds from 0 to {MAX_DELAY}, not {args.delay}")
    check_least(args, episodes=1, steps=1)
    check_seed(args.seed)
    if args.atlas is not None and args.no_atlas:
        raise UserError("--atlas and --no-atlas exclude each other")
