"""Attention over rows that contain several examples each, on a GPU: launches attention.cu, with its gradient."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from xtx.kernels.cuda.compilation import compile_kernel

_THREADS = 64
"""Threads of a block: THREADS in attention.cu."""
MAX_DEPTH = 64
"""Limits the size of a head, whose numbers are kept in registers."""


def _reinterpret_bits(fraction: float) -> int:
    """Return the integer with the bits of a float32."""
    (bits,) = struct.unpack("i", struct.pack("f", fraction))
    return int(bits)


@dataclass(frozen=True)
class AttentionPattern:
    """The attention pattern: query i of row b is at the column at[b, i] and attends from first[b, at[b, i]] to
    there."""

    at: Tensor
    """[B, Q], int32"""
    first: Tensor
    """[B, L], int32"""
    heads: int
    rate: float
    """Share of the weights that is dropped."""
    seed: Tensor
    """[1], int32: determines which weights are dropped."""

    def run(self, name: str, query: Tensor, key: Tensor, value: Tensor, *more: Tensor) -> None:
        """Launch a kernel. Lines of query, key and value may be strided; a block of threads has `_THREADS` of them."""
        batch, queries = self.at.shape
        length, depth = self.first.shape[1], query.shape[2] // self.heads
        lines = length if name.endswith("keys") else queries
        fractions = map(_reinterpret_bits, (1 / math.sqrt(depth), self.rate))
        sizes = queries, length, self.heads, query.stride(1), key.stride(1), *fractions
        compile_kernel("attention.cu", name, D=depth)(
            grid=(-(-lines // _THREADS), self.heads, batch), block=(_THREADS, 1, 1),
            args=[query, key, value, self.at, self.first, *sizes, self.seed, *more],
        )  # fmt: skip


def is_supported(width: int, heads: int) -> bool:
    """Return whether the kernels support heads of this size."""
    depth = width // heads
    return depth % 4 == 0 and depth <= MAX_DEPTH


class _Attend(torch.autograd.Function):
    """See `attend`."""

    @staticmethod
    def forward(ctx: Any, asking: Tensor, seen: Tensor | None, sight: AttentionPattern) -> Tensor:
        batch, queries = sight.at.shape
        query, key, value = _split_parts(asking, seen)
        out = query.new_empty(batch, queries, query.shape[2])
        sums = query.new_empty(batch, sight.heads, queries)
        sight.run("attend_forward", query, key, value, out, sums)
        ctx.save_for_backward(asking, seen, out, sums)
        ctx.sight = sight
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        asking, seen, out, sums = ctx.saved_tensors
        d_out = grads[0].contiguous()
        d_asking, d_seen = torch.empty_like(asking), None if seen is None else torch.empty_like(seen)
        parts, (d_query, d_key, d_value) = _split_parts(asking, seen), _split_parts(d_asking, d_seen)
        inner = torch.empty_like(sums)
        ctx.sight.run("attend_backward_queries", *parts, out, sums, d_out, d_query, inner)
        ctx.sight.run("attend_backward_keys", *parts, sums, d_out, inner, d_key, d_value)
        return d_asking, d_seen, None


def _split_parts(asking: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, as views."""
    if seen is None:
        query, key, value = asking.chunk(3, dim=2)
    else:
        query, (key, value) = asking, seen.chunk(2, dim=2)
    return query, key, value


def attend(asking: Tensor, seen: Tensor | None, sight: AttentionPattern) -> Tensor:
    """Return the attention of the queries, [B, Q, W].

    asking: [B, Q, W], the queries, and seen: [B, L, 2W], keys and values; or asking: [B, L, 3W] has all three, and
    `seen` is None.
    """
    given = asking.contiguous(), None if seen is None else seen.contiguous(), sight
    return torch.as_tensor(_Attend.apply(*given))  # type: ignore[no-untyped-call]
