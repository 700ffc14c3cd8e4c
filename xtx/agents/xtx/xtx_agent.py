"""The agent XTX (Tuyls et al. 2022): returns to promising states by imitating its best trajectories, then explores.

A `ReturnTarget` is the return target of an episode: the score that it tries to reach again, and how many steps it may
take. By default all episodes share one; with `own_targets` each episode draws one of the imitated trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.action_choice import draw, draw_known, softmax, uniform
from xtx.agents.q_learning.learner import QLearner
from xtx.agents.state_ids import EncodedState, StateIds
from xtx.agents.xtx.imitation import ImitationPolicy
from xtx.agents.xtx.retrace import TrajectoryReplay
from xtx.config.settings import XtxSettings
from xtx.core import Agent, Brief, Clock, Decision, Insight, Observation, State, Transition
from xtx.memory import StoredEpisode, TrajectoryStore

EXPLOIT, EXPLORE = "exploit", "explore"
"""The phases: while it returns, an episode follows the imitation policy, then the Q-learner."""


@dataclass(frozen=True)
class ReturnTarget:
    """The return target of episodes: the initial one has score 0, so that every episode explores from the start."""

    target_score: int = 0
    """M: the highest score among the imitated trajectories; with `own_targets` the score of the episode's own."""
    l_max: int = 0
    """Length of the longest imitated trajectory; with `own_targets` that of the episode's own."""
    trajectory: int = -1
    """Index of an imitated trajectory that leads to that score; -1 before the first imitation training."""

    def choose_phase(self, observation: Observation) -> str:
        """Return the phase of the next step, from the current score and step alone: an episode that loses points
        before step `l_max` returns to `exploit`."""
        returning = observation.score < self.target_score and observation.step < self.l_max
        return EXPLOIT if returning else EXPLORE


