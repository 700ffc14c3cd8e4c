"""Shared by tests of the game vector: vectors that are closed, walks, and whether processes have ended."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xtx.core import Step
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.story_game import GameSpec
from xtx.games.vector.game_vector import GameVector

HANG = str(Path(__file__).parents[3] / "stories" / "hang" / "hang.z5")
TOY = GameSpec("toy:corridor-6")
TRAP = GameSpec("toy:trap-6")
LOW_WATER = str(find_story(find_default_game()).path)

Walk = list[list[Step]]


@contextmanager
def vector(spec: GameSpec, games: int, workers: int, **more: Any) -> Iterator[GameVector]:
    """A vector that is silent and must leave no process behind."""
    more.setdefault("on_report", lambda line: None)
    with GameVector(spec, games, workers, **more) as made:
        yield made
        pids = made.pids
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Whether there is such a process, other than as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within: float = 10.0) -> bool:
    """Whether all the processes end in time."""
    end = time.monotonic() + within
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def random_walk(
    games: GameVector,
    steps: int,
    seed: int = 1,
    breadth: int = 100,
    before: Callable[[int], None] = lambda number: None,
    instead: dict[int, dict[int, str]] | None = None,
    step: Callable[[GameVector, list[str]], list[Step]] = GameVector.step,
) -> Walk:
    """Steps at random among the first `breadth` actions; ended games begin anew. `before` is called before every step,
    and `instead` says by step and game what to do instead."""
    generator = random.Random(seed)
    seen = games.reset()
    walk: Walk = []
    for number in range(steps):
        before(number)
        actions = [generator.choice(one.actions[:breadth]) for one in seen]
        for game, action in (instead or {}).get(number, {}).items():
            actions[game] = action
        walk.append(step(games, actions))
        seen = [one.observation for one in walk[-1]]
        ended = [i for i, one in enumerate(walk[-1]) if one.terminated]
        for i, first in zip(ended, games.reset(ended) if ended else (), strict=True):
            seen[i] = first
    return walk


def low_water_way(games: GameVector, steps: int, before: Callable[[int], None] = lambda number: None) -> Walk:
    """The walkthrough of the embedded adventure, each game one step behind the one before it."""
    profile = find_story(find_default_game()).profile
    assert profile is not None
    games.reset(seeds=[7 + i for i in range(len(games))])
    walk = []
    for number in range(steps):
        before(number)
        walk.append(games.step([profile.walkthrough[max(0, number - i)] for i in range(len(games))]))
    return walk
