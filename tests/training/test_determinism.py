"""The same config and seed give the same run, whatever it is carried out with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from xtx.cli.main import main
from xtx.games.vector.game_vector import GameVector

TOY = "toy:corridor-5"
TINY = [
    *("--q.hidden", "16", "--q.batch-size", "16", "--text.vocabulary", "128", "--text.longest", "64"),
    *("--imitation.width", "16", "--imitation.layers", "1", "--imitation.heads", "2", "--imitation.passes", "2"),
    *("--first-training", "10", "--explore-steps", "8", "--log-every", "3"),
]
MEANS = ["--threads", "1", "--device", "cpu", "--quiet"]


def lines(folder: Path) -> tuple[bytes, bytes]:
    metrics, episodes = ((folder / f"{name}.jsonl").read_bytes() for name in ("metrics", "episodes"))
    assert metrics
    assert episodes
    return metrics, episodes


def run(folder: Path, game: str, *words: str, agent: str = "xtx", steps: int = 160) -> tuple[bytes, bytes]:
    options = ["train", game, "--agent", agent, "--steps", str(steps), "--out", str(folder), *TINY, *MEANS, *words]
    assert main(options) == 0
    return lines(folder)


def test_workers_and_atlas_make_no_difference(tmp_path: Path) -> None:
    """On a story: games in this process or in up to three others; actions searched anew, found in the atlas, or kept in
    memory only."""
    atlas = ["--atlas", str(tmp_path / "atlas")]
    first = run(tmp_path / "cold", "lowwater", "--stochastic", "--workers", "0", *atlas)
    for number, words in enumerate(
        [
            ["--workers", "1", *atlas],
            ["--workers", "2", *atlas],
            ["--workers", "3", *atlas],
            ["--workers", "3", "--no-atlas"],
        ]
    ):
        assert run(tmp_path / f"{number}", "lowwater", "--stochastic", *words) == first


@pytest.mark.parametrize("agent", ["xtx", "inv-dy"])
def test_looking_ahead_makes_no_difference(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a story, with actions that the agent foresees."""
    options = ["--workers", "3", "--search-threads", "1", "--no-atlas"]
    if agent != "xtx":
        few = [*TINY[:8], *("--log-every", "3", "--episode-limit", "12")]
        monkeypatch.setattr(sys.modules[__name__], "TINY", few)
    found: list[tuple[bytes, bytes]] = []
    looks: list[int] = []
    look_ahead = GameVector.look_ahead

    def noted(games: GameVector, actions: dict[int, str]) -> None:
        looks[-1] += len(actions)
        look_ahead(games, actions)

    monkeypatch.setattr(GameVector, "look_ahead", noted)
    for ahead in ("off", "on"):
        looks.append(0)
        words = [*options, "--look-ahead", ahead]
        found.append(run(tmp_path / ahead, "lowwater", "--stochastic", *words, agent=agent))
    assert found[0] == found[1] and looks[0] == 0 < looks[1]


@pytest.mark.parametrize("workers", ["1", "2", "3"])
def test_workers_make_no_difference_to_a_toy(workers: str, tmp_path: Path) -> None:
    assert run(tmp_path / "a", TOY, "--workers", workers) == run(tmp_path / "b", TOY, "--workers", "0")


@pytest.mark.parametrize("agent", ["random", "inv-dy", "drrn", "xtx"])
def test_the_seed_decides(agent: str, tmp_path: Path) -> None:
    def go(name: str, seed: int) -> tuple[bytes, bytes]:
        words = ["train", TOY, "--agent", agent, "--steps", "400", "--seed", str(seed), "--log-every", "5"]
        torch.rand(seed + len(name))  # what others drew from torch must not matter
        small = [] if agent == "random" else ["--q.hidden", "16", "--q.batch-size", "16"]
        assert main([*words, "--out", str(tmp_path / name), *small, *MEANS, "--workers", "0"]) == 0
        return lines(tmp_path / name)

    assert go("first", 1) == go("second", 1)
    assert go("third", 2) != go("fourth", 1)


def test_the_order_of_sets_does_not_matter(tmp_path: Path) -> None:
    """Python's hashes of strings differ from process to process."""
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        words = ["train", TOY, "--agent", "xtx", "--steps", "400", "--out", str(folder), *TINY, *MEANS]
        command = [sys.executable, "-m", "xtx.cli", *words, "--workers", "0"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        found.append(lines(folder))
    assert found[0] == found[1]


def test_checkpoints_make_no_difference(tmp_path: Path) -> None:
    often = run(tmp_path / "often", TOY, "--workers", "0", "--checkpoint-seconds", "0")
    assert often == run(tmp_path / "never", TOY, "--workers", "0")
