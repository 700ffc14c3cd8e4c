"""Looking ahead of idle workers: it changes the time of searches, and no result."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from vectors import HANG, LOW_WATER, TOY, TRAP, random_walk, vector

from xtx.core import Step
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.vector.game_vector import GameVector
from xtx.games.vector.messages import LookAhead


def test_what_was_seen_ahead_need_not_be_searched() -> None:
    """The first game reaches a new state; the second is idle and looks ahead: at its next action, at another one, or at
    none."""
    found = []
    for guess, known in (("north", True), ("west", False), (None, False)):
        with vector(GameSpec(LOW_WATER), 2, 2, ahead=True) as games:
            first = games.reset()
            assert {"north", "west"} <= set(first[0].actions)
            games.move(["north", "look"])
            assert games.waiting == {1: first[1].actions}
            games.look_ahead({} if guess is None else {0: "west", 1: guess})  # the first has no time for it
            walk = games.arrive()
            assert games.waiting == {}
            games.move(["look", "north"])
            assert games._split is not None and (games._split.actions[1] is not None) == known
            assert games.waiting.keys() == (set() if known else {0})  # if all states are known no worker is idle
            found.append((walk, games.arrive(), games.save()))
            assert games.totals.searches == 4 + (guess == "west")
    assert found[0] == found[1] == found[2]


def ahead_of_all(games: GameVector, actions: list[str]) -> list[Step]:
    """Make a step in two parts; all idle games look ahead at their last valid action."""
    games.move(actions)
    games.look_ahead({game: valid[-1] for game, valid in games.waiting.items()})
    return games.arrive()


@pytest.mark.parametrize("spec", [GameSpec(LOW_WATER), TOY], ids=["story", "toy"])
def test_a_walk_is_the_same_with_and_without_looking_ahead(spec: GameSpec) -> None:
    walks = []
    for ahead in (False, True):
        with vector(spec, 4, 3, ahead=ahead) as games:
            walks.append((random_walk(games, 25, step=ahead_of_all), games.forbidden, games.save()))
            assert games._pool.may_look_ahead == ahead
    assert walks[0] == walks[1]


def test_looking_ahead_leaves_no_trace_in_a_game() -> None:
    game = StoryGame(GameSpec(LOW_WATER))
    seen = game.reset()
    for action in (*seen.actions, "no such thing"):
        before = game.save(), game.here, game.find_valid_actions(), dict(game.states.forbidden)
        game.look_ahead(action)
        assert (game.save(), game.here, game.find_valid_actions(), dict(game.states.forbidden)) == before
    other = StoryGame(GameSpec(LOW_WATER))
    other.reset()
    assert game.step("north") == other.step("north")
    game.close()
    other.close()


def waits_with_a_lever(games: GameVector) -> None:
    """Bring two toy games to the room with the lever, where the first waits for the second."""
    games.reset()
    games.step(["take lamp", "take lamp"])
    games.reset([1])
    games.move(["drop lamp", "take lamp"])
    assert set(games.waiting) <= {0}


@pytest.mark.parametrize("what", ["lever", "mistake"])
def test_a_worker_that_is_lost_over_it_is_replaced_and_no_command_is_blamed(what: str) -> None:
    found = []
    for ahead in (False, True):
        num_sent: list[str] = []
        with vector(TRAP, 2, 2, patience=1.5, ahead=ahead, on_report=num_sent.append) as games:
            waits_with_a_lever(games)
            if ahead:
                assert "pull lever" in games.waiting[0]
                if what == "lever":
                    games.look_ahead({0: "pull lever"})  # which never comes back
                else:
                    games._pool.remotes[0].post(LookAhead([(99, "east")]))
            walk = [games.arrive(), games.step(["east", "east"])]
            games.move(["west", "west"])
            assert games.waiting == {} and not games._pool.may_look_ahead and not games.forbidden
            walk.append(games.arrive())
            assert len(num_sent) == ahead and all("nothing is lost" in line for line in num_sent)
            walk.append(games.step(["pull lever", "look"]))  # a worker that dies in a real step is deadly as always
            found.append((walk, games.forbidden))
    assert found[0] == found[1] and [action for _, action, _ in found[0][1]] == ["pull lever"]


@pytest.mark.parametrize("how", ["well", "interrupted"])
def test_looking_ahead_excuses_no_later_crash(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither after it went well, nor where a worker was ended in the middle of it."""
    lost: list[str] = []
    with vector(TRAP, 2, 2, patience=1.0, ahead=True, on_report=lost.append) as games:
        waits_with_a_lever(games)
        games.look_ahead({0: "east" if how == "well" else "pull lever"})
        games.arrive()
        if how == "interrupted":
            end = time.monotonic() + 10
            while not games._pool.remotes[0].page.ahead and time.monotonic() < end:
                time.sleep(0.01)
            assert games._pool.remotes[0].page.ahead
            with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
                broken.setattr(games._pool, "_wait", interrupt)
                games.step(["sing", "sing"])
        games.step(["sing", "sing"])
        assert (
            [remote.page.ahead for remote in games._pool.remotes] == [0, 0] and games._pool.may_look_ahead and not lost
        )
        games.step(["pull lever", "sing"])
        assert [action for _, action, _ in games.forbidden] == ["pull lever"] and games._pool.may_look_ahead


def interrupt(*given: Any) -> None:
    raise KeyboardInterrupt


def test_what_does_not_go_out_at_once_is_sent_before_the_next_request() -> None:
    found = []
    for ahead in (False, True):
        with vector(TOY, 2, 2, ahead=ahead) as games:
            waits_with_a_lever(games)
            if ahead:
                remote = games._pool.remotes[0]
                assert remote.process is not None
                pid = remote.process.pid
                os.kill(pid, signal.SIGSTOP)
                for _ in range(3):
                    remote.post(LookAhead([(0, "x" * 1000)] * 500))
                assert remote.unsent
                threading.Timer(0.5, os.kill, (pid, signal.SIGCONT)).start()
            found.append((games.arrive(), games.step(["east", "east"]), games.save()))
            assert games.pids[0] == pid if ahead else True
    assert found[0] == found[1]


def test_a_deadly_candidate_is_blamed_when_its_state_is_really_met(tmp_path: Path) -> None:
    """And not when it is looked at from afar, though the worker is lost over that as well."""
    found: list[Any] = []
    for ahead in (False, True):
        spec = GameSpec(HANG, atlas=str(tmp_path / str(ahead)), engine="jericho")  # which runs what kills
        with vector(spec, 2, 2, patience=1.0, ahead=ahead) as games:
            games.reset()
            games.move(["down", "wait"])
            games.look_ahead(dict.fromkeys(games.waiting, "down"))
            walk = [games.arrive(), games.step(["wait", "down"]), games.step(["up", "up"])]
            found.append((walk, games.forbidden))
    assert found[0] == found[1] and len(found[0][1]) == 2
