"""Agents compared over several games: aggregate metrics, profiles, probability of improvement, ablations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xtx.report.data import statistics
from xtx.report.data.equal_steps import FAR_ENOUGH, drop_short_groups, find_equal_steps, has_longer_runs
from xtx.report.data.paper_settings import find_paper_steps
from xtx.report.data.row_marks import FEWER
from xtx.report.data.run_groups import Board, Group, Variant
from xtx.report.data.statistics import Estimate, Floats
from xtx.report.number_format import DASH, format_amount, format_count, format_number
from xtx.report.pages.averages import AVG_OF_ALL
from xtx.report.pages.document import Block, Cell, Figure, Gallery, Row, Section, Table, Text
from xtx.report.plots.svg_plots import Bar, BarPlot, Line, LinePlot

ABLATIONS = ("xtx", "xtx-no-mix", "xtx-lambda-0", "xtx-lambda-0.5", "xtx-lambda-1", "xtx-uniform")


@dataclass(frozen=True)
class SharedGames:
    """Agents and the games on which all of them were run, so that their averages can be compared."""

    variants: Sequence[Variant]
    scores: dict[str, list[Floats]]
    """For each agent, its normalised Avg on each of the games, one number for each seed."""
    cut: dict[Variant, list[int]]
    """The games on which some runs are longer than others, and the step at which all are taken there: one, or several
    if some agents play another number of games together."""
    absent: Sequence[str]
    """Agents that were not run on all of these games, or for far fewer steps than others."""

    @property
    def seeds(self) -> tuple[int, int]:
        """Fewest and most seeds of an agent on a game."""
        numbers = [len(game) for games in self.scores.values() for game in games]
        return min(numbers), max(numbers)


def find_shared_games(board: Board, variants: Sequence[Variant]) -> SharedGames | None:
    """The agents and games, each agent run on each game, that make the largest such block; None without any.

    An ablation that was run on one game only must not take the other games from the comparison of the others.
    """
    known = [variant for variant in variants if variant.maximum]
    far = {variant: drop_short_groups(board.list_groups(variant)) for variant in known}
    played = {label: {v: group for v in known for group in far[v] if group.label == label} for label in board.labels}
    best: tuple[int, dict[str, dict[Variant, Group]], list[Variant]] = (0, {}, [])
    for least in sorted({len(games) for games in played.values() if games}, reverse=True):
        busy = {label: games for label, games in played.items() if len(games) >= least}
        shared = [variant for variant in known if all(variant in games for games in busy.values())]
        if len(busy) * len(shared) > best[0]:
            best = len(busy) * len(shared), busy, shared
    size, busy, shared = best
    if not size:
        return None
    groups = {variant: [games[variant] for games in busy.values()] for variant in shared}
    ends = {variant: find_equal_steps(groups[variant]) for variant in shared}
    scores = {
        label: [_normalise(games[variant], ends[variant][label]) for variant in shared] for label, games in busy.items()
    }
    there = {
        group.label for v in known for group in board.list_groups(v) if not has_longer_runs(group, board.list_groups(v))
    }
    absent = [label for label in board.labels if label in there and label not in busy]
    cut = {v: sorted({ends[v][g.label] for g in groups[v] if g.longest > ends[v][g.label]}) for v in shared}
    return SharedGames(shared, scores, {variant: steps for variant, steps in cut.items() if steps}, absent)


def _normalise(group: Group, steps: int) -> Floats:
    return statistics.normalise(group.compute_avg_at(steps), group.variant.maximum or 1)


def make_section(board: Board, stochastic: bool) -> Section | None:
    """The comparison over deterministic or over stochastic games, without Dragon, and folded with it; None where there
    are no two agents that share two games."""
    variants = [variant for variant in board.variants if variant.stochastic == stochastic]
    kind = "-stochastic" if stochastic else ""
    kept = [variant for variant in variants if variant.game != "dragon"]
    blocks: list[Block] = []
    field = _find_comparable_games(board, kept)
    if field is not None:
        blocks += [Text(_explain(field)), *_make_summary(board, field, kind), *_make_improvement(field)]
    with_dragon = _find_comparable_games(board, variants)
    if with_dragon is not None and any(variant.game == "dragon" for variant in with_dragon.variants):
        inner = [Text(_explain(with_dragon)), *_make_summary(board, with_dragon, f"{kind}-with-dragon")]
        blocks.append(Section("With Dragon", inner, folded=True))
    title = f"Across {'stochastic' if stochastic else 'deterministic'} games"
    return Section(title, blocks) if blocks else None


def _find_comparable_games(board: Board, variants: Sequence[Variant]) -> SharedGames | None:
    """A field of at least two agents and two games: a single one has nothing to be compared, or averaged."""
    field = find_shared_games(board, variants)
    return field if field is not None and len(field.variants) > 1 and len(field.scores) > 1 else None


def _explain(field: SharedGames) -> str:
    few, many = field.seeds
    names = ", ".join(variant.title for variant in field.variants)
    seeds = format_amount(few, "seed") if few == many else f"{few} to {many} seeds"
    said = [
        f"Normalised {AVG_OF_ALL} over {format_amount(len(field.variants), 'game')} that all of these "
        f"agents were run on ({names}), {seeds} each. Intervals: 95 %, stratified bootstrap over seeds "
        f"({statistics.RESAMPLES:,} resamples), after Agarwal et al. 2021."
    ]
    if many == 1:
        said.append("With one seed each, nothing can be said of how sure these figures are.")
    elif few == 1:
        said.append("Where a game has one seed, its uncertainty is not in the intervals.")
    if field.cut:
        cut = ", ".join(f"{v.title} {' and '.join(map(format_count, steps))}" for v, steps in field.cut.items())
        said.append(
            f"Where some runs are longer than others, all are taken at a round step that each has come to: {cut}."
        )
    if field.absent:
        few_steps = f"less than {FAR_ENOUGH:.0%} of the longest run's steps"
        said.append(
            f"Left out, because they were not run on all of these, or for {few_steps}: {', '.join(field.absent)}."
        )
    return " ".join(said)


def _make_summary(board: Board, field: SharedGames, name: str) -> list[Block]:
    """Aggregate metrics and performance profiles; `name` is part of the names of the plots' files."""
    cut = statistics.choose_cut(*field.scores.values())
    estimates = {label: statistics.compute_aggregates(games, cut=cut) for label, games in field.scores.items()}
    colours = board.colours
    metrics = list(statistics.AGGREGATES)
    certain = {label: any(len(game) > 1 for game in games) for label, games in field.scores.items()}
    figures = [
        Figure(
            f"aggregate-{metric.replace(' ', '-')}{name}".lower(),
            BarPlot([Bar(a, colours[a], e[metric]) for a, e in estimates.items()], metric, shows_points=True),
            f"{metric} (less is better)" if metric == "optimality gap" else metric,
        )
        for metric in metrics
    ]
    rows = [Row([a, *(format_interval(e[metric], certain[a]) for metric in metrics)], a) for a, e in estimates.items()]
    return [Gallery([*figures, _make_profiles(board, field, name)]), Table(("agent", *metrics), rows)]


