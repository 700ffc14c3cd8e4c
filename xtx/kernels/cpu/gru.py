"""The last states of a GRU over many short token rows on a CPU, in C: the kernel of the text encoders.

Common prefixes of rows are computed once, and every word is projected once. A `PrefixTree` is the part that depends on
the rows alone, and is used with any weights. gru.h describes the C sources beside this file.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding as look_up
from torch.nn.functional import linear, pad

LIBRARY: Path | None = next(iter(sorted(Path(__file__).parent.glob("_kernels*.so"))), None)
"""The library that the C sources were compiled to; None if it is missing."""

BEST_KERNEL = 2
"""The best kernel that the C code may use: 2 allows AVX-512, 1 AVX2, 0 neither. Tests set 1 and 0."""

GRAIN = 32
"""The C code needs states whose size is a multiple of this: GRU_GRAIN in gru.h."""

_ARRAYS = (
    "chunk_level",
    "level_node",
    "level_end",
    "parent",
    "word",
    "end_row",
    "row_node",
    "word_start",
    "word_node",
)


class _Plan(ctypes.Structure):
    """`gru_plan` of gru.h, which describes the fields."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("chunks", "levels", "nodes", "rows", "words")),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
    )


def _load() -> ctypes.CDLL:
    """Load the library and declare its functions. Raises `ImportError` if it is not compiled."""
    if LIBRARY is None:
        raise ImportError("xtx.kernels.cpu._kernels is not compiled: install xtx with pip, or run make")
    library = ctypes.CDLL(str(LIBRARY))
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    library.gru_make_plan.argtypes = [pointer, pointer, number, pointer, pointer]
    library.gru_forward.argtypes = [pointer, number, *[pointer] * 6, number, number]
    library.gru_backward.argtypes = [pointer, number, *[pointer] * 7, number, number]
    for name in ("both_ways", "attend"):
        for direction in ("forward", "backward"):
            getattr(library, f"gru_{name}_{direction}").argtypes = [pointer, number, number]
    return library


_library = _load()


def get_function(name: str) -> Any:
    """Return a function of the library by name, for bidirectional_gru.py and attention.py."""
    return getattr(_library, name)


