"""`xtx evaluate`: how well does a run's agent play when it no longer learns?"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tyro.conf import Positional, arg

from xtx.cli.option_numbers import check_seed
from xtx.cli.runs.agent_loading import LoadedAgent, PlayOptions, Which, load_agent
from xtx.config.bounds import check_least
from xtx.config.settings import Actions
from xtx.core import UserError, escape_controls, warn
from xtx.files.atomic_writes import replace_text
from xtx.files.regular_files import check_regular, open_append
from xtx.report.data.load_runs import explain_unreadable, find_run_folders
from xtx.report.number_format import format_amount
from xtx.terminal.progress_panel import LINE_EVERY

if TYPE_CHECKING:
    from xtx.training.evaluation import EpisodeOutcome, EvaluationFigures

EPISODES = 100
FILE = "evaluation.json"
ALL = "evaluations.jsonl"
_BARS = 12
"""Rows of the histogram, at most."""
_BAR_WIDTH = 30


@dataclass(frozen=True)
class Args:
    """Lets a run's agent play without learning, and says how well it does and where its episodes end.

    The figures are also written to evaluation.json in the run's folder, and added to its evaluations.jsonl.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder, or a folder with runs in it: then each of them is evaluated."""
    episodes: Annotated[int | None, arg(metavar="N")] = None
    """Episodes to play; if not given 100, or one where all would be the same (--greedy in a deterministic run)."""
    greedy: bool = False
    """Always take the likeliest action instead of drawing one as in training."""
    checkpoint: Which = "newest"
    """Which state of the agent: the last one, or the one at its best mean score."""
    actions: Actions | None = None
    """What is tried for valid actions; if not given, what the agent was trained with."""
    seed: Annotated[int | None, arg(metavar="N")] = None
    """For stochastic runs: another number gives other games, never those of the training; 0 if not given."""
    no_save: bool = False
    """Do not write evaluation.json."""
    options: Annotated[PlayOptions, arg(name="")] = field(default_factory=PlayOptions)


def run(args: Args) -> int:
    """0, 2 if one of several runs could not be evaluated, or 130 if Ctrl-C stopped it."""
    args.options.check()
    check_least(args, episodes=1)
    check_seed(args.seed)
    if (args.run / "config.json").exists() or not args.run.is_dir():
        return _evaluate(args)
    folders = sorted(find_run_folders(args.run))
    if not folders:
        raise UserError(f"{args.run}: there is no run in it; give the folder of a run, or one with runs in it")
    status = 0
    for number, folder in enumerate(folders, 1):
        print(f"{chr(10) * (number > 1)}{escape_controls(str(folder))} ({number} of {len(folders)})", flush=True)
        try:
            ended = _evaluate(replace(args, run=folder))
        except (UserError, OSError) as error:
            warn(f"left out: {explain_unreadable(folder, error)}")
            status = 2
        else:
            if ended:
                return ended
    return status


def _evaluate(args: Args) -> int:
    loaded = load_agent(args.run, args.checkpoint, args.options, args.actions)
    stochastic = loaded.config.stochastic
    if args.seed is not None and not stochastic:
        raise UserError("--seed is for stochastic runs; in this one every episode has the same emulator seed")
    if not args.no_save and not os.access(args.run, os.W_OK):
        raise UserError(f"{args.run} cannot be written, so nothing can be saved there; add --no-save")
    if not args.no_save:
        check_regular(args.run / ALL)  # now, and not after minutes of playing
    # The likeliest action in a game without chance: every episode is the same.
    wanted = args.episodes or (1 if args.greedy and not stochastic else EPISODES)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(
        f"xtx: {loaded.config.agent} plays {loaded.game_setup.name}, {format_amount(wanted, 'episode')}"
        f"{', always the likeliest action' if args.greedy else ''}; trained for {loaded.step:,} steps; "
        f"actions: {loaded.game_setup.spec.actions}",
        soft_wrap=not console.is_terminal,
    )
    began = time.monotonic()
    played, finished = _play(args, loaded, wanted, console)
    if not finished and not played:
        raise KeyboardInterrupt

    from xtx.training.evaluation import compute_figures

    found = compute_figures(played, loaded.game_setup.max_score)
    show(found, console)
    if not finished:
        console.print(
            f"xtx: interrupted after {len(played)} of {wanted} episodes; short ones end first, so these figures are "
            "not those of all, and nothing was saved",
            soft_wrap=True,
        )
        return 130
    if not args.no_save:
        path = save(args, loaded, played, found, time.monotonic() - began)
        console.print(f"Written to {path}", soft_wrap=True)
    return 0


