"""The training loop: steps the games with the agent's actions, lets the agent learn, writes records and checkpoints."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from xtx.agents.decisions import decide, describe, learn
from xtx.core import EPISODES_OF_MEAN, Agent, Decision, EpisodeRecord, Observation, State, Step, Transition, UserError
from xtx.games.emulator.emulator_seeds import Seeds
from xtx.games.vector.game_vector import GameVector
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.runs.run_folder import Run
from xtx.runs.viewer_files import ViewerFiles

_NO_OBSERVATION = Observation("", "", "", (), 0, 0)
"""Stands for an observation that is not there yet: of a new episode, or before a game has begun."""


@dataclass
class TrainingProgress:
    """The progress of a run: everything that the display shows."""

    steps: int = 0
    """Game steps so far."""
    total: int = 0
    """Game steps of the whole run."""
    episodes: int = 0
    """Finished episodes."""
    score_mean: float = 0.0
    """Mean final score of the last `EPISODES_OF_MEAN` episodes."""
    score_max: int = 0
    """Best final score."""
    phases: list[str] = field(default_factory=list)
    """The phase of each game's last decision."""
    numbers: dict[str, float] = field(default_factory=dict)
    """The last line of metrics."""
    logged: int = 0
    """Game steps when that line was written; 0 before the first."""
    plan: dict[str, float] = field(default_factory=dict)
    """What `Agent.describe` returned last."""


