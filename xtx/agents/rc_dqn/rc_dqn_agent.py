"""The agents RC-DQN and MPRC-DQN (Guo et al. 2020): acting as reading comprehension.

Exploration is epsilon-greedy and prefers actions whose templates were used seldom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.action_choice import draw, softmax
from xtx.agents.rc_dqn.action_templates import find_object_words
from xtx.agents.rc_dqn.learner import RcLearner
from xtx.agents.rc_dqn.object_history import ObjectHistory
from xtx.agents.rc_dqn.reading_inputs import PassageReader, ReadState, format_observation, prepend_past
from xtx.agents.state_ids import StateIds
from xtx.config.settings import RcDqnSettings
from xtx.core import FALLBACK_ACTIONS, Agent, Brief, Decision, Insight, Observation, State, Transition


def compute_epsilon(settings: RcDqnSettings, steps: int) -> float:
    """Return the probability of exploring after a number of game steps."""
    fading = math.exp(-steps / settings.epsilon_decay)
    return settings.epsilon_end + (settings.epsilon_start - settings.epsilon_end) * fading


def compute_exploration(counts: Sequence[int]) -> NDArray[np.float64]:
    """Return the probabilities of actions by the counts of their templates, from 1: softmax of log(2 * sum) / count."""
    used = np.array(counts, np.float64)
    return softmax(np.log(2 * used.sum()) / used)


def is_stuck(observation: Observation) -> bool:
    """Return whether no valid action was found, which ends the episode.

    The first observation never counts as stuck: a game without valid actions there could not be played at all.
    """
    return observation.actions == FALLBACK_ACTIONS and observation.step > 0


class RcDqnAgent(Agent):
    """RC-DQN, or with the setting `history` MPRC-DQN."""

    Settings = RcDqnSettings

    def __init__(self, settings: RcDqnSettings, brief: Brief) -> None:
        super().__init__(settings, brief)
        self._state_ids = StateIds(settings.text)
        self._reader = PassageReader(settings, self._state_ids)
        self._learner = RcLearner(
            settings, self._state_ids, self._reader, brief.num_envs, brief.seed, torch.device(brief.device)
        )
        self._random = np.random.default_rng(brief.seed)
        self._histories = [ObjectHistory(settings.history_window) for _ in range(brief.num_envs)]
        self._used: dict[str, int] = {}  # by template, how often it was used
        self._steps = 0
        self._states: list[ReadState] = []
        self._stuck = [False] * brief.num_envs

    @property
    def episode_limit(self) -> int:
        """Steps of an episode: constant, from the settings."""
        limit: int = self.settings.episode_limit
        return limit

    def limit_of(self, game: int) -> int:
        """Return 0, which ends the episode with the next step, where no valid action was found; else `episode_limit`.

        Nothing is learned from that step: for the learner the episode has ended before it.
        """
        return 0 if self._stuck[game] else self.episode_limit

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """Return the best of the first `most_actions` actions, or with probability epsilon an exploring one."""
        self._stuck = [is_stuck(observation) for observation in observations]
        self._states = [self._read_arrival(game, observation) for game, observation in enumerate(observations)]
        seen = list(zip(observations, self._states, strict=True))
        chosen = [self._explore(observation, state) for observation, state in seen]
        # The values of all games are computed in one call. They need no random numbers, so those above are drawn in the
        # order of the games.
        greedy = [state for state, action in zip(self._states, chosen, strict=True) if action is None]
        best = iter(self._learner.q_values(greedy))
        return [
            Decision(observation.actions[int(next(best).argmax())] if action is None else action)
            for observation, action in zip(observations, chosen, strict=True)
        ]

    def learn(self, transitions: Sequence[Transition]) -> Mapping[str, float]:
        """Store the transitions, make one update and return its losses."""
        after = []
        for t, before in zip(transitions, self._states, strict=True):
            # No value follows the end of an episode, so its last state is not needed.
            ended = t.ended or is_stuck(t.after)
            state = before if ended else self._see(t.after, self._histories[t.game])
            after.append(state)
            if self._stuck[t.game]:
                continue
            action = self._state_ids.texts.id(t.decision.action)
            template = self._reader.find_passage(before.text).make_question(t.decision.action).template
            self._used[template] = self._used.get(template, 0) + 1
            self._learner.store(t.game, before.text, action, state, t.reward, ended)
        self._steps += len(transitions)
        numbers = self._learner.update()
        if self._state_ids.is_crowded():
            self._learner.drop_unused(after)
        return numbers

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """Return the epsilon-greedy probabilities. The earlier observations of the episode are not available here, so
        MPRC-DQN answers without its history."""
        exploring = compute_epsilon(self.settings, self._steps)
        with self._reader.restore_afterwards():
            state = self._see(observation, ObjectHistory())
            chances = exploring * compute_exploration(self._count_templates(observation, state))
            chances[int(self._learner.q_values([state])[0].argmax())] += 1 - exploring
        return Insight(dict(zip(observation.actions, chances.tolist(), strict=True)))

    def describe(self) -> Mapping[str, float]:
        """Return the numbers of words, texts and templates, and epsilon, for the log."""
        return {
            **self._state_ids.describe(),
            "templates": len(self._used),
            "epsilon": compute_epsilon(self.settings, self._steps),
        }

    def _read_arrival(self, game: int, observation: Observation) -> ReadState:
        """Return the state of an observation, and add it to the game's history."""
        history = self._histories[game]
        if observation.step == 0:
            history.load((), ())
        state = self._see(observation, history)
        if self.settings.history:
            history.add(observation.look, _find_objects(observation))
        return state

    def _explore(self, observation: Observation, state: ReadState) -> str | None:
        """Draw an exploring action with probability epsilon; None otherwise."""
        if self._random.random() >= compute_epsilon(self.settings, self._steps):
            return None
        return observation.actions[draw(self._random, compute_exploration(self._count_templates(observation, state)))]

    def _count_templates(self, observation: Observation, state: ReadState) -> list[int]:
        """Return for each valid action 1 + how often its template was used."""
        passage = self._reader.find_passage(state.text)
        return [1 + self._used.get(passage.make_question(action).template, 0) for action in observation.actions]

    def _see(self, observation: Observation, history: ObjectHistory) -> ReadState:
        """Return the state of an observation, read together with what the history recalls."""
        text = format_observation(observation)
        if history.looks:
            text = prepend_past(text, history.recall(_find_objects(observation)), self._reader.words)
        number = self._state_ids.texts.id(text)  # before the actions, so that ids are given in this order
        actions = [self._state_ids.texts.id(action) for action in observation.actions]
        return ReadState(number, self._state_ids.action_sets.id(actions))

    def state(self) -> State:
        """Return networks, memory, texts, counts, histories and random state for `load`."""
        return {
            "library": self._state_ids.state(),
            "learner": self._learner.state(),
            "random": self._random.bit_generator.state,
            "histories": [history.looks for history in self._histories],
            "history_objects": [history.objects for history in self._histories],
            "templates": list(self._used),
            "used": np.array(list(self._used.values()), np.int64),
            "steps": self._steps,
        }

    def load(self, state: State) -> None:
        """Goes on exactly."""
        self._state_ids.load(state["library"])
        self._learner.load(state["learner"])
        self._random.bit_generator.state = state["random"]
        # Checkpoints of earlier versions have no objects; such an episode continues as if none had been seen.
        unknown = [[()] * len(looks) for looks in state["histories"]]
        objects = state.get("history_objects", unknown)
        for history, looks, names in zip(self._histories, state["histories"], objects, strict=True):
            history.load(looks, names)
        self._used = dict(zip(state["templates"], state["used"].tolist(), strict=True))
        self._steps = state["steps"]


def _find_objects(observation: Observation) -> set[str]:
    """Return the object words in the valid actions."""
    return {word for action in observation.actions for word in find_object_words(action)}
