"""The transformer of the imitation policy: GPT-2's architecture, with outputs only at the positions of predictions.

Tensors in, tensors out. Rows are padded on the right, so the causal mask alone keeps padding out of every result.
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
"""The label of a position without a prediction."""

Memory = list[tuple[Tensor, Tensor]]
"""Keys and values of the contexts, for each layer, each [S, H, C, D]."""


@dataclass(frozen=True)
class Sizes:
    """The dimensions of a transformer; the defaults are the paper's."""

    vocabulary: int
    """Rows of the word embedding, which is also the output layer."""
    layers: int = 3
    """Blocks."""
    heads: int = 4
    """Attention heads of a block."""
    width: int = 128
    """Length of a token's vector; the feed-forward layers are four times as wide."""
    context: int = 512
    """Number of positions: tokens of the longest row."""


class Dropout(Protocol):
    """Dropout, as a function that is passed to the forward pass."""

    rate: float
    """Share of the elements that is set to 0."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return `x` with a random share of it set to 0 and the rest scaled up."""

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual` plus `x` after dropout."""


class TorchDropout:
    """Dropout by torch's own generator, which draws new numbers in each replay of a CUDA graph."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, x: Tensor) -> Tensor:
        """Return `x` with a random share of it set to 0 and the rest scaled up."""
        return F.dropout(x, self.rate)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual` plus `x` after dropout."""
        return residual + F.dropout(x, self.rate)


class BitDropout:
    """Dropout by 16 random bits for each element, for CPUs.

    On a CPU torch draws one number per element from a Mersenne twister, which takes longer than the layer itself; here
    one draw of 64 bits serves four elements.
    """

    def __init__(self, rate: float, bits: np.random.BitGenerator) -> None:
        self._threshold = round(rate * 65536)
        self.rate = self._threshold / 65536
        """The rate to the nearest 1/65536."""
        self._scale = 1 / (1 - self.rate)
        self._bits = bits

    def _kept(self, x: Tensor) -> Tensor:
        """Return a random mask for `x`: 1 for an element that is kept, 0 for a dropped one."""
        words = self._bits.random_raw(-(-x.numel() // 4)).view(np.int16)[: x.numel()]
        kept = torch.empty(x.shape, dtype=x.dtype)
        # written as floats: torch multiplies by booleans several times more slowly
        torch.ge(torch.from_numpy(words).view(x.shape), self._threshold - 32768, out=kept)
        return kept

    def __call__(self, x: Tensor) -> Tensor:
        """Return `x` with a random share of it set to 0 and the rest scaled up."""
        return x * self._kept(x).mul_(self._scale)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual` plus `x` after dropout."""
        return torch.addcmul(residual, x, self._kept(x), value=self._scale)


def attend(
    query: Tensor, key: Tensor, value: Tensor, unseen: Tensor, drop: Dropout | None, causal: bool = False
) -> Tensor:
    """Return the attention of queries [B, H, Q, D] to keys and values [B, H, L, D], shaped like the queries.

    unseen: added to the scores, -inf for a pair that is masked; causal: whether `unseen` masks exactly the later
    tokens.
    """
    if drop is None or query.is_cuda:
        rate = 0.0 if drop is None else drop.rate
        if causal and query.is_cuda:  # torch's causal kernel is faster than one that reads a mask
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=rate)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=unseen, dropout_p=rate)
    # On a CPU torch's fused attention has no dropout.
    batch, heads, queries, depth = query.shape
    flat = (batch * heads, -1, depth)
    if unseen.dim() == 4:
        unseen = unseen.expand(batch, heads, queries, -1).reshape(batch * heads, queries, -1)
    scores = torch.baddbmm(unseen, query.reshape(flat), key.reshape(flat).mT, alpha=1 / math.sqrt(depth))
    weights = drop(scores.softmax(-1))
    return torch.bmm(weights, value.reshape(flat)).view(batch, heads, queries, depth)


