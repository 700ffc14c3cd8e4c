"""A run that is stopped or killed and goes on writes the same lines as one that was never stopped, byte for byte."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import xtx.agents.state_ids
from xtx.agents.registry import AGENTS, make_preset
from xtx.config.settings import RunConfig, TextSettings
from xtx.games.game_setup import set_up_game
from xtx.games.vector.game_vector import GameVector
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.runs.run_folder import Run
from xtx.training.loop import Training, TrainingProgress
from xtx.training.prepare import make_agent

TOY = "toy:corridor-5"
LEARNERS = [name for name in AGENTS if name != "walkthrough"]


class Killed(BaseException):
    """The process is gone: nothing is saved any more."""


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("atlas")


def tiny(agent: str) -> Any:
    """The agent's own settings, with networks so small that thousands of steps take seconds."""
    settings = make_preset(agent, "")
    changes: dict[str, object] = {}
    if hasattr(settings, "text"):
        changes["text"] = TextSettings(128, 64)
    if hasattr(settings, "q"):
        changes["q"] = replace(settings.q, hidden=16, batch_size=16, target_every=20)
    if hasattr(settings, "imitation"):
        changes["imitation"] = replace(settings.imitation, width=16, layers=1, heads=2, passes=2)
        changes["first_training"] = 20
        changes["explore_steps"] = 10
    if hasattr(settings, "epsilon_decay"):  # RC-DQN
        changes |= {"hidden": 16, "embedding": 16, "batch_size": 16, "target_every": 20, "epsilon_decay": 100.0}
        changes["episode_limit"] = 20  # it plays one game, and so a hundred steps
    return replace(settings, **changes) if changes else settings


def config(agent: str, game: str = TOY, steps: int = 800, **more: Any) -> RunConfig:
    games = 1 if "rc-dqn" in agent else 8
    return RunConfig(
        game, agent, asdict(tiny(agent)), steps=steps * games // 8, num_envs=games, **{"log_every": 5, **more}
    )  # fmt: skip


def go(
    folder: Path,
    new: RunConfig | None = None,
    *,
    stop: int | None = None,
    kill: int | None = None,
    save_every: bool = False,
    **means: Any,
) -> None:
    """Do one process's part of a run: from its beginning or its last checkpoint to its end, or to a number of game
    steps.

    A killed process saves nothing; `save_every` writes a checkpoint after every vector step.
    """
    with Run.create(folder, new) if new is not None else Run.open(folder) as run:
        state = run.restore()
        game_setup = set_up_game(run.config.game, **means)
        agent = make_agent(run.config, "cpu", game_setup.walkthrough)
        forbidden = state["forbidden"] if state is not None else []
        with contextlib.closing(GameVector(game_setup.spec, run.config.num_envs, 0, forbidden=forbidden)) as games:
            training = Training(run, agent, games, checkpoint_seconds=0 if save_every else 1e9)

            def on_step(progress: TrainingProgress) -> bool:
                if kill is not None and progress.steps >= kill:
                    raise Killed
                return stop is None or progress.steps < stop

            with contextlib.suppress(Killed):
                training.run(state, on_step)


def lines(folder: Path) -> dict[str, list[bytes]]:
    return {name: (folder / f"{name}.jsonl").read_bytes().splitlines() for name in ("metrics", "episodes", "rooms")}


@pytest.mark.parametrize("agent", LEARNERS)
def test_a_stopped_run_goes_on_exactly(agent: str, tmp_path: Path) -> None:
    """Stopped at odd moments: before the first update, between copies of the target, around imitation trainings."""
    whole = config(agent, stochastic=agent == "xtx")
    go(tmp_path / "plain", whole)
    expected = lines(tmp_path / "plain")
    assert len(expected["metrics"]) == 20
    assert len(expected["episodes"]) > 3
    stopped = tmp_path / "stopped"
    go(stopped, whole, stop=whole.num_envs * 3)
    for steps in (1, 14, 15, 41, 63, 64, 90):
        go(stopped, stop=whole.num_envs * steps)
    go(stopped)
    assert lines(stopped) == expected


@pytest.mark.parametrize("agent", ["drrn", "inv-dy", "xtx"])
def test_a_stopped_run_goes_on_exactly_at_full_size(agent: str, tmp_path: Path) -> None:
    """The widths of the presets: products of large matrices differ in their last bits from batch to batch, so what
    the target network said before the stop must be the same after it."""
    settings = make_preset(agent, "")
    if agent == "xtx":
        settings = replace(settings, first_training=20, imitation=replace(settings.imitation, passes=1))
    whole = RunConfig(TOY, agent, asdict(settings), steps=400, log_every=5)
    go(tmp_path / "plain", whole)
    go(tmp_path / "stopped", whole, stop=150)
    go(tmp_path / "stopped", stop=260)
    go(tmp_path / "stopped")
    assert lines(tmp_path / "stopped") == lines(tmp_path / "plain")


@pytest.mark.parametrize("agent", ["xtx", "drrn"])
def test_on_a_story(agent: str, tmp_path: Path, atlas: Path) -> None:
    """With an emulator, whose state is saved in the middle of episodes; another seed in each."""
    whole = config(agent, "lowwater", steps=280, stochastic=True)
    go(tmp_path / "plain", whole, atlas=atlas)
    stopped = tmp_path / "stopped"
    go(stopped, whole, stop=100, atlas=atlas)
    go(stopped, kill=180, save_every=True, atlas=atlas)
    go(stopped, atlas=atlas)
    assert lines(stopped) == lines(tmp_path / "plain")
    assert len(lines(stopped)["metrics"]) == 7


