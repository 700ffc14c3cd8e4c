"""Tables 1 and 2 of the paper with our figures beside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xtx.report.data.equal_steps import FAR_ENOUGH, find_equal_steps
from xtx.report.data.load_runs import RunData
from xtx.report.data.paper_cells import describe_filled_cells
from xtx.report.data.paper_settings import find_paper_steps
from xtx.report.data.paper_tables import PaperFigures, read_paper
from xtx.report.data.row_marks import Mark, describe_marks, find_common_signs, list_marks, list_marks_of_duplicate
from xtx.report.data.run_groups import Board, Group, Variant
from xtx.report.data.statistics import Floats, compute_mean_and_std, normalise
from xtx.report.number_format import DASH, format_amount, format_count, format_number, format_signed, format_spread
from xtx.report.pages.averages import AVG, AVG_OF_ALL, DEFINITIONS, average_over_games, describe_mean
from xtx.report.pages.document import Block, Cell, Row, Section, Table, Text

BASELINES = ("drrn", "inv-dy", "rc-dqn", "xtx-uniform")
"""The agents against which the paper's Δ is: prior work and XTX-Uniform."""
HEADER = ("agent", AVG, "paper", "difference", AVG_OF_ALL, "Max", "paper", "difference", "seeds", "steps")
PAPER_COLUMNS = ("paper", "difference")


@dataclass(frozen=True)
class Comparison:
    """One agent on one row of the table: ours, the paper's, or both."""

    label: str
    ours: Group | None
    paper: PaperFigures | None


def list_comparisons(board: Board, variant: Variant) -> list[Comparison]:
    """The agents of a game: all that we have, then those that only the paper has."""
    published = variant.published
    ours = [Comparison(group.label, group, published.get(group.agent)) for group in board.list_groups(variant)]
    have = {side.ours.agent for side in ours if side.ours}
    return ours + [Comparison(agent, None, figures) for agent, figures in published.items() if agent not in have]


def find_published(group: Group) -> PaperFigures | None:
    """The paper's figures of an agent on a game, if it has them and our runs are not much shorter."""
    if group.steps < FAR_ENOUGH * find_paper_steps(group.agent):
        return None
    return group.variant.published.get(group.agent)


def find_reference(groups: Sequence[Group]) -> tuple[str, float] | None:
    """The paper's highest Avg of the agents on a game, with its name; none on Dragon, whose score underflowed there."""
    published = [(f"the paper's {group.agent}", paper.avg) for group in groups if (paper := find_published(group))]
    return max(published, key=lambda line: line[1]) if published and groups[0].variant.game != "dragon" else None


def make_section(board: Board, stochastic: bool) -> Section | None:
    """One of the two tables; None if no such game was played."""
    variants = [variant for variant in board.variants if variant.stochastic == stochastic]
    if not variants:
        return None
    table = read_paper().choose_table(stochastic)
    kind, figure = ("Stochastic", 2) if stochastic else ("Deterministic", 1)
    missing = [row for row in table.main if row not in {variant.row for variant in variants}]
    groups = [group for variant in variants for group in board.list_groups(variant)]
    marks = [
        *(mark for group in groups for mark in list_marks(group)),
        *(mark for group in groups for run in group.duplicates for mark in list_marks_of_duplicate(group, run)),
    ]
    common_signs = find_common_signs(groups)
    known, others = _split(variants)
    deltas = [value for variant in variants for _, value in compute_deltas(variant, list_comparisons(board, variant))]
    said = [DEFINITIONS, _EXPLANATION, *([_DELTA] if any(value is not None for value in deltas) else [])]
    blocks: list[Block] = [Text(" ".join([*said, *([_OF_THE_PAPER] if known else [])]))]
    if marks:
        blocks.append(Text(describe_marks(marks, common_signs)))
    if known:
        blocks.append(
            Table(HEADER, [row for variant in known for row in _make_game_rows(board, variant, common_signs)])
        )
    if others:
        blocks += [Text("Games, or ways to play them, that the paper does not have:")] if known else []
        rows = [row for variant in others for row in _make_game_rows(board, variant, common_signs)]
        blocks.append(Table(HEADER, rows).drop_columns(PAPER_COLUMNS))
    filled = describe_filled_cells(board, [stochastic])
    if filled:
        blocks.append(Text(filled))
    if missing and len(missing) < len(table.main):
        blocks.append(Text(f"Games of the paper's table {figure} that are not among these runs: {', '.join(missing)}."))
    return Section(
        f"{kind} games", [*blocks, *average_over_games(board, variants, table, _make_mean_deltas(board, variants))]
    )


