"""Arguments and answers of a wrong kind: one line each, and NumPy's numbers and strings are as good as Python's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import xtx
from xtx.agents.decisions import decide
from xtx.core import Agent, Decision, EpisodeRecord, Observation, Transition, UserError


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: xtx.make(5), "game takes a string or a path, not 5"),  # type: ignore[arg-type]
        (lambda: xtx.make(b"lowwater"), "game takes a string or a path"),  # type: ignore[arg-type]
        (lambda: xtx.make("a\0b"), "game has a zero byte in it"),
        (lambda: xtx.make(seed="12"), "seed takes a whole number, not '12'"),  # type: ignore[arg-type]
        (lambda: xtx.make(seed=True), "seed takes a whole number, not True"),
        (lambda: xtx.make(extra_actions="no"), "extra_actions is True or False"),  # type: ignore[arg-type]
        (lambda: xtx.make(atlas=5), "atlas takes a string or a path"),  # type: ignore[arg-type]
        (lambda: xtx.make_vector(num_envs=1.5), "num_envs takes a whole number, not 1.5"),  # type: ignore[arg-type]
        (lambda: xtx.make_vector(num_envs=10**6), "num_envs takes a number from 1 to"),
        (lambda: xtx.make_vector(workers="2"), "workers takes a whole number"),  # type: ignore[arg-type]
        (lambda: xtx.make_vector(search_threads=-1), "search_threads takes a number from 1, not -1"),
        (lambda: xtx.train(agent=None), "agent takes a string or a path, not None"),  # type: ignore[arg-type]
        (lambda: xtx.train(steps=1e3), "steps takes a whole number, not 1000.0"),  # type: ignore[arg-type]
        (lambda: xtx.train(seed=-1), "^seed takes a number from 0"),
        (lambda: xtx.train(workers=-2), "^workers takes a number from 0"),
        (lambda: xtx.train(checkpoint_seconds=float("nan")), "checkpoint_seconds takes a number from 0"),
        (lambda: xtx.train(on_update=5), "on_update takes a function, not 5"),  # type: ignore[arg-type]
        (lambda: xtx.resume(5), "path takes a string or a path"),  # type: ignore[arg-type]
        (lambda: xtx.load_run(5), "path takes a string or a path"),  # type: ignore[arg-type]
        (lambda: xtx.sweep(games="zork1"), r"games takes a list, as \['zork1'\]"),
        (lambda: xtx.sweep(seeds=["a"]), "seeds takes a whole number, not 'a'"),  # type: ignore[list-item]
        (lambda: xtx.sweep(device="gpu"), "device is 'auto'"),  # type: ignore[arg-type]
        (lambda: xtx.sweep(settings=[1]), "settings takes a dictionary"),  # type: ignore[arg-type]
        (lambda: xtx.sweep("demo", checkpoint_seconds=float("nan")), "^checkpoint_seconds takes a number from 0"),
        (lambda: xtx.report(5), "runs takes a list"),  # type: ignore[arg-type]
        (lambda: xtx.report("x", title=5), "title takes a string"),  # type: ignore[arg-type]
        (lambda: xtx.report("x", figures=5), "figures takes a string or a path"),  # type: ignore[arg-type]
        (lambda: xtx.report("x", walkthroughs="no"), "walkthroughs is True or False"),  # type: ignore[arg-type]
        (lambda: xtx.sweep("demo", available="no"), "available is True or False"),  # type: ignore[arg-type]
        (lambda: xtx.sweep("demo", progress="no"), "progress is True or False"),  # type: ignore[arg-type]
        (lambda: xtx.train(progress="no"), "progress is True or False, not 'no'"),  # type: ignore[arg-type]
        (lambda: xtx.resume("x", accept_changes="no"), "accept_changes is True or False"),  # type: ignore[arg-type]
        (lambda: xtx.list_games(found="no"), "found is True or False"),  # type: ignore[arg-type]
        (lambda: xtx.make(on_survey=5), "on_survey takes a function, not 5"),  # type: ignore[arg-type]
        (lambda: xtx.make_vector(on_survey=5), "on_survey takes a function, not 5"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_a_wrong_kind_are_one_line(
    call: object, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert callable(call)
    with pytest.raises(UserError, match=complaint) as found:
        call()
    assert "\n" not in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_strings_may_be_numpys(tmp_path: Path) -> None:
    with xtx.make("toy:corridor-5", seed=np.int64(1), valid_actions=np.True_) as game:  # type: ignore[arg-type]
        first = game.reset()
        assert game.step(np.random.default_rng(0).choice(first.actions)).observation.step == 1
    with xtx.make_vector("toy:corridor-5", num_envs=np.int64(2), workers=1) as games:  # type: ignore[arg-type]
        games.reset(np.arange(2), np.arange(2))  # type: ignore[arg-type]
        taken = games.step(np.array(["take lamp", "sing"]))  # type: ignore[arg-type]
        assert [step.observation.inventory for step in taken] == ["You carry a lamp.", "You carry nothing."]
    numbers: Any = {"steps": np.int64(160), "seed": np.int8(1), "log_every": np.int32(10)}
    run = xtx.train("toy:corridor-5", agent=Chooses, out=tmp_path / "run", **numbers)
    assert (run.metrics[-1]["loss"], run.metrics[-1]["count"]) == (2.0, 3.0)
    assert {type(action) for action in run.best().actions} == {str}


def test_commands_that_are_none_change_nothing() -> None:
    with xtx.make("toy:corridor-5") as game:
        game.reset()
        for wrong in (5, None, b"look", ["look"]):
            with pytest.raises(UserError, match="an action is a command"):
                game.step(wrong)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="restore takes the bytes"):
            game.restore("x")  # type: ignore[arg-type]
        assert game.step("take lamp\ud800").observation.step == 1
    with pytest.raises(UserError, match="closed"):
        game.step("look")
    with xtx.make_vector("toy:corridor-5", num_envs=2, workers=1) as games:
        for indices, seeds, complaint in (
            ([2], None, "no game 2"),
            ([-1], None, "no game -1"),
            ([0], [1, 2], "2 seeds"),
        ):
            with pytest.raises(UserError, match=complaint):
                games.reset(indices, seeds)


class Chooses(Agent):
    """Answers with NumPy's strings, and logs NumPy's numbers."""

    @property
    def episode_limit(self) -> int:
        return 10

    def learn(self, transitions: Sequence[Transition]) -> dict[str, float]:
        return {"loss": np.float32(2), "count": np.int64(3)}  # type: ignore[dict-item]

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        random = np.random.default_rng(0)
        return [Decision(random.choice(seen.actions), np.str_("explore")) for seen in observations]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (None, "it gave None"),
        (["look"] * 8, "it gave 'look'"),
        ([Decision(5)] * 8, r"it gave Decision\(action=5"),  # type: ignore[arg-type]
        ([Decision("look")] * 7, "7 decisions for 8 games"),
    ],
)
def test_an_agent_that_decides_nothing_is_one_line(answer: object, complaint: str, tmp_path: Path) -> None:
    class Wrong(Agent):
        def act(self, observations: Sequence[Observation]) -> list[Decision]:
            return answer  # type: ignore[return-value]

    with pytest.raises(UserError, match=complaint) as found:
        xtx.train("toy:corridor-5", agent=Wrong, steps=80, out=tmp_path / "run")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("numbers", [None, 5, {"loss": None}, {"loss": "low"}, {5: 5}])
def test_an_agent_that_logs_no_numbers_is_one_line(numbers: object, tmp_path: Path) -> None:
    class Wrong(Chooses):
        def learn(self, transitions: Sequence[Transition]) -> dict[str, float]:
            return numbers  # type: ignore[return-value]

    with pytest.raises(UserError, match=r"Wrong.learn must return a dictionary") as found:
        xtx.train("toy:corridor-5", agent=Wrong, steps=80, out=tmp_path / "run")
    assert "\n" not in str(found.value)


class Incomplete(Agent):
    """Has no `act`."""


class MadeFromNothing(Chooses):
    def __init__(self) -> None:
        pass


class WithoutBrief(Chooses):
    def __init__(self, settings: object, brief: object) -> None:
        self.table: dict[str, float] = {}


class SettingsOfAnotherKind(Chooses):
    Settings = dict


class SettingsWithoutDefault(Chooses):
    @dataclass(frozen=True)
    class Settings:
        epsilon: float


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Incomplete, "Incomplete does not define act"),
        (MadeFromNothing, "must be made from two arguments, settings and brief"),
        (WithoutBrief, r"must call super\(\).__init__\(settings, brief\)"),
        (SettingsOfAnotherKind, "Settings must be a dataclass"),
        (SettingsWithoutDefault, "epsilon has none"),
    ],
)
def test_a_class_that_cannot_be_an_agent_is_one_line(kind: type[Agent], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=complaint) as found:
        xtx.train("toy:corridor-5", agent=kind, steps=80, out=tmp_path / "run")
    assert "\n" not in str(found.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "answer", "complaint"),
    [("describe", None, "Wrong.describe must return a dictionary"), ("state", {"x": object()}, "cannot be saved")],
)
def test_an_agent_that_cannot_be_described_or_saved_is_one_line(
    method: str, answer: object, complaint: str, tmp_path: Path
) -> None:
    class Wrong(Chooses):
        pass

    setattr(Wrong, method, lambda self: answer)
    with pytest.raises(UserError, match=complaint) as found:
        xtx.train("toy:corridor-5", agent=Wrong, steps=80, out=tmp_path / "run", log_every=5)
    assert "\n" not in str(found.value)


def test_a_column_that_is_not_there_is_one_line() -> None:
    record = EpisodeRecord(1, 10, 0, 5, 5, 10, "won", 1)
    assert xtx.Records([record]).column("score") == [5]
    with pytest.raises(UserError, match="no 'points'; they have: episode, step, game, score"):
        xtx.Records([record]).column("points")


def test_dir_lists_what_is_public() -> None:
    assert [name for name in dir(xtx) if not name.startswith("__")] == sorted(set(xtx.__all__) - {"__version__"})


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda games: games.reset(seeds=[-1, 1]), "a seed is a whole number from 0"),
        (lambda games: games.reset(seeds=[1, 2**31]), "a seed is a whole number from 0"),
        (lambda games: games.reset(seeds=[1.5, 1]), "a seed is a whole number from 0"),
        (lambda games: games.reset(["a"]), "there is no game 'a'"),
        (lambda games: games.step({7: "look"}), "there is no game 7"),
        (lambda games: games.step({-1: "look"}), "there is no game -1"),
        (lambda games: games.step("ab"), "actions are a list of commands, not 'ab'"),
    ],
)
def test_a_vector_refuses_wrong_games_and_seeds(call: Any, complaint: str) -> None:
    with xtx.make_vector("toy:corridor-5", num_envs=2, workers=0) as games:
        games.reset()
        with pytest.raises(UserError, match=complaint):
            call(games)


def test_decisions_are_kept_as_files_can_hold_them() -> None:
    class Odd(Agent):
        def act(self, observations: Sequence[Observation]) -> list[Decision]:
            return [Decision("look \ud800", None)]  # type: ignore[arg-type]

        def __init__(self) -> None:
            pass

    [kept] = decide(Odd(), [Observation("", "", "", ("look",), 0, 0)])
    assert kept == Decision("look ?", "")
    assert msgspec.json.encode([kept.action, kept.phase]) == b'["look ?",""]'
