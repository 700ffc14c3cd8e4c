"""The transformer's pass over rows that hold several examples each (see packing.py), to be learned from on a GPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from xtx.cuda.layers import layer_norm, linear, take
from xtx.gpt import GPT, Block, Dropout, attend


def packed_logits(
    model: GPT, tokens: Tensor, at: Tensor, places: Tensor, owners: Tensor, drop: Dropout | None = None
) -> Tensor:
    """`GPT.forward` of the rows [B, L] at the places `at` [B, A]: `places` [B, L] counts the tokens of each example
    from 0, and `owners` [B, L] says which are of the same one: they see each other and nothing else."""
    x = model.words(tokens) + model.positions(places)
    x = x if drop is None else drop(x)
    length = tokens.shape[1]
    same = owners[:, :, None] == owners[:, None, :]
    unseen = torch.where(same, model.unseen[:length, :length], -math.inf)[:, None]
    *first, last = (block for block in model.blocks if isinstance(block, Block))
    for block in first:
        projection = block.query_key_value
        query, key, value = _heads(block, linear(layer_norm(x, block.norm_1), projection.weight, projection.bias), 3)
        x = _finish(block, x, attend(query, key, value, unseen, drop), drop)
    x = _at(last, x, at, unseen, drop)
    return F.linear(layer_norm(x, model.norm), model.words.weight)


def _heads(block: Block, x: Tensor, parts: int) -> tuple[Tensor, ...]:
    """`parts` tensors [B, H, L, D] out of one [B, L, parts * W], without moving anything."""
    batch, length, _ = x.shape
    return x.view(batch, length, parts, block.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def _finish(block: Block, x: Tensor, read: Tensor, drop: Dropout | None) -> Tensor:
    """`Block.finish`."""
    read = linear(read.transpose(1, 2).reshape(x.shape), block.attention_out.weight, block.attention_out.bias)
    x = x + read if drop is None else drop.add(x, read)
    wide = linear(layer_norm(x, block.norm_2), block.feed_in.weight, block.feed_in.bias)
    fed = linear(F.gelu(wide, approximate="tanh"), block.feed_out.weight, block.feed_out.bias)
    return x + fed if drop is None else drop.add(x, fed)


def _at(block: Block, x: Tensor, at: Tensor, unseen: Tensor, drop: Dropout | None) -> Tensor:
    """The block's output [B, A, W] at the places `at` only; the others give their keys and values."""
    _, length, width = x.shape
    normed = layer_norm(x, block.norm_1)
    projection = block.query_key_value
    key, value = _heads(block, linear(normed, projection.weight[width:], projection.bias[width:]), 2)
    (query,) = _heads(block, linear(take(normed, at), projection.weight[:width], projection.bias[:width]), 1)
    seen_from = unseen.gather(2, at[:, None, :, None].expand(-1, -1, -1, length))
    return _finish(block, take(x, at), attend(query, key, value, seen_from, drop), drop)
