"""What a reader sees first: findings made from the data, one large curve, one compact table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xtx.report.data.equal_steps import drop_short_groups, find_equal_steps
from xtx.report.data.paper_tables import PaperFigures
from xtx.report.data.row_marks import MEANINGS, SEARCH, list_marks
from xtx.report.data.run_groups import Board, Group, Variant
from xtx.report.data.statistics import normalise
from xtx.report.number_format import format_amount, format_count, format_percent, format_spread
from xtx.report.pages.averages import AVG, AVG_OF_ALL
from xtx.report.pages.beside_paper import (
    find_published,
    find_reference,
    format_over_seeds,
    format_published,
    make_steps_cell,
)
from xtx.report.pages.by_game import make_learning_plot
from xtx.report.pages.document import Block, Cell, Figure, Gallery, Row, Section, Table, Text

MAX_LINES = 8
"""Agents in the large curve; the plots below have all."""
MAX_ROWS = 14
"""Of the compact table."""
MAX_WINNERS = 3
"""Agents that are ahead, in the sentence on that: more would drive the curve off a phone's first screen."""
MAX_NAMES = 4
"""Names of games or agents in one sentence."""


def make_section(board: Board) -> Section:
    """The opening of a report of at least one group."""
    leader = _find_leader(board)
    variant = _find_main_variant(board, leader)
    findings = [
        _compare_with_paper(board, leader) or _describe_best(board),
        _describe_winners(board),
        _describe_certainty(board),
    ]
    blocks: list[Block] = [
        *(Text(sentence) for sentence in findings if sentence),
        Gallery([_make_curve(board, variant, leader)]),
    ]
    return Section("Findings", [*blocks, *_make_table(board, variant, leader)], kind="opening")


def _find_leader(board: Board) -> str:
    """The agent that the opening is about: the one on most games, those of the paper first; of several such, the one
    with most runs, and of these the best."""

    def weigh(label: str) -> tuple[int, int, int, float]:
        groups = [group for group in board.groups if group.label == label]
        beside = sum(find_published(group) is not None for group in groups)
        return beside, len(groups), sum(len(g.runs) for g in groups), max(float(g.avg.mean()) for g in groups)

    return max(board.labels, key=weigh)


def _find_main_variant(board: Board, leader: str) -> Variant:
    """The game of the large curve: where the leader is beside most agents, for most steps."""

    def weigh(variant: Variant) -> tuple[bool, int, int]:
        groups = board.list_groups(variant)
        has_leader = any(group.label == leader for group in groups)
        return has_leader, len(drop_short_groups(groups)), max(group.longest for group in groups)

    return max(board.variants, key=weigh)


# --- sentences --------------------------------------------------------------------------------------------------


def _compare_with_paper(board: Board, leader: str) -> str:
    """How the leader's Avg compares with the paper's: on deterministic games, if there are such; Dragon is left out."""
    pairs = [
        (group, paper)
        for group in board.groups
        if group.label == leader and group.variant.game != "dragon" and (paper := find_published(group))
    ]
    pairs = [pair for pair in pairs if not pair[0].variant.stochastic] or pairs
    if not pairs:
        return ""
    if len(pairs) == 1:
        [(group, paper)] = pairs
        avg, published = format_over_seeds(group.avg_by_env), format_spread(paper.avg, paper.avg_std)
        return f"{leader} on {group.variant.title}: {AVG} {avg}, the paper's {published}."
    where: dict[str, list[str]] = {"above": [], "within": [], "below": []}
    for group, paper in pairs:
        distance = round(float(group.avg_by_env.mean()), 1) - paper.avg
        place = "within" if abs(distance) < paper.avg_std + 0.05 else "above" if distance > 0 else "below"
        where[place].append(group.variant.title)
    kind = "stochastic" if pairs[0][0].variant.stochastic else "deterministic"
    counts = ", ".join(f"{place} on {_count_games(games)}" for place, games in where.items() if games)
    return (
        f"{leader} on {len(pairs)} {kind} games without Dragon: {AVG} beside the paper's mean ± standard deviation is "
        f"{counts}.{_compare_mean_shares(pairs)}"
    )


def _compare_mean_shares(pairs: Sequence[tuple[Group, PaperFigures]]) -> str:
    """A sentence on the share of the points that is had on average, ours and the paper's; empty without maximums."""
    known = [(group, paper, group.variant.maximum) for group, paper in pairs if group.variant.maximum]
    if not known:
        return ""
    ours = np.mean([float(normalise(group.avg_by_env.mean(), most)) for group, _, most in known])
    theirs = np.mean([float(normalise(paper.avg, most)) for _, paper, most in known])
    return f" On average {format_percent(float(ours))} of the points, the paper's {format_percent(float(theirs))}."


def _count_games(games: Sequence[str]) -> str:
    """How many there are, and which, if they are few."""
    return f"{len(games)} ({', '.join(games)})" if len(games) <= MAX_NAMES else str(len(games))


