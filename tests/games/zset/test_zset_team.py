"""Threads that share a search: they stay, they sleep, they survive a fork, and they end with their engine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import zset_verify as verify

from xtx.games.canonical.command_trials import Trials
from xtx.games.canonical.survey_budget import Budget
from xtx.games.emulator.frotz import Emulator, Snapshot, Verdicts
from xtx.games.zset.engine import ENGINE, Engine, library
from xtx.games.zset.game_rules import Rules

LOWWATER = Path(__file__).parents[3] / "xtx/games/catalog/data/lowwater.z5"


class Scene:
    """A state with candidates, and what they must give."""

    def __init__(self, emulator: Emulator, engine: Engine) -> None:
        emulator.reset(emulator.bindings.walkthrough_seed)
        self.state: Snapshot = emulator.save()
        self.story, self.rules = emulator.story.content, Rules.of(emulator)
        self.commands = verify.real_candidates(emulator, self.state, most=3)
        self.expected = engine.filter(self.state, self.commands)
        assert len(self.commands) > 300

    def team(self, threads: int) -> Engine:
        return Engine(self.story, self.rules, threads)

    def right(self, found: Verdicts) -> bool:
        return (found.flags == self.expected.flags).all() and (found.diffs == self.expected.diffs).all()

    def search(self, engine: Engine) -> bool:
        return self.right(engine.filter(self.state, self.commands))


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with verify.opened(LOWWATER) as (emulator, engine):
        yield Scene(emulator, engine)


def threads_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def come_to(threads: int) -> bool:
    """Whether this process comes to have so many threads: the system lists one for a moment after it has ended."""
    until = time.monotonic() + 10
    while threads_of_this_process() != threads and time.monotonic() < until:
        time.sleep(0.01)
    return threads_of_this_process() == threads


def test_threads_stay_from_one_search_to_the_next_and_end_with_the_engine(scene: Scene) -> None:
    before = threads_of_this_process()
    team = scene.team(3)
    assert team.helpers == 0 and threads_of_this_process() == before  # nobody is started for nothing
    for _ in range(8):
        assert scene.search(team)
        assert team.helpers == 2 and threads_of_this_process() == before + 2
    team.close()
    assert come_to(before)
    team.close()  # a second time does no harm


def test_threads_that_wait_use_no_processor(scene: Scene) -> None:
    team = scene.team(4)
    assert scene.search(team)
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.05
    team.close()


def in_child(scene: Scene, team: Engine) -> int:
    """What a forked process exits with that searches with its parent's engine: 0 if all is well."""
    child = os.fork()
    if not child:
        status = 1
        try:
            well = team.helpers == 0 and scene.search(team) and team.helpers == 2 and scene.search(team)
            team.close()
            status = 0 if well and come_to(1) else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(scene: Scene) -> None:
    team = scene.team(3)
    assert in_child(scene, team) == 0  # before any search
    assert scene.search(team)
    assert in_child(scene, team) == 0  # with threads that the child has not
    assert team.helpers == 2 and scene.search(team)
    team.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_may_close_what_it_never_used(scene: Scene) -> None:
    team = scene.team(3)
    assert scene.search(team)
    child = os.fork()
    if not child:
        team.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert scene.search(team)
    team.close()


def test_many_teams_at_once(scene: Scene) -> None:
    before = threads_of_this_process()
    results: list[bool] = []

    def work() -> None:
        for _ in range(2):
            team = scene.team(3)
            results.extend(scene.search(team) for _ in range(2))
            team.close()

    others = [threading.Thread(target=work) for _ in range(4)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert results == [True] * 16
    assert come_to(before)


def test_whatever_is_learned_of_costs_the_verdicts_are_the_same(scene: Scene) -> None:
    """Parts are cut elsewhere from one search to the next."""
    team = scene.team(2)
    for first in range(0, 60, 7):
        part = scene.commands[first:]
        found = team.filter(scene.state, part)
        assert (found.flags == scene.expected.flags[first:]).all()
        assert (found.diffs == scene.expected.diffs[first:]).all()
    team.close()


def test_where_not_all_engines_can_be_opened_none_stays_open(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    real = library()
    opened: list[int] = []

    def open_two(description: object) -> int | None:
        if len(opened) == 2:
            return None
        opened.append(real.zset_open(description))
        return opened[-1]

    def close(engine: int) -> None:
        opened.remove(engine)
        real.zset_close(engine)

    library_of_two = SimpleNamespace(zset_open=open_two, zset_close=close)
    monkeypatch.setattr("xtx.games.zset.engine.library", lambda: library_of_two)
    with pytest.raises(ValueError, match="cannot be run"):
        scene.team(3)
    assert not opened
    scene.team(1).close()
    assert not opened


def test_a_survey_makes_do_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Engine] = []
    make = Engine.of

    def of(emulator: Emulator, threads: int = 1) -> Engine:
        if made:
            raise MemoryError("no room for that")
        made.append(make(emulator, threads))
        return made[-1]

    with verify.opened(LOWWATER) as (emulator, _), monkeypatch.context() as crowded:
        crowded.setattr(Engine, "of", of)
        crowded.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
        assert Trials(emulator, (), Budget())._engines == made and len(made) == 1
        with pytest.raises(MemoryError):  # without any engine the layout would be another one
            Trials(emulator, (), Budget())
        made.clear()
        assert not Trials(emulator, [ENGINE], Budget()).can_try and not made
