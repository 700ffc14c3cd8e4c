"""A training session: from the command line's words to a finished or stopped run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from tyro.conf import arg

from xtx.agents import find_agent
from xtx.bounds import check_settings
from xtx.commands.writing import run_written
from xtx.config import RunConfig
from xtx.config_file import ConfigError, check_numbers, replace_old_settings
from xtx.core import Agent, Brief, UserError
from xtx.games.catalog import default_game, is_story_path
from xtx.runs import Run

if TYPE_CHECKING:
    from xtx.commands.display import Display
    from xtx.commands.sinks import Sinks
    from xtx.games.stage import Stage
    from xtx.train import Progress


_SMALL = 128
"""Width of networks under which several threads do not pay."""


@dataclass(frozen=True)
class Means:
    """By what means a run is carried out. Nothing but device and threads changes its results."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks are computed; auto takes a GPU if there is one."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Processes that run the games, at least one; if not given, as many as there are processors."""
    search_threads: Annotated[int | None, arg(metavar="N")] = None
    """Threads with which each of them searches; if not given, so many that no processor is idle."""
    look_ahead: Literal["auto", "on", "off"] = "auto"
    """Whether games that wait for others search meanwhile what is likely to come next; auto: if there are two
    processors for each process."""
    tie_workers: Literal["auto", "off"] = "auto"
    """Whether each of those processes has a processor of its own; auto: if there are as many of them."""
    threads: Annotated[int | None, arg(metavar="N")] = None
    """Threads of torch; if not given, one for small networks, else as many as there are processors, at most 8, or as
    before where a run goes on.
    Another number changes the last bits of sums, and so the run."""
    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder in which found actions are kept; if not given, in the user's cache folder."""
    no_atlas: bool = False
    """Keep what is found in memory only."""
    search: Literal["zset", "jericho"] = "zset"
    """How valid actions are searched: all candidates at once by set execution, or one by one."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints; longer where writing one takes long, 0 for one after every vector step."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard (extra `tensorboard`)."""
    wandb: bool = False
    """Also log to Weights & Biases (extra `wandb`); WANDB_MODE=offline works."""
    quiet: bool = False
    """Print only where the run is, and the summary."""

    @property
    def ahead(self) -> bool | None:
        """`look_ahead` as a vector of games takes it."""
        return {"on": True, "off": False}.get(self.look_ahead)


def lasting_name(game: str) -> str:
    """What names the game also tomorrow and in another folder."""
    return str(Path(game).absolute()) if is_story_path(game) else game or default_game()


def check_config(config: RunConfig) -> None:
    """Refuses numbers that make no run, in one line."""
    try:
        check_numbers(config)
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise UserError(f"--{name.replace('_', '-')} {rest}") from None


def train(config: RunConfig, folder: Path, means: Means) -> int:
    """Begins a run in a new folder. Gives the exit status: 0, or 130 if it was stopped."""
    cast = prepare(config, means)  # first, so that a mistake leaves no folder behind
    with run_written(folder), Run.create(folder, config) as run:
        try:
            return _session(run, means, cast)
        except UserError:
            run.discard_unused()  # so that the same command can be given again when it is mended
            raise


def resume(folder: Path, means: Means, *, accept_changes: bool = False) -> int:
    """Go on with a run. `accept_changes`: also where its files were changed since the checkpoint."""
    with run_written(folder), Run.open(folder) as run:
        changes = run.verify(accept_changes=accept_changes)  # before the game and the agent, which may be wrong ones
        cast = prepare(run.config, means, folder / "config.json")
        if any(change.startswith("config.json") for change in changes):
            _try_state(run, cast, means)
        return _session(run, means, cast)


def _try_state(run: Run, cast: Cast, means: Means) -> None:
    """Raise `UserError` if the checkpoint does not fit a config that was changed: before the change is accepted."""
    from xtx.games.vector import GameVector
    from xtx.train import check_state, load_agent_state, restore_games

    state = run.saved_state
    if state is not None:
        check_state(run, state)
        load_agent_state(run, make_agent(run.config, cast.device, cast.stage.walkthrough), state)
        with contextlib.closing(
            GameVector(cast.stage.spec, run.config.games, cast.stage.count_workers(means.workers))
        ) as games:
            restore_games(run, games, state)


@dataclass(frozen=True)
class Cast:
    """Who plays what, and where it is computed."""

    stage: Stage
    agent: Agent
    device: str


def prepare(config: RunConfig, means: Means, source: Path | None = None) -> Cast:
    """Finds the game and the device and makes the agent: whatever is wrong with them shows here. `source`: the file
    that the config was read from, if there is one."""
    for name, least in (("workers", 0), ("search_threads", 1), ("threads", 1), ("checkpoint_seconds", 0)):
        value = getattr(means, name)
        if value is not None and not value >= least:
            raise UserError(f"--{name.replace('_', '-')} takes a number from {least}, not {value}")
    # Not at the top: these take a while to load, and a wrong option should be answered at once.
    import torch

    from xtx.games.stage import set_stage

    device = pick_device(means.device)
    torch.set_num_threads(means.threads or usual_threads(config, torch.get_num_threads()))
    stage = set_stage(
        config.game,
        extra_actions=config.extra_actions,
        wide_grammar=config.wide_grammar,
        actions=config.actions,
        thorough_survey=config.thorough_survey,
        atlas=means.atlas,
        no_atlas=means.no_atlas,
        engine=means.search,
        threads=means.search_threads or search_threads(config.games, means.workers),
    )
    if not stage.has_score:
        print(
            f"xtx: no score of {stage.name} is known, so every reward is 0; if you know where it is: "
            f"xtx games add {stage.spec.path} --score ADDRESS_OR_REGEX",
            file=sys.stderr,
        )
    return Cast(stage, make_agent(config, device, stage.walkthrough, source=source), device)


