"""One game: how its agents learned, and how far through the game they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xtx.report.data import statistics as stats
from xtx.report.data.episode_digest import ROUND_STEPS
from xtx.report.data.game_facts import GameFacts
from xtx.report.data.load_runs import RunData
from xtx.report.data.paper_tables import read_paper
from xtx.report.data.run_groups import Board, Group, Variant
from xtx.report.number_format import DASH, format_amount, format_count, format_duration, format_number, format_percent
from xtx.report.pages import milestones
from xtx.report.pages.averages import AVG, AVG_OF_ALL
from xtx.report.pages.beside_paper import find_reference, format_over_seeds
from xtx.report.pages.document import Block, Cell, Figure, Gallery, Row, Section, Table, Text
from xtx.report.plots.room_layout import lay_out, make_chart, merge_in_order
from xtx.report.plots.room_map import MapPlot
from xtx.report.plots.svg_plots import Line, LinePlot

POINTS = 160
"""Of a learning curve."""
MAX_UNFOLDED = 2
"""Games that are shown at once."""


def make_sections(board: Board, maps: bool = True) -> list[Section]:
    """One for each game; folded where there are many."""
    sections = [_make_section(board, variant, maps) for variant in board.variants]
    return [replace(section, folded=True) for section in sections] if len(sections) > MAX_UNFOLDED else sections


def make_training_plots(board: Board) -> Section:
    """One plot for each game, all together."""
    figures = []
    for variant in board.variants:
        groups = board.list_groups(variant)
        plot = make_learning_plot(board, variant, groups, find_reference(groups))
        figures.append(Figure(f"training-{variant.title}", plot, variant.title))
    text = f"Mean final score of the last 100 episodes.{_explain_lines(figures)}"
    return Section("Training", [Text(text), Gallery(figures)])


def _explain_lines(figures: Sequence[Figure]) -> str:
    """What is to be seen in the plots beside the curves."""
    plots = [figure.plot for figure in figures if isinstance(figure.plot, LinePlot)]
    kinds = {
        "bands: ± one standard deviation over seeds": any(
            line.low is not None for plot in plots for line in plot.lines
        ),
        "dashed: the paper's Avg": any(plot.reference for plot in plots),
        "dotted: the most that there is": any(plot.shows_top() for plot in plots),
    }
    told = "; ".join(words for words, holds in kinds.items() if holds)
    return f" {told[0].upper()}{told[1:]}." if told else ""


def make_learning_plot(
    board: Board, variant: Variant, groups: Sequence[Group], reference: tuple[str, float] | None = None
) -> LinePlot:
    """The learning curves of some agents on a game; `reference` is a line across the plot, with its name."""
    most = max(run.reached for group in groups for run in group.runs)
    # Denser at the beginning, for a logarithmic axis.
    at = np.unique(np.concatenate((np.linspace(0, most, POINTS + 1)[1:], np.geomspace(max(1, most / 2000), most, 40))))
    lines = []
    for group in groups:
        curves = np.stack([_read_curve(run, at) for run in group.runs])
        mean, std = curves.mean(axis=0), curves.std(axis=0)  # NaN where not all runs have come to
        several = len(group.runs) > 1
        low, high = (mean - std, mean + std) if several else (None, None)
        lines.append(Line(group.label, board.colours[group.label], at, mean, low, high))
    top = None if reference else variant.maximum  # which is far above, as a rule
    return LinePlot(lines, "steps", "score", top=top, unit="steps", reference=reference)


def make_training_tables(board: Board) -> Section:
    """The same as figures, one table for each game."""
    text = "Mean final score of the last 100 episodes / best final score so far, after so many steps; means over seeds."
    return Section("Training", [Text(text), *(_make_training_table(board, variant) for variant in board.variants)])


def _make_training_table(board: Board, variant: Variant) -> Section:
    groups = board.list_groups(variant)
    most = max(run.reached for group in groups for run in group.runs)
    at = np.array([*(mark for mark in ROUND_STEPS if most / 100 <= mark < most), most], np.float64)
    columns = []
    for group in groups:
        means = np.stack([_read_curve(run, at) for run in group.runs]).mean(
            axis=0
        )  # NaN where not all runs have come to
        best = np.stack([_read_best(run, at) for run in group.runs]).mean(axis=0)
        pairs = zip(means, best, strict=True)
        columns.append(
            [DASH if np.isnan(m) else f"{format_number(m)} / {format_number(b, int(b % 1 > 0))}" for m, b in pairs]
        )
    rows = [Row([format_count(step), *cells]) for step, *cells in zip(at, *columns, strict=True)]
    labels = [group.label for group in groups]
    return Section(variant.title, [Table(("steps", *labels), rows, agents=("", *labels))])


def _read_best(run: RunData, at: stats.Floats) -> stats.Floats:
    return stats.read_curve(run.digest.curve.steps, run.digest.curve.best, at)


def _read_curve(run: RunData, at: stats.Floats) -> stats.Floats:
    curve = stats.read_curve(run.digest.curve.steps, run.digest.curve.mean, at)
    curve[at > run.reached] = np.nan  # not known: the run has not come so far
    return curve


def _make_section(board: Board, variant: Variant, maps: bool) -> Section:
    groups = board.list_groups(variant)
    header = ("agent", AVG, AVG_OF_ALL, "Max", "episodes", "steps/s", "time")
    rows = [_make_row(group) for group in groups]
    blocks: list[Block] = [Table(header, rows), milestones.make_section(groups), *milestones.make_evaluations(groups)]
    blocks += _make_maps(groups) if maps else []
    facts = variant.facts
    if facts and facts.events:
        blocks += _make_progress(groups, facts)
    else:
        blocks.append(Text("No walkthrough of this game is at hand, so there is no progress along it to show."))
    best = max(float(group.max.max()) for group in groups)
    of = f" of {format_count(variant.maximum)}" if variant.maximum else ""
    hint = f"{format_amount(len(groups), 'agent')} · best final score {format_count(best)}{of}"
    return Section(variant.title, blocks, hint=hint)


def _make_row(group: Group) -> Row:
    speeds = [run.speed for run in group.runs if run.speed]
    times = [run.time.total for run in group.runs if run.time]
    return Row(
        [
            group.label,
            format_over_seeds(group.avg_by_env),
            format_over_seeds(group.avg),
            format_over_seeds(group.max),
            format_count(float(np.mean([run.digest.episodes for run in group.runs]))),
            format_number(float(np.mean(speeds)), 0) if speeds else DASH,
            format_duration(float(np.mean(times))) if times else DASH,
        ],
        group.label,
    )


def make_statistics(board: Board) -> Section | None:
    """The paper's table of how hard its games are, for the games here; None where no walkthrough is at hand."""
    games = {variant.game: variant.facts for variant in board.variants if variant.facts}
    rows = []
    for game, facts in games.items():
        if facts.between_rewards is not None:
            mean, largest = facts.between_rewards
            paper = read_paper().between_rewards.get(game, (DASH, DASH))
            counts = [format_count(facts.maximum), str(facts.walkthrough_steps), str(len(facts.events))]
            rows.append(Row([game, *counts, format_number(mean), str(paper[0]), str(largest), str(paper[1])]))
    if not rows:
        return None
    has_paper = any(row.cells[0] in read_paper().between_rewards for row in rows)
    counted = ", counted as the paper counts them (docs/fidelity.md says where that differs)" if has_paper else ""
    text = (
        "Along each game's walkthrough: its steps, the reward events in it, and the steps between rewards, on average "
        f"and at most{counted}."
    )
    header = ("game", "maximum", "steps", "reward events", "between rewards, mean", "paper", "largest", "paper")
    table = Table(header, rows)
    return Section("Game statistics", [Text(text), table if has_paper else table.drop_columns(["paper"])])


