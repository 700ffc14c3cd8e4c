"""Many runs at once, and reports of runs: `sweep` and `report`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xtx.api.arguments import (
    check_atlas,
    check_flag,
    check_list,
    check_optional_whole,
    check_path,
    check_seconds,
    check_text,
    check_whole,
    show_value,
)
from xtx.api.runs import Records, SavedRun, load_run
from xtx.core import UserError

if TYPE_CHECKING:
    from xtx.sweep.run_plan import PlannedRun
    from xtx.sweep.scheduler import RunExecutor
    from xtx.sweep.sweep_file import SweepSpec


def sweep(
    sweep: str | os.PathLike[str] = "",
    *,
    games: Sequence[str | os.PathLike[str]] | None = None,
    agents: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    stochastic: bool | Literal["both"] | None = None,
    settings: dict[str, dict[str, object]] | None = None,
    small: bool = False,
    out: str | os.PathLike[str] | None = None,
    available: bool = False,
    jobs: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
    workers: int | None = None,
    atlas: bool | str | os.PathLike[str] = True,
    checkpoint_seconds: float = 60.0,
    retries: int = 2,
    progress: bool = True,
) -> Records[SavedRun]:
    """Train games x agents x seeds, several runs at a time, each in a process of its own; return the runs.

    Arguments:
        sweep: a sweep that comes with xtx (`demo`, ...) or a TOML file; the arguments below take the place of its own
        games, agents, seeds: what is combined; agents also as `path/to/file.py:Class`
        steps: game steps of each run; each agent's own number if not given
        stochastic: another emulator seed in every episode; "both" plays each game in both ways
        settings: by the agent's name, what is not as in its preset
        small: the demo's small settings, for agents that have them
        out: folder of the runs; runs/SWEEP if not given
        available: leave out games whose stories are not on this machine
        jobs, device, threads, workers, atlas, checkpoint_seconds, retries: how they are carried out
        progress: whether a table of the runs is shown meanwhile

    What is finished already is not run again, and what was cut off goes on: the same call continues an interrupted
    sweep. Raises `UserError` for what does not fit, and if a run failed.
    """
    from xtx.sweep.launch import SweepOptions, find_stories, open_executor
    from xtx.sweep.run_plan import make_plan
    from xtx.training.prepare import check_config

    games = None if games is None else [check_path("games", game) for game in check_list("games", games)]
    agents = None if agents is None else [check_path("agents", agent) for agent in check_list("agents", agents)]
    seeds = None if seeds is None else [check_whole("seeds", seed) for seed in check_list("seeds", seeds)]
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"device is 'auto', 'cpu' or 'cuda', not {device!r}")
    steps = check_optional_whole("steps", steps)
    atlas = check_atlas(atlas)
    available, progress = check_flag("available", available), check_flag("progress", progress)
    source = check_path("sweep", sweep)
    seconds = check_seconds("checkpoint_seconds", checkpoint_seconds)
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f"settings takes a dictionary by agents' names, not {show_value(settings)}")
    chosen = {"games": games, "agents": agents, "seeds": seeds, "steps": steps, "stochastic": stochastic}
    spec = _choose_spec(source, {**chosen, "settings": settings, "small": small or None})
    plan = make_plan(spec, find_stories(spec, available=available))
    for planned in plan:
        check_config(planned.config)
    folder = Path("runs") / (Path(source).stem or "sweep") if out is None else Path(check_path("out", out))
    options = SweepOptions(
        jobs=check_optional_whole("jobs", jobs, 1),
        device=device,
        threads=check_optional_whole("threads", threads, 1),
        workers=check_optional_whole("workers", workers, 0),
        atlas=None if isinstance(atlas, bool) else Path(atlas),
        no_atlas=atlas is False,
        checkpoint_seconds=seconds,
    )
    with open_executor(folder, plan, options) as (executor, runs):
        _run_all(folder, runs, executor, check_whole("retries", retries, 0), progress)
    return Records(load_run(folder / planned.folder) for planned in plan)


def _choose_spec(name: str, chosen: dict[str, object]) -> SweepSpec:
    """The sweep of that name with what was chosen instead. Raises `UserError` if there is nothing to run."""
    import msgspec

    from xtx.agents.from_file import accept_agent
    from xtx.sweep.sweep_file import SweepSpec, read_spec

    base = msgspec.to_builtins(read_spec(name) if name else SweepSpec())
    base |= {key: value for key, value in chosen.items() if value is not None}
    base["agents"] = [accept_agent(agent) for agent in base["agents"]]
    base["settings"] = {accept_agent(agent): own for agent, own in base["settings"].items()}
    if chosen["agents"] is not None:  # those that the sweep has settings for may be gone
        base["settings"] = {agent: own for agent, own in base["settings"].items() if agent in base["agents"]}
    try:
        spec = msgspec.convert(base, SweepSpec)
    except msgspec.ValidationError as error:
        raise UserError(f"these arguments make no sweep ({error})") from None
    for key in ("games", "agents", "seeds"):
        if not getattr(spec, key):
            raise UserError(f"there are no {key} in the sweep; give {key}=[...]")
    return spec


def _run_all(folder: Path, plan: list[PlannedRun], executor: RunExecutor, retries: int, progress: bool) -> None:
    """Carries out all runs. Ctrl-C saves and stops them, and is raised then."""
    from rich.console import Console

    from xtx.sweep.progress_table import SweepDisplay
    from xtx.sweep.scheduler import RunState, Scheduler
    from xtx.training.stop import stop_on_signal

    with stop_on_signal() as stop, SweepDisplay(Console(quiet=not progress, highlight=False)) as show:
        scheduler = Scheduler(folder.absolute(), plan, executor, retries, show.tell)
        scheduler.run_all(show.show, lambda: stop.is_requested)
    states = [item.state for item in scheduler.items]
    if RunState.STOPPED in states:
        raise KeyboardInterrupt
    failed = [item for item in scheduler.items if item.state is RunState.FAILED]
    if failed:
        raise UserError(f"{len(failed)} of {len(plan)} runs failed, first {failed[0].run.folder}: {failed[0].why}")


def report(
    runs: str | os.PathLike[str] | SavedRun | Iterable[str | os.PathLike[str] | SavedRun],
    out: str | os.PathLike[str] = "report.html",
    *,
    title: str | None = None,
    figures: str | os.PathLike[str] | None = None,
    walkthroughs: bool = True,
) -> Path:
    """Set runs beside the paper's tables, on one page, and return the page's path.

    `runs`: runs, their folders, or folders with runs in them. `out`: the file, whose ending says what it is: .html, .md
    or .csv. `figures`: a folder for all plots. `walkthroughs`: False does not open the games, so that there is no
    progress along their walkthroughs. Raises `UserError`.
    """
    from xtx.cli.runs import report as command

    given = [runs] if isinstance(runs, str | os.PathLike | SavedRun) else check_list("runs", runs)
    walkthroughs = check_flag("walkthroughs", walkthroughs)
    paths = tuple(run.path if isinstance(run, SavedRun) else Path(check_path("runs", run)) for run in given)
    args = command.Args(
        runs=paths,
        out=Path(check_path("out", out)),
        title="" if title is None else check_text("title", title),
        figures=None if figures is None else Path(check_path("figures", figures)),
        no_walkthroughs=not walkthroughs,
    )
    command.run(args)
    return args.out
