"""What stands for Jericho's `frotz_lib`, the handle of libfrotz, where the library runs in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xtx.games.jericho.running_story import RunningStory

_FUNCTIONS = frozenset(
    ("getPC", "getSP", "getFP", "getFrameCount", "getRngA", "getRngInterval", "getRngCounter", "getRAMSize",
     "getStackSize", "get_opcode", "get_special_ram_size", "get_num_world_objs", "get_self_object_num", "get_moves",
     "get_score", "get_max_score", "world_changed", "game_over", "victory", "halted", "setRng"),
)  # fmt: skip
"""Functions of libfrotz that take and return numbers."""


class FrotzLibrary:
    """Those functions of libfrotz that take and return numbers."""

    def __init__(self, story: RunningStory) -> None:
        self._story = story

    @property
    def _handle(self) -> int:
        """A number that differs between environments."""
        return self._story.pid

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _FUNCTIONS:
            raise AttributeError(f"libfrotz runs in another process: {name} cannot be called here")
        kind = np.int64 if name == "getRngA" else int  # as Jericho declares it
        return lambda *arguments: kind(self._story.call_host("call_library", name, list(arguments)))
