from __future__ import annotations

from collections import deque

import pytest

from xtx.core import Game, Observation, UserError
from xtx.games.toy_game import MAX_SCORE, ToyGame


@pytest.mark.parametrize("size", [5, 6, 9])
def test_the_walkthrough_wins(size: int) -> None:
    game = ToyGame(f"toy:corridor-{size}")
    seen = game.reset()
    rewards = []
    for action in game.walkthrough:
        assert action in seen.actions
        step = game.step(action)
        seen = step.observation
        rewards.append(step.reward)
    assert step.terminated and step.won and not step.truncated
    assert seen.score == sum(rewards) == MAX_SCORE
    assert seen.actions == () and seen.look == seen.inventory == ""
    assert seen.step == len(game.walkthrough)


def reached(size: int) -> dict[bytes, Observation]:
    """Every state of a corridor, by trying every action everywhere; checks on the way what must hold everywhere."""
    game: ToyGame = ToyGame(f"toy:corridor-{size}")
    found = {game.here: game.reset()}
    waiting = deque([game.save()])
    shortest = None
    while waiting:
        state = waiting.popleft()
        here, seen = game.here, game.restore(state)
        here = game.here
        for action in seen.actions:
            assert game.restore(state) == seen
            step = game.step(action)
            assert step.reward == step.observation.score - seen.score
            assert step.terminated or game.here != here, f"{action} is no valid action"
            if step.won:
                shortest = shortest or step.observation.step
            if not step.terminated and game.here not in found:
                found[game.here] = step.observation
                waiting.append(game.save())
    assert shortest == len(game.walkthrough)
    return found


def test_every_action_changes_the_world_and_the_walkthrough_is_the_shortest_way() -> None:
    found = reached(6)
    assert 20 <= len(found) <= 60
    assert all(seen.actions for seen in found.values())


def test_the_dark_kills_those_without_the_lamp() -> None:
    game = ToyGame("toy:corridor-5")
    game.reset()
    for action in ("east", "east", "take key", "east"):
        seen = game.step(action).observation
    assert "dark" in seen.look and seen.score == 2
    step = game.step("east")
    assert step.terminated and not step.won and step.reward == 0


def test_a_step_limit_truncates_and_other_words_do_nothing() -> None:
    game: Game = ToyGame("toy:corridor-5")
    before = game.reset(seed=3)
    step = game.step("sing", last=True)
    assert step.truncated and not step.terminated
    assert (step.observation.look, step.observation.actions) == (before.look, before.actions)
    assert step.observation.step == 1


def test_it_can_be_brought_where_another_is() -> None:
    one, two = ToyGame("toy:corridor-5"), ToyGame("toy:corridor-5")
    one.reset()
    state = one.save()
    for action in ("take lamp", "east", "sing"):
        one.step(action)
    two.rebuild(0, ["take lamp", "east", "sing"])
    assert one.save() == two.save() and one.here == two.here
    two.rebuild(state, ["take lamp", "east", "sing"])
    assert one.save() == two.save()


def test_what_is_forbidden_is_neither_offered_nor_done() -> None:
    game = ToyGame("toy:corridor-5")
    game.reset()
    game.states.forbid(game.here, "east")
    step = game.step("east")
    assert step.observation.actions == ("take lamp",) and "Room 1" in step.observation.look
    assert step.reward == 0 and not step.terminated and step.observation.step == 1


@pytest.mark.parametrize("name", ["toy:corridor", "toy:corridor-4", "toy:cave-5", "toy:corridor-1001"])
def test_other_names_get_one_line(name: str) -> None:
    with pytest.raises(UserError, match="toy:corridor-5"):
        ToyGame(name)


@pytest.mark.parametrize("state", [b"", b"{}x", b'{"nonsense": 1}', b"[1]"])
def test_a_bad_state_gets_one_line(state: bytes) -> None:
    with pytest.raises(UserError, match="not a saved toy world"):
        ToyGame("toy:corridor-5").restore(state)
