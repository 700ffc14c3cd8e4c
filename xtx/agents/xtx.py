"""XTX: return to where the best trajectories led by imitating them, then explore from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.imitation import ImitationPolicy
from xtx.agents.policy import draw, draw_known, softmax, uniform
from xtx.agents.q_learner import QLearner
from xtx.agents.states import Library, Seen
from xtx.agents.way import Way
from xtx.config import XtxSettings
from xtx.core import Agent, Brief, Clock, Decision, Insight, Observation, State, Transition
from xtx.memory import Episode, TrajectoryStore

EXPLOIT, EXPLORE = "exploit", "explore"


@dataclass(frozen=True)
class Plan:
    """What episodes try now, or one of them where each has a target of its own."""

    target_score: int = 0
    """M: the highest score among the imitated trajectories, or that of the episode's own."""
    l_max: int = 0
    """Length of the longest of them, or of the episode's own."""
    way: int = -1
    """Which of the imitated trajectories leads to that score; none at the beginning."""

    def phase(self, observation: Observation) -> str:
        """Decided anew at every step, never kept: who loses points while there is time is back in `exploit`."""
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
        self._library = Library(settings.text)
        self._learner = (
            None
            if settings.uniform
            else QLearner(settings.q, settings.inverse, self._library, brief.games, brief.seed, device)
        )
        self._imitation = ImitationPolicy(
            settings.imitation, self._library.texts, settings.text.vocabulary, seed=brief.seed, device=device
        )
        tried = settings.trajectories
        self._trajectories = TrajectoryStore(
            tried.reservoir, tried.beta1, tried.beta2, tried.k, brief.seed, floor=tried.floor
        )
        self._random = np.random.default_rng(brief.seed)
        self._spare = np.random.default_rng(brief.seed)
        """To see what it will draw."""
        self._plan = Plan()
        self._targets = [Plan()]
        """The imitated trajectories one by one."""
        self._ways: list[Way] = []
        """The same, where they are to be retraced."""
        self._aims = [Plan()] * brief.games
        """What the episode of each game tries, where each has a target of its own."""
        self._vector_steps = 0
        self._train_at = settings.first_training
        self._ended = 0
        """Episodes since the last imitation training."""
        self._states: list[Seen] = []
        self._glimpsed: dict[str, float] | None = None
        """The numbers of `glimpse`, until `learn`."""
        self._retraced_share: float | None = None
        """Of the games that were on their way back in the last `act`."""
        self._previous = [(-1, -1)] * brief.games
        self._episodes = [_Running() for _ in range(brief.games)]

    @property
    def episode_limit(self) -> int:
        """T = l_max + R; it moves with the plan, also for episodes under way."""
        return self._plan.l_max + self._settings.explore_steps

    def limit_of(self, game: int) -> int:
        """The same with the length of the episode's own trajectory."""
        return self._aim(game).l_max + self._settings.explore_steps

    # --- acting -------------------------------------------------------------------------------------------------

    def act(self, observations: Sequence[Observation]) -> list[Decision]:
        """The imitation policy's choice or the exploring one's, as phase and mixture have it."""
        with self._clock.part("tokenising"):
            self._states = [self._library.see(o) for o in observations]
        for game, observation in enumerate(observations):
            if observation.step == 0:
                self._previous[game] = (-1, -1)
                self._draw_aim(game)
        shares = [self._explore_share(o, self._aim(game)) for game, o in enumerate(observations)]
        exploring = [share >= 1 or self._random.random() < share for share in shares]
        retraced = [
            None if exploring[game] else self._retraced(self._states[game], observation.step, self._aim(game))
            for game, observation in enumerate(observations)
        ]
        back = exploring.count(False)
        self._retraced_share = sum(known is not None for known in retraced) / back if back else None
        chances = self._chances(self._states, self._previous, exploring, retraced, self._clock)
        decisions = []
        for game, observation in enumerate(observations):
            action = observation.actions[draw(self._random, chances[game])]
            drawn = EXPLORE if exploring[game] else EXPLOIT
            decisions.append(Decision(action, self._aim(game).phase(observation) if self._settings.phases else drawn))
            self._previous[game] = (self._previous[game][1], self._library.texts.id(action))
        return decisions

    def foresee(self, observations: Sequence[Observation]) -> Mapping[int, str]:
        """What `act` would answer, with the networks and the plan as they are now and the random numbers that come
        next, in games that explore: those on their way back know it, as a rule."""
        random = self._spare
        random.bit_generator.state = self._random.bit_generator.state
        aims = [self._aim(game) for game in range(len(observations))]
        for game, observation in enumerate(observations):
            if self._settings.own_targets and observation.step == 0:
                aims[game] = self._targets[int(random.integers(len(self._targets)))]
        shares = [self._explore_share(o, aim) for o, aim in zip(observations, aims, strict=True)]
        exploring = [share >= 1 or random.random() < share for share in shares]
        known = [game for game, o in enumerate(observations) if o.actions and exploring[game]]
        if not known:
            return {}
        with self._library.in_passing() if self._learner is None else self._learner.in_passing():
            found = self._explore([self._library.see(observations[game]) for game in known])
        chances = dict(zip(known, found, strict=True))
        drawn = draw_known(random, chances, len(observations))
        return {game: observations[game].actions[index] for game, index in drawn.items()}

    def _draw_aim(self, game: int) -> None:
        """Chooses what the game's new episode tries."""
        if self._settings.own_targets:
            self._aims[game] = self._targets[int(self._random.integers(len(self._targets)))]

    def _aim(self, game: int) -> Plan:
        """What the episode of this game tries now."""
        return self._aims[game] if self._settings.own_targets else self._plan

    def _explore_share(self, observation: Observation, aim: Plan) -> float:
        """lambda: how often the exploring policy chooses in this state. In the phase `exploit` it is mix / l_max, as
        in the authors' program, or mix / T, which with a mix of 0.5 is the paper's 1 / (2 T)."""
        if not self._settings.phases:
            return self._settings.mix
        if aim.phase(observation) == EXPLORE:
            return 1.0
        beyond = self._settings.explore_steps if self._settings.mix_over == "limit" else 0
        return self._settings.mix / (aim.l_max + beyond)

    def _retraced(self, state: Seen, step: int, aim: Plan) -> NDArray[np.float64] | None:
        """Certainty of what the aim's trajectory did in this state; None where it never was, or is not to be retraced,
        or could do what cannot be done now."""
        if not 0 <= aim.way < len(self._ways):
            return None
        action = self._ways[aim.way].action(state, step)
        certain = self._library.actions([state])[0] == (-1 if action is None else action)
        return certain.astype(np.float64) if certain.any() else None

    def _chances(
        self,
        states: Sequence[Seen],
        previous: Sequence[tuple[int, int]],
        exploring: Sequence[bool],
        retraced: Sequence[NDArray[np.float64] | None],
        clock: Clock,
    ) -> dict[int, NDArray[np.float64]]:
        """Probabilities of each state's actions, by the state's place: each policy works on its own states only.
        `retraced` is what is certain where one does not explore."""
        chances = {place: known for place, known in enumerate(retraced) if known is not None}
        explorers = [place for place, explores in enumerate(exploring) if explores]
        returning = [place for place, explores in enumerate(exploring) if not explores and place not in chances]
        contexts = [(*previous[place], *states[place][:3]) for place in returning]
        lists = [actions.tolist() for actions in self._library.actions([states[place] for place in returning])]
        with clock.part("acting: imitation"):
            imitated = self._imitation.ask(contexts, lists)
        if explorers:
            with clock.part("acting: Q"):
                explored = self._explore([states[place] for place in explorers])
            chances.update(zip(explorers, explored, strict=True))
        with clock.part("acting: imitation"):
            chances.update(zip(returning, imitated(), strict=True))
        return chances

    def _explore(self, states: Sequence[Seen]) -> list[NDArray[np.float64]]:
        if self._learner is None:
            return [uniform(len(actions)) for actions in self._library.actions(states)]
        return [softmax(values, self._settings.q.temperature) for values in self._learner.q_values(states)]

    def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
        """The mixture of both policies that holds in this state."""
        share = min(1.0, self._explore_share(observation, self._plan))
        mixture = np.zeros(len(observation.actions))
        library = self._learner if self._learner is not None else self._library
        with library.in_passing(), self._imitation.in_passing():
            state = self._library.see(observation)
            last = [-1, -1, *(self._library.texts.id(action) for action in previous[-2:])][-2:]
            retraced = [self._retraced(state, observation.step, self._plan)]
            for explores, weight in ((True, share), (False, 1 - share)):
                if weight > 0:
                    found = self._chances([state], [(last[0], last[1])], [explores], retraced, Clock())
                    mixture += weight * found[0]
        phase = self._plan.phase(observation) if self._settings.phases else ""
        return Insight(dict(zip(observation.actions, mixture.tolist(), strict=True)), phase)

    # --- learning -----------------------------------------------------------------------------------------------

    def glimpse(self, transitions: Sequence[Transition]) -> None:
        """Intrinsic reward, storing, and the update unless it draws one of these transitions."""
        with self._clock.part("tokenising"):
            actions = [self._library.texts.id(t.decision.action) for t in transitions]
            after = [self._library.glimpse(t.after, t.ended, i) for i, t in enumerate(transitions)]
        numbers = self._glimpsed = {}
        if self._learner is not None:
            with self._clock.part("intrinsic reward, storing"):
                numbers["intrinsic_reward"] = self._learner.remember(transitions, self._states, actions, after)
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
        """The losses, after all of `glimpse`, and imitation training if it is due."""
        if self._glimpsed is None:
            self.glimpse(transitions)
        numbers, self._glimpsed = self._glimpsed or {}, None
        if self._settings.retrace and self._retraced_share is not None:
            numbers["retraced"] = self._retraced_share
        self._vector_steps += 1
        with self._clock.part("tokenising"):
            after = [self._library.see(t.after) for t in transitions]
        if self._learner is not None:
            with self._clock.part("update"):
                numbers |= self._learner.complete(transitions, after)
        if self._is_training_due():
            with self._clock.part("imitation training"):
                numbers |= self._imitate()
        if self._library.crowded():
            self._sweep(after)
        return numbers

    def _is_training_due(self) -> bool:
        """Whether it is time for an imitation training: by vector steps, as in the authors' program, or by episodes."""
        episodes = self._settings.training_every_episodes
        return self._ended >= episodes if episodes else self._vector_steps >= self._train_at

    def _imitate(self) -> dict[str, float]:
        """Draws trajectories, learns them, and makes them the plan."""
        numbers: dict[str, float] = {}
        self._ended = 0
        buffer = self._trajectories.sample()
        if buffer is not None:
            if self._settings.phases or self._settings.mix < 1:  # else the imitation policy is never asked
                numbers = {
                    f"imitation_{name}": number for name, number in self._imitation.train(buffer.prefixes).items()
                }
            self._targets = [
                Plan(score, len(prefix), way)
                for way, (score, prefix) in enumerate(zip(buffer.scores, buffer.prefixes, strict=True))
            ]
            best = max(self._targets, key=lambda target: (target.target_score, -target.l_max))
            self._plan = Plan(buffer.target_score, buffer.l_max, best.way)
            self._ways = [Way(prefix) for prefix in buffer.prefixes] if self._settings.retrace else []
            for game in range(len(self._aims)):  # what is learned now need not lead to the earlier ones
                self._draw_aim(game)
        self._train_at = self._vector_steps + self._settings.training_every * self.episode_limit
        return numbers

    def describe(self) -> Mapping[str, float]:
        """The plan, and what was met so far."""
        plan = {"target_score": self._plan.target_score, "l_max": self._plan.l_max, "episode_limit": self.episode_limit}
        return {**plan, **self._library.describe()}

    # --- keeping ------------------------------------------------------------------------------------------------

    def _sweep(self, current: Sequence[Seen]) -> None:
        self._imitation.forget()
        texts: list[NDArray[np.integer]] = [self._trajectories.live_texts(), np.array(self._previous).ravel()]
        texts += [running.texts() for running in self._episodes]
        texts += [way.steps.ravel() for way in self._ways]
        if self._learner is None:
            states = np.array(current, np.int32)
            self._library.sweep(np.concatenate((*texts, states[:, :3].ravel())), states[:, 3])
        else:
            self._learner.sweep(current, np.concatenate(texts))

    def state(self) -> State:
        """Everything."""
        return {
            "library": self._library.state(),
            "learner": self._learner.state() if self._learner is not None else None,
            "imitation": self._imitation.state(),
            "trajectories": self._trajectories.state(),
            "random": self._random.bit_generator.state,
            "plan": astuple(self._plan),
            "targets": [astuple(target) for target in self._targets],
            "ways": [way.steps for way in self._ways],
            "aims": [astuple(aim) for aim in self._aims],
            "vector_steps": self._vector_steps,
            "train_at": self._train_at,
            "ended": self._ended,
            "previous": [list(pair) for pair in self._previous],
            "episodes": [running.state() for running in self._episodes],
        }

    def load(self, state: State) -> None:
        """Goes on exactly."""
        self._library.load(state["library"])
        if self._learner is not None:
            self._learner.load(state["learner"])
        self._imitation.load(state["imitation"])
        self._trajectories.load(state["trajectories"])
        self._random.bit_generator.state = state["random"]
        self._plan = Plan(*state["plan"])
        self._targets = [Plan(*target) for target in state["targets"]]
        self._ways = [Way(steps) for steps in state.get("ways", ())]  # earlier versions had none
        self._aims = [Plan(*aim) for aim in state["aims"]]
        self._vector_steps, self._train_at = state["vector_steps"], state["train_at"]
        self._ended = state.get("ended", 0)  # earlier versions had none
        self._previous = [(first, second) for first, second in state["previous"]]
        for running, saved in zip(self._episodes, state["episodes"], strict=True):
            running.load(saved)


class _Running:
    """An episode under way."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._scores: list[int] = []

    def add(self, state: Seen, action: int, score: int) -> None:
        """One more step: the state, what was done, the score afterwards."""
        self._rows.append((state.narration, state.look, state.inventory, action))
        self._scores.append(score)

    def finish(self, terminated: bool) -> Episode:
        """The whole episode; the next step begins another."""
        episode = Episode(self.rows(), np.array(self._scores, np.int32), terminated)
        self._rows, self._scores = [], []
        return episode

    def rows(self) -> NDArray[np.int32]:
        """[length, 4]: narration, look, inventory, action"""
        return np.array(self._rows, np.int32).reshape(-1, 4)

    def texts(self) -> NDArray[np.int32]:
        """All texts in it."""
        return self.rows().ravel()

    def state(self) -> State:
        """For `load`."""
        return {"rows": self.rows(), "scores": list(self._scores)}

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self._rows = [(a, b, c, d) for a, b, c, d in state["rows"].tolist()]
        self._scores = list(state["scores"])
