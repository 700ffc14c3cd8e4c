"""Finds out ahead what the demo will meet in the embedded adventure, and writes it to
xtx/games/catalog/data/lowwater.shipped.

Usage: python stories/shipped.py ATLAS_FOLDER

Fills the atlas in that folder by the walkthrough, strolls off it, and demo runs of a few seeds; then packs what it
holds about the adventure. Run it again whenever the story, the search or the survey changes (their versions are part of
the keys). With --write before the folder, it only packs what is there.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

import lmdb

from xtx.games.atlas.archive import pack
from xtx.games.game_setup import set_up_game
from xtx.games.story_game import StoryGame

SEEDS = (0, 1, 2)
STEPS = 30_000
STROLL = 20
KEY = 16


def main(atlas: Path) -> None:
    stroll(atlas)
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            command = [sys.executable, "-m", "xtx.cli", "train", "--seed", str(seed), "--steps", str(STEPS)]
            subprocess.run([*command, "--out", run, "--atlas", atlas, "--device", "cpu"], check=True)
    write(atlas)


def stroll(atlas: Path) -> None:
    """Looks around along the walkthrough."""
    stage = set_up_game("", atlas=atlas)
    game = StoryGame(stage.spec)
    chance = random.Random(0)
    for length in range(len(stage.walkthrough)):
        observation = game.reset()
        for action in stage.walkthrough[:length]:
            observation = game.step(action).observation
        for _ in range(STROLL):
            step = game.step(chance.choice(observation.actions))
            observation = step.observation
            if step.terminated:
                break
    game.close()


def write(atlas: Path) -> None:
    """Packs what an atlas that holds nothing else knows."""
    environment = lmdb.open(str(atlas), readonly=True, lock=False)
    with environment.begin() as transaction:
        # Eight bytes of checksum stand before each value.
        found = {bytes(key): bytes(value)[8:] for key, value in transaction.cursor() if len(key) == KEY}
    environment.close()
    path = Path(__file__).parents[1] / "xtx/games/catalog/data/lowwater.shipped"
    path.write_bytes(pack(found))
    print(f"{len(found)} states of {set_up_game('').name}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--write":
        write(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
