"""Layers of a transformer whose gradients are fast and have a fixed order of summation on a GPU.

torch's are slow there for the imitation policy, which has many rows of few numbers. On a CPU, and where a kernel does
not support the sizes, torch's are used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xtx.kernels.cuda.compilation import can_compile, compile_kernel

_CHUNK = 64
"""Rows that one block of threads sums; then the sums of the blocks are summed."""
_NORM_CHUNK = 32
"""The same for the gradients of a layer norm."""
_THREADS = 128
"""Threads of a block."""
_MAX_COLUMNS = 1536
"""Limits the columns of a layer norm: the shared memory of a block has no space for more."""


def is_supported(x: Tensor) -> bool:
    """Return whether the kernels can be used for a tensor: it is on a GPU and float32, and this torch can compile
    kernels."""
    return x.is_cuda and x.dtype == torch.float32 and can_compile()


def column_sums(x: Tensor) -> Tensor:
    """Return the sum over all rows of x [rows, columns], [columns]."""
    if not is_supported(x):
        return x.sum(0)
    x = x.contiguous()
    columns = x.shape[1]
    while len(x) > 1:
        # once the chunks' sums are few, they are one chunk
        chunk = _CHUNK if len(x) > 4 * _CHUNK else len(x)
        chunks = -(-len(x) // chunk)
        sums = x.new_empty(chunks, columns)
        grid = -(-columns // _THREADS), chunks, 1
        compile_kernel("sums.cu", "column_sums", W=32)(
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
    """Compute `F.linear`."""
    if not is_supported(x):
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
        compile_kernel("sums.cu", "norm_backward", W=width)(
            grid=(len(sums), 1, 1), block=(_THREADS, 1, 1),
            args=[d_out, x, mean, spread, weight, rows, _NORM_CHUNK, d_x, sums],
        )  # fmt: skip
        both = column_sums(sums)
        return d_x, both[:width], both[width:], None


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Compute `norm(x)`."""
    if not is_supported(x) or x.shape[-1] % 32 or x.shape[-1] > _MAX_COLUMNS:
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
        # A matrix product, because adding rows by index has no fixed order, or needs sorting.
        one_hot = torch.arange(ctx.length, device=at.device)[None, :, None] == at[:, None, :]
        return one_hot.to(grads[0].dtype) @ grads[0], None


def take(x: Tensor, at: Tensor) -> Tensor:
    """Return the rows of x [B, L, W] at the positions `at` [B, A], [B, A, W]."""
    return torch.as_tensor(_Take.apply(x, at))  # type: ignore[no-untyped-call]
