"""How fast the text encoder's kernel is: ours beside torch.nn.GRU, as ratios in one run.

    python benchmarks/encoder.py [GAME] [--states N] [--threads N]

Texts are those of a random walk through the game (zork1, or the embedded adventure where that is not found). A batch
is 64 transitions, as a learner samples them: the texts of 64 states and of the 64 states after them. Ours includes
building the plan; PyTorch's is given padded tensors. GFLOP/s are those of the recurrence alone, over all of our time.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from xtx import gru
from xtx.core import Observation, UserError
from xtx.games.catalog import default_game, find_story
from xtx.games.game import GameSpec, StoryGame

HIDDEN = 128
VOCABULARY = 8000
TRANSITIONS = 64
EPISODE = 50
REPEATS = 15

Row = tuple[int, ...]


def walk(path: str, states: int) -> list[tuple[Observation, Observation]]:
    """Transitions of a random walk."""
    game = StoryGame(GameSpec(path))
    choose = random.Random(7)
    found: list[tuple[Observation, Observation]] = []
    while len(found) < states:
        observation = game.reset(game.emulator.walkthrough_seed)
        for _ in range(EPISODE):
            step = game.step(choose.choice(observation.actions))
            found.append((observation, step.observation))
            observation = step.observation
            if step.terminated:
                break
    game.close()
    return found


def batch(transitions: Sequence[tuple[Observation, Observation]], count: int) -> dict[str, list[Row]]:
    """The rows of each of a network's encoders, for a random sample."""
    numbers: dict[str, int] = {}

    def tokens(text: str) -> Row:
        words = re.findall(r"[a-z0-9']+|[^\sa-z0-9]", text.lower())
        return tuple(numbers.setdefault(word, len(numbers) + 1) for word in words) or (0,)

    seen = [observation for pair in random.Random(3).sample(list(transitions), count) for observation in pair]
    return {
        "narration": [tokens(observation.text) for observation in seen],
        "look": [tokens(observation.look) for observation in seen],
        "inventory": [tokens(observation.inventory) for observation in seen],
        "actions": [tokens(action) for observation in seen for action in observation.actions],
    }


def fastest(ways: Sequence[Callable[[], object]]) -> list[float]:
    """Milliseconds of each way's fastest run. Ways take turns, so that a busy machine is busy for all of them."""
    times = [float("inf")] * len(ways)
    for _ in range(REPEATS):
        for i, way in enumerate(ways):
            start = time.perf_counter()
            way()
            times[i] = min(times[i], 1e3 * (time.perf_counter() - start))
    return times


class Encoder:
    """The three ways, with the same weights."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.net = torch.nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        net = self.net
        self.weights = [self.embedding.weight, net.weight_ih_l0, net.weight_hh_l0, net.bias_ih_l0, net.bias_hh_l0]

    def ours(self, rows: Sequence[Row]) -> Callable[[], Tensor]:
        flat = np.array([word for row in rows for word in row], np.int32)
        offsets = np.cumsum([0, *map(len, rows)])
        return lambda: gru.last_states(gru.Plan(flat, offsets), *self.weights)

    def theirs(self, rows: Sequence[Row]) -> Callable[[], Tensor]:
        lengths = torch.tensor([len(row) for row in rows])
        padded = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for i, row in enumerate(rows):
            padded[i, : len(row)] = torch.tensor(row)

        def run() -> Tensor:
            packed = pack_padded_sequence(self.embedding(padded), lengths, batch_first=True, enforce_sorted=False)
            last: Tensor = self.net(packed)[1][0]
            return last

        return run

    def backwards(self, forwards: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(forwards().sum(), self.weights)


def without_gradients(forwards: Callable[[], Tensor]) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            forwards()

    return run


def matmul_peak() -> float:
    """GFLOP/s of PyTorch's own product of large matrices."""
    a, b = torch.randn(2048, 1024), torch.randn(1024, 1024)
    return 2 * a.numel() * len(b) / fastest([lambda: a @ b])[0] / 1e6


def measure(table: Table, encoder: Encoder, name: str, rows: list[Row], peak: float) -> None:
    plan = gru.Plan(np.array([word for row in rows for word in row], np.int32), np.cumsum([0, *map(len, rows)]))
    distinct = sorted(set(rows))
    ways = [encoder.ours(rows), encoder.theirs(rows), encoder.theirs(distinct)]
    torch.testing.assert_close(ways[0](), ways[1](), rtol=0, atol=1e-5)
    forward = fastest([without_gradients(way) for way in ways])
    both = fastest([encoder.backwards(way) for way in ways])
    cells = [name, f"{len(rows)} / {len(distinct)}", f"{sum(map(len, rows))} / {plan.nodes}"]
    for (mine, every, once), work in ((forward, 6), (both, 18)):
        speed = work * plan.nodes * HIDDEN**2 / mine / 1e6
        cells += [f"{mine:.2f} ms", f"{every / mine:.1f}x", f"{once / mine:.1f}x", f"{speed:.0f} ({speed / peak:.0%})"]
    table.add_row(*cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", nargs="?")
    parser.add_argument("--states", type=int, default=600)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console(width=170, highlight=False)
    try:
        story = find_story(options.game or "zork1")
    except UserError as error:
        if options.game:
            parser.error(str(error))
        story = find_story(default_game())
    console.print(f"{story.path.name}: walking ...")
    transitions = walk(str(story.path), options.states)
    peak = matmul_peak()
    console.print(f"{options.threads} threads; PyTorch's product of large matrices: {peak:.0f} GFLOP/s")
    table = Table(
        "encoder", "rows / distinct", "tokens / nodes", "forward", "all rows", "distinct", "GFLOP/s (of product)",
        "forward + backward", "all rows", "distinct", "GFLOP/s (of product)", box=None, pad_edge=False,
    )  # fmt: skip
    encoder = Encoder()
    rows = batch(transitions, TRANSITIONS)
    for name, them in rows.items():
        measure(table, encoder, name, them, peak)
    measure(table, encoder, "all of these", [row for them in rows.values() for row in them], peak)
    for name, them in batch(transitions, 4).items():
        measure(table, encoder, f"{name}, 8 states", them, peak)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
