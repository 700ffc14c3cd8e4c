"""The versions that a run is made with: Python, packages, machine, commit."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
import time
from pathlib import Path

from xtx.config.settings import RunConfig
from xtx.processes.cpu_count import list_usable_processors
from xtx.search_versions import search_versions

_PACKAGES = ("xtx", "torch", "numpy", "jericho", "lmdb", "safetensors", "msgspec")


def collect_versions() -> dict[str, object]:
    """Return the versions that the program runs with: Python, packages, machine, commit; and the time."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "packages": packages,
        "machine": platform.platform(),
        "processors": len(list_usable_processors()),
        "git": describe_commit(),
        "searching": search_versions(),
    }


def describe_search_changes(before: object, config: RunConfig) -> str:
    """Return in what the versions of the search for valid actions differ from those of an earlier start, an entry of
    versions.json; empty if they do not, if they are not recorded, or if the run's game has no search."""
    recorded = before.get("searching") if isinstance(before, dict) else None
    if not isinstance(recorded, dict) or config.game.startswith("toy:"):
        return ""
    return ", ".join(
        f"{name} {was[:20]} (now {present})"
        for name, present in list_used_versions(config).items()
        if isinstance(was := recorded.get(name), str) and was != present
    )


def list_used_versions(config: RunConfig) -> dict[str, str]:
    """Return the present versions of what a run's search consists of, by name."""
    return {name: at for name, at in search_versions().items() if name != "whole" or config.actions == "whole"}


def describe_commit() -> str:
    """Return the commit of the program's own source, with a star if files were changed; empty outside a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "-C", here, "describe", "--always", "--dirty=*", "--abbrev=12"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit.stdout.strip()
