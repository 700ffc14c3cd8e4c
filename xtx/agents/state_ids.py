"""Converts observations to ids: the form in which learning agents store states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xtx.config.settings import TextSettings
from xtx.core import Observation, State
from xtx.text.text_table import ActionSets, Ints, TextTable, Vocabulary

UNKNOWN = "unknown"
"""Text in the place of look and inventory at the end of a game, where they are empty, as in the authors' program."""

MIN_IDS_TO_DROP = 50_000
"""Number of texts, or of action sets, at which unused ones are first deleted. So many take some tens of megabytes."""


class EncodedState(NamedTuple):
    """A state as ids: those of its three texts and of its set of valid actions."""

    narration: int
    look: int
    inventory: int
    actions: int
    """Id of an action set; that of a `PendingActions` while the actions are unknown."""


@dataclass(frozen=True, slots=True)
class PendingActions:
    """Stands for the valid actions of a state until `arrive` tells them, in the second part of a split step."""

    place: int
    """Index of the state's env in the vector step."""

    @property
    def id(self) -> int:
        """The negative number that is stored in place of the id of an action set."""
        return -1 - self.place


class StateIds:
    """All texts and action sets that an agent has met, each with its id."""

    def __init__(self, settings: TextSettings) -> None:
        self.texts = TextTable(Vocabulary(settings.vocabulary), settings.longest)
        self.action_sets = ActionSets()
        self._sweep_at = MIN_IDS_TO_DROP

    def encode(self, observation: Observation) -> EncodedState:
        """Return the ids of an observation; new texts and actions are given ids."""
        texts = self._encode_texts(observation)
        return EncodedState(*texts, self.action_sets.id([self.texts.id(action) for action in observation.actions]))

    def encode_without_actions(self, observation: Observation, ended: bool, place: int) -> EncodedState:
        """Return the ids of an observation whose actions are not known yet.

        `PendingActions(place)` stands for them, unless the episode `ended`: no action follows then. `place` is the
        index of the observation's game in the vector step.
        """
        return EncodedState(
            *self._encode_texts(observation), self.action_sets.none if ended else PendingActions(place).id
        )

    def _encode_texts(self, observation: Observation) -> tuple[int, int, int]:
        """Return the ids of narration, look and inventory."""
        text = self.texts.id
        return text(observation.text), text(observation.look or UNKNOWN), text(observation.inventory or UNKNOWN)

    def list_actions(self, states: Sequence[EncodedState]) -> list[Ints]:
        """Return for each state the text ids of its valid actions."""
        return [self.action_sets.actions(state.actions) for state in states]

    @contextmanager
    def restore_afterwards(self) -> Iterator[list[int]]:
        """Delete the texts and action sets that are met in the block when it ends.

        Yields a list that holds the ids of those texts afterwards. Caches must drop them, since they will be given to
        other texts.
        """
        with self.texts.restore_afterwards() as freed, self.action_sets.restore_afterwards():
            yield freed

    def is_crowded(self) -> bool:
        """Return whether there are so many texts or action sets that `drop_unused` is worth its time."""
        return len(self.texts) >= self._sweep_at or len(self.action_sets) >= self._sweep_at

    def drop_unused(self, texts: NDArray[np.integer], action_sets: NDArray[np.integer]) -> None:
        """Delete all texts and action sets but those with the given ids, and their texts.

        `is_crowded` is True again when the number of those left has doubled, so that the cost per step stays bounded
        however long the run is.
        """
        self.action_sets.drop_unused(action_sets)
        live = np.concatenate((texts, self.action_sets.list_live_texts()))
        self.texts.drop_unused(live[live >= 0])
        self._sweep_at = max(MIN_IDS_TO_DROP, 2 * max(len(self.texts), len(self.action_sets)))

    def describe(self) -> Mapping[str, float]:
        """Return the numbers of words and texts, for the log."""
        vocabulary = self.texts.vocabulary
        return {"words": len(vocabulary), "shared_words": vocabulary.shared, "texts": len(self.texts)}

    def state(self) -> State:
        """Return everything for `load`."""
        return {
            "texts": self.texts.state(),
            "action_sets": self.action_sets.state(),
            "sweep_at": self._sweep_at,
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self.texts.load(state["texts"])
        self.action_sets.load(state["action_sets"])
        self._sweep_at = state["sweep_at"]
