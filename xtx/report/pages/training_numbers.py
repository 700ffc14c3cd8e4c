"""Losses, Q-values, intrinsic reward, imitation accuracy and speed over the steps of training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xtx.report.data import statistics
from xtx.report.data.load_runs import RunData
from xtx.report.data.metric_lines import LABELS
from xtx.report.data.run_groups import Board, Group, Variant
from xtx.report.data.statistics import Floats
from xtx.report.pages.document import Figure, Gallery, Section, Text
from xtx.report.plots.svg_plots import Line, LinePlot

SPEED = "steps/s"
INTRINSIC = "intrinsic_reward"
"""Of agents that have none it is always 0, which is not plotted."""
POINTS = 100


def make_sections(board: Board) -> list[Section]:
    """The plots of one game each, folded; without a game of which there is nothing to plot."""
    return [found for variant in board.variants if (found := make_section(board, variant)) is not None]


def make_section(board: Board, variant: Variant) -> Section | None:
    """The plots of a game; None where no run has such numbers."""
    groups = board.list_groups(variant)
    figures = [_make_figure(board, variant, groups, name, label) for name, label in {**LABELS, SPEED: SPEED}.items()]
    shown = [figure for figure in figures if figure is not None]
    if not shown:
        return None
    text = Text(
        "Means over the seeds, of fiftieths of each run (metrics.jsonl); steps/s is that of the working time. "
        "Summaries of earlier versions hold the speed only."
    )
    return Section(variant.title, [text, Gallery(shown)], folded=True)


def _make_figure(board: Board, variant: Variant, groups: Sequence[Group], name: str, label: str) -> Figure | None:
    lines = []
    for group in groups:
        curves = [curve for run in group.runs if (curve := find_curve(run, name)) is not None]
        if not curves or (name == INTRINSIC and not any(values.any() for _, values in curves)):
            continue
        at = np.linspace(0, max(run.reached for run in group.runs), POINTS + 1)[1:]
        values = np.stack([_read_values(curve, at) for curve in curves])
        known = np.isfinite(values).all(axis=0)
        mean = np.where(known, values.mean(axis=0), np.nan)
        lines.append(Line(group.label, board.colours[group.label], at, mean))
    if not any(np.isfinite(line.y).any() for line in lines):
        return None
    return Figure(f"{name.replace('/', '-per-')}-{variant.title}", LinePlot(lines, "steps", label, unit="steps"), label)


def _read_values(curve: tuple[Floats, Floats], at: Floats) -> Floats:
    steps, values = curve
    found = statistics.read_curve(steps, values, at)
    found[at > steps[-1] * 1.05] = np.nan  # beyond what is known
    return found


def find_curve(run: RunData, name: str) -> tuple[Floats, Floats] | None:
    """A number of a run: at these steps it had these values; None if the run does not have it."""
    if name != SPEED:
        return run.numbers.get(name)
    if run.time is None or len(run.time.steps) < 2:
        return None
    places = np.unique(np.linspace(0, len(run.time.steps) - 1, POINTS // 2).astype(int))
    steps, seconds = run.time.steps[places], run.time.seconds[places]
    spent = np.diff(seconds)
    if not (spent > 0).any():
        return None
    speed = np.divide(np.diff(steps), spent, out=np.full(len(spent), np.nan), where=spent > 0)
    known = np.isfinite(speed)
    return steps[1:][known], speed[known]
