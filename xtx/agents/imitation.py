"""The imitation policy: a language model of the action, given the two actions before it and what is seen.

Texts are numbers of the text table throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.imitation_steps import EagerSteps, Example, GraphedSteps, Ints, Steps
from xtx.config import ImitationSettings
from xtx.core import State
from xtx.gpt import GPT, NOTHING, BitDropout, Sizes, TorchDropout
from xtx.text import SEP, START

Context = tuple[int, int, int, int, int]
"""The actions at t-2 and t-1 (-1 where the episode had not begun), narration, look, inventory at t."""

NONE = -1
GROUP = 8
"""Rows that are computed together on a CPU; measured with benchmarks/imitation.py."""
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
        self._known: dict[bytes, NDArray[np.float64]] = {}
        self._graphed: GraphedSteps | None = None

    # -- contexts

    def _context(self, context: Context) -> Ints:
        """The context's tokens, the oldest dropped where there are too many."""
        words = [() if text == NONE else self._texts.tokens(text)[1:-1] for text in context]
        tokens = np.fromiter(chain((START,), *(chain(part, (SEP,)) for part in words)), np.int32)
        return tokens[-(self.settings.context - self.settings.action_room) :]

    def _action(self, action: int) -> Ints:
        """The action's words and its end mark."""
        return self._texts.tokens(action)[1:][: self.settings.action_room]

    # -- acting

    def probabilities(self, contexts: Sequence[Context], actions: Sequence[Sequence[int]]) -> list[NDArray[np.float64]]:
        """For each context, the probability of each of its valid actions. The arrays must not be written to."""
        rows = [self._context(context) for context in contexts]
        says = [[self._action(action) for action in valid] for valid in actions]
        # Keys are the tokens themselves: the number of a text may later stand for another text.
        keys = [_key(row, said) for row, said in zip(rows, says, strict=True)]
        missing = list({key: at for at, key in enumerate(keys) if key not in self._known}.values())
        if len(self._known) + len(missing) > REMEMBERED:
            found = {key: self._known[key] for key in keys if key in self._known}
            self._known = found
        # On a CPU one state at a time: no padding, and the same bits whoever else is asked for.
        for group in [missing] if self.device.type == "cuda" and missing else [[at] for at in missing]:
            scores = self._score([rows[at] for at in group], [says[at] for at in group])
            for at, score in zip(group, scores, strict=True):
                self._known[keys[at]] = _softmax(self.settings.temperature * score)
        return [self._known[key] for key in keys]

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
        steps = self._steps()
        self._known.clear()
        first, last, hits, done = 0.0, 0.0, 0.0, 0
        for number in range(self.settings.passes):
            batches = list(self._batches(examples))
            for batch in batches:
                steps.step(batch)
                done += 1
                if progress is not None:
                    progress(done, self.settings.passes * len(batches))
            if number in (0, self.settings.passes - 1):
                last, hits = steps.totals()
                first = first if number else last
            elif number == self.settings.passes - 2:
                steps.totals()
        return {
            "loss_first": first / said,
            "loss_last": last / said,
            "accuracy": hits / said,
            "pairs": sum(example.count for example in examples),
            "steps": done,
        }

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

    def _steps(self) -> Steps:
        """A training with a fresh optimiser."""
        settings = self.settings
        if self.device.type == "cuda" and settings.length_buckets:
            if self._graphed is None:
                self._graphed = GraphedSteps(
                    self.model, settings.learning_rate, settings.clip, settings.dropout, settings.batch_size
                )
            self._graphed.begin()
            return self._graphed
        drop = None
        if settings.dropout:
            on_cpu = self.device.type == "cpu"
            drop = BitDropout(settings.dropout, self._bits) if on_cpu else TorchDropout(settings.dropout)
        group = GROUP if settings.length_buckets else settings.batch_size
        return EagerSteps(self.model, settings.learning_rate, settings.clip, drop, group)

    # -- saving

    def state(self) -> State:
        """For `load`. On a GPU dropout draws from torch's generator there, which is not part of it."""
        return {
            "weights": {name: tensor.cpu().numpy().copy() for name, tensor in self.model.state_dict().items()},
            "shuffle": self._shuffle.bit_generator.state,
            "bits": self._bits.state,
        }

    def load(self, state: State) -> None:
        """Goes on from a saved state."""
        self.model.load_state_dict({name: torch.tensor(array) for name, array in state["weights"].items()})
        self._shuffle.bit_generator.state = state["shuffle"]
        self._bits.state = state["bits"]
        self._known.clear()


def _pairs(prefix: Ints) -> Iterator[tuple[Context, int]]:
    """The context and the action of each step of a prefix."""
    before, last = NONE, NONE
    for narration, look, inventory, action in prefix.tolist():
        yield (before, last, narration, look, inventory), action
        before, last = last, action


def _key(row: Ints, said: Sequence[Ints]) -> bytes:
    """What a state's probabilities depend on: the texts and where each begins."""
    return b"".join(chain.from_iterable((len(text).to_bytes(4), text.tobytes()) for text in (row, *said)))


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    powers: NDArray[np.float64] = np.exp(scores - scores.max())
    powers /= powers.sum()
    powers.flags.writeable = False
    return powers
