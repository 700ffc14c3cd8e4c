"""How fast the games are: ours beside the plain way, as ratios in one run.

    python benchmarks/games.py [GAME ...] [--steps N]

Without arguments: the embedded adventure, and zork1, detective and deephome where their stories are found. Every game
is walked once at random with a cold atlas; then the same actions are walked again in each of the ways compared. "2 over
1" is how much faster two workers are than one, "apart" how much faster two processes that know nothing of each other
play the same games than one, and "parent" the processor time that the parent needs for a game's step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import jericho
from rich.console import Console
from rich.table import Table

from xtx.core import UserError
from xtx.games.actions.search import RANDOM_STATES
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.vector.game_vector import GameVector

EPISODE = 30
GAMES_IN_VECTOR = 8
REPEATS = 5
TURNS = 25


@dataclass
class Walk:
    """A random walk through one game, and what the first, cold time took."""

    spec: GameSpec
    seed: int
    episodes: list[list[str]]
    cold_search: float
    """Seconds for the searches of the first few states."""
    jericho_filter: float
    """Seconds for Jericho's filter on the same candidates."""
    candidates: int

    @property
    def steps(self) -> int:
        return sum(map(len, self.episodes))


def walk(spec: GameSpec, steps: int) -> Walk:
    """A walk that visits every state it needs with a cold atlas."""
    game = StoryGame(spec)
    seed = game.emulator.bindings.walkthrough_seed
    choose = random.Random(7)
    episodes: list[list[str]] = []
    searches = [0.0, 0.0, 0]
    env = jericho.FrotzEnv(spec.path, seed=seed or None)
    while sum(map(len, episodes)) < steps:
        observation = game.reset(seed)
        episodes.append([])
        for _ in range(EPISODE):
            if len(episodes) == 1 and len(episodes[0]) % 10 == 0:
                compare_search(game, env, searches)
            action = choose.choice(observation.actions)
            episodes[-1].append(action)
            step = game.step(action)
            observation = step.observation
            if step.terminated:
                break
    game.close()
    env.close()
    return Walk(spec, seed, episodes, searches[0], searches[1], int(searches[2]))


def compare_search(game: StoryGame, env: jericho.FrotzEnv, totals: list[float]) -> None:
    """Adds the seconds of our verdicts and of Jericho's for the same candidates in the present state."""
    search, emulator = game.search, game.emulator
    before = emulator.save()
    state = game.world.make_canonical(RANDOM_STATES[0])
    look, inventory = search.describe(state)
    candidates = search.candidates(search.things(state, look, inventory))
    start = time.perf_counter()
    search.effects(state, candidates)
    totals[0] += time.perf_counter() - start
    emulator.restore(state)
    plain = emulator._env
    start = time.perf_counter()
    plain._filter_candidate_actions(candidates, use_ctypes=True, use_parallel=False)
    totals[1] += time.perf_counter() - start
    totals[2] += len(candidates)
    emulator.restore(before)


def best_of(run: Callable[[], None]) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def bare(walked: Walk) -> float:
    """Microseconds a step of Jericho alone."""
    env = jericho.FrotzEnv(walked.spec.path, seed=walked.seed or None)

    def run() -> None:
        for episode in walked.episodes:
            env.reset()
            for action in episode:
                env.step(action)

    def resets() -> None:
        for _ in walked.episodes:
            env.reset()

    seconds = best_of(run) - best_of(resets)
    env.close()
    return 1e6 * seconds / walked.steps


def plain_loop(walked: Walk) -> float:
    """Microseconds a step of the plain way: step, look and inventory from a saved state, Jericho's own hash."""
    env = jericho.FrotzEnv(walked.spec.path, seed=walked.seed or None)

    def run() -> None:
        for episode in walked.episodes:
            env.reset()
            for action in episode:
                env.step(action)
                state = env.get_state()
                env.step("look")
                env.set_state(state)
                env.step("inventory")
                env.set_state(state)
                env.get_world_state_hash()

    seconds = best_of(run)
    env.close()
    return 1e6 * seconds / walked.steps


def warm(walked: Walk) -> float:
    """Microseconds of our whole step with a warm atlas, in one process."""
    game = StoryGame(walked.spec)

    def run() -> None:
        for episode in walked.episodes:
            game.reset(walked.seed)
            for action in episode:
                game.step(action)

    seconds = best_of(run)
    game.close()
    return 1e6 * seconds / walked.steps


@dataclass(frozen=True)
class Vectors:
    """Microseconds a game step of eight games: with one worker, with two, and without any parent. Medians."""

    one: float
    two: float
    apart_one: float
    """One process that plays eight games."""
    apart_two: float
    """Two processes that play four each and know nothing of each other: what the machine itself allows."""
    parent: float
    """Processor time of the parent for a game's step, with two workers."""


