"""Agents compared over games: at equally many steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_runs import read_board, write_run

from xtx.report.across_games import common_field, section
from xtx.report.document import Text


def test_agents_are_compared_at_equal_steps(tmp_path: Path) -> None:
    """Who was run for longer counts as it was when the other ended."""
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=40_000)
    write_run(tmp_path / "b", [20] * 200, steps=20_000, agent="drrn")
    board = read_board(tmp_path)
    field = common_field(board, board.variants)
    assert field is not None and list(field.cut.values()) == [20_000]
    assert {agent: scores[0][0] * 350 for agent, scores in field.scores.items()} == pytest.approx(
        {"xtx": 10, "drrn": 20}
    )
    shown = section(board, stochastic=False)
    assert shown is not None and isinstance(shown.blocks[0], Text)
    assert "all are taken at the same step: zork1 20,000." in shown.blocks[0].text


def test_nobody_is_cut_where_all_are_as_long(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=40_000)
    write_run(tmp_path / "b", [20] * 200, steps=40_000, agent="drrn")
    board = read_board(tmp_path)
    field = common_field(board, board.variants)
    assert field is not None and field.cut == {}
    assert field.scores["xtx"][0] * 350 == pytest.approx(np.array([300.0]))


def test_one_that_plays_a_single_game_does_not_cut_off_those_that_play_eight(tmp_path: Path) -> None:
    """The paper's RC-DQN learns for 100,000 steps of one game, the others for 800,000 of eight."""
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=40_000)
    write_run(tmp_path / "b", [20] * 50, steps=5_000, agent="rc-dqn", games=1)
    board = read_board(tmp_path)
    field = common_field(board, board.variants)
    assert field is not None and field.cut == {}
    assert {agent: scores[0][0] * 350 for agent, scores in field.scores.items()} == pytest.approx(
        {"xtx": 300, "rc-dqn": 20}
    )


def test_a_run_that_has_just_begun_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10] * 400, steps=40_000)
    write_run(tmp_path / "b", [20] * 39, steps=40_000, agent="drrn", finished=False)
    board = read_board(tmp_path)
    field = common_field(board, board.variants)
    assert field is not None and list(field.scores) == ["xtx"] and field.absent == ["drrn"]
