"""One run: what it was asked for, how it went, and the best it found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from xtx.config.config_file import flatten
from xtx.core import EPISODES_OF_MEAN, EpisodeRecord
from xtx.report.data import statistics
from xtx.report.data.agent_names import shorten_agent
from xtx.report.data.episode_digest import Endings
from xtx.report.data.load_runs import RunData
from xtx.report.data.paper_settings import list_deviations
from xtx.report.data.run_groups import Board
from xtx.report.number_format import DASH, format_amount, format_count, format_duration, format_number, format_percent
from xtx.report.pages.averages import AVG, AVG_OF_ALL
from xtx.report.pages.document import Block, Figure, Gallery, Notes, Row, Section, Table, Text, Transcript
from xtx.report.plots.svg_plots import Line, LinePlot
from xtx.runs.viewer_files import Turn

POINTS = 120
MAX_ROWS = 60
ENDINGS = {"won": "won", "died": "ended by the game", "limit": "step limit"}


FindTurns = Callable[[RunData], Sequence[Turn]]
"""Gives the turns of a run's best episode, if they are known."""


def make_section(
    board: Board, find_turns: FindTurns = lambda run: (), runs: Sequence[RunData] | None = None, title: str = "Runs"
) -> Section:
    """All runs of a board, or those that are given, folded."""
    groups = {run.folder: group for group in board.groups for run in (*group.runs, *group.left_out)}

    def make_one(run: RunData) -> Section:
        group = groups.get(run.folder)  # none if no run of it has an episode
        if group is None:
            return _make_run_section(
                run, shorten_agent(run.config.agent), run.config.game, run.config.game, 0, find_turns
            )
        variant = group.variant
        section = _make_run_section(
            run, group.label, variant.title, variant.game, board.colours[group.label], find_turns
        )
        if run in group.runs:
            return section
        return replace(section, title=f"{section.title} · not counted: {run.folder.name}")

    return Section(title, [make_one(run) for run in (board.runs if runs is None else runs)])


def make_listing(board: Board) -> Section:
    """A line for each run."""
    rows = []
    for variant in board.variants:
        for group in board.list_groups(variant):
            counted = {run.folder for run in group.runs}
            for run in (*group.runs, *group.left_out):
                own = run.digest
                asked = "" if run.finished else f" of {format_count(run.config.steps)}"
                steps = f"{format_count(run.reached)}{asked}"
                pace = format_duration(run.time.total if run.time else None), format_number(run.speed, 0)
                seed = str(run.config.seed) + ("" if run.folder in counted else " (not counted)")
                figures = [*map(format_number, (own.avg_by_env, own.avg))]
                figures += map(format_count, (own.max, own.peak, own.episodes))
                rows.append(Row([variant.title, group.label, seed, steps, *figures, *pace, str(run.folder)]))
    header = ("game", "agent", "seed", "steps", AVG, AVG_OF_ALL, "Max", "peak", "episodes", "time", "steps/s", "from")
    text = Text("Peak: the highest score that any episode had at some time, whatever it ended with.")
    return Section("Runs", [text, Table(header, rows)])


def _make_run_section(run: RunData, label: str, title: str, game: str, colour: int, find_turns: FindTurns) -> Section:
    scored = f" · {AVG} {format_number(run.digest.avg_by_env)}, Max {format_count(run.digest.max)}"
    heading = f"{title} · {label} · seed {run.config.seed}{scored if run.digest.episodes else ''}"
    blocks: list[Block] = [Text(_describe_run(run))]
    if run.notes:
        blocks.append(Notes(run.notes))
    if run.digest.episodes:
        figure = make_learning_figure(run, f"run-{title}-{label}-seed-{run.config.seed}", label, colour)
        blocks += [Gallery([figure]), _make_thresholds(run), _make_endings(run)]
        if run.digest.best and run.digest.best.actions:
            blocks.append(_make_best(run, run.digest.best, find_turns(run)))
    blocks += [_make_settings(run, game), *_make_versions(run)]
    if not run.finished:
        heading += " · not finished"
    return Section(heading, blocks, folded=True, agent=label, key=str(run.folder))


