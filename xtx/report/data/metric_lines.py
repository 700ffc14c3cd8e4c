"""The numbers of metrics.jsonl that are plotted, thinned as summaries keep them."""

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


MAX_POINTS = 50
"""Of a number over a run: enough for a plot, and a summary stays small."""


def read_numbers(metrics: Sequence[Mapping[str, Any]], reached: int) -> dict[str, tuple[Floats, Floats]]:
    """The plotted numbers of the lines of metrics.jsonl of a run that has come so far: at these steps, the mean of the
    lines since the step before, to four digits. What is no finite number is left out."""
    ends = np.unique(np.linspace(0, max(1, reached), MAX_POINTS + 1).astype(np.int64))[1:]
    found = {}
    for name in LABELS:
        pairs = [(line["step"], line[name]) for line in metrics if _is_number(line.get(name))]
        if pairs:
            steps, values = np.array(pairs, np.float64).T
            places = np.minimum(np.searchsorted(ends, steps), len(ends) - 1)
            known = np.unique(places)
            means = [float(f"{values[places == place].mean():.4g}") for place in known]
            found[name] = ends[known].astype(np.float64), np.array(means)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30  # no NaN either
