"""A reference-counted table that stores each distinct prefix of episodes once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

COLUMNS = 4  # narration, look, inventory, action
_STEP_BYTES = COLUMNS * 4

Steps = NDArray[np.int32]
"""[length, 4]: text ids of narration, look, inventory and action of each step."""


class SharedPrefix:
    """A stored prefix and its number of references. The steps are bytes, which can be the key of a dictionary."""

    __slots__ = ("content", "uses")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.uses = 0

    def __len__(self) -> int:
        return len(self.content) // _STEP_BYTES

    def copy_steps(self) -> Steps:
        """Return the steps of the prefix, as a copy."""
        return np.frombuffer(self.content, np.int32).reshape(-1, COLUMNS).copy()


class PrefixTable:
    """All prefixes that are referenced, each stored once.

    An agent that returns to its best trajectories repeats the same steps in thousands of episodes, so most of what it
    would store is in the table already.
    """

    def __init__(self) -> None:
        self.steps = 0
        """Steps of all distinct prefixes together: the memory they take, at 16 bytes each."""
        self._by_content: dict[bytes, SharedPrefix] = {}

    def add_reference(self, steps: Steps) -> SharedPrefix:
        """Return the stored prefix that equals the given steps, with one more reference; store it if it is new."""
        content = steps.tobytes()
        shared = self._by_content.get(content)
        if shared is None:
            shared = self._by_content[content] = SharedPrefix(content)
            self.steps += len(shared)
        shared.uses += 1
        return shared

    def drop_reference(self, shared: SharedPrefix) -> None:
        """Give back one reference; a prefix without references is deleted."""
        shared.uses -= 1
        if shared.uses == 0:
            del self._by_content[shared.content]
            self.steps -= len(shared)

    def list_all_steps(self) -> Steps:
        """Return the steps of all prefixes, concatenated."""
        return np.frombuffer(bytearray().join(self._by_content), np.int32).reshape(-1, COLUMNS)

    def list_lengths(self) -> NDArray[np.int64]:
        """Return the length of each prefix, in the order of `list_all_steps`."""
        return np.fromiter(map(len, self._by_content.values()), np.int64, len(self._by_content))

    def load(self, steps: Steps, lengths: NDArray[np.int64], numbers: NDArray[np.int64]) -> list[SharedPrefix]:
        """Replace the table by a saved one, and return its prefixes with these `numbers`, a reference for each."""
        content = np.ascontiguousarray(steps, np.int32).tobytes()
        ends = np.cumsum(lengths) * _STEP_BYTES
        shared = [
            SharedPrefix(content[end - length * _STEP_BYTES : end])
            for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
        ]
        self._by_content = {prefix.content: prefix for prefix in shared}
        self.steps = len(steps)
        held = [shared[number] for number in numbers.tolist()]
        for prefix in held:
            prefix.uses += 1
        return held

    def find_numbers(self, held: Iterable[SharedPrefix]) -> NDArray[np.int64]:
        """Return the index of each given prefix in the order of `list_all_steps`."""
        number = {content: place for place, content in enumerate(self._by_content)}
        return np.fromiter((number[shared.content] for shared in held), np.int64)