def format_interval(estimate: Estimate, certain: bool = True) -> str:
    """A figure with its interval, if one is known."""
    value = format_number(estimate.value, 3)
    return f"{value} ({format_number(estimate.low, 3)} to {format_number(estimate.high, 3)})" if certain else value


def _make_profiles(board: Board, field: SharedGames, name: str) -> Figure:
    colours = board.colours
    lowest = min(float(game.min()) for games in field.scores.values() for game in games)
    thresholds = np.linspace(min(0.0, lowest), 1.0, 101)
    lines = []
    for label, games in field.scores.items():
        profile = statistics.compute_performance_profile(games, thresholds)
        lines.append(Line(label, colours[label], thresholds, profile.share, profile.low, profile.high, is_stepped=True))
    plot = LinePlot(lines, "normalised score", "share of runs above it")
    return Figure(f"performance-profiles{name}", plot, "performance profiles: the share of runs above each score")


def _make_improvement(field: SharedGames) -> list[Block]:
    certain = field.seeds[1] > 1
    rows = []
    for label, games in field.scores.items():
        cells: list[Cell | str] = [label]
        for other, others in field.scores.items():
            if other == label:
                cells.append(DASH)
                continue
            chance = statistics.estimate_improvement(games, others)
            hint = (
                f"95 %: {format_number(chance.low, 2)} to {format_number(chance.high, 2)}"
                if certain
                else "one seed each"
            )
            cells.append(Cell(format_number(chance.value, 2), hint, max(0.0, chance.value - 0.5)))
        rows.append(Row(cells, label))
    text = Text("Probability that a run of the agent at the left beats one of the agent above; ties count half.")
    return [
        Section("Probability of improvement", [text, Table(("agent", *field.scores), rows, agents=("", *field.scores))])
    ]


