"""`xtx bench`: the real training loop on a game, and where its time goes."""

from __future__ import annotations

import contextlib
import math
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from xtx.agents.registry import make_preset
from xtx.cli.training.training_session import TrainOptions
from xtx.config.settings import Actions, RunConfig, get_default_actions
from xtx.core import UserError, warn
from xtx.files.bounded_reads import BadFileError, read_json_lines
from xtx.training.prepare import check_config, prepare, resolve_game_name

TRAINING = "imitation training"


@dataclass(frozen=True)
class Args:
    """Trains for a while in a folder that is thrown away, and shows where the time went; or shows that of a run."""

    USUAL: ClassVar = ("agent", "steps", "warmup", "actions", "run", "device", "workers")

    game: Annotated[Positional[str], arg(metavar="GAME")] = ""
    """A game's name, or the path of a story file; the adventure that comes with xtx if not given."""
    agent: Annotated[str, arg(metavar="NAME")] = "xtx"
    """What learns: see `xtx agents`."""
    steps: int = 8000
    """Game steps that are measured; at least 4000 vector steps show imitation training of the paper's settings."""
    warmup: int = 800
    """Game steps before that, which are not."""
    seed: int = 0
    """Where all random numbers begin."""
    num_envs: Annotated[int, arg(aliases=("--games",))] = 8
    """Copies of the game that are stepped together."""
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
    actions: Actions | None = None
    """What is tried for valid actions; if not given, what `xtx train` tries with this agent."""
    run: Annotated[Path | None, arg(metavar="DIR")] = None
    """Train nothing: show where the time of the run in this folder went, over all its starts."""
    options: Annotated[TrainOptions, arg(name="")] = field(default_factory=TrainOptions)


def run(args: Args) -> None:
    """Prints the table."""
    if args.run is not None:
        print_run(Console(highlight=False), args.run)
        return
    if args.steps < 1 or args.warmup < 0:
        raise UserError("--steps takes a number from 1, --warmup from 0")
    name = Path(args.game).stem.lower()
    config = RunConfig(
        game=resolve_game_name(args.game),
        agent=args.agent,
        settings=asdict(make_preset(args.agent, name)),
        seed=args.seed,
        steps=args.steps + args.warmup,
        num_envs=args.num_envs,
        extra_actions=args.extra_actions,
        actions=args.actions or get_default_actions(args.agent),
    )
    check_config(config)
    resources = args.options.to_resources()
    run_parts = prepare(config, resources)
    from xtx.games.vector.worker_pool import WorkTotals
    from xtx.runs.run_folder import Run
    from xtx.training.loop import Training, TrainingProgress
    from xtx.training.session import RestoredRun, open_vector

    clock = run_parts.agent.brief.clock
    console = Console(highlight=False)
    began = [time.perf_counter(), 0.0]
    before = [WorkTotals()]

    def watch(progress: TrainingProgress) -> bool:
        if not began[1] and progress.steps >= args.warmup:
            clock.seconds.clear()
            before[0] = replace(games.totals)
            began[:] = time.perf_counter(), float(progress.steps)
        return True

    with (
        tempfile.TemporaryDirectory() as folder,
        Run.create(Path(folder) / "run", config) as run_,
        contextlib.closing(open_vector(run_, RestoredRun(None), resources, run_parts, warn)) as games,
        console.status(
            f"{args.agent} learns {run_parts.game_setup.name} for {config.steps:,} steps on {run_parts.device} ..."
        ),
    ):
        Training(run_, run_parts.agent, games, checkpoint_seconds=resources.checkpoint_seconds).run(on_step=watch)
        seconds = time.perf_counter() - began[0]
        worked, searched = games.totals.worked - before[0].worked, games.totals.searched - before[0].searched
        searches = games.totals.searches - before[0].searches
    steps, outside = config.steps - int(began[1]), seconds - clock.seconds.get(TRAINING, 0.0)
    _print_table(console, clock.seconds, seconds, steps, config.num_envs)
    console.print(
        f"{steps / seconds:.1f} game steps/s; {steps / outside:.1f} outside imitation training; "
        f"largest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB (without the games' "
        "processes)"
    )
    if worked:
        console.print(
            f"The games' processes were busy for {worked:.1f} s in all: {worked - searched:.1f} s with games, "
            f"{searched:.1f} s with {searches:,} searches; training waited {clock.seconds.get('games', 0.0):.1f} s "
            "for them."
        )