class Training:
    """A run of one agent on several games that are stepped together."""

    def __init__(self, run: Run, agent: Agent, games: GameVector, *, checkpoint_seconds: float = 60.0) -> None:
        """checkpoint_seconds: least time between checkpoints; 0 for one after every vector step."""
        self._run = run
        self._agent = agent
        self._clock = agent.brief.clock
        self._games = games
        self._config = run.config
        self._seeds = Seeds(run.config.seed, games.walkthrough_seed, stochastic=run.config.stochastic)
        self._episodes = [_OpenEpisode() for _ in range(len(games))]
        self._observations: list[Observation] = []
        self._scores: deque[int] = deque(maxlen=EPISODES_OF_MEAN)
        self._metrics_window = _MetricsWindow()
        self._viewer_files = ViewerFiles(run)
        self._vector_steps = 0
        self._best_mean = float("-inf")
        self._checkpoint_seconds = checkpoint_seconds
        self._saved_at = time.monotonic()
        self._save_cost = 0.0
        self.progress = TrainingProgress(total=run.config.steps)

    def run(
        self, state: State | None = None, on_step: Callable[[TrainingProgress], bool] = lambda progress: True
    ) -> bool:
        """True if the run is finished; False if `on_step`, which is called after every vector step, said to stop.
        `state` is what the run's folder has to go on from."""
        self.begin(state)
        going_on = True
        while going_on and not self.is_finished:
            going_on = self.advance(on_step)
        return self.finish()

    @property
    def is_finished(self) -> bool:
        """Whether the run has all its steps."""
        return self.progress.steps >= self._config.steps

    def begin(self, state: State | None = None) -> None:
        """Start the games, or go on from a state of the run's folder. Must be called once, before `advance`."""
        if state is not None:
            self._load(state)
            return
        self._observations = [_NO_OBSERVATION] * len(self._games)
        self._reset(list(range(len(self._games))))

    def advance(self, on_step: Callable[[TrainingProgress], bool] = lambda progress: True) -> bool:
        """Take one step in every game, learn from it, and write metrics and checkpoint if it is time.

        Returns what `on_step` returns.
        """
        self._make_vector_step()
        with self._clock.part("records and display"):
            self._keep_records()
            going_on = on_step(self.progress)
        if self._is_checkpoint_due():
            self._save()
        return going_on

    def finish(self) -> bool:
        """Save the run; to be called between two steps. Returns whether the run has all its steps."""
        self._save()
        self._viewer_files.end(self.progress.steps)
        return self.is_finished

    def _make_vector_step(self) -> None:
        """Make one step in every game: act, step the games, reset those whose episode ended, learn.

        While the workers search the valid actions of the new states, the agent does the part of learning that does not
        need them.
        """
        before, agent = self._observations, self._agent
        with self._clock.part("agent, the rest"):
            decisions = decide(agent, before)
        last = {game for game, o in enumerate(before) if o.step + 1 >= agent.limit_of(game)}
        with self._clock.part("games"):
            steps = self._games.move([decision.action for decision in decisions], last)
        self._vector_steps += 1
        self.progress.steps += len(steps)
        self.progress.phases = [decision.phase for decision in decisions]
        for game, (decision, step) in enumerate(zip(decisions, steps, strict=True)):
            self._episodes[game].add(decision, step)
        self._viewer_files.see(self.progress.steps, before, decisions, steps)
        ended = [game for game, step in enumerate(steps) if step.terminated or step.truncated]
        for game in ended:
            self._finish(game, steps[game])
        with self._clock.part("looking ahead"):
            self._look_ahead(steps)
        with self._clock.part("agent, the rest"):
            agent.glimpse(build_transitions(before, decisions, steps))
        with self._clock.part("games"):
            steps = self._games.arrive()
            self._observations = [step.observation for step in steps]
            self._reset(ended)
        with self._clock.part("agent, the rest"):
            self._metrics_window.add(learn(agent, build_transitions(before, decisions, steps)))

    def _look_ahead(self, steps: list[Step]) -> None:
        """Let workers that have finished their step search the states that the agent will probably reach next.

        The results go into the search cache only: the run is the same without it.
        """
        waiting = self._games.waiting
        if not waiting:
            return
        next_observations = [
            _NO_OBSERVATION
            if step.terminated or step.truncated
            else replace(step.observation, actions=waiting.get(game, ()))
            for game, step in enumerate(steps)
        ]
        if any(observation.actions for observation in next_observations):
            self._games.look_ahead(self._agent.foresee(next_observations))

    def _reset(self, games: list[int]) -> None:
        """Begin new episodes in these games."""
        if games:
            seeds = [self._seeds.take_next() for _ in games]
            for game, seed, observation in zip(games, seeds, self._games.reset(games, seeds), strict=True):
                self._observations[game] = observation
                self._episodes[game] = _OpenEpisode(seed)

    def _finish(self, game: int, step: Step) -> None:
        """Write the record of an episode that ended."""
        progress, episode = self.progress, self._episodes[game]
        progress.episodes += 1
        score = step.observation.score
        record = progress.episodes == 1 or score > progress.score_max
        progress.score_max = score if record else progress.score_max
        self._scores.append(score)
        progress.score_mean = sum(self._scores) / len(self._scores)
        self._run.write("episodes", episode.record(progress.episodes, progress.steps, game, step, record))

    def _keep_records(self) -> None:
        """Write a line of metrics every `log_every` vector steps."""
        progress = self.progress
        progress.plan = describe(self._agent)
        if self._vector_steps % self._config.log_every == 0:
            progress.numbers, progress.logged = self._metrics_window.compute_means(), progress.steps
            scores = {"score_mean": progress.score_mean, "score_max": progress.score_max}
            self._run.write(
                "metrics",
                {"step": progress.steps, "episodes": progress.episodes, **scores, **progress.plan, **progress.numbers},
            )
            self._run.write("timing", {"step": progress.steps, "time": time.time(), **self._describe_time_spent()})
            self._run.flush()

    def _describe_time_spent(self) -> dict[str, object]:
        """Return the time spent since the process began: seconds by part of the loop, and the number of searches in the
        workers with the seconds that they took in all."""
        parts = {name: round(seconds, 3) for name, seconds in self._clock.seconds.items()}
        totals = self._games.totals
        return {"parts": parts, "searches": totals.searches, "searched": round(totals.searched, 3)}

    # --- stopping and continuing ----------------------------------------------------------------------------------

    def _is_checkpoint_due(self) -> bool:
        """Return whether to write a checkpoint now: so rarely that writing takes at most a hundredth of the time,
        unless `checkpoint_seconds` is 0."""
        least = max(self._checkpoint_seconds, 100 * self._save_cost)
        return self._checkpoint_seconds == 0 or time.monotonic() - self._saved_at > least

    def _save(self) -> None:
        began = time.monotonic()
        with self._clock.part("checkpoints"):
            best = self.progress.episodes >= EPISODES_OF_MEAN and self.progress.score_mean >= self._best_mean
            if best:
                self._best_mean = self.progress.score_mean
            self._run.save(self.progress.steps, self._state(), best)
        self._saved_at = time.monotonic()
        self._save_cost = self._saved_at - began

    def _state(self) -> State:
        progress = self.progress
        return {
            "agent": self._agent.state(),
            "games": self._games.save(),
            "forbidden": self._games.forbidden,
            "observations": [msgspec.to_builtins(o) for o in self._observations],
            "episodes": [msgspec.to_builtins(episode) for episode in self._episodes],
            "seeds_drawn": self._seeds.drawn,
            "threads": torch.get_num_threads(),  # the last bits of every sum depend on it
            "scores": list(self._scores),
            "window": {"sums": self._metrics_window.sums, "counts": self._metrics_window.counts},
            "rooms": self._viewer_files.state(),
            "vector_steps": self._vector_steps,
            "best_mean": self._best_mean if self._best_mean > float("-inf") else None,
            "progress": {"steps": progress.steps, "episodes": progress.episodes, "score_max": progress.score_max},
        }

    def _load(self, state: State) -> None:
        check_state(self._run, state)
        load_agent_state(self._run, self._agent, state)
        restore_games(self._run, self._games, state)
        try:
            self._load_progress(state)
        except _LOAD_ERRORS as error:
            raise _state_error(self._run, error) from error

    def _load_progress(self, state: State) -> None:
        self._observations = msgspec.convert(state["observations"], list[Observation])
        self._episodes = msgspec.convert(state["episodes"], list[_OpenEpisode])
        if not len(self._observations) == len(self._episodes) == len(self._games):
            raise ValueError("not an observation and an episode for each game")
        self._seeds.drawn = msgspec.convert(state["seeds_drawn"], _Count)
        self._scores.extend(msgspec.convert(state["scores"], list[int]))
        self._metrics_window = msgspec.convert(state["window"], _MetricsWindow)
        # Checkpoints of earlier versions have no rooms.
        self._viewer_files.load(msgspec.convert(state.get("rooms", []), list[Annotated[list[str], Meta(min_length=2)]]))
        self._vector_steps = msgspec.convert(state["vector_steps"], _Count)
        best_mean = msgspec.convert(state["best_mean"], float | None)
        self._best_mean = float("-inf") if best_mean is None else best_mean
        saved = msgspec.convert(state["progress"], _SavedProgress)
        self.progress.steps, self.progress.episodes, self.progress.score_max = (
            saved.steps, saved.episodes, saved.score_max,
        )  # fmt: skip
        if self._scores:
            self.progress.score_mean = sum(self._scores) / len(self._scores)


