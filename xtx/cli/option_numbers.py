"""Numbers as people type them on the command line: `800000`, `800_000`, `800k`, `1e4`, `1.5M`."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from xtx.core import UserError

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_NUMBER = re.compile(r"([+-]?(?:\d+(?:_\d+)*)(?:\.\d*)?(?:e[+-]?\d{1,3})?)([kmg]?)", re.IGNORECASE)
_LARGEST = Decimal(10) ** 30
"""Whole numbers up to here are made of what is typed; no option takes one that is near."""


def check_seed(seed: int | None) -> None:
    """Raise `UserError` for a seed that the emulator cannot have; None is none."""
    if seed is not None and not 0 <= seed < 2**31:
        raise UserError(f"--seed takes a number from 0 to {2**31 - 1}, not {seed}")


def parse_whole(text: str) -> int:
    """The whole number that `text` says. Raises `ValueError`."""
    value = _parse(text)
    if value is None or value != value.to_integral_value() or abs(value) > _LARGEST:
        return int(text)  # which raises, but for what Python takes and we do not, such as digits of other scripts
    return int(value)


def parse_real(text: str) -> float:
    """The number that `text` says. Raises `ValueError`."""
    value = _parse(text)
    return float(text if value is None else value)


def _parse(text: str) -> Decimal | None:
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    digits, unit = found.groups()
    return Decimal(digits.replace("_", "")) * _FACTORS[unit.lower()]


def make_registry() -> ConstructorRegistry:
    """What tyro needs to read such numbers."""
    registry = ConstructorRegistry()
    registry.primitive_rule(_make_rule(int, "N", parse_whole, int))
    registry.primitive_rule(_make_rule(float, "X", parse_real, int | float))
    return registry


def _make_rule(
    kind: type, metavar: str, parse: Callable[[str], Any], accepted: Any
) -> Callable[[PrimitiveTypeInfo], PrimitiveConstructorSpec[Any] | None]:
    """Return how tyro is to read options of a type; `accepted`: the types of their defaults."""
    spec = PrimitiveConstructorSpec[Any](
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: parse(words[0]),
        is_instance=lambda value: isinstance(value, accepted) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )
    return lambda info: spec if info.type is kind else None
