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
    stack: bytes
    pc: int
    sp: int
    fp: int
    frames: int
    opcode: int
    rng: tuple[int, int, int]
    narration: bytes
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