_LOAD_ERRORS = (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError, msgspec.MsgspecError)
"""The exceptions that loading the state of another agent or another version raises."""


_Count = Annotated[int, Meta(ge=0)]
_Hex = Annotated[str, Meta(pattern="^([0-9a-f][0-9a-f])*$")]


class _SavedProgress(msgspec.Struct):
    """The progress of a run in a saved state."""

    steps: _Count
    episodes: _Count
    score_max: int


_PARTS = {"agent": dict, "games": list, "forbidden": list, "threads": int, "progress": dict}
"""The entries that `check_state` requires, with their types; `_load` checks the others."""


def check_state(run: Run, state: State) -> None:
    """Check a saved state before it is loaded. Raises `UserError` if entries are missing or it has another number of
    games than the run."""
    for name, kind in _PARTS.items():
        if not isinstance(state.get(name), kind):
            raise _state_error(run, LookupError(f"no {name} in it"))
    try:
        msgspec.convert(state["forbidden"], list[tuple[_Hex, str, bool]])
    except msgspec.ValidationError as error:
        raise _state_error(run, error) from None
    games, steps = state["games"], state["progress"].get("steps")
    if not all(isinstance(game, bytes) for game in games) or not isinstance(steps, int):
        raise _state_error(run, LookupError("no saved games, or no number of steps in it"))
    if len(games) != run.config.num_envs:
        raise UserError(
            f"{run.folder / 'config.json'} asks for {run.config.num_envs} envs, but the checkpoint is of {len(games)}; "
            "put back that number, which cannot change, or begin the run in another folder"
        )


