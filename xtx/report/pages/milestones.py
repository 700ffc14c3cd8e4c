"""Scores at fixed numbers of steps, how soon an agent came near its best, and what made it easier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xtx.report.data.episode_digest import COMPARED_STEPS, choose_curve_points, has_curve_point
from xtx.report.data.equal_steps import drop_short_groups, find_equal_steps
from xtx.report.data.load_runs import RunData
from xtx.report.data.run_groups import Group
from xtx.report.data.statistics import read_curve
from xtx.report.number_format import DASH, format_amount, format_count, format_number, format_percent
from xtx.report.pages.beside_paper import format_over_seeds
from xtx.report.pages.document import Block, Cell, Row, Section, Table, Text

SHARES = (0.25, 0.5, 0.75)
"""Of an agent's best mean score."""


def make_section(groups: Sequence[Group]) -> Section:
    """The table of a game."""
    ends = find_equal_steps(drop_short_groups(groups))
    furthest = max(group.steps for group in groups)
    marks = [step for step in COMPARED_STEPS if step <= furthest]
    up_to = " and ".join(map(format_count, sorted(set(ends.values()))))
    text = (
        "Mean final score of the last 100 episodes after so many steps; area under that curve up to step "
        f"{up_to}, which all rows with a figure there have come to; steps, in two digits, to 25, 50 and 75 % of the "
        "agent's own best. Handicaps, which a person at the keyboard would not have"
    )
    given = [describe_handicaps(group) for group in groups]
    alike = len(set(given)) == 1
    text += f": {given[0].hint}." if alike else " are in the last column."
    header = [
        "agent",
        *(f"at {step:,}" for step in marks),
        "area under curve",
        *(f"steps to {format_percent(share)}" for share in SHARES),
    ]
    rows = [_make_row(group, marks, ends.get(group.label)) for group in groups]
    if not alike:
        header.append("handicaps")
        rows = [replace(row, cells=[*row.cells, cell]) for row, cell in zip(rows, given, strict=True)]
    return Section("Milestones", [Text(text), Table(header, rows)])


def _make_row(group: Group, marks: Sequence[int], end: int | None) -> Row:
    """`end`: up to which step the area is; None if the group is not compared."""
    cells: list[Cell | str] = [group.label]
    cells += [_score_at(group, step) for step in marks]
    cells.append(DASH if end is None else format_over_seeds(group.compute_area_at(end)))
    for share in SHARES:
        steps = [found for run in group.runs if (found := find_steps_to_share(run, share)) is not None]
        cells.append(format_count(float(f"{np.mean(steps):.2g}")) if steps else DASH)
    return Row(cells, group.label)


def _score_at(group: Group, step: int) -> str:
    """The mean over the seeds, where all of them have come to that step and are known there."""
    if group.steps < step:
        return DASH
    if any(run.is_summary and not has_curve_point(run.digest.curve, run.reached, step) for run in group.runs):
        return DASH
    return format_number(float(group.compute_avg_at(step).mean()))


def find_steps_to_share(run: RunData, share: float) -> float | None:
    """The step at which the mean score of a run first was that share of its highest value; None if that is not above
    zero. The curve is read at the points that summaries hold, so that these give the same."""
    if run.digest.curve.steps.size == 0:
        return None
    at = choose_curve_points(run.reached)
    means = np.nan_to_num(read_curve(run.digest.curve.steps, run.digest.curve.mean, at), nan=-np.inf)
    highest = float(means.max())
    return float(at[np.argmax(means >= share * highest)]) if highest > 0 else None


def describe_handicaps(group: Group) -> Cell:
    """What an agent is given, in a few words, and in more."""
    config = group.runs[0].config
    short, long = [], []
    if not config.stochastic:
        short.append("fixed seed")
        long.append("every episode has the same emulator seed")
    short.append("valid actions")
    whole = "every word of the dictionary" if config.actions == "whole" else "the grammar's templates"
    long.append(f"the commands that change something are given, found by trying {whole}")
    if config.extra_actions:
        short.append("extra actions")
        long.append("actions of the walkthrough are added to the grammar, as in the paper")
    short.append("restore")
    long.append("look, inventory and valid actions are asked from a saved state, and cost no moves")
    return Cell(" · ".join(short), "; ".join(long))


def make_evaluations(groups: Sequence[Group]) -> list[Block]:
    """A line for each evaluation of the runs of a game; nothing without any."""
    rows = [
        Row(
            [
                f"{group.label} · seed {run.config.seed}",
                f"{format_count(one.trained_steps)} ({one.checkpoint})",
                "likeliest" if one.greedy else "drawn",
                format_count(one.figures.episodes),
                f"{format_number(one.figures.score_mean)} ± {format_number(one.figures.score_std)}",
                format_count(one.figures.score_max),
                format_number(one.figures.length_mean),
                one.date[:16].replace("T", " "),
            ],
            group.label,
        )
        for group in groups
        for run in (*group.runs, *group.left_out)
        for one in run.evaluations
    ]
    if not rows:
        return []
    header = ("run", "checkpoint", "actions", "episodes", "Avg", "Max", "mean length", "date")
    text = f"{format_amount(len(rows), 'evaluation')} of agents that did not learn meanwhile; ± is over episodes."
    return [Section("Evaluations", [Text(text), Table(header, rows)])]