def _make_mean_deltas(board: Board, variants: Sequence[Variant]) -> list[Block]:
    """The mean of Δ over the games for which ours is known, and the paper's over the same; Dragon is not among them."""
    both = [
        dict(compute_deltas(variant, list_comparisons(board, variant)))
        for variant in variants
        if variant.game != "dragon"
    ]
    ours = [pair["ours"] for pair in both if pair["ours"] is not None]
    paper = [pair["paper"] for pair in both if pair["ours"] is not None and pair["paper"] is not None]
    if len(ours) < 2:
        return []
    beside = f"; the paper's over {format_amount(len(paper), 'game')} of these: {describe_mean(paper)}" if paper else ""
    return [Text(f"Mean of Δ over {format_amount(len(ours), 'game')}: {describe_mean(ours)}{beside}.")]


_EXPLANATION = "Max: best final score of any episode. Mean ± population standard deviation over seeds."
_DELTA = (
    "Δ: normalised Avg of xtx minus that of the best of drrn, inv-dy, rc-dqn and xtx-uniform, as far as they are "
    "there, at equally many steps."
)
_OF_THE_PAPER = (
    f"The paper's figures are beside {AVG}. Where the paper's name of a game has a star, actions were added to its "
    "grammar."
)


def _split(variants: Sequence[Variant]) -> tuple[list[Variant], list[Variant]]:
    """Those that the paper has figures of, and the others."""
    known = [v for v in variants if v.row in read_paper().choose_table(v.stochastic).rows and not v.is_whole]
    return known, [variant for variant in variants if variant not in known]


def _make_game_rows(board: Board, variant: Variant, common_signs: Collection[str]) -> list[Row]:
    shown = list_comparisons(board, variant)
    points = f" · {format_count(variant.maximum)} points" if variant.maximum else ""
    deltas = [
        f"{name} {format_signed(100 * value)} %" for name, value in compute_deltas(variant, shown) if value is not None
    ]
    said = f" · Δ {', '.join(deltas)}{_describe_delta_step(shown)}" if deltas else ""
    rows = [Row([f"{variant.title}{points}{said}"], kind="group")]
    for side in shown:
        rows.append(_make_row(side, common_signs))
        rows += [_make_duplicate_row(side.ours, run, common_signs) for run in side.ours.duplicates] if side.ours else []
    return rows


def _make_row(side: Comparison, common_signs: Collection[str]) -> Row:
    group, paper = side.ours, side.paper
    published = format_published(paper)
    if group is None:
        cells = [side.label, DASH, published[0], DASH, DASH, DASH, published[1], DASH, "", ""]
        return Row(cells, side.label, "absent")
    many = len(group.runs) > 1
    seeds = ", ".join(str(run.config.seed) for run in group.runs)
    avg, best = float(group.avg_by_env.mean()), float(group.max.mean())
    return Row(
        [
            side.label,
            format_over_seeds(group.avg_by_env),
            published[0],
            format_signed(avg - paper.avg) if paper else DASH,
            format_over_seeds(group.avg),
            format_over_seeds(group.max),
            published[1],
            format_signed(best - paper.max) if paper else DASH,
            Cell(str(len(group.runs)), f"seeds {seeds}" if many else "one seed only: nothing is known of the spread"),
            make_steps_cell(group.steps, list_marks(group), common_signs),
        ],
        side.label,
    )