class Apart:
    """A process that plays the walk with some games whenever it is told to."""

    def __init__(self, walked: Walk, games: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=play_when_told, args=(walked, games, there), daemon=True)
        self._process.start()
        self._here.recv()

    def begin(self) -> None:
        """Tells it to play."""
        self._here.send(True)

    def end(self) -> None:
        """Waits until it has played."""
        self._here.recv()

    def close(self) -> None:
        """Ends the process."""
        self._here.send(False)
        self._process.join()


def play_when_told(walked: Walk, games: int, told: Connection) -> None:
    """The life of such a process."""
    warnings.simplefilter("ignore", jericho.jericho.UnsupportedGameWarning)
    mine = [StoryGame(walked.spec) for _ in range(games)]
    told.send(True)
    while told.recv():
        for episode in walked.episodes:
            for game in mine:
                game.reset(walked.seed)
            for action in episode:
                for game in mine:
                    game.step(action)
        told.send(True)


def step_all(games: GameVector, walked: Walk) -> None:
    """Plays the walk with all games of a vector."""
    for episode in walked.episodes:
        games.reset(range(GAMES_IN_VECTOR), [walked.seed] * GAMES_IN_VECTOR)
        for action in episode:
            games.step([action] * GAMES_IN_VECTOR)


def play_apart(processes: Sequence[Apart]) -> None:
    """Lets processes play at the same time."""
    for process in processes:
        process.begin()
    for process in processes:
        process.end()


def vectors(walked: Walk) -> Vectors:
    """What a game step costs with eight games in lock-step and a warm atlas. The ways take turns, because a machine
    that is not ours alone is quicker at one moment than at the next."""
    with (
        GameVector(walked.spec, num_envs=GAMES_IN_VECTOR, workers=1) as one,
        GameVector(walked.spec, num_envs=GAMES_IN_VECTOR, workers=2) as two,
    ):
        alone, pair = Apart(walked, GAMES_IN_VECTOR), [Apart(walked, GAMES_IN_VECTOR // 2) for _ in range(2)]
        ways: list[Callable[[], None]] = [
            lambda: step_all(one, walked),
            lambda: step_all(two, walked),
            lambda: play_apart([alone]),
            lambda: play_apart(pair),
        ]
        times = [[timed(way) for way in ways] for _ in range(TURNS + 1)][1:]
        for process in (alone, *pair):
            process.close()
    clock = [statistics.median(found) for found in zip(*([wall for wall, _ in turn] for turn in times), strict=True)]
    parent = statistics.median(turn[1][1] for turn in times)
    return Vectors(*(1e6 * seconds / walked.steps / GAMES_IN_VECTOR for seconds in (*clock, parent)))


def timed(way: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock, and of this process on the processor."""
    start, used = time.perf_counter(), time.process_time()
    way()
    return time.perf_counter() - start, time.process_time() - used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    warnings.simplefilter("ignore", jericho.jericho.UnsupportedGameWarning)
    console = Console(width=150, highlight=False)
    table = Table(
        "game", "bare Jericho step", "ours, warm", "aim: 2x + 150", "plain loop", "vector, 1 worker",
        "vector, 2 workers", "2 over 1", "apart", "parent", "plain over vector(2)", "search / Jericho's filter",
        box=None, pad_edge=False,
    )  # fmt: skip
    for name in options.games or [find_default_game(), "zork1", "detective", "deephome"]:
        try:
            story = find_story(name)
        except UserError as error:
            if options.games:
                parser.error(str(error))
            console.print(f"left out: {error}", markup=False)
            continue
        with tempfile.TemporaryDirectory() as folder:
            console.print(f"{name}: walking with a cold atlas ...")
            walked = walk(GameSpec(str(story.path), atlas=str(Path(folder) / "atlas")), options.steps)
            step, ours, loop = bare(walked), warm(walked), plain_loop(walked)
            many = vectors(walked)
        search = f"{walked.cold_search / walked.jericho_filter:.2f}x"
        table.add_row(
            name, f"{step:.0f} µs", f"{ours:.0f} µs", f"{2 * step + 150:.0f} µs", f"{loop:.0f} µs",
            f"{many.one:.0f} µs", f"{many.two:.0f} µs", f"{many.one / many.two:.2f}x",
            f"{many.apart_one / many.apart_two:.2f}x", f"{many.parent:.0f} µs", f"{loop / many.two:.1f}x",
            f"{search} of {walked.jericho_filter / walked.candidates * 1e6:.0f} µs",
        )  # fmt: skip
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
