"""The kernel of the text encoders against torch.nn.GRU."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from xtx.kernels.cpu import gru

EncoderRows = list[list[int]]

VOCABULARY = 40


pytestmark = pytest.mark.usefixtures("one_thread")


def plan(rows: EncoderRows) -> gru.PrefixTree:
    offsets = np.cumsum([0, *map(len, rows)])
    return gru.PrefixTree(np.array([word for row in rows for word in row], np.int32), offsets)


def weights(size: int, width: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """embedding, w_ih, w_hh, b_ih, b_hh, of the sizes that networks begin with."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(VOCABULARY, width), (3 * size, width), (3 * size, size), (3 * size,), (3 * size,)]
    scales = [1.0, *[size**-0.5] * 4]
    return [
        (scale * torch.randn(shape, generator=generator, dtype=dtype)).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def reference(rows: EncoderRows, given: list[Tensor]) -> Tensor:
    """The same by torch.nn.GRU, with rows packed, in float64: what both of them round."""
    embedding, *rest = [weight.double() for weight in given]
    net = torch.nn.GRU(embedding.shape[1], rest[1].shape[1], batch_first=True, dtype=torch.float64)
    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row)
    packed = pack_padded_sequence(
        embedding[tokens], torch.tensor([len(row) for row in rows]), batch_first=True, enforce_sorted=False
    )
    _, last = torch.func.functional_call(net, dict(zip(names, rest, strict=True)), (packed,))
    return last[0]


def random_rows(seed: int, count: int, longest: int = 40) -> EncoderRows:
    """Rows of which many begin alike and some are the same."""
    choose = np.random.default_rng(seed)
    rows: EncoderRows = []
    while len(rows) < count:
        old = rows[choose.integers(len(rows))] if rows and choose.random() < 0.6 else []
        kept = old[: choose.integers(len(old) + 1)]
        rows.append(kept + choose.integers(0, VOCABULARY, choose.integers(1, longest)).tolist())
        if choose.random() < 0.2:
            rows.append(list(rows[choose.integers(len(rows))]))
    return rows


def check(rows: EncoderRows, size: int, width: int, seed: int = 0) -> None:
    given = weights(size, width, seed)
    ours, theirs = gru.compute_last_states(plan(rows), *given), reference(rows, given)
    with torch.no_grad():
        torch.testing.assert_close(gru.compute_last_states(plan(rows), *given), ours, rtol=0, atol=0)
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-5)
    direction = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(seed))
    for mine, other in zip(
        torch.autograd.grad(ours, given, direction),
        torch.autograd.grad(theirs, given, direction.double()),
        strict=True,
    ):
        # a gate near its end leaves few digits in 1 - z, in PyTorch's float32 as in ours
        assert (mine - other).abs().max() <= 1e-4 * other.abs().max() + 1e-6


@given(
    rows=st.lists(st.lists(st.integers(0, 3) | st.integers(0, VOCABULARY - 1), min_size=1, max_size=30), min_size=1),
    size=st.sampled_from([1, 16, 20, 33, 128]),
    width=st.sampled_from([1, 16, 27]),
)
@settings(deadline=None, max_examples=50)
def test_equals_pytorch(rows: EncoderRows, size: int, width: int) -> None:
    check(rows, size, width)


@pytest.mark.parametrize("kernel", [0, 1, 2])
@pytest.mark.parametrize("size", [16, 20, 96, 128])
def test_every_kernel_equals_pytorch_on_many_rows(monkeypatch: pytest.MonkeyPatch, kernel: int, size: int) -> None:
    monkeypatch.setattr(gru, "BEST_KERNEL", kernel)
    check(random_rows(size, 150), size, 24)


@pytest.mark.parametrize(
    ("rows", "nodes"),
    [
        ([[5]], 1),
        ([[5], [5], [5]], 1),
        ([[5], [6], [7], [5]], 3),
        ([[1, 2, 3], [1, 2, 3], [1, 2], [1]], 3),
        ([[1, 2, 3], [1, 2, 4], [2, 2, 3]], 7),
        ([[0], [0, 0], [0, 0, 0]], 3),
        ([list(range(30)), [3, 1]], 32),
    ],
)
def test_what_rows_share_is_worked_out_once(rows: EncoderRows, nodes: int) -> None:
    assert plan(rows).nodes == nodes
    check(rows, 32, 8)


def test_cuts_double_few_nodes() -> None:
    rows = random_rows(3, 400)
    prefixes = {tuple(row[: i + 1]) for row in rows for i in range(len(row))}
    tree = plan(rows)
    assert tree._struct.chunks > 2
    assert len(prefixes) <= tree.nodes <= 1.02 * len(prefixes)


def test_rows_that_all_begin_alike_are_not_cut_in_vain() -> None:
    start = [1] * 2000
    tree = plan([[*start, 2], [*start, 3]])
    assert tree.nodes == 2002


