"""One run on a machine of a cluster. Knows nothing of the cluster: what goes on is told by what it yields.

Where the machine sees the sweep's folder, the run is carried out there. Where it does not, it is carried out in the
machine's own cache folder, and what is new is sent every few seconds; that copy is kept until the run is finished, so
that a machine that gets the same run again has nothing to do twice.
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

from xtx.config import RunConfig
from xtx.core import UserError
from xtx.runs import Run, read_config
from xtx.sweep.child import Means, spawn
from xtx.sweep.conduct import Outcome
from xtx.sweep.folder import agree, is_held, plant, saved_steps
from xtx.sweep.local import judge
from xtx.sweep.parcel import Parcel, Sender, unpack

TURN = 0.2
ASK_EVERY = 1.0
"""Seconds between questions whether to stop."""
SEND_EVERY = 3.0
PATIENCE = 60.0
"""Seconds to wait for another process that works on the run: one that was told to stop, mostly."""


class Order(msgspec.Struct, frozen=True):
    """A run that is to be carried out."""

    out: str
    """The sweep's folder, as an absolute path."""
    sweep: str
    """The sweep's own name, by which its folder is recognised."""
    folder: str
    """The run's folder in it."""
    config: RunConfig
    means: Means
    version: str
    games: str = ""
    """Where the sweep looks for stories: XTX_GAMES."""
    bring_back: bool = False


class News(msgspec.Struct, frozen=True):
    """What a run on a machine of a cluster has to tell."""

    where: str = ""
    """The machine, when it begins."""
    copied: bool = False
    """When it begins: whether in a folder of its own, from which parcels come."""
    parcel: Parcel | None = None
    outcome: str = ""
    """At the end."""
    why: str = ""


def our_version() -> str:
    """Of xtx: all machines of a cluster must have the same."""
    return version("xtx")


def carry_out(order: Order, stop_asked: Callable[[], bool], fetch: Callable[[], Parcel]) -> Iterator[News]:
    """Begins the run, or goes on with it, until it ends or is asked to stop. `fetch` gets what the sweep has of it."""
    if order.version != our_version():
        why = f"{platform.node()} has xtx {our_version()}, and the sweep {order.version}: install the same everywhere"
        yield News(outcome=Outcome.HOPELESS.value, why=why)
        return
    shared = not order.bring_back and _sees(order)
    folder = Path(order.out if shared else _own_folder(order)) / order.folder
    if not _wait_for(folder, stop_asked):
        yield News(outcome=Outcome.HELD.value)
        return
    try:
        if not shared:
            _lay_out(folder, order, fetch)
    except (OSError, UserError) as error:
        yield News(outcome=Outcome.FAILED.value, why=f"on {platform.node()}: {error}")
        return
    yield News(where=platform.node(), copied=not shared)
    yield from _work(folder, order, stop_asked, None if shared else Sender(folder))


def _wait_for(folder: Path, stop_asked: Callable[[], bool]) -> bool:
    """Whether nobody else works on the run any more."""
    until = time.monotonic() + PATIENCE
    while is_held(folder):
        if stop_asked() or time.monotonic() > until:
            return False
        time.sleep(ASK_EVERY)
    return True


def _work(folder: Path, order: Order, stop_asked: Callable[[], bool], sender: Sender | None) -> Iterator[News]:
    asked = False
    process = spawn(folder, order.config.games, order.means, _surroundings(order))
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
    if outcome in (Outcome.FAILED, Outcome.HOPELESS):
        why = f"on {platform.node()}: {why}"
    yield News(outcome=outcome.value, why=why)
    if sender is not None and outcome is Outcome.FINISHED:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # what is not empty stays
            os.removedirs(folder.parent)


def _send(sender: Sender | None) -> Iterator[News]:
    if sender is not None and (parcel := sender.pack()):
        yield News(parcel=parcel)


def _sees(order: Order) -> bool:
    """Whether the sweep's folder is to be seen here, and not another one of the same name."""
    with contextlib.suppress(UserError):
        common = agree(Path(order.out), None, None)
        return common is not None and common.id == order.sweep and os.access(order.out, os.W_OK)
    return False


def _own_folder(order: Order) -> Path:
    """This machine's folder for the sweep. Not in /tmp, where others could put something in its place."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "xtx" / "sweeps" / order.sweep


def _lay_out(folder: Path, order: Order, fetch: Callable[[], Parcel]) -> None:
    """Makes the run's folder on this machine what the sweep has of it, unless this machine is further already."""
    parcel = fetch()
    sent = max((int(piece.name) for piece in parcel.checkpoints if piece.name.isdigit()), default=0)
    if (folder / "config.json").exists() and saved_steps(folder) >= sent:
        # Cut back now, as the run will do: then lines are only ever added while they are sent. A copy whose files do
        # not fit together, or one of another run, is made anew.
        with contextlib.suppress(UserError):
            if read_config(folder) == order.config:
                Run(folder, order.config).restore()
                return
    shutil.rmtree(folder, ignore_errors=True)
    plant(folder, order.config)
    unpack(folder, parcel)
    Run(folder, order.config).restore()


def _surroundings(order: Order) -> dict[str, str]:
    """Stories are looked for where this machine looks and where the sweep does."""
    both = [place for place in (os.environ.get("XTX_GAMES", ""), order.games) if place]
    return {"XTX_GAMES": os.pathsep.join(dict.fromkeys(both))} if both else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process if it is still there: then nobody waits for it any more."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
