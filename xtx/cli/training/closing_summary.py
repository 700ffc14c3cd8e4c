"""The result of a run, for a first-time user."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from xtx.core import EPISODES_OF_MEAN, Brief, EpisodeRecord, NoSettings
from xtx.files.atomic_writes import write_atomically
from xtx.games.game_setup import GameSetup
from xtx.report.data.statistics import compute_running_average, read_curve
from xtx.runs.line_files import read_episodes
from xtx.runs.run_folder import Run
from xtx.terminal.shell_command import format_command

WIDTH, HEIGHT = 56, 10
"""Characters of the curve: its lines fit into 80 with the numbers of a run of a million steps."""
RANDOM_EPISODES = 64


def print_summary(console: Console, run: Run, game_setup: GameSetup, seconds: str) -> None:
    """Prints the score over time, the best episode, and what to try next."""
    config = run.config
    try:
        episodes = read_episodes(run.folder)
    except (msgspec.MsgspecError, OSError) as error:
        console.print(f"\nDone in {seconds}; {run.folder / 'episodes.jsonl'} is damaged ({error}).")
        return
    console.print(f"\nDone in {seconds}: {config.steps:,} steps, {len(episodes):,} episodes.")
    if not episodes:
        console.print("No episode ended in that time; try more --steps.")
        return
    curve = score_curve(episodes, config.steps)
    for line in draw(curve, config.steps):
        console.print(line, markup=False)
    best = max(episodes, key=lambda episode: episode.score)
    last = [episode.score for episode in episodes[-EPISODES_OF_MEAN:]]
    where = f"of {game_setup.max_score} points"
    rows = [
        (f"{config.agent}, mean of its last {len(last)} episodes", f"{np.mean(last):.1f}"),
        (f"{config.agent}, best episode (after {best.step:,} steps)", f"{best.score}"),
    ]
    if config.agent.endswith("-demo"):
        rows.append(
            (f"any valid action at random, mean of {RANDOM_EPISODES}", f"{measure_random_mean(game_setup):.1f}")
        )
    if game_setup.walkthrough:
        rows.append((f"the walkthrough, in {len(game_setup.walkthrough)} moves", f"{game_setup.max_score}"))
    width = max(len(name) for name, _ in rows)
    for name, score in rows:
        console.print(f"  {name:{width}}  {score:>6} {where}")
    title = f"{config.agent} learns {game_setup.name} ({game_setup.max_score} points at most)"
    picture = save_picture(run.folder, title)
    commands = {
        format_command("best", run.folder): "read the best episode",
        format_command("play", "--agent", run.folder): "watch the trained agent play",
        format_command("evaluate", run.folder): "see how well it plays now",
        format_command("games"): "find out which other games there are",
    }
    lines = ["What to try next:", *join_columns(commands, console.width)]
    lines += [f"The curve as a picture: {picture}"] if picture else []
    console.print("\n".join(lines), soft_wrap=True)


def join_columns(commands: Mapping[str, str], width: int) -> list[str]:
    """Commands with what they do beside them, or above them where that is too wide: then nothing is broken that is to
    be copied."""
    most = max(map(len, commands))
    rows = [f"  {command:{most}}   {text}" for command, text in commands.items()]
    if max(map(len, rows)) <= width:
        return rows
    return [line for command, text in commands.items() for line in (f"  {text}:", f"    {command}")]


def score_curve(episodes: list[EpisodeRecord], steps: int) -> NDArray[np.float64]:
    """[WIDTH, 2]: mean score of the last 100 episodes, and best score, at that many moments of the run."""
    ends = np.array([episode.step for episode in episodes])
    scores = np.array([episode.score for episode in episodes], np.float64)
    moments = (np.arange(WIDTH) + 1) * steps / WIDTH
    columns = (compute_running_average(scores), np.maximum.accumulate(scores))
    return np.stack([read_curve(ends, values, moments) for values in columns], axis=1)


def draw(curve: NDArray[np.float64], steps: int) -> list[str]:
    """The curve in characters: means as blocks, the best score as a line above them. The axis ends at the best score,
    not at the game's maximum, of which many runs come to a small part."""
    bottom = min(0.0, float(np.nanmin(curve)))
    top = max(float(np.nanmax(curve)), bottom + 1.0)
    scale = (HEIGHT * 8 - 1) / (top - bottom)
    lines = []
    for row in range(HEIGHT, 0, -1):
        cells = []
        for mean, best in curve:
            if np.isnan(mean):
                cells.append(" ")
                continue
            eighths = int((mean - bottom) * scale) + 1 - (row - 1) * 8
            line = int((best - bottom) * scale) // 8 == row - 1
            cells.append("▁▂▃▄▅▆▇█"[min(eighths, 8) - 1] if eighths > 0 else "─" if line else " ")
        label = f"{bottom + (top - bottom) * row / HEIGHT:6.0f}" if row in (HEIGHT, HEIGHT // 2) else " " * 6
        lines.append(f"{label} │{''.join(cells)}")
    lines.append(f"{bottom:6.0f} └{'─' * len(curve)} {steps:,} steps")
    lines.append(f"        blocks: mean score of the last {EPISODES_OF_MEAN} episodes; line: best score so far")
    return lines


def measure_random_mean(game_setup: GameSetup) -> float:
    """The mean score of an agent that takes any valid action, in episodes of 100 steps."""
    from xtx.agents.random import RandomAgent
    from xtx.games.vector.game_vector import GameVector
    from xtx.training.evaluation import play

    num_envs = 8
    with contextlib.closing(GameVector(game_setup.spec, num_envs)) as vector:
        agent = RandomAgent(NoSettings(), Brief(num_envs, seed=0))
        episodes = play(agent, vector, itertools.repeat(vector.walkthrough_seed), RANDOM_EPISODES)
        return float(np.mean([episode.score for episode in episodes]))


def save_picture(folder: Path, title: str) -> Path | None:
    """The learning curve as score.png in the run's folder, where matplotlib is installed; else None."""
    from xtx.report.data.load_runs import read_run
    from xtx.report.pages.by_run import make_learning_figure
    from xtx.report.plots.png_plots import to_png

    run = read_run(folder)
    path = folder / "score.png"
    try:
        write_atomically(path, to_png(make_learning_figure(run, "score", run.config.agent, 0).plot, title))
    except ImportError:
        return None
    return path
