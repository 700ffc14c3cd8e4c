"""Which runs may be averaged, and what they are called."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from report_runs import read_board, write_run

from xtx.agents.registry import make_preset
from xtx.config.settings import RunConfig, make_xtx_settings
from xtx.report.data.game_facts import list_reward_events
from xtx.report.data.load_runs import read_run
from xtx.report.data.paper_cells import describe_filled_cells, fill_cells
from xtx.report.data.paper_settings import NAMED, list_deviations
from xtx.report.formats.markdown import to_markdown
from xtx.report.pages.short_table import build_short
from xtx.search_versions import search_versions


def test_seeds_are_averaged(tmp_path: Path) -> None:
    for seed, score in enumerate((30, 40, 50)):
        write_run(tmp_path / str(seed), [score] * 3, seed=seed)
    (group,) = read_board(tmp_path).groups
    assert group.label == "xtx" and group.avg.tolist() == [30, 40, 50] and group.notes == []


def test_other_settings_are_not_averaged(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    small = asdict(make_xtx_settings())
    small["q"]["hidden"] = 16
    write_run(tmp_path / "b", [10], seed=1, settings=small)
    labels = [group.label for group in read_board(tmp_path).groups]
    assert labels == ["xtx", "xtx (q.hidden=16)"]  # those of the paper need no telling


def test_an_agent_in_a_file_goes_by_the_files_name(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30], agent="/home/one/agents/mine.py:Mine", settings={})
    write_run(tmp_path / "b", [30], agent="/home/one/agents/mine.py:Other", settings={}, steps=2000)
    write_run(tmp_path / "c", [30], agent="/home/one/agents/mine.py:Other", settings={}, steps=1000)
    assert {group.label for group in read_board(tmp_path).groups} == {
        "mine.py:Mine", "mine.py:Other", "mine.py:Other (1,000 steps)",
    }  # fmt: skip
    write_run(tmp_path / "d", [40], agent="/home/two/mine.py:Mine", settings={})
    labels = {group.label: group.avg.tolist() for group in read_board(tmp_path).groups if group.steps > 2000}
    assert labels == {"/home/one/agents/mine.py:Mine": [30], "/home/two/mine.py:Mine": [40]}, "else they would be one"


def test_other_lengths_are_not_averaged(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    write_run(tmp_path / "b", [10], seed=1, steps=1000)
    write_run(tmp_path / "c", [20], seed=1, steps=2000, game="zork3")
    labels = {(group.variant.game, group.label) for group in read_board(tmp_path).groups}
    assert labels == {("zork1", "xtx"), ("zork1", "xtx (1,000 steps)"), ("zork3", "xtx")}


def test_settings_that_there_were_not_yet_are_the_papers(tmp_path: Path) -> None:
    old, new, other = (asdict(make_xtx_settings()) for _ in range(3))
    del old["retrace"]
    other["retrace"] = True
    write_run(tmp_path / "a", [30], settings=old)
    write_run(tmp_path / "b", [40], seed=1, settings=new)
    write_run(tmp_path / "c", [90], seed=2, settings=other)
    found = {group.label: group.avg.tolist() for group in read_board(tmp_path).groups}
    assert found == {"xtx": [30, 40], "xtx (retrace=True)": [90]}


def test_settings_that_there_were_not_yet_are_not_those_of_todays_preset(tmp_path: Path) -> None:
    """xtx-fast of an earlier version trained its imitation policy in another way."""
    old, new = (asdict(make_preset("xtx-fast", "")) for _ in range(2))
    for name in ("known", "anneal"):
        del old["imitation"][name]
    old["imitation"] |= {"passes": 40, "enough": 0.005}
    write_run(tmp_path / "a", [30], agent="xtx-fast", settings=old)
    write_run(tmp_path / "b", [40], agent="xtx-fast", settings=new)
    found = {group.label: set(group.other_settings) for group in read_board(tmp_path).groups}
    changed = {"imitation.passes=40", "imitation.enough=0.005", "imitation.known=0.0", "imitation.anneal=0.0"}
    earlier = next(label for label in found if label != "xtx-fast")
    assert found == {"xtx-fast": set(), earlier: changed} and "imitation.known=0.0" in earlier


def test_what_a_name_beyond_the_paper_says_is_no_other_setting(tmp_path: Path) -> None:
    for name in NAMED:
        settings = asdict(make_preset(name, "zork1"))
        assert list_deviations(RunConfig(game="zork1", agent=name, settings=settings), "zork1") == []
    both = asdict(make_preset("xtx-plus", "zork1"))
    write_run(tmp_path / "a", [30], agent="xtx-plus", settings=both)
    write_run(tmp_path / "b", [40], agent="xtx-plus", settings=both | {"explore_steps": 70})
    write_run(tmp_path / "c", [50], agent="xtx-plus", settings=both | {"retrace": False})
    found = {group.label: group.other_settings for group in read_board(tmp_path).groups}
    assert found == {
        "xtx-plus": [],
        "xtx-plus (explore_steps=70)": ["explore_steps=70"],
        "xtx-plus (retrace=False)": ["retrace=False"],
    }


def test_a_score_in_one_byte_is_another_setting(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30], game="dragon")
    write_run(tmp_path / "b", [126], game="dragon", byte_score=True)
    found = {group.label: group.other_settings for group in read_board(tmp_path).groups}
    assert found == {"xtx": [], "xtx (byte_score=True)": ["byte_score=True"]}


def test_stochastic_and_starred_games_are_rows_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [3], game="zork3")
    write_run(tmp_path / "b", [3], game="/stories/zork3.z5", extra_actions=True)
    write_run(tmp_path / "c", [3], game="zork3", extra_actions=True, stochastic=True)
    write_run(tmp_path / "d", [3], extra_actions=True)  # zork1 has no added actions
    assert [v.title for v in read_board(tmp_path).variants] == ["zork1", "zork3", "zork3*", "zork3* (stochastic)"]


def test_runs_with_the_whole_dictionary_are_rows_of_their_own_without_published_scores(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [3])
    write_run(tmp_path / "b", [9], actions="whole")
    variants = {v.title: v for v in read_board(tmp_path).variants}
    assert set(variants) == {"zork1", "zork1 (whole dictionary)"}
    assert variants["zork1 (whole dictionary)"].is_whole  # the paper's scores are not beside it


def test_finished_runs_alone_count_where_there_are_some(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    write_run(tmp_path / "b", [10], seed=1, finished=False)
    (group,) = read_board(tmp_path).groups
    assert group.avg.tolist() == [30] and len(group.left_out) == 1
    assert "xtx on zork1: 1 unfinished run not counted" in group.notes
    assert "xtx on zork1: one seed only, so nothing is known of its spread" in group.notes


def test_the_same_seed_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    write_run(tmp_path / "b", [30])
    (group,) = read_board(tmp_path).groups
    assert len(group.runs) == 1 and "seed 0 is there more than once" in group.notes[0]


def test_agents_keep_their_colours(tmp_path: Path) -> None:
    for agent in ("random", "mine", "xtx-no-mix", "drrn"):
        write_run(tmp_path / agent, [1], agent=agent)
    assert read_board(tmp_path).colours == {"drrn": 2, "random": 5, "mine": 6, "xtx-no-mix": 7}


def test_mixed_versions_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    write_run(tmp_path / "b", [30], seed=1, git="def")
    assert any("different versions" in note and "def" in note for note in read_board(tmp_path).notes)


def test_settings_that_differ_between_games_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    own = asdict(make_xtx_settings("deephome"))
    write_run(tmp_path / "b", [30], game="deephome", settings=own)
    assert not [note for note in read_board(tmp_path).notes if "not the same" in note], "the paper's own difference"
    own["q"]["hidden"] = 64
    write_run(tmp_path / "c", [30], game="detective", settings=own)
    (note,) = [note for note in read_board(tmp_path).notes if "not the same" in note]
    assert "q.hidden (128, 64)" in note


def test_settings_that_are_not_the_papers_are_found(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", [30], num_envs=4))
    assert list_deviations(run.config, "zork1") == ["num_envs=4"]
    assert list_deviations(run.config, "deephome") == ["inverse.alpha1=1.0", "num_envs=4"]
    assert list_deviations(RunConfig("zork1", "random", {}, num_envs=4), "zork1") == []


@pytest.mark.parametrize("change", [{"mix": 0.1}, {"phases": False}, {"uniform": True}])
def test_what_another_name_would_say_is_found(tmp_path: Path, change: dict[str, object]) -> None:
    """XTX with the settings of one of its ablations is not the paper's XTX, and neither fills its cell."""
    (line,) = (f"{name}={value}" for name, value in change.items())
    for name in ("xtx", "xtx-fast", "xtx-plus"):
        settings = asdict(make_preset(name, "zork1")) | change
        assert list_deviations(RunConfig("zork1", name, settings), "zork1") == [line]
    write_run(tmp_path / "a", [30], settings=asdict(make_xtx_settings()) | change)
    board = read_board(tmp_path)
    assert board.groups[0].other_settings == [line] and fill_cells(board, False) == []
    write_run(tmp_path / "b", [40], seed=1)
    assert {group.label for group in read_board(tmp_path).groups} == {"xtx", f"xtx ({line})"}
    uniform = asdict(make_preset("xtx-uniform", "zork1"))
    assert list_deviations(RunConfig("zork1", "xtx-uniform", uniform), "zork1") == []
    assert list_deviations(RunConfig("zork1", "xtx-uniform", uniform | {"uniform": False}), "zork1") == [
        "uniform=False"
    ]


