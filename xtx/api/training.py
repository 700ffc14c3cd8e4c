"""Training from Python: `train`, `train_steps`, `resume`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xtx.agents.from_file import accept_agent, register_agent
from xtx.agents.registry import find_agent, make_preset
from xtx.api.arguments import (
    check_atlas,
    check_flag,
    check_function,
    check_optional_flag,
    check_optional_whole,
    check_path,
    check_seconds,
    check_whole,
)
from xtx.api.runs import SavedRun
from xtx.config.config_file import check_numbers
from xtx.config.settings import Actions, RunConfig, get_default_actions, get_default_length
from xtx.core import Agent, UserError
from xtx.training.prepare import RunResources, choose_run_folder, resolve_game_name

if TYPE_CHECKING:
    from xtx.runs.run_folder import Run
    from xtx.training.loop import TrainingProgress
    from xtx.training.prepare import RunParts

Device = Literal["auto", "cpu", "cuda"]
_LINE_EVERY = 0.5
"""Seconds between two looks of the progress line."""


@dataclass(frozen=True)
class TrainingUpdate:
    """How far a run is."""

    step: int
    """Game steps so far, of all games together."""
    steps: int
    """Game steps of the whole run."""
    episodes: int
    """Episodes that have ended."""
    score_mean: float
    """Mean final score of the last 100 episodes."""
    score_max: int
    """Best final score."""
    metrics: Mapping[str, float]
    """The newest numbers of the agent: losses, its plan, ...; empty before the first line of metrics."""
    path: Path
    """The run's folder."""


def train(
    game: str | os.PathLike[str] = "",
    *,
    agent: str | type[Agent] = "xtx",
    steps: int | None = None,
    settings: Mapping[str, Any] | Any = None,
    seed: int = 0,
    num_envs: int | None = None,
    stochastic: bool = False,
    extra_actions: bool = False,
    actions: Actions | None = None,
    log_every: int = 100,
    out: str | os.PathLike[str] | None = None,
    device: Device = "auto",
    workers: int | None = None,
    threads: int | None = None,
    atlas: bool | str | os.PathLike[str] = True,
    checkpoint_seconds: float = 60.0,
    progress: bool | None = None,
    on_update: Callable[[TrainingUpdate], object] | None = None,
) -> SavedRun:
    """Train an agent on a game and return the run when it is finished.

    Arguments:
        game: name of a game, path of a story, or `toy:corridor-5`; the adventure that comes with xtx if not given
        agent: name of an agent (`xtx train --help` lists them), `path/to/file.py:Class`, or a class made from `Agent`
        steps: game steps in all; the agent's own number if not given
        settings: what is not as in the agent's preset, as `{"q": {"gamma": 0.95}}`, or all of them as a dataclass
        seed: where all random numbers begin
        num_envs: envs, copies of the game that are stepped together; 8, or the agent's own number, if not given
        stochastic: another emulator seed in every episode
        extra_actions, actions: what is tried for valid actions; see `make`. `actions` is `templates` for
            the paper's agents and `whole` for others if not given
        log_every: vector steps between two lines of metrics
        out: folder of the run; a new one in runs/ if not given
        device, workers, threads, atlas, checkpoint_seconds: how it is computed; nothing but device and threads changes
            results
        progress: whether a line of progress is shown; if not given, in terminals and notebooks
        on_update: is called after every vector step; training stops and is saved when it returns False

    Ctrl-C, or interrupting a notebook's cell, finishes the step, saves the run and returns it unfinished; `resume` goes
    on with it. Raises `UserError` for anything that does not fit.
    """
    check_function("on_update", on_update)
    check_optional_flag("progress", progress)
    updates = train_steps(
        game, agent=agent, steps=steps, settings=settings, seed=seed, num_envs=num_envs, stochastic=stochastic,
        extra_actions=extra_actions, actions=actions, log_every=log_every, out=out,
        device=device, workers=workers, threads=threads, atlas=atlas, checkpoint_seconds=checkpoint_seconds,
    )  # fmt: skip
    return _exhaust(updates, progress, on_update)


