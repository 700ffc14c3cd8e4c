"""Numbers as people type them on the command line: `800000`, `800_000`, `800k`, `1e4`, `1.5M`."""

from __future__ import annotations

import re
from decimal import Decimal

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_NUMBER = re.compile(r"([+-]?(?:\d+(?:_\d+)*)(?:\.\d*)?(?:e[+-]?\d{1,3})?)([kmg]?)", re.IGNORECASE)
_LARGEST = Decimal(10) ** 30
"""Whole numbers up to here are made of what is typed; no option takes one that is near."""


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

    @registry.primitive_rule
    def whole(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="N",
            instance_from_str=lambda words: parse_whole(words[0]),
            is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
            str_from_instance=lambda value: [str(value)],
        )

    @registry.primitive_rule
    def real(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float] | None:
        if info.type is not float:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="X",
            instance_from_str=lambda words: parse_real(words[0]),
            is_instance=lambda value: isinstance(value, int | float) and not isinstance(value, bool),
            str_from_instance=lambda value: [str(value)],
        )

    return registry