class PrefixTree:
    """The prefix tree of rows of tokens, to be run with any weights. Immutable; threads may share it."""

    def __init__(self, flat: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> None:
        """flat: the tokens of all rows, concatenated; offsets: where each row begins, and where the last one ends.

        Raises `ValueError` or `IndexError` for rows that the C code could not read safely.
        """
        flat, offsets = np.ascontiguousarray(flat, np.int32), np.ascontiguousarray(offsets, np.int64)
        if flat.ndim != 1 or offsets.ndim != 1 or len(offsets) < 2:
            raise ValueError("a plan needs at least one row of tokens")
        lengths = np.diff(offsets)
        if lengths.min() < 1:
            raise ValueError(f"row {lengths.argmin()} has no tokens: every row needs at least one")
        if offsets[0] < 0 or offsets[-1] > len(flat):
            raise ValueError(f"offsets {offsets[0]} to {offsets[-1]} are outside of {len(flat)} tokens")
        used = flat[offsets[0] : offsets[-1]]
        if len(used) >= 1 << 30:
            raise ValueError(f"{len(used)} tokens are too many for one plan")
        if used.min() < 0:
            raise IndexError(f"word {used.min()} is not in any vocabulary")
        self.rows = len(lengths)
        self._highest_word = int(used.max())
        # The C code fills only what it needs; untouched pages of the rest take up no memory.
        self._arrays = dict(zip(_ARRAYS, np.empty((len(_ARRAYS), len(used) + 1), np.int32), strict=True))
        words = np.empty(len(used), np.int32)
        self._struct = _Plan(**{name: array.ctypes.data for name, array in self._arrays.items()})
        if _library.gru_make_plan(
            flat.ctypes.data, offsets.ctypes.data, self.rows, ctypes.byref(self._struct), words.ctypes.data
        ):
            raise MemoryError("no memory for a plan")
        self.nodes = int(self._struct.nodes)
        """Number of nodes of the tree: the states that are computed."""
        self.words = torch.from_numpy(words[: self._struct.words].astype(np.int64))
        """The distinct words of all rows."""

    def list_levels(self) -> list[tuple[Tensor, Tensor | None]]:
        """Return for each level the words of its nodes, as indices into `words`, and their parents' indices in the
        level before (None in a first level)."""
        starts, parents, words = (self._arrays[name] for name in ("level_node", "parent", "word"))
        found = []
        for level in range(self._struct.levels):
            nodes = slice(starts[level], starts[level + 1])
            parent = None if parents[nodes.start] < 0 else torch.from_numpy(parents[nodes].astype(np.int64))
            found.append((torch.from_numpy(words[nodes].astype(np.int64)), parent))
        return found

    def list_ends(self) -> Tensor:
        """Return the index of the node at which each row ends, counted through all levels, [rows]."""
        return torch.from_numpy(self._arrays["row_node"][: self.rows].astype(np.int64))


def compute_last_states(
    plan: PrefixTree,
    embedding: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    *,
    threads: int | None = None,
) -> Tensor:
    """Return the GRU's state at each row's last token, [rows, H], starting from zeros.

    embedding: [V, E]; weights named and shaped as in torch.nn.GRU: w_ih [3H, E], w_hh [3H, H], gates r, z, n; threads:
        PyTorch's number by default. Differentiable once with respect to embedding and weights. The result has the same
        bits
    for any number of threads, apart from PyTorch's own products with `w_ih`.
    """
    if plan._highest_word >= len(embedding):
        raise IndexError(f"word {plan._highest_word} is outside of a vocabulary of {len(embedding)}")
    size = w_hh.shape[1]
    if w_hh.shape != (3 * size, size) or w_ih.shape != (3 * size, embedding.shape[1]):
        raise ValueError(f"weights {tuple(w_ih.shape)} and {tuple(w_hh.shape)} are not those of a GRU")
    if b_ih.shape != (3 * size,) or b_hh.shape != (3 * size,):
        raise ValueError(f"biases {tuple(b_ih.shape)} and {tuple(b_hh.shape)} are not those of a GRU of size {size}")
    x = linear(look_up(plan.words.to(embedding.device), embedding), w_ih, b_ih)
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return _compute_plain(plan, x, w_hh, b_hh)
    missing = -size % GRAIN
    if missing:  # units that are always zero
        x = pad(x.view(-1, 3, size), (0, missing)).flatten(1)
        w_hh = pad(w_hh.view(3, size, size), (0, missing, 0, missing)).flatten(0, 1)
        b_hh = pad(b_hh.view(3, size), (0, missing)).flatten()
    threads = torch.get_num_threads() if threads is None else threads
    if torch.is_grad_enabled() and (x.requires_grad or w_hh.requires_grad or b_hh.requires_grad):
        last: Tensor = _Recurrence.apply(plan, x, w_hh, b_hh, threads)  # type: ignore[no-untyped-call]
    else:
        last, _, _ = _forward(plan, x.detach(), w_hh.detach(), b_hh.detach(), threads, keep=False)
    return last[:, :size] if missing else last


def _compute_plain(plan: PrefixTree, x: Tensor, w_hh: Tensor, b_hh: Tensor) -> Tensor:
    """Compute the last states with PyTorch, level by level: for other number types and devices."""
    states: list[Tensor] = []
    for word, parent in plan.list_levels():
        x_r, x_z, x_n = x[word.to(x.device)].chunk(3, 1)
        before = torch.zeros_like(x_r) if parent is None else states[-1][parent.to(x.device)]
        h_r, h_z, h_n = linear(before, w_hh, b_hh).chunk(3, 1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        states.append(n + z * (before - n))
    return torch.cat(states)[plan.list_ends().to(x.device)]


class _Recurrence(torch.autograd.Function):
    """The recurrence and its gradient in C."""

    @staticmethod
    def forward(ctx: Any, plan: PrefixTree, x: Tensor, w_hh: Tensor, b_hh: Tensor, threads: int) -> Tensor:
        last, state, kept = _forward(plan, x, w_hh, b_hh, threads, keep=True)
        ctx.save_for_backward(x, w_hh, b_hh)
        ctx.plan, ctx.threads, ctx.made = plan, threads, (state, kept)
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w_hh, b_hh = ctx.saved_tensors
        made, ctx.made = ctx.made, None  # the backward pass overwrites it: a second one needs another forward pass
        state, kept = made or _forward(ctx.plan, x, w_hh, b_hh, ctx.threads, keep=True)[1:]
        return None, *_backward(ctx.plan, w_hh, state, kept, grad, ctx.threads), None


def _forward(
    plan: PrefixTree, x: Tensor, w_hh: Tensor, b_hh: Tensor, threads: int, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the last states, and with `keep` also all states and gates (otherwise empty)."""
    size = w_hh.shape[1]
    x, w_hh, b_hh = x.contiguous(), w_hh.contiguous(), b_hh.contiguous()
    last = x.new_empty(plan.rows, size)
    state = x.new_empty(plan.nodes if keep else 0, size)
    kept = x.new_empty(plan.nodes if keep else 0, 4 * size)
    if _library.gru_forward(
        ctypes.byref(plan._struct),
        size,
        x.data_ptr(),
        w_hh.data_ptr(),
        b_hh.data_ptr(),
        last.data_ptr(),
        state.data_ptr() if keep else None,
        kept.data_ptr() if keep else None,
        threads,
        BEST_KERNEL,
    ):
        raise MemoryError("no memory for the GRU's states")
    return last, state, kept


def _backward(
    plan: PrefixTree, w_hh: Tensor, state: Tensor, kept: Tensor, grad: Tensor, threads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, w_hh and b_hh; overwrites `kept`."""
    w_hh, grad = w_hh.contiguous(), grad.contiguous()
    size = w_hh.shape[1]
    grad_x = grad.new_empty(len(plan.words), 3 * size)
    grad_w, grad_b = grad.new_empty(3 * size, size), grad.new_empty(3 * size)
    if _library.gru_backward(
        ctypes.byref(plan._struct),
        size,
        w_hh.data_ptr(),
        state.data_ptr(),
        kept.data_ptr(),
        grad.data_ptr(),
        grad_x.data_ptr(),
        grad_w.data_ptr(),
        grad_b.data_ptr(),
        threads,
        BEST_KERNEL,
    ):
        raise MemoryError("no memory for the GRU's gradients")
    return grad_x, grad_w, grad_b
