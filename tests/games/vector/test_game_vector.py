"""The guarantees of the game vector: results do not depend on the workers, and survive the loss of one."""

from __future__ import annotations

import os
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from vectors import HANG, LOW_WATER, TOY, TRAP, low_water_way, random_walk, vector

from xtx.core import Observation, Step, UserError
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.emulator.emulator_seeds import Seeds
from xtx.games.story_game import NO_ANSWER, GameSpec
from xtx.games.vector import worker_client as remote_module
from xtx.games.vector.game_vector import GameVector
from xtx.games.vector.messages import Results, encode

# --- the number of workers ------------------------------------------------------------------------------------------


def test_a_toy_walk_is_the_same_over_any_number_of_workers() -> None:
    walks = []
    for workers in (0, 1, 2, 3, 8):
        with vector(TOY, 8, workers) as games:
            assert len(games.pids) == workers
            walks.append(random_walk(games, 60))
    assert any(step.won or step.terminated for row in walks[0] for step in row)
    assert all(walk == walks[0] for walk in walks)


@pytest.mark.parametrize("workers", [0, 1])
def test_searches_are_counted(workers: int) -> None:
    with vector(GameSpec(LOW_WATER), 2, workers) as games:
        games.reset()
        assert (
            games.totals.searches == 2 and games.totals.worked > games.totals.searched > 0
        )  # without an atlas each for itself
        games.step(["look", "look"])
        assert games.totals.searches == 2


@pytest.mark.parametrize("killing", [False, True], ids=["quiet", "killing"])
def test_a_step_in_two_parts_is_the_same(killing: bool) -> None:
    def step(games: GameVector, actions: list[str]) -> list[Step]:
        early = games.move(actions)
        assert not any(one.observation.actions for one in early)
        for other in (lambda: games.step(actions), games.save, games.reset, lambda: games.move(actions)):
            with pytest.raises((ValueError, UserError), match=r"call arrive\(\) first|has ended"):
                other()
        if killing and games.pids:  # its game is brought to where it was, with the step that was already made
            os.kill(games.pids[-1], signal.SIGKILL)
        whole = games.arrive()
        assert [replace(w, observation=replace(w.observation, actions=())) for w in whole] == early
        with pytest.raises(ValueError, match="must follow move"):
            games.arrive()
        return whole

    with vector(TOY, 5, 0) as games:
        plain = random_walk(games, 20)
    for workers in (0, 1, 3):
        with vector(TOY, 5, workers) as games:
            assert random_walk(games, 20, step=step) == plain


def test_answers_that_come_together_are_taken_one_by_one() -> None:
    remote, first, second = remote_module.WorkerClient(0), Results([], searches=1), Results([], searches=2)
    here, there = socket.socketpair()
    with here, there:
        remote._channel, remote.process = here, None
        both = encode(first) + encode(second)
        for part in (both[:3], both[3:-2], both[-2:]):
            there.sendall(part)
            assert remote.read()
        assert remote.take() == first and remote.take() is None
        remote.await_more()
        assert remote.take() == second
        remote.await_more()
        assert remote.take() is None
    remote.free()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("late", [False, True])
