"""Summaries of runs: small, without the games' texts, and as good as the runs' folders for a report."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from report_runs import write_folder, write_lines

from xtx.cli.main import main
from xtx.config.settings import RunConfig, make_xtx_settings
from xtx.core import EpisodeRecord, UserError
from xtx.report.data.game_facts import GameFacts, RewardEvent
from xtx.report.data.load_runs import find_runs, read_run, read_runs
from xtx.report.data.run_groups import Board, group_runs
from xtx.report.data.run_summary import read_summary, summarise, to_json
from xtx.report.formats.figure_files import name_figures
from xtx.report.formats.html import to_html
from xtx.report.formats.markdown import to_markdown
from xtx.report.formats.markdown_embed import BEGIN, END, embed
from xtx.report.number_format import DASH
from xtx.report.pages.build import build, build_brief
from xtx.report.plots.svg_plots import make_standalone

ROOT = Path(__file__).parents[2]
SECRET = "a maze of twisty little passages"
"""Stands in every file of a run that holds texts of a game."""
FACTS = GameFacts("zork1", 350, (RewardEvent(2, 5, "north"), RewardEvent(9, 40, "take egg")), 20, (6.7, 11))


def write_run(
    folder: Path,
    scores: list[int],
    *,
    game: str = "zork1",
    agent: str = "xtx",
    seed: int = 0,
    steps: int = 40_000,
    every: int = 100,
    reached: int | None = None,
    started: str = "2001-09-09T01:46:40+0000",
    **more: Any,
) -> Path:
    """A run whose episodes have these scores and end every so many steps."""
    settings = more.pop("settings", asdict(make_xtx_settings(game)) if agent.startswith("xtx") else {})
    config = RunConfig(game=game, agent=agent, settings=settings, seed=seed, steps=steps, **more)
    best, lines = -10_000, []
    for number, score in enumerate(scores, start=1):
        record, best = score > best, max(score, best)
        lines.append(
            EpisodeRecord(
                episode=number, step=number * every, game=number % 8, score=score, peak=max(0, score) + number % 3,
                length=every - number % 7, ended=("died", "limit", "won")[number % 3], seed=12, record=record,
                actions=["open mailbox", f"read leaflet {number}"] if record else [],
            )
        )  # fmt: skip
    start = {"started": started, "python": "3.11", "packages": {"torch": "2.6"}, "git": "abc", "other": SECRET}
    write_folder(folder, config, lines, steps if reached is None else reached, start, pace=70)
    write_lines(folder, "rooms", [{"step": 8, "origin": SECRET, "action": "north", "target": SECRET + "!"}])
    (folder / "live.json").write_text(json.dumps({"turns": [{"text": SECRET}]}))
    return folder


def learning(end: float, seed: int, episodes: int = 400) -> list[int]:
    """Scores that rise, with noise."""
    rng = np.random.default_rng(seed)
    return [int(score) for score in rng.normal(np.linspace(0, end, episodes), 4.0)]


def summarise_all(out: Path, *runs: Path) -> list[Path]:
    """Where the summaries are."""
    assert main(["summarise", *map(str, runs), "--out", str(out), "--no-walkthroughs"]) == 0
    return sorted(out.rglob("*.json"))


def read_board(*paths: Path, facts: GameFacts | None = FACTS) -> Board:
    runs, failed = read_runs(find_runs(paths))
    return group_runs(runs, failed, lambda config: facts)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two agents, one of them unfinished, and a stochastic game."""
    folder = tmp_path / "runs"
    for seed in range(2):
        write_run(folder / f"xtx-{seed}", learning(80, seed), seed=seed)
    write_run(folder / "cut-off", learning(40, 5, 150), agent="drrn", reached=15_000)
    write_run(folder / "stochastic", learning(20, 6), stochastic=True)
    return folder


def test_a_milestone_that_a_summary_has_no_point_at_is_a_dash(tmp_path: Path) -> None:
    """Those of earlier versions had none at 5,500: what is known is of an earlier step."""

    def read_milestones(folder: Path) -> list[str]:
        text = to_markdown(build(read_board(folder)))
        row = next(line for line in text[text.index("# Milestones") :].splitlines() if line.startswith("| xtx |"))
        return [cell.strip() for cell in row.split("|")[2:4]]

    exact = write_run(tmp_path / "run", [0] * 50 + [50] * 350)
    short = write_run(tmp_path / "short", [0] * 50 + [50] * 100, steps=15_000)  # its summary has each episode
    (thin,) = summarise_all(tmp_path / "thin", exact)
    (each,) = summarise_all(tmp_path / "each", short)
    assert read_milestones(exact) == read_milestones(thin) == read_milestones(each) == ["0.0", "4.5"]
    summary = json.loads(thin.read_text())
    place = summary["curve"]["steps"].index(5500)
    for column in summary["curve"].values():
        del column[place]
    thin.write_text(json.dumps(summary))
    assert read_milestones(thin) == ["0.0", DASH]


