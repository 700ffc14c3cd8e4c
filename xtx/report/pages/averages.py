"""Averages over games: of the games that all compared agents have, at equally many steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from xtx.report.data.equal_steps import drop_short_groups, find_equal_steps
from xtx.report.data.paper_tables import PaperFigures, PaperTable
from xtx.report.data.row_marks import MEANINGS, SEARCH, list_marks
from xtx.report.data.run_groups import Board, Group, Variant
from xtx.report.data.statistics import Floats, normalise
from xtx.report.number_format import DASH, format_amount, format_count, format_number, format_percent
from xtx.report.pages.document import Block, Cell, Row, Section, Table, Text

AVG, AVG_OF_ALL = "Avg (100 per env)", "Avg (100 of all)"
"""The two definitions of Avg: that of the authors' program, and that of the paper's text."""
DEFINITIONS = (
    f"{AVG}: mean final score of the last 100 episodes of each of the environments that are played together (800 "
    "episodes of 8; of fewer, all), as the authors' program has it. "
    f"{AVG_OF_ALL}: the same of the last 100 episodes of all environments together."
)
MIN_GAMES = 2
"""An average over fewer says nothing that the table of games does not."""
_HEADER = ("agent", AVG, AVG_OF_ALL, "Avg, paper", "Max", "Max, paper", "seeds")


def average_over_games(
    board: Board, variants: Sequence[Variant], table: PaperTable, rest: Sequence[Block] = ()
) -> list[Block]:
    """Normalised scores averaged over games, ours and the paper's over the same games, without Dragon; those with
    Dragon are folded. `rest` stands below."""
    known = [variant for variant in variants if variant.maximum]
    without = [variant for variant in known if variant.game != "dragon"]
    rows = _make_rows(board, without, table)
    blocks: list[Block] = []
    if rows:
        text = (
            "Averages over games of score / maximum, cut above at 1, in per cent, ± their standard deviation over "
            "games. Each is over the games that all agents below the line have, at the same number of steps for all of "
            f"them; where some runs had to be cut for that, {AVG}, which is known at the end of a run only, and the "
            "paper's figures are left out. Grey: what only the paper has, over the same games. Dragon's score was one "
            "signed byte in the paper's version of Jericho, which made its figures too high; averages with it are "
            "folded."
        )
        blocks += [Text(text), Table(_HEADER, rows)]
    if len(without) < len(known):
        with_dragon = _make_rows(board, known, table, lambda games: any(game.game == "dragon" for game in games))
        if with_dragon:
            blocks.append(Section("With Dragon", [Table(_HEADER, with_dragon)], folded=True))
    blocks += rest
    return [Section("Averages over games", blocks)] if blocks else []


def _make_rows(
    board: Board,
    variants: Sequence[Variant],
    table: PaperTable,
    is_wanted: Callable[[Sequence[Variant]], bool] = lambda games: True,
) -> list[Row]:
    """A block for each set of games that some agent has: all agents that have all of them."""
    played: dict[str, dict[Variant, Group]] = {}
    for variant in variants:
        for group in drop_short_groups(board.list_groups(variant)):
            played.setdefault(group.label, {})[variant] = group
    rows: list[Row] = []
    for games in sorted(dict.fromkeys(map(tuple, played.values())), key=len, reverse=True):
        compared = {label: own for label in board.labels if (own := played.get(label, {})).keys() >= set(games)}
        if len(games) >= MIN_GAMES and is_wanted(games):
            rows += _make_block({label: [own[game] for game in games] for label, own in compared.items()}, games, table)
    return rows


def _make_block(compared: dict[str, list[Group]], games: Sequence[Variant], table: PaperTable) -> list[Row]:
    """The agents that have all of some games; nothing for one agent that the paper does not have."""
    beside = [agent for agent in table.normalised if all(agent in game.published for game in games)]
    agents = {groups[0].agent for groups in compared.values()}
    if len(compared) < 2 and not agents & set(beside):
        return []
    ends = [find_equal_steps([groups[place] for groups in compared.values()]) for place in range(len(games))]
    cut = {
        game.title: max(end.values())
        for place, (game, end) in enumerate(zip(games, ends, strict=True))
        if any(groups[place].longest > end[label] for label, groups in compared.items())
    }
    names = ", ".join(
        f"{game.title} at {format_count(cut[game.title])}" if game.title in cut else game.title for game in games
    )
    rows = [Row([f"{format_amount(len(games), 'game')}: {names}{' steps' if cut else ''}"], kind="group")]
    for label, groups in compared.items():
        steps = [end[label] for end in ends]
        paper = [game.published.get(groups[0].agent) for game in games]
        rows.append(_make_row(label, groups, steps, [None] * len(games) if cut else paper, bool(cut)))
    for agent in beside:
        if agent not in agents and not cut:
            figures = [_normalise(game, game.published[agent]) for game in games]
            avg, best = (describe_mean([one[place] for one in figures]) for place in (0, 1))
            rows.append(Row([agent, DASH, DASH, avg, DASH, best, ""], agent, "absent"))
    return rows


def _make_row(
    label: str, groups: Sequence[Group], steps: Sequence[int], published: Sequence[PaperFigures | None], is_cut: bool
) -> Row:
    def average_values(values: Callable[[Group, int], Floats]) -> str:
        pairs = zip(groups, steps, strict=True)
        return describe_mean(
            [float(normalise(values(group, at).mean(), group.variant.maximum or 1)) for group, at in pairs]
        )

    by_env = (
        Cell(DASH, "runs were cut at equal steps") if is_cut else average_values(lambda group, at: group.avg_by_env)
    )
    paper = [DASH, DASH]
    known = [figures for figures in published if figures is not None]
    if len(known) == len(groups):
        figures = [_normalise(group.variant, one) for group, one in zip(groups, known, strict=True)]
        paper = [describe_mean([one[place] for one in figures]) for place in (0, 1)]
    numbers = sorted({len(group.runs) for group in groups})
    seeds = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    marks = {mark.sign for group in groups for mark in list_marks(group)} - {SEARCH}
    few = f"{seeds} {''.join(sign for sign in MEANINGS if sign in marks)}".strip()
    hint = "; ".join(f"some runs: {words}" for sign, words in MEANINGS.items() if sign in marks)
    own = (
        average_values(lambda group, at: group.compute_avg_at(at)),
        average_values(lambda group, at: group.compute_max_at(at)),
    )
    return Row([label, by_env, own[0], paper[0], own[1], paper[1], Cell(few, hint)], label)


def _normalise(game: Variant, figures: PaperFigures) -> tuple[float, float]:
    avg, best = (float(normalise(score, game.maximum or 1)) for score in (figures.avg, figures.max))
    return avg, best


def describe_mean(values: Sequence[float]) -> str:
    """The mean of shares, in per cent, ± their standard deviation."""
    if not values:
        return DASH
    mean = format_percent(float(np.mean(values)), 1)
    return mean if len(values) == 1 else f"{mean} ± {format_number(100 * float(np.std(values)))}"
