"""`xtx compare`: several agents on one game, with equal steps, in one table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from xtx.agents import find_agent, preset
from xtx.agents.from_file import accept_agent, agent_label
from xtx.commands.session import Means, check_config, lasting_name, resume, train
from xtx.config import QLearning, RunConfig, demo, usual_length
from xtx.core import EpisodeRecord, UserError
from xtx.report.load import read_run
from xtx.runs import checkpoints, read_episodes

LAST = 100
ROSTER = ("random", "drrn", "inv-dy", "xtx-uniform", "xtx")


@dataclass(frozen=True)
class Args:
    """Trains several agents on a game, one after the other, and prints their scores. Runs that are there already are
    not made again, and those that were stopped go on."""

    game: Annotated[Positional[str], arg(metavar="GAME")] = ""
    """A game's name, or the path of a story file; the adventure that comes with xtx if not given."""
    agents: tuple[str, ...] = ROSTER
    """Who is compared: names as in xtx train, or FILE.py:CLASS."""
    steps: int = 30_000
    """Game steps of each run."""
    seeds: tuple[int, ...] = (0,)
    """One run of each agent for each of these."""
    full_size: bool = False
    """Use the paper's settings instead of the small ones of the demo."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/compare")
    """Folder of the runs."""
    means: Annotated[Means, arg(name="")] = field(default_factory=Means)


def run(args: Args) -> int:
    """0, or 130 if Ctrl-C stopped it."""
    if not args.agents or not args.seeds:
        raise UserError("give at least one agent and one seed")
    args = replace(
        args, agents=tuple(dict.fromkeys(map(accept_agent, args.agents))), seeds=tuple(dict.fromkeys(args.seeds))
    )
    for agent in args.agents:
        find_agent(agent)
    for seed in args.seeds:
        for agent in args.agents:
            status = _one(args, agent, seed)
            if status:
                return status
    _print(args)
    return 0


def _folder(args: Args, agent: str, seed: int) -> Path:
    game = Path(lasting_name(args.game)).stem.replace(":", "-")
    size = "-full" if args.full_size else ""
    return args.out / f"{game}-{agent_label(agent)}-{seed}-{args.steps}{size}"


def _one(args: Args, agent: str, seed: int) -> int:
    folder = _folder(args, agent, seed)
    if (folder / "config.json").exists():
        # Without its checkpoints, which may have been deleted to save room, a finished run still counts.
        finished = not checkpoints(folder) and read_run(folder).finished
        return 0 if finished else resume(folder, args.means)
    settings = preset(agent, Path(args.game).stem.lower())
    if not args.full_size and isinstance(settings, QLearning):
        settings = demo(settings)
    config = RunConfig(
        game=lasting_name(args.game), agent=agent, settings=asdict(settings), seed=seed, steps=args.steps,
        games=usual_length(agent)[1],
    )  # fmt: skip
    check_config(config)
    return train(config, folder, args.means)


def _episodes(folder: Path) -> list[EpisodeRecord]:
    try:
        return read_episodes(folder)
    except (msgspec.MsgspecError, OSError) as error:
        raise UserError(f"{folder / 'episodes.jsonl'} is damaged ({error}); delete {folder} to make it anew") from None


def _print(args: Args) -> None:
    table = Table(title=f"{lasting_name(args.game)}, {args.steps:,} steps, seeds {', '.join(map(str, args.seeds))}")
    table.add_column("agent")
    for title in (f"mean of the last {LAST} episodes", "best episode", "episodes"):
        table.add_column(title, justify="right")
    for agent in args.agents:
        runs = [_episodes(_folder(args, agent, seed)) for seed in args.seeds]
        runs = [episodes for episodes in runs if episodes]
        if not runs:
            table.add_row(agent_label(agent), "-", "-", "0")
            continue
        means = [np.mean([e.score for e in episodes[-LAST:]]) for episodes in runs]
        best = [max(e.score for e in episodes) for episodes in runs]
        spread = f" ± {np.std(means):.1f}" if len(runs) > 1 else ""
        table.add_row(
            agent_label(agent),
            f"{np.mean(means):.1f}{spread}",
            f"{np.mean(best):.1f}",
            f"{np.mean([len(episodes) for episodes in runs]):,.0f}",
        )
    Console().print(table)
