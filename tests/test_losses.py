"""The losses of the Q-networks, against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from xtx.losses import mean_over_tokens, mean_per_action, td_loss

FLOATS = st.floats(-20, 20)


@pytest.mark.parametrize(
    ("q", "reward", "following", "terminal", "loss"),
    [
        (1.0, 1.0, 2.0, False, 1.8 - 0.5),  # target 1 + 0.9 * 2; beyond 1 the loss is linear
        (1.0, 1.0, 2.0, True, 0.0),  # nothing follows
        (0.5, 1.0, 0.0, False, 0.5 * 0.25),  # near the target it is quadratic
        (0.0, -3.0, 10.0, False, 6.0 - 0.5),
    ],
)
def test_td_loss_by_hand(q: float, reward: float, following: float, terminal: bool, loss: float) -> None:
    given = [torch.tensor([number]) for number in (q, reward, following)]
    assert td_loss(*given, torch.tensor([terminal]), 0.9).item() == pytest.approx(loss, abs=1e-6)


@given(st.lists(st.tuples(FLOATS, FLOATS, FLOATS, st.booleans()), min_size=1, max_size=8), st.floats(0, 1))
def test_td_loss_is_the_mean_of_the_rows(rows: list[tuple[float, float, float, bool]], gamma: float) -> None:
    slow = []
    for q, reward, following, terminal in rows:
        error = abs(q - (reward + (0 if terminal else gamma * following)))
        slow.append(error**2 / 2 if error < 1 else error - 0.5)
    columns = [torch.tensor(column, dtype=torch.float64) for column in list(zip(*rows, strict=True))[:3]]
    terminal = torch.tensor([row[3] for row in rows])
    assert td_loss(*columns, terminal, gamma).item() == pytest.approx(sum(slow) / len(slow), rel=1e-9, abs=1e-12)


def test_the_target_is_not_learned() -> None:
    q = torch.tensor([0.0, 0.0], requires_grad=True)
    following = torch.tensor([3.0, 3.0], requires_grad=True)
    td_loss(q, torch.zeros(2), following, torch.tensor([False, True]), 0.9).backward()
    assert following.grad is None
    assert q.grad is not None
    assert q.grad.tolist() == [-0.5, 0.0]  # the terminal row is at its target already


def test_means_over_tokens_and_per_action_differ() -> None:
    """An action of one token with surprise 6, one of three with surprise 2 each."""
    surprise = torch.tensor([[6.0, 0.0, 0.0], [2.0, 2.0, 2.0]])
    counts = torch.tensor([[True, False, False], [True, True, True]])
    assert mean_over_tokens(surprise, counts).item() == 3.0
    assert mean_per_action(surprise, counts).tolist() == [6.0, 2.0]


def test_gradients_in_float64() -> None:
    torch.manual_seed(0)
    q = torch.randn(6, dtype=torch.float64, requires_grad=True)
    rewards, following = torch.randn(6, dtype=torch.float64), 3 * torch.randn(6, dtype=torch.float64)
    terminal = torch.tensor([True, False] * 3)
    assert torch.autograd.gradcheck(lambda values: td_loss(values, rewards, following, terminal, 0.9), q)
    surprise = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    counts = torch.arange(3) < torch.tensor([[1], [3], [2], [3]])
    assert torch.autograd.gradcheck(lambda values: mean_over_tokens(values * counts, counts), surprise)
    assert torch.autograd.gradcheck(lambda values: mean_per_action(values * counts, counts), surprise)
