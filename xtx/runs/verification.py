"""Compares a run's files with its checkpoint: a run that was changed from outside does not go on unnoticed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xtx.config.config_file import ConfigError, list_differences
from xtx.config.settings import RunConfig
from xtx.core import State, UserError
from xtx.runs.line_files import EXACT_FILES, LineChecksum, describe_damage


@dataclass(frozen=True)
class RunVerification:
    """The newest readable checkpoint, and how it differs from the other files of the run."""

    path: Path
    saved: State
    checksums: dict[str, LineChecksum]
    """For each file of `EXACT_FILES`, its checksum up to the length that the checkpoint records."""
    altered: list[str]
    """The names of those files that differ from the checkpoint."""
    changes: list[str]
    """All differences, as text, each with the name of its file."""


def compare_files(folder: Path, config: RunConfig, path: Path, saved: State) -> RunVerification:
    """Compare a checkpoint, its path and content, with the config and the .jsonl files of its run."""
    sizes, digests = _read_file_descriptions(path, saved)
    changes = [f"config.json: {change}" for change in find_config_changes(path, saved, config)]
    checksums, altered = {}, []
    for name in EXACT_FILES:
        checksum, size = LineChecksum(), sizes.get(name, 0)
        lines = folder / f"{name}.jsonl"
        checksum.add_file(lines, size)
        difference = ""
        if checksum.size < size:
            short = f"is shorter than it was: {checksum.size:,} of {size:,} bytes"
            difference = short if lines.exists() else "is missing"
        elif digests is not None and checksum.compute_digest() != digests.get(name):
            difference = describe_damage(name, lines, size)
        if difference:
            altered.append(name)
            changes.append(f"{name}.jsonl {difference}")
        checksums[name] = checksum
    return RunVerification(path, saved, checksums, altered, changes)


def find_config_changes(path: Path, saved: State, config: RunConfig) -> list[str]:
    """Return the differences between a config and that of the checkpoint at `path`, as text; none if an earlier version
    wrote the checkpoint. Raises `UserError` if the checkpoint's config cannot be read."""
    if saved.get("config") is None:
        return []
    try:
        return list_differences(str(saved["config"]), config)
    except ConfigError as error:
        raise UserError(f"the config in {path} {error}") from None


def _read_file_descriptions(path: Path, saved: State) -> tuple[dict[str, int], dict[str, str] | None]:
    """Return lengths and checksums of the .jsonl files, by name, from a checkpoint; earlier versions have no checksums,
    which are None then. Raises `UserError` if it is not the checkpoint of a run."""
    sizes, digests = saved.get("sizes"), saved.get("digests")
    if (
        isinstance(saved.get("state"), dict)
        and isinstance(sizes, dict)
        and all(isinstance(size, int) and size >= 0 for size in sizes.values())
        and isinstance(digests, dict | None)
    ):
        return sizes, digests
    raise UserError(f"{path} is not the checkpoint of a run; move it away, or begin the run in another folder")
