from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from xtx.cli.main import main
from xtx.cli.runs.agent_loading import load_agent
from xtx.cli.runs.evaluate import build_histogram
from xtx.config.settings import RunConfig
from xtx.core import Agent, Brief, Decision, Insight, NoSettings, Observation, Transition, UserError
from xtx.games.emulator.emulator_seeds import Seeds
from xtx.games.story_game import GameSpec
from xtx.games.vector.game_vector import GameVector
from xtx.training.evaluation import (
    EpisodeOutcome,
    compute_figures,
    draw_evaluation_seeds,
    normalise_score,
    play,
    replay,
)

SMALL = "--q.hidden 16 --text.vocabulary 128"
SMALL_XTX = (
    f"{SMALL} --imitation.width 16 --imitation.layers 1 --imitation.heads 2 --first-training 20 --imitation.passes 2"
)
QUICK = ["--workers", "1", "--threads", "1"]


def train(folder: Path, agent: str, settings: str = "", steps: int = 400) -> Path:
    words = ["train", "toy:corridor-5", "--agent", agent, "--steps", str(steps), "--out", str(folder), "--quiet"]
    assert main([*words, *settings.split(), *QUICK, "--log-every", "10"]) == 0
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One run of each kind of agent."""
    folder = tmp_path_factory.mktemp("runs")
    return SimpleNamespace(
        xtx=train(folder / "xtx", "xtx", SMALL_XTX),
        drrn=train(folder / "drrn", "drrn", SMALL),
        random=train(folder / "random", "random", "--stochastic --num-envs 4", steps=4000),
        walkthrough=train(folder / "walkthrough", "walkthrough", steps=100),
    )


class Scripted(Agent):
    """Plays the same way in every game, except that game 0 walks into the pit; remembers what it was shown."""

    way = ("take lamp", "east", "east", "take key", "east", "unlock door", "east", "take treasure")

    def __init__(self, limit: int = 100) -> None:
        super().__init__(NoSettings(), Brief(num_envs=3, seed=0))
        self.limit = limit
        self.shown: list[list[int]] = []
        self.learned = 0

    @property
    def episode_limit(self) -> int:
        return self.limit

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        self.shown.append([o.step for o in observations])
        assert all(o.actions for o in observations)
        return [Decision("east" if game == 0 else self.way[o.step]) for game, o in enumerate(observations)]

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        assert len(previous) == observation.step
        return Insight({"east": 0.4, "west": 0.2, "take lamp": 0.4} if observation.step else {"take lamp": 1.0}, "x")

    def learn(self, transitions: Sequence[Transition]) -> dict[str, float]:
        self.learned += 1
        return {}


def toys(games: int) -> GameVector:
    return GameVector(GameSpec("toy:corridor-5"), games, 0)


# --- playing --------------------------------------------------------------------------------------------------------


def test_every_episode_that_begins_counts() -> None:
    agent = Scripted()
    with toys(3) as games:
        played = list(play(agent, games, count(1), 4))
    # Game 0 dies after 4 steps and begins the fourth episode; the first to end are not all that is looked at.
    assert [e.number for e in played] == [1, 2, 3, 4]
    assert [e.seed for e in played] == [1, 2, 3, 4]
    assert [e.score for e in played] == [0, 10, 10, 0]
    assert [e.ended for e in played] == ["died", "won", "won", "died"]
    assert [len(e.steps) for e in played] == [4, 8, 8, 4]
    assert played[1].actions == list(Scripted.way)
    assert agent.learned == 0
    assert all(len(steps) == 3 for steps in agent.shown)  # games keep their places to the end


def test_games_without_an_episode_wait_at_their_beginning() -> None:
    agent = Scripted()
    with toys(3) as games:
        played = list(play(agent, games, count(1), 3))
    assert len(played) == 3
    assert [steps[0] for steps in agent.shown] == [0, 1, 2, 3, 0, 0, 0, 0]


def test_the_agents_limit_ends_episodes() -> None:
    with toys(1) as games:
        [played] = play(Scripted(limit=2), games, count(1), 1)
    assert played.ended == "limit"
    assert played.last.truncated
    assert len(played.steps) == 2
    assert played.make_outcome().place == "Room 3 of 5. There is a key here."


def test_greedy_takes_the_likeliest_action() -> None:
    with toys(2) as games:
        played = list(play(Scripted(limit=3), games, count(1), 3, greedy=True))
    assert {tuple(e.actions) for e in played} == {("take lamp", "east", "east")}
    assert played[0].steps[0].decision.phase == "x"


def test_greedy_needs_probabilities() -> None:
    class Silent(Scripted):
        def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
            return Insight({})

    with toys(1) as games, pytest.raises(UserError, match="leave out --greedy"):
        list(play(Silent(), games, count(1), 1, greedy=True))


def test_replay_gives_the_same_episode() -> None:
    with toys(1) as games:
        [played] = play(Scripted(limit=3), games, count(7), 1)
        again = replay(games, 1, 7, played.actions)
    assert [m.before for m in again.steps] == [m.before for m in played.steps]
    assert again.last == played.last


def test_the_outcome_of_an_episode() -> None:
    with toys(1) as games:
        [played] = play(Scripted(limit=3), games, count(7), 1, greedy=True)
    assert played.make_outcome() == EpisodeOutcome(
        1, 7, 0, 3, "limit", "Room 3 of 5. There is a key here.", "You walk on."
    )


# --- seeds ----------------------------------------------------------------------------------------------------------


def test_deterministic_runs_keep_their_seed() -> None:
    config = RunConfig("g", "xtx", {}, seed=0)
    assert list(islice(draw_evaluation_seeds(config, 12, 99), 3)) == [12, 12, 12]
    assert next(draw_evaluation_seeds(RunConfig("g", "xtx", {}, seed=5), 12, 99)) == 5


def test_stochastic_seeds_are_new_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig("g", "xtx", {}, seed=3, stochastic=True)
    training = Seeds(3, 12, stochastic=True)
    trained = {training.take_next() for _ in range(1000)}

    def some(seed: int) -> list[int]:
        return list(islice(draw_evaluation_seeds(config, 12, 1000, seed), 500))

    assert some(0) == some(0)
    assert not set(some(0)) & set(some(1))
    assert not set(some(0)) & trained
    # Also if chance has it: a generator that first gives what the training had.
    numbers = iter([*sorted(trained), 1, 2])
    monkeypatch.setattr(
        "xtx.training.evaluation.Seeds", lambda *_, **__: SimpleNamespace(take_next=lambda: next(numbers))
    )
    assert list(islice(draw_evaluation_seeds(config, 12, 500), 2)) == sorted(trained)[500:502]


# --- figures --------------------------------------------------------------------------------------------------------


def test_figures() -> None:
    with toys(3) as games:
        played = list(play(Scripted(), games, count(1), 4))
    found = compute_figures([episode.make_outcome() for episode in played], 10)
    assert (found.score_mean, found.score_std, found.score_max, found.score_min, found.score_median) == (5, 5, 10, 0, 5)
    assert (found.normalised_mean, found.normalised_max) == (0.5, 1.0)
    assert found.ended == {"won": 2, "died": 2, "limit": 0}
    assert found.scores == {0: 2, 10: 2}
    assert found.length_mean == 6
    assert [(e.ended, e.count, e.score, e.place) for e in found.ends] == [
        ("died", 2, 0, "It is dark here."),
        ("won", 2, 10, "Room 5 of 5. There is a treasure here."),
    ]
    assert found.ends[0].text == "You stumble in the dark and fall into a pit."


@pytest.mark.parametrize(
    ("score", "most", "share"), [(5, 10, 0.5), (65535, 25, 1.0), (-5, 10, -0.5), (5, 0, None), (0, -1, None)]
)
def test_normalised(score: float, most: int, share: float | None) -> None:
    assert normalise_score(score, most) == share


def test_bars() -> None:
    assert build_histogram({-1: 2, 5: 1}) == [("-1", 2), ("5", 1)]
    rows = build_histogram({score: 1 for score in range(0, 100, 2)})
    assert len(rows) <= 12
    assert sum(n for _, n in rows) == 50
    assert rows[0][0] == "0..8"


# --- the command ----------------------------------------------------------------------------------------------------


def evaluation(folder: Path) -> dict[str, object]:
    content = json.loads((folder / "evaluation.json").read_text())
    for name in ("date", "seconds"):
        assert content.pop(name)
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("agent", ["xtx", "drrn", "random"])
@pytest.mark.parametrize("episodes", ["3", "11"])  # fewer than the run's games, and more
def test_the_same_evaluation_twice(
    agent: str, episodes: str, runs: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = getattr(runs, agent)
    seen = []
    for _ in range(2):
        assert main(["evaluate", str(folder), "--episodes", episodes, *QUICK]) == 0
        seen.append(evaluation(folder))
    assert seen[0] == seen[1]
    kept = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    assert [line["figures"] for line in kept[-2:]] == [seen[0]["figures"]] * 2, "one by one, not overwritten"
    assert len(seen[0]["played"]) == int(episodes)  # type: ignore[arg-type]
    assert seen[0]["checkpoint"] == "newest"
    out = capsys.readouterr().out
    assert f"{agent} plays toy:corridor-5, {episodes} episodes" in out
    assert "normalised" in out
    assert "where episodes ended" in out


def test_evaluating_changes_nothing_in_the_run(runs: SimpleNamespace) -> None:
    def content() -> dict[str, bytes]:
        files = (
            p for p in runs.xtx.rglob("*") if p.is_file() and p.name not in ("evaluation.json", "evaluations.jsonl")
        )
        return {str(path): path.read_bytes() for path in files}

    before = content()
    assert main(["evaluate", str(runs.xtx), "--episodes", "3", "--no-save", *QUICK]) == 0
    assert content() == before


@pytest.mark.parametrize("agent", ["xtx", "drrn"])
def test_greedy_in_a_deterministic_run_is_one_episode(agent: str, runs: SimpleNamespace) -> None:
    folder = getattr(runs, agent)
    assert main(["evaluate", str(folder), "--greedy", *QUICK]) == 0
    one = evaluation(folder)
    assert len(one["played"]) == 1  # type: ignore[arg-type]
    assert main(["evaluate", str(folder), "--greedy", "--episodes", "3", *QUICK]) == 0
    assert evaluation(folder)["played"] == 3 * one["played"]  # type: ignore[operator]


def test_the_walkthrough_wins(runs: SimpleNamespace) -> None:
    assert main(["evaluate", str(runs.walkthrough), "--episodes", "2", *QUICK]) == 0
    figures = evaluation(runs.walkthrough)["figures"]
    assert isinstance(figures, dict)
    assert (figures["score_mean"], figures["normalised_mean"]) == (10, 1)


def test_other_seeds_for_stochastic_runs(runs: SimpleNamespace) -> None:
    seeds = []
    for seed in ("0", "1"):
        assert main(["evaluate", str(runs.random), "--episodes", "5", "--seed", seed, *QUICK]) == 0
        played = evaluation(runs.random)["played"]
        assert isinstance(played, list)
        seeds.append({episode["seed"] for episode in played})
    trained = {json.loads(line)["seed"] for line in (runs.random / "episodes.jsonl").read_text().splitlines()}
    assert not seeds[0] & seeds[1]
    assert not (seeds[0] | seeds[1]) & trained


def test_the_best_checkpoint(runs: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert (runs.random / "checkpoints" / "best").exists()
    assert main(["evaluate", str(runs.random), "--checkpoint", "best", "--episodes", "2", *QUICK]) == 0
    assert evaluation(runs.random)["checkpoint"] == "best"
    assert main(["evaluate", str(runs.xtx), "--checkpoint", "best"]) == 2
    assert "try --checkpoint newest" in capsys.readouterr().err


def test_the_loaded_agent_is_asked_about_fewer_games(runs: SimpleNamespace) -> None:
    for folder in vars(runs).values():
        loaded = load_agent(folder)
        with toys(1) as games:
            seen = games.reset()
            for _ in range(3):
                [decision] = loaded.agent.act(seen)
                seen = [games.step([decision.action])[0].observation]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["absent"], "is not a run"),
        (["RUN", "--episodes", "0"], "--episodes takes a number from 1"),
        (["RUN", "--seed", "-1"], "--seed takes a number from 0"),
        (["RUN", "--threads", "0"], "--threads takes a number from 1"),
        (["RUN", "--workers", "-1"], "--workers takes a number from 0"),
        (["RUN", "--seed", "1"], "--seed is for stochastic runs"),
        (["RUN", "--checkpoint", "third"], "--checkpoint"),
        (["EMPTY"], "has no checkpoint yet"),
        (["BROKEN"], "is not that of the checkpoint {}: agent was walkthrough and is random; put back the config"),
        (["OLD"], "was written by another version (KeyError: 'random')"),
        (["STATELESS"], "is not the checkpoint of a run"),
    ],
)
def test_mistakes_get_one_line(
    words: list[str], complaint: str, runs: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from xtx.runs.checkpoint_file import find_newest_checkpoint, write_checkpoint

    config = (runs.walkthrough / "config.json").read_text()
    for name in ("empty", "broken", "old", "stateless"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    (tmp_path / "empty" / "config.json").write_text(config)
    for name in ("broken", "old", "stateless"):
        (tmp_path / name / "config.json").write_text(config.replace('"walkthrough"', '"random"'))
    _, saved = find_newest_checkpoint(runs.walkthrough)
    assert saved is not None
    path = tmp_path / "broken" / "checkpoints" / "0000000100"
    write_checkpoint(path, saved)
    write_checkpoint(tmp_path / "old" / "checkpoints" / "0000000100", {"sizes": {}, "state": saved["state"]})
    write_checkpoint(tmp_path / "stateless" / "checkpoints" / "0000000100", {"sizes": {}})
    places = {name.upper(): tmp_path / name for name in ("empty", "broken", "old", "stateless")}
    places["RUN"] = runs.walkthrough
    capsys.readouterr()
    assert main(["evaluate", *(str(places.get(word, word)) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("xtx: ")
    assert err.count("\n") == 1
    assert complaint.format(path) in err


def test_control_c(runs: SimpleNamespace) -> None:
    (runs.drrn / "evaluation.json").unlink(missing_ok=True)
    words = [sys.executable, "-m", "xtx.cli", "evaluate", str(runs.drrn), "--episodes", "1000000", *QUICK]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet()) as process:
        assert process.stdout is not None
        assert "drrn plays" in process.stdout.readline()
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "interrupted" in out + err
    assert not (runs.drrn / "evaluation.json").exists()


def quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
