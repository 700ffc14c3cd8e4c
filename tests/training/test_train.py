"""The training loop and the command: transitions, files, and errors."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

import xtx.runs.run_folder
from xtx.cli.main import main
from xtx.config.settings import RunConfig
from xtx.core import Agent, Brief, Decision, Observation, Transition
from xtx.games.catalog.known_games import find_default_game
from xtx.games.game_setup import set_up_game
from xtx.games.story_game import GameSpec
from xtx.games.toy_game import ToyGame
from xtx.games.vector.game_vector import GameVector
from xtx.runs.checkpoint_file import list_checkpoints, read_checkpoint
from xtx.runs.line_files import read_episodes, read_lines
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import Run
from xtx.terminal.shell_command import format_command
from xtx.training.loop import Training

TOY = "toy:corridor-5"
PLAIN = ["--threads", "1", "--workers", "0", "--quiet", "--device", "cpu"]
TINY = [
    *("--q.hidden", "16", "--imitation.width", "16", "--imitation.layers", "1", "--imitation.heads", "2"),
    *("--first-training", "20", "--imitation.passes", "2", "--text.vocabulary", "128", "--text.longest", "64"),
]


class Scripted(Agent):
    """Says the walkthrough's command for each step, with a limit that moves, and notes what it is given."""

    limits: Sequence[int] = (100,)

    def __init__(self, settings: object = None, brief: Brief | None = None) -> None:
        super().__init__(settings, brief or Brief(2, 0))
        self.way = ToyGame(TOY).walkthrough
        self.seen: list[list[Observation]] = []
        self.learned: list[list[Transition]] = []

    @property
    def episode_limit(self) -> int:
        return self.limits[min(len(self.learned), len(self.limits) - 1)]

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        self.seen.append(list(observations))
        phases = ["exploit" if o.step < 3 else "explore" for o in observations]
        return [Decision(self.way[o.step], phase) for o, phase in zip(observations, phases, strict=True)]

    def learn(self, transitions: Sequence[Transition]) -> Mapping[str, float]:
        self.learned.append(list(transitions))
        return {"often": len(self.learned)} | ({"rare": 5.0} if len(self.learned) % 4 == 0 else {})

    def describe(self) -> Mapping[str, float]:
        return {"learned": len(self.learned)}


def train(folder: Path, agent: Agent, steps: int, games: int = 2, log_every: int = 5) -> Training:
    config = RunConfig(TOY, "scripted", {}, steps=steps, num_envs=games, log_every=log_every)
    with Run.create(folder, config) as run, contextlib.closing(GameVector(GameSpec(TOY), games, 0)) as vector:
        training = Training(run, agent, vector)
        assert training.run()
        return training


def test_the_loop_by_hand(tmp_path: Path) -> None:
    """Two games along the walkthrough of eight steps: an episode of ten points ends at steps 8, 16, 24 of each."""
    agent = Scripted()
    way = len(agent.way)
    assert way == 8
    training = train(tmp_path / "run", agent, 2 * 20)
    assert training.progress.steps == 40
    assert [len(transitions) for transitions in agent.learned] == [2] * 20
    for step, (seen, transitions) in enumerate(zip(agent.seen, agent.learned, strict=True)):
        for game, t in enumerate(transitions):
            assert (t.game, t.before, t.decision.action) == (game, seen[game], agent.way[step % way])
            assert t.before.step == step % way
            assert t.after.step == step % way + 1
            assert t.reward == t.after.score - t.before.score
            assert (t.terminated, t.truncated) == (step % way == way - 1, False)
    episodes = read_episodes(tmp_path / "run")
    assert [(e.episode, e.step, e.game, e.score, e.peak, e.length, e.ended) for e in episodes] == [
        (1, 16, 0, 10, 10, 8, "won"),
        (2, 16, 1, 10, 10, 8, "won"),
        (3, 32, 0, 10, 10, 8, "won"),
        (4, 32, 1, 10, 10, 8, "won"),
    ]
    assert [(e.record, e.actions) for e in episodes] == [(True, list(agent.way)), *[(False, [])] * 3]
    assert {(e.explored_from, e.exploited, e.seed) for e in episodes} == {(3, 3, 1)}
    lines = list(read_lines(tmp_path / "run", "metrics"))
    common = {"episodes": 0, "score_mean": 0.0, "score_max": 0}
    assert lines[0] == {"step": 10, **common, "learned": 5, "often": 3.0, "rare": 5.0}
    assert lines[1] == {
        "step": 20, "episodes": 2, "score_mean": 10.0, "score_max": 10, "learned": 10, "often": 8.0, "rare": 5.0
    }  # fmt: skip
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    assert [line["often"] for line in lines] == [3.0, 8.0, 13.0, 18.0]
    timing = list(read_lines(tmp_path / "run", "timing"))
    assert [line["step"] for line in timing] == [10, 20, 30, 40]
    spent = [line["parts"]["games"] for line in timing]
    assert spent == sorted(spent) and spent[-1] > 0 and timing[-1]["searches"] == 0


