"""Tables 1 and 2 of the paper with our figures beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xtx.report.document import Block, Cell, Row, Section, Table, Text
from xtx.report.groups import Board, Group, Variant
from xtx.report.paper import Figures, PaperTable, read_paper
from xtx.report.stats import mean_and_std, normalise
from xtx.report.words import DASH, count, number, percent, signed, some, spread

BASELINES = ("drrn", "inv-dy", "rc-dqn", "xtx-uniform")
"""The agents against which the paper's Δ is: prior work and XTX-Uniform."""
FEWER, OTHER, UNFINISHED = "▾", "‡", "◐"
HEADER = (
    "agent", "Avg, ours", "Avg, paper", "difference", "Max, ours", "Max, paper", "difference", "seeds", "steps",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One agent on one row of the table: ours, the paper's, or both."""

    label: str
    ours: Group | None
    paper: Figures | None


def sides(board: Board, variant: Variant) -> list[Side]:
    """Who is shown for a game: all that we have, and then those that only the paper has."""
    row = read_paper().table(variant.stochastic).rows.get(variant.row)
    published = row.agents if row and not variant.wide else {}
    ours = [Side(group.label, group, published.get(group.agent)) for group in board.of(variant)]
    have = {side.ours.agent for side in ours if side.ours}
    return ours + [Side(agent, None, figures) for agent, figures in published.items() if agent not in have]


def section(board: Board, stochastic: bool) -> Section | None:
    """One of the two tables; None if no such game was played."""
    variants = [variant for variant in board.variants if variant.stochastic == stochastic]
    if not variants:
        return None
    table = read_paper().table(stochastic)
    rows = [row for variant in variants for row in _game_rows(board, variant)]
    kind, figure = ("Stochastic", 2) if stochastic else ("Deterministic", 1)
    missing = [row for row in table.main if row not in {variant.row for variant in variants}]
    blocks: list[Block] = [
        Text(
            "Avg: mean final score of the last 100 episodes of training. Max: best final score of any episode. Mean ± "
            "population standard deviation over seeds. Δ: normalised Avg of xtx minus that of the best of drrn, "
            "inv-dy, rc-dqn and xtx-uniform, as far as they are there. Where the paper's name of a game has a star, "
            "actions were added to its grammar."
        ),
        Text(
            f"{FEWER} fewer steps than the paper's runs · {OTHER} not the paper's settings · {UNFINISHED} not finished"
        ),
        Table(HEADER, rows),
    ]
    filled = describe_filled_cells(board, table, figure)
    if filled:
        blocks.append(Text(filled))
    if missing and len(missing) < len(table.main):
        blocks.append(Text(f"Games of the paper's table {figure} that are not among these runs: {', '.join(missing)}."))
    return Section(f"{kind} games", [*blocks, *_averages(board, variants, table)])


def describe_filled_cells(board: Board, table: PaperTable, figure: int) -> str:
    """How many cells of the paper's table, games x agents, have runs with the paper's settings, and how many seeds they
    have; empty if none has."""
    cells = {(row, agent): 0 for row in table.main for agent in table.rows[row].agents}
    whole = 0
    for variant in board.variants:
        if variant.stochastic != (figure == 2) or variant.wide:
            continue
        for group in board.of(variant):
            cell = variant.row, group.agent
            if cells.get(cell) == 0 and not group.other_settings:
                cells[cell] = len(group.runs)
                whole += not group.fewer_steps
    by_seeds = Counter(seeds for seeds in cells.values() if seeds)
    if not by_seeds:
        return ""
    shares = ", ".join(
        f"{number_of_cells} with {some(seeds, 'seed')}" for seeds, number_of_cells in sorted(by_seeds.items())
    )
    return (
        f"Cells of the paper's table {figure} (games x agents) that are filled: {by_seeds.total()} of {len(cells)}, "
        f"{whole} of them with as many steps as the paper's runs; {shares}. The paper has three seeds in each."
    )


def _game_rows(board: Board, variant: Variant) -> list[Row]:
    shown = sides(board, variant)
    points = f" · {count(variant.maximum)} points" if variant.maximum else ""
    deltas = [f"{who} {signed(100 * delta)} %" for who, delta in _deltas(variant, shown) if delta is not None]
    said = f" · Δ {', '.join(deltas)}" if deltas else ""
    return [Row([f"{variant.title}{points}{said}"], kind="group"), *(_row(side) for side in shown)]


def _row(side: Side) -> Row:
    group, paper = side.ours, side.paper
    published = [spread(paper.avg, paper.avg_std), spread(paper.max, paper.max_std)] if paper else [DASH, DASH]
    if group is None:
        return Row([side.label, DASH, published[0], DASH, DASH, published[1], DASH, "", ""], side.label, "absent")
    avg, avg_std = mean_and_std(group.avg)
    best, best_std = mean_and_std(group.max)
    many = len(group.runs) > 1
    seeds = ", ".join(str(run.config.seed) for run in group.runs)
    return Row(
        [
            side.label,
            spread(avg, avg_std if many else None),
            published[0],
            signed(avg - paper.avg) if paper else DASH,
            spread(best, best_std if many else None),
            published[1],
            signed(best - paper.max) if paper else DASH,
            Cell(str(len(group.runs)), f"seeds {seeds}" if many else "one seed only: nothing is known of the spread"),
            _steps(group),
        ],
        side.label,
    )


def _steps(group: Group) -> Cell:
    said, marks = [], ""
    if group.fewer_steps:
        marks += FEWER
        said.append(f"the paper's runs have {read_paper().steps[group.agent]:,} steps")
    if group.other_settings:
        marks += OTHER
        said.append("not the paper's settings: " + ", ".join(group.other_settings))
    if not group.finished:
        marks += UNFINISHED
        said.append("not finished")
    return Cell(f"{count(group.steps)} {marks}".strip(), "; ".join(said))


def _deltas(variant: Variant, shown: Sequence[Side]) -> list[tuple[str, float | None]]:
    """Ours and the paper's; None where xtx or all baselines are lacking."""
    ours: dict[str, float] = {}
    for side in shown:
        if side.ours and side.label == side.ours.agent:  # those with settings of their own are no baselines
            ours[side.label] = float(side.ours.avg.mean())
    paper = {side.ours.agent if side.ours else side.label: side.paper.avg for side in shown if side.paper}
    return [("ours", delta(ours, variant.maximum)), ("paper", delta(paper, variant.maximum))]


def delta(averages: dict[str, float], maximum: float | None) -> float | None:
    """Normalised Avg of xtx minus the best baseline's; None if one of them is not there."""
    baselines = [averages[agent] for agent in BASELINES if agent in averages]
    if "xtx" not in averages or not baselines or not maximum:
        return None
    own, best = normalise([averages["xtx"], max(baselines)], maximum)
    return float(own - best)


# --- the row of averages ----------------------------------------------------------------------------------------


def _averages(board: Board, variants: Sequence[Variant], table: PaperTable) -> list[Block]:
    """Normalised scores over games, with and without Dragon, ours and the paper's over the same games."""
    rows = []
    known = [variant for variant in variants if variant.maximum]
    for words, chosen in _choices(known, table):
        lines = [_average_row(board, label, chosen, table) for label in board.labels]
        filled = [line for line in lines if line]
        if filled:
            rows += [Row([words], kind="group"), *filled]
    if not rows:
        return []
    header = ("agent", "Avg, ours", "Avg, paper, same games", "Max, ours", "Max, paper, same games", "games",
              "Avg, paper, whole table", "Max, paper, whole table")  # fmt: skip
    text = Text(
        "Averages over games of score / maximum, cut above at 1, in per cent, ± their standard deviation over games. "
        "Dragon's score underflowed in the paper's version of Jericho, which made its figures too high; so averages "
        "without it stand beside."
    )
    return [Section("Averages over games", [text, Table(header, rows), *_mean_delta(board, known)])]


def _choices(known: list[Variant], table: PaperTable) -> list[tuple[str, list[Variant]]]:
    """Over which games averages are made, in words and as a list: what the paper averages stands apart from others."""
    main = [variant for variant in known if variant.row in table.main and not variant.wide]
    found = [(f"{some(len(main), 'game')} of the paper's table", main)] if main else []
    if len(known) > len(main):
        found.append((f"all {some(len(known), 'game')} here", known))
    for words, chosen in list(found):
        without = [variant for variant in chosen if variant.game != "dragon"]
        if without and len(without) < len(chosen):
            found.append((f"{words}, without dragon", without))
    return found


def _mean_delta(board: Board, variants: Sequence[Variant]) -> list[Block]:
    """The mean of Δ over the games for which ours is known, and the paper's over the same."""
    both = [dict(_deltas(variant, sides(board, variant))) for variant in variants]
    ours = [pair["ours"] for pair in both if pair["ours"] is not None]
    paper = [pair["paper"] for pair in both if pair["ours"] is not None and pair["paper"] is not None]
    if not ours:
        return []
    beside = f"; the paper's over {some(len(paper), 'game')} of these: {_over_games(paper)}" if paper else ""
    return [Text(f"Mean of Δ over {some(len(ours), 'game')}: {_over_games(ours)}{beside}.")]


def _average_row(board: Board, label: str, variants: Sequence[Variant], table: PaperTable) -> Row | None:
    groups = [group for variant in variants for group in board.of(variant) if group.label == label]
    if not groups:
        return None
    agent = groups[0].agent
    cells: list[Cell | str] = []
    both = [group for group in groups if agent in _published(table, group.variant)]
    for of in ("avg", "max"):
        ours = [float(normalise(getattr(group, of).mean(), group.variant.maximum or 1)) for group in groups]
        paper = [
            float(normalise(getattr(_published(table, group.variant)[agent], of), group.variant.maximum or 1))
            for group in both
        ]
        cells.append(_over_games(ours))
        missing = len(both) < len(groups)
        hint = f"over {len(both)} of the {len(groups)} games" if missing and both else ""
        cells.append(Cell(_over_games(paper), hint))
    whole = table.normalised.get(agent) if both else None
    published = [f"{number(whole.avg)} %", f"{number(whole.max)} %"] if whole else [DASH, DASH]
    part = str(len(groups)) if len(groups) == len(variants) else f"{len(groups)} of {len(variants)}"
    games = Cell(part, ", ".join(group.variant.title for group in groups))
    return Row([label, *cells, games, *published], label)


def _published(table: PaperTable, variant: Variant) -> dict[str, Figures]:
    row = table.rows.get(variant.row)
    return row.agents if row and not variant.wide else {}


def _over_games(values: Sequence[float]) -> str:
    if not values:
        return DASH
    mean = percent(float(np.mean(values)), 1)
    return mean if len(values) == 1 else f"{mean} ± {number(100 * float(np.std(values)))}"
