"""The agent that knows the way: it plays a list of commands."""

from __future__ import annotations

from collections.abc import Sequence

from xtx.core import Agent, Decision, Insight, Observation

AFTERWARDS = "wait"


class WalkthroughAgent(Agent):
    """Plays the command that belongs to the step, whatever it sees; waits when the list is at its end.

    It remembers nothing, so a new episode begins at the first command again.
    """

    @property
    def episode_limit(self) -> int:
        """Just long enough for the whole way."""
        return max(1, len(self.brief.walkthrough))

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """The walkthrough's command for each game's step."""
        return [Decision(self._command(o.step)) for o in observations]

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """The one command."""
        return Insight({self._command(observation.step): 1.0})

    def _command(self, step: int) -> str:
        way = self.brief.walkthrough
        return way[step] if step < len(way) else AFTERWARDS
