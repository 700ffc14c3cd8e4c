"""How fast the imitation policy learns and acts: ours beside the plain way, as ratios in one run.

    python benchmarks/imitation.py [GAME] [--threads N] [--steps N] [--passes N]

The buffer is what XTX would draw: ten prefixes of the game's walkthrough, each up to the first time that a score was
reached, with repeats. The plain way is Hugging Face's GPT2LMHeadModel as the authors use it: eager, 30,522 words, every
row filled up to the batch's longest, the output layer at every token. Then our savings one after the other, each with
those above it. All take the same batches in turn; a figure is the fastest of each batch, summed over the batches.
With --passes the plain way and ours are also trained that long, and their losses compared (slow).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from transformers import GPT2Config, GPT2LMHeadModel

from xtx.agents import imitation
from xtx.agents.imitation import ImitationPolicy, ImitationSettings
from xtx.agents.imitation_steps import Batch, EagerSteps, Example
from xtx.games.catalog import default_game, find_story
from xtx.games.jericho import Emulator
from xtx.gpt import GPT, BitDropout, Dropout, Sizes, TorchDropout
from xtx.text import TextTable, Vocabulary

BERT_WORDS = 30_522
WORDS = 2_048
LONGEST_PREFIX = 60
PREFIXES = 10
REPEATS = 3


def buffer(game: str, texts: TextTable) -> list[np.ndarray]:
    """Ten prefixes of the game's walkthrough, drawn by score as XTX draws them."""
    emulator = Emulator(find_story(game))
    narration = emulator.reset(emulator.walkthrough_seed)
    walk, ends = [], {}
    for action in emulator.walkthrough[:LONGEST_PREFIX]:
        here = emulator.save()
        seen = [narration]
        for question in ("look", "inventory"):
            emulator.step(question)
            seen.append(emulator.narration)
            emulator.restore(here)
        walk.append([texts.id(text) for text in (*seen, action)])
        emulator.step(action)
        narration = emulator.narration
        ends.setdefault(emulator.score, len(walk))
    emulator.close()
    scores = np.array(sorted(ends), float)
    weights = np.exp((scores - scores.mean()) / (scores.std(ddof=1) if len(scores) > 1 else 1))
    drawn = np.random.default_rng(0).choice(scores, PREFIXES, p=weights / weights.sum())
    return [np.array(walk[: ends[int(score)]], np.int32) for score in drawn]


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
        return loss.item()


class Everywhere(GPT):
    """Our model without its savings: all blocks at all tokens, the output layer too or at the asked places only."""

    def __init__(self, sizes: Sizes, output_everywhere: bool) -> None:
        super().__init__(sizes)
        self.output_everywhere = output_everywhere

    def forward(self, tokens: Tensor, at: Tensor | None = None, drop: Dropout | None = None) -> Tensor:
        x = self.embed(tokens, drop)
        for block in self.blocks:
            x = block(x, self.unseen[: tokens.shape[1], : tokens.shape[1]], drop)
        places = at[:, :, None]
        if self.output_everywhere:
            logits = self.logits(x)
            return logits.gather(1, places.expand(-1, -1, logits.shape[-1]))
        return self.logits(x.gather(1, places.expand(-1, -1, x.shape[-1])))


def ways() -> dict[str, Callable[[Sequence[Example]], object]]:
    """The ways compared, each with one thing more than the one before."""
    sizes, bits = Sizes(WORDS), BitDropout(0.1, np.random.SFC64(0))
    torch_drop = TorchDropout(0.1)
    return {
        f"plain: Hugging Face, {BERT_WORDS:,} words": Plain(BERT_WORDS).step,
        f"a vocabulary of {WORDS:,} words": Plain(WORDS).step,
        "our blocks": EagerSteps(Everywhere(sizes, True), 1e-3, 1.0, torch_drop, 64).step,
        "output layer at the action only": EagerSteps(Everywhere(sizes, False), 1e-3, 1.0, torch_drop, 64).step,
        "last block's queries at the action only": EagerSteps(GPT(sizes), 1e-3, 1.0, torch_drop, 64).step,
        "dropout from 16 bits": EagerSteps(GPT(sizes), 1e-3, 1.0, bits, 64).step,
        **{
            f"groups of {size} rows of like length": EagerSteps(GPT(sizes), 1e-3, 1.0, bits, size).step
            for size in (32, 16, imitation.GROUP)
        },
    }


def fastest(steps: dict[str, Callable[[Sequence[Example]], object]], batches: list[list[Example]]) -> dict[str, float]:
    """Seconds of each way for all batches."""
    times = {name: [float("inf")] * len(batches) for name in steps}
    for _ in range(REPEATS):
        for number, batch in enumerate(batches):
            for name, step in steps.items():
                start = time.perf_counter()
                step(batch)
                times[name][number] = min(times[name][number], time.perf_counter() - start)
    return {name: sum(seconds) for name, seconds in times.items()}


