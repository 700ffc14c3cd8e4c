"""`xtx bench`: the real training loop on a game, and where its time goes."""

from __future__ import annotations

import contextlib
import resource
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from xtx.agents import preset
from xtx.commands.session import Means, check_config, lasting_name, prepare
from xtx.config import RunConfig
from xtx.core import UserError

TRAINING = "imitation training"


@dataclass(frozen=True)
class Args:
    """Trains for a while in a folder that is thrown away, and shows where the time went."""

    game: Annotated[Positional[str], arg(metavar="GAME")] = ""
    """A game's name, or the path of a story file; the adventure that comes with xtx if not given."""
    agent: str = "xtx"
    steps: int = 8000
    """Game steps that are measured; at least 4000 vector steps show imitation training of the paper's settings."""
    warmup: int = 800
    """Game steps before that, which are not."""
    seed: int = 0
    games: int = 8
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
    means: Annotated[Means, arg(name="")] = field(default_factory=Means)


def run(args: Args) -> None:
    """Prints the table."""
    if args.steps < 1 or args.warmup < 0:
        raise UserError("--steps takes a number from 1, --warmup from 0")
    name = Path(args.game).stem.lower()
    config = RunConfig(
        game=lasting_name(args.game),
        agent=args.agent,
        settings=asdict(preset(args.agent, name)),
        seed=args.seed,
        steps=args.steps + args.warmup,
        games=args.games,
        extra_actions=args.extra_actions,
    )
    check_config(config)
    cast = prepare(config, args.means)
    from xtx.games.vector import GameVector
    from xtx.runs import Run
    from xtx.train import Progress, Training

    clock = cast.agent.brief.clock
    console = Console()
    began = [time.perf_counter(), 0.0]
    busy = [0.0, 0.0, 0.0]

    def watch(progress: Progress) -> bool:
        if not began[1] and progress.steps >= args.warmup:
            clock.seconds.clear()
            busy[:] = games.worked, games.searched, games.searches
            began[:] = time.perf_counter(), float(progress.steps)
        return True

    with (
        tempfile.TemporaryDirectory() as folder,
        Run.create(Path(folder) / "run", config) as run_,
        contextlib.closing(
            GameVector(
                cast.stage.spec,
                config.games,
                args.means.workers,
                ahead=args.means.ahead,
                tie=args.means.tie_workers == "auto",
            )
        ) as games,
        console.status(f"{args.agent} learns {cast.stage.name} for {config.steps:,} steps on {cast.device} ..."),
    ):
        Training(run_, cast.agent, games, checkpoint_seconds=args.means.checkpoint_seconds).run(on_step=watch)
        seconds = time.perf_counter() - began[0]
        worked, searched, searches = games.worked - busy[0], games.searched - busy[1], games.searches - int(busy[2])
    _print(console, clock.seconds, seconds, config.steps - int(began[1]), config.games)
    if worked:
        console.print(
            f"The games' processes were busy for {worked:.1f} s in all: {worked - searched:.1f} s with games, "
            f"{searched:.1f} s with {searches:,} searches; training waited {clock.seconds.get('games', 0.0):.1f} s "
            "for them.",
            highlight=False,
        )


def _print(console: Console, parts: dict[str, float], seconds: float, steps: int, games: int) -> None:
    table = Table(title=f"{steps:,} game steps in {seconds:.1f} s")
    for title in ("part", "seconds", "share", "ms per vector step"):
        table.add_column(title, justify="left" if title == "part" else "right")
    rows = sorted(parts.items(), key=lambda item: -item[1])
    rows.append(("the loop itself", seconds - sum(parts.values())))
    for name, spent in rows:
        table.add_row(name, f"{spent:.2f}", f"{spent / seconds:.1%}", f"{1000 * spent * games / steps:.2f}")
    console.print(table)
    outside = seconds - parts.get(TRAINING, 0.0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    console.print(
        f"{steps / seconds:.1f} game steps/s; {steps / outside:.1f} outside imitation training; "
        f"largest memory {memory:.2f} GiB (without the games' processes)",
        highlight=False,
    )
