"""Layers of a transformer whose gradients are quick and have a fixed order on a GPU.

torch's own are slow there for what the imitation policy needs: many rows of few numbers. On a CPU, and where a kernel
does not fit, torch is asked all the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xtx.cuda.sources import can_compile, compiled

_CHUNK = 64
"""Rows that are added up by one block of threads, before the sums of all blocks are."""
_NORM_CHUNK = 32
_THREADS = 128
_WIDEST = 1536
"""Columns of a layer norm for which a block's shared memory is enough."""


def fits(x: Tensor) -> bool:
    """Whether kernels are for this tensor: on a GPU, in float32, and not to be computed in less than that; and whether
    this torch has them compiled."""
    exact = x.is_cuda and x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")
    return exact and can_compile()


def column_sums(x: Tensor) -> Tensor:
    """[columns]: the sum over all rows of x [rows, columns]."""
    if not fits(x):
        return x.sum(0)
    x = x.contiguous()
    columns = x.shape[1]
    while len(x) > 1:
        # the sums of the chunks are few enough for one more round
        chunk = _CHUNK if len(x) > 4 * _CHUNK else len(x)
        chunks = -(-len(x) // chunk)
        sums = x.new_empty(chunks, columns)
        grid = -(-columns // _THREADS), chunks, 1
        compiled("sums.cu", "column_sums", W=32)(
            grid=grid, block=(_THREADS, 1, 1), args=[x, len(x), columns, chunk, sums]
        )
        x = sums
    return x[0]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight = ctx.saved_tensors
        d_out = grads[0].reshape(-1, grads[0].shape[-1])
        return (d_out @ weight).view(x.shape), d_out.t() @ x.reshape(-1, x.shape[-1]), column_sums(d_out)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`F.linear`."""
    if not fits(x):
        return F.linear(x, weight, bias)
    return torch.as_tensor(_Linear.apply(x, weight, bias))  # type: ignore[no-untyped-call]


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        out, mean, spread = torch.native_layer_norm(x, weight.shape, weight, bias, epsilon)
        ctx.save_for_backward(x, mean, spread, weight)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, mean, spread, weight = ctx.saved_tensors
        width = len(weight)
        d_out, rows = grads[0].contiguous(), x.numel() // width
        d_x = torch.empty_like(x)
        sums = x.new_empty(-(-rows // _NORM_CHUNK), 2 * width)
        compiled("sums.cu", "norm_backward", W=width)(
            grid=(len(sums), 1, 1), block=(_THREADS, 1, 1),
            args=[d_out, x, mean, spread, weight, rows, _NORM_CHUNK, d_x, sums],
        )  # fmt: skip
        both = column_sums(sums)
        return d_x, both[:width], both[width:], None


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """`norm(x)`."""
    if not fits(x) or x.shape[-1] % 32 or x.shape[-1] > _WIDEST:
        return torch.as_tensor(norm(x))
    return torch.as_tensor(
        _LayerNorm.apply(x.contiguous(), norm.weight, norm.bias, norm.eps)  # type: ignore[no-untyped-call]
    )


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Tensor) -> Tensor:
        ctx.save_for_backward(at)
        ctx.length = x.shape[1]
        return x.gather(1, at[:, :, None].expand(-1, -1, x.shape[2]))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (at,) = ctx.saved_tensors
        # A matrix product, because adding rows up by index has no fixed order, or must sort them first.
        one_hot = torch.arange(ctx.length, device=at.device)[None, :, None] == at[:, None, :]
        with torch.autocast(at.device.type, enabled=False):  # numbers are moved here, not computed
            return one_hot.to(grads[0].dtype) @ grads[0], None


def take(x: Tensor, at: Tensor) -> Tensor:
    """[B, A, W]: the rows of x [B, L, W] at the places `at` [B, A]."""
    return torch.as_tensor(_Take.apply(x, at))  # type: ignore[no-untyped-call]
