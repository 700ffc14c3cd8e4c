"""Reports from run folders that were written by hand: every figure in them can be worked out."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_runs import SETTINGS, read_board, write_run

from xtx.agents.registry import make_preset
from xtx.cli.main import main
from xtx.core import UserError
from xtx.report.data.load_runs import find_runs, read_run
from xtx.report.data.paper_tables import read_paper
from xtx.report.data.row_marks import BFLOAT16, FEWER, SEARCH, list_marks
from xtx.report.formats.html import to_html
from xtx.report.formats.markdown import to_markdown
from xtx.report.number_format import format_duration, format_number, format_short, format_signed
from xtx.report.pages.beside_paper import compute_delta
from xtx.report.pages.build import build
from xtx.report.pages.document import Gallery, Section, Text
from xtx.report.plots.svg_plots import (
    COLOURS,
    NUM_MARKS,
    PALETTE,
    Line,
    LinePlot,
    choose_marker,
    choose_ticks,
    make_standalone,
)
from xtx.search_versions import search_versions


def learning(start: float, end: float, seed: int, episodes: int = 400) -> list[int]:
    """Scores that rise from one level to the other, with noise."""
    rng = np.random.default_rng(seed)
    return [int(s) for s in rng.normal(np.linspace(start, end, episodes), 2.0 + abs(end) / 20)]


# --- reading ----------------------------------------------------------------------------------------------------


def test_a_run_is_read(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", [0, 10, 5], steps=400))
    assert (run.reached, run.finished, run.notes) == (400, True, [])
    assert run.scores.tolist() == [0, 10, 5] and run.digest.curve.mean.tolist() == [0, 5, 5]
    assert run.digest.best is not None and run.digest.best.score == 10
    assert run.speed == 100
    assert run.digest.endings.ended == {"won": 0, "died": 3, "limit": 0}


def test_runs_are_found_however_deep_and_each_once(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", [1]), write_run(tmp_path / "deep" / "er" / "b", [1])
    assert find_runs([tmp_path]) == [a, b]
    assert find_runs([a, tmp_path]) == [a, b]


def test_a_folder_without_runs_is_complained_of(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run in it"):
        find_runs([tmp_path])
    with pytest.raises(UserError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", [0, 10], steps=1000, finished=False))
    assert not run.finished and run.notes == ["not finished: 200 of 1,000 steps"]


def test_a_copy_without_checkpoints_can_be_finished(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [0, 10], steps=10_000)
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    assert read_run(folder).finished


def test_damage_beside_the_episodes_is_noted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [0, 10])
    (folder / "timing.jsonl").write_text('{"step": 1, "time": 2}\n{"step"\n')
    (folder / "metrics.jsonl").write_text("[1]\n")
    (folder / "versions.json").write_text("{}")
    notes = " / ".join(read_run(folder).notes)
    assert "timing.jsonl is damaged after line 1" in notes
    assert "metrics.jsonl is damaged after line 0" in notes
    assert "versions.json is damaged" in notes


@pytest.mark.parametrize("line", ["3", '{"step": "x", "time": 1}', '{"step": 5, "time": "now"}', '{"time": 7}', "nul"])
def test_lines_with_nonsense_in_them_do_no_harm(line: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [0, 10])
    for name in ("timing", "metrics"):
        (folder / f"{name}.jsonl").write_text(line + "\n")
    (folder / "versions.json").write_text('[{"started": 5, "packages": null, "git": null}]')
    Page().feed(to_html(build(read_board(tmp_path))))


@pytest.mark.parametrize("line", ["3", "[]", '{"episode": 1}', "{", '{"step": null}', "\x00"])
def test_damaged_episodes_leave_the_run_out(line: str, tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0, 10])
    (write_run(tmp_path / "b", [0, 10], seed=1) / "episodes.jsonl").write_text(line + "\n")
    board = read_board(tmp_path)
    assert len(board.runs) == 1 and "b/episodes.jsonl is damaged" in board.unreadable[0].why


def test_a_line_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [0, 10])
    with (folder / "episodes.jsonl").open("a") as file:
        file.write('{"episode":3,"st')
    assert len(read_run(folder).scores) == 2


# --- the report -------------------------------------------------------------------------------------------------


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Two agents on three deterministic games and one stochastic, an ablation, three seeds each; and a damaged run."""
    ends = {("zork1", "xtx"): 100, ("zork1", "drrn"): 40, ("dragon", "xtx"): 20, ("dragon", "drrn"): -4}
    ends |= {("detective", "xtx"): 300, ("detective", "drrn"): 200}
    for (game, agent), end in ends.items():
        for seed in range(3):
            folder = tmp_path / "runs" / f"{game}-{agent}-{seed}"
            write_run(folder, learning(0, end, seed), game=game, agent=agent, seed=seed, every=2000)
    for seed in range(2):
        write_run(
            tmp_path / "runs" / f"ablation-{seed}",
            learning(0, 60, seed),
            agent="xtx-no-mix",
            seed=seed,
            steps=100_000,
            every=250,
        )
    write_run(tmp_path / "runs" / "stochastic", learning(0, 50, 0), stochastic=True, every=2000)
    damaged = write_run(tmp_path / "runs" / "zz-damaged", [1])
    (damaged / "episodes.jsonl").write_text('{"episode": "x"}\n')
    return tmp_path / "runs"