def test_a_window_of_the_flat_array_and_its_order_do_not_matter() -> None:
    given = weights(32, 8)
    flat = np.array([39, 1, 2, 3, 1, 2, 39], np.int32)
    some = gru.compute_last_states(gru.PrefixTree(flat, np.array([1, 4, 6])), *given)
    other = gru.compute_last_states(plan([[1, 2], [1, 2, 3]]), *given)
    assert torch.equal(some, other.flip(0))


def run(tree: gru.PrefixTree, given: list[Tensor], threads: int) -> list[Tensor]:
    last = gru.compute_last_states(tree, *given, threads=threads)
    return [last, *torch.autograd.grad(last.sin().sum(), given)]


def test_the_same_bits_with_any_number_of_threads_and_every_time() -> None:
    tree, given = plan(random_rows(4, 300)), weights(128, 128)
    first = run(tree, given, 1)
    for threads in [1, 2, 2, 3, 100]:
        for a, b in zip(first, run(tree, given, threads), strict=True):
            assert torch.equal(a, b)


def test_python_threads_may_share_a_plan() -> None:
    tree, given = plan(random_rows(5, 200)), weights(64, 16)
    first, results = run(tree, given, 1), dict[int, list[Tensor]]()
    threads = [Thread(target=lambda i=i: results.update({i: run(tree, given, 2)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for result in results.values() for a, b in zip(first, result, strict=True))
    assert len(results) == len(threads)


def test_backwards_twice_gives_the_same() -> None:
    given = weights(32, 8)
    last = gru.compute_last_states(plan(random_rows(6, 20)), *given)
    first = torch.autograd.grad(last.sum(), given, retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(last.sum(), given), strict=True))


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    embedding, *rest = weights(32, 8)
    last = gru.compute_last_states(plan([[1, 2], [3]]), embedding, *(weight.detach() for weight in rest))
    (grad,) = torch.autograd.grad(last.sum(), [embedding])
    assert set(grad.abs().sum(1).nonzero().flatten().tolist()) == {1, 2, 3}


def test_weights_that_are_views_will_do() -> None:
    given = weights(32, 8)
    tree = plan(random_rows(7, 20))
    turned = [weight.detach().t().contiguous().t() for weight in given]
    assert torch.equal(gru.compute_last_states(tree, *turned), gru.compute_last_states(tree, *given))


def test_gates_at_their_ends_and_not_a_number() -> None:
    given = [weight.detach() * 300 for weight in weights(32, 8)]
    last = gru.compute_last_states(plan([[1, 2, 3]]), *given)
    torch.testing.assert_close(last.double(), reference([[1, 2, 3]], given), rtol=0, atol=1e-5)
    given[0][2] = float("nan")
    last = gru.compute_last_states(plan([[1, 2, 3], [3, 1]]), *given)
    assert last.isnan().all(1).tolist() == [True, False]


def test_gradients_of_the_plain_way() -> None:
    tree, given = plan(random_rows(8, 6, longest=5)), weights(3, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *them: gru.compute_last_states(tree, *them), given)


def test_the_plain_way_equals_pytorch() -> None:
    rows, given = random_rows(9, 60), weights(20, 6, dtype=torch.float64)
    torch.testing.assert_close(gru.compute_last_states(plan(rows), *given), reference(rows, given), rtol=0, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu() -> None:
    rows, given = random_rows(9, 60), weights(20, 6)
    last = gru.compute_last_states(plan(rows), *(weight.cuda() for weight in given))
    torch.testing.assert_close(last.cpu(), gru.compute_last_states(plan(rows), *given), rtol=0, atol=1e-5)


def test_a_plan_without_rows_or_words_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        gru.PrefixTree(np.empty(0, np.int32), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="row 1 has no tokens"):
        gru.PrefixTree(np.array([1, 2], np.int32), np.array([0, 1, 1, 2]))
    with pytest.raises(ValueError, match="outside of 2 tokens"):
        gru.PrefixTree(np.array([1, 2], np.int32), np.array([0, 3]))
    with pytest.raises(ValueError, match="outside of 2 tokens"):
        gru.PrefixTree(np.array([1, 2], np.int32), np.array([-1, 2]))


def test_words_outside_of_the_vocabulary_are_refused() -> None:
    with pytest.raises(IndexError, match="word -1"):
        plan([[1, -1]])
    with pytest.raises(IndexError, match="word 40 is outside of a vocabulary of 40"):
        gru.compute_last_states(plan([[1, 40]]), *weights(32, 8))


def test_weights_of_wrong_shapes_are_refused() -> None:
    embedding, w_ih, w_hh, b_ih, b_hh = weights(32, 8)
    with pytest.raises(ValueError, match="not those of a GRU"):
        gru.compute_last_states(plan([[1]]), embedding, w_ih, w_hh[:32], b_ih, b_hh)
    with pytest.raises(ValueError, match="not those of a GRU of size 32"):
        gru.compute_last_states(plan([[1]]), embedding, w_ih, w_hh, b_ih, b_hh[:5])
