"""The learner of RC-DQN: network, target network, replay memory, updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.network_arrays import copy_module_state, copy_optimiser_state, load_module, load_optimiser
from xtx.agents.rc_dqn.reading_inputs import PassageReader, ReadState, StateQuestions
from xtx.agents.state_ids import StateIds
from xtx.config.settings import RcDqnSettings
from xtx.core import State
from xtx.memory import AboveRunningMean, ReplayMemory
from xtx.networks.losses import td_loss
from xtx.networks.reading_comprehension import RcNetwork

Floats = NDArray[np.float32]

ROW = np.dtype(
    [
        ("text", np.int32),
        ("action", np.int32),
        ("next_text", np.int32),
        ("next_actions", np.int32),  # number of a list of actions
        ("reward", np.float32),  # clipped to its sign
        ("terminal", np.bool_),  # no bootstrap
    ]
)

TOKENS_AT_ONCE = 8_192
"""Limits the tokens of all pairs of text and question that are computed together without a gradient, so that the
working set stays in the processor's cache."""


class RcLearner:
    """Learns the values of actions from every transition."""

    def __init__(
        self,
        settings: RcDqnSettings,
        state_ids: StateIds,
        reader: PassageReader,
        games: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self._settings = settings
        self._state_ids = state_ids
        self._reader = reader
        self._device = device
        torch.manual_seed(seed)
        shape = (state_ids.texts.vocabulary.capacity, settings.embedding, settings.hidden)
        self.network = RcNetwork(*shape).to(device)
        self.target = RcNetwork(*shape).to(device).requires_grad_(False)
        self.target.load_state_dict(self.network.state_dict())
        self._optimiser = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate, fused=True)
        self.memory = ReplayMemory(
            settings.capacity,
            settings.priority_share,
            settings.batch_size,
            games,
            seed,
            dtype=ROW,
            accept=AboveRunningMean(settings.usual_decay),
            one_by_one=True,
        )
        self._outcomes = np.zeros(games)  # by game, the sum of clipped rewards of its current episode
        self._values: dict[ReadState, float] = {}  # cached values of states by the target network, since the last copy
        self.updates = 0

    def q_values(self, states: Sequence[ReadState]) -> list[Floats]:
        """Return for each state the values of its first `most_actions` actions."""
        return self._evaluate(self.network, [self._reader.make_questions(state) for state in states])

    def store(self, game: int, before: int, action: int, after: ReadState, reward: float, ended: bool) -> None:
        """Store a transition. No value follows the end of an episode, not even one that the step limit ended, as in the
        authors' program, nor a state without actions."""
        clipped = float(np.sign(reward))
        self._outcomes[game] += clipped
        terminal = ended or after.actions == self._state_ids.action_sets.none
        self.memory.add(game, (before, action, after.text, after.actions, clipped, terminal))
        if ended:
            self.memory.end_episode(game, self._outcomes[game])
            self._outcomes[game] = 0.0

    def update(self) -> Mapping[str, float]:
        """Make one update and return its losses; nothing while the memory has fewer rows than a batch."""
        if not self.memory.is_ready:
            return {}
        batch = self.memory.sample()
        rewards, terminal = (torch.from_numpy(batch[name].copy()).to(self._device) for name in ("reward", "terminal"))
        next_values = torch.from_numpy(self._compute_next_values(batch)).to(self._device)
        pairs = zip(batch["text"].tolist(), batch["action"].tolist(), strict=True)
        q = self.network(self._reader.build_reading([self._reader.make_single_questions(*pair) for pair in pairs]))
        loss = td_loss(q, rewards, next_values, terminal, self._settings.gamma)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._settings.clip, foreach=True)
        self._optimiser.step()
        self.updates += 1
        if self.updates % self._settings.target_every == 0:
            self.target.load_state_dict(self.network.state_dict())
            self._values = {}
        return {
            "loss_td": float(loss.detach()),
            "q": float(q.detach().mean()),
            "reward": float(rewards.mean()),
            "gradient_norm": float(norm),
        }

    def _compute_next_values(self, batch: NDArray[np.void]) -> Floats:
        """Return max_a' Q_target(o', a') of each row, [n]; 0 where the episode ended."""
        states = list(map(ReadState, batch["next_text"].tolist(), batch["next_actions"].tolist()))
        not_ended = [state for state, ended in zip(states, batch["terminal"], strict=True) if not ended]
        missing = [state for state in dict.fromkeys(not_ended) if state not in self._values]
        values = self._evaluate(self.target, [self._reader.make_questions(state) for state in missing])
        self._values.update(zip(missing, (float(v.max()) for v in values), strict=True))
        return np.array([0.0 if end else self._values[s] for s, end in zip(states, batch["terminal"], strict=True)],
                        np.float32)  # fmt: skip

    @torch.no_grad()
    def _evaluate(self, network: RcNetwork, questions: Sequence[StateQuestions]) -> list[Floats]:
        """Return the values of the actions of each. Texts of similar length are computed together, for little
        padding."""
        lengths = [int(self._state_ids.texts.rows.lengths[a.text]) for a in questions]
        order = sorted(range(len(questions)), key=lengths.__getitem__)
        found: dict[int, Floats] = {}
        group: list[int] = []
        pairs = 0
        for place in order:
            more = len(questions[place].questions)
            if group and (pairs + more) * lengths[place] > TOKENS_AT_ONCE:
                found.update(self._evaluate_together(network, questions, group))
                group, pairs = [], 0
            group.append(place)
            pairs += more
        if group:
            found.update(self._evaluate_together(network, questions, group))
        return [found[place] for place in range(len(questions))]

    def _evaluate_together(
        self, network: RcNetwork, questions: Sequence[StateQuestions], group: list[int]
    ) -> dict[int, Floats]:
        chosen = [questions[place] for place in group]
        values = network(self._reader.build_reading(chosen)).cpu().numpy()
        ends = list(accumulate(len(a.which) for a in chosen))
        return dict(zip(group, np.split(values, ends[:-1]), strict=True))

    # --- keeping ------------------------------------------------------------------------------------------------

    def drop_unused(self, current: Sequence[ReadState]) -> None:
        """Delete from the library what neither the memory nor the current states use."""
        self._state_ids.drop_unused(
            np.concatenate((self.memory.list_live_texts(("text", "action", "next_text")), [s.text for s in current])),
            np.concatenate((self.memory.list_live_texts(("next_actions",)), [s.actions for s in current])),
        )
        self._reader.clear_cache()
        self._values = {}

    def state(self) -> State:
        """Return everything for `load`. The target's cached values are saved because recomputing a value in another
        batch may change its last bits, and a resumed run must continue exactly."""
        return {
            "network": copy_module_state(self.network),
            "target": copy_module_state(self.target),
            "optimiser": copy_optimiser_state(self._optimiser),
            "memory": self.memory.state(),
            "outcomes": self._outcomes.copy(),
            "states": np.array(list(self._values), np.int64).reshape(-1, 2),
            "values": np.array(list(self._values.values()), np.float64),
            "updates": self.updates,
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        load_module(self.network, state["network"])
        load_module(self.target, state["target"])
        load_optimiser(self._optimiser, state["optimiser"])
        self.memory.load(state["memory"])
        self._outcomes = state["outcomes"].copy()
        states = [ReadState(*pair) for pair in state["states"].tolist()]
        self._values = dict(zip(states, state["values"].tolist(), strict=True))
        self.updates = state["updates"]
        self._reader.clear_cache()
