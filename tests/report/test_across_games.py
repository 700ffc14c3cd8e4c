"""Agents compared over games: at equally many steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_runs import SETTINGS, read_board, write_run

from xtx.report.pages.across_games import find_shared_games, make_ablations, make_section
from xtx.report.pages.document import Gallery, Text
from xtx.report.plots.svg_plots import BarPlot


def test_agents_are_compared_at_equal_steps(tmp_path: Path) -> None:
    """Who was run for longer counts as it was when the other ended."""
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=40_000)
    write_run(tmp_path / "b", [20] * 200, steps=20_000, agent="drrn")
    board = read_board(tmp_path)
    field = find_shared_games(board, board.variants)
    assert field is not None and list(field.cut.values()) == [[20_000]]
    assert {agent: scores[0][0] * 350 for agent, scores in field.scores.items()} == pytest.approx(
        {"xtx": 10, "drrn": 20}
    )
    assert make_section(board, stochastic=False) is None, "one game has no average over games"
    write_run(tmp_path / "c", [1] * 200, steps=20_000, game="zork3")
    write_run(tmp_path / "d", [2] * 200, steps=20_000, game="zork3", agent="drrn")
    shown = make_section(read_board(tmp_path), stochastic=False)
    assert shown is not None and isinstance(shown.blocks[0], Text)
    assert "a round step that each has come to: zork1 20,000." in shown.blocks[0].text


def test_seeds_of_one_agent_are_taken_at_equal_steps_too(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=80_000, finished=False)
    write_run(tmp_path / "b", [10] * 200, steps=80_000, finished=False, seed=1)
    write_run(tmp_path / "c", [20] * 400, steps=40_000, agent="drrn")
    board = read_board(tmp_path)
    field = find_shared_games(board, board.variants)
    assert field is not None and list(field.cut.values()) == [[20_000]]
    assert field.scores["xtx"][0] * 350 == pytest.approx(np.array([10.0, 10.0]))


def test_a_score_counts_as_nothing_before_the_first_episode_has_ended(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10] * 200)
    (group,) = read_board(tmp_path).groups
    assert group.compute_avg_at(99).tolist() == [0] and group.compute_avg_at(100).tolist() == [10]


def test_ablations_are_shown_at_equal_steps(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=40_000)
    write_run(tmp_path / "b", [20] * 200, steps=20_000, agent="xtx-no-mix", settings=SETTINGS["xtx"])
    shown = make_ablations(read_board(tmp_path))
    assert shown is not None
    figures = [figure for block in shown.blocks if isinstance(block, Gallery) for figure in block.figures]
    plot = figures[-1].plot
    assert isinstance(plot, BarPlot)
    bars = {bar.agent: bar.estimate.value for bar in plot.bars if bar.estimate}
    assert bars == {"xtx": 10, "xtx-no-mix": 20} and "at step 20,000" in figures[-1].caption


def test_nobody_is_cut_where_all_are_as_long(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=40_000)
    write_run(tmp_path / "b", [20] * 200, steps=40_000, agent="drrn")
    board = read_board(tmp_path)
    field = find_shared_games(board, board.variants)
    assert field is not None and field.cut == {}
    assert field.scores["xtx"][0] * 350 == pytest.approx(np.array([300.0]))


def test_one_that_plays_a_single_game_does_not_cut_off_those_that_play_eight(tmp_path: Path) -> None:
    """The paper's RC-DQN learns for 100,000 steps of one game, the others for 800,000 of eight."""
    write_run(tmp_path / "a", [10] * 200 + [300] * 200, steps=40_000)
    write_run(tmp_path / "b", [20] * 50, steps=5_000, agent="rc-dqn", num_envs=1)
    board = read_board(tmp_path)
    field = find_shared_games(board, board.variants)
    assert field is not None and field.cut == {}
    assert {agent: scores[0][0] * 350 for agent, scores in field.scores.items()} == pytest.approx(
        {"xtx": 300, "rc-dqn": 20}
    )
    write_run(tmp_path / "c", [20] * 200, steps=20_000, agent="drrn")
    write_run(tmp_path / "d", [20] * 25, steps=2_500, agent="mprc-dqn", num_envs=1)
    board = read_board(tmp_path)
    field = find_shared_games(board, board.variants)
    assert field is not None and list(field.cut.values()) == [[2_000, 20_000]]


def test_a_run_that_has_just_begun_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10] * 400, steps=40_000)
    write_run(tmp_path / "b", [20] * 39, steps=40_000, agent="drrn", finished=False)
    board = read_board(tmp_path)
    field = find_shared_games(board, board.variants)
    assert field is not None and list(field.scores) == ["xtx"] and field.absent == ["drrn"]
