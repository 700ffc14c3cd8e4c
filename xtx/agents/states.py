"""Observations as numbers: what a learning agent keeps of a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xtx.config import TextSettings
from xtx.core import Observation, State
from xtx.text import ActionSets, Ints, TextTable, Vocabulary

UNKNOWN = "unknown"
"""What stands for look and inventory at the end of a game, as in the authors' program."""


FIRST_SWEEP = 50_000
"""Texts, or action sets, that may be met before anything is forgotten."""


class Seen(NamedTuple):
    """A state: the numbers of its three texts and of its set of actions."""

    narration: int
    look: int
    inventory: int
    actions: int


class Library:
    """All texts and action sets that an agent has met, each with its number."""

    def __init__(self, settings: TextSettings) -> None:
        self.texts = TextTable(Vocabulary(settings.vocabulary), settings.longest)
        self.action_sets = ActionSets()
        self._sweep_at = FIRST_SWEEP

    def see(self, observation: Observation) -> Seen:
        """The observation's numbers."""
        text = self.texts.id
        return Seen(
            text(observation.text),
            text(observation.look or UNKNOWN),
            text(observation.inventory or UNKNOWN),
            self.action_sets.id([text(action) for action in observation.actions]),
        )

    def glimpse(self, observation: Observation, ended: bool, place: int) -> Seen:
        """The numbers of an observation whose actions are not known yet: a negative number, another one for each
        `place`, stands for them, unless an episode `ended` with it, where they do not matter."""
        text = self.texts.id
        return Seen(
            text(observation.text),
            text(observation.look or UNKNOWN),
            text(observation.inventory or UNKNOWN),
            self.action_sets.none if ended else -1 - place,
        )

    def actions(self, states: Sequence[Seen]) -> list[Ints]:
        """The numbers of each state's actions."""
        return [self.action_sets.actions(state.actions) for state in states]

    @contextmanager
    def in_passing(self) -> Iterator[list[int]]:
        """What is met within is forgotten again; the numbers of those texts, once that is done. Whoever has kept
        something under them must drop it, because they will mean other texts."""
        with self.texts.in_passing() as freed, self.action_sets.in_passing():
            yield freed

    def crowded(self) -> bool:
        """Whether it has become worth while to forget what nobody needs: see `sweep`."""
        return len(self.texts) >= self._sweep_at or len(self.action_sets) >= self._sweep_at

    def sweep(self, texts: NDArray[np.integer], action_sets: NDArray[np.integer]) -> None:
        """Forgets all but the given numbers. The next time is when as many as are left have come anew, so that the
        cost per step stays bounded however long the run."""
        self.action_sets.sweep(action_sets)
        live = np.concatenate((texts, self.action_sets.live_texts()))
        self.texts.sweep(live[live >= 0])
        self._sweep_at = max(FIRST_SWEEP, 2 * max(len(self.texts), len(self.action_sets)))

    def describe(self) -> Mapping[str, float]:
        """How much was met, for the log."""
        vocabulary = self.texts.vocabulary
        return {"words": len(vocabulary), "shared_words": vocabulary.shared, "texts": len(self.texts)}

    def state(self) -> State:
        """For `load`."""
        return {
            "texts": self.texts.state(),
            "action_sets": self.action_sets.state(),
            "sweep_at": self._sweep_at,
        }

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self.texts.load(state["texts"])
        self.action_sets.load(state["action_sets"])
        self._sweep_at = state["sweep_at"]
