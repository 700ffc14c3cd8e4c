"""How fast each part of learning is: ours beside the plain way, as ratios in one run.

    python benchmarks/learning.py [GAME ...] [--threads N] [--states N] [--passes N]

Everything has the paper's sizes and works on texts of the game (zork1, or the embedded adventure where that is not
found): transitions of a random walk for the Q-learner; for the imitation policy ten prefixes of the walkthrough, each
up to the first time that a score was reached, drawn as XTX draws them.

The plain ways are what one would write first: every row of a batch packed and encoded by torch.nn.GRU, the target
network asked anew in every update, Hugging Face's GPT-2 with 30,522 words as the authors use it (eager, all rows filled
up to the longest, the output layer at every token), one row for each action of a state. Below each are our savings one
after the other, each with those above it. That all ways of an update have the same losses is checked first.

All ways of a part take turns on the same data; a figure is the fastest time of each. With one thread, as usual, it is
processor time, which a busy machine spoils less; with more it is the clock's.

With --passes the plain way and ours also train the imitation policy so long, and their losses are compared (slow).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence
from torch.optim import AdamW
from transformers import GPT2Config, GPT2LMHeadModel

from xtx.agents.q_learning.learner import QLearner
from xtx.agents.q_learning.plain_engine import PARTS, PlainEngine
from xtx.agents.state_ids import EncodedState, StateIds
from xtx.agents.xtx import imitation
from xtx.agents.xtx.imitation import Context, ImitationPolicy
from xtx.agents.xtx.imitation_training import Batch, EagerSteps, Example
from xtx.config.settings import ImitationSettings, InverseSettings, QSettings, TextSettings
from xtx.core import Observation, UserError
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.emulator.frotz import Emulator
from xtx.games.story_game import GameSpec, StoryGame
from xtx.networks.gpt import GPT, BitDropout, Sizes
from xtx.networks.q_networks import Encoder
from xtx.text.text_table import Ints, TextTable, Vocabulary

BERT_WORDS = 30_522
EPISODE = 50
GAMES = 8
LONGEST_PREFIX = 60
ROUNDS = 7
SECONDS = 12.0
"""After so long no further round of a part is begun."""

Way = Callable[[], object]


class Sheet:
    """The one table."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self.table = Table("part", "way", "ms", "than plain", "than above", box=None, pad_edge=False)
        for column in self.table.columns[2:]:
            column.justify = "right"

    def add(self, part: str, ways: dict[str, Way]) -> None:
        """Times all ways of a part, of which the first is the plain one."""
        times = fastest(list(ways.values()), self._timer)
        above = times[0]
        for number, (name, seconds) in enumerate(zip(ways, times, strict=True)):
            ratios = [f"{other / seconds:,.{1 if other < 100 * seconds else 0}f}x" for other in (times[0], above)]
            self.table.add_row("" if number else part, name, _ms(seconds), *(ratios if number else ()))
            above = seconds
        self.table.add_section()


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.{2 if seconds < 1e-3 else 1 if seconds < 0.1 else 0}f}"


def fastest(ways: Sequence[Way], timer: Callable[[], float]) -> list[float]:
    """Seconds of each way's fastest run."""
    times = [float("inf")] * len(ways)
    until = time.perf_counter() + SECONDS
    for _ in range(ROUNDS):
        for i, way in enumerate(ways):
            start = timer()
            way()
            times[i] = min(times[i], timer() - start)
        if time.perf_counter() > until:
            break
    return times


# --- the Q-learner ----------------------------------------------------------------------------------------------


def walk(path: str, states: int) -> list[tuple[Observation, str, Observation, bool]]:
    """Transitions of a random walk."""
    game = StoryGame(GameSpec(path))
    choose = random.Random(7)
    found: list[tuple[Observation, str, Observation, bool]] = []
    while len(found) < states:
        observation = game.reset(game.emulator.bindings.walkthrough_seed)
        for _ in range(EPISODE):
            action = choose.choice(observation.actions)
            step = game.step(action)
            found.append((observation, action, step.observation, step.terminated))
            observation = step.observation
            if step.terminated:
                break
    game.close()
    return found