def format_published(paper: PaperFigures | None) -> tuple[str, str]:
    """The paper's Avg and Max."""
    if paper is None:
        return DASH, DASH
    return format_spread(paper.avg, paper.avg_std), format_spread(paper.max, paper.max_std)


def format_over_seeds(values: Floats) -> str:
    """Mean ± standard deviation; without the latter where there is one seed."""
    mean, std = compute_mean_and_std(values)
    return format_spread(mean, std if len(values) > 1 else None)


def _make_duplicate_row(group: Group, run: RunData, common_signs: Collection[str]) -> Row:
    """A run whose seed is counted already: it is in no mean, but its figures are seen."""
    own = run.digest
    figures = [format_number(own.avg_by_env), DASH, DASH, format_number(own.avg), format_number(own.max), DASH, DASH]
    name = Cell(
        f"↳ seed {run.config.seed} again, not counted: {run.folder.name.removesuffix('.json')}", str(run.folder)
    )
    steps = make_steps_cell(run.reached, list_marks_of_duplicate(group, run), common_signs)
    return Row([name, *figures, "", steps], group.label, "absent")


def make_steps_cell(steps: int, marks: Sequence[Mark], common_signs: Collection[str] = ()) -> Cell:
    """A number of steps with the marks of its row behind, without those that all rows have."""
    shown = [mark for mark in marks if mark.sign not in common_signs]
    signs = "".join(mark.sign for mark in shown)
    return Cell(f"{format_count(steps)} {signs}".strip(), "; ".join(mark.words for mark in shown))


def compute_deltas(variant: Variant, shown: Sequence[Comparison]) -> list[tuple[str, float | None]]:
    """Ours and the paper's; None where xtx or all baselines are lacking."""
    compared = _list_compared(shown)
    ours = {group.agent: avg for group, avg in zip(compared, compute_comparable_averages(compared), strict=True)}
    paper = {side.ours.agent if side.ours else side.label: side.paper.avg for side in shown if side.paper}
    return [("ours", compute_delta(ours, variant.maximum)), ("paper", compute_delta(paper, variant.maximum))]


def _list_compared(shown: Sequence[Comparison]) -> list[Group]:
    """The groups between which Δ is; those with settings of their own are no baselines."""
    groups = [side.ours for side in shown if side.ours and side.ours.label == side.ours.agent]
    return [group for group in groups if group.agent in ("xtx", *BASELINES)]


def _describe_delta_step(shown: Sequence[Comparison]) -> str:
    """The step and the definition of Avg at which our Δ is taken; empty where it is that of the rows below."""
    groups = _list_compared(shown)
    if len(groups) < 2 or all(group.agent != "xtx" for group in groups):
        return ""
    ends = find_equal_steps(groups)
    if all(group.longest == ends[group.label] for group in groups):
        return ""
    steps = " and ".join(map(format_count, sorted(set(ends.values()))))
    return f" (ours: {AVG_OF_ALL} at step {steps})"


def compute_comparable_averages(groups: Sequence[Group]) -> list[float]:
    """The mean Avg over the seeds of each of several agents on a game: the authors' definition where none of them has
    more steps than the others, else that of all environments at the last round step that each has come to, since the
    other one is known at the end of a run only."""
    if not groups:
        return []
    ends = find_equal_steps(groups)
    if all(group.longest == ends[group.label] for group in groups):
        return [float(group.avg_by_env.mean()) for group in groups]
    return [float(group.compute_avg_at(ends[group.label]).mean()) for group in groups]


def compute_delta(averages: dict[str, float], maximum: float | None) -> float | None:
    """Normalised Avg of xtx minus the best baseline's; None if one of them is not there."""
    baselines = [averages[agent] for agent in BASELINES if agent in averages]
    if "xtx" not in averages or not baselines or not maximum:
        return None
    own, best = normalise([averages["xtx"], max(baselines)], maximum)
    return float(own - best)
