"""Carries out one run on a machine of a cluster, and yields messages about it. It does not depend on Ray.

If the machine has access to the sweep's folder, the run is carried out there. Otherwise it is carried out in the
machine's own cache folder, and new data is sent every few seconds. The copy is kept until the run is finished, so that
no step is computed twice if the machine gets the same run again.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec

from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.files.user_paths import find_cache_folder
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import Run
from xtx.sweep.local_processes import classify_exit
from xtx.sweep.run_process import SweepRunResources, start_process
from xtx.sweep.run_transfer import RunFiles, Sender, unpack
from xtx.sweep.scheduler import AttemptOutcome
from xtx.sweep.sweep_folder import create_run_folder, is_held, read_saved_steps, read_shared_settings

POLL_SECONDS = 0.2
"""Seconds between two looks at the run's process."""
ASK_EVERY = 1.0
"""Seconds between two requests to the sweep whether to stop."""
SEND_EVERY = 3.0
"""Seconds between two messages with new files: what the sweep's table lags behind."""
MAX_WAIT_SECONDS = 60.0
"""Seconds to wait for another process that works on the run, mostly one that is saving because it was stopped."""


class RunOrder(msgspec.Struct, frozen=True):
    """A run to carry out, as the sweep sends it to a machine."""

    out: str
    """The sweep's folder, as an absolute path."""
    sweep: str
    """The sweep's id, by which its folder is recognised."""
    folder: str
    """The run's folder in it."""
    config: RunConfig
    resources: SweepRunResources
    version: str
    """Version of xtx on the sweep's machine."""
    games: str = ""
    """XTX_GAMES of the sweep's machine: folders of stories."""
    bring_back: bool = False
    """Whether to use the machine's own folder even if the sweep's is accessible."""


class RunMessage(msgspec.Struct, frozen=True):
    """A message from a run on a machine of a cluster: it has begun, it has new data, or it has ended."""

    where: str = ""
    """When it has begun: the machine."""
    copied: bool = False
    """When it has begun: whether it uses the machine's own folder and sends its files."""
    files: RunFiles | None = None
    """New data."""
    outcome: str = ""
    """When it has ended: a value of `AttemptOutcome`."""
    why: str = ""
    """Why it failed."""


def read_version() -> str:
    """Return the version of xtx, which must be the same on all machines of a cluster."""
    return version("xtx")


def execute_run(order: RunOrder, stop_asked: Callable[[], bool], fetch: Callable[[], RunFiles]) -> Iterator[RunMessage]:
    """Start or continue a run until it ends or `stop_asked` returns True, and yield messages.

    fetch: returns what the sweep has of the run.
    """
    if order.version != read_version():
        why = f"{platform.node()} has xtx {read_version()}, and the sweep {order.version}: install the same everywhere"
        yield RunMessage(outcome=AttemptOutcome.HOPELESS.value, why=why)
        return
    shared = not order.bring_back and _can_access(order)
    # Not in /tmp, where other users could replace it.
    own = find_cache_folder() / "sweeps" / order.sweep
    folder = (Path(order.out) if shared else own) / order.folder
    if not _wait_for(folder, stop_asked):
        yield RunMessage(outcome=AttemptOutcome.HELD.value)
        return
    try:
        if not shared:
            _copy_run(folder, order, fetch)
    except (OSError, UserError) as error:
        yield RunMessage(outcome=AttemptOutcome.FAILED.value, why=f"on {platform.node()}: {error}")
        return
    yield RunMessage(where=platform.node(), copied=not shared)
    yield from _run_order(folder, order, stop_asked, None if shared else Sender(folder))


def _wait_for(folder: Path, stop_asked: Callable[[], bool]) -> bool:
    """Wait until no other process works on the run; returns False if one still does after
    `MAX_WAIT_SECONDS`."""
    until = time.monotonic() + MAX_WAIT_SECONDS
    while is_held(folder):
        if stop_asked() or time.monotonic() > until:
            return False
        time.sleep(ASK_EVERY)
    return True


def _run_order(
    folder: Path, order: RunOrder, stop_asked: Callable[[], bool], sender: Sender | None
) -> Iterator[RunMessage]:
    asked = False
    process = start_process(folder, order.config.num_envs, order.resources, _build_environment(order))
    try:
        sent = looked = time.monotonic()
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if not asked and now - looked > ASK_EVERY:
                looked = now
                if stop_asked():
                    asked = True
                    process.terminate()
            if now - sent > SEND_EVERY:
                sent = now
                yield from _send(sender)
    finally:
        _end(process)
    yield from _send(sender)
    outcome, why = classify_exit(folder, process.returncode, asked)
    if outcome in (AttemptOutcome.FAILED, AttemptOutcome.HOPELESS):
        why = f"on {platform.node()}: {why}"
    yield RunMessage(outcome=outcome.value, why=why)
    if sender is not None and outcome is AttemptOutcome.FINISHED:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # what is not empty stays
            os.removedirs(folder.parent)


def _send(sender: Sender | None) -> Iterator[RunMessage]:
    if sender is not None and (files := sender.pack()):
        yield RunMessage(files=files)


def _can_access(order: RunOrder) -> bool:
    """Return whether this machine has access to the sweep's folder, and not to another one of the same name."""
    with contextlib.suppress(UserError):
        common = read_shared_settings(Path(order.out), None, None)
        return common is not None and common.id == order.sweep and os.access(order.out, os.W_OK)
    return False


def _copy_run(folder: Path, order: RunOrder, fetch: Callable[[], RunFiles]) -> None:
    """Make this machine's copy of the run equal to the sweep's, unless the copy has more steps already."""
    files = fetch()
    sent = max((int(piece.name) for piece in files.checkpoints if piece.name.isdigit()), default=0)
    if (folder / "config.json").exists() and read_saved_steps(folder) >= sent:
        # `restore` cuts the .jsonl files back now, as the run would do: then they only grow while they are sent. A
        # copy that is inconsistent, or of another run, is replaced.
        with contextlib.suppress(UserError):
            if read_config(folder) == order.config:
                Run(folder, order.config).restore()
                return
    shutil.rmtree(folder, ignore_errors=True)
    create_run_folder(folder, order.config)
    unpack(folder, files)
    Run(folder, order.config).restore()


def _build_environment(order: RunOrder) -> dict[str, str]:
    """Return the environment in which stories are searched in this machine's folders and in the sweep's."""
    both = [place for place in (os.environ.get("XTX_GAMES", ""), order.games) if place]
    return {"XTX_GAMES": os.pathsep.join(dict.fromkeys(both))} if both else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the run's process if it still runs because the task was cancelled; it may save first."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(MAX_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
