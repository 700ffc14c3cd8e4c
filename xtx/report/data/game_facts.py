"""What a report needs of a game; it comes from the caller, since a report opens no games."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RewardEvent:
    """A step of the walkthrough that brings more points than there were ever before."""

    step: int
    """Commands given by then."""
    score: int
    """The score after it."""
    action: str


@dataclass(frozen=True)
class GameFacts:
    """One game."""

    name: str
    maximum: int
    """The most points that it has."""
    events: tuple[RewardEvent, ...] = ()
    """Empty where no walkthrough is known."""
    walkthrough_steps: int = 0
    between_rewards: tuple[float, int] | None = None
    """Steps between the walkthrough's rewards: mean and largest."""


def list_reward_events(actions: Sequence[str], scores: Sequence[int], first: int = 0) -> tuple[RewardEvent, ...]:
    """The events of a walkthrough, given the score after each of its actions, and the one at the beginning.

    Points that were lost and won again make no event: an episode's peak could not tell the two times apart.
    """
    events, highest = [], first
    for step, (action, score) in enumerate(zip(actions, scores, strict=True), start=1):
        if score > highest:
            events.append(RewardEvent(step, score, action))
            highest = score
    return tuple(events)