def test_an_interrupted_move_did_not_happen(workers: int, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The games search already when it is interrupted; what they find must not be taken for a later answer."""
    with vector(TOY, 2, workers) as games:
        games.reset()
        games.step(["east", "sing"])
        merge = games._merge

        def interrupt(*given: Any) -> None:
            if late:
                merge(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
            broken.setattr(games, "_merge", interrupt)
            games.move(["west", "sing"])
        games.move(["west", "take lamp"])
        seen = games.arrive()
        assert [step.observation.step for step in seen] == [2, 2] and seen[1].observation.text == "Done."
        assert [step.observation.text for step in games.step(["take lamp", "drop lamp"])] == ["Done.", "Done."]


def test_without_workers_verdicts_count_from_the_same_moment_too() -> None:
    with vector(TOY, 2, 0) as games:
        games.reset()
        assert games._host is not None
        one = games._host._games[0]
        one.states.forbid(one.here, "east")  # as if the first game had found that out in its first step
        one.states.newly_forbidden.append((one.here, "east"))
        offered = []
        for _ in range(2):  # the toy's first step leads as it were to a new state, the second does not
            games.move(["sing", "sing"])
            offered.append([("east" in step.observation.actions) for step in games.arrive()])
        assert offered == [[False, True], [False, False]]


def test_a_vector_can_be_closed_while_its_games_are_on_their_way() -> None:
    for workers in (0, 2):
        with vector(TOY, 3, workers) as games:
            games.reset()
            games.move(["take lamp"] * 3)


def test_a_candidate_that_kills_the_search_is_forbidden_when_it_comes_second(tmp_path: Path) -> None:
    """The same verdicts whether the search comes with the step or after it."""
    found = []
    for in_two in (False, True):
        spec = GameSpec(HANG, atlas=str(tmp_path / str(in_two)), engine="jericho")  # which runs what kills
        with vector(spec, 2, 2, patience=1.0) as games:
            games.reset()
            walk = []
            for way in ("down", "wait", "up"):
                if in_two:
                    games.move([way, way])
                    assert games._split is not None and bool(games._split.searches.calls) == (way == "down")
                walk.append(games.arrive() if in_two else games.step([way, way]))
            found.append((walk, games.forbidden))
    assert found[0] == found[1] and len(found[0][1]) == 2


def test_a_candidate_that_kills_several_workers_at_once_is_blamed_by_each() -> None:
    """Without an atlas no worker hears from the others that it was to blame."""
    with vector(GameSpec(HANG, engine="jericho"), 4, 3, patience=5.0) as games:
        seen = games.reset()
        assert len({o.actions for o in seen}) == 1 and [action for _, action, _ in games.forbidden] == ["burst"]


def test_a_verdict_counts_from_the_same_moment_over_any_number_of_workers() -> None:
    # The lever holds the process for ever. Game 2 pulls it; until then it is offered to all, afterwards to none.
    seen = []
    ways: list[tuple[int, bool, int | None]] = [(1, False, None), (2, False, None), (3, False, None)]
    ways += [(1, True, None), (3, True, None), (1, True, 0), (3, True, 0), (3, True, 2)]
    for workers, in_two, killed in ways:
        lines: list[str] = []
        with vector(TRAP, 4, workers, patience=0.4, on_report=lines.append) as games:

            def step(*actions: str, games: GameVector = games, in_two: bool = in_two) -> list[Step]:
                if not in_two:
                    return games.step(actions)
                games.move(actions)
                if killed is not None:  # noqa: B023
                    os.kill(games.pids[killed], signal.SIGKILL)  # noqa: B023
                return games.arrive()

            walk = [games.reset(), games.step({0: "take lamp", 1: "sing"})]
            walk.append(step("sing", "sing", "pull lever", "sing"))
            walk.append(step("drop lamp", "sing", "sing", "pull lever"))
            seen.append((walk, games.forbidden))
        lines = [line for line in lines if killed is None or "SIGKILL" not in line]
        assert len(lines) == 1 and "pull lever" in lines[0] and "no sign of life" in lines[0]
    assert all(one == seen[0] for one in seen)
    walk, forbidden = seen[0]
    during, after = walk[2], walk[3]
    assert during[2].observation.text == after[3].observation.text == NO_ANSWER
    assert [("pull lever" in s.observation.actions) for s in during] == [True, True, False, True]
    assert [("pull lever" in s.observation.actions) for s in after] == [False] * 4
    assert [action for _, action, _ in forbidden] == ["pull lever"]


def test_the_embedded_adventure_is_the_same_cold_and_warm_over_any_number_of_workers(tmp_path: Path) -> None:
    walks = []
    shared = str(tmp_path / "atlas")
    for workers, atlas in ((0, None), (2, shared), (3, shared), (1, shared)):
        with vector(GameSpec(LOW_WATER, atlas=atlas), 3, workers) as games:
            walks.append(random_walk(games, 3, breadth=2))
    assert len({step.observation.look for row in walks[0] for step in row}) > 2
    assert all(walk == walks[0] for walk in walks)


def test_subsets_are_stepped_and_reset_by_index() -> None:
    with vector(TOY, 5, 2) as games:
        games.reset()
        steps = games.step({4: "take lamp", 1: "east"}, last=[1])
        assert [s.observation.inventory for s in steps] == ["You carry a lamp.", "You carry nothing."]
        assert [s.truncated for s in steps] == [False, True]
        assert games.reset([1], [5])[0].step == 0
        assert [s.observation.step for s in games.step(["sing"] * 5)] == [1, 1, 1, 1, 2]


# --- states ---------------------------------------------------------------------------------------------------------


def test_saved_states_go_on_in_another_vector() -> None:
    spec = GameSpec(LOW_WATER, search=False)
    with vector(spec, 3, 2) as games:
        whole = low_water_way(games, 20)
    with vector(spec, 3, 1) as games:
        low_water_way(games, 10)
        states = games.save()
    profile = find_story(find_default_game()).profile
    assert profile is not None
    with vector(spec, 3, 3) as games:
        restored = games.restore(states)
        assert restored == [step.observation for step in whole[9]]
        os.kill(games.pids[1], signal.SIGKILL)  # what was restored is brought back like what was reset
        for number in range(10, 20):
            assert games.step([profile.walkthrough[number - i] for i in range(3)]) == whole[number]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_mistakes_are_told_and_change_nothing(workers: int) -> None:
    with vector(TOY, 2, workers) as games:
        with pytest.raises(UserError, match="reset it first"):
            games.step(["east", "east"])
        games.reset()
        games.step(["take lamp", "sing"])
        with pytest.raises(UserError, match="not a saved toy world"):
            games.restore([b"{}", b"nonsense"])
        with pytest.raises(UserError, match="3 actions for 2 games"):
            games.step(["sing"] * 3)
        steps = games.step(["sing", "take lamp"])
        assert [s.observation.inventory for s in steps] == ["You carry a lamp."] * 2
        for action in ("drop lamp", "east", "east", "east", "east"):
            games.step({0: action})
        assert games.step({0: "east"})[0].terminated
        for late in (lambda: games.step({0: "west"}), games.save):
            with pytest.raises(UserError, match="game 0 has ended"):
                late()
    with pytest.raises(UserError, match="closed"):
        games.reset()


def test_a_missing_story_is_one_line(tmp_path: Path) -> None:
    for workers in (0, 2):
        with pytest.raises(UserError, match="does not exist"):
            GameVector(GameSpec(str(tmp_path / "none.z5")), 2, workers)


def test_stochastic_play_repeats_with_the_same_run_seed() -> None:
    def first_texts(run_seed: int) -> tuple[list[int], list[Observation]]:
        with vector(GameSpec(LOW_WATER, search=False), 2, 2) as games:
            seeds = Seeds(run_seed, games.walkthrough_seed, stochastic=True)
            drawn = [seeds.take_next() for _ in range(6)]
            shown = []
            for i in range(0, 6, 2):
                shown += games.reset(seeds=drawn[i : i + 2])
                shown += [s.observation for _ in range(12) for s in games.step(["wait", "listen"])]
            return drawn, shown

    assert first_texts(3) == first_texts(3)
    assert first_texts(3)[0] != first_texts(4)[0]


# --- lost workers ---------------------------------------------------------------------------------------------------


def test_killed_and_stopped_workers_change_nothing() -> None:
    spec, lines = GameSpec(LOW_WATER, search=False), []
    with vector(spec, 3, 2) as games:
        whole = low_water_way(games, 24)

    with vector(spec, 3, 2, patience=1.0, on_report=lines.append) as games:

        def disturb(number: int) -> None:
            if number in (3, 4, 15):
                os.kill(games.pids[number % 2], signal.SIGKILL)
            if number == 10:
                os.kill(games.pids[0], signal.SIGSTOP)
            if number == 20:
                for pid in games.pids:
                    os.kill(pid, signal.SIGSEGV)

        assert low_water_way(games, 24, disturb) == whole
        assert games.forbidden == []
    assert sum("died of SIGKILL" in line for line in lines) == 3
    assert sum("no sign of life" in line for line in lines) == 1
    assert sum("died of SIGSEGV" in line for line in lines) == 2


def test_workers_killed_in_the_middle_of_their_work_change_nothing() -> None:
    # One by one, so that a search takes half a second and more.
    spec = GameSpec(LOW_WATER, search=True, engine="jericho")
    with vector(spec, 2, 2) as games:
        whole = random_walk(games, 1, breadth=2)
    with vector(spec, 2, 2) as games:

        def disturb(number: int) -> None:
            # This is in the middle of it.
            for pid in games.pids:
                threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()

        before = games.pids
        assert random_walk(games, 1, breadth=2, before=disturb) == whole
        assert games.forbidden == [] and not set(games.pids) & set(before)


def test_a_vector_outlives_the_thread_that_made_it() -> None:
    # The kernel ends a worker when the thread that started it ends.
    made: list[GameVector] = []
    maker = threading.Thread(target=lambda: made.append(GameVector(TOY, 2, 2, on_report=lambda line: None)))
    maker.start()
    maker.join()
    with made[0] as games:
        assert len(random_walk(games, 5)) == 5


def test_an_interrupted_step_did_not_happen() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with vector(TRAP, 2, 2, patience=60) as games:
            games.reset()
            games.step(["take lamp", "sing"])
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(Interrupted):
                games.step(["drop lamp", "pull lever"])
            steps = games.step(["sing", "take lamp"])
            assert [s.observation.inventory for s in steps] == ["You carry a lamp."] * 2
            assert [s.observation.step for s in steps] == [2, 2]
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_it_gives_up_when_workers_keep_dying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "_PROGRAM", "raise SystemExit(3)")
    with pytest.raises(UserError, match=r"keep dying \(ended with status 3, before anything was tried\)"):
        GameVector(TOY, 2, 1)