@pytest.mark.parametrize("agent", LEARNERS)
def test_killed_runs_go_on_exactly(agent: str, tmp_path: Path) -> None:
    """Killed without warning, with lines behind the last checkpoint that must be taken back."""
    whole = config(agent, steps=640)
    go(tmp_path / "plain", whole)
    killed = tmp_path / "killed"
    chance = random.Random(agent)
    go(killed, whole, kill=whole.num_envs * chance.randint(1, 12))  # nothing was saved: from the beginning again
    for _ in range(3):
        go(killed, stop=whole.num_envs * chance.randint(1, 70))
        go(killed, kill=whole.num_envs * chance.randint(1, 90))
    go(killed)
    assert lines(killed) == lines(tmp_path / "plain")


def test_forgetting_and_a_full_vocabulary_survive_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are forgotten every few steps and most words share rows, before and after the stop."""
    monkeypatch.setattr(xtx.agents.state_ids, "MIN_IDS_TO_DROP", 12)
    for agent in ("inv-dy", "xtx", "xtx-uniform"):
        settings = replace(tiny(agent), text=TextSettings(24, 16))
        settings = replace(settings, q=replace(settings.q, capacity=40))
        whole = replace(config(agent), settings=asdict(settings))
        go(tmp_path / f"{agent} plain", whole)
        stopped = tmp_path / f"{agent} stopped"
        go(stopped, whole, stop=160)
        go(stopped, stop=360)
        go(stopped)
        assert lines(stopped) == lines(tmp_path / f"{agent} plain")
        assert b'"shared_words":0' not in lines(stopped)["metrics"][-1]


def test_a_damaged_newest_checkpoint_costs_nothing_but_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    whole = config("xtx")
    go(tmp_path / "plain", whole)
    damaged = tmp_path / "damaged"
    go(damaged, whole, stop=160)
    go(damaged, stop=400)
    newest = list_checkpoints(damaged)[0]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 255
    newest.write_bytes(content)
    go(damaged)
    assert "cannot be read (damaged); going on from the one before" in capsys.readouterr().err
    assert lines(damaged) == lines(tmp_path / "plain")


def test_a_finished_run_has_nothing_to_go_on_with(tmp_path: Path) -> None:
    go(tmp_path / "run", config("drrn", steps=160))
    before = lines(tmp_path / "run")
    go(tmp_path / "run")
    assert lines(tmp_path / "run") == before


# --- real processes, really killed ----------------------------------------------------------------------------------

REAL = ["--threads", "1", "--workers", "1", "--quiet", "--device", "cpu"]


def command(words: Sequence[str], wait: float | None) -> int:
    """The exit status; the process is killed with -9 after so many seconds of writing lines."""
    process = subprocess.Popen([sys.executable, "-m", "xtx.cli", *words], stdout=subprocess.DEVNULL)
    if wait is not None:
        folder = Path(words[words.index("--out") + 1] if "--out" in words else words[1])
        # From the moment on at which it works on the run: what comes before cannot go wrong.
        begun = (folder / "metrics.jsonl").stat().st_size if (folder / "metrics.jsonl").exists() else 0
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            size = (folder / "metrics.jsonl").stat().st_size if (folder / "metrics.jsonl").exists() else 0
            if size != begun:
                break
            time.sleep(0.005)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait)
        process.kill()
    return process.wait(300)


def kill_and_resume(agent: str, kills: int, steps: int, seed: int, tmp_path: Path) -> int:
    """How many processes were killed before their end."""
    tiny_options = [
        *("--q.hidden", "16", "--text.vocabulary", "128", "--text.longest", "64", "--log-every", "3"),
        *("--imitation.width", "16", "--imitation.layers", "1", "--imitation.heads", "2", "--imitation.passes", "2"),
        *("--first-training", "20", "--explore-steps", "10"),
    ]
    words = ["train", TOY, "--agent", agent, "--steps", str(steps), *tiny_options, *REAL]
    assert command([*words, "--out", str(tmp_path / "plain")], None) == 0
    killed = tmp_path / "killed"
    chance = random.Random(seed)
    statuses = [command([*words, "--out", str(killed), "--checkpoint-seconds", "0"], chance.random())]
    for _ in range(kills - 1):
        interval = chance.choice(["0", "0.2"])
        statuses.append(command(["resume", str(killed), "--checkpoint-seconds", interval, *REAL], chance.random()))
    assert command(["resume", str(killed), *REAL], None) == 0
    assert lines(killed) == lines(tmp_path / "plain")
    assert not list((killed / "checkpoints").glob(".*"))
    return sum(status == -signal.SIGKILL for status in statuses)


def test_kill_9(tmp_path: Path) -> None:
    assert kill_and_resume("xtx", 3, 2400, 1, tmp_path) >= 2


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("agent", ["xtx", "xtx-uniform", "xtx-lambda-0.5"])
def test_kill_9_many_times(agent: str, seed: int, tmp_path: Path) -> None:
    assert kill_and_resume(agent, 12, 12_000, seed, tmp_path) >= 3
