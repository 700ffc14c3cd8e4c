from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xtx.cli.main import main
from xtx.games.catalog.known_games import DATA
from xtx.games.toy_game import ToyGame
from xtx.runs.line_files import read_episodes

LOWWATER = str(DATA / "lowwater.z5")
QUICK = ["--workers", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that found all points by chance."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    words = ["train", "toy:corridor-5", "--agent", "random", "--steps", "4000", "--out", str(folder), "--quiet"]
    assert main([*words, *QUICK]) == 0
    return folder


@pytest.fixture(scope="module")
def story_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the embedded adventure, under several emulator seeds."""
    folder = tmp_path_factory.mktemp("runs") / "story"
    atlas = str(tmp_path_factory.getbasetemp() / "lowwater-atlas")
    words = ["train", LOWWATER, "--agent", "random", "--steps", "204", "--num-envs", "2", "--seed", "4", "--stochastic"]
    assert main([*words, "--out", str(folder), "--quiet", "--atlas", atlas, *QUICK]) == 0
    return folder


def spoil(folder: Path, copy: Path) -> Path:
    """A run whose records say other scores than their actions give."""
    copy.mkdir()
    (copy / "config.json").write_text((folder / "config.json").read_text())
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    lines[-1] |= {"score": 99, "record": True, "actions": ["east"], "length": 1}
    (copy / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return copy


# --- best -----------------------------------------------------------------------------------------------------------


def test_best_is_a_transcript(toy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", str(toy_run)]) == 0
    out, err = capsys.readouterr()
    best = max(read_episodes(toy_run), key=lambda e: e.score)
    assert best.score == 10
    assert f"10 of 10 points in {best.length} steps" in " ".join(out.split())
    assert out.count("\n> ") == best.length
    assert "The treasure is yours." in out
    assert "Its actions:" in out
    assert "Verified: played again under emulator seed 1, it gives 10 points, as in the run." in out
    assert err == ""


def test_its_walkthrough_replays_to_the_same_score(
    toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["best", str(toy_run), "--walkthrough"]) == 0
    out, err = capsys.readouterr()
    game = ToyGame("toy:corridor-5")
    assert [game.step(line) for line in out.splitlines()][-1].observation.score == 10
    assert "it gives 10 points, as in the run" in err
    way = tmp_path / "way.txt"
    assert main(["best", str(toy_run), "--walkthrough", "--out", str(way)]) == 0
    assert way.read_text() == out
    assert "Verified" in capsys.readouterr().out


def test_best_of_a_story(story_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "best.txt"
    assert main(["best", str(story_run), "--out", str(file)]) == 0
    best = max(read_episodes(story_run), key=lambda e: e.score)
    assert f"Verified: played again under emulator seed {best.seed}, it gives {best.score} points" in (
        capsys.readouterr().out
    )
    text = file.read_text()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Sennet Quay\nGranite, gulls, and no sea" in text
    assert text.count("\n> ") == best.length


def test_best_says_if_it_cannot_be_repeated(toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", str(spoil(toy_run, tmp_path / "run"))]) == 2
    assert "it gives 0 points, but the run says 99" in capsys.readouterr().err


# --- export ---------------------------------------------------------------------------------------------------------


def exported(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def check(episode: dict[str, Any]) -> None:
    """An episode hangs together."""
    steps = episode["steps"]
    for number, step in enumerate(steps):
        assert step.keys() == {"observation", "actions", "action", "phase", "reward"}
        assert step["observation"].keys() == {"text", "look", "inventory", "score", "step"}
        assert step["observation"]["step"] == number
        assert step["action"] in step["actions"]
        after = steps[number + 1]["observation"] if number + 1 < len(steps) else episode["end"]
        assert after["score"] == step["observation"]["score"] + step["reward"]
    assert episode["end"]["score"] == episode["score"]
    assert episode["ended"] in ("won", "died", "limit")


def test_export_of_records(toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "episodes.jsonl"
    assert main(["export", str(toy_run), "--out", str(file), *QUICK]) == 0
    records = [e for e in read_episodes(toy_run) if e.record]
    episodes = exported(file)
    assert f"{len(records)} episodes written to" in capsys.readouterr().out
    assert [e["episode"] for e in episodes] == [r.episode for r in records]
    for episode, record in zip(episodes, records, strict=True):
        check(episode)
        assert [step["action"] for step in episode["steps"]] == record.actions
        facts = {name: episode[name] for name in ("game", "agent", "source", "seed", "score", "max_score", "ended")}
        assert facts == {
            "game": "toy:corridor-5", "agent": "random", "source": "record", "seed": 1, "score": record.score,
            "max_score": 10, "ended": record.ended,
        }  # fmt: skip
    assert main(["export", str(toy_run), "--out", str(file), "--episodes", "1", *QUICK]) == 0
    assert exported(file) == episodes[-1:]


def test_export_of_new_episodes(toy_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    assert main(["export", str(toy_run), "--out", str(file), "--episodes", "0", "--play", "3", *QUICK]) == 0
    episodes = exported(file)
    assert [e["source"] for e in episodes] == ["new"] * 3
    assert sorted(e["episode"] for e in episodes) == [1, 2, 3]
    for episode in episodes:
        check(episode)


def test_export_of_a_story(story_run: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    atlas = str(tmp_path_factory.getbasetemp() / "lowwater-atlas")
    file = tmp_path / "episodes.jsonl"
    assert main(["export", str(story_run), "--out", str(file), "--episodes", "1", "--atlas", atlas, *QUICK]) == 0
    [episode] = exported(file)
    check(episode)
    assert episode["game"] == "lowwater"
    assert "Sennet Quay" in episode["steps"][0]["observation"]["look"]


def test_what_cannot_be_repeated_is_left_out(toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = spoil(toy_run, tmp_path / "run"), tmp_path / "episodes.jsonl"
    assert main(["export", str(run), "--out", str(file), "--episodes", "2", *QUICK]) == 0
    assert len(exported(file)) == 1
    assert "gave 99 points in the run and 0 now, so it is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["best", "absent"], "is not a run"),
        (["best", "NEW"], "no episode of"),
        (["best", "BAD"], "is damaged"),
        (["best", "RUN", "--out", "/nowhere/x"], "/nowhere/x cannot be written (there is no such folder"),
        (["export", "RUN"], "missing: --out"),
        (["export", "RUN", "--out", "/nowhere/x"], "/nowhere/x cannot be written (there is no such folder"),
        (["export", "RUN", "--out", "FILE", "--episodes", "-1"], "--episodes takes a number from 0"),
        (["export", "RUN", "--out", "FILE", "--play", "-1"], "--play takes a number from 0"),
        (["export", "RUN", "--out", "FILE", "--seed", "-1"], "--seed takes a number from 0"),
        (["export", "RUN", "--out", "FILE", "--episodes", "0"], "there is nothing to write"),
        (["export", "NEW", "--out", "FILE", "--episodes", "0", "--play", "1"], "has no checkpoint yet"),
    ],
)
def test_mistakes_get_one_line(
    words: list[str], complaint: str, toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("new", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text((toy_run / "config.json").read_text())
    (tmp_path / "bad" / "episodes.jsonl").write_text('{"episode": "one"}\n')
    places = {"RUN": toy_run, "NEW": tmp_path / "new", "BAD": tmp_path / "bad", "FILE": tmp_path / "file"}
    capsys.readouterr()
    assert main([str(places.get(word, word)) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("xtx: ")
    assert err.count("\n") == 1
    assert complaint in err
