"""Attention between rows of vectors on a CPU, in C; attention.c has the formula.

torch would pad rows to equal lengths, and write to memory after every step of the formula.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xtx.kernels.cpu import gru

FAST = True
"""Whether the C code may be used. Tests set False."""

_CHUNKS = 8
"""Number of chunks into which the C code splits the pairs: GRU_CHUNKS in gru.h."""

_NUMBERS = ("width", "hidden", "pairs", "most_words", "most_memory_words", "keep")
_INTEGERS = ("context_start", "context_words", "memory_start", "memory_words")
_LEAVES = ("table", "context_weight", "memory_weight", "product_weight", "mix", "bias")
_KEPT = ("shares", "found", "importance", "gist")


class _AttentionArguments(ctypes.Structure):
    """`gru_attention` of gru.h, which describes the fields."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in (*_INTEGERS, *_LEAVES, "out", *_KEPT, "grad_out")),
        *((f"grad_{name}", ctypes.c_void_p) for name in _LEAVES),
    )


@dataclass(frozen=True)
class Pairs:
    """Where each pair's two rows begin in the table, and their numbers of words; [pairs] each, on the CPU."""

    context_start: Tensor
    context_words: Tensor
    memory_start: Tensor
    memory_words: Tensor

    def convert_for_c(self) -> dict[str, Tensor]:
        """Return the tensors in the form that the C code reads."""
        return {name: getattr(self, name).to(torch.int32).contiguous() for name in _INTEGERS}


def is_supported(table: Tensor, hidden: int) -> bool:
    """Return whether the C code supports a table and an output of this size."""
    fits = table.shape[1] % gru.GRAIN == 0 and hidden % gru.GRAIN == 0
    return FAST and fits and table.dtype == torch.float32 and table.device.type == "cpu"


def attend(pairs: Pairs, leaves: tuple[Tensor, ...]) -> Tensor:
    """Return the attention output for all context words, [words, hidden].

    leaves: table [.., width]; weights of context, memory and product, [width] each; mixing weights [hidden, 4 * width]
    and their bias [hidden]. Differentiable once with respect to them.
    """
    if torch.is_grad_enabled():
        found: Tensor = _AttentionInC.apply(pairs.convert_for_c(), *leaves)  # type: ignore[no-untyped-call]
        return found
    integers = pairs.convert_for_c()
    floats = _name_tensors(leaves)
    out = _make_output(integers, floats)
    _call("forward", integers, {**floats, "out": out, **_make_buffers(integers, floats, keep=False)}, keep=False)
    return out


class _AttentionInC(torch.autograd.Function):
    """The attention and its gradient in C."""

    @staticmethod
    def forward(ctx: Any, integers: dict[str, Tensor], *leaves: Tensor) -> Tensor:
        floats = _name_tensors(leaves)
        out = _make_output(integers, floats)
        ctx.kept = _make_buffers(integers, floats, keep=True)
        _call("forward", integers, {**floats, "out": out, **ctx.kept}, keep=True)
        ctx.integers = integers
        ctx.save_for_backward(out, *leaves)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        out, *leaves = ctx.saved_tensors
        floats = _name_tensors(leaves)
        found = {f"grad_{name}": torch.zeros_like(leaf) for name, leaf in floats.items()}
        given = {"out": out, "grad_out": gradient.contiguous()}
        _call("backward", ctx.integers, {**floats, **ctx.kept, **given, **found}, keep=True)
        return None, *found.values()


def _name_tensors(leaves: tuple[Tensor, ...] | list[Tensor]) -> dict[str, Tensor]:
    return {name: leaf.contiguous() for name, leaf in zip(_LEAVES, leaves, strict=True)}


def _make_output(integers: dict[str, Tensor], floats: dict[str, Tensor]) -> Tensor:
    return floats["table"].new_empty(int(integers["context_words"].sum()), len(floats["bias"]))


def _make_buffers(integers: dict[str, Tensor], floats: dict[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Allocate the intermediate results: with `keep` of all pairs, otherwise of the longest pair for each chunk."""
    words, memory = integers["context_words"].long(), integers["memory_words"].long()
    full = (memory + gru.GRAIN - 1) // gru.GRAIN * gru.GRAIN
    width = floats["table"].shape[1]
    tokens, pairs = int(words.sum() if keep else _CHUNKS * words.max()), len(words) if keep else _CHUNKS
    shares = int((words * full).sum() if keep else _CHUNKS * words.max() * full.max())
    sizes = shares, tokens * width, tokens + (pairs + 2) * gru.GRAIN, pairs * width
    return {name: floats["table"].new_empty(size) for name, size in zip(_KEPT, sizes, strict=True)}


def _call(direction: str, integers: dict[str, Tensor], floats: dict[str, Tensor], *, keep: bool) -> None:
    """Call the C function for the direction `forward` or `backward`."""
    hidden, width = len(floats["bias"]), floats["table"].shape[1]
    longest = int(integers["context_words"].max()), int(integers["memory_words"].max())
    pointers = {name: t.data_ptr() for name, t in (*integers.items(), *floats.items())}
    described = _AttentionArguments(width, hidden, len(integers["context_words"]), *longest, int(keep), **pointers)
    if gru.get_function(f"gru_attend_{direction}")(ctypes.byref(described), torch.get_num_threads(), gru.BEST_KERNEL):
        raise MemoryError("no memory for attention")