def test_the_tables_beside_the_papers(tmp_path: Path) -> None:
    for seed, score in enumerate((90, 100, 110)):
        write_run(tmp_path / f"x{seed}", [score] * 3, seed=seed)
        write_run(tmp_path / f"d{seed}", [50] * 3, agent="drrn", seed=seed, steps=1000)
    text = to_markdown(build(read_board(tmp_path)))
    assert "zork1 · 350 points · Δ ours +14.3 %, paper +16.9 %" in text
    text = text[text.index("## Deterministic games") :]
    xtx = next(line for line in text.splitlines() if line.startswith("| xtx |"))
    assert [cell.strip() for cell in xtx.split("|")[2:11]] == [
        "100.0 ± 8.2", "103.4 ± 10.9", "−3.4", "100.0 ± 8.2", "100.0 ± 8.2", "152.7 ± 1.7", "−52.7", "3",  # noqa: RUF001
        "800,000",
    ]  # fmt: skip
    drrn = next(line for line in text.splitlines() if line.startswith("| drrn |"))
    assert "1,000 ▾" in drrn and "+9.7" in drrn
    assert "| rc-dqn | – | 41.7 ± 0.6 |" in text, "what only the paper has is shown too"  # noqa: RUF001
    assert "Averages over games" not in text, "one game makes no average"


def test_both_definitions_of_avg_stand_side_by_side(tmp_path: Path) -> None:
    """The first environment ends many short episodes, the others few long ones."""
    often, seldom = [(0, 10)] * 300, [(1, 90)] * 150
    games = [game for game, _ in often + seldom]
    write_run(tmp_path / "a", [score for _, score in often + seldom], envs=games)
    text = to_markdown(build(read_board(tmp_path)))
    text = text[text.index("## Deterministic games") :]
    assert text.index("Avg (100 per env)") < text.index("Avg (100 of all)")
    xtx = next(line for line in text.splitlines() if line.startswith("| xtx |"))
    by_env, of_all = (100 * 10 + 100 * 90) / 200, 90
    assert [xtx.split("|")[place].strip() for place in (2, 4, 5)] == [
        f"{by_env:.1f}", f"−{103.4 - by_env:.1f}", f"{of_all:.1f}",  # noqa: RUF001
    ]  # fmt: skip


def test_the_papers_delta_is_the_one_that_it_prints() -> None:
    table = read_paper().deterministic
    deltas = {}
    for name in table.main:
        row = table.rows[name]
        found = compute_delta({agent: figures.avg for agent, figures in row.agents.items()}, row.maximum)
        assert found is not None
        deltas[name] = 100 * found
    assert [round(deltas[name]) for name in table.main[:4]] == [17, 5, 8, 6]
    assert deltas["detective"] == pytest.approx(4.5, abs=0.05)  # printed as 4
    assert sum(deltas.values()) / 12 == pytest.approx(5.8, abs=0.05)


