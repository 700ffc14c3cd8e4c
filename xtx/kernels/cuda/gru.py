"""Launches the GRU kernels of gru.cu: an encoder of many texts and a decoder, with their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from xtx.kernels.cuda.compilation import compile_kernel
from xtx.text.text_table import START

HIDDEN = (32, 64, 128)
"""Hidden sizes whose recurrent weights fit into the registers of one block of threads."""
_PIECES = 16
"""Parts into which a long sum over steps is split, so that all multiprocessors work on it."""


class GruKernels:
    """The compiled kernels for one hidden size."""

    def __init__(self, hidden: int) -> None:
        self._forward = compile_kernel("gru.cu", "gru_forward", H=hidden)
        self._backward = compile_kernel("gru.cu", "gru_backward", H=hidden)
        self._inputs = compile_kernel("gru.cu", "gru_inputs", H=hidden)
        self._threads = (3 * hidden, 1, 1)

    def forward(self, rows: int, *args: Any) -> None:
        """Launch gru_forward on a number of rows."""
        self._forward(grid=(rows, 1, 1), block=self._threads, args=list(args))

    def backward(self, rows: int, *args: Any) -> None:
        """Launch gru_backward on a number of rows."""
        self._backward(grid=(rows, 1, 1), block=self._threads, args=list(args))

    def launch_inputs(self, words: int, *args: Any) -> None:
        """Launch gru_inputs on a number of words."""
        self._inputs(grid=(words, 1, 1), block=self._threads, args=list(args))


@cache
def compile_kernels(hidden: int) -> GruKernels:
    """Return the kernels for a hidden size, compiled once in a process."""
    return GruKernels(hidden)


@dataclass(frozen=True)
class DeviceTexts:
    """The tokens of all texts, on the device."""

    words: Tensor
    """[texts, longest], int32"""
    lengths: Tensor
    """[texts], int32"""


@dataclass(frozen=True)
class EncoderRows:
    """The texts to encode, the encoder of each, and where the intermediate results of its steps are stored."""

    texts: Tensor
    """[n], int32; -1: no text"""
    encoders: Tensor
    """[n], int32"""
    at: Tensor
    """[n], int32: position of the first step among [encoders * room]; -1: nothing is stored"""
    starts: Tensor
    """[vocabulary * encoders + 1], int32: where the entries of each word and encoder begin in `steps`"""
    steps: Tensor
    """int32: positions of all steps, ordered by word and encoder"""
    room: int
    """Number of positions of each encoder; 0: nothing is stored."""


class Encode(torch.autograd.Function):
    """The last states of GRUs over texts, [n, hidden].

    inputs: [vocabulary, encoders, 3H], W_ih x + b_ih of all words; w_hh: [encoders, 3H, H]; b_hh: [encoders, 3H].
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, w_hh: Tensor, b_hh: Tensor, texts: DeviceTexts, rows: EncoderRows) -> Tensor:
        encoders, _, hidden = w_hh.shape
        n, kept = len(rows.texts), encoders * rows.room
        out = inputs.new_empty(n, hidden)
        states = inputs.new_zeros(max(kept, 1), hidden)  # zeros: the product with d_hidden reads all of it
        gates = inputs.new_empty(max(kept, 1), 4 * hidden)
        compile_kernels(hidden).forward(
            n, rows.texts, rows.encoders, rows.at, texts.words, texts.lengths, texts.words.shape[1], encoders,
            inputs, w_hh.transpose(1, 2).contiguous(), b_hh, out, 0, out, states, gates,
        )  # fmt: skip
        ctx.save_for_backward(w_hh, states, gates)
        ctx.texts, ctx.rows, ctx.words = texts, rows, inputs.shape[0]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (d_out,) = grads
        w_hh, states, gates = ctx.saved_tensors
        rows: EncoderRows = ctx.rows
        encoders, width, hidden = w_hh.shape
        d_hidden = w_hh.new_zeros(encoders * rows.room, width)  # zeros: the matrix product below reads all of it
        d_new = w_hh.new_empty(encoders * rows.room, hidden)
        d_start = w_hh.new_empty(len(rows.texts), hidden)
        run = compile_kernels(hidden)
        run.backward(
            len(rows.texts), rows.texts, rows.encoders, rows.at, ctx.texts.lengths, w_hh.contiguous(), states, gates,
            d_out.contiguous(), d_out, 0, d_hidden, d_new, d_start,
        )  # fmt: skip
        d_inputs = w_hh.new_empty(ctx.words, encoders, width)
        run.launch_inputs(ctx.words * encoders, rows.starts, rows.steps, d_hidden, d_new, d_inputs)
        # The long sums over steps are split, so that all of the device works on them.
        d_hidden = d_hidden.view(encoders * _PIECES, rows.room // _PIECES, width)
        states = states.view(encoders * _PIECES, rows.room // _PIECES, hidden)
        d_w_hh = (d_hidden.transpose(1, 2) @ states).view(encoders, _PIECES, width, hidden).sum(1)
        d_b_hh = d_hidden.sum(1).view(encoders, _PIECES, width).sum(1)
        return d_inputs, d_w_hh, d_b_hh, None, None


class Decode(torch.autograd.Function):
    """The negative log-probability of each token after the first by a GRU decoder, [n, L].

    start: [n, H], first states; inputs: [vocabulary, 3H], W_ih x + b_ih of all words; out_weight: [vocabulary, H];
    tokens: [n, L + 1]; counts: [n, L], multiplied with the result. The input of a step is the decoder's own most likely
    token of the step before.
    """

    @staticmethod
    def forward(
        ctx: Any,
        start: Tensor,
        inputs: Tensor,
        w_hh: Tensor,
        b_hh: Tensor,
        out_weight: Tensor,
        out_bias: Tensor,
        tokens: Tensor,
        counts: Tensor,
    ) -> Tensor:
        n, hidden = start.shape
        length, device = tokens.shape[1] - 1, start.device
        rows = torch.arange(n, device=device, dtype=torch.int32)
        zeros = torch.zeros_like(rows)
        ones = torch.ones_like(rows)
        kept = start.new_empty(n * length, hidden)
        gates = start.new_empty(n * length, 4 * hidden)
        states = start.new_empty(length, n, hidden)
        logits = start.new_empty(length, n, len(out_weight))
        said = torch.full((length + 1, n), START, dtype=torch.int32, device=device)
        transposed = w_hh.t().contiguous()
        state = start.contiguous()
        for position in range(length):
            compile_kernels(hidden).forward(
                n, rows, zeros, rows * length + position, said[position], ones, 1, 1,
                inputs, transposed, b_hh, state, 1, states[position], kept, gates,
            )  # fmt: skip
            state = states[position]
            torch.addmm(out_bias, state, out_weight.t(), out=logits[position])
            said[position + 1] = logits[position].argmax(dim=-1)
        wanted = tokens[:, 1:].t().long().unsqueeze(2)  # [L, n, 1]
        norms = logits.logsumexp(dim=-1)
        surprise = norms - logits.gather(2, wanted).squeeze(2)
        ctx.save_for_backward(w_hh, out_weight, logits, norms, states, kept, gates, said, wanted, counts)
        return surprise.t() * counts

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        w_hh, out_weight, logits, norms, states, kept, gates, said, wanted, counts = ctx.saved_tensors
        length, n, hidden = states.shape
        weight = (grads[0] * counts).t().unsqueeze(2)  # [L, n, 1]
        d_logits = torch.exp(logits - norms.unsqueeze(2)) * weight
        d_logits.scatter_add_(2, wanted, -weight)
        flat = d_logits.view(length * n, -1)
        d_states = (flat @ out_weight).view(length, n, hidden).transpose(0, 1).contiguous()  # in the order of steps
        rows = torch.arange(n, device=flat.device, dtype=torch.int32)
        d_hidden = flat.new_empty(n * length, 3 * hidden)
        d_new = flat.new_empty(n * length, hidden)
        d_start = flat.new_empty(n, hidden)
        compile_kernels(hidden).backward(
            n, rows, torch.zeros_like(rows), rows * length, torch.full_like(rows, length), w_hh.contiguous(),
            kept, gates, torch.zeros_like(d_start), d_states, 1, d_hidden, d_new, d_start,
        )  # fmt: skip
        fed = said[:-1].t().reshape(-1, 1)  # [n * L, 1]
        # A matrix product, because adding rows up by index has no fixed order on a GPU.
        one_hot = (fed == torch.arange(len(out_weight), device=fed.device)).to(flat.dtype)
        d_inputs = one_hot.t() @ torch.cat((d_hidden[:, : 2 * hidden], d_new), dim=1)
        return (
            d_start, d_inputs, d_hidden.t() @ kept, d_hidden.sum(0),
            flat.t() @ states.view(length * n, hidden), flat.sum(0), None, None,
        )  # fmt: skip


def encode(inputs: Tensor, w_hh: Tensor, b_hh: Tensor, texts: DeviceTexts, rows: EncoderRows) -> Tensor:
    """Call `Encode`."""
    return torch.as_tensor(Encode.apply(inputs, w_hh, b_hh, texts, rows))  # type: ignore[no-untyped-call]


def decode(
    start: Tensor,
    inputs: Tensor,
    w_hh: Tensor,
    b_hh: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    tokens: Tensor,
    counts: Tensor,
) -> Tensor:
    """Call `Decode`."""
    return torch.as_tensor(
        Decode.apply(start, inputs, w_hh, b_hh, out_weight, out_bias, tokens, counts)  # type: ignore[no-untyped-call]
    )
