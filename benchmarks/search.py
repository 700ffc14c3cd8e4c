"""How fast candidates are judged: set execution beside Jericho's own filter, as ratios in one run.

    python benchmarks/search.py [GAME ...] [--states N]

Without arguments: the embedded adventure, and the paper's games where their stories are found. The candidates are those
of our own search, at states along the walkthrough. Everything runs in one thread and is measured in processor time, so
that it can be compared on a busy machine too; but for the last two columns, which say by the clock (on a machine where
nothing else runs) how much more two processors do: two threads that share the candidates of one state after the other,
and two that judge a state each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from xtx.core import UserError
from xtx.games.actions.search import Search
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.catalog.story_file import Story
from xtx.games.emulator.frotz import Emulator, Snapshot, Verdicts
from xtx.games.zset.engine import UNJUDGED, Engine, Random
from xtx.games.zset.game_rules import Rules

GAMES = ("deephome", "dragon", "ludicorp", "library", "detective", "inhumane", "zork1", "zork3", "enchanter",
         "balances", "omniquest", "pentari")  # fmt: skip
REPEATS = 5
ROUNDS = 12


class Recorder(Engine):
    """An engine that notes what it was asked."""

    asked: list[Sequence[str]]

    def filter_each(
        self,
        state: Snapshot,
        randoms: Sequence[Random],
        commands: Sequence[str],
        *more: object,
        **named: object,
    ) -> list[Verdicts]:
        self.asked.append(commands)
        return super().filter_each(state, randoms, commands)


@dataclass
class Result:
    """Seconds for all states of a game."""

    states: int = 0
    candidates: int = 0
    left: int = 0
    """Candidates that the engine left to Frotz."""
    ours: float = 0
    door: float = 0
    jericho: float = 0
    shared: float = 0
    """How much faster two threads are than one that share the candidates of each state."""
    side_by_side: float = 0
    """How much faster they are with a state for each."""


def best_of(run: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs."""
    return min(seconds(run) for _ in range(REPEATS))


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    start = clock()
    run()
    return clock() - start


def judge(engine: Engine, emulator: Emulator, state: Snapshot, candidates: Sequence[str]) -> int:
    """Judges all candidates, those that the engine leaves open in the emulator; how many those are."""
    verdicts = engine.filter(state, candidates)
    left = np.flatnonzero(verdicts.flags & UNJUDGED).tolist()
    if left:
        emulator.restore(state)
        emulator.filter([candidates[i] for i in left])
    return len(left)


def measure(story: Story, count: int) -> Result:
    emulator = Emulator(story)
    rules = Rules.of(emulator)
    engines = [Engine(emulator.story.content, rules, threads) for threads in (1, 2)]
    recorder = Recorder(emulator.story.content, rules)
    search = Search(emulator, engine=recorder)
    emulator.reset(emulator.bindings.walkthrough_seed)
    states = []
    for command in emulator.bindings.walkthrough:
        states.append(emulator.save())
        emulator.step(command)
    states = [s for s in states if s.wants_line]
    result = Result()
    work = []
    for state in states[len(states) // (2 * count) :: max(1, len(states) // count)][:count]:
        recorder.asked = []
        search.findings(state)
        candidates = max(recorder.asked, key=len)
        work.append((state, candidates))
        result.states += 1
        result.candidates += len(candidates)
        result.left += judge(engines[0], emulator, state, candidates)
        result.ours += best_of(partial(judge, engines[0], emulator, state, candidates))
        emulator.restore(state)
        result.door += seconds(partial(emulator.filter, candidates))
        emulator.restore(state)
        jericho = emulator._env._filter_candidate_actions
        result.jericho += seconds(partial(jericho, candidates, use_ctypes=True, use_parallel=False))

    def all_work(engine: Engine) -> None:
        for state, candidates in work:
            engine.filter(state, candidates)

    other = Engine(emulator.story.content, rules)
    all_work(other)
    with ThreadPoolExecutor(2) as threads:

        def both() -> None:
            list(threads.map(all_work, (engines[0], other)))

        # In turns, for the machine may be slower at one time than at another.
        runs = (*(partial(all_work, engine) for engine in engines), both)
        rounds = [[seconds(run, time.perf_counter) for run in runs] for _ in range(ROUNDS)]
        one, two, twice = map(min, zip(*rounds, strict=True))
    result.shared, result.side_by_side = one / two, 2 * one / twice
    for engine in (*engines, other, recorder):
        engine.close()
    emulator.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("games", nargs="*", help="names of games, or paths of story files")
    parser.add_argument("--states", type=int, default=5, help="of each game's walkthrough")
    options = parser.parse_args()
    table = Table(
        "game", "states", "candidates", "left to Frotz", "Jericho ms", "door ms", "ours ms", "ratio",
        "2 threads, one state", "2 states at once",
    )  # fmt: skip
    for name in options.games or [find_default_game(), *GAMES]:
        try:
            result = measure(find_story(name), options.states)
        except UserError as error:
            if options.games:
                raise SystemExit(str(error)) from None
            continue
        each = 1000 / result.states
        table.add_row(
            Path(name).stem, str(result.states), str(result.candidates // result.states),
            str(result.left // result.states), f"{result.jericho * each:.0f}", f"{result.door * each:.0f}",
            f"{result.ours * each:.1f}", f"{result.jericho / result.ours:.1f}",
            f"{result.shared:.2f}", f"{result.side_by_side:.2f}",
        )  # fmt: skip
        Console().print(f"{name}: {result.jericho / result.ours:.1f} times as fast as Jericho's filter")
    Console().print(table)


if __name__ == "__main__":
    main()
