"""The table in which each distinct prefix of an episode is stored once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

COLUMNS = 4  # narration, look, inventory, action
_STEP_BYTES = COLUMNS * 4

Steps = NDArray[np.int32]
"""[length, 4]"""


class Shared:
    """One prefix and how many places hold it. Bytes, since those can be looked up in a dictionary."""

    __slots__ = ("content", "uses")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.uses = 0

    def __len__(self) -> int:
        return len(self.content) // _STEP_BYTES

    def steps(self) -> Steps:
        """A copy of the prefix."""
        return np.frombuffer(self.content, np.int32).reshape(-1, COLUMNS).copy()


class PrefixTable:
    """Prefixes that are held somewhere. An agent that returns to its best trajectories goes the same way thousands of
    times, so that most of what it would store is there already."""

    def __init__(self) -> None:
        self.steps = 0
        """Steps of all distinct prefixes together: the memory they take, at 16 bytes each."""
        self._known: dict[bytes, Shared] = {}

    def hold(self, steps: Steps) -> Shared:
        """The stored prefix that is equal to the given steps, held once more."""
        content = steps.tobytes()
        shared = self._known.get(content)
        if shared is None:
            shared = self._known[content] = Shared(content)
            self.steps += len(shared)
        shared.uses += 1
        return shared

    def release(self, shared: Shared) -> None:
        """Ends one holding; what nobody holds is forgotten."""
        shared.uses -= 1
        if shared.uses == 0:
            del self._known[shared.content]
            self.steps -= len(shared)

    def all_steps(self) -> Steps:
        """The steps of all prefixes, one after the other."""
        return np.frombuffer(bytearray().join(self._known), np.int32).reshape(-1, COLUMNS)

    def lengths(self) -> NDArray[np.int64]:
        """The length of each prefix, in the order of `all_steps`."""
        return np.fromiter(map(len, self._known.values()), np.int64, len(self._known))

    def load(self, steps: Steps, lengths: NDArray[np.int64], numbers: NDArray[np.int64]) -> list[Shared]:
        """The held prefixes whose `numbers` were saved, after everything else was replaced by what was saved."""
        content = np.ascontiguousarray(steps, np.int32).tobytes()
        ends = np.cumsum(lengths) * _STEP_BYTES
        shared = [
            Shared(content[end - length * _STEP_BYTES : end])
            for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
        ]
        self._known = {prefix.content: prefix for prefix in shared}
        self.steps = len(steps)
        held = [shared[number] for number in numbers.tolist()]
        for prefix in held:
            prefix.uses += 1
        return held

    def numbers(self, held: Iterable[Shared]) -> NDArray[np.int64]:
        """For each held prefix, which one in the order of `all_steps` it is."""
        number = {content: place for place, content in enumerate(self._known)}
        return np.fromiter((number[shared.content] for shared in held), np.int64)