# --- the map ----------------------------------------------------------------------------------------------------


def _make_maps(groups: list[Group]) -> list[Block]:
    """One map for each agent, all laid out alike; also of runs whose figures are not counted."""
    found = {group: merge_in_order(run.moves for run in (*group.runs, *group.left_out)) for group in groups}
    found = {group: moves for group, moves in found.items() if moves}
    lacking = [group.label for group in groups if group not in found and any(run.is_summary for run in group.runs)]
    whose = "" if len(lacking) == len(groups) else f" of {', '.join(lacking)}"
    why = f"No map{whose}: the runs are here as summaries, which hold no rooms."
    if not found:
        return [Text(why)] if lacking else []
    everything = merge_in_order(found.values())
    places = lay_out(everything)
    latest = max(move.step for move in everything)
    figures = []
    for group, moves in found.items():
        known = make_chart(moves)
        caption = f"{group.label}: {format_amount(len(known.first), 'room')}, {format_amount(len(known.ways), 'way')}"
        plot = MapPlot(known, places, latest)
        figures.append(Figure(f"map-{group.variant.title}-{group.label}", plot, caption, group.label))
    rooms = len(make_chart(everything).first)
    text = (
        f"The {format_amount(rooms, 'room')} that agents found, coloured by the steps of training after which one of "
        "the agent's runs first came there. A room is what the game calls it; lines are actions that led from one to "
        "another, dashed where no way back was found; empty boxes are rooms that other agents found."
    )
    if rooms > len(places):
        text += f" The first {len(places)} are drawn."
    if lacking:
        text += f" {why}"
    return [Section("Map", [Text(text), Gallery(figures)])]


# --- scores along the walkthrough ----------------------------------------------------------------------------------


def _make_progress(groups: list[Group], facts: GameFacts) -> list[Block]:
    rows = []
    highest = max(run.digest.peak for group in groups for run in group.runs)
    beyond = [event for event in facts.events if event.score > highest]
    for event in facts.events:
        if event in beyond[1:]:
            break
        cells = [_make_event_cell(group, event.score) for group in groups]
        how = f"the walkthrough has it at step {event.step}, by: {event.action}; agents may have it in another way"
        name = Cell(format_amount(event.score, "point"), how)
        rows.append(Row([name, *cells]))
    if len(beyond) > 1:
        more = format_amount(len(beyond) - 1, "more score")
        rows.append(Row([f"{more}, up to {beyond[-1].score} points, which no agent reached"], kind="group"))
    text = (
        "The scores that the walkthrough comes to, in order, and for each agent: in which share of its last 100 "
        "episodes it had at least that score at some time · after how many steps of training it first did (mean over "
        "the seeds that did, and how many did). Runs record scores, not how they were reached, so a row does not say "
        "what an agent did for them."
    )
    labels = [group.label for group in groups]
    table = Table(("score", *labels), rows, agents=("", *labels))
    return [Section("Scores along the walkthrough", [Text(text), table])]


def _make_event_cell(group: Group, score: int) -> Cell:
    """In which share of the last episodes that score was had, and after how many steps first: means over seeds."""
    firsts = [first.steps for run in group.runs if (first := run.digest.find_first_having(score)) is not None]
    if not firsts:
        return Cell(DASH)
    steps, seeds, of = format_count(float(np.mean(firsts))), len(firsts), len(group.runs)
    share = float(np.mean([run.digest.compute_share_having(score) for run in group.runs]))
    some_seeds = f" ({seeds}/{of})" if seeds < of else ""
    hint = f"first reached after {steps} steps by {seeds} of {format_amount(of, 'seed')}"
    return Cell(f"{format_percent(share)} · {steps}{some_seeds}", hint, share)
