"""The reading-comprehension network of RC-DQN: a text is read with a question in mind, and an action's value is read
off at the places of its objects. Tensors in, tensors out.

Everything up to the last step depends on the text and the question only, so it is done once for each such pair, however
many actions ask the same of different objects; and what depends on the text or the question alone is done once for each
of those.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xtx.gru.attend import Pairs, attend, usable
from xtx.gru.both_ways import BothWays

SLACK = {"cpu": 1.25, "cuda": 8.0}
"""How much longer than its shortest text the longest of a group may be. A GPU would rather compute padding than begin
anew."""


@dataclass(frozen=True)
class Reading:
    """What is asked: S texts, Q questions, P pairs of a text and a question, N actions. On the CPU; long integers but
    for weights. The places of an object are padded to the most that any has, with weight 0."""

    texts: Tensor
    """Tokens of all texts, one text after the other."""
    text_lengths: Tensor
    """[S]"""
    questions: Tensor
    """Tokens of all questions."""
    question_lengths: Tensor
    """[Q]"""
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


class Rows:
    """Rows of vectors of any length, in a table in which they lie one after the other."""

    def __init__(self, table: Tensor, starts: Tensor, lengths: Tensor) -> None:
        """[tokens, width]; [n] and [n] on the CPU. Several rows may lie in the same place."""
        self.table = table
        self.starts = starts
        self.lengths = lengths

    @classmethod
    def of(cls, table: Tensor, lengths: Tensor) -> Rows:
        """Each row behind the one before."""
        return cls(table, lengths.cumsum(0) - lengths, lengths)

    def __getitem__(self, which: Tensor | slice) -> Rows:
        return Rows(self.table, self.starts[which], self.lengths[which])

    def padded(self) -> tuple[Tensor, Tensor]:
        """[n, T, width], with the last vector of a row behind its end, and a mask, [n, T] on the CPU, of what is not
        padding."""
        place = torch.arange(int(self.lengths.max()))
        where = self.starts[:, None] + torch.minimum(place, self.lengths[:, None] - 1)
        values = self.table.index_select(0, where.flatten().to(self.table.device)).view(*where.shape, -1)
        return values, place < self.lengths[:, None]


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

    def forward(self, context: Rows, memory: Rows) -> Tensor:
        """[tokens of all rows of the context, hidden]; the rows of both belong together, those of the context ascend in
        length. They are computed in groups of about equal length, so that little is padding; on the CPU one by one, in
        C."""
        if context.table is memory.table and usable(context.table, self.mix.out_features):
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
                # Not attended[mask]: a GPU would have to be waited for, to learn how many that are.
                results.append(attended.index_select(0, mask.flatten().nonzero().squeeze(1).to(attended.device)))
                start = end
        return torch.cat(results)

    def _attend(self, context: Tensor, context_mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """[P, T, width], [P, T], [P, M, width], [P, M] -> [P, T, hidden]; what lies behind the masks changes nothing
        before them."""
        similarity = torch.baddbmm(  # [P, T, M]
            self.memory_weight(memory).transpose(1, 2), context * self.product_weight, memory.transpose(1, 2)
        )
        similarity = similarity + self.context_weight(context)
        similarity = similarity.masked_fill(~memory_mask[:, None].to(context.device), float("-inf"))
        shares = torch.softmax(similarity, dim=2)
        found = torch.bmm(shares, memory)  # a: [P, T, width]
        importance = similarity.amax(dim=2).masked_fill(~context_mask.to(context.device), float("-inf"))
        gist = torch.bmm(torch.softmax(importance, dim=1)[:, None], context)  # b: [P, 1, width]
        # The linear layer by parts: the four are never laid side by side, and as b is the same for all words of a pair,
        # b * a is a itself under weights of the pair's own.
        for_context, for_found, for_product, for_gist = self.mix.weight.chunk(4, dim=1)  # [hidden, width] each
        own = (for_found + for_gist * gist).transpose(1, 2)
        if _sooner(context, memory):
            mixed = torch.baddbmm(self.mix.bias, shares, torch.bmm(memory, own))
        else:
            mixed = torch.baddbmm(self.mix.bias, found, own)
        mixed = mixed + context @ for_context.T + (context * found) @ for_product.T
        return nn.functional.leaky_relu(mixed)


def _sooner(context: Tensor, memory: Tensor) -> bool:
    """Whether (shares @ memory) @ weights is less work from its right end: it is where the memory is a question, which
    has few words."""
    (_, words, width), few = context.shape, memory.shape[1]
    return few * (width + words) < words * width


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
        lengths, order = reading.text_lengths[reading.pair_text].sort(stable=True)
        encoded = self._encode(reading)
        text = encoded[reading.pair_text[order]]
        question = encoded[len(reading.text_lengths) + reading.pair_question[order]]
        # From here [tokens of all pairs, hidden].
        read = self.attend(text, question)
        again = Rows.of(self.reread(self.norm(read), lengths), lengths)
        read = read + self.attend_self(again, again)
        forwards, backwards = self.last(self.last_norm(read), lengths).chunk(2, dim=1)
        # The mean over places and the linear layer may change order: so a word is one number before any action asks
        # for it as the place of its first object, and another as that of its second.
        for_first, for_second = self.value.weight.squeeze(0).chunk(2)
        starts = torch.empty_like(lengths)
        starts[order] = again.starts
        begin = starts[reading.action_pair][:, None]
        first = _mean(backwards @ for_first, begin + reading.first, reading.first_weights)
        return first + _mean(forwards @ for_second, begin + reading.second, reading.second_weights)

    def _encode(self, reading: Reading) -> Rows:
        """All texts, then all questions, in one go. What the GRU makes of a word by itself is worked out once for each
        distinct word: a batch has some thousand tokens, but few hundred words."""
        lengths = torch.cat((reading.text_lengths, reading.question_lengths))
        tokens = torch.cat((reading.texts, reading.questions))
        words, which = tokens.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return Rows.of(self.read(self.embedding(words.to(self.embedding.weight.device)), lengths, which), lengths)


def _mean(values: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """[tokens], [N, F], [N, F] -> [N]"""
    there = values.index_select(0, places.flatten().to(values.device)).view(places.shape)
    return (there * weights.to(values.device)).sum(dim=1)
