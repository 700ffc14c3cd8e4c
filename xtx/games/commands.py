"""A long list of commands as bytes: thirty thousand of them are no work to pass on or to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Starts = npt.NDArray[np.uint32]


class Commands(Sequence[str]):
    """Commands one after the other, each with a NUL behind it: as the engine takes them."""

    def __init__(self, text: bytes, starts: Starts) -> None:
        """`starts` says where each begins, and where the last one ends."""
        self.text = text
        self.starts = starts

    @classmethod
    def of(cls, commands: Sequence[str]) -> Commands:
        """The same commands. Where one has a NUL inside there is a backslash, which nobody understands either."""
        if isinstance(commands, Commands):
            return commands
        lines = [command.replace("\0", "\\").encode("utf-8", "replace") + b"\0" for command in commands]
        return Commands(b"".join(lines), _starts([len(line) for line in lines]))

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
        return self.text[self.starts[index] : self.starts[index + 1] - 1].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.decode().split("\0")[:-1])

    def chosen(self, indices: Sequence[int] | npt.NDArray[np.intp]) -> Commands:
        """Some of the commands, in the order they have here."""
        kept = np.zeros(len(self), dtype=bool)
        kept[indices] = True
        lengths = np.diff(self.starts)
        text = np.frombuffer(self.text, np.uint8)[np.repeat(kept, lengths)].tobytes()
        return Commands(text, _starts(lengths[kept]))

    def behind(self, first: Sequence[str]) -> Commands:
        """These commands with others before them."""
        before = Commands.of(first)
        return Commands(before.text + self.text, np.concatenate([before.starts[:-1], self.starts + before.starts[-1]]))


def _starts(lengths: Sequence[int] | npt.NDArray[np.uint32]) -> Starts:
    starts = np.zeros(len(lengths) + 1, dtype=np.uint32)
    np.cumsum(lengths, out=starts[1:])
    return starts