def train_steps(
    game: str | os.PathLike[str] = "",
    *,
    agent: str | type[Agent] = "xtx",
    steps: int | None = None,
    settings: Mapping[str, Any] | Any = None,
    seed: int = 0,
    num_envs: int | None = None,
    stochastic: bool = False,
    extra_actions: bool = False,
    actions: Actions | None = None,
    log_every: int = 100,
    out: str | os.PathLike[str] | None = None,
    device: Device = "auto",
    workers: int | None = None,
    threads: int | None = None,
    atlas: bool | str | os.PathLike[str] = True,
    checkpoint_seconds: float = 60.0,
) -> Generator[TrainingUpdate]:
    """Train as `train` does, one vector step at a time: each iteration takes one step in every game and gives a
    `TrainingUpdate`. Leaving the loop, or closing the iterator, saves the run, which `resume` goes on with."""
    path = check_path("game", game)
    folder = None if out is None else Path(check_path("out", out))
    name = _accept(agent)
    config = _make_config(
        resolve_game_name(path), name, settings,
        check_optional_whole("steps", steps), check_optional_whole("num_envs", num_envs),
        seed=check_whole("seed", seed),
        stochastic=check_flag("stochastic", stochastic),
        extra_actions=check_flag("extra_actions", extra_actions),
        actions=actions or get_default_actions(name),
        log_every=check_whole("log_every", log_every),
    )  # fmt: skip
    resources = _make_resources(device, workers, threads, atlas, checkpoint_seconds)
    return _train_new(config, folder or choose_run_folder(config), resources)


def resume(
    path: str | os.PathLike[str],
    *,
    agent: str | type[Agent] | None = None,
    accept_changes: bool = False,
    device: Device = "auto",
    workers: int | None = None,
    threads: int | None = None,
    atlas: bool | str | os.PathLike[str] = True,
    checkpoint_seconds: float = 60.0,
    progress: bool | None = None,
    on_update: Callable[[TrainingUpdate], object] | None = None,
) -> SavedRun:
    """Go on with a run exactly where its last checkpoint was; the arguments are those of `train`.

    `agent`: the run's own agent, where it is a class of a notebook, or lies in a file that was never named on this
    machine. `accept_changes`: go on although files of the run were changed since its checkpoint.
    """
    check_function("on_update", on_update)
    check_optional_flag("progress", progress)
    accept_changes = check_flag("accept_changes", accept_changes)
    folder = Path(check_path("path", path))
    named = None if agent is None else _accept(agent)
    resources = _make_resources(device, workers, threads, atlas, checkpoint_seconds)
    return _exhaust(_go_on(folder, resources, accept_changes, named), progress, on_update, folder)


# --- from arguments to a config -------------------------------------------------------------------------------------


def _accept(agent: object) -> str:
    """The name of an agent that was given as a name or a class."""
    return register_agent(agent) if isinstance(agent, type) else accept_agent(check_path("agent", agent))


def _make_config(
    game: str, agent: str, settings: Mapping[str, Any] | Any, steps: int | None, num_envs: int | None, **others: Any
) -> RunConfig:
    from xtx.sweep.run_plan import change_settings

    find_agent(agent)
    usual_steps, usual_envs = get_default_length(agent)
    if others["actions"] not in ("templates", "whole"):
        raise UserError(f"actions is 'templates' or 'whole', not {others['actions']!r}")
    own = make_preset(agent, Path(game).stem.lower())
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = asdict(settings)
    if not isinstance(settings, Mapping | None):
        raise UserError("settings is a dictionary, or a dataclass of the agent's settings")
    config = RunConfig(
        game=game,
        agent=agent,
        settings=change_settings(agent, own, settings or {}),
        steps=usual_steps if steps is None else steps,
        num_envs=usual_envs if num_envs is None else num_envs,
        **others,
    )
    try:
        check_numbers(config)
    except ValueError as error:
        raise UserError(str(error)) from None
    return config


def _make_resources(
    device: str,
    workers: int | None,
    threads: int | None,
    atlas: bool | str | os.PathLike[str],
    checkpoint_seconds: float,
) -> RunResources:
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"device is 'auto', 'cpu' or 'cuda', not {device!r}")
    atlas = check_atlas(atlas)
    folder = None if isinstance(atlas, bool) else Path(atlas)
    seconds = check_seconds("checkpoint_seconds", checkpoint_seconds)
    return RunResources(
        device,
        check_optional_whole("workers", workers, 0),
        threads=check_optional_whole("threads", threads, 1),
        atlas=folder,
        no_atlas=atlas is False,
        checkpoint_seconds=seconds,
    )