def _play(args: Args, loaded: LoadedAgent, wanted: int, console: Console) -> tuple[list[EpisodeOutcome], bool]:
    """The episodes that were played to their end, and whether those are all."""
    from xtx.training.evaluation import draw_evaluation_seeds, play

    played: list[EpisodeOutcome] = []
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[steps]:,} steps"),
    )  # fmt: skip
    steps, told = 0, time.monotonic()
    try:
        with (
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
            loaded.open_vector(min(loaded.config.num_envs, wanted), args.options.workers) as games,
        ):
            task = progress.add_task("episodes", total=wanted, steps=0)

            def on_step(count: int) -> None:
                nonlocal steps, told
                steps += count
                progress.update(task, steps=steps)
                if not console.is_terminal and time.monotonic() - told > LINE_EVERY:
                    told = time.monotonic()
                    console.print(f"{len(played)} of {wanted} episodes, {steps:,} steps", soft_wrap=True)

            seeds = draw_evaluation_seeds(loaded.config, games.walkthrough_seed, loaded.seeds_drawn, args.seed or 0)
            for episode in play(loaded.agent, games, seeds, wanted, greedy=args.greedy, on_step=on_step):
                played.append(episode.make_outcome())
                progress.advance(task)
    except KeyboardInterrupt:
        return played, False
    return sorted(played, key=lambda episode: episode.number), True


# --- what came of it --------------------------------------------------------------------------------------------


def show(found: EvaluationFigures, console: Console) -> None:
    """Prints the figures."""
    most = f" of {found.max_score}" if found.max_score > 0 else ""
    table = Table.grid(padding=(0, 3))
    table.add_row("Avg", f"{found.score_mean:.2f} ± {found.score_std:.2f}{most}", _format_share(found.normalised_mean))
    table.add_row("Max", f"{found.score_max}{most}", _format_share(found.normalised_max))
    table.add_row("steps", f"{found.length_mean:.1f} an episode")
    words = {"won": "won", "died": "ended without winning", "limit": "stopped at the step limit"}
    table.add_row("ends", ", ".join(f"{count} {words[ended]}" for ended, count in found.ended.items() if count))
    console.print(table)
    console.print("\nfinal scores")
    rows = build_histogram(found.scores)
    tallest = max(count for _, count in rows)
    for label, count in rows:
        console.print(f"  {label:>9}  {'█' * max(1, round(_BAR_WIDTH * count / tallest))} {count}", soft_wrap=True)
    console.print("\nwhere episodes ended")
    for end in found.ends:
        console.print(
            f"  {end.count:>4} x {words[end.ended]}, {end.score:.1f} points on average: {end.place or '?'}",
            no_wrap=True, overflow="ellipsis",
        )  # fmt: skip
        console.print(f"         {' '.join(end.text.split())}", no_wrap=True, overflow="ellipsis")


def build_histogram(scores: dict[int, int]) -> list[tuple[str, int]]:
    """Labels and counts of a histogram: one row for each score, or ranges of scores where those are many."""
    if len(scores) <= _BARS:
        return [(str(score), count) for score, count in scores.items()]
    low, high = min(scores), max(scores)
    width = -(-(high - low + 1) // _BARS)
    rows = []
    for start in range(low, high + 1, width):
        count = sum(n for score, n in scores.items() if start <= score < start + width)
        if count:
            rows.append((f"{start}..{start + width - 1}" if width > 1 else str(start), count))
    return rows


def save(
    args: Args, loaded: LoadedAgent, played: list[EpisodeOutcome], found: EvaluationFigures, seconds: float
) -> Path:
    """The file that now holds the figures: what was done, what came of it, and the episodes they were made from."""
    config = loaded.config
    content: dict[str, Any] = {
        "agent": config.agent,
        "game": loaded.game_setup.name,
        "trained_steps": loaded.step,
        "checkpoint": args.checkpoint,
        "greedy": args.greedy,
        "stochastic": config.stochastic,
        "actions": loaded.game_setup.spec.actions,
        "seed": (args.seed or 0) if config.stochastic else None,
        "num_envs": min(config.num_envs, len(played)),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seconds": round(seconds, 1),
        "figures": asdict(found),
        "played": [
            {"score": e.score, "length": e.length, "ended": e.ended, "seed": e.seed, "place": e.place} for e in played
        ],
    }
    path = args.run / FILE
    replace_text(path, json.dumps(content, indent=1) + "\n")
    del content["played"]
    with open_append(args.run / ALL) as file:  # reports show all, one by one
        file.write(f"{json.dumps(content)}\n".encode())
    return path


def _format_share(share: float | None) -> str:
    return "" if share is None else f"normalised {share:.3f}"
