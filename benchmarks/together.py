"""How long searches take that several games begin at the same moment: what a machine's processors can do together.

    python benchmarks/together.py [GAME] [--states N] [--searches 1 2 4] [--threads 2 8]

At states of the second half of the walkthrough, all processes at the same. Beside the mean time of a search, that of
the slowest of those that began together, for which all games of a vector wait; the ratio is how much more is done in a
second than by one search after the other, with as many threads as in the first line.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from rich.console import Console
from rich.table import Table
from threads import late_states

from xtx.games.actions.search import Search
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.emulator.frotz import Emulator
from xtx.games.zset.engine import Engine

ROUNDS = 4


def search(name: str, count: int, threads: int, together: Barrier, found: Queue[list[float]]) -> None:
    """Times one process's searches, each begun together with the others'."""
    emulator = Emulator(find_story(name))
    states = late_states(emulator, count)
    engine = Engine.of(emulator, threads)
    searching = Search(emulator, engine=engine)
    for state in states:  # which shows what commands cost
        searching.findings(state)
    seconds = []
    for _ in range(ROUNDS):
        for state in states:
            together.wait()
            start = time.perf_counter()
            searching.findings(state)
            seconds.append(time.perf_counter() - start)
    found.put(seconds)
    engine.close()
    emulator.close()


def measure(name: str, count: int, searches: int, threads: int) -> tuple[float, float]:
    """Mean time of a search, and of the slowest of those that began together."""
    spawn = multiprocessing.get_context("spawn")
    together, found = spawn.Barrier(searches), spawn.Queue()
    processes = [
        spawn.Process(target=search, args=(name, count, threads, together, found), daemon=True) for _ in range(searches)
    ]
    for process in processes:
        process.start()
    seconds = [found.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    slowest = [max(begun) for begun in zip(*seconds, strict=True)]
    return statistics.mean(statistics.mean(own) for own in seconds), statistics.mean(slowest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", nargs="?", default=find_default_game())
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--searches", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    table = Table("searches at once", "threads each", "ms a search", "the slowest", "ratio", title=options.game)
    alone = 0.0
    for searches in options.searches:
        for threads in options.threads:
            mean, slowest = measure(options.game, options.states, searches, threads)
            alone = alone or mean
            row = f"{1000 * mean:.2f}", f"{1000 * slowest:.2f}", f"{searches * alone / slowest:.2f}"
            table.add_row(str(searches), str(threads), *row)
    Console().print(table)


if __name__ == "__main__":
    main()