def _describe_run(run: RunData) -> str:
    speed = (
        f", {format_number(run.speed, 0)} steps a second, {format_duration(run.time.total)}"
        if run.speed and run.time
        else ""
    )
    return (
        f"{run.folder}: {format_amount(run.reached, 'step')}, {format_amount(run.digest.episodes, 'episode')}{speed}."
    )


def make_learning_figure(run: RunData, name: str, label: str, colour: int) -> Figure:
    """The learning curve of one run."""
    at = np.linspace(0, run.reached, POINTS + 1)[1:]
    curve = run.digest.curve
    means, best = (statistics.read_curve(curve.steps, values, at) for values in (curve.mean, curve.best))
    lines = [
        Line(label, colour, at, means, is_stepped=True, name=f"mean of the last {EPISODES_OF_MEAN} episodes"),
        Line(label, colour, at, best, is_stepped=True, is_dashed=True, name="best so far"),
    ]
    plot = LinePlot(lines, "steps", "score", unit="steps")
    return Figure(name, plot, "Mean of the last 100 episodes (line), best final score so far (dashed)")


def _make_thresholds(run: RunData) -> Section:
    """Each score that was the highest so far: when an episode first had it, and how usual it is now."""
    firsts = [first for first in run.digest.firsts if first.score > 0] or run.digest.firsts
    if len(firsts) > MAX_ROWS:
        firsts = [firsts[place] for place in np.unique(np.linspace(0, len(firsts) - 1, MAX_ROWS).astype(int))]
    rows = []
    for first in firsts:
        share = format_percent(run.digest.compute_share_having(first.score))
        when = [format_count(first.steps), format_duration(first.seconds), format_count(first.usual)]
        rows.append(Row([format_count(first.score), *when, share]))
    header = ("score", "first had after steps", "after time", "mean of 100 reached it after steps", "share of last 100")
    return Section("Scores over time", [Table(header, rows)], folded=True)


def _make_endings(run: RunData) -> Table:
    def make_row(words: str, endings: Endings) -> Row:
        total = max(1, sum(endings.ended.values()))
        shares = [format_percent(endings.ended.get(kind, 0) / total) for kind in ENDINGS]
        return Row([words, *shares, format_number(endings.length)])

    header = ("where episodes ended", *ENDINGS.values(), "mean length")
    late = f"last {min(EPISODES_OF_MEAN, run.digest.episodes)}"
    rows = [make_row("all", run.digest.endings), make_row(late, run.digest.last_endings)]
    return Table(header, rows)


def _make_best(run: RunData, best: EpisodeRecord, turns: Sequence[Turn]) -> Section:
    actions = " › ".join(best.actions)  # noqa: RUF001
    length = format_amount(best.length, "step")
    title = f"Best episode: {best.score} points, {length}, after {best.step:,} steps of training"
    rest: list[Block] = [Transcript(turns)] if turns else []
    if not turns and not run.is_summary:
        rest.append(Text(f"Read it with what the game answered: xtx best {run.folder}"))
    return Section(title, [Text(actions), *rest], folded=True, key="best")


def _make_settings(run: RunData, game: str) -> Section:
    config = run.config
    own = {"game": config.game, "agent": config.agent, "seed": config.seed, "steps": config.steps}
    own |= {"num_envs": config.num_envs, "stochastic": config.stochastic, "extra_actions": config.extra_actions}
    own |= {"actions": config.actions, **flatten(config.settings)}
    other = {line.partition("=")[0] for line in list_deviations(config, game)}
    rows = [Row([name, json.dumps(value), "not the paper's" if name in other else ""]) for name, value in own.items()]
    return Section("Settings", [Table(("setting", "value", ""), rows, has_words=True)], folded=True)


def _make_versions(run: RunData) -> list[Block]:
    if not run.starts:
        return []
    rows = []
    for start in run.starts:
        packages = start.get("packages") or {}
        ran = ", ".join([f"Python {start.get('python', '?')}", *(f"{name} {of}" for name, of in packages.items())])
        machine = f"{start.get('machine', '?')}, {start.get('processors', '?')} processors"
        rows.append(Row([str(start.get("started", DASH)), ran, str(start.get("git") or DASH), machine]))
    table = Table(("started", "with", "git", "machine"), rows, has_words=True)
    return [Section(f"Versions ({format_amount(len(rows), 'start')})", [table], folded=True)]
