"""A bidirectional GRU that gives its state at every token.

It is torch's own but where it learns on the CPU: there torch builds a graph of some twenty nodes for each token, which
costs more than the arithmetic. Instead both directions run side by side in one loop, with the gradient written out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BothWays(nn.Module):
    """A GRU each way, with a learned first state. It begins as in RC-DQN's program: Xavier, orthogonal, zeros."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.start = nn.Parameter(torch.zeros(2, 1, hidden))
        for name, parameter in self.gru.named_parameters():
            if "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            elif "weight_hh" in name:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """[n, T, width], [n] on the CPU -> [n, T, 2 * hidden]: forwards, then backwards; 0 behind a row's end."""
        if inputs.device.type == "cpu" and torch.is_grad_enabled():
            return self._unrolled(inputs, lengths)
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.gru(packed, self.start.expand(-1, len(inputs), -1).contiguous())
        return pad_packed_sequence(states, batch_first=True, total_length=inputs.shape[1])[0]

    def _unrolled(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        n, longest, _ = inputs.shape
        order = torch.argsort(lengths, descending=True, stable=True)
        ordered = lengths[order]
        # Tokens in the order in which they are read, all first tokens first: [tokens] each. Backwards a row begins at
        # its own end, so that both ways have the same rows left at every step.
        moment = torch.arange(longest)[:, None]
        reading = moment < ordered
        places = (order * longest + moment)[reading]
        mirrored = (order * longest + ordered - 1 - moment)[reading]
        flat = inputs.reshape(n * longest, -1)
        (to_right, right, to_right_bias, right_bias), (to_left, left, to_left_bias, left_bias) = self.gru.all_weights
        given = torch.stack(
            (
                nn.functional.linear(flat[places], to_right, to_right_bias),
                nn.functional.linear(flat[mirrored], to_left, to_left_bias),
            )
        )
        weight, bias = torch.stack((right, left)), torch.stack((right_bias, left_bias))
        states = _Unrolled.apply(given, weight, bias, self.start, reading.sum(dim=1).tolist())  # type: ignore[no-untyped-call]
        result = inputs.new_zeros(2, n * longest, states.shape[2])
        result[0, places], result[1, mirrored] = states[0], states[1]
        return result.view(2, n, longest, -1).permute(1, 2, 0, 3).reshape(n, longest, -1)


class _Unrolled(torch.autograd.Function):
    """States [2, tokens, h] from what the inputs give [2, tokens, 3 * h] (reset, update, new), weights [2, 3 * h, h],
    biases [2, 3 * h] and first states [2, 1, h]; `sizes`: how many rows are left at each step."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, start: Tensor, sizes: list[int]) -> Tensor:
        tokens, hidden = given.shape[1], weight.shape[2]
        learning = any(ctx.needs_input_grad)
        states = given.new_empty(2, tokens, hidden)
        gates = torch.empty_like(given) if learning else given  # reset, update, new, after their nonlinearities
        held_new = torch.empty_like(states) if learning else states
        before = torch.empty_like(states) if learning else states
        turned = weight.transpose(1, 2)
        state = start.expand(-1, sizes[0], -1)
        at = 0
        for size in sizes:
            here = slice(at, at + size)
            state = state[:, :size]
            held = torch.baddbmm(bias[:, None], state, turned)
            both = torch.sigmoid(given[:, here, : 2 * hidden] + held[..., : 2 * hidden])
            update = both[..., hidden:]
            new = torch.addcmul(given[:, here, 2 * hidden :], both[..., :hidden], held[..., 2 * hidden :]).tanh_()
            if learning:
                before[:, here] = state
                gates[:, here, : 2 * hidden] = both
                gates[:, here, 2 * hidden :] = new
                held_new[:, here] = held[..., 2 * hidden :]
            state = torch.lerp(new, state, update)
            states[:, here] = state
            at += size
        if learning:
            ctx.save_for_backward(gates, held_new, before, weight)
            ctx.sizes = sizes
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gates, held_new, before, weight = ctx.saved_tensors
        hidden = weight.shape[2]
        reset, update, new = gates.split(hidden, dim=2)
        # All that does not depend on the gradient of later states, for all tokens at once.
        to_new = (1 - update) * (1 - new * new)
        to_update = (before - new) * update * (1 - update)
        to_reset = held_new * reset * (1 - reset)
        held = torch.empty_like(gates)  # gradient of what the state before gives: to reset, update, new
        for_new = torch.empty_like(new)  # what the inputs give to `new` does not pass the reset gate
        later = gradient.new_zeros(2, 0, hidden)
        at = gradient.shape[1]
        for size in reversed(ctx.sizes):
            here = slice(at - size, at)
            at -= size
            now = gradient[:, here].clone()
            now[:, : later.shape[1]] += later
            torch.mul(now, to_new[:, here], out=for_new[:, here])
            torch.mul(for_new[:, here], to_reset[:, here], out=held[:, here, :hidden])
            torch.mul(now, to_update[:, here], out=held[:, here, hidden : 2 * hidden])
            torch.mul(for_new[:, here], reset[:, here], out=held[:, here, 2 * hidden :])
            later = torch.baddbmm(now * update[:, here], held[:, here], weight)
        for_given = torch.cat((held[..., : 2 * hidden], for_new), dim=2)
        return for_given, held.transpose(1, 2) @ before, held.sum(dim=1), later.sum(dim=1, keepdim=True), None
