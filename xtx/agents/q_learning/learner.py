"""The Q-learner that DRRN, INV-DY and XTX share: replay memory, intrinsic reward, updates.

The networks and their optimiser belong to an engine: plain_engine.py has the one for any device, cuda_engine.py the one
for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.q_learning.plain_engine import PlainEngine
from xtx.agents.state_ids import EncodedState, PendingActions, StateIds
from xtx.config.settings import InverseSettings, QSettings
from xtx.core import State, Transition
from xtx.memory import ReplayMemory
from xtx.text.text_table import Ints

Floats = NDArray[np.float32]
_NONE = np.zeros(0, np.int32)


class UpdateEngine(Protocol):
    """Networks, target network and optimiser of a Q-learner."""

    def q_values(self, texts: Ints, actions: Sequence[Ints]) -> Floats:
        """Return the values of all actions of all states, concatenated.

        texts: [n, 3], ids of narration, look, inventory; actions: for each state the text ids of its actions.
        """

    def compute_surprises(self, before: Ints, actions: Ints, after: Ints) -> Floats:
        """Return the inverse-dynamics loss L_inv(o, a, o') of each row, with the current weights.

        before, after: [n, 3], ids of narration, look, inventory; actions: [n], text ids; result: [n].
        """

    def update(self, batch: NDArray[np.void]) -> Mapping[str, float]:
        """Update the network on rows of the replay memory, copy it to the target network every `target_every` updates,
        and return the losses."""

    def clear_cache(self) -> None:
        """Clear all caches by text id: the ids are about to be given to other texts."""

    def clear_cached_texts(self, texts: Sequence[int]) -> None:
        """Clear the caches of some texts, for which only `q_values` was called."""

    def state(self) -> State:
        """Return weights, optimiser and caches for `load`."""

    def load(self, state: State) -> None:
        """Restore what `state` returned."""


def make_engine(
    q: QSettings, inverse: InverseSettings | None, state_ids: StateIds, device: torch.device
) -> UpdateEngine:
    """Make the fastest engine that the device and the settings allow."""
    if device.type == "cuda":
        from xtx.agents.q_learning.cuda_engine import CudaEngine

        if CudaEngine.is_supported(q):
            return CudaEngine(q, inverse, state_ids, device)
    return PlainEngine(q, inverse, state_ids, device)


class QLearner:
    """Learns the values of actions from every transition."""

    def __init__(
        self,
        q: QSettings,
        inverse: InverseSettings | None,
        state_ids: StateIds,
        games: int,
        seed: int,
        device: torch.device,
    ) -> None:
        """`inverse`: None for the learner of DRRN, otherwise that of INV-DY and XTX."""
        self._inverse = inverse
        self._state_ids = state_ids
        torch.manual_seed(seed)
        self.engine = make_engine(q, inverse, state_ids, device)
        self.memory = ReplayMemory(q.capacity, q.priority_share, q.batch_size, games, seed)
        self._postponed: NDArray[np.void] | None = None
        """The batch of an update that waits for `complete`, because the next actions of some of its rows are
        unknown."""

    def q_values(self, states: Sequence[EncodedState]) -> list[Floats]:
        """Return for each state the values of its actions."""
        lists = self._state_ids.list_actions(states)
        values = self.engine.q_values(_list_texts(states), lists)
        return np.split(values, np.cumsum([len(actions) for actions in lists])[:-1])

    @contextmanager
    def restore_afterwards(self) -> Iterator[None]:
        """Delete the states that are met in the block, and their values, when it ends."""
        with self._state_ids.restore_afterwards() as freed:
            yield
        self.engine.clear_cached_texts(freed)

    def compute_intrinsic_rewards(
        self, before: Sequence[EncodedState], actions: Sequence[int], after: Sequence[EncodedState]
    ) -> Floats:
        """Return alpha1 * L_inv(o, a, o') with the current weights; zeros without inverse dynamics."""
        if self._inverse is None:
            return np.zeros(len(before), np.float32)
        surprises = self.engine.compute_surprises(_list_texts(before), np.array(actions, np.int32), _list_texts(after))
        rewards: Floats = np.float32(self._inverse.alpha1) * surprises
        return rewards

    def store(
        self,
        transitions: Sequence[Transition],
        before: Sequence[EncodedState],
        actions: Sequence[int],
        after: Sequence[EncodedState],
    ) -> float:
        """Store the transitions with their intrinsic reward, and return the mean of that.

        An episode that the step limit ended counts as ended, as in the authors' program: no value follows it. The
        actions of the states `after` may be unknown (`StateIds.glimpse`); `complete` must be called then.
        """
        bonus = self.compute_intrinsic_rewards(before, actions, after)
        for i, t in enumerate(transitions):
            row = (*before[i][:3], actions[i], *after[i][:3], after[i].actions, t.reward + float(bonus[i]), t.ended)
            self.memory.add(t.game, row)
            if t.ended:
                self.memory.end_episode(t.game, t.after.score)
        return float(bonus.mean())

    def update(self) -> Mapping[str, float]:
        """Update on a batch of the memory and return the losses; nothing while the memory has fewer rows than a batch.

        If the batch has a row whose next actions are unknown, `complete` makes the update instead.
        """
        if not self.memory.is_ready:
            return {}
        batch = self.memory.sample()
        if (batch["next_actions"] < 0).any():
            self._postponed = batch
            return {}
        return self.engine.update(batch)

    def complete(self, transitions: Sequence[Transition], after: Sequence[EncodedState]) -> Mapping[str, float]:
        """Fill in the next actions of the transitions that were stored last, make the update that waits for them if
        there is one, and return its losses."""
        for i, (t, state) in enumerate(zip(transitions, after, strict=True)):
            if not t.ended:
                self.memory.amend(len(transitions) - i, t.game, "next_actions", state.actions)
        batch, self._postponed = self._postponed, None
        if batch is None:
            return {}
        for i, state in enumerate(after):
            ids = batch["next_actions"]
            ids[ids == PendingActions(i).id] = state.actions
        return self.engine.update(batch)

    def drop_unused(self, current: Sequence[EncodedState], texts: NDArray[np.integer] = _NONE) -> None:
        """Delete from the library what neither the memory, nor the current states, nor the given texts use."""
        states = np.array(current, np.int32)
        self._state_ids.drop_unused(
            np.concatenate((self.memory.list_live_texts(), states[:, :3].ravel(), texts)),
            np.concatenate((self.memory.list_live_texts(["next_actions"]), states[:, 3])),
        )
        self.engine.clear_cache()

    def state(self) -> State:
        """Return engine and memory for `load`."""
        return {"engine": self.engine.state(), "memory": self.memory.state()}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self.engine.load(state["engine"])
        self.memory.load(state["memory"])


def _list_texts(states: Sequence[EncodedState]) -> Ints:
    """Return the ids of narration, look and inventory, [n, 3]."""
    return np.array(states, np.int32)[:, :3]
