"""The reading-comprehension network against plain PyTorch, pair by pair, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from xtx.kernels.cpu import attention as attend
from xtx.kernels.cpu import bidirectional_gru
from xtx.kernels.cpu import gru as kernels
from xtx.kernels.cpu.bidirectional_gru import BidirectionalGru
from xtx.networks.reading_comprehension import SLACK, BidafAttention, EncodedReading, RcNetwork, TextRows

VOCABULARY = 30


@pytest.fixture(autouse=True)
def one_seed() -> None:
    torch.manual_seed(0)


def network(hidden: int = 8) -> RcNetwork:
    made = RcNetwork(VOCABULARY, 10, hidden)
    with torch.no_grad():
        for parameter in made.parameters():  # biases and first states begin at 0: let them matter
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


# --- an independent, slow version: one action at a time, nothing padded, the formulas as they are written -----------


def gru(way: BidirectionalGru, inputs: Tensor) -> Tensor:
    """[T, width] -> [T, 2 * hidden], token by token."""
    results = []
    for direction, (w_ih, w_hh, b_ih, b_hh) in enumerate(way.gru.all_weights):
        state = way.start[direction, 0]
        states = []
        for token in inputs.flip(0) if direction else inputs:
            i_r, i_z, i_n = (w_ih @ token + b_ih).chunk(3)
            h_r, h_z, h_n = (w_hh @ state + b_hh).chunk(3)
            r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
            state = (1 - z) * torch.tanh(i_n + r * h_n) + z * state
            states.append(state)
        results.append(torch.stack(states[::-1] if direction else states))
    return torch.cat(results, dim=1)


def attention(layer: BidafAttention, context: Tensor, memory: Tensor) -> Tensor:
    """[T, width], [M, width] -> [T, hidden]"""
    similarity = torch.zeros(len(context), len(memory))
    for i, c in enumerate(context):
        for j, m in enumerate(memory):
            product = (layer.product_weight * c * m).sum()
            similarity[i, j] = layer.context_weight(c)[0] + layer.memory_weight(m)[0] + product
    a = torch.softmax(similarity, dim=1) @ memory
    b = torch.softmax(similarity.max(dim=1).values, dim=0) @ context
    wide = torch.cat((context, a, context * a, b * a), dim=1)
    return torch.nn.functional.leaky_relu(layer.mix(wide))


def slow_q(net: RcNetwork, text: Sequence[int], question: Sequence[int], first: list[int], second: list[int]) -> float:
    context = gru(net.read, net.embedding(torch.tensor(text)))
    memory = gru(net.read, net.embedding(torch.tensor(question)))
    read = attention(net.attend, context, memory)
    again = gru(net.reread, net.norm(read))
    read = read + attention(net.attend_self, again, again)
    last = gru(net.last, net.last_norm(read))
    hidden = net.hidden
    wide = torch.cat((last[first, hidden:].mean(dim=0), last[second, :hidden].mean(dim=0)))
    return float(net.value(wide).detach())


# --- the same as a Reading -------------------------------------------------------------------------------------------

TEXTS = [[5, 6, 7, 8, 9, 6], [10, 11, 12], [13, 14, 15, 16]]
QUESTIONS = [[20, 4, 21, 4], [22], [23, 4]]
ACTIONS = [  # text, question, places of the first and the second object
    (0, 0, [1, 5], [3]),
    (0, 0, [3], [1, 5]),
    (0, 1, [0], [5]),
    (1, 2, [1], [2]),
    (1, 1, [0], [2]),
    (2, 0, [1, 2, 3], [0]),
]


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([[*row, *[0] * (max(map(len, rows)) - len(row))] for row in rows])


def weights(rows: Sequence[Sequence[int]]) -> Tensor:
    return padded([[1] * len(row) for row in rows]) / torch.tensor([[len(row)] for row in rows])


def reading(
    fill: int = 0, more: int = 0, actions: Sequence[tuple[int, int, list[int], list[int]]] = ACTIONS
) -> EncodedReading:
    pairs = list(dict.fromkeys((text, question) for text, question, _, _ in actions))
    first, second = [a[2] for a in actions], [a[3] for a in actions]
    return EncodedReading(
        torch.tensor([token for text in TEXTS for token in text]),
        torch.tensor([len(text) for text in TEXTS]),
        torch.tensor([token for question in QUESTIONS for token in question]),
        torch.tensor([len(question) for question in QUESTIONS]),
        torch.tensor([text for text, _ in pairs]),
        torch.tensor([question for _, question in pairs]),
        torch.tensor([pairs.index(action[:2]) for action in actions]),
        padded(first),
        weights(first),
        padded(second),
        weights(second),
    )


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def test_values_are_those_of_the_slow_version() -> None:
    net = network()
    slow = torch.tensor([slow_q(net, TEXTS[t], QUESTIONS[q], first, second) for t, q, first, second in ACTIONS])
    assert slow.std() > 0.05  # they do tell actions apart
    close(net(reading()).detach(), slow)
    with torch.no_grad():  # goes another way
        close(net(reading()), slow)


def test_what_lies_behind_the_masks_changes_nothing() -> None:
    layer = BidafAttention(6, 4)
    context, memory = torch.randn(2, 5, 6), torch.randn(2, 3, 6)
    masks = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool(), torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    plain = layer._attend(context, masks[0], memory, masks[1])
    close(plain[0, :3], attention(layer, context[0, :3], memory[0, :2]))
    context[0, 3:], memory[0, 2:] = 100.0, -100.0
    close(layer._attend(context, masks[0], memory, masks[1])[masks[0]], plain[masks[0]])


def test_groups_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    plain = net(reading())
    gradient = torch.autograd.grad(plain.sum(), list(net.parameters()))
    for slack in (1.0, 100.0):  # none but equal lengths together, and all together
        monkeypatch.setitem(SLACK, "cpu", slack)
        other = net(reading())
        close(other, plain)
        for a, b in zip(gradient, torch.autograd.grad(other.sum(), list(net.parameters())), strict=True):
            close(a, b)


def test_company_changes_nothing() -> None:
    net = network()
    together = net(reading())
    for i, action in enumerate(ACTIONS):
        close(net(reading(actions=[action])), together[i : i + 1])


def test_places_with_weight_0_change_nothing() -> None:
    net, asked = network(), reading()
    other = replace(asked, first=torch.where(asked.first_weights > 0, asked.first, 2))
    assert not torch.equal(other.first, asked.first)
    close(net(other), net(asked))


@pytest.mark.parametrize("row_lengths", [[3, 7, 1, 7, 4], [1, 1], [5]])
def test_the_gradient_is_the_one_that_torch_finds(row_lengths: list[int]) -> None:
    way = BidirectionalGru(5, 4).double()
    with torch.no_grad():
        for parameter in way.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    lengths = torch.tensor(row_lengths)
    inputs = torch.randn(sum(row_lengths), 5, dtype=torch.double, requires_grad=True)
    mine = way(inputs, lengths)
    expected = torch.cat([way.gru(row, way.start[:, 0])[0] for row in inputs.split(lengths.tolist())])
    close(mine, expected, 1e-12)
    with torch.no_grad():  # goes another way
        close(way(inputs, lengths), expected, 1e-12)
    weighting = torch.randn_like(expected)
    leaves = [inputs, *way.parameters()]
    for a, b in zip(
        torch.autograd.grad((mine * weighting).sum(), leaves),
        torch.autograd.grad((expected * weighting).sum(), leaves),
        strict=True,
    ):
        close(a, b, 1e-12)


# --- in C -------------------------------------------------------------------------------------------------------------


def everything(net: torch.nn.Module, values: Tensor, *more: Tensor) -> list[Tensor]:
    """The values, and the gradients of their weighted sum."""
    weighting = torch.linspace(-1, 1, values.numel(), dtype=values.dtype).view(values.shape)
    return [values.detach(), *torch.autograd.grad((values * weighting).sum(), [*more, *net.parameters()])]


def near(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Equal but for rounding, compared to the largest number of each."""
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() <= 5e-5 * max(0.5, float(b.abs().max()))


