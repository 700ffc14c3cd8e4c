"""Sweep files, and the runs that are planned from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from xtx.cli.main import main
from xtx.config.settings import DrrnSettings, RunConfig
from xtx.core import UserError
from xtx.report.data.paper_tables import read_paper
from xtx.sweep.run_plan import PlannedRun, SweepGame, find_games, make_plan
from xtx.sweep.sweep_file import SweepSpec, list_ready_sweeps, read_spec

PAPERS_AGENTS = ("drrn", "inv-dy", "rc-dqn", "xtx-uniform", "xtx")


def plan(name: str) -> list[PlannedRun]:
    spec = read_spec(name)
    return make_plan(spec, find_games(spec.games))


@pytest.mark.parametrize(
    ("name", "stochastic", "full"),
    [
        ("paper-deterministic", False, False),
        ("paper-stochastic", True, False),
        ("paper-deterministic-full", False, True),
        ("paper-stochastic-full", True, True),
    ],
)
def test_ready_sweeps_are_the_papers_tables(name: str, stochastic: bool, full: bool) -> None:
    paper = read_paper()
    table = paper.choose_table(stochastic)
    spec = read_spec(name)
    assert set(spec.games) == set(table.rows if full else table.main)
    assert len(spec.games) == {"": 12, "s": 5, "f": 20, "sf": 9}["s" * stochastic + "f" * full]
    assert spec.agents == PAPERS_AGENTS
    assert len(spec.seeds) == paper.seeds
    for run in plan(name):
        config = run.config
        assert config.stochastic == stochastic
        assert config.steps == paper.steps[config.agent]
        assert config.num_envs == (1 if config.agent == "rc-dqn" else 8)
        assert paper.find_row_name(config.game, config.extra_actions) in spec.games
        assert run.folder.startswith(config.game + "-star" * config.extra_actions + "-stochastic" * stochastic + "/")
        assert run.folder.endswith(f"/{config.agent}/seed-{config.seed}")


def test_ablations() -> None:
    spec = read_spec("paper-ablations")
    assert spec.games == read_spec("paper-deterministic").games
    assert spec.agents == ("xtx-lambda-0", "xtx-lambda-0.5", "xtx-lambda-1", "xtx-no-mix", "xtx")
    runs = {run.folder: run for run in plan("paper-ablations")}
    assert len(runs) == 12 * 5 * 3
    # In one folder, the two sweeps share the runs of XTX itself.
    shared = [run for run in plan("paper-deterministic") if run.folder in runs]
    assert len(shared) == 12 * 3
    assert all(runs[run.folder] == run for run in shared)


def test_the_first_seed_of_everything_comes_first() -> None:
    seeds = [run.config.seed for run in plan("paper-stochastic")]
    assert seeds == sorted(seeds)


def test_demo() -> None:
    runs = plan("demo")
    assert {run.config.game for run in runs} == {"lowwater"}
    assert {run.config.steps for run in runs} == {30_000}
    assert "demo" in list_ready_sweeps()
    [drrn, *_] = [run.config for run in runs if run.config.agent == "drrn"]
    assert drrn.settings["q"]["hidden"] == 64  # type: ignore[index]


def test_plus() -> None:
    runs = plan("plus")
    assert len(runs) == 24 and {run.config.steps for run in runs} == {100_000}
    assert {run.config.agent for run in runs} == {"xtx", "xtx-own", "xtx-retrace", "xtx-plus"}


def one(**more: object) -> RunConfig:
    spec = SweepSpec(**{"games": ("toy:corridor-5",), "agents": ("drrn",), **more})  # type: ignore[arg-type]
    return make_plan(spec, find_games(spec.games))[0].config


def test_settings_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'games = ["toy:corridor-5"]\nagents = ["drrn", "random"]\nstochastic = "both"\nsteps = 80\nnum_envs = 4\n'
        "log_every = 3\n[settings.drrn]\nepisode_limit = 30\n[settings.drrn.q]\nhidden = 16\ngamma = 1\n"
    )
    runs = plan(str(file))
    assert [run.folder for run in runs] == [
        "toy-corridor-5/drrn/seed-0",
        "toy-corridor-5/random/seed-0",
        "toy-corridor-5-stochastic/drrn/seed-0",
        "toy-corridor-5-stochastic/random/seed-0",
    ]
    config = runs[0].config
    assert (config.steps, config.num_envs, config.log_every) == (80, 4, 3)
    file.write_text(file.read_text().replace("num_envs", "lock_step"))
    assert plan(str(file)) == runs, "the name of earlier versions"
    assert config.settings["episode_limit"] == 30
    q = config.settings["q"]
    assert isinstance(q, dict)
    assert (q["hidden"], q["gamma"], q["batch_size"]) == (16, 1.0, DrrnSettings().q.batch_size)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("games = [", "is not TOML"),
        ("\xff", "is not TOML"),
        ("game = ['zork1']", "unknown field `game`"),
        ("num_envs = 4\nlock_step = 4", "has num_envs and its earlier name lock_step"),
        ("games = 'zork1'", "Expected `array`"),
        ("seeds = ['a']", "Expected `int`"),
        ("stochastic = 'often'", "does not describe a sweep"),
        ("games = ['toy:corridor-5']", "there are no agents in the sweep"),
        ("games = ['toy:corridor-5']\nagents = ['random']\nseeds = []", "there are no seeds"),
        ("games = ['toy:corridor-5']\nagents = ['random']\nseeds = [-1]", "--seed takes a number from 0"),
        ("games = ['toy:corridor-5']\nagents = ['random']\nsteps = 0", "--steps takes a number from 1"),
        ("games = ['toy:corridor-2']\nagents = ['random']", "there is no toy world"),
        ("games = ['toy:corridor-5*']\nagents = ['random']", "adds no actions to toy:corridor-5"),
        ("games = ['zrok1']\nagents = ['random']", "did you mean zork"),
        ("games = ['./absent.z5']\nagents = ['random']", "absent.z5"),
        ("games = ['lowwater']\nagents = ['xtxx']", "did you mean xtx"),
        ("games = ['lowwater']\nagents = ['xtx']\n[settings.drrn]\n", "not one of the sweep's agents"),
        ("games = ['lowwater']\nagents = ['drrn']\n[settings.drrn]\nx = 1", "settings.drrn has no 'x'"),
        ("games = ['lowwater']\nagents = ['drrn']\n[settings.drrn]\nq = 1", "is a group of settings"),
        ("games = ['lowwater']\nagents = ['drrn']\n[settings.drrn.q]\nhidden = 'x'", "do not fit"),
        ("games = ['lowwater']\nagents = ['drrn']\n[settings.drrn.q]\nhidden = {}", "is one value"),
    ],
)
def test_mistakes(content: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content, "latin-1")
    assert main(["sweep", str(file), "--out", str(tmp_path / "runs")]) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "name a sweep: compare, demo, paper-ablations"),
        (["paper-detreministic"], "did you mean paper-deterministic"),
        (["qqq"], "there are: compare, demo"),
        (["absent.toml"], "absent.toml cannot be read (No such file"),
        (["demo", "--agents", "nobody"], "there is no agent called 'nobody'"),
        (["demo", "--games", "nothing"], "there is no game called 'nothing'"),
        (["demo", "--jobs", "0"], "--jobs takes a number from 1"),
        (["demo", "--retries", "-1"], "--retries takes a number from 0"),
        (["demo", "--cpus", "2"], "give --ray ADDRESS too"),
        (["demo", "--atlas", "a", "--no-atlas"], "exclude each other"),
        (["demo", "--out", "/proc/nowhere"], "cannot be written"),
        (["paper-stochastic"], "5 stories are not here: zork1 (zork1.z5), zork3 (zork3.z5)"),
        (["paper-stochastic", "--available"], "5 stories are not here"),
    ],
)
def test_mistakes_on_the_command_line(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *words]) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1


def test_missing_stories_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "paper-stochastic", "--games", "zork1", "lowwater", "--dry-run", "--out", str(tmp_path / "x")]
    assert main([*words, "--available", "--seeds", "7"]) == 0
    out, err = capsys.readouterr()
    assert "1 story is not here: zork1 (zork1.z5); left out" in err
    assert f"{tmp_path}/x/lowwater-stochastic/rc-dqn/seed-7  100,000 steps, 1 env  new" in out
    assert out.endswith("5 runs, 3,300,000 steps\n")
    assert not (tmp_path / "x").exists()


def test_doubles_count_once() -> None:
    assert find_games(["lowwater", "LowWater", "lowwater.z5"]) == [SweepGame("lowwater", False)]
    spec = SweepSpec(games=("lowwater",), agents=("random", "random"), seeds=(1, 1))
    assert len(make_plan(spec, find_games(spec.games))) == 1


def test_two_stories_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="would both use the folder"):
        make_plan(SweepSpec(agents=("random",)), [SweepGame("/a/story.z5", False), SweepGame("/b/story.z5", False)])


def test_a_name_cannot_leave_the_folder() -> None:
    [run] = make_plan(SweepSpec(agents=("random",)), [SweepGame("/a/..z5", False)])
    assert not any(part.startswith(".") for part in run.folder.split("/"))


def test_steps_and_num_envs_are_the_agents_own() -> None:
    assert one(agents=("rc-dqn",)).steps == 100_000
    assert one(agents=("rc-dqn",)).num_envs == 1
    assert one(agents=("xtx-demo",)).steps == 30_000
    assert one(agents=("rc-dqn",), steps=10).steps == 10


def test_runs_with_the_whole_dictionary_have_folders_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('games = ["lowwater"]\nagents = ["drrn"]\nactions = "whole"\n')
    spec = read_spec(str(file))
    (planned,) = make_plan(spec, find_games(spec.games))
    assert planned.config.actions == "whole"
    assert planned.folder.startswith("lowwater-whole/")


@pytest.mark.parametrize("name", list_ready_sweeps())
def test_sweeps_of_the_paper_try_templates_only(name: str) -> None:
    assert {run.config.actions for run in plan(name)} == {"templates"}
