"""The Q-learner that DRRN, INV-DY and XTX share: replay memory, intrinsic reward, updates.

The networks are an engine's business: q_plain.py has the one that runs anywhere, q_cuda.py the one for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.q_plain import PlainEngine
from xtx.agents.states import Library, Seen
from xtx.config import InverseSettings, QSettings
from xtx.core import State, Transition
from xtx.memory import ReplayMemory
from xtx.text import Ints

Floats = NDArray[np.float32]
_NONE = np.zeros(0, np.int32)


class Engine(Protocol):
    """Networks, target network and optimiser."""

    def q_values(self, texts: Ints, actions: Sequence[Ints]) -> Floats:
        """The value of each action of each state, one after the other. texts: [n, 3] narration, look, inventory"""

    def surprises(self, before: Ints, actions: Ints, after: Ints) -> Floats:
        """L_inv(o, a, o') of each row with the network as it is now. before, after: [n, 3]"""

    def update(self, batch: NDArray[np.void]) -> Mapping[str, float]:
        """Losses of one update on rows of the replay memory, and a copy to the target network if it is due."""

    def forget(self) -> None:
        """Drops what is known of texts by their numbers, which will mean other texts."""

    def forget_asked(self, texts: Sequence[int]) -> None:
        """The same for some texts, of which nothing was asked but `q_values`."""

    def state(self) -> State:
        """For `load`."""

    def load(self, state: State) -> None:
        """Goes on from a saved state."""


def make_engine(q: QSettings, inverse: InverseSettings | None, library: Library, device: torch.device) -> Engine:
    """The fastest engine for the device."""
    if device.type == "cuda":
        from xtx.agents.q_cuda import CudaEngine

        if CudaEngine.can(q):
            return CudaEngine(q, inverse, library, device)
    return PlainEngine(q, inverse, library, device)


class QLearner:
    """Values of actions, learned from every transition."""

    def __init__(
        self,
        q: QSettings,
        inverse: InverseSettings | None,
        library: Library,
        games: int,
        seed: int,
        device: torch.device,
    ) -> None:
        """Without inverse dynamics it is DRRN's, with it INV-DY's."""
        self._inverse = inverse
        self._library = library
        torch.manual_seed(seed)
        self.engine = make_engine(q, inverse, library, device)
        self.memory = ReplayMemory(q.capacity, q.priority_share, q.batch_size, games, seed)
        self._postponed: NDArray[np.void] | None = None
        """A batch with transitions whose actions are still unknown."""

    def q_values(self, states: Sequence[Seen]) -> list[Floats]:
        """The value of each action of each state."""
        lists = self._library.actions(states)
        values = self.engine.q_values(_texts(states), lists)
        return np.split(values, np.cumsum([len(actions) for actions in lists])[:-1])

    @contextmanager
    def in_passing(self) -> Iterator[None]:
        """States that are seen, and whose `q_values` are asked, within are forgotten again."""
        with self._library.in_passing() as freed:
            yield
        self.engine.forget_asked(freed)

    def intrinsic_rewards(self, before: Sequence[Seen], actions: Sequence[int], after: Sequence[Seen]) -> Floats:
        """alpha1 * L_inv(o, a, o') with the network as it is now; zeros without inverse dynamics."""
        if self._inverse is None:
            return np.zeros(len(before), np.float32)
        surprises = self.engine.surprises(_texts(before), np.array(actions, np.int32), _texts(after))
        rewards: Floats = np.float32(self._inverse.alpha1) * surprises
        return rewards

    def remember(
        self,
        transitions: Sequence[Transition],
        before: Sequence[Seen],
        actions: Sequence[int],
        after: Sequence[Seen],
    ) -> float:
        """The mean intrinsic reward of the transitions, after storing them with it. An episode that the step limit
        ended counts as ended, as in the authors' program: nothing is expected beyond it. The actions of the states
        `after` may be missing (`Library.glimpse`): `complete` must follow."""
        bonus = self.intrinsic_rewards(before, actions, after)
        for i, t in enumerate(transitions):
            row = (*before[i][:3], actions[i], *after[i][:3], after[i].actions, t.reward + float(bonus[i]), t.ended)
            self.memory.add(t.game, row)
            if t.ended:
                self.memory.end_episode(t.game, t.after.score)
        return float(bonus.mean())

    def update(self) -> Mapping[str, float]:
        """Losses of one update; nothing while the memory holds too little. Where its batch has transitions that are not
        complete it comes with `complete`."""
        if not self.memory.ready:
            return {}
        batch = self.memory.sample()
        if (batch["next_actions"] < 0).any():
            self._postponed = batch
            return {}
        return self.engine.update(batch)

    def complete(self, transitions: Sequence[Transition], after: Sequence[Seen]) -> Mapping[str, float]:
        """Adds the actions that were missing from the transitions that were remembered last; the losses of an update
        that had to wait for that."""
        for i, (t, state) in enumerate(zip(transitions, after, strict=True)):
            if not t.ended:
                self.memory.amend(len(transitions) - i, t.game, "next_actions", state.actions)
        batch, self._postponed = self._postponed, None
        if batch is None:
            return {}
        for i, state in enumerate(after):
            batch["next_actions"][batch["next_actions"] == -1 - i] = state.actions
        return self.engine.update(batch)

    def sweep(self, current: Sequence[Seen], texts: NDArray[np.integer] = _NONE) -> None:
        """Lets the library forget what neither the memory, nor the current states, nor the given texts need."""
        states = np.array(current, np.int32)
        self._library.sweep(
            np.concatenate((self.memory.live_texts(), states[:, :3].ravel(), texts)),
            np.concatenate((self.memory.live_texts(["next_actions"]), states[:, 3])),
        )
        self.engine.forget()

    def state(self) -> State:
        """For `load`."""
        return {"engine": self.engine.state(), "memory": self.memory.state()}

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self.engine.load(state["engine"])
        self.memory.load(state["memory"])


def _texts(states: Sequence[Seen]) -> Ints:
    return np.array(states, np.int32)[:, :3]
