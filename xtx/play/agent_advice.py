"""What an agent would do, in words."""

from __future__ import annotations

from xtx.core import Insight

TOP = 5
"""Actions that are shown."""


def list_likeliest(insight: Insight, count: int = TOP) -> list[tuple[str, str]]:
    """The likeliest actions, each with its probability in words."""
    ranked = sorted(insight.probabilities.items(), key=lambda pair: -pair[1])
    return [(action, format_probability(probability)) for action, probability in ranked[:count]]


def format_probability(probability: float) -> str:
    """A probability in words."""
    return "under 1 %" if 0 < probability < 0.005 else f"{100 * probability:.0f} %"


def describe_advice(insight: Insight) -> str:
    """Phase and likeliest actions, in one line."""
    listed = ", ".join(f"{action} {share}" for action, share in list_likeliest(insight))
    return f"{insight.phase}: {listed}" if insight.phase and listed else listed
