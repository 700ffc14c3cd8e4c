"""Plays episodes with an agent that does not learn, and computes figures of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from statistics import fmean, median, pstdev

from xtx.agents.decisions import decide
from xtx.config.settings import RunConfig
from xtx.core import ENDINGS, Agent, Decision, Observation, Step, UserError
from xtx.games.emulator.emulator_seeds import MAX_SEED, Seeds
from xtx.games.vector.game_vector import GameVector

_PLACES = 5
"""Number of the most frequent endings that are listed."""


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One step of an episode."""

    before: Observation
    decision: Decision
    after: Step


@dataclass
class PlayedEpisode:
    """An episode, whole."""

    number: int
    """From 1, in the order in which episodes began."""
    seed: int
    """The emulator's."""
    steps: list[EpisodeStep] = field(default_factory=list)

    @property
    def actions(self) -> list[str]:
        """What was done."""
        return [step.decision.action for step in self.steps]

    @property
    def last(self) -> Step:
        """The step that ended it."""
        return self.steps[-1].after

    @property
    def score(self) -> int:
        """The final one."""
        return self.last.observation.score

    @property
    def ended(self) -> str:
        """How: `won`, `died` (the game ended by itself) or `limit`."""
        return "won" if self.last.won else "died" if self.last.terminated else "limit"

    def make_outcome(self) -> EpisodeOutcome:
        """Return the episode's result, without its steps."""
        last = self.last.observation
        look = last.look or self.steps[-1].before.look
        return EpisodeOutcome(
            number=self.number,
            seed=self.seed,
            score=last.score,
            length=len(self.steps),
            ended=self.ended,
            place=look.partition("\n")[0],
            text=last.text,
        )


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The result of an episode: so little that very many can be kept."""

    number: int
    seed: int
    score: int
    """The final one."""
    length: int
    ended: str
    place: str
    """Where: the first line of the last description there was, which is the room's name in most games."""
    text: str
    """The last narration."""


# --- playing ----------------------------------------------------------------------------------------------------


def play(
    agent: Agent,
    games: GameVector,
    seeds: Iterator[int],
    episodes: int,
    *,
    greedy: bool = False,
    on_step: Callable[[int], None] = lambda count: None,
) -> Iterator[PlayedEpisode]:
    """Yield episodes of an agent that does not learn, in the order in which they end; `on_step` is called with the
    number of game steps taken.

    Every episode that begins counts. Taking the first N that end instead would prefer the short ones, which are those
    in which the agent died early.
    """
    running: dict[int, PlayedEpisode] = {}
    seen: list[Observation] = [Observation("", "", "", (), 0, 0)] * len(games)
    begun = 0

    def begin(free: list[int]) -> None:
        """Begin new episodes in these envs. An env that no episode is left for is reset too and then stays at its
        beginning: an agent knows envs by their index, so none may be left out."""
        nonlocal begun
        given = [next(seeds) for _ in free]
        for game, seed, observation in zip(free, given, games.reset(free, given), strict=True):
            seen[game] = observation
            if begun < episodes:
                begun += 1
                running[game] = PlayedEpisode(begun, seed)

    begin(list(range(len(games))))
    while running:
        decisions = _decide(agent, seen, running, greedy)
        last = {game for game in running if seen[game].step + 1 >= agent.limit_of(game)}
        steps = games.step({game: decisions[game].action for game in running}, last)
        ended = []
        for game, step in zip(list(running), steps, strict=True):
            running[game].steps.append(EpisodeStep(seen[game], decisions[game], step))
            seen[game] = step.observation
            if step.terminated or step.truncated:
                ended.append(game)
        on_step(len(steps))
        finished = [running.pop(game) for game in ended]
        if ended:
            begin(ended)
        yield from finished


def _decide(
    agent: Agent, seen: Sequence[Observation], running: dict[int, PlayedEpisode], greedy: bool
) -> dict[int, Decision]:
    if not greedy:
        return dict(enumerate(decide(agent, seen)))
    return {game: choose_likeliest(agent, seen[game], episode.actions) for game, episode in running.items()}