def test_averages_are_over_games_that_all_compared_agents_have(tmp_path: Path) -> None:
    """At equally many steps, Dragon apart, and the paper's beside runs that were not cut only."""
    scores = {"zork1": [35] * 20 + [350] * 20, "zork3": [7] * 40, "detective": [90] * 40, "dragon": [25] * 40}
    for game, own in scores.items():
        write_run(tmp_path / f"x-{game}", own, game=game, every=100, steps=4000)
    for game in ("zork1", "zork3"):
        write_run(tmp_path / f"d-{game}", [7] * 20, game=game, agent="drrn", every=100, steps=2000)
    text = to_markdown(build(read_board(tmp_path)))
    rows = [line.split("|")[1:] for line in text[text.index("### Averages over games") :].splitlines() if "|" in line]
    found = [[cell.strip() for cell in row] for row in rows if row[0].strip() in ("xtx", "drrn") or "game" in row[0]]
    published = {agent: read_paper().deterministic.rows["zork1"].agents[agent].avg for agent in ("xtx", "drrn")}
    assert published == {"xtx": 103.4, "drrn": 40.3}, "the paper's row is that of the same games"
    assert [row[0].strip("*") for row in found][:5] == [
        "3 games: zork1, zork3, detective",
        "xtx",
        "drrn",  # the paper's
        "2 games: zork1 at 2,000, zork3 at 2,000 steps",
        "xtx",
    ]
    end = (0.55 + 1 + 0.25) / 3  # the last 100 episodes are all there are
    assert found[1][1].startswith(f"{100 * end:.1f} %") and found[1][3] != "–"  # noqa: RUF001
    assert found[2][1] == "–" and found[2][3] != "–"  # noqa: RUF001
    assert [cell.partition(" ±")[0] for cell in found[4][1:5]] == ["–", "55.0 %", "–", "55.0 %"]  # noqa: RUF001
    assert [cell.partition(" ±")[0] for cell in found[5][1:5]] == ["–", "51.0 %", "–", "51.0 %"]  # noqa: RUF001
    with_dragon = next(place for place, row in enumerate(found) if "dragon" in row[0])
    assert with_dragon > 5 and "4 games" in found[with_dragon][0]


def test_a_seed_that_is_there_again_is_listed_with_its_figures(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30] * 4)
    write_run(tmp_path / "b-longer", [90] * 8, finished=False)
    text = to_markdown(build(read_board(tmp_path)))
    row = next(line for line in text.splitlines() if line.startswith("| ↳ seed 0 again, not counted: b-longer |"))
    assert "| 90.0 |" in row and "800 ▾◐" in row, "marks of its own"
    titles = [block.title for block in build(read_board(tmp_path)).sections[-2].blocks if isinstance(block, Section)]
    assert [title.endswith("not counted: b-longer") for title in titles] == [False, True]


def test_marks_say_what_is_not_the_papers_or_the_present_programs(tmp_path: Path) -> None:
    old = json.loads(json.dumps(SETTINGS["xtx"]))
    del old["imitation"]["known"]
    rounded = json.loads(json.dumps(SETTINGS["xtx"]))
    rounded["imitation"]["bfloat16"] = True
    now = search_versions()
    write_run(tmp_path / "a", [1], settings=old, searching=now)
    own = asdict(make_preset("xtx-no-mix", "zork1"))
    write_run(tmp_path / "b", [1], agent="xtx-no-mix", settings=own, steps=100_000, searching=now | {"survey": "9"})
    write_run(tmp_path / "c", [1], agent="drrn", searching=now)
    write_run(tmp_path / "d", [1], agent="inv-dy")
    write_run(tmp_path / "f", [1], agent="xtx-plus", settings=rounded, searching=now)
    write_run(tmp_path / "g", [1], agent="xtx-retrace", settings=SETTINGS["xtx"], searching=now)
    write_run(tmp_path / "e", [1], agent="xtx-own", settings=old, torch="2.6+cpu", searching=now)
    groups = {group.agent: group for group in read_board(tmp_path).groups}
    signs = {agent: "".join(mark.sign for mark in list_marks(group)) for agent, group in groups.items()}
    assert signs["xtx"] == BFLOAT16 and signs["drrn"] == "" and signs["inv-dy"] == SEARCH
    assert signs["xtx-no-mix"] == FEWER + SEARCH, "an ablation is measured by the paper's steps of xtx"
    assert BFLOAT16 not in signs["xtx-own"], "a CPU never trained in bfloat16"
    assert BFLOAT16 in signs["xtx-plus"] and BFLOAT16 not in signs["xtx-retrace"]
    assert list_marks(groups["xtx-no-mix"])[1].words == f"survey 9 (now {now['survey']})"
    text = to_markdown(build(read_board(tmp_path)))
    assert "in bfloat16" in text and "of another version of search or survey" in text


