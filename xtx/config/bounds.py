"""Which numbers the agents' settings may be: said before anything begins, and not by what breaks later."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from xtx.config import settings as config
from xtx.core import UserError


@dataclass(frozen=True)
class Bounds:
    """From `least` to `most`; above `least`, if that itself does not count."""

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    endless: bool = False
    """Whether infinity makes sense."""

    def hold(self, value: float) -> bool:
        """Whether the number lies between them. What is no number does not."""
        finite = math.isfinite(value) or (self.endless and value == math.inf)
        return finite and self.least <= value <= self.most and not (self.above and value == self.least)

    def __str__(self) -> str:
        if math.isinf(self.least):
            return "a number"
        low = f"a number {'above' if self.above else 'from'} {self.least:g}"
        return low if math.isinf(self.most) else f"{low} to {self.most:g}"


def check_least(options: object, **least: float) -> None:
    """Raise `UserError` if one of these options of the command line is given and below its least value."""
    for name, low in least.items():
        value = getattr(options, name)
        if value is not None and not value >= low:
            raise UserError(f"--{name.replace('_', '-')} takes a number from {low}, not {value}")


_ANY, _SOME, _NONE_OR_MORE = Bounds(), Bounds(1), Bounds(0)
_SHARE, _POSITIVE = Bounds(0, 1), Bounds(0, above=True)
_CLIP = Bounds(0, above=True, endless=True)

_BOUNDS: dict[type, dict[str, Bounds]] = {
    config.TextSettings: {"vocabulary": Bounds(8), "longest": Bounds(3)},
    config.QSettings: {
        "hidden": _SOME,
        "gamma": _SHARE,
        "learning_rate": _NONE_OR_MORE,
        "clip": _CLIP,
        "batch_size": _SOME,
        "target_every": _SOME,
        "temperature": _POSITIVE,
        "capacity": _SOME,
        "priority_share": _SHARE,
    },
    config.InverseSettings: dict.fromkeys(("alpha1", "alpha2", "alpha3"), _NONE_OR_MORE),
    config.ImitationSettings: {
        **dict.fromkeys(("layers", "heads", "width", "batch_size", "passes"), _SOME),
        "dropout": Bounds(0, 0.99),
        "learning_rate": _NONE_OR_MORE,
        "enough": _NONE_OR_MORE,
        **dict.fromkeys(("known", "anneal"), _SHARE),
        "clip": _CLIP,
        "temperature": _NONE_OR_MORE,
    },
    config.TrajectorySettings: {"k": _SOME, "beta1": _ANY, "beta2": _ANY, "reservoir": _SOME},
    config.DrrnSettings: {"episode_limit": _SOME},
    config.InvDySettings: {"episode_limit": _SOME},
    config.RcDqnSettings: {
        **dict.fromkeys(("history_window", "hidden", "embedding", "longest_question", "most_actions"), _SOME),
        **dict.fromkeys(("batch_size", "target_every", "capacity", "episode_limit"), _SOME),
        **dict.fromkeys(("gamma", "priority_share", "usual_decay", "epsilon_start", "epsilon_end"), _SHARE),
        "learning_rate": _NONE_OR_MORE,
        "clip": _CLIP,
        "epsilon_decay": _POSITIVE,
    },
    config.XtxSettings: {
        "mix": _SHARE,
        "explore_steps": _SOME,
        "first_training": _NONE_OR_MORE,
        "training_every": _SOME,
        "training_every_episodes": _NONE_OR_MORE,
    },
}


def check_settings(settings: Any, group: str = "") -> None:
    """Raises `ValueError` with the first number that is out of bounds, by the name of its option."""
    bounds = _BOUNDS.get(type(settings), {})
    for one in fields(settings) if is_dataclass(settings) else ():
        value, name = getattr(settings, one.name), f"{group}{one.name.replace('_', '-')}"
        if is_dataclass(value):
            check_settings(value, f"{name}.")
        elif one.name in bounds and not bounds[one.name].hold(value):
            raise ValueError(f"--{name} takes {bounds[one.name]}, not {value}")
