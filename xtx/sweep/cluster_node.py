"""Carries out one run on a machine of a cluster, and yields news of it. It does not depend on Ray.

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
from xtx.runs.run_folder import Run, read_config
from xtx.sweep.local_processes import judge
from xtx.sweep.run_process import RunResources, spawn
from xtx.sweep.run_transfer import RunFiles, Sender, unpack
from xtx.sweep.scheduler import AttemptOutcome
from xtx.sweep.sweep_folder import agree, is_held, plant, saved_steps

TURN = 0.2
"""Seconds between two looks at the run's process."""
ASK_EVERY = 1.0
"""Seconds between two requests to the sweep whether to stop."""
SEND_EVERY = 3.0
"""Seconds between two parcels: what the sweep's table lags behind."""
PATIENCE = 60.0
"""Seconds to wait for another process that works on the run, mostly one that is saving because it was stopped."""


class Order(msgspec.Struct, frozen=True):
    """A run to carry out, as the sweep sends it to a machine."""

    out: str
    """The sweep's folder, as an absolute path."""
    sweep: str
    """The sweep's id, by which its folder is recognised."""
    folder: str
    """The run's folder in it."""
    config: RunConfig
    means: RunResources
    version: str
    """Version of xtx on the sweep's machine."""
    games: str = ""
    """XTX_GAMES of the sweep's machine: folders of stories."""
    bring_back: bool = False
    """Whether to use the machine's own folder even if the sweep's is accessible."""


class News(msgspec.Struct, frozen=True):
    """A message from a run on a machine of a cluster: it has begun, it has new data, or it has ended."""

    where: str = ""
    """When it has begun: the machine."""
    copied: bool = False
    """When it has begun: whether it uses the machine's own folder and sends parcels."""
    parcel: RunFiles | None = None
    """New data."""
    outcome: str = ""
    """When it has ended: a value of `AttemptOutcome`."""
    why: str = ""
    """Why it failed."""


def our_version() -> str:
    """Return the version of xtx, which must be the same on all machines of a cluster."""
    return version("xtx")


def carry_out(order: Order, stop_asked: Callable[[], bool], fetch: Callable[[], RunFiles]) -> Iterator[News]:
    """Start or continue a run until it ends or `stop_asked` returns True, and yield news.

    fetch: returns what the sweep has of the run.
    """
    if order.version != our_version():
        why = f"{platform.node()} has xtx {our_version()}, and the sweep {order.version}: install the same everywhere"
        yield News(outcome=AttemptOutcome.HOPELESS.value, why=why)
        return
    shared = not order.bring_back and _sees(order)
    folder = Path(order.out if shared else _own_folder(order)) / order.folder
    if not _wait_for(folder, stop_asked):
        yield News(outcome=AttemptOutcome.HELD.value)
        return
    try:
        if not shared:
            _lay_out(folder, order, fetch)
    except (OSError, UserError) as error:
        yield News(outcome=AttemptOutcome.FAILED.value, why=f"on {platform.node()}: {error}")
        return
    yield News(where=platform.node(), copied=not shared)
    yield from _work(folder, order, stop_asked, None if shared else Sender(folder))


def _wait_for(folder: Path, stop_asked: Callable[[], bool]) -> bool:
    """Wait until no other process works on the run; returns False if one still does after `PATIENCE` seconds."""
    until = time.monotonic() + PATIENCE
    while is_held(folder):
        if stop_asked() or time.monotonic() > until:
            return False
        time.sleep(ASK_EVERY)
    return True


def _work(folder: Path, order: Order, stop_asked: Callable[[], bool], sender: Sender | None) -> Iterator[News]:
    asked = False
    process = spawn(folder, order.config.num_envs, order.means, _surroundings(order))
    try:
        sent = looked = time.monotonic()
        while process.poll() is None:
            time.sleep(TURN)
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
    outcome, why = judge(folder, process.returncode, asked)
    if outcome in (AttemptOutcome.FAILED, AttemptOutcome.HOPELESS):
        why = f"on {platform.node()}: {why}"
    yield News(outcome=outcome.value, why=why)
    if sender is not None and outcome is AttemptOutcome.FINISHED:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # what is not empty stays
            os.removedirs(folder.parent)


def _send(sender: Sender | None) -> Iterator[News]:
    if sender is not None and (parcel := sender.pack()):
        yield News(parcel=parcel)


def _sees(order: Order) -> bool:
    """Return whether this machine has access to the sweep's folder, and not to another one of the same name."""
    with contextlib.suppress(UserError):
        common = agree(Path(order.out), None, None)
        return common is not None and common.id == order.sweep and os.access(order.out, os.W_OK)
    return False


def _own_folder(order: Order) -> Path:
    """Return this machine's folder for the sweep. Not in /tmp, where other users could replace it."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "xtx" / "sweeps" / order.sweep


def _lay_out(folder: Path, order: Order, fetch: Callable[[], RunFiles]) -> None:
    """Make this machine's copy of the run equal to the sweep's, unless the copy has more steps already."""
    parcel = fetch()
    sent = max((int(piece.name) for piece in parcel.checkpoints if piece.name.isdigit()), default=0)
    if (folder / "config.json").exists() and saved_steps(folder) >= sent:
        # `restore` cuts the .jsonl files back now, as the run would do: then they only grow while they are sent. A
        # copy that is inconsistent, or of another run, is replaced.
        with contextlib.suppress(UserError):
            if read_config(folder) == order.config:
                Run(folder, order.config).restore()
                return
    shutil.rmtree(folder, ignore_errors=True)
    plant(folder, order.config)
    unpack(folder, parcel)
    Run(folder, order.config).restore()


def _surroundings(order: Order) -> dict[str, str]:
    """Return the environment in which stories are searched in this machine's folders and in the sweep's."""
    both = [place for place in (os.environ.get("XTX_GAMES", ""), order.games) if place]
    return {"XTX_GAMES": os.pathsep.join(dict.fromkeys(both))} if both else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the run's process if it still runs because the task was cancelled; it may save first."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
