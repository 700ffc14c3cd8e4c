"""The numbers of metrics.jsonl that are plotted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xtx.report.data.statistics import Floats

LABELS = {
    "loss_td": "TD loss",
    "q": "mean Q-value",
    "intrinsic_reward": "intrinsic reward",
    "loss_inverse": "inverse-dynamics loss",
    "loss_decoding": "decoding loss",
    "imitation_loss_last": "imitation loss, last pass",
    "imitation_accuracy": "imitation accuracy",
    "gradient_norm": "gradient norm",
}
"""Numbers of metrics.jsonl that are plotted, with what stands beside their axis."""


def read_numbers(metrics: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Floats, Floats]]:
    """The plotted numbers of the lines of metrics.jsonl; what is no finite number is left out."""
    found = {}
    for name in LABELS:
        pairs = [(line["step"], line[name]) for line in metrics if _is_number(line.get(name))]
        if pairs:
            steps, values = np.array(pairs, np.float64).T
            found[name] = steps, values
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30  # no NaN either
