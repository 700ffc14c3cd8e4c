"""The processors that this process may use; macOS can only say how many there are."""

from __future__ import annotations

import os


def list_usable_processors() -> list[int]:
    """The numbers of the processors that this process may run on."""
    get_affinity = getattr(os, "sched_getaffinity", None)
    return sorted(get_affinity(0)) if get_affinity is not None else list(range(os.cpu_count() or 1))