def test_the_wide_grammar_of_earlier_versions_is_another_setting(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30])
    write_run(tmp_path / "b", [50], wide_grammar=True)
    found = {group.label: group.other_settings for group in read_board(tmp_path).groups}
    assert found == {"xtx": [], "xtx (wide_grammar=True)": ["wide_grammar=True"]}


def test_reward_events_are_new_highest_scores() -> None:
    events = list_reward_events(["a", "b", "c", "d", "e"], [0, 5, 3, 5, 10])
    assert [(event.step, event.score, event.action) for event in events] == [(2, 5, "b"), (5, 10, "e")]


def test_how_much_of_the_papers_tables_is_filled(tmp_path: Path) -> None:
    none = read_board(write_run(tmp_path / "other", [1], game="905", steps=100_000))
    for seed in range(3):
        write_run(tmp_path / "all" / f"zork1-{seed}", [30], seed=seed)
    write_run(tmp_path / "all" / "less", [30], agent="drrn", steps=200_000)
    write_run(tmp_path / "all" / "longer", [30], agent="drrn", game="detective", steps=400_000)
    write_run(tmp_path / "all" / "short", [30], agent="inv-dy", steps=100_000)
    write_run(tmp_path / "all" / "again", [30], steps=200_000)
    other = asdict(make_preset("drrn", "")) | {"episode_limit": 7}
    write_run(tmp_path / "all" / "odd", [30], agent="drrn", game="omniquest", settings=other)
    write_run(tmp_path / "all" / "ours", [30], agent="xtx-retrace", settings=asdict(make_preset("xtx-retrace", "")))
    board = read_board(tmp_path / "all")
    cells = {(cell.group.variant.row, cell.group.agent): cell for cell in fill_cells(board, False)}
    found = {place: (cell.steps, cell.is_read_off, len(cell.group.runs)) for place, cell in cells.items()}
    assert found == {
        ("zork1", "xtx"): (800_000, False, 3),
        ("zork1", "drrn"): (200_000, False, 1),
        ("detective", "drrn"): (200_000, True, 1),
    }
    assert fill_cells(board, True) == [] == fill_cells(none, False)
    assert describe_filled_cells(none) == ""
    assert describe_filled_cells(board) == (
        "Filled cells (games x agents): 3 of 60 in the paper's table 1 (1 as long as the paper's runs, 2 at 200,000 "
        "steps ▾; 2 with 1 seed, 1 with 3 seeds), and 0 of 25 in its table 2. The paper has 3 seeds in every cell."
    )
    assert describe_filled_cells(board, [False]) == (
        "Filled cells (games x agents): 3 of 60 in the paper's table 1 (1 as long as the paper's runs, 2 at 200,000 "
        "steps ▾; 2 with 1 seed, 1 with 3 seeds). The paper has 3 seeds in every cell."
    )


