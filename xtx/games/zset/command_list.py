"""A long list of commands as bytes: thirty thousand of them are no work to pass on or to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

TextBytes = npt.NDArray[np.uint8]
Starts = npt.NDArray[np.uint32]
Groups = npt.NDArray[np.uint16]


class Commands(Sequence[str]):
    """Commands one after the other, each with a NUL behind it: as the engine takes them."""

    def __init__(self, text: TextBytes, starts: Starts, groups: Groups | None = None) -> None:
        """`starts` says where in the text each begins, and where the last one ends. `groups`, where they are known, are
        numbers that neighbours have in common which were made in the same way: such cost about the same."""
        self.text = text
        self.starts = starts
        self.groups = groups

    @classmethod
    def of(cls, commands: Sequence[str]) -> Commands:
        """The same commands. Where one has a NUL inside there is a backslash, which no story understands either."""
        if isinstance(commands, Commands):
            return commands
        joined = np.frombuffer(("\0".join(commands) + "\0").encode("utf-8", "replace"), np.uint8)
        ends = np.flatnonzero(joined == 0)
        if len(ends) == len(commands):
            return Commands(joined, np.concatenate(([0], ends + 1)).astype(np.uint32))
        lines = [command.replace("\0", "\\").encode("utf-8", "replace") + b"\0" for command in commands]
        return Commands(np.frombuffer(b"".join(lines), np.uint8), _starts([len(line) for line in lines]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return self.text[self.starts[index] : self.starts[index + 1] - 1].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.text[self.starts[0] : self.starts[-1]].tobytes().decode().split("\0")[:-1])

    def chosen(self, indices: Sequence[int] | npt.NDArray[np.intp]) -> Commands:
        """Some of the commands, in the order they have here."""
        kept = np.zeros(len(self), dtype=bool)
        kept[indices] = True
        lengths = np.diff(self.starts)
        text = self.text[self.starts[0] : self.starts[-1]][np.repeat(kept, lengths)]
        return Commands(text, _starts(lengths[kept]), None if self.groups is None else self.groups[kept])

    def behind(self, first: Sequence[str]) -> Commands:
        """These commands with others before them."""
        before = Commands.of(first)
        text = np.concatenate([before.text, self.text[self.starts[0] : self.starts[-1]]])
        starts = [before.starts[:-1], self.starts - self.starts[0] + before.starts[-1]]
        return Commands(text, np.concatenate(starts).astype(np.uint32))


def _starts(lengths: Sequence[int] | npt.NDArray[np.uint32]) -> Starts:
    starts = np.zeros(len(lengths) + 1, dtype=np.uint32)
    np.cumsum(lengths, out=starts[1:])
    return starts
