"""Bytes in which every command leaves a trace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from xtx.games.actions.noisy_bytes import find_noise

TOUCHED, CHANNEL, LAST_VERB = 3, 5, 7
"""Addresses of bytes: that a thing was touched, what a television shows, which verb was typed."""
VERBS = ("push", "use", "bite", "touch", "examine")
SWITCHING = ("push button", "use button", "bite button")


class Story:
    """An engine that leaves traces."""

    def finals(self, state: Any, commands: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        memory = np.zeros((len(commands), len(state.ram)), dtype=np.uint8)
        for row, command in zip(memory, commands, strict=True):
            verb = command.split()[0]
            row[TOUCHED] = verb == "touch"
            row[CHANNEL] = command in SWITCHING
            row[LAST_VERB] = VERBS.index(verb) + 1 if verb in VERBS else 0
        return np.zeros(len(commands), dtype=np.uint8), memory


def _noise(commands: Sequence[str]) -> list[int]:
    story: Any = Story()
    emulator: Any = SimpleNamespace(note=lambda command: None)
    state: Any = SimpleNamespace(ram=bytes(16))
    memory = story.finals(state, commands)[1]
    watches = np.array([hash(row.tobytes()) & 0xFFFFFFFF for row in memory], dtype=np.uint64)
    return np.flatnonzero(find_noise(emulator, story, state, commands, watches, "look")).tolist()


def test_what_several_verbs_do_with_one_thing_is_meant() -> None:
    commands = [f"{verb} {thing}" for verb in VERBS for thing in ("button", "lamp", "rug")]
    assert _noise(commands) == [TOUCHED, LAST_VERB]


def test_what_very_many_commands_do_is_no_commands_own() -> None:
    global SWITCHING
    before, commands = SWITCHING, [f"{verb} {i}" for verb in VERBS for i in range(5)]
    SWITCHING = tuple(commands)
    try:
        assert CHANNEL in _noise(commands)
    finally:
        SWITCHING = before
