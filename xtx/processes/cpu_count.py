"""The processors that this process may use; macOS can only say how many there are."""

from __future__ import annotations

import os
import sys

if sys.platform == "linux":

    def list_usable_processors() -> list[int]:
        """The numbers of the processors that this process may run on."""
        return sorted(os.sched_getaffinity(0))

else:

    def list_usable_processors() -> list[int]:
        """The numbers of the processors that this process may run on."""
        return list(range(os.cpu_count() or 1))
