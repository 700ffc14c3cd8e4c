"""A trajectory that is gone again, action by action."""

from __future__ import annotations

from xtx.agents.states import Seen
from xtx.memory.prefixes import Steps


class Way:
    """What one trajectory did in the states that it came through. A state is known by its three texts."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        """[length, 4]: narration, look, inventory and action of each step."""
        self._rows: list[list[int]] = steps.tolist()
        self._last = {(narration, look, inventory): action for narration, look, inventory, action in self._rows}

    def action(self, state: Seen, step: int) -> int | None:
        """The number of the action that it did in this state: at the same step if it was here then, else the last time
        it was here, from where the rest is shortest; None where it never came by."""
        here = state.narration, state.look, state.inventory
        if step < len(self._rows) and (*self._rows[step][:3],) == here:
            return self._rows[step][3]
        return self._last.get(here)