def search_threads(games: int, workers: int | None) -> int:
    """Threads with which each worker may search. All wait for the slowest, so no processor should be idle; and of the
    games of one step, less than half usually meet a new state. (On 16 processors twelve were quicker than
    eight in two of three measurements.)"""
    processors = len(os.sched_getaffinity(0))
    each = processors // max(1, min(games, workers or processors))
    return min(12, processors, 6 * each) if processors > 1 else 1


def usual_threads(config: RunConfig, processors: int) -> int:
    """Threads of torch. Small networks, as in the demo, are quicker with one than with several that wait for each
    other."""
    q = config.settings.get("q")
    small = isinstance(q, dict) and q.get("hidden", _SMALL) < _SMALL
    return 1 if small else min(8, processors)


def _session(run: Run, means: Means, cast: Cast) -> int:
    import torch

    from xtx.commands.display import Display
    from xtx.commands.sinks import open_sinks
    from xtx.games.vector import GameVector
    from xtx.train import Training, check_state

    stage, games_played = cast.stage, run.config.games
    state = run.restore()
    if state is not None:
        check_state(run, state)
    forbidden, done = (state["forbidden"], state["progress"]["steps"]) if state is not None else ([], 0)
    display = Display(run, stage, cast.device, quiet=means.quiet)
    if state is not None and state["threads"] != torch.get_num_threads():
        if means.threads is None:
            torch.set_num_threads(state["threads"])
        else:
            display.note(f"the run had {state['threads']} threads so far; with {means.threads} it will not be the same")

    def open_games() -> GameVector:
        with display.surveying() as on_survey, stop.at_once():
            return GameVector(
                stage.spec,
                games_played,
                stage.count_workers(means.workers),
                forbidden=forbidden,
                on_report=display.note,
                on_survey=on_survey,
                ahead=means.ahead,
                tie=means.tie_workers == "auto",
            )

    with (
        stopper() as stop,
        open_sinks(run, done, tensorboard=means.tensorboard, wandb=means.wandb, quiet=means.quiet) as sinks,
        contextlib.closing(open_games()) as games,
        display,
    ):
        training = Training(run, cast.agent, games, checkpoint_seconds=means.checkpoint_seconds)
        finished = training.run(state, lambda progress: _show(progress, display, sinks) and not stop.asked)
    display.summary(finished)
    return 0 if finished else 130


def _show(progress: Progress, display: Display, sinks: Sinks) -> bool:
    display.show(progress)
    sinks.show(progress)
    return True


def make_agent(
    config: RunConfig, device: str, walkthrough: tuple[str, ...], games: int | None = None, source: Path | None = None
) -> Agent:
    """The run's agent, at its beginning. `source`: the file that the config was read from, for complaints."""
    kind = find_agent(config.agent)
    try:
        settings = _convert_settings(config, kind)
        check_settings(settings)
    except ConfigError as error:
        raise UserError(f"{source or f'the config of {config.agent}'} {error}") from None
    except msgspec.ValidationError as error:
        raise UserError(f"the settings of {config.agent} do not fit ({error}); see: xtx train --help") from None
    except ValueError as error:
        raise UserError(f"{error} (see: xtx train --agent {config.agent} --help)") from None
    if config.agent == "walkthrough" and not walkthrough:
        raise UserError(f"no walkthrough of {config.game} is known; try --agent random")
    brief = Brief(games or config.games, config.seed, device, walkthrough)
    try:
        return kind(settings, brief)
    except ValueError as error:
        raise UserError(f"the settings of {config.agent} do not fit: {error}") from error


def _convert_settings(config: RunConfig, kind: type[Agent]) -> Any:
    """The agent's settings. Raises `ConfigError` for unknown keys, and `msgspec.ValidationError` for wrong types."""
    return msgspec.convert(replace_old_settings(config.settings, kind.Settings()), kind.Settings)


def pick_device(wanted: str) -> str:
    """cpu or cuda."""
    # Must be there before the GPU is first used: without it, sums of matrix products have no fixed order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no GPU that torch can use here; leave out --device cuda, or see `nvidia-smi`")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


class Stop:
    """Whether the user asked to stop, and whether that can be done at once."""

    def __init__(self) -> None:
        self.asked = False
        self.is_immediate = False

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """For what leaves nothing to be saved: Ctrl-C ends it at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.is_immediate = True
        try:
            yield
        finally:
            self.is_immediate = False


@contextlib.contextmanager
def stopper() -> Iterator[Stop]:
    """Ctrl-C, or the end of a session, asks the loop to save and stop; a second Ctrl-C ends it at once. SIGTERM may
    come more than once for one reason: when a sweep with several threads is killed, the kernel sends it for each of
    those that its run belonged to in turn."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if (stop.asked and number == signal.SIGINT) or stop.is_immediate:
            raise KeyboardInterrupt
        stop.asked = True  # before anything that could wait
        if number == signal.SIGINT:  # at once: what is under way may take half a minute
            with contextlib.suppress(OSError):
                os.write(2, b"\nstopping when this is done, and saving; Ctrl-C again ends it at once\n")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
