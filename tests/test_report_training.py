"""What a report shows of the course of training: losses and speed, milestones, evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from report_runs import read_board, write_lines, write_run

from xtx.report.data.load_runs import convert_summary, read_run
from xtx.report.data.run_summary import read_summary, summarise, to_json
from xtx.report.data.statistics import compute_area_under_curve
from xtx.report.formats.html import to_html
from xtx.report.formats.markdown import to_markdown
from xtx.report.pages.build import build
from xtx.report.pages.document import Gallery, Section, Table
from xtx.report.pages.milestones import describe_handicaps, find_steps_to_share
from xtx.report.pages.training_numbers import SPEED, find_curve, make_section
from xtx.report.plots.svg_plots import LinePlot


def write_metrics(folder: Path, **columns: list[float]) -> None:
    """Lines of metrics.jsonl after every 1,000 steps."""
    rows = zip(*columns.values(), strict=True)
    lines = [{"step": 1000 * n, **dict(zip(columns, row, strict=True))} for n, row in enumerate(rows, start=1)]
    write_lines(folder, "metrics", lines)


def test_losses_are_plotted_as_means_over_seeds(tmp_path: Path) -> None:
    for seed, values in enumerate(([4.0, 2.0], [2.0, 1.0])):
        folder = write_run(tmp_path / str(seed), [1] * 20, seed=seed, steps=2000)
        write_metrics(folder, loss_td=values, imitation_accuracy=[0.5, 0.9])
    board = read_board(tmp_path)
    found = make_section(board, board.variants[0])
    assert found is not None and found.folded
    gallery = found.blocks[1]
    assert isinstance(gallery, Gallery)
    plots = {figure.caption: figure.plot for figure in gallery.figures}
    assert list(plots) == ["TD loss", "imitation accuracy", "steps/s"]
    loss = plots["TD loss"]
    assert isinstance(loss, LinePlot)
    (line,) = loss.lines
    assert line.y[-1] == 1.5 and line.y[np.searchsorted(line.x, 1000)] == 3.0
    assert np.isnan(line.y[0]), "nothing is known before the first line"


def test_the_speed_is_that_of_each_stretch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [1] * 20, steps=2000)
    start = 1_000_000_000
    write_lines(folder, "timing", [{"step": 1000, "time": start + 10}, {"step": 2000, "time": start + 110}])
    found = find_curve(read_run(folder), SPEED)
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([1000, 2000], [100, 10])


@pytest.mark.parametrize("value", ['"x"', "null", "NaN", "Infinity", "true", "[1]", "1e999"])
def test_what_is_no_number_is_left_out(value: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [1] * 20, steps=2000)
    (folder / "metrics.jsonl").write_text(f'{{"step": 1000, "loss_td": {value}, "q": 2}}\n')
    assert "loss_td" not in read_run(folder).numbers
    to_html(build(read_board(tmp_path)))


def test_milestones(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0] * 10 + [8] * 190, every=1000, steps=200_000, extra_actions=True)
    board = read_board(tmp_path)
    text = to_markdown(build(board))
    row = next(line for line in text[text.index("# Milestones") :].splitlines() if line.startswith("| xtx |"))
    cells = [cell.strip() for cell in row.split("|")[2:6]]
    assert cells == ["0.0", "0.0", "7.2", "6.6"], "no column for steps that no run has come to"
    run = board.runs[0]
    found = [find_steps_to_share(run, share) for share in (0.25, 0.5, 0.75)]
    exact = [next(n for n in range(11, 200) if 8 * (n - 10) / n >= share * 8) * 1000 for share in (0.25, 0.5, 0.75)]
    assert all(at is not None and 0 <= at - true <= 200_000 / 180 for at, true in zip(found, exact, strict=True))
    assert describe_handicaps(board.groups[0]).text == "fixed seed · valid actions · extra actions · restore"
    write_run(tmp_path / "b", [0] * 5, game="zork3", stochastic=True)
    group = next(group for group in read_board(tmp_path).groups if group.variant.stochastic)
    assert (
        describe_handicaps(group).text == "valid actions · restore" and find_steps_to_share(group.runs[0], 0.5) is None
    )


def test_areas_are_compared_over_the_length_that_all_have(tmp_path: Path) -> None:
    scores = [0] * 10 + [800]
    write_run(tmp_path / "a", [*scores, *[8] * 289], steps=30_000)
    write_run(tmp_path / "b", [4] * 100, agent="drrn", steps=10_000)
    write_run(tmp_path / "c", [4] * 10, agent="inv-dy", steps=1_000)
    board = read_board(tmp_path)
    text = to_markdown(build(board))
    part = text[text.index("# Milestones") :].partition("\n#")[0]
    assert "area under that curve up to step 10,000, which all rows with a figure there have come to" in part
    areas = {line.split("|")[1].strip(): line.split("|")[4].strip() for line in part.splitlines() if line[:1] == "|"}
    exact = compute_area_under_curve([100 * n for n in range(1, 101)], [*scores, *[8] * 89], 10_000)
    group = next(group for group in board.groups if group.agent == "xtx")
    assert abs(group.compute_area_at(10_000)[0] - exact) < 0.03 * exact, "read at the points that summaries hold"
    assert areas["xtx"] == f"{group.compute_area_at(10_000)[0]:.1f}" and areas["drrn"] == "4.0"
    assert areas["inv-dy"] == "–", "less than a tenth of the longest"  # noqa: RUF001
    assert group.compute_area_at(30_000)[0] == group.runs[0].digest.area


def test_numbers_are_means_over_fiftieths_of_the_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [1] * 20, steps=100_000)
    write_metrics(folder, loss_td=[float(n) for n in range(1, 101)])
    steps, values = read_run(folder).numbers["loss_td"]
    assert steps.tolist() == [2000 * n for n in range(1, 51)] and values.tolist() == [2 * n - 0.5 for n in range(1, 51)]


def test_summaries_hold_the_numbers(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [1] * 20, steps=100_000)
    write_metrics(folder, loss_td=[1 / n for n in range(1, 101)], q=[2.0] * 100, nonsense=[1.0] * 100)
    run = read_run(folder)
    file = tmp_path / "seed-0.json"
    file.write_text(to_json(summarise(run, None)))
    found = convert_summary(file, read_summary(file)).numbers
    assert list(found) == list(run.numbers) == ["loss_td", "q"]
    for name, columns in run.numbers.items():
        assert [column.tolist() for column in columns] == [column.tolist() for column in found[name]]
    text = file.read_text()
    line = next(line for line in text.splitlines(keepends=True) if line.startswith('"numbers"'))
    file.write_text(text.replace(",\n" + line, "\n"))
    assert convert_summary(file, read_summary(file)).numbers == {}, "as summaries of earlier versions"


def test_evaluations_are_listed_one_by_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [1] * 20, steps=2000)
    numbers = {"episodes": 10, "score_mean": 3.0, "score_std": 1.0, "score_max": 5, "length_mean": 20.0}
    line = {"trained_steps": 2000, "checkpoint": "best", "greedy": False, "date": "2001-09-09", "figures": numbers}
    write_lines(folder, "evaluations", [line, {**line, "greedy": True}])
    text = to_markdown(build(read_board(tmp_path)))
    assert "| xtx · seed 0 | 2,000 (best) | drawn | 10 | 3.0 ± 1.0 | 5 | 20.0 | 2001-09-09 |" in text
    assert text.count("| xtx · seed 0 | 2,000 (best)") == 2
    with (folder / "evaluations.jsonl").open("a") as file:
        file.write(json.dumps({**line, "figures": 7}) + "\n")
    run = read_run(folder)
    assert len(run.evaluations) == 2 and any("evaluations.jsonl is damaged after line 2" in note for note in run.notes)


def test_what_says_nothing_is_not_shown(tmp_path: Path) -> None:
    """Off the paper's games no columns of the paper; with one game and one agent no averages and no comparison."""
    write_run(tmp_path / "a", [5] * 20, game="905", agent="drrn", steps=2000)
    document = build(read_board(tmp_path))
    titles = [block.title for block in document.sections]
    assert "Averages over games" not in to_markdown(document) and not any(t.startswith("Across") for t in titles)

    def tables(section: Section) -> list[Table]:
        inner = [table for block in section.blocks if isinstance(block, Section) for table in tables(block)]
        return [*(block for block in section.blocks if isinstance(block, Table)), *inner]

    assert not any("paper" in table.header for one in document.sections for table in tables(one))
