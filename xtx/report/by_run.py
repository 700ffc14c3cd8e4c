"""One run: what it was asked for, how it went, and the best it found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from xtx.report import stats
from xtx.report.document import Block, Figure, Gallery, Notes, Row, Section, Table, Text, Transcript
from xtx.report.figures import Line, LinePlot
from xtx.report.groups import Board, deviations, flat
from xtx.report.load import RunData
from xtx.report.stats import LAST
from xtx.report.words import DASH, count, duration, number, percent, some
from xtx.witness import Turn

POINTS = 120
MOST_ROWS = 60
ENDINGS = {"won": "won", "died": "ended by the game", "limit": "step limit"}


FindTurns = Callable[[RunData], Sequence[Turn]]
"""Gives the turns of a run's best episode, if they are known."""


def section(board: Board, find_turns: FindTurns = lambda run: ()) -> Section:
    """All runs, folded."""
    labels = {run.folder: g.label for g in board.groups for run in (*g.runs, *g.left_out)}
    titles = {run.folder: g.variant.title for g in board.groups for run in (*g.runs, *g.left_out)}
    games = {run.folder: g.variant.game for g in board.groups for run in (*g.runs, *g.left_out)}

    def one(run: RunData) -> Section:
        label, game = labels.get(run.folder, run.config.agent), titles.get(run.folder, run.config.game)
        colour = board.colours.get(label, 0)
        return _run(run, label, game, games.get(run.folder, run.config.game), colour, find_turns)

    return Section("Runs", [one(run) for run in board.runs])


def _run(run: RunData, label: str, title: str, game: str, colour: int, find_turns: FindTurns) -> Section:
    scored = f" · Avg {number(stats.average_score(run.scores))}, Max {count(stats.best_score(run.scores))}"
    heading = f"{title} · {label} · seed {run.config.seed}{scored if run.scores.size else ''}"
    blocks: list[Block] = [Text(_summary(run))]
    if run.notes:
        blocks.append(Notes(run.notes))
    if run.scores.size:
        blocks += [_curve(run, label, colour), _thresholds(run), _endings(run)]
        if run.records and run.records[-1].actions:
            blocks.append(_best(run, find_turns(run)))
    blocks += [_settings(run, game), *_versions(run)]
    if not run.finished:
        heading += " · not finished"
    return Section(heading, blocks, folded=True, agent=label, key=str(run.folder))


def _summary(run: RunData) -> str:
    speed = f", {number(run.speed, 0)} steps a second, {duration(run.time.total)}" if run.speed and run.time else ""
    return f"{run.folder}: {some(run.reached, 'step')}, {some(len(run.scores), 'episode')}{speed}."


def _curve(run: RunData, label: str, colour: int) -> Gallery:
    at = np.linspace(0, run.reached, POINTS + 1)[1:]
    best = np.maximum.accumulate(run.scores)
    lines = [
        Line(label, colour, at, stats.curve_at(run.ends, run.average, at), name="mean of the last 100"),
        Line(label, colour, at, stats.curve_at(run.ends, best, at), steps=True, dashed=True, name="best so far"),
    ]
    plot = LinePlot(lines, "steps", "score", unit="steps")
    name = f"run-{run.folder.name}"
    return Gallery([Figure(name, plot, "Mean of the last 100 episodes (line), best final score so far (dashed)")])


def _thresholds(run: RunData) -> Section:
    """Each score that was the highest so far: when an episode first had it, and how usual it is now."""
    highest = np.maximum.accumulate(run.peaks)
    scores = np.unique(highest[highest > 0] if (highest > 0).any() else highest)
    if len(scores) > MOST_ROWS:
        scores = scores[np.unique(np.linspace(0, len(scores) - 1, MOST_ROWS).astype(int))]
    rows = []
    for score in scores:
        step = stats.steps_to(run.ends, run.peaks, float(score))
        usual = stats.steps_to(run.ends, run.average, float(score))
        share = float((run.peaks[-LAST:] >= score).mean())
        seconds = run.time.at(step) if run.time and step is not None else None
        rows.append(Row([count(float(score)), count(step), duration(seconds), count(usual), percent(share)]))
    header = ("score", "first had after steps", "after time", "mean of 100 reached it after steps", "share of last 100")
    return Section("Scores over time", [Table(header, rows)], folded=True)


def _endings(run: RunData) -> Table:
    everything, late = run.endings(), run.endings(LAST)
    length, late_length = float(run.lengths.mean()), float(run.lengths[-LAST:].mean())

    def row(words: str, counts: Counter[str], length: float) -> Row:
        total = sum(counts.values())
        return Row([words, *(percent(counts[kind] / total) for kind in ENDINGS), number(length)])

    header = ("where episodes ended", *ENDINGS.values(), "mean length")
    rows = [row("all", everything, length), row(f"last {min(LAST, len(run.scores))}", late, late_length)]
    return Table(header, rows)


def _best(run: RunData, turns: Sequence[Turn]) -> Section:
    best = run.records[-1]
    actions = " › ".join(best.actions)  # noqa: RUF001
    title = f"Best episode: {best.score} points, {some(best.length, 'step')}, after {best.step:,} steps of training"
    rest = Transcript(turns) if turns else Text(f"Read it with what the game answered: xtx best {run.folder}")
    return Section(title, [Text(actions), rest], folded=True, key="best")


def _settings(run: RunData, game: str) -> Section:
    config = run.config
    own = {"game": config.game, "agent": config.agent, "seed": config.seed, "steps": config.steps}
    own |= {"games": config.games, "stochastic": config.stochastic, "extra_actions": config.extra_actions}
    own |= {"wide_grammar": config.wide_grammar, **flat(config.settings)}
    other = {line.partition("=")[0] for line in deviations(config, game)}
    rows = [Row([name, json.dumps(value), "not the paper's" if name in other else ""]) for name, value in own.items()]
    return Section("Settings", [Table(("setting", "value", ""), rows, words=True)], folded=True)


def _versions(run: RunData) -> list[Block]:
    if not run.starts:
        return []
    rows = []
    for start in run.starts:
        packages = start.get("packages") or {}
        ran = ", ".join([f"Python {start.get('python', '?')}", *(f"{name} {of}" for name, of in packages.items())])
        machine = f"{start.get('machine', '?')}, {start.get('processors', '?')} processors"
        rows.append(Row([str(start.get("started", DASH)), ran, str(start.get("git") or DASH), machine]))
    table = Table(("started", "with", "git", "machine"), rows, words=True)
    return [Section(f"Versions ({some(len(rows), 'start')})", [table], folded=True)]
