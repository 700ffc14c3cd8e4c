"""`xtx train`: an agent learns a game."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, arg

from xtx.agents.from_file import accept_agent
from xtx.agents.registry import find_agent, make_preset
from xtx.cli.agents import list_summaries
from xtx.cli.option_help import build_rows, read_options
from xtx.cli.training.training_session import TrainOptions, train
from xtx.config.settings import Actions, RunConfig, get_default_actions, get_default_length
from xtx.training.prepare import check_config, choose_run_folder, resolve_game_name

DEMO = "xtx-demo"
_STEPS, _ENVS = get_default_length("xtx")
_READING_STEPS, _READING_ENVS = get_default_length("rc-dqn")
_AGENT = (
    "What learns: see `xtx agents`; or a class of your own: FILE.py:CLASS. "
    f"If not given xtx, or {DEMO} where no game is given."
)
_STEPS_HELP = (
    f"Game steps in all; if not given {_STEPS}, {_READING_STEPS} for rc-dqn and mprc-dqn, "
    f"{get_default_length(DEMO)[0]} for {DEMO}."
)
_ENVS_HELP = (
    f"Copies of the game that are stepped together; if not given {_ENVS}, or {_READING_ENVS} for rc-dqn and mprc-dqn."
)


@dataclass(frozen=True)
class Args:
    """Trains an agent on a game. Without arguments: XTX with its demo settings on the adventure that comes with xtx,
    some minutes on two cores."""

    USUAL: ClassVar = (
        "agent", "steps", "seed", "stochastic", "extra_actions", "actions", "out", "device", "workers", "tensorboard",
        "wandb", "quiet",
    )  # fmt: skip

    game: Annotated[Positional[str], arg(metavar="GAME")] = ""
    """A game's name, or the path of a story file; the adventure that comes with xtx if not given."""
    agent: Annotated[str | None, arg(metavar="NAME", help=_AGENT)] = None
    seed: int = 0
    """Where all random numbers begin."""
    steps: Annotated[int | None, arg(metavar="N", help=_STEPS_HELP)] = None
    num_envs: Annotated[int | None, arg(metavar="N", help=_ENVS_HELP, aliases=("--games",))] = None
    stochastic: bool = False
    """Another emulator seed in every episode."""
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
    byte_score: bool = False
    """Take the score as one signed byte, as the paper's version of Jericho did in Dragon: -130 counts as 126."""
    actions: Actions | None = None
    """What is tried for valid actions: the grammar's templates with the things in sight, or the whole dictionary too.
    If not given, whole; but templates for the agents of the paper, so that results can be compared, and the demo."""
    thorough_survey: bool = False
    """Spend minutes instead of seconds on the survey of the story, so that more states share their valid actions."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the run; if not given, a new one in runs/."""
    log_every: int = 100
    """Vector steps between lines of metrics.jsonl."""
    options: Annotated[TrainOptions, arg(name="")] = field(default_factory=TrainOptions)


def parse_arguments(options: Sequence[str], parse: Callable[[Any], Any]) -> Any:
    """The options, with the settings of the agent that they name, as published for the game that they name."""
    name = _find_agent_name(options)
    game = parse(_make_args_type(name or DEMO, "")).game
    return parse(_make_args_type(name or _choose_default_agent(game), game))


def make_options_type(options: Sequence[str]) -> Any:
    """The dataclass of the options, with the settings that the words ask for: of the agent, as published for the
    game."""
    game = _find_game_name(options)
    return _make_args_type(_find_agent_name(options) or _choose_default_agent(game), game)


def build_help_end() -> str:
    """What the help ends with: the agents."""
    parts = [f"{title}:\n{build_rows(rows)}" for title, rows in list_summaries().items() if rows]
    settings = "`xtx agents AGENT` shows an agent's settings, which are options too: `--q.hidden 64`."
    return "\n\n".join([*parts, settings])


def _choose_default_agent(game: str) -> str:
    return "xtx" if game else DEMO


def _make_args_type(agent: str, game: str) -> Any:
    """Args with the settings of an agent."""
    settings = make_preset(agent, Path(game).stem.lower())
    # No prefix for the settings themselves, but one for each group in them: --q.learning-rate.
    group = ("settings", Annotated[type(settings), arg(name="")], field(default=settings))
    kind = make_dataclass("Args", [group], bases=(Args,), frozen=True)
    kind.__doc__ = Args.__doc__
    kind.AGENT = agent  # type: ignore[attr-defined]
    return kind


def _find_agent_name(options: Sequence[str]) -> str | None:
    for place, word in enumerate(options):
        if word == "--agent" and place + 1 < len(options):
            return accept_agent(options[place + 1])
        if word.startswith("--agent="):
            return accept_agent(word.partition("=")[2])
    return None


def _find_game_name(options: Sequence[str]) -> str:
    """The first word that is neither an option nor an option's value; empty without one."""
    known = read_options(_make_args_type(_find_agent_name(options) or DEMO, ""))
    with_value = {name for option in known if option.value for name in option.names}
    pairs = zip(["", *options], options, strict=False)
    return next((word for before, word in pairs if not word.startswith("-") and before not in with_value), "")


def run(args: Any) -> int:
    """0, or 130 if Ctrl-C stopped it."""
    agent = accept_agent(args.agent or _choose_default_agent(args.game))
    find_agent(agent)
    steps, num_envs = get_default_length(agent)
    config = RunConfig(
        game=resolve_game_name(args.game),
        agent=agent,
        settings=asdict(args.settings),
        seed=args.seed,
        steps=steps if args.steps is None else args.steps,
        num_envs=num_envs if args.num_envs is None else args.num_envs,
        stochastic=args.stochastic,
        extra_actions=args.extra_actions,
        byte_score=args.byte_score,
        actions=args.actions or get_default_actions(agent),
        thorough_survey=args.thorough_survey,
        log_every=args.log_every,
    )
    check_config(config)
    return train(config, args.out or choose_run_folder(config), args.options)
