"""The cells of the paper's two main tables (games x agents): which of our runs fill each, and at which step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xtx.report.data.paper_tables import PaperFigures, read_paper
from xtx.report.data.row_marks import FEWER, UNFINISHED, Mark, list_marks
from xtx.report.data.run_groups import Board, Group
from xtx.report.data.statistics import Floats
from xtx.report.number_format import format_amount

FEWER_STEPS = 200_000
"""Where there are no runs as long as the paper's, a cell shows ours at this step, so that all such cells are alike."""
READ_OFF = "†"
READ_OFF_WORDS = "read off longer runs: Avg is of the last 100 episodes of all environments together"


@dataclass(frozen=True)
class FilledCell:
    """An agent on a game of the paper's table, ours and the paper's."""

    group: Group
    steps: int
    """The step at which ours is taken."""
    paper: PaperFigures

    @property
    def is_read_off(self) -> bool:
        """Whether our runs are longer than what is shown."""
        return self.group.steps > self.steps and self.steps == FEWER_STEPS

    @property
    def avg(self) -> Floats:
        """[seeds] the authors' Avg at the end of the runs; before it only that of all environments is known."""
        return self.group.compute_avg_at(self.steps) if self.is_read_off else self.group.avg_by_env

    @property
    def max(self) -> Floats:
        """[seeds] best final score."""
        return self.group.compute_max_at(self.steps) if self.is_read_off else self.group.max

    @property
    def marks(self) -> list[Mark]:
        """What limits it."""
        marks = list_marks(self.group)
        if not self.is_read_off:
            return marks
        # Runs that go on beyond what is shown have finished that part of them.
        return [*(mark for mark in marks if mark.sign != UNFINISHED), Mark(READ_OFF, READ_OFF_WORDS)]


def fill_cells(board: Board, stochastic: bool) -> list[FilledCell]:
    """The cells that runs with the paper's settings fill: as long as the paper's, or at 200,000 steps. The longest runs
    come first, then those of 200,000 steps, then longer ones read off there; a cell without any is left out."""
    table = read_paper().choose_table(stochastic)
    found = []
    for variant in board.variants:
        if variant.stochastic != stochastic or variant.is_whole or variant.row not in table.main:
            continue
        groups = [group for group in board.list_groups(variant) if not group.other_settings]
        for agent in dict.fromkeys(group.agent for group in groups):
            paper = table.rows[variant.row].agents.get(agent)
            cell = _fill([group for group in groups if group.agent == agent], paper) if paper else None
            found += [cell] if cell else []
    return found


def _fill(groups: Sequence[Group], paper: PaperFigures) -> FilledCell | None:
    by_length = sorted(groups, key=lambda group: group.steps)
    if by_length and not by_length[-1].has_fewer_steps:
        return FilledCell(by_length[-1], by_length[-1].steps, paper)
    enough = [group for group in by_length if group.steps >= FEWER_STEPS]
    return FilledCell(enough[0], FEWER_STEPS, paper) if enough else None


def describe_filled_cells(board: Board, kinds: Sequence[bool] = (False, True)) -> str:
    """How many cells of the paper's tables are filled, at which steps, and with how many seeds; empty if none is.
    `kinds`: whether the games are stochastic, for each of the tables that are described."""
    filled = [fill_cells(board, stochastic) for stochastic in kinds]
    if not any(filled):
        return ""

    told: list[str] = []
    for stochastic, cells in zip(kinds, filled, strict=True):
        table = read_paper().choose_table(stochastic)
        count = sum(len(table.rows[row].agents) for row in table.main)
        whose = "its" if told else "the paper's"
        told.append(f"{len(cells)} of {count} in {whose} table {1 + stochastic}{_describe_lengths_and_seeds(cells)}")
    return (
        f"Filled cells (games x agents): {', and '.join(told)}. The paper has {read_paper().seeds} seeds in every cell."
    )


def _describe_lengths_and_seeds(cells: Sequence[FilledCell]) -> str:
    """How many cells are as long as the paper's runs, and how many have which number of seeds, in brackets."""
    if not cells:
        return ""
    num_fewer = sum(cell.group.has_fewer_steps for cell in cells)
    lengths = [f"{len(cells) - num_fewer} as long as the paper's runs"] if num_fewer < len(cells) else []
    lengths += [f"{num_fewer} at {FEWER_STEPS:,} steps {FEWER}"] if num_fewer else []
    seeds = sorted(Counter(len(cell.group.runs) for cell in cells).items())
    by_seeds = [f"{count} with {format_amount(number, 'seed')}" for number, count in seeds]
    return f" ({', '.join(lengths)}; {', '.join(by_seeds)})"