# --- the loop -------------------------------------------------------------------------------------------------------


def _train_new(config: RunConfig, folder: Path, resources: RunResources) -> Generator[TrainingUpdate]:
    from xtx.files.user_paths import explain_write_errors
    from xtx.runs.run_folder import Run
    from xtx.training.prepare import prepare

    run_parts = prepare(config, resources)  # first, so that a mistake leaves no folder behind
    with explain_write_errors(folder), Run.create(folder, config) as run:
        try:
            yield from _advance(run, resources, run_parts)
        except UserError:
            run.discard_unused()  # so that the same call can be made again
            raise


def _go_on(folder: Path, resources: RunResources, accept_changes: bool, agent: str | None) -> Generator[TrainingUpdate]:
    from xtx.files.user_paths import explain_write_errors
    from xtx.runs.run_folder import Run
    from xtx.training.resumed import prepare_resumed

    with explain_write_errors(folder), Run.open(folder) as run:
        run_parts = prepare_resumed(run, resources, accept_changes=accept_changes, agent=agent)
        yield from _advance(run, resources, run_parts)


def _advance(run: Run, resources: RunResources, run_parts: RunParts) -> Generator[TrainingUpdate]:
    """Trains a run that was opened. Saves it at its end, and where the caller wants no more."""
    from xtx.core import warn
    from xtx.training.loop import Training
    from xtx.training.session import open_vector, restore_run

    restored = restore_run(run)
    restored.adopt_threads(resources.threads, warn)
    with contextlib.closing(open_vector(run, restored, resources, run_parts, warn)) as games:
        training = Training(run, run_parts.agent, games, checkpoint_seconds=resources.checkpoint_seconds)
        training.begin(restored.state)
        try:
            while not training.is_finished:
                training.advance()
                yield _update(training.progress, run.folder)
        except GeneratorExit:  # between two steps: what was done is whole
            training.finish()
            raise
        training.finish()


def _update(progress: TrainingProgress, path: Path) -> TrainingUpdate:
    metrics = {**progress.plan, **progress.numbers}
    return TrainingUpdate(
        progress.steps, progress.total, progress.episodes, progress.score_mean, progress.score_max, metrics, path
    )


def _exhaust(
    updates: Generator[TrainingUpdate],
    progress: bool | None,
    on_update: Callable[[TrainingUpdate], object] | None,
    path: Path | None = None,
) -> SavedRun:
    """Takes all steps, shows them, and returns the run: that in `path` where there was nothing left to do."""
    from xtx.training.stop import stop_on_signal

    line = ProgressLine(progress)
    with stop_on_signal() as stop, contextlib.closing(updates), line:
        for update in updates:
            path = update.path
            line.show(update)
            if (on_update is not None and on_update(update) is False) or stop.is_requested:
                break
    assert path is not None
    return SavedRun(path)


class ProgressLine:
    """A line of progress on the error stream, rewritten in place; nothing outside of terminals and notebooks."""

    def __init__(self, wanted: bool | None) -> None:
        self._is_shown = (sys.stderr.isatty() or _is_notebook()) if wanted is None else wanted
        self._began = self._shown = time.monotonic()
        self._first = 0
        self._width = 0

    def show(self, update: TrainingUpdate) -> None:
        """Write how far the run is, not more often than a person can read."""
        now = time.monotonic()
        self._first = self._first or update.step
        if not self._is_shown or (now - self._shown < _LINE_EVERY and update.step < update.steps):
            return
        self._shown = now
        speed = (update.step - self._first) / max(now - self._began, 1e-9)
        line = (
            f"{update.step:,} of {update.steps:,} steps, {update.episodes:,} episodes, score mean "
            f"{update.score_mean:.1f} best {update.score_max}, {speed:.0f} steps/s"
        )
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()


def _is_notebook() -> bool:
    """Whether this is an IPython kernel with a front end, which shows what is written."""
    return "ipykernel" in sys.modules
