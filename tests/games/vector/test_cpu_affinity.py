"""CPU affinity of workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from vectors import LOW_WATER, TOY, random_walk, vector

from xtx.games.story_game import GameSpec
from xtx.games.vector import cpu_affinity
from xtx.games.vector.cpu_affinity import Placement
from xtx.games.vector.requests import Task


@pytest.fixture
def processors() -> Iterator[list[int]]:
    """Two processors, or the only one, and no more for as long as the test takes."""
    before = os.sched_getaffinity(0)
    few = sorted(before)[:2]
    os.sched_setaffinity(0, few)
    yield few
    os.sched_setaffinity(0, before)


def bound(pids: list[int]) -> list[list[int]]:
    return [sorted(os.sched_getaffinity(pid)) for pid in pids]


def test_workers_that_need_all_processors_have_one_each(processors: list[int]) -> None:
    each = [[processor] for processor in processors]
    with vector(TOY, 4, None) as games:
        assert bound(games.pids) == each
        os.kill(games.pids[0], signal.SIGKILL)
        games.reset()
        assert bound(games.pids) == each  # and so has the one that replaced it


def test_no_worker_is_bound_where_there_are_more_or_fewer_workers_or_others_need_the_processors(
    processors: list[int],
) -> None:
    free = processors
    for workers, more in ((len(free) + 1, {}), (len(free), {"tie": False}), (1, {})):
        with vector(TOY, 4, workers, **more) as games:
            assert bound(games.pids) == [free] * workers or len(free) == workers == 1


def test_threads_that_search_may_run_anywhere(processors: list[int]) -> None:
    with vector(GameSpec(LOW_WATER, threads=3), 2, len(processors)) as games:
        games.reset()
        for pid, processor in zip(games.pids, processors, strict=True):
            threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
            assert bound([pid]) == [[processor]]
            assert len(threads) == 3 and bound([t for t in threads if t != pid]) == [processors] * 2


def test_the_worker_on_the_parents_processor_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 5, 7})
    tasks = {number: Task(number, [number], []) for number in (0, 1, 2)}
    places = Placement(None, 8, tie=True)
    assert places.workers == 3 and not places.has_spare_processors
    for here, order in ((2, [0, 1, 2]), (5, [1, 0, 2]), (7, [2, 0, 1]), (3, [0, 1, 2]), (-1, [0, 1, 2])):
        monkeypatch.setattr(cpu_affinity, "find_current_processor", lambda here=here: here)
        found = places.order_by_processor(tasks)
        assert list(found) == order and all(found[number] is task for number, task in tasks.items())
        assert list(Placement(3, 8, tie=False).order_by_processor(tasks)) == [0, 1, 2]
        assert list(places.order_by_processor({1: tasks[1]})) == [1]
    monkeypatch.setattr(cpu_affinity, "find_current_processor", lambda: 5)
    assert list(places.order_by_processor({0: tasks[0], 2: tasks[2]})) == [0, 2]  # that one has nothing to do
    assert Placement(None, 1, tie=True).workers == 1 and Placement(1, 8, tie=True).has_spare_processors


def test_the_parents_processor_is_one_of_its_own(processors: list[int]) -> None:
    assert cpu_affinity.find_current_processor() in processors


def test_nothing_depends_on_where_workers_run(processors: list[int]) -> None:
    walks = []
    for tie in (True, False):
        with vector(TOY, 5, len(processors), tie=tie) as games:
            walks.append(random_walk(games, 30))
    assert walks[0] == walks[1]