class XtxAgent(Agent):
    """XTX and its ablations; the settings say which."""

    Settings = XtxSettings

    def __init__(self, settings: XtxSettings, brief: Brief) -> None:
        super().__init__(settings, brief)
        if settings.imitation.width % settings.imitation.heads:
            raise ValueError("the imitation policy's width must be a multiple of its heads")
        self._settings = settings
        self._clock = brief.clock
        device = torch.device(brief.device)
        self._state_ids = StateIds(settings.text)
        self._learner = (
            None
            if settings.uniform
            else QLearner(settings.q, settings.inverse, self._state_ids, brief.num_envs, brief.seed, device)
        )
        self._imitation = ImitationPolicy(
            settings.imitation, self._state_ids.texts, settings.text.vocabulary, seed=brief.seed, device=device
        )
        tried = settings.trajectories
        self._trajectories = TrajectoryStore(
            tried.reservoir, tried.beta1, tried.beta2, tried.k, brief.seed, floor=tried.floor
        )
        self._random = np.random.default_rng(brief.seed)
        self._preview_random = np.random.default_rng(brief.seed)
        """Set to the state of `_random` to preview its next numbers."""
        self._plan = ReturnTarget()
        self._trajectory_targets = [ReturnTarget()]
        """One target for each imitated trajectory."""
        self._replays: list[TrajectoryReplay] = []
        """The imitated trajectories themselves, with the setting `retrace`."""
        self._episode_targets = [ReturnTarget()] * brief.num_envs
        """By game, the target of its current episode, with the setting `own_targets`."""
        self._vector_steps = 0
        self._next_training = settings.first_training
        self._ended = 0
        """Episodes since the last imitation training."""
        self._states: list[EncodedState] = []
        self._early_numbers: dict[str, float] | None = None
        """What `glimpse` returned for the log, until `learn` takes it."""
        self._replayed_share: float | None = None
        """Share of the games in `exploit` in the last `act` whose action came from a stored trajectory."""
        self._previous = [(-1, -1)] * brief.num_envs
        """By game, the text ids of the last two actions of its episode; -1 before the episode began."""
        self._episodes = [_CurrentEpisode() for _ in range(brief.num_envs)]

    @property
    def episode_limit(self) -> int:
        """T = l_max + R; a new plan changes it also for episodes that have begun."""
        return self._plan.l_max + self._settings.explore_steps

    def limit_of(self, game: int) -> int:
        """Return the limit of a game's episode: with `own_targets` the length of its own trajectory + R."""
        return self._get_target(game).l_max + self._settings.explore_steps

    # --- acting -------------------------------------------------------------------------------------------------

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """Draw an action for each game, from the imitation policy or the exploring policy by phase and mixture."""
        with self._clock.part("tokenising"):
            self._states = [self._state_ids.encode(o) for o in observations]
        for game, observation in enumerate(observations):
            if observation.step == 0:
                self._previous[game] = (-1, -1)
                self._draw_target(game)
        shares = [self._explore_share(o, self._get_target(game)) for game, o in enumerate(observations)]
        exploring = [share >= 1 or self._random.random() < share for share in shares]
        replayed = [
            None if exploring[game] else self._replay(self._states[game], observation.step, self._get_target(game))
            for game, observation in enumerate(observations)
        ]
        returning = exploring.count(False)
        self._replayed_share = sum(known is not None for known in replayed) / returning if returning else None
        chances = self._compute_chances(self._states, self._previous, exploring, replayed, self._clock)
        decisions = []
        for game, observation in enumerate(observations):
            action = observation.actions[draw(self._random, chances[game])]
            drawn = EXPLORE if exploring[game] else EXPLOIT
            phase = self._get_target(game).choose_phase(observation) if self._settings.phases else drawn
            decisions.append(Decision(action, phase))
            self._previous[game] = (self._previous[game][1], self._state_ids.texts.id(action))
        return decisions

    def foresee(self, observations: Sequence[Observation]) -> Mapping[int, str]:
        """Return what `act` would answer with the current weights, plan and next random numbers, for games that explore
        and whose actions are known. States on the way of an imitated trajectory are mostly in the atlas already."""
        random = self._preview_random
        random.bit_generator.state = self._random.bit_generator.state
        targets = [self._get_target(game) for game in range(len(observations))]
        for game, observation in enumerate(observations):
            if self._settings.own_targets and observation.step == 0:
                targets[game] = self._trajectory_targets[int(random.integers(len(self._trajectory_targets)))]
        shares = [self._explore_share(o, target) for o, target in zip(observations, targets, strict=True)]
        exploring = [share >= 1 or random.random() < share for share in shares]
        known = [game for game, o in enumerate(observations) if o.actions and exploring[game]]
        if not known:
            return {}
        with self._state_ids.restore_afterwards() if self._learner is None else self._learner.restore_afterwards():
            found = self._explore([self._state_ids.encode(observations[game]) for game in known])
        chances = dict(zip(known, found, strict=True))
        drawn = draw_known(random, chances, len(observations))
        return {game: observations[game].actions[index] for game, index in drawn.items()}

    def _draw_target(self, game: int) -> None:
        """Draw the target of the game's new episode, with the setting `own_targets`."""
        if self._settings.own_targets:
            drawn = int(self._random.integers(len(self._trajectory_targets)))
            self._episode_targets[game] = self._trajectory_targets[drawn]

    def _get_target(self, game: int) -> ReturnTarget:
        """Return the target of the game's current episode."""
        return self._episode_targets[game] if self._settings.own_targets else self._plan

    def _explore_share(self, observation: Observation, target: ReturnTarget) -> float:
        """Return lambda, the probability that the exploring policy chooses in this state.

        In the phase `exploit` it is mix / l_max, as in the authors' program, or mix / T, which with a mix of 0.5 is the
        paper's 1 / (2 T).
        """
        if not self._settings.phases:
            return self._settings.mix
        if target.choose_phase(observation) == EXPLORE:
            return 1.0
        beyond = self._settings.explore_steps if self._settings.mix_over == "limit" else 0
        return self._settings.mix / (target.l_max + beyond)

    def _replay(self, state: EncodedState, step: int, target: ReturnTarget) -> NDArray[np.float64] | None:
        """Return probability 1 for the action that the target's trajectory took in this state.

        None without the setting `retrace`, if the trajectory was never in this state, or if its action is not valid
        now.
        """
        if not 0 <= target.trajectory < len(self._replays):
            return None
        action = self._replays[target.trajectory].find_action(state, step)
        certain = self._state_ids.list_actions([state])[0] == (-1 if action is None else action)
        return certain.astype(np.float64) if certain.any() else None

    def _compute_chances(
        self,
        states: Sequence[EncodedState],
        previous: Sequence[tuple[int, int]],
        exploring: Sequence[bool],
        replayed: Sequence[NDArray[np.float64] | None],
        clock: Clock,
    ) -> dict[int, NDArray[np.float64]]:
        """Return the probabilities of each state's actions, by the state's index.

        exploring: for each state, whether the exploring policy chooses; replayed: the probabilities that a stored
        trajectory gives for states in which it does not, or None. Each policy computes its own states only.
        """
        chances = {place: known for place, known in enumerate(replayed) if known is not None}
        explorers = [place for place, explores in enumerate(exploring) if explores]
        returning = [place for place, explores in enumerate(exploring) if not explores and place not in chances]
        contexts = [(*previous[place], *states[place][:3]) for place in returning]
        lists = [actions.tolist() for actions in self._state_ids.list_actions([states[place] for place in returning])]
        with clock.part("acting: imitation"):
            imitated = self._imitation.start(contexts, lists)
        if explorers:
            with clock.part("acting: Q"):
                explored = self._explore([states[place] for place in explorers])
            chances.update(zip(explorers, explored, strict=True))
        with clock.part("acting: imitation"):
            chances.update(zip(returning, imitated(), strict=True))
        return chances

    def _explore(self, states: Sequence[EncodedState]) -> list[NDArray[np.float64]]:
        """Return the exploring policy's probabilities: the softmax of the Q-values, or uniform ones."""
        if self._learner is None:
            return [uniform(len(actions)) for actions in self._state_ids.list_actions(states)]
        return [softmax(values, self._settings.q.temperature) for values in self._learner.q_values(states)]

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """Return the mixture of both policies in this state, under the shared plan."""
        share = min(1.0, self._explore_share(observation, self._plan))
        mixture = np.zeros(len(observation.actions))
        state_ids = self._learner if self._learner is not None else self._state_ids
        with state_ids.restore_afterwards(), self._imitation.restore_afterwards():
            state = self._state_ids.encode(observation)
            last = [-1, -1, *(self._state_ids.texts.id(action) for action in previous[-2:])][-2:]
            replayed = [self._replay(state, observation.step, self._plan)]
            for explores, weight in ((True, share), (False, 1 - share)):
                if weight > 0:
                    found = self._compute_chances([state], [(last[0], last[1])], [explores], replayed, Clock())
                    mixture += weight * found[0]
        phase = self._plan.choose_phase(observation) if self._settings.phases else ""
        return Insight(dict(zip(observation.actions, mixture.tolist(), strict=True)), phase)

    # --- learning -----------------------------------------------------------------------------------------------

    def glimpse(self, transitions: Sequence[Transition]) -> None:
        """Compute the intrinsic reward, store the transitions, and update, unless the batch contains one of them."""
        with self._clock.part("tokenising"):
            actions = [self._state_ids.texts.id(t.decision.action) for t in transitions]
            after = [self._state_ids.encode_without_actions(t.after, t.ended, i) for i, t in enumerate(transitions)]
        numbers = self._early_numbers = {}
        if self._learner is not None:
            with self._clock.part("intrinsic reward, storing"):
                numbers["intrinsic_reward"] = self._learner.store(transitions, self._states, actions, after)
        for transition, state, action in zip(transitions, self._states, actions, strict=True):
            running = self._episodes[transition.game]
            running.add(state, action, transition.after.score)
            if transition.ended:
                self._trajectories.add(running.finish(transition.terminated))
                self._ended += 1
        if self._learner is not None:
            with self._clock.part("update"):
                numbers |= self._learner.update()

    def learn(self, transitions: Sequence[Transition]) -> Mapping[str, float]:
        """Finish what `glimpse` began, train the imitation policy if it is time, and return the losses."""
        if self._early_numbers is None:
            self.glimpse(transitions)
        numbers, self._early_numbers = self._early_numbers or {}, None
        if self._settings.retrace and self._replayed_share is not None:
            numbers["retraced"] = self._replayed_share
        self._vector_steps += 1
        with self._clock.part("tokenising"):
            after = [self._state_ids.encode(t.after) for t in transitions]
        if self._learner is not None:
            with self._clock.part("update"):
                numbers |= self._learner.complete(transitions, after)
        if self._is_training_due():
            with self._clock.part("imitation training"):
                numbers |= self._imitate()
        if self._state_ids.is_crowded():
            self._drop_unused_texts(after)
        return numbers

    def _is_training_due(self) -> bool:
        """Whether it is time for an imitation training: by vector steps, as in the authors' program, or by episodes."""
        episodes = self._settings.training_every_episodes
        return self._ended >= episodes if episodes else self._vector_steps >= self._next_training

    def _imitate(self) -> dict[str, float]:
        """Draw trajectories, train the imitation policy on them, and make them the targets; returns the losses."""
        numbers: dict[str, float] = {}
        self._ended = 0
        buffer = self._trajectories.sample()
        if buffer is not None:
            if self._settings.phases or self._settings.mix < 1:  # otherwise the imitation policy is never used
                numbers = {
                    f"imitation_{name}": number for name, number in self._imitation.train(buffer.prefixes).items()
                }
            self._trajectory_targets = [
                ReturnTarget(score, len(prefix), index)
                for index, (score, prefix) in enumerate(zip(buffer.scores, buffer.prefixes, strict=True))
            ]
            best = max(self._trajectory_targets, key=lambda target: (target.target_score, -target.l_max))
            self._plan = ReturnTarget(buffer.target_score, buffer.l_max, best.trajectory)
            self._replays = [TrajectoryReplay(prefix) for prefix in buffer.prefixes] if self._settings.retrace else []
            for game in range(len(self._episode_targets)):  # the policy may no longer lead to the earlier targets
                self._draw_target(game)
        self._next_training = self._vector_steps + self._settings.training_every * self.episode_limit
        return numbers

    def describe(self) -> Mapping[str, float]:
        """Return the plan and the numbers of words and texts, for the log."""
        plan = {"target_score": self._plan.target_score, "l_max": self._plan.l_max, "episode_limit": self.episode_limit}
        return {**plan, **self._state_ids.describe()}

    # --- keeping ------------------------------------------------------------------------------------------------

    def _drop_unused_texts(self, current: Sequence[EncodedState]) -> None:
        """Delete from the library what neither memories, nor episodes, nor the current states use."""
        self._imitation.clear_cache()
        texts: list[NDArray[np.integer]] = [self._trajectories.list_live_texts(), np.array(self._previous).ravel()]
        texts += [running.list_rows().ravel() for running in self._episodes]
        texts += [replay.steps.ravel() for replay in self._replays]
        if self._learner is None:
            states = np.array(current, np.int32)
            self._state_ids.drop_unused(np.concatenate((*texts, states[:, :3].ravel())), states[:, 3])
        else:
            self._learner.drop_unused(current, np.concatenate(texts))

    def state(self) -> State:
        """Return everything for `load`."""
        return {
            "library": self._state_ids.state(),
            "learner": self._learner.state() if self._learner is not None else None,
            "imitation": self._imitation.state(),
            "trajectories": self._trajectories.state(),
            "random": self._random.bit_generator.state,
            "plan": astuple(self._plan),
            "targets": [astuple(target) for target in self._trajectory_targets],
            "ways": [replay.steps for replay in self._replays],
            "aims": [astuple(target) for target in self._episode_targets],
            "vector_steps": self._vector_steps,
            "train_at": self._next_training,
            "ended": self._ended,
            "previous": [list(pair) for pair in self._previous],
            "episodes": [running.state() for running in self._episodes],
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned, so that the run continues exactly."""
        self._state_ids.load(state["library"])
        if self._learner is not None:
            self._learner.load(state["learner"])
        self._imitation.load(state["imitation"])
        self._trajectories.load(state["trajectories"])
        self._random.bit_generator.state = state["random"]
        self._plan = ReturnTarget(*state["plan"])
        self._trajectory_targets = [ReturnTarget(*target) for target in state["targets"]]
        # Checkpoints of earlier versions have neither `ways` nor `ended`.
        self._replays = [TrajectoryReplay(steps) for steps in state.get("ways", ())]
        self._episode_targets = [ReturnTarget(*target) for target in state["aims"]]
        self._vector_steps, self._next_training = state["vector_steps"], state["train_at"]
        self._ended = state.get("ended", 0)
        self._previous = [(first, second) for first, second in state["previous"]]
        for running, saved in zip(self._episodes, state["episodes"], strict=True):
            running.load(saved)


class _CurrentEpisode:
    """The steps and scores so far of a game's current episode."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._scores: list[int] = []

    def add(self, state: EncodedState, action: int, score: int) -> None:
        """Add a step: the state, the text id of the action taken there, and the score afterwards."""
        self._rows.append((state.narration, state.look, state.inventory, action))
        self._scores.append(score)

    def finish(self, terminated: bool) -> StoredEpisode:
        """Return the whole episode, and begin another with the next step."""
        episode = StoredEpisode(self.list_rows(), np.array(self._scores, np.int32), terminated)
        self._rows, self._scores = [], []
        return episode

    def list_rows(self) -> NDArray[np.int32]:
        """Return the steps, [length, 4]: narration, look, inventory, action."""
        return np.array(self._rows, np.int32).reshape(-1, 4)

    def state(self) -> State:
        """Return steps and scores for `load`."""
        return {"rows": self.list_rows(), "scores": list(self._scores)}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self._rows = [(a, b, c, d) for a, b, c, d in state["rows"].tolist()]
        self._scores = list(state["scores"])
