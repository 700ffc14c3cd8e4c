"""Replay of a stored trajectory: which action it took in which state."""

from __future__ import annotations

from xtx.agents.state_ids import EncodedState
from xtx.memory.prefix_table import Steps


class TrajectoryReplay:
    """Maps each state of a trajectory to the action that was taken there. A state is identified by its three texts."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        """[length, 4]: narration, look, inventory and action of each step."""
        self._rows: list[list[int]] = steps.tolist()
        self._last = {(narration, look, inventory): action for narration, look, inventory, action in self._rows}

    def find_action(self, state: EncodedState, step: int) -> int | None:
        """Return the text id of the action that the trajectory took in this state, or None if it never was in it.

        If the trajectory was in this state at this very step, that occurrence counts; otherwise the last one, because
        the rest of the trajectory is shortest from there.
        """
        here = state.narration, state.look, state.inventory
        if step < len(self._rows) and (*self._rows[step][:3],) == here:
            return self._rows[step][3]
        return self._last.get(here)