@pytest.fixture(params=[0, 1, 2])
def any_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BEST_KERNEL", request.param)


def shaken(module: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


ROWS = [[3, 7, 1, 7, 4], [1, 1], [5], [40] * 20 + [90] * 3]


@pytest.mark.usefixtures("any_kernel")
@pytest.mark.parametrize("row_lengths", ROWS)
@pytest.mark.parametrize("shared", [False, True])  # whether several tokens have the same input
def test_a_gru_in_c_is_the_plain_one(monkeypatch: pytest.MonkeyPatch, row_lengths: list[int], shared: bool) -> None:
    way, lengths, tokens = shaken(BidirectionalGru(20, 32)), torch.tensor(row_lengths), sum(row_lengths)
    inputs = torch.randn(3 if shared else tokens, 20, requires_grad=True)
    which = torch.arange(tokens) % 3 if shared else None
    fast = everything(way, way(inputs, lengths, which), inputs)
    with torch.no_grad():
        close(way(inputs, lengths, which), fast[0])
    monkeypatch.setattr(bidirectional_gru, "FAST", False)
    near(fast, everything(way, way(inputs, lengths, which), inputs))


@pytest.mark.usefixtures("any_kernel")
@pytest.mark.parametrize("row_lengths", [sorted(lengths) for lengths in ROWS])
@pytest.mark.parametrize("itself", [False, True])
def test_attention_in_c_is_the_plain_one(monkeypatch: pytest.MonkeyPatch, row_lengths: list[int], itself: bool) -> None:
    layer, count = shaken(BidafAttention(64, 32)), len(row_lengths)
    lengths = torch.tensor([*row_lengths, *(1 + i % 5 for i in range(count))])
    table = torch.randn(int(lengths.sum()), 64, requires_grad=True)
    # Twice the first row: a text may be asked several questions.
    context = TextRows.of(table, lengths)[torch.tensor([0, *range(count)])]
    memory = context if itself else TextRows.of(table, lengths)[torch.tensor([count, *range(count, 2 * count)])]
    fast = everything(layer, layer(context, memory), table)
    with torch.no_grad():
        close(layer(context, memory), fast[0])
    monkeypatch.setattr(attend, "FAST", False)
    near(fast, everything(layer, layer(context, memory), table))


def test_of_several_equal_words_each_is_found_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = shaken(BidafAttention(32, 32))
    table = torch.randn(1, 32).repeat(6, 1).requires_grad_()  # all similarities are the highest
    rows = TextRows.of(table, torch.tensor([4, 2]))
    fast = everything(layer, layer(rows[:1], rows[1:]), table)
    monkeypatch.setattr(attend, "FAST", False)
    near(fast, everything(layer, layer(rows[:1], rows[1:]), table))


def test_a_network_in_c_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(32)
    fast = everything(net, net(reading()))
    slow = torch.tensor([slow_q(net, TEXTS[t], QUESTIONS[q], first, second) for t, q, first, second in ACTIONS])
    close(fast[0], slow)
    for module in (attend, bidirectional_gru):
        monkeypatch.setattr(module, "FAST", False)
    near(fast, everything(net, net(reading())))


@pytest.fixture
def as_many_threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("as_many_threads_as_before")
def test_threads_change_nothing_in_c() -> None:
    way, layer = shaken(BidirectionalGru(20, 32)), shaken(BidafAttention(64, 32))
    lengths = torch.tensor([3, 20, 41, 50])
    inputs, table = torch.randn(114, 20, requires_grad=True), torch.randn(114, 64, requires_grad=True)
    rows = TextRows.of(table, lengths)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append((everything(way, way(inputs, lengths), inputs), everything(layer, layer(rows, rows), table)))
        with torch.no_grad():
            assert torch.equal(layer(rows, rows), found[-1][1][0])
    for states, attended in found[1:]:
        near(states, found[0][0])  # torch's own products differ
        assert all(map(torch.equal, attended, found[0][1]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same() -> None:
    net = network()
    expected = net(reading()).detach()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # as xtx.training.prepare.pick_device has it
        close(net.to("cuda")(reading()).detach().cpu(), expected, 1e-4)
