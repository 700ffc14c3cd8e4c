"""`xtx sweep`: many runs, on this machine or on a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
from rich.console import Console
from tyro.conf import Positional, arg

from xtx.agents.from_file import accept_agent
from xtx.config.bounds import check_least
from xtx.config.settings import Actions
from xtx.core import UserError
from xtx.sweep.launch import SweepOptions, find_stories, open_executor
from xtx.sweep.progress_table import SweepDisplay, print_result
from xtx.sweep.run_plan import PlannedRun, make_plan
from xtx.sweep.scheduler import RunExecutor, RunState, Scheduler, SweepRun
from xtx.sweep.sweep_file import SweepSpec, list_ready_sweeps, read_spec
from xtx.sweep.sweep_folder import create_run_folder, is_finished, read_saved_steps
from xtx.terminal.shell_command import format_command
from xtx.training.prepare import check_config
from xtx.training.stop import stop_on_signal

SOME_FAILED = 1
_SWEEPS = f"A sweep that comes with xtx ({', '.join(list_ready_sweeps())}), or a TOML file (docs/sweeps.md)."


@dataclass(frozen=True)
class Args:
    """Carries out games x agents x seeds as runs, several at a time. What is finished is skipped, what was cut off goes
    on, what failed is tried again: after whatever stopped it, the same command goes on. --games, --agents and the
    other choices take the place of those in the sweep that is named, or make one of their own."""

    USUAL: ClassVar = (
        "games", "agents", "seeds", "steps", "stochastic", "actions", "small", "out", "available", "dry_run", "jobs",
        "device",
    )  # fmt: skip

    sweep: Annotated[Positional[str], arg(metavar="SWEEP", help=_SWEEPS)] = ""
    games: Annotated[tuple[str, ...] | None, arg(metavar="GAME...")] = None
    """Names or story files; a star behind one ('zork3*') plays it with the actions that the paper adds."""
    agents: Annotated[tuple[str, ...] | None, arg(metavar="NAME...")] = None
    """Which agents learn: see `xtx agents`; or FILE.py:CLASS."""
    seeds: Annotated[tuple[int, ...] | None, arg(metavar="N...")] = None
    """One run of each agent on each game for each of these; if nothing says otherwise, 0."""
    stochastic: Literal["yes", "no", "both"] | None = None
    """Whether there is another emulator seed in every episode."""
    steps: Annotated[int | None, arg(metavar="N")] = None
    """Game steps of each run; if not given, each agent's own, as in xtx train."""
    actions: Actions | None = None
    """What all runs try for valid actions: templates (if nothing says otherwise, as in the paper), or the whole
    dictionary too."""
    small: bool = False
    """Use the demo's small settings for agents that have them."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the runs; if not given, runs/SWEEP."""
    available: bool = False
    """Leave out games whose stories are not here."""
    dry_run: bool = False
    """Print what would be done, and do nothing."""
    retries: int = 2
    """How often a run that fails is tried again without getting any further."""
    jobs: Annotated[int | None, arg(metavar="N")] = None
    """Runs at a time; if not given, one for each processor, or six for each GPU, or as many as the cluster takes."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks are computed; auto takes GPUs if there are any. GPUs are dealt out among the runs."""
    threads: Annotated[int | None, arg(metavar="N")] = None
    """Threads of torch in each run; if not given, 1. Another number changes the last bits of sums, and so the runs."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Processes that run the games of each run; if not given, the processors are shared among the runs."""
    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder in which found actions are kept; if not given, in the user's cache folder."""
    no_atlas: bool = False
    """Keep what is found in memory only."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints of a run."""
    tensorboard: bool = False
    """Also write the metrics of all runs for TensorBoard (extra `tensorboard`)."""
    wandb: bool = False
    """Also log all runs to Weights & Biases (extra `wandb`): in a group with the name of the sweep's folder."""
    wandb_project: Annotated[str, arg(metavar="NAME")] = ""
    """Project at Weights & Biases; if not given, that of WANDB_PROJECT, or xtx. Like the next two, it implies
    --wandb."""
    wandb_group: Annotated[str, arg(metavar="NAME")] = ""
    """Another group of the runs there."""
    wandb_tags: Annotated[tuple[str, ...], arg(metavar="TAG...")] = ()
    """Tags of the runs there, beside game and agent."""
    ray: Annotated[str | None, arg(metavar="ADDRESS")] = None
    """Carry out the runs on this Ray cluster (extra `cluster`): HOST:PORT, or auto on one of its machines."""
    cpus: float = 1.0
    """With --ray: processors that each run takes."""
    gpus: float | None = None
    """With --ray: GPUs that each run takes, or a share of one; if not given, 1 with --device cuda, else 0."""
    bring_back: bool = False
    """With --ray: treat the folder as not shared, even where other machines see it."""


