"""The transformer of the imitation policy: GPT-2's shape, computed only where something is predicted.

Tensors in, tensors out. Rows are filled up on the right, so the causal mask alone keeps padding out of every result.
Letters of shapes: B rows, L tokens of a row, A predicted tokens of a row, W width, H heads, D = W / H, V vocabulary;
when scoring, S states, C tokens of a context, N actions of a state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

NOTHING = -100
"""The label of a place at which nothing is predicted."""

Memory = list[tuple[Tensor, Tensor]]
"""Keys and values of the contexts, for each layer, each [S, H, C, D]."""


@dataclass(frozen=True)
class Sizes:
    """How large a transformer is; GPT-2's shape at the paper's size."""

    vocabulary: int
    """Rows of the word embedding, which is also the output layer."""
    layers: int = 3
    """Blocks."""
    heads: int = 4
    """Attention heads of a block."""
    width: int = 128
    """Numbers that stand for one token; the feed-forward layers are four times as wide."""
    context: int = 512
    """Positions: the longest row."""


class Dropout(Protocol):
    """What is left out at random while training."""

    rate: float
    """Share that is left out."""

    def __call__(self, x: Tensor) -> Tensor:
        """`x` with a share of it set to 0 and the rest scaled up."""

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus such an `x`."""


class TorchDropout:
    """Dropout from torch's own generator: the one that a CUDA graph can repeat with new numbers."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, x: Tensor) -> Tensor:
        """`x` with a share of it set to 0 and the rest scaled up."""
        return F.dropout(x, self.rate)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus such an `x`."""
        return residual + F.dropout(x, self.rate)