# --- ablations --------------------------------------------------------------------------------------------------


def make_ablations(board: Board) -> Section | None:
    """Bars for xtx and what is left of it without one of its parts; None if there is no such run."""
    blocks: list[Block] = []
    for stochastic in (False, True):
        known = [v for v in board.variants if v.stochastic == stochastic and v.maximum]
        found = {v: [g for g in drop_short_groups(board.list_groups(v)) if g.agent in ABLATIONS] for v in known}
        found = {v: groups for v, groups in found.items() if len({group.agent for group in groups}) > 1}
        shown = [group for groups in found.values() for group in groups]
        if {group.agent for group in shown} - {"xtx", "xtx-uniform"}:
            labels = [label for label in board.labels if any(group.label == label for group in shown)]
            blocks += _make_ablation_blocks(board, found, labels)
    text = Text(
        "xtx beside xtx with one of its parts changed: no exploration on the way back (no-mix), a fixed share of "
        "exploration without phases (lambda), exploration at random (uniform); on each game at equally many steps."
    )
    return Section("Ablations", [text, *blocks]) if any(isinstance(block, Gallery) for block in blocks) else None


def _make_ablation_blocks(board: Board, found: dict[Variant, list[Group]], labels: Sequence[str]) -> list[Block]:
    colours = board.colours
    ends = {v: find_equal_steps(groups) for v, groups in found.items()}
    shared = [v for v, groups in found.items() if v.game != "dragon" and {g.label for g in groups} >= set(labels)]
    figures = []
    if len(shared) > 1:
        bars = []
        for label in labels:
            groups = [g for v in shared for g in found[v] if g.label == label]
            means = [float(np.clip(_normalise(g, ends[g.variant][label]), 0, 1).mean()) for g in groups]
            bars.append(Bar(label, colours[label], _estimate_spread(means)))
        caption = f"Mean over {len(shared)} games that all of them were run on, ± standard deviation over games"
        name = f"ablations-{'stochastic' if shared[0].stochastic else 'all'}"
        figures.append(Figure(name, BarPlot(bars, "normalised Avg, cut to 0 to 1"), caption))
    for variant, groups in found.items():
        own = {group.label: _estimate_spread(group.compute_avg_at(ends[variant][group.label])) for group in groups}
        plot = BarPlot([Bar(label, colours[label], own[label]) for label in labels if label in own], "Avg")
        steps = max(ends[variant].values())
        fewer = (
            f" ({FEWER} the paper's have {format_count(find_paper_steps('xtx'))})"
            if steps < find_paper_steps("xtx")
            else ""
        )
        spread = ", ± standard deviation over seeds" if any(len(group.runs) > 1 for group in groups) else ", one seed"
        caption = f"{variant.title} at step {format_count(steps)}{fewer}{spread}"
        figures.append(Figure(f"ablations-{variant.title}", plot, caption))
    missing = "" if shared else "There is no game that all of them were run on, so there is no mean over games."
    return [*([Text(missing)] if missing else []), *([Gallery(figures)] if figures else [])]


def _estimate_spread(values: Sequence[float] | Floats) -> Estimate:
    mean, std = statistics.compute_mean_and_std(values)
    return Estimate(mean, mean - std, mean + std)
