"""The imitation policy: a language model of the action, given the two actions before it and what is seen.

Texts are numbers of the text table throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.imitation_steps import EagerSteps, Example, Ints
from xtx.config import ImitationSettings
from xtx.core import State
from xtx.gpt import GPT, NOTHING, BitDropout, Sizes, TorchDropout
from xtx.text import SEP, START

if TYPE_CHECKING:
    from xtx.cuda.imitation import RecordedScores
    from xtx.cuda.imitation_training import RecordedTraining

Context = tuple[int, int, int, int, int]
"""The actions at t-2 and t-1 (-1 where the episode had not begun), narration, look, inventory at t."""

NONE = -1
_BEGIN, _END = np.array([START], np.int32), np.array([SEP], np.int32)
GROUP = 8
"""Rows that are computed together on a CPU; measured with benchmarks/learning.py."""
REMEMBERED = 4096
"""States whose probabilities are kept until the weights change."""


class Texts(Protocol):
    """What is needed of the text table."""

    def tokens(self, number: int, /) -> Ints:
        """The text's words between a start and an end mark."""


class ImitationPolicy:
    """pi_il. The same seed and the same calls give the same weights; on a CPU a state's probabilities depend on
    nothing but the weights, the context and the actions, not on what else was asked."""

    def __init__(
        self,
        settings: ImitationSettings,
        texts: Texts,
        vocabulary: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.settings = settings
        self.device = torch.device(device)
        self._texts = texts
        sizes = Sizes(vocabulary, settings.layers, settings.heads, settings.width, settings.context)
        weights, shuffle, bits = np.random.SeedSequence(seed).spawn(3)
        start = torch.Generator().manual_seed(int(weights.generate_state(1)[0]))
        self.model = GPT(sizes, start).to(self.device)
        self._shuffle = np.random.Generator(np.random.SFC64(shuffle))
        self._bits = np.random.SFC64(bits)
        self._known: dict[tuple[Context, tuple[int, ...]], NDArray[np.float64]] = {}
        self._recorded: tuple[RecordedTraining, RecordedScores] | None = None
        if self.device.type == "cuda" and settings.length_buckets and not settings.merge_identical:
            from xtx.cuda.imitation import RecordedScores
            from xtx.cuda.imitation_training import RecordedTraining

            rates = (settings.learning_rate, settings.clip, settings.dropout)
            training = RecordedTraining(self.model, *rates, settings.batch_size, settings.bfloat16)
            self._recorded = training, RecordedScores(self.model)

    # -- contexts

    def _context(self, context: Context) -> Ints:
        """The context's tokens, the oldest dropped where there are too many."""
        parts = [_BEGIN]
        for text in context:
            if text != NONE:
                parts.append(self._texts.tokens(text)[1:-1])
            parts.append(_END)
        tokens = np.concatenate(parts)
        return tokens[-(self.settings.context - self.settings.action_room) :]

    def _action(self, action: int) -> Ints:
        """The action's words and its end mark."""
        return self._texts.tokens(action)[1:][: self.settings.action_room]

    # -- acting

    def probabilities(self, contexts: Sequence[Context], actions: Sequence[Sequence[int]]) -> list[NDArray[np.float64]]:
        """For each context, the probability of each of its valid actions. The arrays must not be written to."""
        return self.ask(contexts, actions)()

    def ask(
        self, contexts: Sequence[Context], actions: Sequence[Sequence[int]]
    ) -> Callable[[], list[NDArray[np.float64]]]:
        """The same, as soon as that is called for: on a GPU they are worked out meanwhile. It must be, before anything
        else is asked."""
        keys = [(context, tuple(valid)) for context, valid in zip(contexts, actions, strict=True)]
        missing = list({key: None for key in keys if key not in self._known})
        if len(self._known) + len(missing) > REMEMBERED:
            self._known = {key: self._known[key] for key in keys if key in self._known}
        # On a CPU one state at a time: no padding, and the same bits whoever else is asked for.
        groups = [missing] if self.device.type == "cuda" and missing else [[key] for key in missing]
        asked = [(group, self._ask_score(group)) for group in groups]

        def answer() -> list[NDArray[np.float64]]:
            for group, scores in asked:
                for key, score in zip(group, scores(), strict=True):
                    self._known[key] = _softmax(self.settings.temperature * score)
            return [self._known[key] for key in keys]

        return answer

    def _ask_score(self, group: Sequence[tuple[Context, tuple[int, ...]]]) -> Callable[[], list[NDArray[np.float64]]]:
        rows = [self._context(context) for context, _ in group]
        says = [[self._action(action) for action in valid] for _, valid in group]
        if self._recorded is not None:
            return self._recorded[1].ask(rows, says)
        return lambda: self._score(rows, says)

    @contextmanager
    def in_passing(self) -> Iterator[None]:
        """What is asked within is forgotten again."""
        known = dict(self._known)
        try:
            yield
        finally:
            self._known = known

    def forget(self) -> None:
        """Drops what is known by the numbers of texts, which will mean other texts."""
        self._known.clear()

    @torch.no_grad()
    def _score(self, rows: list[Ints], says: list[list[Ints]]) -> list[NDArray[np.float64]]:
        """The mean log-probability of each action's tokens, end mark included."""
        # The last token of a context is read with the actions: it predicts their first words.
        lengths = np.array([len(row) - 1 for row in rows])
        tokens = np.zeros((len(rows), lengths.max()), np.int64)
        longest = max(len(said) for valid in says for said in valid)
        inputs = np.zeros((len(rows), max(map(len, says)), longest), np.int64)
        labels = np.full_like(inputs, NOTHING)
        for state, (row, valid) in enumerate(zip(rows, says, strict=True)):
            tokens[state, : len(row) - 1] = row[:-1]
            inputs[state, :, 0] = row[-1]
            for at, said in enumerate(valid):
                inputs[state, at, 1 : len(said)] = said[:-1]
                labels[state, at, : len(said)] = said
        arrays = [torch.from_numpy(array).to(self.device) for array in (lengths, inputs, labels)]
        memory = self.model.read(torch.from_numpy(tokens).to(self.device))
        scores = self.model.log_probabilities(memory, *arrays).double().cpu().numpy()
        return [score[: len(valid)] for score, valid in zip(scores, says, strict=True)]

    # -- learning

    def train(self, prefixes: Sequence[Ints], progress: Callable[[int, int], None] | None = None) -> dict[str, float]:
        """What the training came to: mean loss of the first and the last pass, share of tokens guessed in the last
        pass (dropout is at work in both), pairs and steps.

        prefixes: rows of narration, look, inventory, action for t = 0, 1, ... of each. `progress` is told after each
        step how many of how many are done; an exception that it raises ends the training there.
        """
        examples = self._examples(prefixes)
        said = max(1, sum(example.count * example.said for example in examples))
        goal = said * self.settings.enough + _doubt(prefixes) if self.settings.enough else 0.0
        self._known.clear()
        if self._recorded is None:
            first, last, hits, done = self._train(examples, goal, progress)
        else:
            first, last, hits, done = self._train_recorded(self._recorded[0], examples, goal, progress)
        return {
            "loss_first": first / said,
            "loss_last": last / said,
            "accuracy": hits / said,
            "pairs": sum(example.count for example in examples),
            "steps": done,
        }

    def _train(
        self, examples: list[Example], goal: float, progress: Callable[[int, int], None] | None
    ) -> tuple[float, float, float, int]:
        """The sums of -log p in the first and the last pass, right guesses in the last, steps. A sum below `goal` ends
        it."""
        steps, passes = self._steps(), self.settings.passes
        first, last, hits, done = 0.0, 0.0, 0.0, 0
        for number in range(passes):
            batches = list(self._batches(examples))
            for batch in batches:
                steps.step(batch)
                done += 1
                if progress is not None:
                    progress(done, passes * len(batches))
            last, hits = steps.totals()
            first = first if number else last
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
        """The same on a GPU."""
        passes = self.settings.passes
        training.begin([example.tokens for example in examples], [example.context for example in examples])
        first, last, hits, done = 0.0, 0.0, 0.0, 0
        for number in range(passes):
            training.run(self._shuffle.permutation(len(examples)))
            done += -(-len(examples) // self.settings.batch_size)
            if goal or number in (0, passes - 2, passes - 1):  # asking waits for the GPU
                last, hits = training.totals()
                first = first if number else last
            if progress is not None:
                progress(number + 1, passes)
            if last < goal:
                break
        return first, last, hits, done

    def _examples(self, prefixes: Sequence[Ints]) -> list[Example]:
        """One for each step of each prefix; each distinct one once, with its number, if they are to be merged."""
        counts: dict[tuple[Context, int], int] = {}
        pairs = [pair for prefix in prefixes for pair in _pairs(prefix)]
        for pair in pairs:
            counts[pair] = counts.get(pair, 0) + 1
        built: dict[tuple[Context, int], Example] = {}
        for pair, count in counts.items():
            context = self._context(pair[0])
            tokens = np.concatenate([context, self._action(pair[1])])
            built[pair] = Example(tokens, len(context), count if self.settings.merge_identical else 1)
        return list(built.values()) if self.settings.merge_identical else [built[pair] for pair in pairs]

    def _batches(self, examples: list[Example]) -> Iterator[list[Example]]:
        """All examples in a new order, in batches that stand for `batch_size` pairs."""
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

    def _steps(self) -> EagerSteps:
        """A training with a fresh optimiser."""
        settings = self.settings
        drop: BitDropout | TorchDropout | None = None
        if settings.dropout:
            on_cpu = self.device.type == "cpu"
            drop = BitDropout(settings.dropout, self._bits) if on_cpu else TorchDropout(settings.dropout)
        group = GROUP if settings.length_buckets else settings.batch_size
        return EagerSteps(self.model, settings.learning_rate, settings.clip, drop, group)

    # -- saving

    def state(self) -> State:
        """For `load`."""
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
        """Goes on from a saved state."""
        self.model.load_state_dict({name: torch.tensor(array) for name, array in state["weights"].items()})
        self._shuffle.bit_generator.state = state["shuffle"]
        self._bits.state = state["bits"]
        if self.device.type == "cuda" and len(state["chance"]):
            torch.cuda.set_rng_state(torch.from_numpy(state["chance"].copy()), self.device)
        self._known.clear()


def _pairs(prefix: Ints) -> Iterator[tuple[Context, int]]:
    """The context and the action of each step of a prefix."""
    before, last = NONE, NONE
    for narration, look, inventory, action in prefix.tolist():
        yield (before, last, narration, look, inventory), action
        before, last = last, action


def _doubt(prefixes: Sequence[Ints]) -> float:
    """The least sum of -log p that is possible: not 0, because the same context may have several actions."""
    counts: dict[Context, dict[int, int]] = {}
    for prefix in prefixes:
        for context, action in _pairs(prefix):
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
