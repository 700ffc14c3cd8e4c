"""The reading-comprehension network of RC-DQN: a text is read with a question in mind, and an action's value is read
off at the places of its objects. Tensors in, tensors out.

Everything up to the last step depends on the text and the question only, so it is done once for each such pair, however
many actions ask the same of different objects; and what depends on the text or the question alone is done once for each
of those.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from xtx.gru.both_ways import BothWays


@dataclass(frozen=True)
class Reading:
    """What is asked: S texts, Q questions, P pairs of a text and a question, N actions. Long integers but for weights.
    The places of an object are padded to the most that any has, with weight 0."""

    texts: Tensor
    """[S, T]: tokens, anything behind the end."""
    text_lengths: Tensor
    """[S]: on the CPU, as are question_lengths."""
    questions: Tensor
    """[Q, L]"""
    question_lengths: Tensor
    pair_text: Tensor
    """[P]: which text."""
    pair_question: Tensor
    """[P]: which question."""
    action_pair: Tensor
    """[N]: which pair."""
    first: Tensor
    """[N, F]: places of the first object in the text."""
    first_weights: Tensor
    """[N, F]: rows sum to 1."""
    second: Tensor
    second_weights: Tensor

    def to(self, device: torch.device) -> Reading:
        """All but the lengths on a device."""
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return Reading(**{name: t if "lengths" in name else t.to(device) for name, t in moved.items()})


class Attention(nn.Module):
    """BiDAF's attention from a context to a memory with trilinear similarity, and what is made of it:
    LeakyReLU(linear [c; a; c * a; b * a]), where a is what a word of the context finds in the memory, and b the words
    of the context that the memory finds."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.context_weight = nn.Linear(width, 1, bias=False)
        self.memory_weight = nn.Linear(width, 1, bias=False)
        # As the authors' program begins: from 1 / sqrt(width) to 1.
        self.product_weight = nn.Parameter(torch.empty(width).uniform_(width**-0.5, 1.0))
        self.mix = nn.Linear(4 * width, hidden)

    def forward(self, context: Tensor, memory: Tensor, context_mask: Tensor, memory_mask: Tensor) -> Tensor:
        """[P, T, width], [P, M, width], [P, T], [P, M] -> [P, T, hidden]; what lies behind the masks changes nothing
        before them."""
        similarity = torch.baddbmm(  # [P, T, M]
            self.memory_weight(memory).transpose(1, 2), context * self.product_weight, memory.transpose(1, 2)
        )
        similarity = similarity + self.context_weight(context)
        similarity = similarity.masked_fill(~memory_mask[:, None], float("-inf"))
        found = torch.bmm(torch.softmax(similarity, dim=2), memory)  # a: [P, T, width]
        importance = similarity.amax(dim=2).masked_fill(~context_mask, float("-inf"))
        gist = torch.bmm(torch.softmax(importance, dim=1)[:, None], context)  # b: [P, 1, width]
        # The linear layer by parts: the four are never laid side by side, and as b is the same for all words of a pair,
        # b * a is a itself under weights of the pair's own.
        for_context, for_found, for_product, for_gist = self.mix.weight.chunk(4, dim=1)  # [hidden, width] each
        mixed = torch.baddbmm(self.mix.bias, found, (for_found + for_gist * gist).transpose(1, 2))
        mixed = mixed + context @ for_context.T + (context * found) @ for_product.T
        return nn.functional.leaky_relu(mixed)


class RcNetwork(nn.Module):
    """Q of actions, which are questions about a text and places in it."""

    def __init__(self, vocabulary: int, width: int = 100, hidden: int = 64) -> None:
        super().__init__()
        self.hidden = hidden
        self.embedding = nn.Embedding(vocabulary, width)
        self.read = BothWays(width, hidden)
        self.attend = Attention(2 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.reread = BothWays(hidden, hidden)
        self.attend_self = Attention(2 * hidden, hidden)
        self.last_norm = nn.LayerNorm(hidden)
        self.last = BothWays(hidden, hidden)
        self.value = nn.Linear(2 * hidden, 1, bias=False)

    def forward(self, reading: Reading) -> Tensor:
        """[N]: the value of each action."""
        at_first, at_second = self._values(reading)
        pairs = reading.action_pair[:, None]
        first = (at_first[pairs, reading.first] * reading.first_weights).sum(dim=1)
        return first + (at_second[pairs, reading.second] * reading.second_weights).sum(dim=1)

    def _values(self, reading: Reading) -> tuple[Tensor, Tensor]:
        """[P, T] twice: what a word adds to the value as the place of the first object, and of the second. The mean
        over places and the linear layer may change order, so a word is one number before any action asks for it."""
        device = reading.texts.device
        lengths = reading.text_lengths[reading.pair_text.cpu()]
        text_mask = _mask(lengths, reading.texts.shape[1], device)
        question_mask = _mask(reading.question_lengths, reading.questions.shape[1], device)
        texts = self.read(self.embedding(reading.texts), reading.text_lengths)[reading.pair_text]
        questions = self.read(self.embedding(reading.questions), reading.question_lengths)[reading.pair_question]
        # [P, T, hidden] from here
        read = self.attend(texts, questions, text_mask, question_mask[reading.pair_question])
        again = self.reread(self.norm(read), lengths)
        read = read + self.attend_self(again, again, text_mask, text_mask)
        forwards, backwards = self.last(self.last_norm(read), lengths).chunk(2, dim=2)
        for_first, for_second = self.value.weight.squeeze(0).chunk(2)
        return backwards @ for_first, forwards @ for_second


def _mask(lengths: Tensor, longest: int, device: torch.device) -> Tensor:
    """[n, longest]: True up to each length."""
    return torch.arange(longest, device=device) < lengths.to(device)[:, None]
