"""DRRN and INV-DY: a softmax over learned Q-values at every step, and one update per vector step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from xtx.agents.policy import draw, draw_known, softmax
from xtx.agents.q_learner import QLearner
from xtx.agents.states import Library, Seen
from xtx.config import DrrnSettings, InvDySettings
from xtx.core import Agent, Brief, Decision, Insight, Observation, State, Transition


class QAgent(Agent):
    """Either of them: with inverse dynamics it is INV-DY, without DRRN."""

    def __init__(self, settings: DrrnSettings | InvDySettings, brief: Brief) -> None:
        super().__init__(settings, brief)
        self._clock = brief.clock
        self._temperature = settings.q.temperature
        self._limit = settings.episode_limit
        inverse = settings.inverse if isinstance(settings, InvDySettings) else None
        self._library = Library(settings.text)
        self._learner = QLearner(
            settings.q, inverse, self._library, brief.games, brief.seed, torch.device(brief.device)
        )  # fmt: skip
        self._random = np.random.default_rng(brief.seed)
        self._spare = np.random.default_rng(brief.seed)
        """To see what it will draw."""
        self._states: list[Seen] = []
        self._glimpsed: dict[str, float] | None = None
        """The numbers of `glimpse`, until `learn`."""

    @property
    def episode_limit(self) -> int:
        """Always the same."""
        return self._limit

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """Drawn from the softmax of the Q-values."""
        with self._clock.part("tokenising"):
            self._states = [self._library.see(o) for o in observations]
        with self._clock.part("acting: Q"):
            values = self._learner.q_values(self._states)
        return [
            Decision(o.actions[draw(self._random, softmax(q, self._temperature))])
            for o, q in zip(observations, values, strict=True)
        ]

    def foresee(self, observations: Sequence[Observation]) -> Mapping[int, str]:
        """What `act` would answer with the networks as they are now, and the random numbers that come next."""
        random = self._spare
        random.bit_generator.state = self._random.bit_generator.state
        known = [game for game, observation in enumerate(observations) if observation.actions]
        with self._learner.in_passing():
            values = self._learner.q_values([self._library.see(observations[game]) for game in known])
        chances = {game: softmax(q, self._temperature) for game, q in zip(known, values, strict=True)}
        drawn = draw_known(random, chances, len(observations))
        return {game: observations[game].actions[index] for game, index in drawn.items()}

    def glimpse(self, transitions: Sequence[Transition]) -> None:
        """Intrinsic reward, storing, and the update unless it draws one of these transitions."""
        with self._clock.part("tokenising"):
            actions = [self._library.texts.id(t.decision.action) for t in transitions]
            after = [self._library.glimpse(t.after, t.ended, i) for i, t in enumerate(transitions)]
        with self._clock.part("intrinsic reward, storing"):
            bonus = self._learner.remember(transitions, self._states, actions, after)
        with self._clock.part("update"):
            self._glimpsed = {**self._learner.update(), "intrinsic_reward": bonus}

    def learn(self, transitions: Sequence[Transition]) -> Mapping[str, float]:
        """The losses of one update, after all of `glimpse`."""
        if self._glimpsed is None:
            self.glimpse(transitions)
        numbers, self._glimpsed = self._glimpsed or {}, None
        with self._clock.part("tokenising"):
            after = [self._library.see(t.after) for t in transitions]
        with self._clock.part("update"):
            numbers |= self._learner.complete(transitions, after)
        if self._library.crowded():
            self._learner.sweep(after)
        return numbers

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """The softmax of the Q-values."""
        with self._learner.in_passing():
            [values] = self._learner.q_values([self._library.see(observation)])
        chances = softmax(values, self._temperature)
        return Insight(dict(zip(observation.actions, chances.tolist(), strict=True)))

    def describe(self) -> Mapping[str, float]:
        """What was met so far."""
        return self._library.describe()

    def state(self) -> State:
        """Networks, memory, texts and random numbers."""
        return {
            "library": self._library.state(),
            "learner": self._learner.state(),
            "random": self._random.bit_generator.state,
        }

    def load(self, state: State) -> None:
        """Goes on exactly."""
        self._library.load(state["library"])
        self._learner.load(state["learner"])
        self._random.bit_generator.state = state["random"]


class DrrnAgent(QAgent):
    """Deep reinforcement relevance network: TD loss only."""

    Settings = DrrnSettings


class InvDyAgent(QAgent):
    """Inverse dynamics as a second loss and as intrinsic reward."""

    Settings = InvDySettings
