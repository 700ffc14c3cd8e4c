"""What a reader sees first: findings made from the data, one large curve, one compact table."""

from __future__ import annotations

from collections import Counter

import numpy as np

from xtx.report.data.equal_steps import drop_short_groups, find_equal_steps
from xtx.report.data.row_marks import MEANINGS, SEARCH, list_marks
from xtx.report.data.run_groups import Board, Variant
from xtx.report.data.statistics import normalise
from xtx.report.number_format import DASH, format_amount, format_count, format_number, format_percent, format_spread
from xtx.report.pages.averages import AVG, AVG_OF_ALL
from xtx.report.pages.beside_paper import find_published, format_over_seeds, make_steps_cell
from xtx.report.pages.by_game import make_learning_plot
from xtx.report.pages.document import Block, Cell, Figure, Gallery, Row, Section, Table, Text

MAX_LINES = 8
"""Agents in the large curve; the plots below have all."""
MAX_ROWS = 14
"""Of the compact table."""


def make_section(board: Board) -> Section:
    """The opening of a report of at least one group."""
    leader = _leader(board)
    variant = _main_variant(board, leader)
    findings = [_beside_paper(board, leader), _who_is_ahead(board), _how_sure(board)]
    found = [sentence for sentence in findings if sentence] or [_best_of_all(board)]
    blocks: list[Block] = [Text(" ".join(found)), Gallery([_curve(board, variant, leader)])]
    return Section("Findings", [*blocks, *_table(board, variant, leader)], kind="opening")


def _leader(board: Board) -> str:
    """The agent that the opening is about: the one on most games, those of the paper first; of several such, the one
    with most runs, and of these the best."""

    def weight(label: str) -> tuple[int, int, int, float]:
        groups = [group for group in board.groups if group.label == label]
        beside = sum(find_published(group) is not None for group in groups)
        return beside, len(groups), sum(len(g.runs) for g in groups), max(float(g.avg.mean()) for g in groups)

    return max(board.labels, key=weight)


def _main_variant(board: Board, leader: str) -> Variant:
    """The game of the large curve: where the leader is beside most agents, for most steps."""

    def weight(variant: Variant) -> tuple[bool, int, int]:
        groups = board.of(variant)
        has_leader = any(group.label == leader for group in groups)
        return has_leader, len(drop_short_groups(groups)), max(group.longest for group in groups)

    return max(board.variants, key=weight)


# --- sentences --------------------------------------------------------------------------------------------------


def _beside_paper(board: Board, leader: str) -> str:
    """How the leader's Avg compares with the paper's on deterministic games; Dragon is left out."""
    pairs = [
        (group, paper)
        for group in board.groups
        if group.label == leader and not group.variant.stochastic and group.variant.game != "dragon"
        and (paper := find_published(group))
    ]  # fmt: skip
    if not pairs:
        return ""
    higher = sum(float(group.avg_by_env.mean()) > paper.avg for group, paper in pairs)
    if len(pairs) == 1:
        [(group, paper)] = pairs
        avg = format_over_seeds(group.avg_by_env)
        return f"{leader} on {group.variant.title}: Avg {avg}, the paper's {format_number(paper.avg)}."
    known = [(group, paper, group.variant.maximum) for group, paper in pairs if group.variant.maximum]
    ours = np.mean([float(normalise(group.avg_by_env.mean(), most)) for group, _, most in known])
    theirs = np.mean([float(normalise(paper.avg, most)) for _, paper, most in known])
    whole = sum(not group.fewer_steps for group, _ in pairs)
    return (
        f"{leader}: Avg above the paper's in {higher} of {len(pairs)} deterministic rows that the paper has "
        f"too (without Dragon), {whole} of them with as many steps as the paper's runs; on average "
        f"{format_percent(float(ours))} of the points, the paper's {format_percent(float(theirs))}."
    )


