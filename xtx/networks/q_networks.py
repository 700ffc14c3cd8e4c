"""The networks of DRRN and INV-DY: from codes of texts to action values, and inverse dynamics. Tensors only."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from xtx.kernels.cpu.gru import PrefixTree, compute_last_states
from xtx.text.text_table import START


class Encoder(nn.Module):
    """Encodes a text as the state of a GRU at its last token. Weights are named and initialised as in torch.nn.GRU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight_ih = _uniform(bound, 3 * hidden, width)
        self.weight_hh = _uniform(bound, 3 * hidden, hidden)
        self.bias_ih = _uniform(bound, 3 * hidden)
        self.bias_hh = _uniform(bound, 3 * hidden)

    def forward(self, plan: PrefixTree, embedding: Tensor) -> Tensor:
        """Return the codes of all texts of a plan, [texts, hidden]."""
        return compute_last_states(plan, embedding, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def step(self, inputs: Tensor, state: Tensor) -> Tensor:
        """Return the state after one more token, [n, hidden]. inputs: embeddings [n, width]; state: [n, hidden]"""
        from_input = nn.functional.linear(inputs, self.weight_ih, self.bias_ih).chunk(3, dim=-1)
        from_state = nn.functional.linear(state, self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        reset = torch.sigmoid(from_input[0] + from_state[0])
        update = torch.sigmoid(from_input[1] + from_state[1])
        new = torch.tanh(from_input[2] + reset * from_state[2])
        return new + update * (state - new)


def _uniform(bound: float, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


class TextEncoders(nn.Module):
    """A shared word embedding, and an encoder each for narration, look, inventory (f_o) and actions (f_a)."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocabulary, hidden))
        self.narration = Encoder(hidden, hidden)
        self.look = Encoder(hidden, hidden)
        self.inventory = Encoder(hidden, hidden)
        self.action = Encoder(hidden, hidden)


class _QNetwork(nn.Module):
    """The last layers of both networks: from the codes of a state and an action to a value."""

    hidden_layer: nn.Linear
    value_layer: nn.Linear

    def q(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return the value of each action in the state of the same row, [n]."""
        hidden = torch.relu(self.hidden_layer(torch.cat((states, actions), dim=-1)))
        return torch.as_tensor(self.value_layer(hidden)).squeeze(-1)


class DrrnNetwork(_QNetwork):
    """The network of DRRN: Q(o, a) = MLP([narration; look; inventory; action])."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.texts = TextEncoders(vocabulary, hidden)
        self.hidden_layer = nn.Linear(4 * hidden, hidden)
        self.value_layer = nn.Linear(hidden, 1)

    def state(self, codes: Tensor) -> Tensor:
        """Return the code of each state: here the codes of its three texts, unchanged. [n, 3 * hidden]"""
        return codes


class InvDyNetwork(_QNetwork):
    """The network of INV-DY and XTX: Q(o, a) = MLP([f_o(o); f_a(a)]), and inverse dynamics, which predicts the action
    from the states before and after it."""

    def __init__(self, vocabulary: int, hidden: int, reads: str = "difference") -> None:
        super().__init__()
        self.reads = reads
        self.texts = TextEncoders(vocabulary, hidden)
        self.state_layer = nn.Linear(3 * hidden, hidden)
        self.hidden_layer = nn.Linear(2 * hidden, hidden)
        self.value_layer = nn.Linear(hidden, 1)
        self.inverse = nn.Sequential(nn.Linear(2 * hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden))
        self.decoder = Encoder(hidden, hidden)
        self.words = nn.Linear(hidden, vocabulary)

    def state(self, codes: Tensor) -> Tensor:
        """Return the code f_o(o) of each state. [n, 3 * hidden] -> [n, hidden]"""
        return torch.as_tensor(self.state_layer(codes))

    def guess(self, before: Tensor, after: Tensor) -> Tensor:
        """Return g_inv(o, o'): the first state of the decoder that predicts the action. [n, hidden]"""
        second = after - before if self.reads == "difference" else after
        return torch.as_tensor(self.inverse(torch.cat((before, second), dim=-1)))

    def surprise(self, start: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the decoder's negative log-probability of each token of the actions, and which of them are real.

        start: first states [n, hidden]; tokens: [n, L], with START and END; lengths: [n]. Both results are [n, L - 1],
        for the tokens after START; the first is 0 behind the end of a row. The input of a step is the decoder's own
        likeliest token of the step before, not the right one, so the tokens of a row are computed one after the other.
        """
        state = start
        likeliest = torch.full((len(tokens),), START, dtype=torch.long, device=tokens.device)
        losses = []
        for position in range(1, tokens.shape[1]):
            state = self.decoder.step(self.texts.embedding[likeliest], state)
            scores = torch.log_softmax(self.words(state), dim=-1)
            losses.append(-scores.gather(1, tokens[:, position, None]).squeeze(1))
            likeliest = scores.argmax(dim=-1)
        counts = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
        return torch.stack(losses, dim=1) * counts, counts
