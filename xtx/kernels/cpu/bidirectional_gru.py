"""A bidirectional GRU that returns its state at every token.

On a CPU it runs in C: torch's GRU has a graph of some twenty nodes for each token there, which costs more than the
arithmetic. If the C code does not support the sizes, training on a CPU runs both directions in one loop with an
explicit gradient, and everything else uses torch's GRU.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from xtx.kernels.cpu import gru

FAST = True
"""Whether the C code may be used. Tests set False."""

_NUMBERS = ("size", "steps", "tokens", "rows")
_INTEGERS = ("sizes", "place", "given")
_FLOATS = ("x", "w", "b", "start", "out", "state", "kept", "grad", "grad_x", "grad_w", "grad_b", "grad_start")


class _Steps(ctypes.Structure):
    """`gru_steps` of bidirectional_gru.c, which describes the fields."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in (*_INTEGERS, *_FLOATS)),
    )


class BidirectionalGru(nn.Module):
    """A GRU in each direction, with a learned first state. Initialised as in RC-DQN's program: Xavier, orthogonal,
    zeros."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, bidirectional=True)
        self.start = nn.Parameter(torch.zeros(2, 1, hidden))
        for name, parameter in self.gru.named_parameters():
            if "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            elif "weight_hh" in name:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor, lengths: Tensor, which: Tensor | None = None) -> Tensor:
        """Return the states at all tokens, [tokens, 2 * hidden]: forward, then backward.

        inputs: [tokens, width], the tokens of rows, concatenated; lengths: [n], on the CPU, lengths of the rows, at
        least
        1; which: [tokens], on the CPU, the index of each token in `inputs`, so that a word need occur there only once.
        """
        lengths, order = lengths.sort(descending=True, stable=True)
        starts = _find_starts(lengths, order)
        # Tokens in the order of the steps: all first tokens come first.
        step = torch.arange(int(lengths[0]))[:, None]
        is_active = step < lengths  # [longest, n]: which rows have a token at the step
        sizes = is_active.sum(dim=1)
        places = (starts + step)[is_active]
        if inputs.device.type == "cpu" and (torch.is_grad_enabled() or self._is_fast(inputs)):
            # The backward direction begins at the end of each row, so both have the same active rows at every step.
            mirrored = (starts + lengths - 1 - step)[is_active]
            if self._is_fast(inputs):
                return self._run_in_c(inputs, which, torch.stack((places, mirrored)), sizes)
            return self._run_unrolled(_select_inputs(inputs, which), places, mirrored, sizes.tolist())
        places = places.to(inputs.device)
        first = self.start.expand(-1, len(lengths), -1).contiguous()
        packed, _ = self.gru(PackedSequence(_select_inputs(inputs, which).index_select(0, places), sizes), first)
        states: Tensor = packed.data
        return torch.empty_like(states).index_copy(0, places, states)

    def _is_fast(self, inputs: Tensor) -> bool:
        return FAST and inputs.dtype == torch.float32 and self.gru.hidden_size % gru.GRAIN == 0

    def _run_in_c(self, inputs: Tensor, which: Tensor | None, places: Tensor, sizes: Tensor) -> Tensor:
        (to_right, right, to_right_bias, right_bias), (to_left, left, to_left_bias, left_bias) = self.gru.all_weights
        given = nn.functional.linear(inputs, torch.cat((to_right, to_left)), torch.cat((to_right_bias, to_left_bias)))
        which = torch.arange(len(inputs)) if which is None else which
        weight, bias = torch.stack((right, left)), torch.stack((right_bias, left_bias))
        indices = sizes.to(torch.int32), places.to(torch.int32), which.to(torch.int32)
        if not torch.is_grad_enabled():
            return _forward_in_c({"x": given, "w": weight, "b": bias, "start": self.start}, indices)
        states: Tensor = _BidirectionalInC.apply(given, weight, bias, self.start, indices)  # type: ignore[no-untyped-call]
        return states

    def _run_unrolled(self, inputs: Tensor, places: Tensor, mirrored: Tensor, sizes: list[int]) -> Tensor:
        (to_right, right, to_right_bias, right_bias), (to_left, left, to_left_bias, left_bias) = self.gru.all_weights
        given = torch.stack(
            (
                nn.functional.linear(inputs, to_right, to_right_bias).index_select(0, places),
                nn.functional.linear(inputs, to_left, to_left_bias).index_select(0, mirrored),
            )
        )
        weight, bias = torch.stack((right, left)), torch.stack((right_bias, left_bias))
        states = _Unrolled.apply(given, weight, bias, self.start, sizes)  # type: ignore[no-untyped-call]
        back = torch.empty_like(places), torch.empty_like(places)
        for inverse, order in zip(back, (places, mirrored), strict=True):
            inverse[order] = torch.arange(len(order))
        return torch.cat([states[i].index_select(0, inverse) for i, inverse in enumerate(back)], dim=1)


def _select_inputs(inputs: Tensor, which: Tensor | None) -> Tensor:
    """Return the input of each token, [tokens, width]."""
    return inputs if which is None else inputs.index_select(0, which.to(inputs.device))


def _find_starts(lengths: Tensor, order: Tensor) -> Tensor:
    """Return where each row begins, [n], for rows in sorted order."""
    original = torch.empty_like(lengths)
    original[order] = lengths
    return (original.cumsum(0) - original)[order]


class _BidirectionalInC(torch.autograd.Function):
    """States [tokens, 2 * h], by place, from what the inputs give [.., 6 * h], weights [2, 3 * h, h], biases
    [2, 3 * h], first states [2, 1, h], and `sizes`, `place` and `given` of `gru_steps`."""

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, start: Tensor, indices: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        tokens, hidden = indices[1].shape[1], weight.shape[2]
        made = {"state": given.new_empty(2, tokens, hidden), "kept": given.new_empty(2, tokens, 4 * hidden)}
        ctx.save_for_backward(given, weight, bias, start)
        ctx.indices, ctx.made = indices, made
        return _forward_in_c({"x": given, "w": weight, "b": bias, "start": start, **made}, indices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.made is None:
            raise RuntimeError("the backward pass can run only once: it overwrites the intermediate results")
        leaves = dict(zip(("x", "w", "b", "start"), ctx.saved_tensors, strict=True))
        found = {f"grad_{name}": torch.zeros_like(leaf) for name, leaf in leaves.items()}
        made, ctx.made = ctx.made, None
        _call("backward", {**leaves, **made, **found, "grad": gradient.contiguous()}, ctx.indices)
        return *found.values(), None


def _forward_in_c(floats: dict[str, Tensor], indices: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    out = floats["x"].new_empty(indices[1].shape[1], 2 * floats["w"].shape[2])
    _call("forward", {**floats, "out": out}, indices)
    return out


def _call(direction: str, floats: dict[str, Tensor], indices: tuple[Tensor, Tensor, Tensor]) -> None:
    """Call the C function for the pass `forward` or `backward`."""
    sizes, place, _ = indices
    numbers = floats["w"].shape[2], len(sizes), place.shape[1], int(sizes[0])
    pointers = {name: t.data_ptr() for name, t in (*zip(_INTEGERS, indices, strict=True), *floats.items())}
    steps = _Steps(*numbers, **pointers)
    if gru.get_function(f"gru_both_ways_{direction}")(ctypes.byref(steps), torch.get_num_threads(), gru.BEST_KERNEL):
        raise MemoryError("no memory for the GRU's states")


class _Unrolled(torch.autograd.Function):
    """States [2, tokens, h] from what the inputs give [2, tokens, 3 * h] (reset, update, new), weights [2, 3 * h, h],
    biases [2, 3 * h] and first states [2, 1, h]; `sizes`: how many rows are left at each step."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, start: Tensor, sizes: list[int]) -> Tensor:
        tokens, hidden = given.shape[1], weight.shape[2]
        states = given.new_empty(2, tokens, hidden)
        held = torch.empty_like(given)  # the part of the gates' inputs that comes from the state before
        gates = torch.empty_like(given)  # reset, update, new
        turned = weight.transpose(1, 2)
        bias = bias[:, None]
        state = start.expand(-1, sizes[0], -1)
        at = 0
        for size in sizes:
            given_now, held_now, gates_now = (t[:, at : at + size] for t in (given, held, gates))
            state = state[:, :size]
            held_now.copy_(torch.baddbmm(bias, state, turned))
            both = torch.add(
                given_now[..., : 2 * hidden], held_now[..., : 2 * hidden], out=gates_now[..., : 2 * hidden]
            )
            reset, update = both.sigmoid_().chunk(2, dim=2)
            new = gates_now[..., 2 * hidden :]
            torch.addcmul(given_now[..., 2 * hidden :], reset, held_now[..., 2 * hidden :], out=new).tanh_()
            state = torch.lerp(new, state, update, out=states[:, at : at + size])
            at += size
        ctx.save_for_backward(gates, held[..., 2 * hidden :], states, weight, start)
        ctx.sizes = sizes
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gates, held_new, states, weight, start = ctx.saved_tensors
        sizes, hidden = ctx.sizes, weight.shape[2]
        reset, update, new = gates.chunk(3, dim=2)
        fewer = torch.tensor(sizes[:-1], dtype=torch.long).repeat_interleave(torch.tensor(sizes[1:], dtype=torch.long))
        earlier = torch.arange(sizes[0], states.shape[1]) - fewer
        before = torch.cat((start.expand(-1, sizes[0], -1), states.index_select(1, earlier)), dim=1)
        # The factors from a state's gradient to the parts of its three gates that come from the state before. They do
        # not
        # depend on the gradients of later states, so they are computed for all tokens at once.
        to_new = (1 - update) * (1 - new * new)
        to_held = torch.stack(  # [2, tokens, 3, h]
            (to_new * held_new * reset * (1 - reset), (before - new) * update * (1 - update), to_new * reset), dim=2
        )
        total = gradient.clone()  # becomes the gradient of each state, including that through later states
        held = torch.empty_like(to_held)
        later = gradient.new_zeros(2, 0, hidden)
        at = gradient.shape[1]
        for size in reversed(sizes):
            at -= size
            now = total[:, at : at + size]
            now[:, : later.shape[1]] += later
            here = held[:, at : at + size]
            torch.mul(now[:, :, None], to_held[:, at : at + size], out=here)
            later = torch.baddbmm(now * update[:, at : at + size], here.flatten(2), weight)
        held = held.flatten(2)
        # The part of `new` that comes from the inputs does not pass the reset gate.
        for_given = torch.cat((held[..., : 2 * hidden], total * to_new), dim=2)
        return for_given, held.transpose(1, 2) @ before, held.sum(dim=1), later.sum(dim=1, keepdim=True), None