def run(args: Args) -> int:
    """0 if all runs are finished, 1 if some failed, 130 if it was stopped."""
    _check_numbers(args)
    spec = _choose(args)
    runs = make_plan(spec, find_stories(spec, available=args.available))
    for planned in runs:
        check_config(planned.config)
    out = (args.out or Path("runs") / (Path(args.sweep).stem or "sweep")).expanduser()
    if args.dry_run:
        _print_plan(out, runs)
        return 0
    options = SweepOptions(**{field.name: getattr(args, field.name) for field in fields(SweepOptions)})
    with open_executor(out, runs, options) as (executor, runs):
        _set_loggers(args, out, runs)
        return _run_all(args, out, runs, executor)


def _check_numbers(args: Args) -> None:
    check_least(args, jobs=1, threads=1, workers=0, retries=0, checkpoint_seconds=0, gpus=0, steps=1)
    if args.cpus <= 0:
        raise UserError(f"--cpus takes a number above 0, not {args.cpus}")
    if args.ray is None and (args.cpus != 1.0 or args.gpus is not None or args.bring_back):
        raise UserError("--cpus, --gpus and --bring-back are for a cluster: give --ray ADDRESS too, or leave them out")


def _choose(args: Args) -> SweepSpec:
    """What is asked for, on the command line and in the sweep that it names."""
    spec = read_spec(args.sweep) if args.sweep else SweepSpec()
    chosen: dict[str, object] = {
        name: value
        for name in ("games", "agents", "seeds", "steps", "actions")
        if (value := getattr(args, name)) is not None
    }  # fmt: skip
    if args.stochastic is not None:
        chosen["stochastic"] = "both" if args.stochastic == "both" else args.stochastic == "yes"
    if args.small:
        chosen["small"] = True
    # Both the sweep's own file and the command line are the user's words.
    chosen["agents"] = tuple(map(accept_agent, args.agents if args.agents is not None else spec.agents))
    chosen["settings"] = {
        accept_agent(name): values
        for name, values in spec.settings.items()
        if args.agents is None or name in args.agents
    }
    spec = msgspec.structs.replace(spec, **chosen)
    for name in ("games", "agents", "seeds"):
        if not getattr(spec, name):
            hint = "" if args.sweep else f", or name a sweep: {', '.join(list_ready_sweeps())}"
            raise UserError(f"there are no {name} in the sweep; give --{name}{hint}")
    return spec


def _print_plan(out: Path, runs: Sequence[PlannedRun]) -> None:
    for planned in runs:
        folder, config = out / planned.folder, planned.config
        done = read_saved_steps(folder)
        state = "finished" if is_finished(folder, config) else f"goes on from {done:,}" if done else "new"
        print(
            f"{folder}  {config.steps:,} steps, {config.num_envs} {'env' if config.num_envs == 1 else 'envs'}  {state}"
        )
    print(f"{len(runs)} run{'s' * (len(runs) != 1)}, {sum(planned.config.steps for planned in runs):,} steps")


def _set_loggers(args: Args, out: Path, runs: Sequence[PlannedRun]) -> None:
    """Note in the folders of the runs where else their metrics are to go; without a word, as before."""
    named = bool(args.wandb_project or args.wandb_group or args.wandb_tags)
    if not (args.tensorboard or args.wandb or named):
        return
    from xtx.training.loggers import Loggers, update_loggers

    for planned in runs:
        if is_finished(out / planned.folder, planned.config):
            continue
        create_run_folder(out / planned.folder, planned.config)
        asked = Loggers(
            tensorboard=args.tensorboard,
            wandb=args.wandb or named,
            project=args.wandb_project,
            group=args.wandb_group or out.name,
            name=planned.folder,
            tags=(*args.wandb_tags, *planned.folder.split("/")[:2]),
        )
        update_loggers(out / planned.folder, asked)


def _run_all(args: Args, out: Path, runs: Sequence[PlannedRun], executor: RunExecutor) -> int:
    console = Console(highlight=False)
    with stop_on_signal() as stop, SweepDisplay(console) as show:
        stop.show = lambda: show.is_live  # which says so itself
        scheduler = Scheduler(out.absolute(), runs, executor, args.retries, show.tell)

        def is_stop_asked() -> bool:
            if stop.is_requested:
                show.show_stopping()
            return stop.is_requested

        scheduler.run_all(show.show, is_stop_asked)
    items = scheduler.items
    print_result(console, items, out)
    return _print_next_steps(console, items, out)


def _print_next_steps(console: Console, items: Sequence[SweepRun], out: Path) -> int:
    """Gives the exit status."""
    states = {item.state for item in items}
    same_command = format_command(*sys.argv[1:])

    def say(line: str, command: str) -> None:
        console.print(f"xtx: {line}:\n  {command}", soft_wrap=True, markup=False)

    if RunState.STOPPED in states:
        say("stopped and saved; go on with the same command", same_command)
        return 130
    if RunState.FAILED in states:
        say("some runs failed; fix what is wrong and retry them with the same command", same_command)
        return SOME_FAILED
    say("all runs are finished; see them beside the paper's", format_command("report", out))
    return 0