def choose_likeliest(agent: Agent, observation: Observation, previous: Sequence[str]) -> Decision:
    """Return the agent's most probable action; the first of equally probable ones."""
    insight = agent.insight(observation, previous)
    if not insight.probabilities:
        name = type(agent).__name__
        raise UserError(f"{name} does not say how likely its actions are (`insight`); leave out --greedy")
    return Decision(max(insight.probabilities, key=insight.probabilities.__getitem__), insight.phase)


def replay(games: GameVector, number: int, seed: int, actions: Sequence[str]) -> PlayedEpisode:
    """Play the actions of an episode again, in the first env of a vector."""
    [observation] = games.reset([0], [seed])
    played = PlayedEpisode(number, seed)
    for count, action in enumerate(actions, 1):
        [step] = games.step({0: action}, (0,) if count == len(actions) else ())
        played.steps.append(EpisodeStep(observation, Decision(action), step))
        observation = step.observation
        if step.terminated:
            break
    return played


def draw_evaluation_seeds(config: RunConfig, walkthrough_seed: int, drawn: int, seed: int = 0) -> Iterator[int]:
    """Yield emulator seeds by the run's rule. A deterministic run has only one. A stochastic one gets seeds that
    none of its `drawn` episodes so far was played under, the same for the same `seed`."""
    if not config.stochastic:
        yield from repeat(Seeds(config.seed, walkthrough_seed).take_next())
    trained = Seeds(config.seed, walkthrough_seed, stochastic=True)
    known = {trained.take_next() for _ in range(drawn)}
    digest = hashlib.blake2b(b"%d,%d" % (config.seed, seed), digest_size=8, person=b"xtx evaluate").digest()
    fresh = Seeds(int.from_bytes(digest, "big") % (MAX_SEED + 1), walkthrough_seed, stochastic=True)
    while True:
        candidate = fresh.take_next()
        if candidate not in known:
            yield candidate


# --- figures ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommonEnding:
    """A way in which episodes ended."""

    ended: str
    place: str
    count: int
    score: float
    """Mean final score."""
    text: str
    """The commonest last narration."""


@dataclass(frozen=True)
class EvaluationFigures:
    """Figures of a number of episodes. Scores are final ones, as in the paper's tables."""

    episodes: int
    score_mean: float
    """Avg."""
    score_std: float
    """Population standard deviation over episodes."""
    score_median: float
    score_min: int
    score_max: int
    """Max."""
    max_score: int
    """The game's maximum; 0 if it is not known."""
    normalised_mean: float | None
    """Avg / max_score, cut above at 1."""
    normalised_max: float | None
    length_mean: float
    ended: dict[str, int]
    """Episodes by how they ended: won, died, limit."""
    scores: dict[int, int]
    """Episodes by their final score."""
    ends: list[CommonEnding]
    """Where episodes ended: the commonest."""


def compute_figures(outcomes: Sequence[EpisodeOutcome], max_score: int) -> EvaluationFigures:
    """Compute the figures of a number of episodes."""
    scores = [episode.score for episode in outcomes]
    ends = Counter((episode.ended, episode.place) for episode in outcomes)
    return EvaluationFigures(
        episodes=len(scores),
        score_mean=fmean(scores),
        score_std=pstdev(scores),
        score_median=median(scores),
        score_min=min(scores),
        score_max=max(scores),
        max_score=max_score,
        normalised_mean=normalise_score(fmean(scores), max_score),
        normalised_max=normalise_score(max(scores), max_score),
        length_mean=fmean(episode.length for episode in outcomes),
        ended={ending: sum(episode.ended == ending for episode in outcomes) for ending in ENDINGS},
        scores=dict(sorted(Counter(scores).items())),
        ends=[
            _summarise_ending(*end, [e for e in outcomes if (e.ended, e.place) == end])
            for end, _ in ends.most_common(_PLACES)
        ],
    )


def normalise_score(score: float, max_score: int) -> float | None:
    """Return the score divided by the maximum, at most 1; None if the maximum is not known."""
    return min(1.0, score / max_score) if max_score > 0 else None


def _summarise_ending(ended: str, place: str, outcomes: Sequence[EpisodeOutcome]) -> CommonEnding:
    [(text, _)] = Counter(episode.text for episode in outcomes).most_common(1)
    return CommonEnding(ended, place, len(outcomes), fmean(episode.score for episode in outcomes), text)
