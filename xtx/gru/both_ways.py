"""A bidirectional GRU that gives its state at every token.

It is torch's own but where it learns on the CPU: there torch builds a graph of some twenty nodes for each token, which
costs more than the arithmetic. Instead both directions run side by side in one loop, with the gradient written out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


class BothWays(nn.Module):
    """A GRU each way, with a learned first state. It begins as in RC-DQN's program: Xavier, orthogonal, zeros."""

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

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """[tokens, 2 * hidden]: forwards, then backwards. The inputs, [tokens, width], are rows one after the other,
        whose lengths, [n] on the CPU, are at least 1."""
        lengths, order = lengths.sort(descending=True, stable=True)
        starts = _starts(lengths, order)
        # Tokens in the order in which they are read, all first tokens first.
        moment = torch.arange(int(lengths[0]))[:, None]
        left = moment < lengths  # [longest, n]: which rows are not yet at their end
        sizes = left.sum(dim=1)
        places = (starts + moment)[left].to(inputs.device)
        if inputs.device.type == "cpu" and torch.is_grad_enabled():
            # Backwards a row begins at its own end, so that both ways have the same rows left at every step.
            return self._unrolled(inputs, places, (starts + lengths - 1 - moment)[left], sizes.tolist())
        first = self.start.expand(-1, len(lengths), -1).contiguous()
        packed, _ = self.gru(PackedSequence(inputs.index_select(0, places), sizes), first)
        states: Tensor = packed.data
        return torch.empty_like(states).index_copy(0, places, states)

    def _unrolled(self, inputs: Tensor, places: Tensor, mirrored: Tensor, sizes: list[int]) -> Tensor:
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
        for way, read in zip(back, (places, mirrored), strict=True):
            way[read] = torch.arange(len(read))
        return torch.cat([states[i].index_select(0, way) for i, way in enumerate(back)], dim=1)


def _starts(lengths: Tensor, order: Tensor) -> Tensor:
    """[n]: where each row begins, for rows that were brought into an order."""
    original = torch.empty_like(lengths)
    original[order] = lengths
    return (original.cumsum(0) - original)[order]


class _Unrolled(torch.autograd.Function):
    """States [2, tokens, h] from what the inputs give [2, tokens, 3 * h] (reset, update, new), weights [2, 3 * h, h],
    biases [2, 3 * h] and first states [2, 1, h]; `sizes`: how many rows are left at each step."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, start: Tensor, sizes: list[int]) -> Tensor:
        tokens, hidden = given.shape[1], weight.shape[2]
        states = given.new_empty(2, tokens, hidden)
        held = torch.empty_like(given)  # what the state before gives
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
        # All that does not depend on the gradient of later states, for all tokens at once: what a state's gradient is
        # multiplied with on its way to the three gates, as far as the state before has a part in them.
        to_new = (1 - update) * (1 - new * new)
        to_held = torch.stack(  # [2, tokens, 3, h]
            (to_new * held_new * reset * (1 - reset), (before - new) * update * (1 - update), to_new * reset), dim=2
        )
        total = gradient.clone()  # of each state, by way of later states too
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
        # What the inputs give to `new` does not pass the reset gate.
        for_given = torch.cat((held[..., : 2 * hidden], total * to_new), dim=2)
        return for_given, held.transpose(1, 2) @ before, held.sum(dim=1), later.sum(dim=1, keepdim=True), None