def _describe_winners(board: Board) -> str:
    """Which agents have the highest Avg at equal steps, over the games that several agents have."""
    winners: dict[str, list[str]] = {}
    at: set[int] = set()
    compared = {variant: drop_short_groups(board.list_groups(variant)) for variant in board.variants}
    compared = {variant: groups for variant, groups in compared.items() if len(groups) > 1}
    if len(compared) == 1:
        return _rank_agents(*next(iter(compared.items())))
    for variant, groups in compared.items():
        ends = find_equal_steps(groups)
        at.update(ends.values())
        scores = [float(group.compute_avg_at(ends[group.label]).mean()) for group in groups]
        best = {group.label for group, score in zip(groups, scores, strict=True) if score == max(scores)}
        for agent in sorted(best):
            winners.setdefault(agent, []).append(variant.title)
    if not winners:
        return ""
    order = sorted(winners.items(), key=lambda item: -len(item[1]))
    told = ", ".join(f"{agent} on {_count_games(games)}" for agent, games in order[:MAX_WINNERS])
    others = len({game for _, games in order[MAX_WINNERS:] for game in games})
    told += f", others on {others}" if others else ""
    steps = format_count(min(at)) if len(at) == 1 else f"{format_count(min(at))} to {format_count(max(at))}"
    return f"Highest {AVG_OF_ALL} on {len(compared)} games with several agents, at equal steps ({steps}): {told}."


def _rank_agents(variant: Variant, groups: Sequence[Group]) -> str:
    """The first agents of one game."""
    ends = find_equal_steps(groups)
    order = sorted(groups, key=lambda group: -float(group.compute_avg_at(ends[group.label]).mean()))
    told = [
        f"{group.label} {format_over_seeds(group.compute_avg_at(ends[group.label]))}" for group in order[:MAX_NAMES]
    ]
    of = f", of {format_count(variant.maximum)} points" if variant.maximum else ""
    steps = " and ".join(map(format_count, sorted(set(ends.values()))))
    return f"Highest {AVG_OF_ALL} on {variant.title} at step {steps}{of}: {', '.join(told)}."


def _describe_certainty(board: Board) -> str:
    """How many rows have one seed, or fewer steps than the paper's runs."""
    rows = len(board.groups)
    single = sum(len(group.runs) == 1 for group in board.groups)
    short = sum(group.has_fewer_steps for group in board.groups)
    if not single and not short:
        return f"Each figure is a mean over at least {min(len(group.runs) for group in board.groups)} seeds."
    counts = {"one seed": single, "fewer steps than the paper's runs": short}
    said = [f"{count} {'is' if count == 1 else 'are'} from {what}" for what, count in counts.items() if count]
    return f"Of {format_amount(rows, 'row')} of figures, {' and '.join(said)}: small differences may be chance."


def _describe_best(board: Board) -> str:
    """The best final score: of several games, where it is the greatest share of the game's points."""

    def weigh(group: Group) -> tuple[float, float]:
        best = float(group.max.max())
        return best / group.variant.maximum if group.variant.maximum else -np.inf, best

    group = max(board.groups, key=weigh)
    points = format_count(float(group.max.max()))
    of = f" of {format_count(group.variant.maximum)}" if group.variant.maximum else ""
    return f"Best final score: {points}{of} points, by {group.label} on {group.variant.title}."


def shows_all_curves(board: Board) -> bool:
    """Whether the large curve has all that plots of each game would show."""
    return len(board.variants) == 1 and len(drop_short_groups(board.groups)) == len(board.groups) <= MAX_LINES


# --- curve and table --------------------------------------------------------------------------------------------


def _make_curve(board: Board, variant: Variant, leader: str) -> Figure:
    groups = sorted(
        drop_short_groups(board.list_groups(variant)), key=lambda group: (group.label != leader, -group.longest)
    )
    shown = groups[:MAX_LINES]
    own = next((group for group in shown if group.label == leader), None)
    reference = find_reference([own]) if own else None
    plot = make_learning_plot(
        board, variant, [group for group in board.list_groups(variant) if group in shown], reference
    )
    left_out = len(board.list_groups(variant)) - len(shown)
    of = f" ({len(shown)} of {len(shown) + left_out} agents)" if left_out else ""
    caption = f"{variant.title}: mean final score of the last 100 episodes{of}"
    kind = "training" if shows_all_curves(board) else "opening"
    return Figure(f"{kind}-{variant.title}", plot, caption, is_large=True)


def _make_table(board: Board, variant: Variant, leader: str) -> list[Block]:
    groups = [group for group in board.groups if group.label == leader]
    is_alone = len(board.list_groups(variant)) == 1
    by_game = len(groups) > 1 and (is_alone or any(find_published(group) is not None for group in groups))
    order = board.variants
    chosen = sorted(groups, key=lambda g: order.index(g.variant)) if by_game else board.list_groups(variant)
    papers = [find_published(group) for group in chosen]
    rows = []
    for group, paper in list(zip(chosen, papers, strict=True))[:MAX_ROWS]:
        avg, best = format_published(paper)
        marks = [mark for mark in list_marks(group) if mark.sign != SEARCH]
        cells: list[Cell | str] = [group.variant.title if by_game else group.label, format_over_seeds(group.avg_by_env)]
        cells += [avg, format_over_seeds(group.max), best, make_steps_cell(group.steps, marks)]
        rows.append(Row(cells, "" if by_game else group.label))
    table = Table(["game" if by_game else "agent", AVG, "paper", "Max", "paper", "steps"], rows)
    table = table if any(papers) else table.drop_columns(["paper"])
    signs = {mark.sign for group in chosen for mark in list_marks(group)} - {SEARCH}
    told = " · ".join(f"{sign} {words}" for sign, words in MEANINGS.items() if sign in signs)
    title = f"{leader} on all its games" if by_game else variant.title
    more = len(chosen) - len(rows)
    if more > 0:
        told += f"{' · ' if told else ''}{more} more below"
    return [Section(title, [table, *([Text(told)] if told else [])])]