def _who_is_ahead(board: Board) -> str:
    """Which agents have the highest Avg at equal steps, over the games that several agents have."""
    winners: Counter[str] = Counter()
    games: list[str] = []
    at: set[int] = set()
    for variant in board.variants:
        groups = drop_short_groups(board.of(variant))
        ends = find_equal_steps(groups)
        if len({group.agent for group in groups}) > 1:
            at.update(ends.values())
            scores = dict.fromkeys((group.agent for group in groups), float("-inf"))
            for group in groups:
                scores[group.agent] = max(scores[group.agent], float(group.avg_at(ends[group.label]).mean()))
            best = max(scores.values())
            winners.update(agent for agent, score in scores.items() if score == best)
            games.append(variant.title)
    if not winners:
        return ""
    told = ", ".join(f"{agent} on {times}" for agent, times in winners.most_common(3))
    if len(games) == 1:
        return f"Highest {AVG_OF_ALL} on {games[0]}, at step {format_count(max(at))}: {' and '.join(winners)}."
    steps = format_count(min(at)) if len(at) == 1 else f"{format_count(min(at))} to {format_count(max(at))}"
    return f"Highest {AVG_OF_ALL} at equal steps ({steps}, by game), of {len(games)} games with several agents: {told}."


def _how_sure(board: Board) -> str:
    """How many rows have one seed, or fewer steps than the paper's runs."""
    rows = format_amount(len(board.groups), "row")
    single = sum(len(group.runs) == 1 for group in board.groups)
    short = sum(group.fewer_steps for group in board.groups)
    if not single and not short:
        return f"Every row has at least {min(len(group.runs) for group in board.groups)} seeds."
    said = []
    if single:
        said.append(f"{single} of {rows} {'has' if single == 1 else 'have'} one seed only")
    if short:
        said.append(f"{short} of {rows} {'has' if short == 1 else 'have'} fewer steps than the paper's runs")
    return f"{' and '.join(said)}: small differences may be chance."


def _best_of_all(board: Board) -> str:
    group = max(board.groups, key=lambda group: float(group.max.max()))
    return (
        f"Best final score: {format_count(float(group.max.max()))} points, by {group.label} on {group.variant.title}."
    )


# --- curve and table --------------------------------------------------------------------------------------------


def _curve(board: Board, variant: Variant, leader: str) -> Figure:
    groups = sorted(drop_short_groups(board.of(variant)), key=lambda group: (group.label != leader, -group.longest))
    shown = groups[:MAX_LINES]
    own = next((group for group in shown if group.label == leader), None)
    paper = find_published(own) if own else None
    reference = (f"the paper's {own.agent}", paper.avg) if own and paper else None
    plot = make_learning_plot(board, variant, [group for group in board.of(variant) if group in shown], reference)
    caption = f"{variant.title}: mean final score of the last 100 episodes"
    return Figure(f"opening-{variant.title}", plot, caption, is_large=True)


def _table(board: Board, variant: Variant, leader: str) -> list[Block]:
    groups = [group for group in board.groups if group.label == leader]
    is_alone = len(board.of(variant)) == 1
    by_game = len(groups) > 1 and (is_alone or any(find_published(group) is not None for group in groups))
    order = board.variants
    chosen = sorted(groups, key=lambda g: order.index(g.variant)) if by_game else board.of(variant)
    papers = [find_published(group) for group in chosen]
    has_paper = any(papers)
    header = ["game" if by_game else "agent", AVG, "paper", "Max", "paper", "steps"]
    rows = []
    for group, paper in list(zip(chosen, papers, strict=True))[:MAX_ROWS]:
        published = (
            [format_spread(paper.avg, paper.avg_std), format_spread(paper.max, paper.max_std)]
            if paper
            else [DASH, DASH]
        )
        marks = [mark for mark in list_marks(group) if mark.sign != SEARCH]
        cells: list[Cell | str] = [
            group.variant.title if by_game else group.label,
            format_over_seeds(group.avg_by_env),
        ]
        cells += [published[0], format_over_seeds(group.max), published[1], make_steps_cell(group.steps, marks)]
        rows.append(
            Row(cells if has_paper else [cells[place] for place in (0, 1, 3, 5)], "" if by_game else group.label)
        )
    table = Table(header if has_paper else [header[place] for place in (0, 1, 3, 5)], rows)
    signs = {mark.sign for group in chosen for mark in list_marks(group)} - {SEARCH}
    told = " · ".join(f"{sign} {words}" for sign, words in MEANINGS.items() if sign in signs)
    title = f"{leader} on all its games" if by_game else variant.title
    more = len(chosen) - len(rows)
    if more > 0:
        told += f"{' · ' if told else ''}{more} more below"
    return [Section(title, [table, *([Text(told)] if told else [])])]
