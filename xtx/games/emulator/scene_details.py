"""What people see of a game beside its observation: the room, the moves, the narration with its paragraphs.

Read inside the process that holds the emulator, and sent from there: nothing else has to run the story.
"""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np

from xtx.games.emulator.frotz import Emulator


class Details(msgspec.Struct, frozen=True, array_like=True):
    """How a game stands after a reset, a step or a restored state."""

    narration: str = ""
    """What was last printed, as it was printed."""
    room: str = ""
    """The name of the room that the player is in; empty where the game does not say."""
    moves: int = 0
    """Moves as the game counts them."""
    over: bool = False
    won: bool = False
    wants_key: bool = False
    """Whether the game waits for a single key and not for a command."""
    description: str = ""
    """What can be seen and what is carried, if the game says so without being asked; a story must be given `look`."""


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """What is true of a story in every state."""

    name: str = ""
    md5: str = ""
    walkthrough: tuple[str, ...] = ()
    walkthrough_seed: int = 0
    """The emulator seed under which the walkthrough works."""
    max_score: int = 0
    """The points that the game has to give; 0 where that is not known."""


def read_details(emulator: Emulator) -> Details:
    """The details of the emulator's present state; it is left as it is."""
    wants_key = not emulator.over and not emulator.save(with_ram=False).wants_line
    return Details(
        emulator.narration, _find_room(emulator), emulator.moves, emulator.over, emulator.won, wants_key
    )  # fmt: skip


def read_facts(emulator: Emulator) -> Facts:
    """The facts of the emulator's story."""
    known = emulator.bindings
    return Facts(known.name, emulator.story.md5, known.walkthrough, known.walkthrough_seed, known.max_score)


def _find_room(emulator: Emulator) -> str:
    """From the profile's location, else from where the player is in the object tree."""
    names, ram = emulator.tree.names, emulator.ram
    profile = emulator.story.profile
    if profile is not None and profile.location is not None:
        with contextlib.suppress(ValueError, IndexError):
            name = names[profile.location.read(ram)]
            # Inform's names for things that are never shown are in brackets: here, the dark.
            return "Darkness" if name.startswith("(") else name
    links = emulator.tree.read_links(np.asarray(ram))
    number, seen, room = emulator.player, {0}, ""
    while 0 < number < len(names) and number not in seen:
        seen.add(number)
        number = int(links[number, 0])
        if 0 < number < len(names) and names[number]:
            room = names[number]  # the outermost that has a name: on a bed in a bedroom is in the bedroom
    return room
