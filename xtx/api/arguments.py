"""Arguments from Python of a wrong kind: a `UserError` that names the argument, before anything begins."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any

from xtx.core import UserError

_LONGEST_SHOWN = 60
"""Characters of a wrong value that are shown: an array would fill the screen."""


def show_value(value: object) -> str:
    """A wrong value as it is shown, in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def check_whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """A whole number, also NumPy's, as Python's. `least` and `most` are its bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UserError(f"{name} takes a whole number, not {show_value(value)}") from None
    if isinstance(value, bool):
        raise UserError(f"{name} takes a whole number, not {value}")
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"from {least}" if most is None else f"from {least} to {most}"
        raise UserError(f"{name} takes a number {bounds}, not {show_value(number)}")
    return number


def check_optional_whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int | None:
    """As `check_whole`; None stays None."""
    return None if value is None else check_whole(name, value, least, most)


def check_seconds(name: str, value: Any) -> float:
    """A number from 0, also NumPy's, as Python's."""
    seconds = check_number(name, value)
    if not seconds >= 0:
        raise UserError(f"{name} takes a number from 0, not {seconds:g}")
    return seconds


def check_number(name: str, value: Any) -> float:
    """A number, also NumPy's, as Python's."""
    if isinstance(value, bool | str | bytes):
        raise UserError(f"{name} takes a number, not {show_value(value)}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name} takes a number, not {show_value(value)}") from None


def check_flag(name: str, value: Any) -> bool:
    """True or False, also NumPy's, as Python's."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, bool):
        raise UserError(f"{name} is True or False, not {show_value(value)}")
    return value


def check_optional_flag(name: str, value: Any) -> bool | None:
    """As `check_flag`; None stays None."""
    return None if value is None else check_flag(name, value)


def check_function(name: str, value: Any) -> None:
    """Raise `UserError` for what is neither a function nor None."""
    if value is not None and not callable(value):
        raise UserError(f"{name} takes a function, not {show_value(value)}")


def check_text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise UserError(f"{name} takes a string, not {show_value(value)}")
    return str(value)


def check_path(name: str, value: Any) -> str:
    """A path, or a name, as a string."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise UserError(f"{name} takes a string or a path, not {show_value(value)}")
    if "\0" in path:
        raise UserError(f"{name} has a zero byte in it: {show_value(path)}")
    return str(path)


def check_list(name: str, value: Any) -> list[Any]:
    """Several values: a list, a tuple, an array, ...; no string."""
    if isinstance(value, str | bytes | os.PathLike) or not isinstance(value, Iterable):
        raise UserError(f"{name} takes a list, as [{show_value(value)}], not {show_value(value)}")
    return list(value)


def check_atlas(value: Any) -> bool | str:
    """Where found actions are kept: True, False, or a folder."""
    return value if isinstance(value, bool) else check_path("atlas", value)
