"""The text table on a GPU, and the numbers that steps send there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.cuda.kernels import Texts
from xtx.text import TextTable

_FIRST_ROOM = 65_536


class Shelf:
    """A copy of the text table's words on the device, kept up to date."""

    def __init__(self, table: TextTable, device: torch.device) -> None:
        self._table = table
        self._device = device
        self._seen = np.zeros(0, np.int64)
        self.texts = self._room_for(_FIRST_ROOM)
        self.generation = 0
        """Grows when `texts` moves: what was recorded with the old one must be recorded again."""

    def _room_for(self, texts: int) -> Texts:
        words = torch.zeros(texts, self._table.longest, dtype=torch.int32, device=self._device)
        self._present = np.zeros(texts, np.bool_)
        return Texts(words, torch.zeros(texts, dtype=torch.int32, device=self._device))

    def forget(self, numbers: Sequence[int] | None = None) -> None:
        """To be called after texts were swept: these numbers, or all, will mean other texts."""
        self._present[slice(None) if numbers is None else [n for n in numbers if n < len(self._present)]] = False

    def bring(self, numbers: NDArray[np.integer]) -> None:
        """Sees to it that the texts of these numbers are there."""
        numbers = numbers[numbers >= 0]
        if self._table.rows.size > len(self._present):
            self.texts = self._room_for(max(self._table.rows.size, 2 * len(self._present)))
            self.generation += 1
        new = np.unique(numbers[~self._present[numbers]])
        if not len(new):
            return
        flat, offsets = self._table.rows.gather(new)
        lengths = np.diff(offsets)
        words = np.zeros((len(new), self._table.longest), np.int32)
        words[np.arange(self._table.longest) < lengths[:, None]] = flat
        where = torch.from_numpy(new.astype(np.int64)).to(self._device)
        self.texts.words[where] = torch.from_numpy(words).to(self._device)
        self.texts.lengths[where] = torch.from_numpy(lengths.astype(np.int32)).to(self._device)
        self._present[new] = True


class Mail:
    """Numbers for the device: written on this side, and sent in one go."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._host = torch.zeros(size, dtype=dtype, pin_memory=True)
        self.device = torch.zeros(size, dtype=dtype, device=device)
        self.page: NDArray[Any] = self._host.numpy()
        """To be written on."""

    def send(self) -> None:
        """Sends all of it. The host must not write again before the device has read it."""
        self.device.copy_(self._host, non_blocking=True)
