"""Attention between rows of vectors on the CPU, in C: torch's own would pad rows to equal lengths, and go through
memory for every step of the formula. attend.c says what is computed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xtx import gru

FAST = True
"""Whether the C code may be used: tests also try without."""

_CHUNKS = 8
"""Into so many chunks the C code cuts the pairs: GRU_CHUNKS in gru.h."""

_NUMBERS = ("width", "hidden", "pairs", "most_words", "most_memory_words", "keep")
_INTEGERS = ("context_start", "context_words", "memory_start", "memory_words")
_LEAVES = ("table", "context_weight", "memory_weight", "product_weight", "mix", "bias")
_KEPT = ("shares", "found", "importance", "gist")


class _Attention(ctypes.Structure):
    """`gru_attention` in gru.h, where the fields are explained."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in (*_INTEGERS, *_LEAVES, "out", *_KEPT, "grad_out")),
        *((f"grad_{name}", ctypes.c_void_p) for name in _LEAVES),
    )


@dataclass(frozen=True)
class Pairs:
    """Where in the table each pair's two rows begin, and how many words they have; [pairs] each, on the CPU."""

    context_start: Tensor
    context_words: Tensor
    memory_start: Tensor
    memory_words: Tensor

    def in_c(self) -> dict[str, Tensor]:
        """As the C code reads them."""
        return {name: getattr(self, name).to(torch.int32).contiguous() for name in _INTEGERS}


def usable(table: Tensor, hidden: int) -> bool:
    """Whether the C code can do this."""
    fits = table.shape[1] % gru.GRAIN == 0 and hidden % gru.GRAIN == 0
    return FAST and fits and table.dtype == torch.float32 and table.device.type == "cpu"


def attend(pairs: Pairs, leaves: tuple[Tensor, ...]) -> Tensor:
    """[words of all contexts, hidden]. The leaves: table [.., width], weights of context, memory and product [width]
    each, mixing weights [hidden, 4 * width] and their bias [hidden]. Differentiable once with respect to them."""
    if torch.is_grad_enabled():
        found: Tensor = _InC.apply(pairs.in_c(), *leaves)  # type: ignore[no-untyped-call]
        return found
    integers = pairs.in_c()
    floats = _named(leaves)
    out = _out(integers, floats)
    _call("forward", integers, {**floats, "out": out, **_room(integers, floats, keep=False)}, keep=False)
    return out


class _InC(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, integers: dict[str, Tensor], *leaves: Tensor) -> Tensor:
        floats = _named(leaves)
        out = _out(integers, floats)
        ctx.kept = _room(integers, floats, keep=True)
        _call("forward", integers, {**floats, "out": out, **ctx.kept}, keep=True)
        ctx.integers = integers
        ctx.save_for_backward(out, *leaves)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        out, *leaves = ctx.saved_tensors
        floats = _named(leaves)
        found = {f"grad_{name}": torch.zeros_like(leaf) for name, leaf in floats.items()}
        given = {"out": out, "grad_out": gradient.contiguous()}
        _call("backward", ctx.integers, {**floats, **ctx.kept, **given, **found}, keep=True)
        return None, *found.values()


def _named(leaves: tuple[Tensor, ...] | list[Tensor]) -> dict[str, Tensor]:
    return {name: leaf.contiguous() for name, leaf in zip(_LEAVES, leaves, strict=True)}


def _out(integers: dict[str, Tensor], floats: dict[str, Tensor]) -> Tensor:
    return floats["table"].new_empty(int(integers["context_words"].sum()), len(floats["bias"]))


def _room(integers: dict[str, Tensor], floats: dict[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Room for what is kept: of all pairs, or else of whichever is longest, for each chunk."""
    words, memory = integers["context_words"].long(), integers["memory_words"].long()
    full = (memory + gru.GRAIN - 1) // gru.GRAIN * gru.GRAIN
    width = floats["table"].shape[1]
    tokens, pairs = int(words.sum() if keep else _CHUNKS * words.max()), len(words) if keep else _CHUNKS
    shares = int((words * full).sum() if keep else _CHUNKS * words.max() * full.max())
    sizes = shares, tokens * width, tokens + (pairs + 2) * gru.GRAIN, pairs * width
    return {name: floats["table"].new_empty(size) for name, size in zip(_KEPT, sizes, strict=True)}


def _call(way: str, integers: dict[str, Tensor], floats: dict[str, Tensor], *, keep: bool) -> None:
    hidden, width = len(floats["bias"]), floats["table"].shape[1]
    longest = int(integers["context_words"].max()), int(integers["memory_words"].max())
    pointers = {name: t.data_ptr() for name, t in (*integers.items(), *floats.items())}
    described = _Attention(width, hidden, len(integers["context_words"]), *longest, int(keep), **pointers)
    if gru.in_c(f"gru_attend_{way}")(ctypes.byref(described), torch.get_num_threads(), gru.BEST_KERNEL):
        raise MemoryError("no memory for attention")