def test_the_limit_is_read_at_every_step(tmp_path: Path) -> None:
    """6 at first; when 4 steps are learned from it is 5, at once; later 2 ends what is under way with its next step."""
    agent = Scripted()
    agent.limits = [6, 6, 6, 6, 5, 5, 8, 8, 2]
    train(tmp_path / "run", agent, 2 * 12)
    assert [e.length for e in read_episodes(tmp_path / "run") if e.game == 0] == [5, 4, 2]
    assert {e.ended for e in read_episodes(tmp_path / "run")} == {"limit"}
    ended = [(t.before.step, t.terminated, t.truncated) for learned in agent.learned for t in learned if t.ended]
    assert ended == [(4, False, True)] * 2 + [(3, False, True)] * 2 + [(1, False, True)] * 2
    cut = agent.learned[4][0].after
    assert cut.look
    assert cut.actions  # a state at which the step limit ends the episode is a whole one


def test_means_of_the_last_hundred(tmp_path: Path) -> None:
    agent = Scripted()
    agent.limits = [*[4] * 400, 9]  # 100 episodes of 2 points each, then those of 10
    training = train(tmp_path / "run", agent, 400 + 80, games=1)
    assert training.progress.episodes == 110
    assert training.progress.score_mean == (90 * 2 + 10 * 10) / 100
    assert training.progress.score_max == 10


def test_a_record_below_zero_is_a_record(tmp_path: Path) -> None:
    """The first episode sets one whatever its score, the next only if it is better."""
    agent = Scripted()
    agent.limits = [2] * 6 + [5] * 5 + [2]
    train(tmp_path / "run", agent, 2 * 12)
    records = [(e.score, e.record, len(e.actions)) for e in read_episodes(tmp_path / "run")]
    assert records[0] == (0, True, 2)
    assert [r[1] for r in records] == [True, *[False] * 5, True, *[False] * (len(records) - 7)]
    assert records[6] == (2, True, 5)


# --- the command ----------------------------------------------------------------------------------------------------


def test_what_is_in_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["train", TOY, "--agent", "xtx", "--steps", "1600", "--out", str(folder), *PLAIN, *TINY]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"run folder: {folder}" in out
    names = {path.name for path in folder.iterdir()} - {"score.png"}  # which needs matplotlib
    assert names == {
        "config.json", "versions.json", "metrics.jsonl", "episodes.jsonl", "rooms.jsonl", "timing.jsonl", "live.json",
        "checkpoints", "lock", "saved",
    }  # fmt: skip
    assert [path.name for path in list_checkpoints(folder)] == ["0000001600"]
    config = read_config(folder)
    assert (config.game, config.agent, config.steps, config.num_envs) == (TOY, "xtx", 1600, 8)
    assert config.settings["q"]["hidden"] == 16  # type: ignore[index]
    assert config.settings["q"]["gamma"] == 0.9  # type: ignore[index]  # also what was not asked for
    episodes = read_episodes(folder)
    assert [e.episode for e in episodes] == list(range(1, len(episodes) + 1))
    best = -1
    for episode in episodes:
        assert episode.record == (episode.score > best)
        best = max(best, episode.score)
    lines = list(read_lines(folder, "metrics"))
    assert [line["step"] for line in lines] == [800, 1600]
    assert lines[-1]["episodes"] == len(episodes)
    assert lines[-1]["score_max"] == best