def load_agent_state(run: Run, agent: Agent, state: State) -> None:
    """Restore an agent from a checkpoint. Raises `UserError` if the state does not fit the agent."""
    try:
        agent.load(state["agent"])
    except _LOAD_ERRORS as error:
        raise _state_error(run, error) from error


def restore_games(run: Run, games: GameVector, state: State) -> None:
    """Restore the games from a checkpoint. Raises `UserError`, with the checkpoint's name, if the emulator refuses
    them."""
    try:
        games.restore(state["games"])
    except UserError as error:
        raise UserError(_describe_refusal(run, games.spec.path, error)) from None


def _describe_refusal(run: Run, story: str, error: UserError) -> str:
    """Return a line that says what to do when the emulator refuses the saved games of a checkpoint.

    Mostly the story file is another one: damage of the checkpoint is detected by its checksum before.
    """
    known = list_checkpoints(run.folder)
    used = run.restored_from or next(iter(known), run.folder)
    before = f"move {used} away to go on from the checkpoint before" if known and known[-1].name < used.name else ""
    if story.startswith("toy:"):
        return f"{used} cannot be used: {error}" + (before and f"; {before}")
    return (
        f"the story file {story} may be another one than that of the run, so put the right one back, or set XTX_GAMES "
        f"to its folder; {used} cannot be used with this one: {error}"
        + (before and f"; if it is the right one, {before}")
    )


def _state_error(run: Run, error: Exception) -> UserError:
    """Return the error for a state that cannot be loaded because of `error`."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return UserError(
        f"the checkpoint in {run.folder} does not fit the agent {run.config.agent} with the settings in config.json, "
        f"or another version of xtx wrote it ({what[:200]}); put back the config, or begin the run in another folder"
    )


def build_transitions(
    before: list[Observation], decisions: list[Decision], steps: list[Step]
) -> list[Transition]:  # fmt: skip
    """Combine a vector step to what an agent learns from: one transition of every game."""
    return [
        Transition(game, before[game], decision, step.reward, step.observation, step.terminated, step.truncated)
        for game, (decision, step) in enumerate(zip(decisions, steps, strict=True))
    ]


@dataclass
class _OpenEpisode:
    """What the record of a game's current episode needs."""

    seed: int = 0
    actions: list[str] = field(default_factory=list)
    peak: int = 0
    exploited: int = 0
    explored_from: int | None = None

    def add(self, decision: Decision, step: Step) -> None:
        """Add a step."""
        if decision.phase == "explore" and self.explored_from is None:
            self.explored_from = len(self.actions)
        self.exploited += decision.phase == "exploit"
        self.actions.append(decision.action)
        self.peak = max(self.peak, step.observation.score)

    def record(self, episode: int, step: int, game: int, last: Step, record: bool) -> EpisodeRecord:
        """Return the episode's line in episodes.jsonl. `step`: game steps of the run; `record`: whether the score is a
        new best."""
        return EpisodeRecord(
            episode=episode,
            step=step,
            game=game,
            score=last.observation.score,
            peak=self.peak,
            length=len(self.actions),
            ended=last.ending,
            seed=self.seed,
            explored_from=self.explored_from,
            exploited=self.exploited,
            record=record,
            actions=self.actions if record else [],
        )


@dataclass
class _MetricsWindow:
    """Running sums of the agent's numbers since the last line of metrics."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, numbers: Any) -> None:
        """Add the numbers of one vector step, which need not have all names."""
        for name, number in numbers.items():
            self.sums[name] = self.sums.get(name, 0.0) + number
            self.counts[name] = self.counts.get(name, 0) + 1

    def compute_means(self) -> dict[str, float]:
        """Return the means by name, and begin new sums."""
        means = {name: self.sums[name] / self.counts[name] for name in sorted(self.sums)}
        self.sums, self.counts = {}, {}
        return means
