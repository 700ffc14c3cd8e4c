"""The walkthrough agent: it plays a given list of commands, usually the known solution of a game."""

from __future__ import annotations

from collections.abc import Sequence

from xtx.core import Agent, Decision, Insight, Observation

AFTERWARDS = "wait"
"""The command behind the end of the list."""


class WalkthroughAgent(Agent):
    """Plays the walkthrough's command for the episode's step, whatever the observation; waits behind its end.

    It has no state: a new episode begins at the first command.
    """

    @property
    def episode_limit(self) -> int:
        """The length of the walkthrough, at least 1."""
        return max(1, len(self.brief.walkthrough))

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """Return the walkthrough's command for each game's step."""
        return [Decision(self._get_command(o.step)) for o in observations]

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """Return the command with probability 1."""
        return Insight({self._get_command(observation.step): 1.0})

    def _get_command(self, step: int) -> str:
        commands = self.brief.walkthrough
        return commands[step] if step < len(commands) else AFTERWARDS
