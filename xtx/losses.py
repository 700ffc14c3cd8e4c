"""Losses of the Q-networks, as functions of network outputs."""

from __future__ import annotations

import torch
from torch import Tensor


def td_loss(q: Tensor, rewards: Tensor, next_values: Tensor, terminal: Tensor, gamma: float) -> Tensor:
    """Return the mean Huber loss of Q(o, a) against r + gamma * max Q_target(o', a'), or against r at the end of an
    episode. All tensors [n]."""
    targets = rewards + gamma * next_values * (1 - terminal.to(rewards.dtype))
    return torch.nn.functional.smooth_l1_loss(q, targets.detach())


def mean_over_tokens(surprise: Tensor, counts: Tensor) -> Tensor:
    """Return the mean over all tokens of the batch: L_inv and L_dec in learning. [n, L], [n, L] -> scalar"""
    return surprise.sum() / counts.sum()


def mean_per_action(surprise: Tensor, counts: Tensor) -> Tensor:
    """Return the mean over each action's own tokens: L_inv as intrinsic reward. [n, L], [n, L] -> [n]"""
    return surprise.sum(dim=1) / counts.sum(dim=1)
