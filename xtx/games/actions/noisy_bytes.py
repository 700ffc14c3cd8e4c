"""Bytes that nearly every command changes in some way of its own, in states where no other means tells such traces from
changes of the world: stories that note of each thing what was done to it, and parsers that note what was typed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from xtx.games.emulator.frotz import Emulator, Snapshot, Verdict
from xtx.games.zset.engine import ENGINE, UNJUDGED, Engine

_MOST_KINDS = 256
"""Different changes, at most, that are looked at."""
_FEWEST_VERBS = 3
"""A change that was meant to be found can be brought about with so many verbs: push the box, use it, play with it."""
_MOST_COMMANDS = 16
"""Where more commands than that change a byte, it says nothing of any one of them."""


def find_noise(
    emulator: Emulator,
    engine: Engine,
    state: Snapshot,
    commands: Sequence[str],
    watches: npt.NDArray[np.uint64],
    idle: str,
) -> npt.NDArray[np.bool_]:
    """Which bytes of RAM the commands change without being meant to. Equal `watches` are equal changes; `idle` is a
    command that changes nothing but what time does. A byte is meant to be changed if few commands with several verbs
    leave the same value there, and no command another one."""
    kinds: dict[int, list[str]] = {}
    for command, watch in zip(commands, watches.tolist(), strict=True):
        kinds.setdefault(watch, []).append(command)
    alike = sorted(kinds.values(), key=len)[:_MOST_KINDS]
    emulator.note(ENGINE)
    flags, memory = engine.finals(state, [idle, *(min(some, key=len) for some in alike)])
    noise = np.zeros(len(state.ram), dtype=bool)
    if flags[0] & (UNJUDGED | Verdict.STOPPED):
        return noise
    done = np.flatnonzero((flags[1:] & (UNJUDGED | Verdict.STOPPED)) == 0)
    before, after = memory[0], memory[1 + done]
    for byte in np.flatnonzero((after != before).any(axis=0)).tolist():
        rows = np.flatnonzero(after[:, byte] != before[byte])
        by = [command for row in rows.tolist() for command in alike[done[row]]]
        verbs = {command.split(" ", 1)[0] for command in by}
        values = np.unique(after[rows, byte])
        noise[byte] = len(verbs) < _FEWEST_VERBS or len(by) > _MOST_COMMANDS or len(values) > 1
    return noise
