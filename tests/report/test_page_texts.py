"""What a report says in words, and leaves out where it would say nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from report_runs import FACTS, SETTINGS, read_board, write_lines, write_run

from xtx.report.data.load_runs import find_runs, read_runs
from xtx.report.data.run_groups import group_runs
from xtx.report.pages import training_numbers
from xtx.report.pages.build import build
from xtx.report.pages.by_game import make_statistics
from xtx.report.pages.document import Gallery, Table, Text
from xtx.report.pages.opening import MAX_LINES
from xtx.report.plots.svg_plots import Line, LinePlot


def test_the_papers_statistics_are_beside_its_games_only(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    runs, failed = read_runs(find_runs([tmp_path]))
    for name, paper in (("zork1", 2), ("mine", 0)):
        section = make_statistics(group_runs(runs, failed, lambda config, name=name: replace(FACTS, name=name)))
        assert section is not None
        table = section.blocks[1]
        assert isinstance(table, Table) and list(table.header).count("paper") == paper
        assert len(table.rows[0].cells) == len(table.header) == 6 + paper


def test_numbers_that_an_agent_does_not_have_are_not_plotted(tmp_path: Path) -> None:
    """DRRN notes an intrinsic reward of 0."""
    for agent, reward in (("drrn", 0.0), ("xtx", 0.5)):
        folder = write_run(tmp_path / agent, [30] * 4, agent=agent, steps=400)
        lines = [{"step": step, "intrinsic_reward": reward, "q": 1.0} for step in (100, 200, 300, 400)]
        write_lines(folder, "metrics", lines)
    board = read_board(tmp_path)
    section = training_numbers.make_section(board, board.variants[0])
    assert section is not None and isinstance(section.blocks[1], Gallery)
    plots = {figure.caption: figure.plot for figure in section.blocks[1].figures}
    agents = {name: [line.agent for line in plot.lines] for name, plot in plots.items() if isinstance(plot, LinePlot)}
    assert agents["intrinsic reward"] == ["xtx"] and agents["mean Q-value"] == ["xtx", "drrn"]


def test_the_best_final_score_is_that_of_the_greatest_share_of_a_games_points(tmp_path: Path) -> None:
    """20 of 350 are fewer than 4 of 7; of a game whose maximum is not known nothing can be said."""
    for game, score in {"zork1": 20, "zork3": 4, "nowhere-game": 900}.items():
        write_run(tmp_path / game, [score] * 4, game=game, steps=400)
    first = build(read_board(tmp_path)).sections[0].blocks[0]
    assert isinstance(first, Text) and first.text == "Best final score: 4 of 7 points, by xtx on zork3."


def test_games_are_counted_once_whatever_the_way_they_are_played(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    write_run(tmp_path / "b", [20], agent="drrn")
    assert build(read_board(tmp_path)).lead == "2 runs of 2 agents on 1 game."
    write_run(tmp_path / "c", [20], stochastic=True)
    assert build(read_board(tmp_path)).lead == "3 runs of 2 agents on 1 game, played in 2 ways."


def test_a_curve_of_one_point_is_seen(tmp_path: Path) -> None:
    """A line needs two points."""
    write_run(tmp_path / "a", [5], steps=100)
    first = build(read_board(tmp_path)).sections[0].blocks[2]
    assert isinstance(first, Gallery) and 'class="mark"' in first.figures[0].svg
    write_run(tmp_path / "b", [5, 6], steps=200, game="detective")
    svg = LinePlot([Line("a", 0, np.arange(3.0), np.array([np.nan, 1.0, 2.0]))], "x", "y").draw_svg()
    assert 'class="mark"' not in svg


def test_only_what_plots_show_is_explained(tmp_path: Path) -> None:
    for game in ("nowhere-game", "other-game"):
        write_run(tmp_path / game, [5, 6], game=game, steps=200)
    assert _said_of_training(tmp_path) == "Mean final score of the last 100 episodes."
    write_run(tmp_path / "seed", [5, 6], game="other-game", steps=200, seed=1)
    assert _said_of_training(tmp_path).endswith(". Bands: ± one standard deviation over seeds.")
    write_run(tmp_path / "paper", [300])
    assert _said_of_training(tmp_path).endswith("over seeds; dashed: the paper's Avg.")


def _said_of_training(folder: Path) -> str:
    [training] = (section for section in build(read_board(folder)).sections if section.title == "Training")
    assert isinstance(training.blocks[0], Text)
    return training.blocks[0].text


def test_the_large_curve_says_how_many_agents_it_leaves_out(tmp_path: Path) -> None:
    for number in range(MAX_LINES + 2):
        write_run(tmp_path / str(number), [number] * 4, agent=f"agent-{number}")
    gallery = next(b for b in build(read_board(tmp_path)).sections[0].blocks if isinstance(b, Gallery))
    assert gallery.figures[0].caption.endswith(f"({MAX_LINES} of {MAX_LINES + 2} agents)")


def test_who_is_ahead_is_told_with_its_settings(tmp_path: Path) -> None:
    """Two kinds of xtx are two agents."""
    small = SETTINGS["xtx"] | {"trajectories": {**SETTINGS["xtx"]["trajectories"], "floor": 3}}
    for game in ("zork1", "detective"):
        write_run(tmp_path / game / "a", [10] * 4, game=game, steps=400)
        write_run(tmp_path / game / "b", [20] * 4, game=game, steps=400, settings=small)
        write_run(tmp_path / game / "c", [15] * 4, game=game, steps=400, agent="drrn")
    said = [block.text for block in build(read_board(tmp_path)).sections[0].blocks if isinstance(block, Text)]
    assert any("xtx (trajectories.floor=3) on 2 (zork1, detective)." in line for line in said), said
    for number, game in enumerate(("ludicorp", "omniquest", "zork3", "library")):
        write_run(tmp_path / game / "a", [1] * 4, game=game, steps=400, agent="drrn")
        write_run(tmp_path / game / "b", [5] * 4, game=game, steps=400, agent=f"agent-{number}")
    said = [block.text for block in build(read_board(tmp_path)).sections[0].blocks if isinstance(block, Text)]
    assert any(line.endswith("on 1 (ludicorp), agent-2 on 1 (zork3), others on 2.") for line in said), said
