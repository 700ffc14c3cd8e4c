"""The Q-networks: texts' codes in, values and losses' raw material out. They know tensors, not games."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from xtx.gru import Plan, last_states
from xtx.text import START


class Encoder(nn.Module):
    """A text's code: the state of a GRU at the text's last token. Weights are named and begin as torch.nn.GRU's do."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight_ih = _uniform(bound, 3 * hidden, width)
        self.weight_hh = _uniform(bound, 3 * hidden, hidden)
        self.bias_ih = _uniform(bound, 3 * hidden)
        self.bias_hh = _uniform(bound, 3 * hidden)

    def forward(self, plan: Plan, embedding: Tensor) -> Tensor:
        """[texts of the plan, hidden]"""
        return last_states(plan, embedding, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def step(self, inputs: Tensor, state: Tensor) -> Tensor:
        """[n, hidden]: the state after one more token with the given embeddings [n, width]."""
        given = nn.functional.linear(inputs, self.weight_ih, self.bias_ih).chunk(3, dim=-1)
        held = nn.functional.linear(state, self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        reset = torch.sigmoid(given[0] + held[0])
        update = torch.sigmoid(given[1] + held[1])
        new = torch.tanh(given[2] + reset * held[2])
        return new + update * (state - new)


def _uniform(bound: float, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


class TextEncoders(nn.Module):
    """One word embedding shared by all; one encoder each for narration, look, inventory (f_o) and actions (f_a)."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocabulary, hidden))
        self.narration = Encoder(hidden, hidden)
        self.look = Encoder(hidden, hidden)
        self.inventory = Encoder(hidden, hidden)
        self.action = Encoder(hidden, hidden)


class DrrnNetwork(nn.Module):
    """Q(o, a) = MLP([narration; look; inventory; action])."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.texts = TextEncoders(vocabulary, hidden)
        self.hidden_layer = nn.Linear(4 * hidden, hidden)
        self.value_layer = nn.Linear(hidden, 1)

    def state(self, codes: Tensor) -> Tensor:
        """A state's code, here simply the codes of its three texts. [n, 3 * hidden] -> the same"""
        return codes

    def q(self, states: Tensor, actions: Tensor) -> Tensor:
        """[n]: the value of each action in the state beside it."""
        hidden = torch.relu(self.hidden_layer(torch.cat((states, actions), dim=-1)))
        return torch.as_tensor(self.value_layer(hidden)).squeeze(-1)


class InvDyNetwork(nn.Module):
    """Q(o, a) = MLP([f_o(o); f_a(a)]), and inverse dynamics: the action guessed from the states around it."""

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
        """f_o(o). [n, 3 * hidden] -> [n, hidden]"""
        return torch.as_tensor(self.state_layer(codes))

    def q(self, states: Tensor, actions: Tensor) -> Tensor:
        """[n]: the value of each action in the state beside it."""
        hidden = torch.relu(self.hidden_layer(torch.cat((states, actions), dim=-1)))
        return torch.as_tensor(self.value_layer(hidden)).squeeze(-1)

    def guess(self, before: Tensor, after: Tensor) -> Tensor:
        """g_inv(o, o'): the vector from which the decoder says the action. [n, hidden]"""
        second = after - before if self.reads == "difference" else after
        return torch.as_tensor(self.inverse(torch.cat((before, second), dim=-1)))

    def surprise(self, start: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """How unlikely the decoder, started from `start` [n, hidden], finds each token after the start mark:
        negative log-probabilities [n, L - 1], 0 behind a row's end, and which of them count, [n, L - 1].

        It is fed with its own likeliest words, not with the right ones, so the words of a row are decided one after
        the other; tokens: [n, L] with marks, lengths: [n].
        """
        state = start
        said = torch.full((len(tokens),), START, dtype=torch.long, device=tokens.device)
        losses = []
        for position in range(1, tokens.shape[1]):
            state = self.decoder.step(self.texts.embedding[said], state)
            scores = torch.log_softmax(self.words(state), dim=-1)
            losses.append(-scores.gather(1, tokens[:, position, None]).squeeze(1))
            said = scores.argmax(dim=-1)
        counts = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
        return torch.stack(losses, dim=1) * counts, counts
