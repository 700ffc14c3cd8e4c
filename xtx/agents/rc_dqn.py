"""RC-DQN and MPRC-DQN (Guo et al. 2020): acting as reading comprehension, with epsilon-greedy exploration that prefers
templates it has seldom used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.object_history import ObjectHistory
from xtx.agents.policy import draw, softmax
from xtx.agents.questions import find_object_words
from xtx.agents.rc_learner import RcLearner
from xtx.agents.rc_reading import Read, Reader, present, with_past
from xtx.agents.states import Library
from xtx.config import RcDqnSettings
from xtx.core import FALLBACK_ACTIONS, Agent, Brief, Decision, Insight, Observation, State, Transition


def epsilon(settings: RcDqnSettings, steps: int) -> float:
    """The probability of exploring after so many game steps."""
    fading = math.exp(-steps / settings.epsilon_decay)
    return settings.epsilon_end + (settings.epsilon_start - settings.epsilon_end) * fading


def exploration(counts: Sequence[int]) -> NDArray[np.float64]:
    """Probabilities of actions by how often their templates were used, from 1: softmax of log(2 * sum) / count."""
    used = np.array(counts, np.float64)
    return softmax(np.log(2 * used.sum()) / used)


def is_stuck(observation: Observation) -> bool:
    """Whether no valid action was found, which ends an episode. Not where it begins: a game in which nothing can be
    done at first would never be played."""
    return observation.actions == FALLBACK_ACTIONS and observation.step > 0


class RcDqnAgent(Agent):
    """Either of them: with history it is MPRC-DQN."""

    Settings = RcDqnSettings

    def __init__(self, settings: RcDqnSettings, brief: Brief) -> None:
        super().__init__(settings, brief)
        self._library = Library(settings.text)
        self._reader = Reader(settings, self._library)
        self._learner = RcLearner(
            settings, self._library, self._reader, brief.games, brief.seed, torch.device(brief.device)
        )
        self._random = np.random.default_rng(brief.seed)
        self._histories = [ObjectHistory(settings.history_window) for _ in range(brief.games)]
        self._used: dict[str, int] = {}  # templates, by how often
        self._steps = 0
        self._states: list[Read] = []
        self._stuck = [False] * brief.games

    @property
    def episode_limit(self) -> int:
        """Always the same."""
        limit: int = self.settings.episode_limit
        return limit

    def limit_of(self, game: int) -> int:
        """The same, but where no valid action was found the episode ends with the step that is taken now. Nothing is
        learned from that step: for the learner the episode has ended before it."""
        return 0 if self._stuck[game] else self.episode_limit

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """The best of the first actions, or with probability epsilon one of a seldom used template."""
        self._stuck = [is_stuck(observation) for observation in observations]
        self._states = [self._arrive(game, observation) for game, observation in enumerate(observations)]
        seen = list(zip(observations, self._states, strict=True))
        chosen = [self._explore(observation, state) for observation, state in seen]
        # The values of all games in one go; they need no random numbers, so those are drawn in the games' order.
        greedy = [state for state, action in zip(self._states, chosen, strict=True) if action is None]
        best = iter(self._learner.q_values(greedy))
        return [
            Decision(observation.actions[int(next(best).argmax())] if action is None else action)
            for observation, action in zip(observations, chosen, strict=True)
        ]

    def learn(self, transitions: Sequence[Transition]) -> Mapping[str, float]:
        """The losses, after storing the transitions and one update."""
        after = []
        for t, before in zip(transitions, self._states, strict=True):
            # Nothing is expected after the end, so nothing needs to be known of it.
            ended = t.ended or is_stuck(t.after)
            state = before if ended else self._see(t.after, self._histories[t.game])
            after.append(state)
            if self._stuck[t.game]:
                continue
            action = self._library.texts.id(t.decision.action)
            template = self._reader.passage(before.text).ask(t.decision.action).template
            self._used[template] = self._used.get(template, 0) + 1
            self._learner.remember(t.game, before.text, action, state, t.reward, ended)
        self._steps += len(transitions)
        numbers = self._learner.update()
        if self._library.crowded():
            self._learner.sweep(after)
        return numbers

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """Epsilon-greedy probabilities. What was seen earlier in the episode is not known here, so MPRC-DQN answers
        without its history."""
        exploring = epsilon(self.settings, self._steps)
        with self._reader.in_passing():
            state = self._see(observation, ObjectHistory())
            chances = exploring * exploration(self._counts(observation, state))
            chances[int(self._learner.q_values([state])[0].argmax())] += 1 - exploring
        return Insight(dict(zip(observation.actions, chances.tolist(), strict=True)))

    def describe(self) -> Mapping[str, float]:
        """What was met so far, and how much is explored."""
        return {
            **self._library.describe(),
            "templates": len(self._used),
            "epsilon": epsilon(self.settings, self._steps),
        }

    def _arrive(self, game: int, observation: Observation) -> Read:
        """The state, which then is part of the game's history."""
        history = self._histories[game]
        if observation.step == 0:
            history.load((), ())
        state = self._see(observation, history)
        if self.settings.history:
            history.add(observation.look, _objects(observation))
        return state

    def _explore(self, observation: Observation, state: Read) -> str | None:
        """With probability epsilon an action to explore."""
        if self._random.random() >= epsilon(self.settings, self._steps):
            return None
        return observation.actions[draw(self._random, exploration(self._counts(observation, state)))]

    def _counts(self, observation: Observation, state: Read) -> list[int]:
        passage = self._reader.passage(state.text)
        return [1 + self._used.get(passage.ask(action).template, 0) for action in observation.actions]

    def _see(self, observation: Observation, history: ObjectHistory) -> Read:
        text = present(observation)
        if history.looks:
            text = with_past(text, history.recall(_objects(observation)), self._reader.words)
        number = self._library.texts.id
        return Read(number(text), self._library.action_sets.id([number(action) for action in observation.actions]))

    def state(self) -> State:
        """Networks, memory, texts, counts, histories and random numbers."""
        return {
            "library": self._library.state(),
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
        self._library.load(state["library"])
        self._learner.load(state["learner"])
        self._random.bit_generator.state = state["random"]
        # Earlier versions kept no objects; such an episode goes on as if none had been seen.
        unknown = [[()] * len(looks) for looks in state["histories"]]
        objects = state.get("history_objects", unknown)
        for history, looks, names in zip(self._histories, state["histories"], objects, strict=True):
            history.load(looks, names)
        self._used = dict(zip(state["templates"], state["used"].tolist(), strict=True))
        self._steps = state["steps"]


def _objects(observation: Observation) -> set[str]:
    """The words for objects in the valid actions."""
    return {word for action in observation.actions for word in find_object_words(action)}
