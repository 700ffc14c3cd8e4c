"""The imitation policy: a language model of the next action, given the observation and the two actions before it.

A text is represented by its id in the text table throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.xtx.imitation_training import EagerSteps, Example, Ints
from xtx.agents.xtx.trajectory_recall import TrajectoryRecall
from xtx.config.settings import ImitationSettings
from xtx.core import State
from xtx.networks.gpt import GPT, NOTHING, BitDropout, Sizes, TorchDropout
from xtx.text.text_table import SEP, START

if TYPE_CHECKING:
    from xtx.kernels.cuda.imitation_scores import RecordedScores
    from xtx.kernels.cuda.imitation_training import RecordedTraining

Context = tuple[int, int, int, int, int]
"""Text ids: the actions at t-2 and t-1 (-1 before the episode began), then narration, look, inventory at t."""

NONE = -1
"""Stands in a context for an action before the episode began."""
_BEGIN, _END = np.array([START], np.int32), np.array([SEP], np.int32)
GROUP = 8
"""Rows that are computed together on a CPU. 8 was the fastest in benchmarks/learning.py."""
SMALL_GROUP = 3
"""The same in trainings that end by `known`, whose batches have few different pairs: a group of 8 would hold rows of
very different lengths, and up to half of it would be padding."""
MAX_CACHED_STATES = 4096
"""Limits the states whose probabilities are cached until the weights change; a vector step asks for one per game."""


class Texts(Protocol):
    """The part of the text table that the policy uses."""

    def tokens(self, number: int, /) -> Ints:
        """Return the tokens of a text, a start mark before them and an end mark behind."""


class ImitationPolicy:
    """The policy pi_il of the paper: a GPT that is trained on trajectory prefixes and scores the valid actions.

    The same seed and the same calls give the same weights. On a CPU the probabilities of a state depend only on the
    weights, the context and the actions, not on which other states are computed in the same call.
    """

    def __init__(
        self,
        settings: ImitationSettings,
        texts: Texts,
        vocabulary: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """`vocabulary`: number of rows of the token embedding."""
        self.settings = settings
        self.device = torch.device(device)
        self._texts = texts
        sizes = Sizes(vocabulary, settings.layers, settings.heads, settings.width, settings.context)
        weights, shuffle, bits = np.random.SeedSequence(seed).spawn(3)
        start = torch.Generator().manual_seed(int(weights.generate_state(1)[0]))
        self.model = GPT(sizes, start).to(self.device)
        self._shuffle = np.random.Generator(np.random.SFC64(shuffle))
        self._bits = np.random.SFC64(bits)
        self._cached: dict[tuple[Context, tuple[int, ...]], NDArray[np.float64]] = {}
        self._recorded: tuple[RecordedTraining, RecordedScores] | None = None
        is_recorded = not (settings.merge_identical or settings.known or settings.anneal)
        if self.device.type == "cuda" and is_recorded:
            from xtx.kernels.cuda.imitation_scores import RecordedScores
            from xtx.kernels.cuda.imitation_training import RecordedTraining

            rates = (settings.learning_rate, settings.clip, settings.dropout)
            training = RecordedTraining(self.model, *rates, settings.batch_size)
            self._recorded = training, RecordedScores(self.model)

    # -- contexts

    def _make_context(self, context: Context) -> Ints:
        """Return the tokens of a context; the oldest are dropped if there are more than the model reads."""
        parts = [_BEGIN]
        for text in context:
            if text != NONE:
                parts.append(self._texts.tokens(text)[1:-1])
            parts.append(_END)
        tokens = np.concatenate(parts)
        return tokens[-(self.settings.context - self.settings.action_room) :]

    def _make_action(self, action: int) -> Ints:
        """Return the tokens of an action and its end mark, cut to `action_room`."""
        return self._texts.tokens(action)[1:][: self.settings.action_room]

    # -- acting

    def probabilities(self, contexts: Sequence[Context], actions: Sequence[Sequence[int]]) -> list[NDArray[np.float64]]:
        """Return for each context the probabilities of its valid actions, [actions]. The arrays are read-only."""
        return self.start(contexts, actions)()

    def start(
        self, contexts: Sequence[Context], actions: Sequence[Sequence[int]]
    ) -> Callable[[], list[NDArray[np.float64]]]:
        """Start computing `probabilities`, and return a function that waits for the result.

        On a GPU the computation runs in the meantime. The function must be called before any other method of the
        policy.
        """
        keys = [(context, tuple(valid)) for context, valid in zip(contexts, actions, strict=True)]
        missing = list({key: None for key in keys if key not in self._cached})
        if len(self._cached) + len(missing) > MAX_CACHED_STATES:
            self._cached = {key: self._cached[key] for key in keys if key in self._cached}
        # On a CPU one state at a time: no padding, and the same bits whatever else is in the call.
        groups = [missing] if self.device.type == "cuda" and missing else [[key] for key in missing]
        started = [(group, self._start_scores(group)) for group in groups]

        def finish() -> list[NDArray[np.float64]]:
            for group, scores in started:
                for key, score in zip(group, scores(), strict=True):
                    self._cached[key] = _softmax(self.settings.temperature * score)
            return [self._cached[key] for key in keys]

        return finish

    def _start_scores(
        self, group: Sequence[tuple[Context, tuple[int, ...]]]
    ) -> Callable[[], list[NDArray[np.float64]]]:
        rows = [self._make_context(context) for context, _ in group]
        action_tokens = [[self._make_action(action) for action in valid] for _, valid in group]
        if self._recorded is not None:
            return self._recorded[1].start(rows, action_tokens)
        return lambda: self._score(rows, action_tokens)

    @contextmanager
    def restore_afterwards(self) -> Iterator[None]:
        """Restore the cache when the block ends, so that what is computed within leaves no trace."""
        cached = dict(self._cached)
        try:
            yield
        finally:
            self._cached = cached

    def clear_cache(self) -> None:
        """Clear the cache: text ids are about to be given to other texts."""
        self._cached.clear()

    @torch.no_grad()
    def _score(self, rows: list[Ints], action_tokens: list[list[Ints]]) -> list[NDArray[np.float64]]:
        """Return for each context the mean log-probability of each action's tokens, end mark included."""
        # The last token of a context is read with the actions: it predicts their first words.
        lengths = np.array([len(row) - 1 for row in rows])
        tokens = np.zeros((len(rows), lengths.max()), np.int64)
        longest = max(len(action) for valid in action_tokens for action in valid)
        inputs = np.zeros((len(rows), max(map(len, action_tokens)), longest), np.int64)
        labels = np.full_like(inputs, NOTHING)
        for state, (row, valid) in enumerate(zip(rows, action_tokens, strict=True)):
            tokens[state, : len(row) - 1] = row[:-1]
            inputs[state, :, 0] = row[-1]
            for place, action in enumerate(valid):
                inputs[state, place, 1 : len(action)] = action[:-1]
                labels[state, place, : len(action)] = action
        arrays = [torch.from_numpy(array).to(self.device) for array in (lengths, inputs, labels)]
        memory = self.model.read(torch.from_numpy(tokens).to(self.device))
        scores = self.model.log_probabilities(memory, *arrays).double().cpu().numpy()
        return [score[: len(valid)] for score, valid in zip(scores, action_tokens, strict=True)]

    # -- learning

    def train(self, prefixes: Sequence[Ints], progress: Callable[[int, int], None] | None = None) -> dict[str, float]:
        """Train on the prefixes, `passes` times over or until they are known, and return what came of it.

        prefixes: for each trajectory, rows of narration, look, inventory, action for t = 0, 1, ...
        progress: called after each step with the number of steps done and the number of all steps; an exception that it
        raises ends the training.

        The result has the mean loss of the first and of the last pass, the share of tokens that the last pass predicted
        right (both with dropout), the number of pairs of context and action, and the number of optimiser steps. Losses
        and share are left out where all was known already and no pass was made.
        """
        examples = self._make_examples(prefixes)
        predicted = max(1, sum(example.count * example.num_predicted for example in examples))
        goal = predicted * self.settings.enough + _compute_least_loss(prefixes) if self.settings.enough else 0.0
        self._cached.clear()
        if self._recorded is None:
            first, last, hits, done = self._train(examples, goal, self._recall(prefixes), progress)
        else:
            first, last, hits, done = self._train_recorded(self._recorded[0], examples, goal, progress)
        passed = {"loss_first": first / predicted, "loss_last": last / predicted, "accuracy": hits / predicted}
        return {**(passed if done else {}), "pairs": sum(example.count for example in examples), "steps": done}

    def _train(
        self,
        examples: list[Example],
        goal: float,
        recall: TrajectoryRecall | None,
        progress: Callable[[int, int], None] | None,
    ) -> tuple[float, float, float, int]:
        """Train pass by pass until the sum of -log p of a pass is below `goal`, and anneal as soon as the trajectories
        are known.

        Returns the sums of -log p in the first and the last pass, the right predictions in the last, and the steps.
        """
        steps, passes = self._make_steps(), self.settings.passes
        annealed = round(passes * self.settings.anneal)
        first, last, hits, done, number, check_at = 0.0, 0.0, 0.0, 0, 0, 0
        while number < passes:
            if recall is not None and check_at <= number < passes - annealed:
                # A check takes as long as a third of a pass: the more were in vain, the more passes before the next.
                check_at = number + 1 + number // 8
                if recall.compute_probability(steps) >= self.settings.known:
                    passes, recall = number + annealed, None
                    continue
            batches = list(self._draw_batches(examples))
            for at, batch in enumerate(batches):
                left = (passes - number) * len(batches) - at
                steps.step(batch, min(1.0, left / (annealed * len(batches))) if annealed else 1.0)
                done += 1
                if progress is not None:
                    progress(done, done + left - 1)
            last, hits = steps.take_totals()
            first = first if number else last
            number += 1
            if last < goal:
                break
        return first, last, hits, done

    def _train_recorded(
        self,
        training: RecordedTraining,
        examples: list[Example],
        goal: float,
        progress: Callable[[int, int], None] | None,
    ) -> tuple[float, float, float, int]:
        """Do what `_train` does by steps that were recorded for the GPU; `progress` is called after each pass."""
        passes = self.settings.passes
        training.begin([example.tokens for example in examples], [example.context for example in examples])
        first, last, hits, done = 0.0, 0.0, 0.0, 0
        for number in range(passes):
            training.run(self._shuffle.permutation(len(examples)))
            done += -(-len(examples) // self.settings.batch_size)
            if goal or number in (0, passes - 2, passes - 1):  # asking waits for the GPU
                last, hits = training.take_totals()
                first = first if number else last
            if progress is not None:
                progress(number + 1, passes)
            if last < goal:
                break
        return first, last, hits, done

    def _make_examples(self, prefixes: Sequence[Ints]) -> list[Example]:
        """Make an example of each step of each prefix; with `merge_identical` equal ones become one with a count."""
        counts: dict[tuple[Context, int], int] = {}
        pairs = [pair for prefix in prefixes for pair in _iterate_pairs(prefix)]
        for pair in pairs:
            counts[pair] = counts.get(pair, 0) + 1
        built: dict[tuple[Context, int], Example] = {}
        for pair, count in counts.items():
            built[pair] = self._make_example(pair, count if self.settings.merge_identical else 1)
        return list(built.values()) if self.settings.merge_identical else [built[pair] for pair in pairs]

    def _make_example(self, pair: tuple[Context, int], count: int = 1) -> Example:
        """Make the example of a pair of context and action."""
        context = self._make_context(pair[0])
        return Example(np.concatenate([context, self._make_action(pair[1])]), len(context), count)

    def _recall(self, prefixes: Sequence[Ints]) -> TrajectoryRecall | None:
        """Make what tells when the trajectories are known; None without the setting `known`."""
        if not self.settings.known:
            return None
        trajectories = [list(_iterate_pairs(prefix)) for prefix in prefixes]
        distinct = dict.fromkeys(pair for trajectory in trajectories for pair in trajectory)
        return TrajectoryRecall(trajectories, [self._make_example(pair) for pair in distinct])

    def _draw_batches(self, examples: list[Example]) -> Iterator[list[Example]]:
        """Shuffle the examples and yield them in batches that stand for `batch_size` pairs each."""
        batch: list[Example] = []
        weight = 0
        for at in self._shuffle.permutation(len(examples)):
            batch.append(examples[at])
            weight += examples[at].count
            if weight >= self.settings.batch_size:
                yield batch
                batch, weight = [], weight - self.settings.batch_size
        if batch:
            yield batch

    def _make_steps(self) -> EagerSteps:
        """Make the training steps of one training, with a new optimiser."""
        settings = self.settings
        drop: BitDropout | TorchDropout | None = None
        if settings.dropout:
            on_cpu = self.device.type == "cpu"
            drop = BitDropout(settings.dropout, self._bits) if on_cpu else TorchDropout(settings.dropout)
        group = SMALL_GROUP if settings.known else GROUP
        return EagerSteps(self.model, settings.learning_rate, settings.clip, drop, group)

    # -- saving

    def state(self) -> State:
        """Return weights and random states for `load`."""
        # On a GPU dropout draws from torch's generator there.
        cuda = self.device.type == "cuda"
        chance = torch.cuda.get_rng_state(self.device).numpy() if cuda else np.zeros(0, np.uint8)
        return {
            "weights": {name: tensor.cpu().numpy().copy() for name, tensor in self.model.state_dict().items()},
            "shuffle": self._shuffle.bit_generator.state,
            "bits": self._bits.state,
            "chance": chance,
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self.model.load_state_dict({name: torch.tensor(array) for name, array in state["weights"].items()})
        self._shuffle.bit_generator.state = state["shuffle"]
        self._bits.state = state["bits"]
        if self.device.type == "cuda" and len(state["chance"]):
            torch.cuda.set_rng_state(torch.from_numpy(state["chance"].copy()), self.device)
        self._cached.clear()


def _iterate_pairs(prefix: Ints) -> Iterator[tuple[Context, int]]:
    """Yield the context and the action of each step of a prefix."""
    before, last = NONE, NONE
    for narration, look, inventory, action in prefix.tolist():
        yield (before, last, narration, look, inventory), action
        before, last = last, action


def _compute_least_loss(prefixes: Sequence[Ints]) -> float:
    """Return the least possible sum of -log p: above 0 where the same context was followed by different actions."""
    counts: dict[Context, dict[int, int]] = {}
    for prefix in prefixes:
        for context, action in _iterate_pairs(prefix):
            actions = counts.setdefault(context, {})
            actions[action] = actions.get(action, 0) + 1
    return sum(
        -count * math.log(count / sum(actions.values())) for actions in counts.values() for count in actions.values()
    )


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    powers: NDArray[np.float64] = np.exp(scores - scores.max())
    powers /= powers.sum()
    powers.flags.writeable = False
    return powers
