"""The agents DRRN and INV-DY: a softmax over learned Q-values at every step, and one update per vector step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from xtx.agents.action_choice import draw, draw_known, softmax
from xtx.agents.q_learning.learner import QLearner
from xtx.agents.state_ids import EncodedState, StateIds
from xtx.config.settings import DrrnSettings, InvDySettings
from xtx.core import Agent, Brief, Decision, Insight, Observation, State, Transition


class QAgent(Agent):
    """Base of both agents: DRRN, or with inverse dynamics INV-DY."""

    def __init__(self, settings: DrrnSettings | InvDySettings, brief: Brief) -> None:
        super().__init__(settings, brief)
        self._clock = brief.clock
        self._temperature = settings.q.temperature
        self._limit = settings.episode_limit
        inverse = settings.inverse if isinstance(settings, InvDySettings) else None
        self._state_ids = StateIds(settings.text)
        self._learner = QLearner(
            settings.q, inverse, self._state_ids, brief.num_envs, brief.seed, torch.device(brief.device)
        )  # fmt: skip
        self._random = np.random.default_rng(brief.seed)
        self._preview_random = np.random.default_rng(brief.seed)
        """Set to the state of `_random` to preview its next numbers."""
        self._states: list[EncodedState] = []
        self._early_numbers: dict[str, float] | None = None
        """What `glimpse` returned for the log, until `learn` takes it."""

    @property
    def episode_limit(self) -> int:
        """Steps of an episode: constant, from the settings."""
        return self._limit

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """Draw an action for each game from the softmax of its Q-values."""
        with self._clock.part("tokenising"):
            self._states = [self._state_ids.encode(o) for o in observations]
        with self._clock.part("acting: Q"):
            values = self._learner.q_values(self._states)
        return [
            Decision(o.actions[draw(self._random, softmax(q, self._temperature))])
            for o, q in zip(observations, values, strict=True)
        ]

    def foresee(self, observations: Sequence[Observation]) -> Mapping[int, str]:
        """Return what `act` would answer with the current weights and the next random numbers, for games whose actions
        are known."""
        random = self._preview_random
        random.bit_generator.state = self._random.bit_generator.state
        known = [game for game, observation in enumerate(observations) if observation.actions]
        with self._learner.restore_afterwards():
            values = self._learner.q_values([self._state_ids.encode(observations[game]) for game in known])
        chances = {game: softmax(q, self._temperature) for game, q in zip(known, values, strict=True)}
        drawn = draw_known(random, chances, len(observations))
        return {game: observations[game].actions[index] for game, index in drawn.items()}

    def glimpse(self, transitions: Sequence[Transition]) -> None:
        """Compute the intrinsic reward, store the transitions, and update, unless the batch contains one of them."""
        with self._clock.part("tokenising"):
            actions = [self._state_ids.texts.id(t.decision.action) for t in transitions]
            after = [self._state_ids.encode_without_actions(t.after, t.ended, i) for i, t in enumerate(transitions)]
        with self._clock.part("intrinsic reward, storing"):
            bonus = self._learner.store(transitions, self._states, actions, after)
        with self._clock.part("update"):
            self._early_numbers = {**self._learner.update(), "intrinsic_reward": bonus}

    def learn(self, transitions: Sequence[Transition]) -> Mapping[str, float]:
        """Finish what `glimpse` began, and return the losses of one update."""
        if self._early_numbers is None:
            self.glimpse(transitions)
        numbers, self._early_numbers = self._early_numbers or {}, None
        with self._clock.part("tokenising"):
            after = [self._state_ids.encode(t.after) for t in transitions]
        with self._clock.part("update"):
            numbers |= self._learner.complete(transitions, after)
        if self._state_ids.is_crowded():
            self._learner.drop_unused(after)
        return numbers

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """Return the softmax of the Q-values of a state."""
        with self._learner.restore_afterwards():
            [values] = self._learner.q_values([self._state_ids.encode(observation)])
        chances = softmax(values, self._temperature)
        return Insight(dict(zip(observation.actions, chances.tolist(), strict=True)))

    def describe(self) -> Mapping[str, float]:
        """Return how many words, texts and action sets were met, for the log."""
        return self._state_ids.describe()

    def state(self) -> State:
        """Return networks, memory, texts and random state for `load`."""
        return {
            "library": self._state_ids.state(),
            "learner": self._learner.state(),
            "random": self._random.bit_generator.state,
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned, so that the run continues exactly."""
        self._state_ids.load(state["library"])
        self._learner.load(state["learner"])
        self._random.bit_generator.state = state["random"]


class DrrnAgent(QAgent):
    """Deep reinforcement relevance network (He et al. 2016): Q-learning with the TD loss only."""

    Settings = DrrnSettings


class InvDyAgent(QAgent):
    """DRRN with inverse dynamics (Yao et al. 2021) as a second loss and as intrinsic reward."""

    Settings = InvDySettings