class Spent(msgspec.Struct):
    """Where time went: what is read of a line of timing.jsonl, and the sum of several."""

    step: int = 0
    """Game steps so far."""
    parts: dict[str, float] = {}
    """Seconds by part of the loop."""
    searches: int = 0
    searched: float = 0.0
    """Seconds of all processes that searched."""


def sum_starts(lines: Iterable[Spent]) -> Spent:
    """What all starts of a run have spent together. Each start counts its seconds from 0, and what it has spent after
    its last line is not known."""
    last: list[Spent] = []
    for line in lines:
        if last and sum(line.parts.values()) >= sum(last[-1].parts.values()):
            last.pop()
        last.append(line)
    parts: Counter[str] = Counter()
    for line in last:
        parts.update(line.parts)
    steps = last[-1].step if last else 0
    return Spent(steps, dict(parts), sum(line.searches for line in last), sum(line.searched for line in last))


def list_quarter_shares(lines: Iterable[Spent]) -> list[float]:
    """Return the share of imitation training in the time of each quarter of a run's steps so far; nan for a quarter
    without a line."""
    kept = list(lines)
    total = max((line.step for line in kept), default=0)
    seconds, training = [0.0] * 4, [0.0] * 4
    before: Mapping[str, float] = {}
    for line in kept:
        if sum(line.parts.values()) < sum(before.values()):
            before = {}  # another start, which counts from 0
        quarter = min(3, max(0, line.step - 1) * 4 // max(1, total))
        seconds[quarter] += sum(line.parts.values()) - sum(before.values())
        training[quarter] += line.parts.get(TRAINING, 0.0) - before.get(TRAINING, 0.0)
        before = line.parts
    return [part / whole if whole else math.nan for part, whole in zip(training, seconds, strict=True)]


def print_run(console: Console, folder: Path) -> None:
    """Print the table of a run that is kept in a folder, or still goes on there."""
    from xtx.runs.run_config import read_config

    config = read_config(folder)
    path = folder / "timing.jsonl"
    try:
        lines = list(read_json_lines(path, Spent))
    except (BadFileError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); give the folder of another run") from None
    spent = sum_starts(lines)
    seconds = sum(spent.parts.values())
    training = spent.parts.get(TRAINING, 0.0)
    if not spent.step or not seconds > training:
        raise UserError(f"{path} does not say where time went; a run writes that every {config.log_every} vector steps")
    _print_table(console, spent.parts, seconds, spent.step, config.num_envs)
    console.print(
        f"{spent.step / seconds:.1f} game steps/s; {spent.step / (seconds - training):.1f} outside imitation training, "
        f"which took {training / seconds:.0%}; {spent.searches:,} searches took {spent.searched:.1f} s in all"
    )
    if training:
        quarters = ", ".join("-" if math.isnan(share) else f"{share:.0%}" for share in list_quarter_shares(lines))
        console.print(f"Imitation training's share in each quarter of these steps: {quarters}")


def _print_table(console: Console, parts: Mapping[str, float], seconds: float, steps: int, num_envs: int) -> None:
    table = Table(title=f"{steps:,} game steps in {seconds:.1f} s")
    for title in ("part", "seconds", "share", "ms per vector step"):
        table.add_column(title, justify="left" if title == "part" else "right")
    rows = sorted(parts.items(), key=lambda item: -item[1])
    if seconds > sum(parts.values()):
        rows.append(("the loop itself", seconds - sum(parts.values())))
    for name, spent in rows:
        table.add_row(name, f"{spent:.2f}", f"{spent / seconds:.1%}", f"{1000 * spent * num_envs / steps:.2f}")
    console.print(table)
