"""Makes a package callable, so that `xtx.sweep` is both a package and a function of the public API.

Python binds a submodule to its name in the parent package whenever it is imported, so the function cannot have that
name to itself. A module with `__call__` serves both.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


def make_callable(module: str, place: str, function: str) -> None:
    """Let a loaded module be called as the function of that name in the module `place`, which is loaded then."""

    def load() -> Any:
        return getattr(importlib.import_module(place), function)

    class CallableModule(ModuleType):
        """A module that stands for a function too."""

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return load()(*arguments, **options)

        @property
        def __signature__(self) -> inspect.Signature:
            return inspect.signature(load())

    sys.modules[module].__class__ = CallableModule
