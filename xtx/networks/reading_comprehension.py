"""The reading-comprehension network of RC-DQN: reads a text for a question and values actions at their objects.

An action is a question about a text, and the positions of its objects in the text. Everything up to the last step
depends on the text and the question only, so it is computed once for each such pair, however many actions ask the same
question about different objects. What depends on the text or the question alone is computed once for each of those.
Tensors in, tensors out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xtx.kernels.cpu.attention import Pairs, attend, is_supported
from xtx.kernels.cpu.bidirectional_gru import BidirectionalGru

SLACK = {"cpu": 1.25, "cuda": 8.0}
"""Largest ratio of the longest to the shortest text of a group that is padded together. On a GPU padding costs less
than another launch."""


@dataclass(frozen=True)
class EncodedReading:
    """The input of the network: S texts, Q questions, P pairs of a text and a question, N actions.

    All tensors are on the CPU and hold int64, except weights. The positions of an object are padded to the largest
    number that any object has, with weight 0.
    """

    texts: Tensor
    """Tokens of all texts, concatenated."""
    text_lengths: Tensor
    """[S]"""
    questions: Tensor
    """Tokens of all questions, concatenated."""
    question_lengths: Tensor
    """[Q]"""
    pair_text: Tensor
    """[P]: index of the pair's text."""
    pair_question: Tensor
    """[P]: index of the pair's question."""
    action_pair: Tensor
    """[N]: index of the action's pair."""
    first: Tensor
    """[N, F]: positions of the first object in the text."""
    first_weights: Tensor
    """[N, F]: rows sum to 1."""
    second: Tensor
    """[N, F]: positions of the second object in the text."""
    second_weights: Tensor
    """[N, F]: rows sum to 1."""


class TextRows:
    """Sequences of vectors of different lengths, as slices of one table of vectors."""

    def __init__(self, table: Tensor, starts: Tensor, lengths: Tensor) -> None:
        """table: [tokens, width]; starts, lengths: [n], on the CPU. Slices may overlap."""
        self.table = table
        self.starts = starts
        self.lengths = lengths

    @classmethod
    def of(cls, table: Tensor, lengths: Tensor) -> TextRows:
        """Make the rows that lie in the table one after the other."""
        return cls(table, lengths.cumsum(0) - lengths, lengths)

    def __getitem__(self, which: Tensor | slice) -> TextRows:
        return TextRows(self.table, self.starts[which], self.lengths[which])

    def padded(self) -> tuple[Tensor, Tensor]:
        """Return the rows padded with their last vectors, [n, T, width], and a mask of real vectors, [n, T], on the
        CPU."""
        place = torch.arange(int(self.lengths.max()))
        where = self.starts[:, None] + torch.minimum(place, self.lengths[:, None] - 1)
        values = self.table.index_select(0, where.flatten().to(self.table.device)).view(*where.shape, -1)
        return values, place < self.lengths[:, None]


