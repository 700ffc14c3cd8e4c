"""A training session: from the command line's words to a finished or stopped run."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.files.user_paths import explain_write_errors
from xtx.runs.run_folder import Run
from xtx.training.prepare import RunParts, RunResources, prepare
from xtx.training.resumed import prepare_resumed
from xtx.training.stop import stop_on_signal

if TYPE_CHECKING:
    from xtx.cli.training.progress_display import Display
    from xtx.training.loggers import Loggers, Sinks
    from xtx.training.loop import TrainingProgress


@dataclass(frozen=True)
class TrainOptions:
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
    """Also write the metrics for TensorBoard (extra `tensorboard`), now and whenever the run goes on."""
    wandb: bool = False
    """Also log to Weights & Biases (extra `wandb`), likewise; WANDB_MODE=offline works."""
    wandb_project: Annotated[str, arg(metavar="NAME")] = ""
    """Project at Weights & Biases; if not given, that of WANDB_PROJECT, or xtx. Like the next three, it implies
    --wandb."""
    wandb_group: Annotated[str, arg(metavar="NAME")] = ""
    """Group of the run there; in a sweep, the sweep's name."""
    wandb_name: Annotated[str, arg(metavar="NAME")] = ""
    """Name of the run there; if not given, that of its folder."""
    wandb_tags: Annotated[tuple[str, ...], arg(metavar="TAG...")] = ()
    """Tags of the run there."""
    quiet: bool = False
    """Print only where the run is, and the summary."""

    @property
    def loggers(self) -> Loggers:
        """Where the metrics are to go beside the run's own files."""
        from xtx.training.loggers import Loggers

        named = bool(self.wandb_project or self.wandb_group or self.wandb_name or self.wandb_tags)
        return Loggers(
            tensorboard=self.tensorboard,
            wandb=self.wandb or named,
            project=self.wandb_project,
            group=self.wandb_group,
            name=self.wandb_name,
            tags=self.wandb_tags,
        )

    def to_resources(self) -> RunResources:
        """Return the options that say where and how the run is computed."""
        return RunResources(**{field.name: getattr(self, field.name) for field in fields(RunResources)})


def train(config: RunConfig, folder: Path, options: TrainOptions) -> int:
    """Begin a run in a new folder. Returns the exit status: 0, or 130 if it was stopped."""
    run_parts = prepare(config, options.to_resources())  # first, so that a mistake leaves no folder behind
    with explain_write_errors(folder), Run.create(folder, config) as run:
        try:
            return _run_session(run, options, run_parts)
        except UserError:
            run.discard_unused()  # so that the same command can be given again when the error is fixed
            raise


def resume(
    folder: Path,
    options: TrainOptions,
    *,
    accept_changes: bool = False,
    reset_loggers: bool = False,
    agent: str | None = None,
) -> int:
    """Continue a run. `accept_changes`: also if its files were changed since the checkpoint; `reset_loggers`: without
    those that it logged to before; `agent`: see `prepare_resumed`."""
    with explain_write_errors(folder), Run.open(folder) as run:
        run_parts = prepare_resumed(run, options.to_resources(), accept_changes=accept_changes, agent=agent)
        return _run_session(run, options, run_parts, reset_loggers=reset_loggers)


def _run_session(run: Run, options: TrainOptions, run_parts: RunParts, *, reset_loggers: bool = False) -> int:
    from xtx.cli.training.progress_display import Display
    from xtx.games.vector.game_vector import GameVector
    from xtx.training.loggers import open_sinks, update_loggers
    from xtx.training.loop import Training
    from xtx.training.session import open_vector, restore_run

    restored = restore_run(run)
    loggers = update_loggers(run.folder, options.loggers, reset=reset_loggers)
    display = Display(run, run_parts.game_setup, run_parts.device, quiet=options.quiet)
    restored.adopt_threads(options.threads, display.tell)

    def open_shown() -> GameVector:
        with display.show_survey() as on_survey, stop.allow_immediate_stop():
            return open_vector(run, restored, options.to_resources(), run_parts, display.tell, on_survey)

    with (
        stop_on_signal() as stop,
        open_sinks(run, loggers, quiet=options.quiet) as sinks,
        contextlib.closing(open_shown()) as games,
        display,
    ):
        stop.show = display.show_stopping
        training = Training(run, run_parts.agent, games, checkpoint_seconds=options.checkpoint_seconds)
        finished = training.run(
            restored.state, lambda progress: _show(progress, display, sinks) and not stop.is_requested
        )
    display.show_summary(finished)
    return 0 if finished else 130


def _show(progress: TrainingProgress, display: Display, sinks: Sinks) -> bool:
    display.show(progress)
    sinks.show(progress)
    return True
