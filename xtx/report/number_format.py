"""Numbers as text: signs, digits, units."""

from __future__ import annotations

import math

DASH = "–"  # noqa: RUF001


def format_number(value: float | None, digits: int = 1) -> str:
    """A number with a real minus sign; a dash for what there is not."""
    if value is None or math.isnan(value):
        return DASH
    text = f"{value:,.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}") if float(text.replace(",", "")) else text.lstrip("-")


def format_signed(value: float, digits: int = 1) -> str:
    """The same, with a plus before what is above zero."""
    text = format_number(value, digits)
    return f"+{text}" if value > 0 and text.strip("0.,") else text


def format_spread(mean: float, std: float | None, digits: int = 1) -> str:
    """Mean ± standard deviation; without the latter where there is one seed."""
    return (
        format_number(mean, digits)
        if std is None or math.isnan(std)
        else f"{format_number(mean, digits)} ± {format_number(std, digits)}"
    )


def format_percent(share: float | None, digits: int = 0) -> str:
    """A share of 1 as per cent."""
    return DASH if share is None or math.isnan(share) else f"{format_number(100 * share, digits)} %"


def format_count(value: float | None) -> str:
    """A whole number."""
    return format_number(value, 0)


def format_short(value: float) -> str:
    """A number on an axis: 800k, 1.5M, 0.25."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}".replace("-", "\N{MINUS SIGN}")
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def format_duration(seconds: float | None) -> str:
    """Seconds in the unit that fits."""
    if seconds is None or math.isnan(seconds):
        return DASH
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_amount(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