class BidafAttention(nn.Module):
    """BiDAF's attention between a context and a memory, with trilinear similarity.

    The output is LeakyReLU(linear [c; a; c * a; b * a]), where c is a vector of the context, a its attention to the
    memory, and b the attention of the memory to the context.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.context_weight = nn.Linear(width, 1, bias=False)
        self.memory_weight = nn.Linear(width, 1, bias=False)
        # Initialised as in the authors' program: from 1 / sqrt(width) to 1.
        self.product_weight = nn.Parameter(torch.empty(width).uniform_(width**-0.5, 1.0))
        self.mix = nn.Linear(4 * width, hidden)

    def forward(self, context: TextRows, memory: TextRows) -> Tensor:
        """Return the output for all tokens of the context, [tokens, hidden].

        Row i of the context attends to row i of the memory; the rows of the context ascend in length. They are computed
        in groups of about equal length, for little padding; on the CPU one by one, in C.
        """
        if context.table is memory.table and is_supported(context.table, self.mix.out_features):
            pairs = Pairs(context.starts, context.lengths, memory.starts, memory.lengths)
            scores = (self.context_weight.weight[0], self.memory_weight.weight[0], self.product_weight)
            return attend(pairs, (context.table, *scores, self.mix.weight, self.mix.bias))
        lengths = context.lengths.tolist()
        slack = SLACK[context.table.device.type]
        results = []
        start = 0
        for end in range(1, len(lengths) + 1):
            if end == len(lengths) or lengths[end] > slack * lengths[start]:
                group = slice(start, end)
                values, mask = context[group].padded()
                attended = self._attend(values, mask, *memory[group].padded()).flatten(0, 1)
                # Not attended[mask]: the size of the result would depend on the mask, and the CPU would wait for the
                # GPU.
                results.append(attended.index_select(0, mask.flatten().nonzero().squeeze(1).to(attended.device)))
                start = end
        return torch.cat(results)

    def _attend(self, context: Tensor, context_mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """Return the output of padded rows, whose padding has no influence on it.

        [P, T, width], [P, T], [P, M, width], [P, M] -> [P, T, hidden]
        """
        similarity = torch.baddbmm(  # [P, T, M]
            self.memory_weight(memory).transpose(1, 2), context * self.product_weight, memory.transpose(1, 2)
        )
        similarity = similarity + self.context_weight(context)
        similarity = similarity.masked_fill(~memory_mask[:, None].to(context.device), float("-inf"))
        shares = torch.softmax(similarity, dim=2)
        found = torch.bmm(shares, memory)  # a: [P, T, width]
        importance = similarity.amax(dim=2).masked_fill(~context_mask.to(context.device), float("-inf"))
        gist = torch.bmm(torch.softmax(importance, dim=1)[:, None], context)  # b: [P, 1, width]
        # The linear layer is computed in parts, so that its four inputs need not be concatenated. As b is the same for
        # all words of a pair, b * a under the weights is a under weights multiplied by b.
        for_context, for_found, for_product, for_gist = self.mix.weight.chunk(4, dim=1)  # [hidden, width] each
        own = (for_found + for_gist * gist).transpose(1, 2)
        if _right_first(context, memory):
            mixed = torch.baddbmm(self.mix.bias, shares, torch.bmm(memory, own))
        else:
            mixed = torch.baddbmm(self.mix.bias, found, own)
        mixed = mixed + context @ for_context.T + (context * found) @ for_product.T
        return nn.functional.leaky_relu(mixed)


def _right_first(context: Tensor, memory: Tensor) -> bool:
    """Return whether shares @ (memory @ weights) needs fewer operations than (shares @ memory) @ weights.

    It does if the memory is a question, which has few words.
    """
    (_, words, width), few = context.shape, memory.shape[1]
    return few * (width + words) < words * width


class RcNetwork(nn.Module):
    """The Q-network of RC-DQN: values of actions that are given as questions about texts and positions in them."""

    def __init__(self, vocabulary: int, width: int = 100, hidden: int = 64) -> None:
        super().__init__()
        self.hidden = hidden
        self.embedding = nn.Embedding(vocabulary, width)
        self.read = BidirectionalGru(width, hidden)
        self.attend = BidafAttention(2 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.reread = BidirectionalGru(hidden, hidden)
        self.attend_self = BidafAttention(2 * hidden, hidden)
        self.last_norm = nn.LayerNorm(hidden)
        self.last = BidirectionalGru(hidden, hidden)
        self.value = nn.Linear(2 * hidden, 1, bias=False)

    def forward(self, reading: EncodedReading) -> Tensor:
        """Return the value of each action, [N]."""
        lengths, order = reading.text_lengths[reading.pair_text].sort(stable=True)
        encoded = self._encode(reading)
        text = encoded[reading.pair_text[order]]
        question = encoded[len(reading.text_lengths) + reading.pair_question[order]]
        # From here [tokens of all pairs, hidden].
        read = self.attend(text, question)
        again = TextRows.of(self.reread(self.norm(read), lengths), lengths)
        read = read + self.attend_self(again, again)
        forwards, backwards = self.last(self.last_norm(read), lengths).chunk(2, dim=1)
        # The mean over positions and the linear layer commute, so the linear layer runs first: each word becomes one
        # number as a position of a first object, and another as a position of a second one.
        for_first, for_second = self.value.weight.squeeze(0).chunk(2)
        starts = torch.empty_like(lengths)
        starts[order] = again.starts
        begin = starts[reading.action_pair][:, None]
        first = _mean(backwards @ for_first, begin + reading.first, reading.first_weights)
        return first + _mean(forwards @ for_second, begin + reading.second, reading.second_weights)

    def _encode(self, reading: EncodedReading) -> TextRows:
        """Encode all texts, then all questions, in one call.

        The GRU's input projection is computed once for each distinct word: a batch has some thousand tokens, but only a
        few hundred words.
        """
        lengths = torch.cat((reading.text_lengths, reading.question_lengths))
        tokens = torch.cat((reading.texts, reading.questions))
        words, which = tokens.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return TextRows.of(self.read(self.embedding(words.to(self.embedding.weight.device)), lengths, which), lengths)


def _mean(values: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the values at the places. [tokens], [N, F], [N, F] -> [N]"""
    selected = values.index_select(0, places.flatten().to(values.device)).view(places.shape)
    return (selected * weights.to(values.device)).sum(dim=1)