class TransformerBlock(nn.Module):
    """A transformer block: attention and a feed-forward layer, each behind a layer norm and added to the residual."""

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
        """Split a tensor [B, L, parts * W] into `parts` tensors [B, H, L, D]."""
        batch, length, _ = x.shape
        return x.view(batch, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4).contiguous().unbind(0)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of all tokens of x [B, L, W], each [B, H, L, D]."""
        query, key, value = self._split(self.query_key_value(self.norm_1(x)), 3)
        return query, key, value

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of all tokens of x [B, L, W], each [B, H, L, D]."""
        return self._keys_values(self.norm_1(x))

    def _keys_values(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        width = normed.shape[-1]
        projection = self.query_key_value
        key, value = self._split(F.linear(normed, projection.weight[width:], projection.bias[width:]), 2)
        return key, value

    def finish(self, x: Tensor, read: Tensor, drop: Dropout | None) -> Tensor:
        """Return the block's output [B, L, W], given its input x and the result of its attention, `read` [B, H, L,
        D]."""
        read = self.attention_out(read.transpose(1, 2).reshape(x.shape))
        x = x + read if drop is None else drop.add(x, read)
        fed = self.feed_out(F.gelu(self.feed_in(self.norm_2(x)), approximate="tanh"))
        return x + fed if drop is None else drop.add(x, fed)

    def forward(self, x: Tensor, unseen: Tensor, drop: Dropout | None) -> Tensor:
        """Return the block's output [B, L, W] at all tokens."""
        return self.finish(x, attend(*self.queries_keys_values(x), unseen, drop, causal=True), drop)

    def at(self, x: Tensor, at: Tensor, drop: Dropout | None) -> Tensor:
        """Return the block's output [B, A, W] at the positions `at` [B, A]; other tokens are keys and values only."""
        width = x.shape[-1]
        places = at[:, :, None].expand(-1, -1, width)
        normed = self.norm_1(x)
        key, value = self._keys_values(normed)
        projection = self.query_key_value
        queries = F.linear(normed.gather(1, places), projection.weight[:width], projection.bias[:width])
        (query,) = self._split(queries, 1)
        hidden = torch.arange(x.shape[1], device=x.device) > at[:, None, :, None]  # [B, 1, A, L]
        unseen = torch.zeros(hidden.shape, dtype=x.dtype, device=x.device).masked_fill_(hidden, -math.inf)
        return self.finish(x.gather(1, places), attend(query, key, value, unseen, drop), drop)


class GPT(nn.Module):
    """A causal language model. Dropout is an argument of the forward pass, not a mode of the module."""

    def __init__(self, sizes: Sizes, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.ModuleList(TransformerBlock(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.unseen: Tensor
        causal = torch.full((sizes.context, sizes.context), -math.inf).triu_(1)
        self.register_buffer("unseen", causal, persistent=False)
        self._initialise(generator)

    def _initialise(self, generator: torch.Generator | None) -> None:
        """Initialise as GPT-2: standard deviation 0.02, less for layers that are added to the residual."""
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" in name:
                nn.init.ones_(weight)
            else:
                out = name.endswith(("attention_out.weight", "feed_out.weight"))
                spread = 0.02 / math.sqrt(2 * self.sizes.layers) if out else 0.02
                nn.init.normal_(weight, std=spread, generator=generator)

    def _body(self) -> list[TransformerBlock]:
        return [block for block in self.blocks if isinstance(block, TransformerBlock)]

    def embed(self, tokens: Tensor, drop: Dropout | None = None) -> Tensor:
        """Return the input [B, L, W] of the first block."""
        x: Tensor = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        return x if drop is None else drop(x)

    def logits(self, x: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities [..., V] of the next token."""
        return F.linear(self.norm(x), self.words.weight)

    def forward(self, tokens: Tensor, at: Tensor | None = None, drop: Dropout | None = None) -> Tensor:
        """Return the logits [B, A, V] of the tokens after the positions `at` [B, A] of the rows [B, L]; without `at`,
        those after every token, [B, L, V]."""
        x = self.embed(tokens, drop)
        unseen = self.unseen[: tokens.shape[1], : tokens.shape[1]]
        *first, last = self._body()
        for block in first:
            x = block(x, unseen, drop)
        return self.logits(last(x, unseen, drop) if at is None else last.at(x, at, drop))

    def read(self, tokens: Tensor) -> Memory:
        """Return keys and values of contexts [S, C], for `log_probabilities`."""
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
        """Return the mean log-probability [S, N] of the labels of each action after the context of its state.

        lengths: tokens of each context [S]. inputs, labels: [S, N, A]; an action's inputs begin with the token that
        follows the context, and `labels` has the token after each input, or NOTHING behind the end of the action.
        """
        states, count, length = inputs.shape
        places = lengths[:, None, None] + torch.arange(length, device=inputs.device)
        # places beyond the last position are padding of short actions
        x = self.words(inputs) + self.positions(places.clamp_max(self.sizes.context - 1))
        x = x.view(states, count * length, -1)
        beyond = torch.arange(memory[0][0].shape[2], device=inputs.device) >= lengths[:, None]  # [S, C]
        for block, (key, value) in zip(self._body(), memory, strict=True):
            query, own_key, own_value = block.queries_keys_values(x)
            read = _attend_shared(query, (key, value), (own_key, own_value), beyond, self.unseen[:length, :length])
            x = block.finish(x, read, None)
        logits = self.logits(x)  # [S, N * A, V]
        surprise = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING, reduction="none")
        predicted = (labels != NOTHING).sum(-1).clamp_min(1)
        return -surprise.view(states, count, length).sum(-1) / predicted


def _attend_shared(
    query: Tensor, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], beyond: Tensor, unseen: Tensor
) -> Tensor:
    """Return the attention of the actions' queries [S, H, N * A, D] to the shared context and to their own tokens.

    beyond: [S, C], True behind the end of a context; unseen: [A, A], -inf for later tokens of the same action.
    """
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
    """Return the weighted sum of -log p over labels [B, A], and the weighted number of right predictions.

    logits: [B, A, V]; weights: [B, A], 0 for padding.
    """
    flat = logits.flatten(0, 1)
    surprise = F.cross_entropy(flat, labels.flatten(), reduction="none")
    hits = (flat.detach().argmax(-1) == labels.flatten()) * weights.flatten()
    return (surprise * weights.flatten()).sum(), hits.sum()