def test_cells_read_off_longer_runs_keep_the_marks_of_these(tmp_path: Path) -> None:
    """All but that they are not finished."""
    more: dict[str, Any] = {"steps": 400_000, "finished": False}
    earlier = asdict(make_xtx_settings())
    del earlier["imitation"]["known"]  # of the versions that trained in bfloat16 on a GPU
    write_run(tmp_path / "a", [30] * 3000, searching={"search": "0", "survey": "0"}, settings=earlier, **more)
    write_run(tmp_path / "b", [30] * 3000, agent="drrn", searching=search_versions(), **more)
    board = read_board(tmp_path)
    cells = fill_cells(board, False)
    assert {cell.steps for cell in cells} == {200_000}
    signs = {cell.group.agent: "".join(mark.sign for mark in cell.marks) for cell in cells}
    assert signs == {"xtx": "▾≈§†", "drrn": "▾†"}
    page = to_markdown(build_short(board, "page"))
    assert "| 200,000 ≈§† |" in page and "| 200,000 † |" in page
    assert "all rows: fewer steps than the paper's runs" in page and "not finished" not in page


def test_the_longest_runs_have_the_plain_name_where_none_has_the_papers_length(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30] * 20, steps=200_000)
    write_run(tmp_path / "b", [40] * 20, steps=40_000)
    found = {group.label: group.steps for group in read_board(tmp_path).groups}
    assert found == {"xtx": 200_000, "xtx (40,000 steps)": 40_000}
