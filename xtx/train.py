"""THE loop: the only place that knows both the games and the agent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from xtx.callable_modules import make_callable
from xtx.core import Agent, Decision, EpisodeRecord, Observation, State, Step, Transition, UserError
from xtx.games.seeds import Seeds
from xtx.games.vector import GameVector
from xtx.runs import Run, checkpoints
from xtx.witness import Witness

_UNKNOWN = Observation("", "", "", (), 0, 0)
"""Where a game begins anew, and before it has begun."""

LAST = 100
"""Episodes over which scores are averaged."""


@dataclass
class Progress:
    """How far a run is; everything that the display shows."""

    steps: int = 0
    """Game steps."""
    total: int = 0
    episodes: int = 0
    score_mean: float = 0.0
    """Mean final score of the last 100 episodes."""
    score_max: int = 0
    """Best final score."""
    phases: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    """The last line of metrics."""
    logged: int = 0
    """Game steps when that was written; 0 if none was yet."""
    plan: dict[str, float] = field(default_factory=dict)


class Training:
    """A run under way."""

    def __init__(self, run: Run, agent: Agent, games: GameVector, *, checkpoint_seconds: float = 60.0) -> None:
        """`checkpoint_seconds`: 0 for a checkpoint after every vector step."""
        self._run = run
        self._agent = agent
        self._clock = agent.brief.clock
        self._games = games
        self._config = run.config
        self._seeds = Seeds(run.config.seed, games.walkthrough_seed, stochastic=run.config.stochastic)
        self._episodes = [_Episode() for _ in range(len(games))]
        self._observations: list[Observation] = []
        self._scores: deque[int] = deque(maxlen=LAST)
        self._window = _Window()
        self._witness = Witness(run)
        self._vector_steps = 0
        self._best_mean = float("-inf")
        self._checkpoint_seconds = checkpoint_seconds
        self._saved_at = time.monotonic()
        self._save_cost = 0.0
        self.progress = Progress(total=run.config.steps)

    def run(self, state: State | None = None, on_step: Callable[[Progress], bool] = lambda progress: True) -> bool:
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
        self._begin() if state is None else self._load(state)

    def advance(self, on_step: Callable[[Progress], bool] = lambda progress: True) -> bool:
        """Take one step in every game, learn from it, and write what is due. Returns what `on_step` returns."""
        self._vector_step()
        with self._clock.part("records and display"):
            self._keep_records()
            going_on = on_step(self.progress)
        if self._due():
            self._save()
        return going_on

    def finish(self) -> bool:
        """Save the run; to be called between two steps. Returns whether the run has all its steps."""
        self._save()
        self._witness.end(self.progress.steps)
        return self.is_finished

    def _vector_step(self) -> None:
        """Act, step the games, begin anew what ended, learn. While the valid actions of new states are searched, the
        agent learns what it can without them."""
        before, agent = self._observations, self._agent
        with self._clock.part("agent, the rest"):
            decisions = agent.act(before)
        last = {game for game, o in enumerate(before) if o.step + 1 >= agent.limit_of(game)}
        with self._clock.part("games"):
            steps = self._games.move([decision.action for decision in decisions], last)
        self._vector_steps += 1
        self.progress.steps += len(steps)
        self.progress.phases = [decision.phase for decision in decisions]
        for game, (decision, step) in enumerate(zip(decisions, steps, strict=True)):
            self._episodes[game].add(decision, step)
        self._witness.see(self.progress.steps, before, decisions, steps)
        ended = [game for game, step in enumerate(steps) if step.terminated or step.truncated]
        for game in ended:
            self._finish(game, steps[game])
        with self._clock.part("looking ahead"):
            self._look_ahead(steps)
        with self._clock.part("agent, the rest"):
            agent.glimpse(transitions(before, decisions, steps))
        with self._clock.part("games"):
            steps = self._games.arrive()
            self._observations = [step.observation for step in steps]
            self._reset(ended)
        with self._clock.part("agent, the rest"):
            self._window.add(agent.learn(transitions(before, decisions, steps)))

    def _look_ahead(self, steps: list[Step]) -> None:
        """Lets games that wait for others search what is likely to come next. It changes nothing."""
        waiting = self._games.waiting
        if not waiting:
            return
        coming = [
            _UNKNOWN if step.terminated or step.truncated else replace(step.observation, actions=waiting.get(game, ()))
            for game, step in enumerate(steps)
        ]
        if any(observation.actions for observation in coming):
            self._games.look_ahead(self._agent.foresee(coming))

    def _reset(self, games: list[int]) -> None:
        if games:
            seeds = [self._seeds.next() for _ in games]
            for game, seed, observation in zip(games, seeds, self._games.reset(games, seeds), strict=True):
                self._observations[game] = observation
                self._episodes[game] = _Episode(seed)

    def _finish(self, game: int, step: Step) -> None:
        """Writes the record of an episode that ended."""
        progress, episode = self.progress, self._episodes[game]
        progress.episodes += 1
        score = step.observation.score
        record = progress.episodes == 1 or score > progress.score_max
        progress.score_max = score if record else progress.score_max
        self._scores.append(score)
        progress.score_mean = sum(self._scores) / len(self._scores)
        self._run.write(
            "episodes", episode.record(progress.episodes, progress.steps, game, step, record)
        )  # fmt: skip

    def _keep_records(self) -> None:
        """Writes a line of metrics when it is due."""
        progress = self.progress
        progress.plan = dict(self._agent.describe())
        if self._vector_steps % self._config.log_every == 0:
            progress.numbers, progress.logged = self._window.means(), progress.steps
            scores = {"score_mean": progress.score_mean, "score_max": progress.score_max}
            self._run.write(
                "metrics",
                {"step": progress.steps, "episodes": progress.episodes, **scores, **progress.plan, **progress.numbers},
            )
            self._run.write("timing", {"step": progress.steps, "time": time.time(), **self._spent()})
            self._run.flush()

    def _spent(self) -> dict[str, object]:
        """Where the time went since the process began: seconds by part of the loop, and the searches of the games'
        processes with the seconds that they took in all."""
        parts = {name: round(seconds, 3) for name, seconds in self._clock.seconds.items()}
        return {"parts": parts, "searches": self._games.searches, "searched": round(self._games.searched, 3)}

    # --- stopping and going on ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._observations = [_UNKNOWN] * len(self._games)
        self._reset(list(range(len(self._games))))

    def _due(self) -> bool:
        """Whether it is time for a checkpoint; writing takes at most a hundredth of the time, unless told otherwise."""
        if self._checkpoint_seconds == 0:
            return True
        return time.monotonic() - self._saved_at > max(self._checkpoint_seconds, 100 * self._save_cost)

    def _save(self) -> None:
        with self._clock.part("checkpoints"):
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        began = time.monotonic()
        best = self.progress.episodes >= LAST and self.progress.score_mean >= self._best_mean
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
            "threads": torch.get_num_threads(),  # on which the last bits of every sum depend
            "scores": list(self._scores),
            "window": {"sums": self._window.sums, "counts": self._window.counts},
            "rooms": self._witness.state(),
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
        except _MISFITS as error:
            raise _misfit(self._run, error) from error

    def _load_progress(self, state: State) -> None:
        self._observations = msgspec.convert(state["observations"], list[Observation])
        self._episodes = msgspec.convert(state["episodes"], list[_Episode])
        if not len(self._observations) == len(self._episodes) == len(self._games):
            raise ValueError("not an observation and an episode for each game")
        self._seeds.drawn = msgspec.convert(state["seeds_drawn"], _Count)
        self._scores.extend(msgspec.convert(state["scores"], list[int]))
        self._window = msgspec.convert(state["window"], _Window)
        # Runs of earlier versions did not keep rooms.
        self._witness.load(msgspec.convert(state.get("rooms", []), list[Annotated[list[str], Meta(min_length=2)]]))
        self._vector_steps = msgspec.convert(state["vector_steps"], _Count)
        best_mean = msgspec.convert(state["best_mean"], float | None)
        self._best_mean = float("-inf") if best_mean is None else best_mean
        saved = msgspec.convert(state["progress"], _SavedProgress)
        self.progress.steps, self.progress.episodes, self.progress.score_max = (
            saved.steps, saved.episodes, saved.score_max,
        )  # fmt: skip
        if self._scores:
            self.progress.score_mean = sum(self._scores) / len(self._scores)


_MISFITS = (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError, msgspec.MsgspecError)
"""What loading a state raises that is another agent's or another version's."""


_Count = Annotated[int, Meta(ge=0)]
_Hex = Annotated[str, Meta(pattern="^([0-9a-f][0-9a-f])*$")]


class _SavedProgress(msgspec.Struct):
    """How far a run was, in a saved state."""

    steps: _Count
    episodes: _Count
    score_max: int


_PARTS = {"agent": dict, "games": list, "forbidden": list, "threads": int, "progress": dict}
"""What a saved state must have before anything is made of it; `_load` needs more."""


def check_state(run: Run, state: State) -> None:
    """Raise `UserError` if a saved state lacks something, or is not that of as many games as the run has now."""
    for name, kind in _PARTS.items():
        if not isinstance(state.get(name), kind):
            raise _misfit(run, LookupError(f"no {name} in it"))
    try:
        msgspec.convert(state["forbidden"], list[tuple[_Hex, str, bool]])
    except msgspec.ValidationError as error:
        raise _misfit(run, error) from None
    games, steps = state["games"], state["progress"].get("steps")
    if not all(isinstance(game, bytes) for game in games) or not isinstance(steps, int):
        raise _misfit(run, LookupError("no saved games, or no number of steps in it"))
    if len(games) != run.config.games:
        raise UserError(
            f"{run.folder / 'config.json'} asks for {run.config.games} games, but the checkpoint is of {len(games)}; "
            "put back that number, which cannot change, or begin the run in another folder"
        )


def load_agent_state(run: Run, agent: Agent, state: State) -> None:
    """Give an agent the state that it had at a checkpoint. Raises `UserError` if it is not a state of such an agent."""
    try:
        agent.load(state["agent"])
    except _MISFITS as error:
        raise _misfit(run, error) from error


def restore_games(run: Run, games: GameVector, state: State) -> None:
    """Put the games into the states of a checkpoint. Raises `UserError`, with its name, if they are refused."""
    try:
        games.restore(state["games"])
    except UserError as error:
        raise UserError(_describe_refusal(run, games.spec.path, error)) from None


def _describe_refusal(run: Run, story: str, error: UserError) -> str:
    """Say what to do when the saved games of a checkpoint are refused. Mostly the story is another file: a checkpoint
    that is damaged is noticed earlier."""
    known = checkpoints(run.folder)
    used = run.restored_from or next(iter(known), run.folder)
    before = f"move {used} away to go on from the checkpoint before" if known and known[-1].name < used.name else ""
    if story.startswith("toy:"):
        return f"{used} cannot be used: {error}" + (before and f"; {before}")
    return (
        f"the story file {story} may be another one than that of the run, so put the right one back, or set XTX_GAMES "
        f"to its folder; {used} cannot be used with this one: {error}"
        + (before and f"; if it is the right one, {before}")
    )


def _misfit(run: Run, error: Exception) -> UserError:
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return UserError(
        f"the checkpoint in {run.folder} does not fit the agent {run.config.agent} with the settings in config.json, "
        f"or another version of xtx wrote it ({what[:200]}); put back the config, or begin the run in another folder"
    )


def transitions(
    before: list[Observation], decisions: list[Decision], steps: list[Step]
) -> list[Transition]:  # fmt: skip
    """What an agent learns from: one step of every game."""
    return [
        Transition(game, before[game], decision, step.reward, step.observation, step.terminated, step.truncated)
        for game, (decision, step) in enumerate(zip(decisions, steps, strict=True))
    ]


@dataclass
class _Episode:
    """An episode under way, as far as its record needs it."""

    seed: int = 0
    actions: list[str] = field(default_factory=list)
    peak: int = 0
    exploited: int = 0
    explored_from: int | None = None

    def add(self, decision: Decision, step: Step) -> None:
        """One more step."""
        if decision.phase == "explore" and self.explored_from is None:
            self.explored_from = len(self.actions)
        self.exploited += decision.phase == "exploit"
        self.actions.append(decision.action)
        self.peak = max(self.peak, step.observation.score)

    def record(self, episode: int, step: int, game: int, last: Step, record: bool) -> EpisodeRecord:
        """Its line in episodes.jsonl."""
        return EpisodeRecord(
            episode=episode,
            step=step,
            game=game,
            score=last.observation.score,
            peak=self.peak,
            length=len(self.actions),
            ended="won" if last.won else "died" if last.terminated else "limit",
            seed=self.seed,
            explored_from=self.explored_from,
            exploited=self.exploited,
            record=record,
            actions=self.actions if record else [],
        )


@dataclass
class _Window:
    """Means of the numbers since the last line of metrics."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, numbers: Any) -> None:
        """One vector step's numbers; a step may lack some of them."""
        for name, number in numbers.items():
            self.sums[name] = self.sums.get(name, 0.0) + number
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        """The means; the next window begins."""
        means = {name: self.sums[name] / self.counts[name] for name in sorted(self.sums)}
        self.sums, self.counts = {}, {}
        return means


make_callable(__name__, "xtx.api.training", "train")
