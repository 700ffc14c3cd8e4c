"""The whole state of an emulator as plain data."""

from __future__ import annotations

import msgspec

from xtx.core import UserError

STACK_WORDS = 1024
"""Words of Frotz's stack; it grows downwards."""


class SnapshotError(UserError):
    """A saved state that cannot be one of the story's: it was damaged, or made by hand."""


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The whole state of an emulator, random numbers included; plain data, so it can be stored anywhere."""

    ram: bytes
    """Dynamic memory."""
    stack: bytes
    """The part of the stack that is in use, from `sp` on."""
    pc: int
    sp: int
    fp: int
    """Program counter, stack pointer and frame pointer."""
    frames: int
    """Routines that have not returned."""
    opcode: int
    """The instruction at which the story waits: 228 for a line, 246 for a key."""
    rng: tuple[int, int, int]
    """State of the random generator: its number, and the interval and counter of the predictable mode."""
    narration: bytes
    """The text that the last command printed."""
    printed_score: int = 0
    """In stories that only print their score: what they printed last. It stands where they cannot be asked."""

    @property
    def wants_line(self) -> bool:
        """Whether the story waits for a line, and not for a single key."""
        return self.opcode == 228

    @property
    def wants_input(self) -> bool:
        """Whether the story waits for a line or a key; it does not where it has ended."""
        return self.opcode in (228, 246)
