"""The transformer's forward pass over rows of several examples each (see row_packing.py), for training on a GPU."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from xtx.kernels.cuda import attention
from xtx.kernels.cuda.attention import AttentionPattern
from xtx.kernels.cuda.transformer_layers import is_supported, layer_norm, linear, take
from xtx.networks.gpt import GPT, Dropout, TransformerBlock, attend


class _PackedAttention(Protocol):
    """The attention of the tokens of packed rows, each to the earlier tokens of its own example."""

    def attend_everywhere(self, all_three: Tensor) -> Tensor:
        """Return the attention of all tokens [B, L, W], given their queries, keys and values [B, L, 3W]."""

    def attend_at(self, query: Tensor, seen: Tensor) -> Tensor:
        """Return the attention of some tokens [B, A, W], given their queries, and keys and values of all [B, L, 2W]."""


class _ByKernels:
    """Attention by attention.cu."""

    def __init__(self, at: Tensor, places: Tensor, heads: int, drop: Dropout | None) -> None:
        columns = torch.arange(places.shape[1], device=places.device)
        self._first = (columns - places).int()
        self._all, self._at = columns.int().expand(len(places), -1).contiguous(), at.int()
        self._heads, self._rate = heads, 0.0 if drop is None else drop.rate

    def _make_pattern(self, at: Tensor) -> AttentionPattern:
        # from torch's generator, which advances with every replay and is saved with the run
        seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=at.device)
        return AttentionPattern(at, self._first, self._heads, self._rate, seed)

    def attend_everywhere(self, all_three: Tensor) -> Tensor:
        return attention.attend(all_three, None, self._make_pattern(self._all))

    def attend_at(self, query: Tensor, seen: Tensor) -> Tensor:
        return attention.attend(query, seen, self._make_pattern(self._at))


class _ByMasks:
    """Attention by torch, with a mask over all pairs of tokens."""

    def __init__(self, model: GPT, at: Tensor, owners: Tensor, heads: int, drop: Dropout | None) -> None:
        length = owners.shape[1]
        same = owners[:, :, None] == owners[:, None, :]
        self._unseen = torch.where(same, model.unseen[:length, :length], -math.inf)[:, None]
        self._unseen_at = self._unseen.gather(2, at[:, None, :, None].expand(-1, -1, -1, length))
        self._heads, self._drop = heads, drop

    def _split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Split a tensor [B, L, parts * W] into `parts` tensors [B, H, L, D]."""
        batch, length, _ = x.shape
        return x.view(batch, length, parts, self._heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def attend_everywhere(self, all_three: Tensor) -> Tensor:
        query, key, value = self._split(all_three, 3)
        return attend(query, key, value, self._unseen, self._drop).transpose(1, 2).flatten(2)

    def attend_at(self, query: Tensor, seen: Tensor) -> Tensor:
        (asking,), (key, value) = self._split(query, 1), self._split(seen, 2)
        return attend(asking, key, value, self._unseen_at, self._drop).transpose(1, 2).flatten(2)


def compute_packed_logits(
    model: GPT, tokens: Tensor, at: Tensor, places: Tensor, owners: Tensor, drop: Dropout | None = None
) -> Tensor:
    """Return what `GPT.forward` returns for the rows [B, L] at the positions `at` [B, A].

    places: [B, L], the position of each token in its example, from 0; owners: [B, L], the index of its example.
    """
    x = model.words(tokens) + model.positions(places)
    x = x if drop is None else drop(x)
    width, heads = model.sizes.width, model.sizes.heads
    reading: _PackedAttention
    if is_supported(x) and attention.is_supported(width, heads):
        reading = _ByKernels(at, places, heads, drop)
    else:
        reading = _ByMasks(model, at, owners, heads, drop)
    *first, last = (block for block in model.blocks if isinstance(block, TransformerBlock))
    for block in first:
        projection = block.query_key_value
        all_three = linear(layer_norm(x, block.norm_1), projection.weight, projection.bias)
        x = _finish(block, x, reading.attend_everywhere(all_three), drop)
    # Of the last block only the outputs at these positions are needed; other tokens are keys and values only.
    projection = last.query_key_value
    normed = layer_norm(x, last.norm_1)
    seen = linear(normed, projection.weight[width:], projection.bias[width:])
    query = linear(take(normed, at), projection.weight[:width], projection.bias[:width])
    x = _finish(last, take(x, at), reading.attend_at(query, seen), drop)
    return F.linear(layer_norm(x, model.norm), model.words.weight)


def _finish(block: TransformerBlock, x: Tensor, read: Tensor, drop: Dropout | None) -> Tensor:
    """Do what `TransformerBlock.finish` does, for the result of the attention as [B, L, W]."""
    read = linear(read, block.attention_out.weight, block.attention_out.bias)
    x = x + read if drop is None else drop.add(x, read)
    wide = linear(layer_norm(x, block.norm_2), block.feed_in.weight, block.feed_in.bias)
    fed = linear(F.gelu(wide, approximate="tanh"), block.feed_out.weight, block.feed_out.bias)
    return x + fed if drop is None else drop.add(x, fed)
