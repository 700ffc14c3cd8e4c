"""A copy of the text table on a GPU, and pinned buffers for the arguments of recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.kernels.cuda.gru import DeviceTexts
from xtx.text.text_table import TextTable

_FIRST_SIZE = 65_536
"""Texts that the first copy has space for, so that it is seldom replaced."""


class DeviceTextTable:
    """A copy of the text table's tokens on the device, into which texts are copied when they are needed."""

    def __init__(self, table: TextTable, device: torch.device) -> None:
        self._table = table
        self._device = device
        self.texts = self._allocate(_FIRST_SIZE)
        self.generation = 0
        """Incremented when `texts` is replaced: steps that were recorded with the old tensors must be recorded
        again."""

    def _allocate(self, texts: int) -> DeviceTexts:
        words = torch.zeros(texts, self._table.longest, dtype=torch.int32, device=self._device)
        self._present = np.zeros(texts, np.bool_)
        return DeviceTexts(words, torch.zeros(texts, dtype=torch.int32, device=self._device))

    def clear_cache(self, numbers: Sequence[int] | None = None) -> None:
        """Mark these texts, or all, as not copied; must be called when their ids are freed."""
        self._present[slice(None) if numbers is None else [n for n in numbers if n < len(self._present)]] = False

    def copy_texts(self, numbers: NDArray[np.integer]) -> None:
        """Copy the texts with these ids to the device, unless they are there."""
        numbers = numbers[numbers >= 0]
        if self._table.rows.size > len(self._present):
            self.texts = self._allocate(max(self._table.rows.size, 2 * len(self._present)))
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


class PinnedBuffer:
    """A pinned buffer on the host and its copy on the device."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._host = torch.zeros(size, dtype=dtype, pin_memory=True)
        self.device = torch.zeros(size, dtype=dtype, device=device)
        self.array: NDArray[Any] = self._host.numpy()
        """The host's buffer, to be written."""

    def send(self) -> None:
        """Start copying the buffer to the device. The host must not write again before the copy is done."""
        self.device.copy_(self._host, non_blocking=True)