def scoring(agent: ImitationPolicy, prefixes: list[np.ndarray], actions: list[int]) -> dict[str, float]:
    """Seconds for the probabilities of 16 valid actions at eight states, each way."""
    walk = max(prefixes, key=len)
    contexts = [context for context, _ in imitation._pairs(walk)][:: max(1, len(walk) // 8)][:8]
    valid = [np.random.default_rng(place).choice(actions, 16).tolist() for place in range(len(contexts))]
    plain = Plain(BERT_WORDS).model.eval()

    @torch.no_grad()
    def by_row() -> None:
        for context, said in zip(contexts, valid, strict=True):
            row = agent._context(context)
            examples = [Example(np.concatenate([row, agent._action(action)]), len(row)) for action in said]
            batch = Batch.of(examples)
            logits = plain(batch.tokens).logits
            logits.log_softmax(-1).gather(2, batch.tokens[:, :, None])

    def ours() -> None:
        agent._known.clear()
        agent.probabilities(contexts, valid)

    def again() -> None:
        agent.probabilities(contexts, valid)

    ours()
    return fastest({"by_row": lambda _: by_row(), "ours": lambda _: ours(), "again": lambda _: again()}, [[]])


def equal_loss(texts: TextTable, prefixes: list[np.ndarray], passes: int) -> tuple[float, float, float, float]:
    """Mean loss of the last pass, plain (with our vocabulary) and ours, and the seconds that each took."""
    agent = ImitationPolicy(ImitationSettings(passes=passes), texts, WORDS)
    start = time.perf_counter()
    loss = agent.train(prefixes)["loss_last"]
    ours = time.perf_counter() - start
    plain, other = Plain(WORDS), ImitationPolicy(ImitationSettings(), texts, WORDS)
    examples = other._examples(prefixes)
    start = time.perf_counter()
    for _ in range(passes):
        batches = list(other._batches(examples))
        said = [sum(example.said for example in batch) for batch in batches]
        losses = [plain.step(batch) for batch in batches]
    return float(np.average(losses, weights=said)), loss, time.perf_counter() - start, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", nargs="?", default=default_game())
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=2, help="batches that are timed")
    parser.add_argument("--passes", type=int, default=0, help="also train this long and compare the losses")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console(width=120, highlight=False)
    texts = TextTable(Vocabulary(WORDS), 512)
    prefixes = buffer(options.game, texts)
    agent = ImitationPolicy(ImitationSettings(), texts, WORDS)
    examples = agent._examples(prefixes)
    lengths = [len(example.tokens) for example in examples]
    console.print(
        f"{options.game}: {len(examples)} pairs, {len({example.tokens.tobytes() for example in examples})} distinct; "
        f"tokens of a row {statistics.mean(lengths):.0f} on average, at most {max(lengths)}; {len(texts.vocabulary)} "
        f"words; {options.threads} threads"
    )
    batches = list(agent._batches(examples))[: options.steps]
    steps = ways()
    seconds = fastest(steps, batches)
    merging = ImitationPolicy(ImitationSettings(merge_identical=True), texts, WORDS)
    dealt = list(merging._batches(merging._examples(prefixes)))
    bits = BitDropout(0.1, np.random.SFC64(0))
    merged = fastest({"merged": EagerSteps(GPT(Sizes(WORDS)), 1e-3, 1.0, bits, imitation.GROUP).step}, dealt)["merged"]
    seconds["equal pairs merged (an option)"] = merged * len(batches) / len(dealt)
    table = Table("one step of 64 pairs", "ms", "faster than the line above", "than plain", box=None, pad_edge=False)
    plain, before = next(iter(seconds.values())), next(iter(seconds.values()))
    for name, total in seconds.items():
        table.add_row(name, f"{1e3 * total / len(batches):.0f}", f"{before / total:.2f}x", f"{plain / total:.1f}x")
        before = total
    console.print(table)
    actions = sorted({int(row[3]) for prefix in prefixes for row in prefix})
    score = scoring(agent, prefixes, actions)
    console.print(
        f"probabilities of 16 actions at 8 states: plain, each action by itself {1e3 * score['by_row']:.0f} ms; ours "
        f"{1e3 * score['ours']:.1f} ms, {score['by_row'] / score['ours']:.0f}x; asked again before the weights change "
        f"{1e3 * score['again']:.2f} ms"
    )
    if options.passes:
        theirs, ours, long, short = equal_loss(texts, prefixes, options.passes)
        console.print(
            f"{options.passes} passes; last loss: Hugging Face with {WORDS:,} words {theirs:.3f} in {long:.0f} s, "
            f"ours {ours:.3f} in {short:.0f} s, {long / short:.1f}x"
        )


if __name__ == "__main__":
    main()