# --- the files --------------------------------------------------------------------------------------------------


def test_each_run_has_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs/a", [1], game="/far/away/Zork3.z5", extra_actions=True, stochastic=True, seed=2)
    write_run(tmp_path / "runs/b", [1], game="toy:corridor-5", agent="my_agent.py:Mine")
    write_run(tmp_path / "runs/c", [1], settings=asdict(make_xtx_settings()) | {"explore_steps": 70})
    write_run(
        tmp_path / "runs/d",
        [1],
        settings=asdict(make_xtx_settings("omniquest")) | {"phases": False, "mix": 1},
        num_envs=4,
    )
    write_run(tmp_path / "runs/e", [1], agent="drrn", settings={"text": {}, "q": {"hidden": 1}, "episode_limit": 7})
    out = tmp_path / "results"
    places = [str(path.relative_to(out)) for path in summarise_all(out, tmp_path / "runs")]
    assert places == [
        "toy-corridor-5/my_agent.py-Mine/seed-0.json",
        "zork1/drrn+q.hidden=1+episode_limit=7/seed-0.json",
        "zork1/xtx+explore_steps=70/seed-0.json",
        "zork1/xtx+inverse.alpha1=2.0+phases=False+mix=1+num_envs=4/seed-0.json",
        "zork3-star-stochastic/xtx/seed-2.json",
    ]
    assert "5 runs summarised" in capsys.readouterr().out
    star = read_summary(out / "zork3-star-stochastic/xtx/seed-2.json")
    assert star.config.game == "zork3", "where the story lay is nobody's business"


def test_a_summary_says_what_the_run_did(tmp_path: Path) -> None:
    scores = [0, 10, 5, 30, 20]
    run = read_run(write_run(tmp_path / "a", scores, steps=800, reached=600))
    summary = summarise(run, FACTS)
    assert (summary.reached, summary.finished, summary.episodes) == (600, False, 5)
    assert (summary.figures.avg, summary.figures.max, summary.figures.peak) == (13.0, 30, 31)
    assert summary.curve.steps == [100, 200, 300, 400, 500]
    assert summary.curve.mean == [0, 5, 5, 11.25, 13] and summary.curve.best == [0, 10, 10, 30, 30]
    assert summary.curve.seconds == [1.4, 2.9, 4.3, 5.7, 7.1]
    assert summary.firsts.score == [1, 12, 31] and summary.firsts.steps == [100, 200, 400]
    assert summary.firsts.usual == [200, 500, None]
    assert summary.firsts.seconds == pytest.approx([100 / 70, 200 / 70, 400 / 70])
    assert (summary.ended.won, summary.ended.died, summary.ended.limit) == (2, 1, 2)
    assert summary.best.actions == ["open mailbox", "read leaflet 4"] and summary.best.step == 400
    assert summary.game == FACTS


def test_a_summary_is_small_and_holds_no_text_of_the_game(runs: Path, tmp_path: Path) -> None:
    for path in summarise_all(tmp_path / "results", runs):
        text = path.read_text()
        assert len(text) < 20_000 and len(read_summary(path).curve.steps) <= 210
        assert "twisty" not in text and str(tmp_path) not in text


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", list(range(12_000)), steps=800_000, every=60)
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    lines[-1]["actions"] = ["examine the enormous thing"] * 900
    write_lines(folder, "episodes", lines)
    starts = json.loads((folder / "versions.json").read_text())
    (folder / "versions.json").write_text(json.dumps([starts[0] | {"python": f"3.{n}"} for n in range(100)]))
    summary = summarise(read_run(folder), None)
    assert len(to_json(summary)) < 50_000
    assert summary.best.actions == [] and len(summary.starts) == 20 and summary.starts_left_out == 80
    assert summary.starts[0].python == "3.0" and summary.starts[-1].python == "3.99"
    assert summary.firsts.score[0] == 1 and summary.firsts.score[-1] == summary.figures.peak
    (tmp_path / "seed-0.json").write_text(to_json(summary))
    (run,) = read_board(tmp_path / "seed-0.json").runs
    notes = " / ".join(run.notes)
    assert "80 starts after the first" in notes and "too many for the summary" in notes