class PackedEngine(PlainEngine):
    """The plain way: PyTorch's GRU over packed rows, and nothing kept of what the target network said."""

    def __init__(self, model: PlainEngine, state_ids: StateIds, every_row: bool) -> None:
        super().__init__(*QUESTION, state_ids, torch.device("cpu"))
        self.network.load_state_dict(model.network.state_dict())
        self._every_row = every_row
        self._target = PackedTarget(self)  # type: ignore[assignment]
        self.grus: dict[int, torch.nn.GRU] = {}

    def gru(self, encoder: Encoder) -> torch.nn.GRU:
        """PyTorch's GRU with the encoder's own weights."""
        if id(encoder) not in self.grus:
            gru = torch.nn.GRU(self._q.hidden, self._q.hidden, batch_first=True)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(gru, f"{name}_l0", getattr(encoder, name))
            self.grus[id(encoder)] = gru
        return self.grus[id(encoder)]

    def _encode(self, encoder: Encoder, texts: NDArray[np.integer]) -> Tensor:
        where = None
        if not self._every_row:
            texts, where = np.unique(texts, return_inverse=True)
        tokens, lengths = self._pad(texts)
        embedded = torch.nn.functional.embedding(tokens, self.network.texts.embedding)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        codes: Tensor = self.gru(encoder)(packed)[1][0]
        return codes if where is None else codes[torch.from_numpy(where)]


class PackedTarget:
    """Values of a batch's next states by the same network, worked out anew each time."""

    def __init__(self, engine: PackedEngine) -> None:
        self._engine = engine

    def values(self, batch: NDArray[np.void]) -> NDArray[np.float32]:
        """max_a' Q(o', a') of each row; 0 where there are no actions."""
        lists = [self._engine._state_ids.action_sets.actions(number) for number in batch["next_actions"]]
        alive = [row for row, actions in enumerate(lists) if len(actions)]
        texts = np.column_stack([batch[f"next_{part}"][alive] for part in PARTS])
        q = self._engine.q_values(texts, [lists[row] for row in alive])
        counts = np.array([len(lists[row]) for row in alive])
        found = np.zeros(len(batch), np.float32)
        found[alive] = np.maximum.reduceat(q, np.cumsum(counts) - counts)
        return found


QUESTION = (replace(QSettings(), target_every=10**9), InverseSettings())