@pytest.mark.parametrize(("game", "steps"), [(TOY, 2000), ("", 120)])
def test_records_replay_to_the_same_score(game: str, steps: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["train", *([game] if game else []), "--agent", "xtx-uniform", "--steps", str(steps)]
    words += ["--num-envs", "2", "--stochastic", "--explore-steps", "25", "--first-training", "100000"]
    assert main([*words, "--out", str(folder), *PLAIN]) == 0
    assert read_config(folder).game == (game or find_default_game())
    records = [e for e in read_episodes(folder) if e.record]
    assert records
    game_setup = set_up_game(game)
    with contextlib.closing(GameVector(game_setup.spec, 1, 0)) as games:
        for episode in records:
            assert len(episode.actions) == episode.length
            games.reset(seeds=[episode.seed])
            scores = [0]
            for action in episode.actions:
                [step] = games.step([action])
                scores.append(step.observation.score)
            assert (scores[-1], max(scores)) == (episode.score, episode.peak)
            assert step.terminated == (episode.ended != "limit")


def test_the_best_state_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xtx.training.loop.EPISODES_OF_MEAN", 5)
    folder = tmp_path / "run"
    words = ["train", TOY, "--agent", "random", "--steps", "2000", "--out", str(folder), "--log-every", "1"]
    assert main([*words, "--checkpoint-seconds", "0", *PLAIN]) == 0
    best = read_checkpoint(folder / "checkpoints" / "best")["state"]
    saved = {line["step"]: line["score_mean"] for line in read_lines(folder, "metrics") if line["episodes"] >= 5}
    assert best["best_mean"] == max(saved.values())
    assert saved[best["progress"]["steps"]] == max(saved.values())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["corridr"], "there is no game called 'corridr'"),
        (["toy:corridor-2"], "try toy:corridor-5"),
        (["./absent.z5"], "absent.z5"),
        ([TOY, "--agent", "xtz"], "did you mean xtx?"),
        ([TOY, "--agent", "xtx", "--q.hiden", "3"], "--q.hid"),
        ([TOY, "--agent", "drrn", "--imitation.width", "3"], "--imitation.width"),
        ([TOY, "--agent", "xtx", "--q.hidden", "many"], "--q.hidden"),
        ([TOY, "--agent", "xtx", "--imitation.heads", "3"], "do not fit"),
        ([TOY, "--agent", "xtx", "--imitation.action-room", "600"], "action_room"),
        ([TOY, "--agent", "drrn", "--text.vocabulary", "3"], "--text.vocabulary takes a number from 8"),
        ([TOY, "--agent", "drrn", "--text.longest", "2"], "--text.longest takes a number from 3"),
        ([TOY, "--steps", "0"], "--steps takes a number from 1"),
        ([TOY, "--num-envs", "0"], "--num-envs takes a number from 1"),
        ([TOY, "--num-envs", "4097"], "--num-envs takes a number from 1 to 4096"),
        ([TOY, "--log-every", "-1"], "--log-every takes a number from 1"),
        ([TOY, "--seed", "-1"], "--seed takes a number from 0"),
        ([TOY, "--threads", "0"], "--threads takes a number from 1"),
        ([TOY, "--workers", "-1"], "--workers takes a number from 0"),
        ([TOY, "--checkpoint-seconds", "-1"], "--checkpoint-seconds takes a number from 0"),
        ([TOY, "--device", "cuda"], "there is no GPU"),
        (["--atlas", "x", "--no-atlas"], "exclude each other"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing_behind(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("xtx: ")
    assert err.count("\n") == 1
    assert complaint in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["/proc/run", "file/run"])
def test_where_nothing_can_be_written(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["train", TOY, "--agent", "random", "--out", place, *PLAIN]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"xtx: {place} cannot be written (")
    assert err.count("\n") == 1


def test_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_a_full_disk_costs_only_what_came_after_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", TOY, "--agent", "xtx-uniform", "--steps", "1200", "--log-every", "10", *TINY, *PLAIN]
    assert main([*words, "--out", str(tmp_path / "plain")]) == 0
    write, room = xtx.runs.run_folder.write_checkpoint, [5]

    def fill(path: Path, state: xtx.runs.run_folder.State) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, state)

    monkeypatch.setattr(xtx.runs.run_folder, "write_checkpoint", fill)
    full = tmp_path / "full"
    capsys.readouterr()
    assert main([*words, "--out", str(full), "--checkpoint-seconds", "0"]) == 2
    because = "cannot be written (No space left on device); when that is fixed, go on with: "
    assert capsys.readouterr().err == f"xtx: {full} {because}{format_command('resume', full)}\n"
    assert [path.name for path in list_checkpoints(full)] == ["0000000040", "0000000032"]
    monkeypatch.setattr(xtx.runs.run_folder, "write_checkpoint", write)
    assert main(["resume", str(full), *PLAIN]) == 0
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert (full / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["train", TOY, "--agent", "random", "--steps", "100000000", "--out", str(folder), "--log-every", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "xtx.cli", *words, *PLAIN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 60
        while not (folder / "metrics.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.05)
        second = subprocess.run(
            [sys.executable, "-m", "xtx.cli", "resume", str(folder)], capture_output=True, text=True, check=False
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err == "\nstopping when this is done, and saving; Ctrl-C again ends it at once\n"
    end = ["xtx: stopped and saved; go on with:", f"  {format_command('resume', folder)}"]
    assert out.splitlines()[-2:] == end, "a command has a line of its own"
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr == f"xtx: another process works on {folder}; wait for it, or end it first\n"
    [newest] = list_checkpoints(folder)
    state = read_checkpoint(newest)["state"]
    assert state["progress"]["steps"] == int(newest.name) > 0
    assert int(newest.name) == list(read_lines(folder, "metrics"))[-1]["step"]


def test_resuming_keeps_the_number_of_threads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sums differ in their last bits from one number to another."""
    folder = tmp_path / "run"
    before = torch.get_num_threads()
    try:
        words = ["train", TOY, "--agent", "random", "--steps", "80", "--workers", "0", "--threads", "3", "--quiet"]
        assert main([*words, "--out", str(folder)]) == 0
        torch.set_num_threads(1)
        assert main(["resume", str(folder), "--workers", "0", "--quiet"]) == 0
        assert torch.get_num_threads() == 3
        capsys.readouterr()
        assert main(["resume", str(folder), *PLAIN]) == 0
        assert "the run had 3 threads so far; with 1 it will not be the same" in capsys.readouterr().out
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_new_folder_for_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["train", TOY, "--agent", "random", "--steps", "8", *PLAIN]) == 0
    folders = sorted((tmp_path / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert folder.name.startswith("toy-corridor-5-random-0-")
        assert json.loads((folder / "config.json").read_text())["steps"] == 8


@pytest.mark.parametrize("command", ["train", "evaluate", "export"])
def test_no_command_runs_a_story_in_its_own_process(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no worker is asked for. Workers are other programs, in which the emulator is as it was."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a story in the foreground process")

    folder, out = str(tmp_path / "run"), str(tmp_path / "out.jsonl")
    given = ["train", "lowwater", "--agent", "random", "--actions", "templates", "--steps", "16"]  # an episode ends
    train = [*given, "--out", folder, *PLAIN, "--no-atlas"]
    if command != "train":
        assert main(train) == 0
    monkeypatch.setattr("xtx.games.emulator.frotz.Emulator.__init__", refuse)
    words = {
        "train": train,
        "evaluate": ["evaluate", folder, "--episodes", "1", "--workers", "0"],
        "export": ["export", folder, "--out", out, "--play", "1", "--workers", "0"],
    }
    assert main(words[command]) == 0