def test_the_same_run_gives_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in summarise_all(tmp_path / "one", runs)]
    shutil.copytree(runs, tmp_path / "copied")
    assert [path.read_bytes() for path in summarise_all(tmp_path / "two", tmp_path / "copied")] == first
    for path in (tmp_path / "one").rglob("*.json"):
        assert to_json(read_summary(path)).encode() == path.read_bytes()


def test_a_run_that_went_on_replaces_its_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    early = write_run(tmp_path / "early", learning(40, 1, 100), reached=10_000)
    late = write_run(tmp_path / "late", learning(40, 1, 200), reached=20_000)
    (path,) = summarise_all(tmp_path / "results", early)
    summarise_all(tmp_path / "results", late)
    assert read_summary(path).reached == 20_000
    summarise_all(tmp_path / "results", early)
    assert read_summary(path).reached == 20_000 and "stays as it is" in capsys.readouterr().err


def test_another_runs_summary_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write_run(tmp_path / "a", [1])
    b = write_run(tmp_path / "b", [2], steps=50_000)
    (path,) = summarise_all(tmp_path / "results", a)
    before = path.read_bytes()
    for words, complaint in (([b], "is the summary of another run"), ([a, b], "would both be")):
        capsys.readouterr()
        assert main(["summarise", *map(str, words), "--out", str(tmp_path / "results"), "--no-walkthroughs"]) == 2
        said = capsys.readouterr().err
        assert complaint in said and said.count("\n") == 1
    assert path.read_bytes() == before


def test_a_damaged_summary_is_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write_run(tmp_path / "a", [1])
    (path,) = summarise_all(tmp_path / "results", a)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    summarise_all(tmp_path / "results", a)
    assert path.read_bytes() == whole and "it is made anew" in capsys.readouterr().err


def test_damage_beside_the_episodes_does_no_harm(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [1, 2])
    (folder / "versions.json").write_text('[{"started": 5, "packages": "x", "git": null, "python": "3.11"}]')
    for name in ("timing", "metrics", "rooms"):
        (folder / f"{name}.jsonl").write_text("nonsense\n")
    (path,) = summarise_all(tmp_path / "results", folder)
    summary = read_summary(path)
    assert summary.worked is None and summary.curve.seconds == [None, None]
    assert msgspec.to_builtins(summary.starts) == [{"python": "3.11"}]
    to_html(build(read_board(path)))
    (folder / "versions.json").unlink()
    assert read_run(folder).began is None
    shutil.rmtree(tmp_path / "results")
    (path,) = summarise_all(tmp_path / "results", folder)
    summarise_all(tmp_path / "results", folder)  # nothing has changed, so nobody need ask whose it is
    assert "what it ran with is not known" in read_board(path).runs[0].notes


