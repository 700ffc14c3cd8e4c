"""How much faster one search is with several threads, as ratios in one run on a quiet machine.

    python benchmarks/threads.py [GAME ...] [--states N] [--threads 1 2 4 8]

At states of the second half of the walkthrough, where there are most candidates. By the clock, for the whole search and
for the trials of its candidates; beside it the processor time of all threads together, which says what is done twice.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from xtx.games.actions.search import Search
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.emulator.frotz import Emulator, Snapshot, Verdicts
from xtx.games.zset.engine import Engine, Random
from xtx.games.zset.game_rules import Rules

ROUNDS = 5


class Clocked(Engine):
    """An engine that notes how long it tries commands, and how many."""

    at_work = 0.0
    judged = 0

    def filter_each(
        self, state: Snapshot, randoms: Sequence[Random], commands: Sequence[str], *more: object, **named: object
    ) -> list[Verdicts]:
        start = time.perf_counter()
        try:
            return super().filter_each(state, randoms, commands, *more, **named)  # type: ignore[arg-type]
        finally:
            self.at_work += time.perf_counter() - start
            self.judged += len(commands)


def late_states(emulator: Emulator, count: int) -> list[Snapshot]:
    """Some states of the second half of the walkthrough."""
    emulator.reset(emulator.bindings.walkthrough_seed)
    states = []
    for command in emulator.bindings.walkthrough:
        states.append(emulator.save())
        emulator.step(command)
    states = [s for s in states[len(states) // 2 :] if s.wants_line]
    return states[:: max(1, len(states) // count)][:count]


def measure(name: str, count: int, threads: Sequence[int]) -> Table:
    emulator = Emulator(find_story(name))
    rules = Rules.of(emulator)
    states = late_states(emulator, count)
    engines = [Clocked(emulator.story.content, rules, number) for number in threads]
    searches = [Search(emulator, engine=engine) for engine in engines]
    best = [(float("inf"), 0.0, 0.0)] * len(threads)
    for turn in range(ROUNDS + 2):  # the first two show what commands cost
        for i, (engine, search) in enumerate(zip(engines, searches, strict=True)):
            engine.at_work, engine.judged = 0.0, 0
            wall, processors = time.perf_counter(), time.process_time()
            for state in states:
                search.findings(state)
            wall, processors = time.perf_counter() - wall, time.process_time() - processors
            if turn > 1:
                best[i] = min(best[i], (wall, engine.at_work, processors))
    table = Table(
        "threads", "ms a search", "trials", "ratio", "ratio of trials", "processor ms",
        title=f"{name}, {len(states)} states, {engines[0].judged // len(states)} candidates in each",
    )  # fmt: skip
    for number, (wall, at_work, processors) in zip(threads, best, strict=True):
        table.add_row(
            str(number), *(f"{1000 * seconds / len(states):.2f}" for seconds in (wall, at_work)),
            f"{best[0][0] / wall:.2f}", f"{best[0][1] / at_work:.2f}", f"{1000 * processors / len(states):.2f}",
        )  # fmt: skip
    for engine in engines:
        engine.close()
    emulator.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("games", nargs="*", help="names of games, or paths of story files")
    parser.add_argument("--states", type=int, default=8, help="of each game's walkthrough")
    parser.add_argument("--threads", type=int, nargs="+", help="1, 2, 4 and so on up to all processors if not given")
    options = parser.parse_args()
    processors = len(os.sched_getaffinity(0))
    threads = options.threads or [2**i for i in range(processors.bit_length()) if 2**i <= processors]
    for name in options.games or [find_default_game()]:
        Console().print(measure(name, options.states, threads))


if __name__ == "__main__":
    main()