class BitDropout:
    """Dropout from 16 random bits a number. On a CPU torch draws one number after another from a Mersenne twister,
    which takes longer than the layer it is meant for; here one draw serves four numbers."""

    def __init__(self, rate: float, bits: np.random.BitGenerator) -> None:
        self._threshold = round(rate * 65536)
        self.rate = self._threshold / 65536
        """The rate to the nearest 1/65536."""
        self._scale = 1 / (1 - self.rate)
        self._bits = bits

    def _kept(self, x: Tensor) -> Tensor:
        """1 where `x` is kept, 0 where it is not."""
        words = self._bits.random_raw(-(-x.numel() // 4)).view(np.int16)[: x.numel()]
        kept = torch.empty(x.shape, dtype=x.dtype)
        # straight into floats: torch multiplies by booleans several times more slowly
        torch.ge(torch.from_numpy(words).view(x.shape), self._threshold - 32768, out=kept)
        return kept

    def __call__(self, x: Tensor) -> Tensor:
        """`x` with a share of it set to 0 and the rest scaled up."""
        return x * self._kept(x).mul_(self._scale)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus such an `x`."""
        return torch.addcmul(residual, x, self._kept(x), value=self._scale)


def attend(
    query: Tensor, key: Tensor, value: Tensor, unseen: Tensor, drop: Dropout | None, causal: bool = False
) -> Tensor:
    """What each query [B, H, Q, D] reads from the values [B, H, L, D]; `unseen` is -inf where it may not look, and
    `causal` says that this is all that comes after it."""
    if drop is None or query.is_cuda:
        rate = 0.0 if drop is None else drop.rate
        if causal and query.is_cuda:  # which has quicker ways than reading a mask
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=rate)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=unseen, dropout_p=rate)
    # On a CPU torch's fused attention knows no dropout.
    batch, heads, queries, depth = query.shape
    flat = (batch * heads, -1, depth)
    if unseen.dim() == 4:
        unseen = unseen.expand(batch, heads, queries, -1).reshape(batch * heads, queries, -1)
    scores = torch.baddbmm(unseen, query.reshape(flat), key.reshape(flat).mT, alpha=1 / math.sqrt(depth))
    weights = drop(scores.softmax(-1))
    return torch.bmm(weights, value.reshape(flat)).view(batch, heads, queries, depth)


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to what comes in, each behind a layer norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.norm_1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.feed_in = nn.Linear(width, 4 * width)
        self.feed_out = nn.Linear(4 * width, width)

    def _split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """`parts` tensors [B, H, L, D] out of one [B, L, parts * W]."""
        batch, length, _ = x.shape
        return x.view(batch, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4).contiguous().unbind(0)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all tokens of x [B, L, W], each [B, H, L, D]."""
        query, key, value = self._split(self.query_key_value(self.norm_1(x)), 3)
        return query, key, value

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values alone."""
        return self._keys_values(self.norm_1(x))

    def _keys_values(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        width = normed.shape[-1]
        projection = self.query_key_value
        key, value = self._split(F.linear(normed, projection.weight[width:], projection.bias[width:]), 2)
        return key, value

    def finish(self, x: Tensor, read: Tensor, drop: Dropout | None) -> Tensor:
        """The block's output [B, L, W], given what its attention read [B, H, L, D]."""
        read = self.attention_out(read.transpose(1, 2).reshape(x.shape))
        x = x + read if drop is None else drop.add(x, read)
        fed = self.feed_out(F.gelu(self.feed_in(self.norm_2(x)), approximate="tanh"))
        return x + fed if drop is None else drop.add(x, fed)

    def forward(self, x: Tensor, unseen: Tensor, drop: Dropout | None) -> Tensor:
        """The block's output [B, L, W] at all tokens."""
        return self.finish(x, attend(*self.queries_keys_values(x), unseen, drop, causal=True), drop)

    def at(self, x: Tensor, at: Tensor, drop: Dropout | None) -> Tensor:
        """The block's output [B, A, W] at the places `at` [B, A] only; the others give their keys and values."""
        width = x.shape[-1]
        places = at[:, :, None].expand(-1, -1, width)
        normed = self.norm_1(x)
        key, value = self._keys_values(normed)
        projection = self.query_key_value
        asking = F.linear(normed.gather(1, places), projection.weight[:width], projection.bias[:width])
        (query,) = self._split(asking, 1)
        hidden = torch.arange(x.shape[1], device=x.device) > at[:, None, :, None]  # [B, 1, A, L]
        unseen = torch.zeros(hidden.shape, dtype=x.dtype, device=x.device).masked_fill_(hidden, -math.inf)
        return self.finish(x.gather(1, places), attend(query, key, value, unseen, drop), drop)


class GPT(nn.Module):
    """A causal language model. Whether dropout takes place is an argument, not a mode that can be forgotten."""

    def __init__(self, sizes: Sizes, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.unseen: Tensor
        causal = torch.full((sizes.context, sizes.context), -math.inf).triu_(1)
        self.register_buffer("unseen", causal, persistent=False)
        self._initialise(generator)

    def _initialise(self, generator: torch.Generator | None) -> None:
        """GPT-2's beginning: spread 0.02; what is added to the residual stream less, as there are more layers."""
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" in name:
                nn.init.ones_(weight)
            else:
                out = name.endswith(("attention_out.weight", "feed_out.weight"))
                spread = 0.02 / math.sqrt(2 * self.sizes.layers) if out else 0.02
                nn.init.normal_(weight, std=spread, generator=generator)

    def _body(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def embed(self, tokens: Tensor, drop: Dropout | None = None) -> Tensor:
        """The input [B, L, W] of the first block."""
        x: Tensor = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        return x if drop is None else drop(x)

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised log-probabilities [..., V] of the next token."""
        return F.linear(self.norm(x), self.words.weight)

    def forward(self, tokens: Tensor, at: Tensor | None = None, drop: Dropout | None = None) -> Tensor:
        """Logits [B, A, V] of the tokens that follow the places `at` [B, A] of the rows [B, L]; without `at`, after
        every token."""
        x = self.embed(tokens, drop)
        unseen = self.unseen[: tokens.shape[1], : tokens.shape[1]]
        *first, last = self._body()
        for block in first:
            x = block(x, unseen, drop)
        return self.logits(last(x, unseen, drop) if at is None else last.at(x, at, drop))

    def read(self, tokens: Tensor) -> Memory:
        """Keys and values of contexts [S, C], for `log_probabilities`."""
        x = self.embed(tokens)
        unseen = self.unseen[: tokens.shape[1], : tokens.shape[1]]
        memory: Memory = []
        *first, last = self._body()
        for block in first:
            query, key, value = block.queries_keys_values(x)
            memory.append((key, value))
            x = block.finish(x, attend(query, key, value, unseen, None, causal=True), None)
        memory.append(last.keys_values(x))
        return memory

    def log_probabilities(self, memory: Memory, lengths: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean log-probability [S, N] of the labels of each action after the context of its state.

        lengths: tokens of each context [S]. inputs, labels: [S, N, A]; an action's inputs begin with the token that
        follows the context, and `labels` says what comes after each, or NOTHING where the action is shorter than A.
        """
        states, count, length = inputs.shape
        places = lengths[:, None, None] + torch.arange(length, device=inputs.device)
        # what lies beyond the last position is padding of short actions
        x = self.words(inputs) + self.positions(places.clamp_max(self.sizes.context - 1))
        x = x.view(states, count * length, -1)
        beyond = torch.arange(memory[0][0].shape[2], device=inputs.device) >= lengths[:, None]  # [S, C]
        for block, (key, value) in zip(self._body(), memory, strict=True):
            query, own_key, own_value = block.queries_keys_values(x)
            read = _attend_shared(query, (key, value), (own_key, own_value), beyond, self.unseen[:length, :length])
            x = block.finish(x, read, None)
        logits = self.logits(x)  # [S, N * A, V]
        surprise = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING, reduction="none")
        said = (labels != NOTHING).sum(-1).clamp_min(1)
        return -surprise.view(states, count, length).sum(-1) / said


def _attend_shared(
    query: Tensor, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], beyond: Tensor, unseen: Tensor
) -> Tensor:
    """What actions' queries [S, H, N * A, D] read from the context that they share and from their own tokens."""
    states, heads, tokens, depth = query.shape
    length = unseen.shape[0]
    apart = (states, heads, tokens // length, length, -1)
    query = query / math.sqrt(depth)
    far = (query @ context[0].mT).masked_fill(beyond[:, None, None, :], -math.inf)  # [S, H, N * A, C]
    near = query.view(apart) @ own[0].view(apart).mT + unseen  # [S, H, N, A, A]
    weights = torch.cat([far, near.view(states, heads, tokens, length)], -1).softmax(-1)
    far, near = weights[..., :-length], weights[..., -length:].reshape(apart)
    read: Tensor = far @ context[1] + (near @ own[1].view(apart)).view(query.shape)
    return read


def loss_and_hits(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted sum of -log p over labels [B, A], and the weighted number of labels that were the likeliest; a
    label of weight 0 counts nowhere."""
    flat = logits.flatten(0, 1)
    surprise = F.cross_entropy(flat, labels.flatten(), reduction="none")
    hits = (flat.detach().argmax(-1) == labels.flatten()) * weights.flatten()
    return (surprise * weights.flatten()).sum(), hits.sum()
