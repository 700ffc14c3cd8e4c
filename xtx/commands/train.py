"""`xtx train`: an agent learns a game."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from xtx.agents import agent_names, find_agent, preset
from xtx.agents.from_file import accept_agent
from xtx.commands.session import Means, check_config, lasting_name, train
from xtx.config import RunConfig, usual_length
from xtx.training.prepare import new_run_folder

DEMO = "xtx-demo"
_AGENTS = f"Who learns: {', '.join(agent_names())}, or a class of your own: FILE.py:CLASS."


@dataclass(frozen=True)
class Args:
    """Trains an agent on a game. Without arguments: XTX with its demo settings on the adventure that comes with xtx,
    some minutes on two cores. With --agent NAME, this help also lists that agent's settings."""

    game: Annotated[Positional[str], arg(metavar="GAME")] = ""
    """A game's name, or the path of a story file; the adventure that comes with xtx if not given."""
    agent: Annotated[str | None, arg(metavar="NAME", help=_AGENTS)] = None
    seed: int = 0
    """Where all random numbers begin."""
    steps: Annotated[int | None, arg(metavar="N")] = None
    """Game steps in all; if not given 800000, or 100000 for rc-dqn and mprc-dqn, or the demo's."""
    games: int | None = None
    """Games played in lock-step; if not given 8, or 1 for rc-dqn and mprc-dqn."""
    stochastic: bool = False
    """Another emulator seed in every episode."""
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
    wide_grammar: bool = False
    """Also try object and direction, numbers, orders, and all but."""
    actions: Literal["templates", "whole"] = "templates"
    """What is tried for valid actions: the grammar's templates with the things in sight, or also every word of the
    dictionary."""
    thorough_survey: bool = False
    """Spend minutes instead of seconds on the survey of the story, so that more states share their valid actions."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the run; if not given, a new one in runs/."""
    log_every: int = 100
    """Vector steps between lines of metrics.jsonl."""
    means: Annotated[Means, arg(name="")] = field(default_factory=Means)


def arguments(options: Sequence[str], parse: Callable[[Any], Any]) -> Any:
    """The options, with the settings of the agent that they name, as published for the game that they name."""
    name = _agent_named(options)
    game = parse(_kind(name or DEMO, "")).game
    return parse(_kind(name or _default_agent(game), game))


def _default_agent(game: str) -> str:
    return "xtx" if game else DEMO


def _kind(agent: str, game: str) -> Any:
    """Args with the settings of an agent."""
    settings = preset(agent, Path(game).stem.lower())
    # No prefix for the settings themselves, but one for each group in them: --q.learning-rate.
    group = ("settings", Annotated[type(settings), arg(name="")], field(default=settings))
    kind = make_dataclass("Args", [group], bases=(Args,), frozen=True)
    kind.__doc__ = Args.__doc__
    return kind


def _agent_named(options: Sequence[str]) -> str | None:
    for place, word in enumerate(options):
        if word == "--agent" and place + 1 < len(options):
            return accept_agent(options[place + 1])
        if word.startswith("--agent="):
            return accept_agent(word.partition("=")[2])
    return None


def run(args: Any) -> int:
    """0, or 130 if Ctrl-C stopped it."""
    agent = accept_agent(args.agent or _default_agent(args.game))
    find_agent(agent)
    steps, games = usual_length(agent)
    config = RunConfig(
        game=lasting_name(args.game),
        agent=agent,
        settings=asdict(args.settings),
        seed=args.seed,
        steps=steps if args.steps is None else args.steps,
        games=games if args.games is None else args.games,
        stochastic=args.stochastic,
        extra_actions=args.extra_actions,
        wide_grammar=args.wide_grammar,
        actions=args.actions,
        thorough_survey=args.thorough_survey,
        log_every=args.log_every,
    )
    check_config(config)
    return train(config, args.out or new_run_folder(config), args.means)
