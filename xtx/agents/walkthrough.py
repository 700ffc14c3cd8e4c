"""The agent that knows the way: it plays a list of commands."""

from __future__ import annotations

from collections.abc import Sequence

from xtx.core import Decision, Observation

AFTERWARDS = "wait"


class WalkthroughAgent:
    """Plays the command that belongs to the step, whatever it sees; waits when the list is at its end.

    It remembers nothing, so a new episode begins at the first command again.
    """

    def __init__(self, actions: Sequence[str]) -> None:
        self._actions = tuple(actions)

    def act(self, observation: Observation) -> Decision:
        """The walkthrough's command for this step."""
        step = observation.step
        return Decision(self._actions[step] if step < len(self._actions) else AFTERWARDS)
