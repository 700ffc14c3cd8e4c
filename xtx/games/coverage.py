"""How good the valid actions are: the share of a walkthrough's world-changing steps that one of them reproduces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xtx.games.game import StoryGame
from xtx.games.jericho import Verdict


@dataclass(frozen=True)
class Checked:
    """One world-changing step of the walkthrough."""

    step: int
    """Its number, from 1."""
    command: str
    room: str
    found: bool
    """Whether some valid action changes the world in the same way, from the same state."""
    action: str
    """The valid action that does, if there is one."""
    actions: int
    """Number of valid actions."""


def check_walkthrough(game: StoryGame) -> Iterator[Checked | None]:
    """Every step of the walkthrough in turn; None for those that do not change the world.

    The valid actions come from the search (or the atlas) as an agent would get them; then each is tried from the
    walkthrough's real state, with the random numbers that it really meets.
    """
    emulator = game.emulator
    observation = game.reset(emulator.walkthrough_seed)
    for number, command in enumerate(emulator.walkthrough, 1):
        before = emulator.save()
        truth = emulator.filter([command])
        changed = bool(truth.flags[0] & Verdict.CHANGED)
        if changed:
            verdicts = emulator.filter(observation.actions)
            same = (verdicts.diffs == truth.diffs[0]) & ((verdicts.flags & Verdict.CHANGED) > 0)
            action = observation.actions[int(np.argmax(same))] if same.any() else ""
            room = emulator.tree.names[emulator.tree.room(emulator.ram, emulator.player)]
            emulator.restore(before)
            yield Checked(number, command, room, bool(action), action, len(observation.actions))
        else:
            emulator.restore(before)
            yield None
        step = game.step(command)
        observation = step.observation
        if step.terminated:
            return