def test_progress_along_the_walkthrough(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0] * 50 + [5, 5] + [40] * 50)
    write_run(tmp_path / "b", [0] * 50 + [5, 5] + [5] * 50, seed=1)
    text = to_markdown(build(read_board(tmp_path)))
    assert "| 5 points | 52 % · 5,100 |" in text  # episode 51 ends at step 5100; 52 of the last 100 in both
    assert "| 40 points | 25 % · 5,300 (1/2) |" in text
    assert "| 350 points | – |" in text  # noqa: RUF001
    assert "which no agent reached" not in text
    assert "| zork1 | 350 | 20 | 3 | 6.7 | 9 | 11 | 51 |" in text


def test_what_nobody_reached_is_told_in_one_line(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0, 0])
    text = to_markdown(build(read_board(tmp_path)))
    assert "| 5 points | – |" in text and "| 40 points" not in text  # noqa: RUF001
    assert "**2 more scores, up to 350 points, which no agent reached**" in text


class Page(HTMLParser):
    """Whether all that is opened is closed, and what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        self.loads += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("src", "href", "srcset", "data") and not (value or "").startswith("#")
        ]
        if tag not in ("meta", "input", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(full: Path) -> None:
    text = to_html(build(read_board(full)))
    page = Page()
    page.feed(text)
    assert page.open == [] and page.loads == []
    assert text.count("url(") == text.count("url(#") and "@import" not in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") + text.count("http-equiv")
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
    for title in ("Deterministic games", "Stochastic games", "Training", "Ablations", "Runs", "With Dragon"):
        assert f">{title}<" in text
    assert "&lt;b&gt;mailbox" in text and "<b>mailbox" not in text
    assert "zz-damaged cannot be read and is left out" in text


def test_plots_are_whole_and_hold_no_nonsense(full: Path) -> None:
    text = to_html(build(read_board(full)))
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) > 20
    for plot in plots:
        ElementTree.fromstring(plot)
        assert "nan" not in plot.replace("Training", "") and "inf" not in plot
        width = float(re.findall(r'viewBox="0 0 (\d+)', plot)[0])
        for numbers in re.findall(r' (?:x|x1|x2|cx)="([-\d.]+)"', plot):
            assert 0 <= float(numbers) <= width
    alone = make_standalone(plots[0])
    ElementTree.fromstring(alone.encode())
    assert ">drrn</text>" in alone and ">xtx</text>" in alone, "the page's choice of agents is its legend"
    assert "var(" not in alone and "data-plot" not in alone
    style = to_html(build(read_board(full)))
    assert len(PALETTE) == COLOURS and all(colour in style for colour in PALETTE)


def test_a_reader_sees_findings_a_curve_and_a_table_first(full: Path) -> None:
    board = read_board(full)
    document = build(board)
    opening = document.sections[0]
    *texts, gallery, table = opening.blocks
    found = [text.text for text in texts if isinstance(text, Text)]
    assert opening.kind == "opening" and len(found) == len(texts) == 3 and isinstance(gallery, Gallery)
    assert isinstance(table, Section) and len(table.blocks) <= 2
    assert found == [
        "xtx on 2 deterministic games without Dragon: Avg (100 per env) beside the paper's mean ± standard deviation "
        "is below on 2 (detective, zork1). On average 28 % of the points, the paper's 58 %.",
        "Highest Avg (100 of all) on 3 games with several agents, at equal steps (100,000 to 800,000): xtx on 2 "
        "(detective, dragon), xtx-no-mix on 1 (zork1).",
        "Of 8 rows of figures, 1 is from one seed and 1 is from fewer steps than the paper's runs: small differences "
        "may be chance.",
    ]
    plot = gallery.figures[0].plot
    assert isinstance(plot, LinePlot) and plot.reference == ("the paper's xtx", 103.4)
    assert len(table.blocks[0].rows) > 1  # type: ignore[union-attr]
    limits = document.sections[1]
    assert limits.title == "Limits of these figures"
    assert all(not isinstance(block, Section) or block.folded for block in limits.blocks), "remarks are folded, by kind"


def test_runs_far_shorter_than_the_papers_are_not_set_beside_it_first(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [30] * 4, steps=2000)
    write_run(tmp_path / "b", [20] * 4, agent="drrn", steps=2000)
    write_run(tmp_path / "c", [10] * 4, agent="drrn", game="toy:corridor-5", steps=2000)
    opening = build(read_board(tmp_path)).sections[0]
    first, second, _, gallery, _ = opening.blocks
    assert isinstance(first, Text) and isinstance(second, Text) and isinstance(gallery, Gallery)
    assert first.text == "Best final score: 30 of 350 points, by xtx on zork1."
    assert second.text == "Highest Avg (100 of all) on zork1 at step 2,000, of 350 points: xtx 30.0, drrn 20.0."
    plot = gallery.figures[0].plot
    assert isinstance(plot, LinePlot) and plot.reference is None


def test_what_only_the_paper_gives_a_meaning_is_left_out_where_it_has_no_game(tmp_path: Path) -> None:
    """No marks by its steps, nothing said of it, and no second plot of the curves that are on the first screen."""
    write_run(tmp_path / "a", [30] * 4, game="nowhere-game", steps=2000)
    write_run(tmp_path / "b", [20] * 4, game="nowhere-game", agent="drrn", steps=2000)
    document = build(read_board(tmp_path))
    sections = {section.title: section for section in document.sections}
    assert document.title == "Runs" and "Training" not in sections
    said = to_markdown(replace(document, sections=document.sections[:-1]))  # all but the sources
    assert (
        "paper's" not in said and "Highest Avg (100 of all) on nowhere-game at step 2,000: xtx 30.0, drrn 20.0." in said
    )


def test_where_an_avg_lies_is_told_by_the_papers_spread(tmp_path: Path) -> None:
    """On zork1 the paper has 103.4 ± 10.9, on detective 312.2 ± 10.3, on omniquest 11.6 ± 1.3."""
    for game, score in {"zork1": 93, "detective": 290, "omniquest": 13}.items():
        write_run(tmp_path / game, [score] * 100, game=game)
    first = build(read_board(tmp_path)).sections[0].blocks[0]
    assert isinstance(first, Text)
    assert "is above on 1 (omniquest), within on 1 (zork1), below on 1 (detective)." in first.text


def test_games_are_folded_where_there_are_many(tmp_path: Path) -> None:
    for number, game in enumerate(("zork1", "detective", "omniquest"), start=1):
        write_run(tmp_path / game, [10] * 4, game=game)
        [games] = (section for section in build(read_board(tmp_path)).sections if section.title == "Games")
        assert [isinstance(block, Section) and block.folded for block in games.blocks] == [number > 2] * number
    assert "best final score 10 of 350</span>" in to_html(build(read_board(tmp_path)))


def test_the_name_of_a_level_is_over_the_curves() -> None:
    line = Line("a", 0, np.arange(1.0, 9.0), np.arange(8.0))
    svg = LinePlot([line], "x", "y", reference=("the paper's xtx", 4.0)).draw_svg()
    assert svg.index('class="reference"') < svg.index('class="line"') < svg.index('class="level"')


def test_more_agents_than_colours_can_be_told_apart() -> None:
    looks = {(colour % COLOURS, choose_marker(colour)) for colour in range(3 * COLOURS)}
    assert len(looks) == 3 * COLOURS
    lines = [Line(f"a{n}", n, np.arange(1.0, 9.0), np.arange(8.0) + n) for n in (0, COLOURS)]
    first, second = re.findall(r'class="mark" data-at="\d+" d="([^"]*)"', LinePlot(lines, "x", "y").draw_svg())[
        ::NUM_MARKS
    ]
    assert first != second


def test_one_run_of_one_episode_makes_a_report(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0], game="nowhere-game", agent="mine", finished=False)
    document = build(read_board(tmp_path))
    assert "its maximum is not known" in to_markdown(document)
    Page().feed(to_html(document))


def test_runs_without_episodes_make_a_report(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [], finished=False)
    text = to_markdown(build(read_board(tmp_path)))
    assert "no episode has ended yet" in text


def test_scores_below_zero_and_all_alike_make_a_report(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / f"a{seed}", [-10] * 5, game="dragon", seed=seed)
        write_run(tmp_path / f"b{seed}", [0] * 5, game="dragon", agent="drrn", seed=seed)
    Page().feed(to_html(build(read_board(tmp_path))))


PROBE = """<script>
const wrong = [];
addEventListener("error", (event) => wrong.push(event.message));
addEventListener("load", () => {
  const first = [...document.querySelectorAll("svg[data-plot]")].find((svg) => svg.getBoundingClientRect().width);
  if (first.getBoundingClientRect().bottom > innerHeight) wrong.push("the first plot is not on the first screen");
  for (const one of document.querySelectorAll("details")) one.open = true;
  for (const svg of document.querySelectorAll("svg")) {
    const { width, height } = svg.viewBox.baseVal;
    if (!svg.getBoundingClientRect().width) continue;  // a plot for screens of another size
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBBox();
      // Words along the vertical axis are turned, so their box is measured before that.
      if (!text.hasAttribute("transform") && (box.x < 0 || box.x + box.width > width || box.y + box.height > height))
        wrong.push("outside its plot: " + text.textContent);
    }
    const whole = svg.getBoundingClientRect();
    const where = { clientX: whole.left + whole.width / 2, clientY: whole.top + whole.height / 2 };
    const usual = { bubbles: true, isPrimary: true };
    const at = (kind, x) => new PointerEvent(kind, { ...where, clientX: where.clientX + x, ...usual });
    const [mark] = svg.querySelectorAll(".room");
    (mark || svg).dispatchEvent(at("pointermove", 0));
    const tips = document.querySelectorAll(".tip").length;
    if (tips !== (svg.dataset.plot || mark ? 1 : 0)) wrong.push("values under the pointer: " + tips);
    svg.dispatchEvent(new PointerEvent("pointerleave"));
    if (mark && svg.closest(".pan")) {
      const turn = { ...where, deltaY: -200, bubbles: true, cancelable: true };
      const wheel = () => svg.dispatchEvent(new WheelEvent("wheel", turn));
      const button = svg.closest("figure").querySelector(".larger");
      const box = () => svg.getAttribute("viewBox"), fits = box();
      const frame = svg.closest(".pan").getBoundingClientRect();
      if (whole.width > frame.width || whole.height > frame.height) wrong.push("the map does not fit its box");
      wheel();
      if (box() !== fits) wrong.push("a map that is not enlarged was zoomed");
      button.click();
      wheel();
      const zoomed = box();
      if (!(zoomed.split(" ")[2] < Number(fits.split(" ")[2]))) wrong.push("an enlarged map was not zoomed");
      svg.dispatchEvent(at("pointerdown", 0));
      document.dispatchEvent(at("pointermove", 30));
      document.dispatchEvent(at("pointerup", 30));
      if (box() === zoomed) wrong.push("an enlarged map was not dragged");
      button.click();
      const numbers = (words) => words.split(" ").map(Number).join();
      if (numbers(box()) !== numbers(fits)) wrong.push("the map stayed zoomed");
    }
    if (!svg.dataset.plot) continue;
    const before = svg.innerHTML, zoomed = () => svg.closest("figure").classList.contains("zoomed");
    for (const [kind, x] of [["pointerdown", -40], ["pointermove", 0], ["pointermove", 40], ["pointerup", 40]])
      svg.dispatchEvent(at(kind, x));
    const line = () => svg.querySelector("g[data-agent] .line").getAttribute("d"), far = line();
    if (!zoomed() || before.includes(far)) wrong.push("not zoomed");
    if (/NaN|Infinity|>[\u2212-]0</.test(svg.innerHTML)) wrong.push("nonsense in a zoomed plot");
    svg.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    if (zoomed() || svg.innerHTML !== before) wrong.push("zooming left something behind");
    const log = svg.closest("figure").querySelector("button.log");
    if (svg.dataset.plot.includes('"unit":"steps"') !== Boolean(log)) wrong.push("no axis of steps");
    if (log) {
      log.click();
      if (before.includes(line())) wrong.push("the axis is not logarithmic");
      if (log.getAttribute("aria-pressed") !== "true") wrong.push("the axis does not say that it is logarithmic");
      const name = svg.querySelector(".level"), curves = [...svg.querySelectorAll(".line")];
      if (name && !(curves.at(-1).compareDocumentPosition(name) & Node.DOCUMENT_POSITION_FOLLOWING))
        wrong.push("a curve is drawn over the name of a level");
      if (/NaN|Infinity|>[\u2212-]0</.test(svg.innerHTML)) wrong.push("nonsense on a logarithmic axis");
      log.click();
      if (svg.innerHTML !== before) wrong.push("the logarithm left something behind");
    }
  }
  for (const one of document.querySelectorAll("td, th, p, h1, h2, h3, h4, summary, figcaption, li"))
    if (!one.closest(".scroll") !== !one.matches("td, th") || one.scrollWidth > one.clientWidth + 1)
      if (!one.matches(".contents") && one.getClientRects().length)
        wrong.push("its text overflows: " + one.textContent.slice(0, 80));
  for (const one of document.querySelectorAll(".opening .scroll"))
    if (innerWidth >= 1000 && one.scrollWidth > one.clientWidth) wrong.push("the table on the first screen is cut");
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) wrong.push("wider than the window by " + wide);
  document.querySelector('nav input[value="drrn"]').click();
  for (const one of document.querySelectorAll('main [data-agent="drrn"]'))
    if (getComputedStyle(one).display !== "none") wrong.push("drrn is still shown: " + one.outerHTML.slice(0, 80));
  const [all] = document.querySelectorAll("nav button"), marked = [...document.querySelectorAll("main [data-agent]")];
  const shown = () =>
    marked.filter((one) => looks().has(one.dataset.agent) && getComputedStyle(one).display !== "none").length;
  all.click();
  const everything = shown();
  all.click();
  if (shown() || !everything) wrong.push("not all agents are shown, and then none: " + everything);
  all.click();
  const bar = document.querySelector("nav"), label = bar.querySelector("label");
  const other = (g) => g.dataset.agent !== label.textContent, beside = `g[data-agent="${label.textContent}"]`;
  const others = [...document.querySelectorAll("svg g[data-agent]")].filter(other);
  const curve = others.find((g) => g.closest("svg").querySelector(beside));
  const alone = others.find((g) => !g.closest("svg").querySelector(beside));
  label.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }));
  if (getComputedStyle(curve).opacity === "1") wrong.push("pointing at an agent leaves the others' curves as they are");
  if (alone && getComputedStyle(alone).opacity !== "1") wrong.push("a plot without the agent is faint");
  bar.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }));
  if (getComputedStyle(curve).opacity !== "1") wrong.push("curves stay faint");
  requestAnimationFrame(() => setTimeout(() => {  // when sizes are known to the page
    const tables = [...document.querySelectorAll(".scroll.fits table")].filter((one) => one.offsetHeight > 150);
    for (const table of tables) {
      scrollBy(0, table.getBoundingClientRect().top - bar.offsetHeight + 40);
      const away = table.tHead.rows[0].cells[0].getBoundingClientRect().top - bar.getBoundingClientRect().bottom;
      if (Math.abs(away) > 1) wrong.push("a table's header is not below the bar but off by " + away);
    }
    for (const box of document.querySelectorAll(".scroll"))
      if (box.scrollLeft + box.clientWidth < box.scrollWidth - 1 !== box.classList.contains("more-right"))
        wrong.push("whether a table goes on is not seen: " + box.textContent.slice(0, 80));
    if (!tables.length && innerWidth > 1000) wrong.push("no table fits the page");
    parent.postMessage(JSON.stringify({ wrong, plots: document.querySelectorAll("svg").length }), "*");
  }));
});
</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_the_page_in_a_browser(full: Path, tmp_path: Path, width: int) -> None:
    """No error, nothing outside its plot, nothing wider than a phone; pointing shows values; agents can be hidden."""
    page = to_html(build(read_board(full)))
    (tmp_path / "page.html").write_text(page.replace("<header>", PROBE + "<header>", 1))
    listen = "addEventListener('message', (event) => { document.title = event.data; })"
    frame = f'<iframe src="page.html" style="width:{width}px;height:800px;border:0"></iframe>'
    (tmp_path / "frame.html").write_text(f"<title></title><script>{listen}</script>{frame}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    said = subprocess.run(
        ["chromium", *options, "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = re.search(r"<title>(.*?)</title>", said.stdout)
    assert found and found[1], said.stderr
    result = json.loads(unescape(found[1]))
    assert result["wrong"][:3] == [] and result["plots"] == page.count("<svg ")


# --- the command ------------------------------------------------------------------------------------------------


def test_the_command_writes_all_kinds(full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("r.html", "r.md", "r.csv"):
        assert main(["report", str(full), "--out", str(tmp_path / name), "--no-walkthroughs"]) == 0
        assert "zork1" in (tmp_path / name).read_text()
    said = capsys.readouterr()
    assert "21 runs in" in said.out and "zz-damaged is left out" in said.err
    assert main(["report", str(full), "--out", str(tmp_path / "r.md"), "--figures", str(tmp_path / "f")]) == 0
    names = {path.name for path in (tmp_path / "f").iterdir()}
    assert {"training-zork1.svg", "performance-profiles.svg", "aggregate-iqm.svg"} <= names
    assert {"run-zork1-drrn-seed-2.svg", "run-dragon-xtx-seed-0.svg", "run-zork1-stochastic-xtx-seed-0.svg"} <= names
    links = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", (tmp_path / "r.md").read_text())
    assert {link for link in links} == {f"f/{name}" for name in names if name.endswith(".svg")}
    for path in (tmp_path / "f").glob("*.svg"):
        ElementTree.parse(path)
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_plots_without_matplotlib_are_svg(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "a", [1, 2])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    words = [str(tmp_path / "a"), "--out", str(tmp_path / "r.md"), "--figures", str(tmp_path / "f")]
    assert main(["report", *words, "--no-walkthroughs"]) == 0
    assert "pip install 'xtx[report]'" in capsys.readouterr().out
    assert {path.suffix for path in (tmp_path / "f").iterdir()} == {".svg"}


def test_csv_has_a_line_for_each_agent_and_each_run(full: Path, tmp_path: Path) -> None:
    assert main(["report", str(full), "--out", str(tmp_path / "r.csv"), "--no-walkthroughs"]) == 0
    lines = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    xtx = [
        line for line in lines if line["game"] == "zork1" and line["agent"] == "xtx" and line["stochastic"] == "false"
    ]
    assert [line["line"] for line in xtx] == ["agent", "run", "run", "run"]
    assert float(xtx[0]["avg"]) == pytest.approx(np.mean([float(line["avg"]) for line in xtx[1:]]), rel=1e-4)
    assert xtx[0]["paper_avg"] == "103.4" and xtx[0]["seeds"] == "3"


@pytest.mark.parametrize(
    ("prepare", "options", "complaint"),
    [
        ("nothing", [], "there is no run in it"),
        ("nothing", ["--out", "report.pdf"], "the ending must be .html, .md or .csv"),
        ("damaged", [], "no run can be read"),
        ("good", ["--out", "no/such/folder/r.html"], "cannot be written"),
    ],
)
def test_what_the_user_can_mend(
    prepare: str, options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if prepare != "nothing":
        folder = write_run(tmp_path / "a", [1])
        if prepare == "damaged":
            (folder / "config.json").write_text("{")
    assert main(["report", str(tmp_path), *options]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1


def test_a_real_run_on_the_toy_world(tmp_path: Path) -> None:
    words = ["train", "toy:corridor-5", "--agent", "random", "--steps", "2000", "--threads", "1", "--workers", "0"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "r.md")]) == 0
    text = (tmp_path / "r.md").read_text()
    assert "toy:corridor-5 · 10 points" in text and "take treasure" in text
    assert "You walk on." not in text and "(What the game answered is in the HTML page.)" in text
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "3"]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "You walk on." in page, "the best episode can be read"
    assert "2 evaluations of agents that did not learn" in page and ">steps/s</text>" in page


# --- words and axes ---------------------------------------------------------------------------------------------


def test_numbers_as_people_read_them() -> None:
    numbers = [format_number(-3.14), format_number(-0.04), format_number(None), format_number(float("nan"))]
    assert numbers == ["−3.1", "0.0", "–", "–"]  # noqa: RUF001
    assert [format_signed(value) for value in (2, -2, 0.01)] == ["+2.0", "−2.0", "0.0"]  # noqa: RUF001
    assert [format_short(value) for value in (800_000, 1.5e6, 0.25, -2000)] == ["800k", "1.5M", "0.25", "−2k"]  # noqa: RUF001
    durations = ["5.0 s", "59 s", "2 min", "1 h 00 min", "2 h 01 min"]
    assert [format_duration(value) for value in (5, 59, 90, 3599, 7260)] == durations


def test_ticks_are_round_and_within() -> None:
    assert choose_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert choose_ticks(-4, 103) == [0, 25, 50, 75, 100]
    assert choose_ticks(5, 5) == [5]


def test_gaps_stay_gaps() -> None:
    x, y = np.arange(5.0), np.array([np.nan, 1, 2, np.nan, 3])
    plot = LinePlot([Line("a", 0, x, y)], "x", "y").draw_svg()
    assert len(re.findall("M", re.findall(r'class="line" d="([^"]*)"', plot)[0])) == 2
