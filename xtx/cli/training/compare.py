"""`xtx compare`: train several agents on one game for equally many steps and print their scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from xtx.cli.training import sweep
from xtx.sweep.sweep_file import read_spec

_READY = read_spec("compare")


@dataclass(frozen=True)
class Args:
    """Trains several agents on a game, several at a time, and prints their scores. It is a sweep (`xtx sweep compare`):
    runs that are there already are not made again, and those that were stopped go on."""

    game: Annotated[Positional[str], arg(metavar="GAME")] = ""
    """A game's name, or the path of a story file; the adventure that comes with xtx if not given."""
    agents: Annotated[tuple[str, ...], arg(metavar="NAME...")] = _READY.agents
    """Which agents are compared: see `xtx agents`; or FILE.py:CLASS."""
    steps: int | None = _READY.steps
    """Game steps of each run."""
    seeds: Annotated[tuple[int, ...], arg(metavar="N...")] = _READY.seeds
    """One run of each agent for each of these."""
    full_size: bool = False
    """Use the paper's settings instead of the small ones of the demo."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/compare")
    """Folder of the runs."""
    jobs: Annotated[int | None, arg(metavar="N")] = None
    """Runs at a time; see `xtx sweep`."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks are computed; auto takes GPUs if there are any."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Processes that run the games of each run; if not given, the processors are shared among the runs."""
    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder in which found actions are kept; if not given, in the user's cache folder."""
    no_atlas: bool = False
    """Keep what is found in memory only."""


def run(args: Args) -> int:
    """The exit status of the sweep."""
    chosen = sweep.Args(
        sweep="" if args.full_size else "compare",
        games=(args.game,) if args.game else _READY.games,
        agents=args.agents,
        seeds=args.seeds,
        steps=args.steps,
        out=args.out / "full-size" if args.full_size else args.out,
        jobs=args.jobs,
        device=args.device,
        workers=args.workers,
        atlas=args.atlas,
        no_atlas=args.no_atlas,
    )
    return sweep.run(chosen)