@pytest.mark.parametrize(
    ("scores", "given", "complaint"),
    [
        ([], "a", "no episode has ended yet"),
        ([1], "nowhere", "there is no run in it"),
        (None, "a", "is damaged"),
    ],
)
def test_what_cannot_be_summarised(
    scores: list[int] | None, given: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "a", scores or [])
    if scores is None:
        (folder / "episodes.jsonl").write_text("{\n")
    assert main(["summarise", str(tmp_path / given), "--out", str(tmp_path / "results")]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1 and not (tmp_path / "results").exists()


# --- reports of them --------------------------------------------------------------------------------------------


def test_a_report_of_summaries_has_the_figures_of_the_runs(runs: Path, tmp_path: Path) -> None:
    """All tables are the same; only what is said of folders, maps and summaries differs."""
    out = tmp_path / "results"
    summarise_all(out, runs)
    texts = []
    for paths in ([runs / name for name in ("cut-off", "stochastic", "xtx-0", "xtx-1")],
                  [out / place / "seed-0.json" for place in ("zork1/drrn", "zork1-stochastic/xtx", "zork1/xtx")]
                  + [out / "zork1/xtx/seed-1.json"]):  # fmt: skip
        text = to_markdown(build(read_board(*paths)))
        for place, path in enumerate(paths):
            text = text.replace(str(path).replace("_", "\\_"), f"RUN{place}")
        text = re.sub(r"#### Map\n\n.*?\n\n.*?\n\n|### Read from summaries .*\n", "", text)
        text = re.sub(r"No map.*\n\n|- .*read from (a summary|summaries).*\n|Read it with .*\n\n", "", text)
        texts.append(re.sub(r"\n{2,}", "\n", text))
    assert texts[0].splitlines() == texts[1].splitlines()
    assert "Scores along the walkthrough" in texts[0] and " points | " in texts[0]


def test_what_is_lacking_is_said(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    summarise_all(out, runs)
    text = to_markdown(build(read_board(out)))
    assert "read from summaries: all runs; these hold no rooms" in text
    assert "No map: the runs are here as summaries" in text
    assert "read from a summary: its curve has" in text
    mixed = to_markdown(build(read_board(runs / "xtx-0", out / "zork1/drrn")))
    assert "read from summaries: 1 of 2 runs" in mixed and "No map of drrn" in mixed and "#### Map" in mixed
    to_html(build(read_board(out)))


def test_a_run_and_its_summary_count_once(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    summarise_all(out, runs)
    board = read_board(runs, out)
    assert len(board.runs) == 4 and not any(run.is_summary for run in board.runs)
    assert sum("is the same run as" in note for note in board.notes) == 4
    assert [run.folder for run in board.runs] == [run.folder for run in read_board(runs).runs]
    assert main(["report", str(runs), str(out), "--out", str(tmp_path / "r.csv"), "--no-walkthroughs"]) == 0
    assert "4 runs in" in capsys.readouterr().out
    lines = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert sum(line["line"].startswith("run") for line in lines) == 4


def test_of_a_run_and_its_summary_what_came_further_counts(tmp_path: Path) -> None:
    late = write_run(tmp_path / "late", learning(40, 1, 200), reached=20_000)
    summarise_all(tmp_path / "results", late)
    early = write_run(tmp_path / "early", learning(40, 1, 100), reached=10_000)
    (run,) = read_board(early, tmp_path / "results").runs
    assert run.is_summary and run.reached == 20_000


def test_what_a_summary_knows_of_a_game_holds_for_all_its_runs(tmp_path: Path) -> None:
    """Also with the games not at hand, and for a run's folder that itself knows nothing."""
    (tmp_path / "seed-0.json").write_text(to_json(summarise(read_run(write_run(tmp_path / "a", [0, 50])), FACTS)))
    folder = write_run(tmp_path / "b", [0, 50], game="/far/zork1.z5", seed=1)
    board = read_board(folder, tmp_path / "seed-0.json", facts=None)
    assert len(board.variants) == 1 and len(board.groups) == 1
    assert "| 40 points |" in to_markdown(build(board))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"xtx_summary": 1', '"xtx_summary": 2'),
        lambda text: text.replace('"episodes": 3', '"episodes": 0'),
        lambda text: text.replace('"steps":[100,200,300]', '"steps":[100,300,200]'),
        lambda text: text.replace('"steps":[100,200,300]', '"steps":[100,200]'),
        lambda text: text.replace('"peak":', '"look":'),
        lambda text: text.replace('"avg":', '"avg":"x","avg":'),
        lambda text: text.replace("{\n", '{\n"narration": "West of House",\n', 1),
    ],
)
def test_a_damaged_summary_gives_one_line(damage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = summarise_all(tmp_path / "results", write_run(tmp_path / "a", [0, 5, 5]))
    text = path.read_text()
    path.write_text(damage(text))
    capsys.readouterr()
    if path.read_text() == text:
        pytest.fail("nothing was damaged")
    with pytest.raises(UserError, match="is damaged, or no summary of a run"):
        read_summary(path)
    words = ["--out", str(tmp_path / "r.md"), "--no-walkthroughs"]
    assert main(["report", str(path), *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"no run can be read: {path} is damaged" in said
    assert main(["report", str(tmp_path), *words]) == 0, "the others are reported"
    assert "seed-0.json is left out" in capsys.readouterr().err


def test_a_real_run_on_the_toy_world(tmp_path: Path) -> None:
    words = ["train", "toy:corridor-5", "--agent", "random", "--steps", "2000", "--threads", "1", "--workers", "0"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert main(["summarise", str(tmp_path / "run"), "--out", str(tmp_path / "results")]) == 0
    shutil.rmtree(tmp_path / "run")
    assert main(["report", str(tmp_path / "results"), "--out", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text()
    assert "toy:corridor-5 · 10 points" in text and "take treasure" in text
    assert "You walk on." in text, "the best episode is played again, since the game is here"
    assert main(["report", str(tmp_path / "results"), "--out", str(tmp_path / "r.md"), "--no-walkthroughs"]) == 0
    text = (tmp_path / "r.md").read_text()
    assert "take treasure" in text and "You walk on." not in text, "the rewards are known without it"


# --- as part of another text ------------------------------------------------------------------------------------


def test_a_brief_report_has_tables_only(runs: Path) -> None:
    text = to_markdown(build_brief(read_board(runs)), level=2)
    assert text.startswith("## Runs beside the paper\n") and "\n# " not in text
    assert "Plots in the HTML page" not in text and "#### Map" not in text and "twisty" not in text
    training = text[text.index("### Training") :]
    assert re.search(r"\| 1,000 \| [-−.\d]+ / [.\d]+ \| [-−.\d]+ / \d+ \|\n", training)  # noqa: RUF001
    assert re.search(r"\| 40,000 \| [.\d]+ / [.\d]+ \| – \|\n", training), "drrn did not come to that"  # noqa: RUF001
    assert "| zork1 | drrn | 0 | 15,000 of 40,000 |" in text


def test_a_report_is_put_between_marks(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "page.md", tmp_path / "results"
    file.write_text(f"# Ours\n\n{BEGIN}\nold\n{END}\n\nMore.\n")
    out.mkdir()
    assert main(["report", str(out), "--embed", str(file)]) == 0
    assert file.read_text() == f"# Ours\n\n{BEGIN}\n\nThere is no run in {out} yet.\n\n{END}\n\nMore.\n"
    summarise_all(out, runs)
    assert main(["report", str(out), "--embed", str(file)]) == 0
    first = file.read_text()
    assert first.startswith("# Ours\n") and first.endswith(f"{END}\n\nMore.\n") and "## Runs beside the paper" in first
    assert main(["report", str(out), "--embed", str(file)]) == 0
    assert file.read_text() == first and "4 runs in" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n"])
def test_a_file_without_marks_is_complained_of(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.md").write_text(text)
    assert main(["report", str(tmp_path), "--embed", str(tmp_path / "page.md")]) == 2
    said = capsys.readouterr().err
    assert "must have one line" in said and said.count("\n") == 1
    with pytest.raises(UserError, match="cannot be read"):
        embed(tmp_path / "nowhere.md", "")


def test_the_committed_curves_are_those_of_the_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `make results` if this fails."""
    monkeypatch.chdir(ROOT)
    named = {name: figure for name, figure in name_figures(build(read_board(Path("results"), facts=None)).sections)}
    shown = re.findall(r"\(results/(training-[^)]*)\.svg\)", (ROOT / "docs/results.md").read_text("utf-8"))
    assert shown
    for name in shown:
        assert (ROOT / f"docs/results/{name}.svg").read_text("utf-8") == make_standalone(named[name].svg), name
        assert f"{name.removeprefix('training-')}.svg" in (ROOT / "Makefile").read_text("utf-8")


def test_the_first_picture_is_that_of_the_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `make results` if this fails."""
    monkeypatch.chdir(ROOT)
    agents = ("xtx", "xtx-uniform", "drrn", "inv-dy")
    board = read_board(*(Path("results/zork1", agent) for agent in agents), facts=None)
    figure = dict(name_figures(build(board).sections))["training-zork1"]
    committed = (ROOT / "docs/results/zork1-beside-paper.svg").read_text("utf-8")
    assert committed == make_standalone(figure.svg) and "s xtx 103.4" in committed
    assert f"$(addprefix results/zork1/,{' '.join(agents)})" in (ROOT / "Makefile").read_text("utf-8")


def test_a_curve_has_the_papers_figure_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for game, mean in {"zork1": "103.4", "deephome-star": "77.7"}.items():
        figures = dict(name_figures(build(read_board(Path("results", game), facts=None)).sections))
        assert f"s xtx {mean}" in figures[f"training-{game}"].svg
    figures = dict(name_figures(build(read_board(Path("results", "dragon"), facts=None)).sections))
    assert "the paper" not in figures["training-dragon"].svg  # its score underflowed there


@pytest.mark.parametrize(("page", "options"), [("results.md", ["--short"]), ("results/full.md", [])])
def test_the_committed_results_are_those_of_the_summaries(
    page: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run `make results` if this fails."""
    committed = (ROOT / "docs" / page).read_text("utf-8")
    (tmp_path / "page.md").write_text(committed, "utf-8")
    monkeypatch.chdir(ROOT)
    assert main(["report", "results", *options, "--embed", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text("utf-8") == committed
    assert f"--embed docs/{page}\n" in (ROOT / "Makefile").read_text()


def test_the_committed_summaries_are_whole_and_small() -> None:
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file() and path.name != "README.md"]
    for path in files:
        assert path.match("results/*/*/seed-*.json"), f"{path} is no place of a summary"
        assert path.stat().st_size <= 50_000
        read_summary(path)
