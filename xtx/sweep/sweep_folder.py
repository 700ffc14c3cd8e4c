"""The folder of a sweep: locks it, stores the settings that its runs share, and reads the state of each run.

sweep.json   threads and device, on which the last bits of results depend, and a unique id of the sweep
sweep.lock   locked by the process of the sweep

The runs are in folders game/agent/seed-0. A sweep adds two files to those that `xtx.runs.run_folder` describes:

log.txt      the output of the run's processes
finished     the number of steps, once the run is finished; a run stays finished if its checkpoints are deleted
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from xtx.agents.registry import find_agent
from xtx.config.config_file import ConfigError, encode_config
from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.files.atomic_writes import replace_text
from xtx.files.bounded_reads import BadFileError, read_bounded, read_json
from xtx.files.regular_files import open_readable, open_regular
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.runs.run_config import read_config
from xtx.sweep.run_plan import PlannedRun
from xtx.training.prepare import convert_settings

LOG = "log.txt"
"""Name of the log of a run's processes."""
MARK = "finished"
"""Name of the file that says that a run is finished."""


class SharedSettings(msgspec.Struct, frozen=True):
    """The settings that all runs of a sweep share."""

    id: str
    threads: int
    device: str


@contextlib.contextmanager
def open_sweep(out: Path) -> Iterator[None]:
    """Lock the folder of a sweep within `with`. Raises `UserError` if another sweep has it, or it cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = open_regular(out / "sweep.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}); give another --out") from None
    try:
        if not _try_lock(lock):
            raise UserError(f"another sweep works on {out}; wait for it, or end it first")
        yield
    finally:
        os.close(lock)


def read_shared_settings(out: Path, threads: int | None, device: str | None) -> SharedSettings | None:
    """Return the settings that the runs in the folder share; None if there are none yet.

    Raises `UserError` if others are asked for now: new runs would not be comparable with the old ones.
    """
    path = out / "sweep.json"
    try:
        known: SharedSettings = read_json(path, SharedSettings)
    except FileNotFoundError:
        return None
    except (OSError, BadFileError) as error:
        raise UserError(f"{path} cannot be read ({error}); give another --out") from None
    for name, wanted in (("threads", threads), ("device", device)):
        had = getattr(known, name)
        if wanted is not None and wanted != had:
            raise UserError(f"the runs in {out} have --{name} {had}; give that, or another --out")
    return known


def write_shared_settings(out: Path, threads: int, device: str) -> SharedSettings:
    """Write the settings that the runs of a new sweep share."""
    common = SharedSettings(secrets.token_hex(8), threads, device)
    replace_text(out / "sweep.json", json.dumps(msgspec.to_builtins(common), indent=2) + "\n")
    return common


# --- runs -------------------------------------------------------------------------------------------------------


def adopt_configs(out: Path, runs: list[PlannedRun]) -> list[PlannedRun]:
    """Return the runs with the configs that those in the folder have, which may be of an earlier version. Raises
    `UserError` if one of the runs exists with other settings."""
    return [replace(run, config=_adopt_config(out / run.folder, run)) for run in runs]


def _adopt_config(folder: Path, run: PlannedRun) -> RunConfig:
    if not (folder / "config.json").exists():
        return run.config
    there = read_config(folder)
    found = _complete_settings(folder, there) if there.agent == run.config.agent else there
    if found not in (run.config, *run.earlier):
        raise UserError(f"{folder} is another run ({_describe_difference(found, run.config)}); give another --out")
    return there


def _complete_settings(folder: Path, config: RunConfig) -> RunConfig:
    """Return a config with the settings that its run has today: those that an earlier version did not have are filled
    in with their defaults. Raises `UserError` for settings that no longer exist."""
    try:
        return replace(config, settings=asdict(convert_settings(config, find_agent(config.agent))))
    except ConfigError as error:
        raise UserError(f"{folder / 'config.json'} {error}") from None
    except ValueError:  # no settings of this agent (`ValidationError`), which the run itself reports when it starts
        return config


def _describe_difference(there: RunConfig, wanted: RunConfig) -> str:
    """Return the first difference between two runs, as text."""
    old, new = msgspec.to_builtins(there), msgspec.to_builtins(wanted)
    name = next((name for name in new if old[name] != new[name]), "")
    return f"other settings of {there.agent}" if name == "settings" else f"its {name}: {old[name]}, not {new[name]}"


def create_run_folder(folder: Path, config: RunConfig) -> None:
    """Create a run's folder with its config, so that `xtx resume` can start it. Safe to interrupt at any point."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    if not (folder / "config.json").exists():
        replace_text(folder / "config.json", encode_config(config))


def read_saved_steps(folder: Path) -> int:
    """Return the steps of the newest checkpoint; 0 if there is none."""
    return max((int(path.name) for path in list_checkpoints(folder)), default=0)


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Return whether the run has all its steps."""
    with contextlib.suppress(OSError, ValueError):
        if int(read_bounded(folder / MARK, 100)) >= config.steps:
            return True
    return read_saved_steps(folder) >= config.steps


def mark_finished(folder: Path, config: RunConfig) -> None:
    """Record that the run is finished."""
    if not (folder / MARK).exists():
        replace_text(folder / MARK, f"{config.steps}\n")


def is_held(folder: Path) -> bool:
    """Return whether a process works on the run: one that was started by hand, or one of a killed sweep that is still
    saving."""
    try:
        lock = open_regular(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's run: only its owner may open the lock
        return _is_listed_as_locked(folder / "lock")
    try:
        return not _try_lock(lock)
    finally:
        os.close(lock)


def _is_listed_as_locked(path: Path) -> bool:
    """Whether the kernel lists a lock on a file; False where it has no such list."""
    try:
        status, listed = path.stat(), Path("/proc/locks").read_text()
    except OSError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return any(f"{device}:{status.st_ino}" in line.split() for line in listed.splitlines() if "FLOCK" in line)


def read_last_lines(folder: Path, count: int = 10) -> list[str]:
    """Return the last lines of the run's log."""
    try:
        with open_readable(folder / LOG) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 20_000))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
