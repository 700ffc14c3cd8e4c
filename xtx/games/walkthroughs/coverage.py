"""How good the valid actions are: the share of a walkthrough's world-changing steps that one of them reproduces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xtx.games.emulator.frotz import Emulator, Verdict, WorldStruct
from xtx.games.story_game import StoryGame


@dataclass(frozen=True)
class Checked:
    """One step of the walkthrough that changes the world, by our measure or by Jericho's."""

    step: int
    """Its number, from 1."""
    command: str
    room: str
    changes: bool
    """Whether anything is different after it."""
    found: bool
    """Whether some valid action changes the world in the same way, from the same state."""
    action: str
    """The valid action that does, if there is one."""
    actions: int
    """Number of valid actions."""
    loosely: bool | None
    """Whether some valid action moves the same objects and writes the same attributes, as Jericho counts: whether or
    not anything is different afterwards, and without what lies outside the object tree. None if the step does not."""


def check_walkthrough(game: StoryGame) -> Iterator[Checked | None]:
    """Every step of the walkthrough in turn; None for those that do not change the world.

    The valid actions come from the search (or the atlas) as an agent would get them; then each is tried from the
    walkthrough's real state, with the random numbers that it really meets.
    """
    emulator = game.emulator
    observation = game.reset(emulator.bindings.walkthrough_seed)
    for number, command in enumerate(emulator.bindings.walkthrough, 1):
        before = emulator.save()
        watched = game.world.select_watched_bits(emulator.ram)
        truth = emulator.filter([command, "look", "inventory"], watched=watched)
        same = None
        if truth.flags[0] & Verdict.CHANGED:
            verdicts = emulator.filter(observation.actions)
            same = (verdicts.diffs == truth.diffs[0]) & ((verdicts.flags & Verdict.CHANGED) > 0)
        elif truth.flags[0] & Verdict.EVENT and truth.watches[0] not in (0, *truth.watches[1:]):
            # The object tree was touched but is as before: what changed shows in the rest of the world only.
            same = emulator.filter(observation.actions, watched=watched).watches == truth.watches[0]
        event, *events = find_events(emulator, [command, *observation.actions]).tolist()
        emulator.restore(before)
        if same is None and not event:
            yield None
        else:
            action = observation.actions[int(np.argmax(same))] if same is not None and same.any() else ""
            room = emulator.tree.names[emulator.tree.find_room(emulator.ram, emulator.player)]
            loosely = event in events if event else None
            yield Checked(
                number, command, room, same is not None, bool(action), action, len(observation.actions), loosely
            )
        step = game.step(command)
        observation = step.observation
        if step.terminated:
            return


def find_events(emulator: Emulator, commands: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return a hash of what Jericho calls each command's world difference, which is every object moved and attribute
    written, or of the end of the game; 0 for none."""
    nothing = np.zeros(emulator.header.dynamic_size, dtype=np.uint8)
    world = WorldStruct.from_buffer_copy(emulator.world_memory.change_struct)
    world.set_mask = world.clear_mask = nothing.ctypes.data
    world.score_size = 0
    return emulator.filter(commands, world=world).diffs