class Questions:
    """A learner that has seen the walk, and the plain engines beside its own, all with the same weights."""

    def __init__(self, transitions: Sequence[tuple[Observation, str, Observation, bool]]) -> None:
        self.state_ids = StateIds(TextSettings())
        self.learner = QLearner(*QUESTION, self.state_ids, 1, 0, torch.device("cpu"))
        self.before = [self.state_ids.encode(before) for before, *_ in transitions]
        self.after = [self.state_ids.encode(after) for *_, after, _ in transitions]
        self.actions = [self.state_ids.texts.id(action) for _, action, *_ in transitions]
        for number, (_, _, after, ended) in enumerate(transitions):
            seen = self.after[number]
            row = (*self.before[number][:3], self.actions[number], *seen[:3], seen.actions, 0.0, ended)
            self.learner.memory.add(0, row)
            if ended or number % EPISODE == EPISODE - 1:
                self.learner.memory.end_episode(0, after.score)
        self.batch = self.learner.memory.sample()
        assert isinstance(self.learner.engine, PlainEngine)
        self.ours: PlainEngine = self.learner.engine
        self.every_row = PackedEngine(self.ours, self.state_ids, every_row=True)
        self.distinct = PackedEngine(self.ours, self.state_ids, every_row=False)
        self.engines = self.every_row, self.distinct, self.ours

    def check(self) -> None:
        """All ways have the same losses."""
        losses = [engine._compute_loss(self.batch)[1] for engine in self.engines]
        for name, loss in losses[-1].items():
            for other in losses[:-1]:
                torch.testing.assert_close(other[name], loss, rtol=1e-3, atol=1e-4)

    def measure(self, sheet: Sheet) -> None:
        every_row, distinct, ours = self.engines
        sheet.add("encoding the texts of a batch", {
            "every row packed": lambda: self._encode(every_row),
            "distinct texts packed": lambda: self._encode(distinct),
            "ours: beginnings shared too": lambda: self._encode(ours),
        })  # fmt: skip
        sheet.add("the same with gradients", {
            "every row packed": lambda: self._encode(every_row, True),
            "distinct texts packed": lambda: self._encode(distinct, True),
            "ours: beginnings shared too": lambda: self._encode(ours, True),
        })  # fmt: skip
        sheet.add("target values of a batch", {
            "every row packed": lambda: every_row._target.compute_values(self.batch),
            "distinct texts packed": lambda: distinct._target.compute_values(self.batch),
            "ours, nothing kept": lambda: self._values(forget=True),
            "ours, kept until the target changes": lambda: self._values(),
        })  # fmt: skip
        sheet.add("one update of INV-DY", {
            "every row packed": lambda: every_row.update(self.batch),
            "distinct texts packed": lambda: distinct.update(self.batch),
            "ours, target values not kept": lambda: self._update(forget=True),
            "ours, target values kept": lambda: self._update(),
        })  # fmt: skip
        states = range(0, len(self.before), len(self.before) // GAMES)[:GAMES]
        before, after = self._texts(self.before, states), self._texts(self.after, states)
        lists = self.state_ids.list_actions([self.before[state] for state in states])
        actions = np.array([self.actions[state] for state in states], np.int32)
        sheet.add(f"Q-values of {GAMES} states", {
            "every row packed": lambda: every_row.q_values(before, lists),
            "distinct texts packed": lambda: distinct.q_values(before, lists),
            "ours": lambda: ours.q_values(before, lists),
        })  # fmt: skip
        sheet.add(f"intrinsic reward of {GAMES} steps", {
            "every row packed": lambda: every_row.compute_surprises(before, actions, after),
            "distinct texts packed": lambda: distinct.compute_surprises(before, actions, after),
            "ours": lambda: ours.compute_surprises(before, actions, after),
        })  # fmt: skip

    def _texts(self, seen: Sequence[EncodedState], states: Sequence[int]) -> Ints:
        return np.array([seen[state][:3] for state in states], np.int32)

    def _encode(self, engine: PlainEngine, gradients: bool = False) -> None:
        texts = np.concatenate([np.column_stack([self.batch[f"{side}{p}"] for p in PARTS]) for side in ("", "next_")])
        with torch.set_grad_enabled(gradients):
            codes = engine._encode_states(texts)
            actions = engine._encode(engine.network.texts.action, self.batch["action"])
        if gradients:
            encoders = list(engine.network.texts.parameters())
            torch.autograd.grad(codes.sum() + actions.sum(), encoders)

    def _values(self, forget: bool = False) -> None:
        if forget:
            self.ours.clear_cache()
        self.ours._target.compute_values(self.batch)

    def _update(self, forget: bool = False) -> None:
        if forget:
            self.ours.clear_cache()
        self.ours.update(self.batch)


# --- the imitation policy ---------------------------------------------------------------------------------------


def prefixes_of(path: str, texts: TextTable) -> list[Ints]:
    """Ten prefixes of the game's walkthrough, drawn by score as XTX draws them."""
    emulator = Emulator(find_story(path))
    narration = emulator.reset(emulator.bindings.walkthrough_seed)
    walked: list[list[int]] = []
    ends: dict[int, int] = {}
    for action in emulator.bindings.walkthrough[:LONGEST_PREFIX]:
        here = emulator.save()
        seen = [narration]
        for question in ("look", "inventory"):
            emulator.step(question)
            seen.append(emulator.narration)
            emulator.restore(here)
        walked.append([texts.id(text) for text in (*seen, action)])
        emulator.step(action)
        narration = emulator.narration
        ends.setdefault(emulator.score, len(walked))
    emulator.close()
    scores = np.array(sorted(ends), float)
    weights = np.exp((scores - scores.mean()) / (scores.std(ddof=1) if len(scores) > 1 else 1))
    drawn = np.random.default_rng(0).choice(scores, 10, p=weights / weights.sum())
    return [np.array(walked[: ends[int(score)]], np.int32) for score in drawn]


class Plain:
    """The plain way: padded rows, the loss at every token, labels of -100 where it does not count."""

    def __init__(self, vocabulary: int) -> None:
        config = GPT2Config(
            vocab_size=vocabulary, n_positions=512, n_embd=128, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2,
            attn_implementation="eager",
        )  # fmt: skip
        self.model = GPT2LMHeadModel(config).train()
        self.model.loss_type = "ForCausalLM"  # what it takes anyway, but with a warning
        self.optimiser = AdamW(self.model.parameters(), lr=1e-3, weight_decay=0)

    def step(self, examples: Sequence[Example]) -> float:
        """The loss of one step."""
        length = max(len(example.tokens) for example in examples)
        tokens = torch.zeros(len(examples), length, dtype=torch.long)
        labels = torch.full_like(tokens, -100)
        seen = torch.zeros_like(tokens)
        for row, example in enumerate(examples):
            tokens[row, : len(example.tokens)] = torch.from_numpy(example.tokens)
            labels[row, example.context : len(example.tokens)] = tokens[row, example.context : len(example.tokens)]
            seen[row, : len(example.tokens)] = 1
        loss = self.model(tokens, attention_mask=seen, labels=labels).loss
        self.optimiser.zero_grad()
        loss.backward()
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return float(loss.detach())

    @torch.no_grad()
    def score(self, policy: ImitationPolicy, contexts: Sequence[Context], valid: Sequence[Sequence[int]]) -> None:
        """The log-probabilities of each action, each in a row of its own behind its context."""
        self.model.eval()
        for context, actions in zip(contexts, valid, strict=True):
            row = policy._make_context(context)
            examples = [Example(np.concatenate([row, policy._make_action(action)]), len(row)) for action in actions]
            batch = Batch.from_examples(examples)
            self.model(batch.tokens).logits.log_softmax(-1).gather(2, batch.tokens[:, :, None])


class Imitating:
    """A policy with a buffer to learn."""

    def __init__(self, path: str) -> None:
        self.words = TextSettings().vocabulary
        self.texts = TextTable(Vocabulary(self.words), 512)
        self.prefixes = prefixes_of(path, self.texts)
        self.policy = ImitationPolicy(ImitationSettings(), self.texts, self.words)
        self.examples = self.policy._make_examples(self.prefixes)

    def measure(self, sheet: Sheet) -> None:
        batch = next(self.policy._draw_batches(self.examples))
        plain, fewer = Plain(BERT_WORDS), Plain(self.words)
        merging = ImitationPolicy(ImitationSettings(merge_identical=True), self.texts, self.words)
        merged = next(merging._draw_batches(merging._make_examples(self.prefixes)))
        whole, large, small, once = (self._steps(size) for size in (len(batch), 32, imitation.GROUP, imitation.GROUP))
        sheet.add(f"one imitation step, {len(batch)} pairs", {
            f"Hugging Face, {BERT_WORDS:,} words": lambda: plain.step(batch),
            f"{self.words:,} words": lambda: fewer.step(batch),
            "ours: what is not predicted is not worked out": lambda: whole.step(batch),
            "in groups of 32 of like length": lambda: large.step(batch),
            f"in groups of {imitation.GROUP}": lambda: small.step(batch),
            "equal pairs once (an option)": lambda: once.step(merged),
        })  # fmt: skip
        walked = max(self.prefixes, key=len)
        contexts = [context for context, _ in imitation._iterate_pairs(walked)][:: max(1, len(walked) // GAMES)][:GAMES]
        known = sorted({int(row[3]) for prefix in self.prefixes for row in prefix})
        valid = [np.random.default_rng(place).choice(known, 16).tolist() for place in range(len(contexts))]
        sheet.add(f"imitation scores, {len(contexts)} states of 16 actions", {
            f"each action by itself, {BERT_WORDS:,} words": lambda: plain.score(self.policy, contexts, valid),
            f"{self.words:,} words": lambda: fewer.score(self.policy, contexts, valid),
            "ours: the context once for all actions": lambda: self._score(contexts, valid, forget=True),
            "ours, kept until the weights change": lambda: self._score(contexts, valid),
        })  # fmt: skip

    def _steps(self, group: int) -> EagerSteps:
        return EagerSteps(GPT(Sizes(self.words)), 1e-3, 1.0, BitDropout(0.1, np.random.SFC64(0)), group)

    def _score(self, contexts: Sequence[Context], valid: Sequence[Sequence[int]], forget: bool = False) -> None:
        if forget:
            self.policy.clear_cache()
        self.policy.probabilities(contexts, valid)

    def equal_loss(self, passes: int) -> str:
        """What the last pass of a training comes to, plain (with our vocabulary) and ours."""
        policy = ImitationPolicy(replace(ImitationSettings(), passes=passes), self.texts, self.words)
        start = time.perf_counter()
        ours = policy.train(self.prefixes)["loss_last"]
        between = time.perf_counter()
        plain, losses = Plain(self.words), []
        for _ in range(passes):
            losses = [plain.step(batch) for batch in policy._draw_batches(self.examples)]
        short, long = between - start, time.perf_counter() - between
        return (
            f"{passes} passes; last loss: Hugging Face with {self.words:,} words {np.mean(losses):.3f} in {long:.0f} s "
            f"by the clock, ours {ours:.3f} in {short:.0f} s, {long / short:.1f}x"
        )


def measure(path: str, options: argparse.Namespace, console: Console) -> None:
    """Prints the table of a game."""
    console.print(f"{path}: walking ...")
    questions, imitating = Questions(walk(path, options.states)), Imitating(path)
    questions.check()
    lengths = [len(example.tokens) for example in imitating.examples]
    console.print(
        f"{len(questions.before)} transitions, {len(questions.state_ids.texts)} texts; {len(lengths)} pairs to "
        f"imitate, {np.mean(lengths):.0f} tokens each, at most {max(lengths)}; threads: {options.threads}"
    )
    sheet = Sheet(time.process_time if options.threads == 1 else time.perf_counter)
    questions.measure(sheet)
    imitating.measure(sheet)
    console.print(sheet.table)
    if options.passes:
        console.print(imitating.equal_loss(options.passes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", metavar="GAME")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--states", type=int, default=600, help="of the random walk")
    parser.add_argument("--passes", type=int, default=0, help="also train the imitation policy so long")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    console = Console(width=130, highlight=False)
    try:
        stories = [find_story(game) for game in options.games or ["zork1"]]
    except UserError as error:
        if options.games:
            parser.error(str(error))
        stories = [find_story(find_default_game())]
    for story in stories:
        measure(str(story.path), options, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
