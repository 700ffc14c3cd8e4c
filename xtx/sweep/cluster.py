"""Runs as tasks of a Ray cluster (extra `cluster`).

One task is one run: it starts the same process as on one machine, and streams what there is to tell. Ray itself tries
nothing again: whether and from where a run goes on is the conductor's business, as on one machine. An actor beside the
sweep, the desk, is asked by the tasks whether to stop, and gives them what the sweep has of their run.

What goes over the network are bytes of MessagePack; but whoever can reach a Ray cluster can run programs on it, see
docs/sweeps.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from xtx.core import UserError
from xtx.regular_files import open_regular
from xtx.runs import warn
from xtx.sweep.child import Means
from xtx.sweep.conduct import Event, Outcome
from xtx.sweep.node import News, Order, carry_out, our_version
from xtx.sweep.parcel import Parcel, pack_whole, unpack
from xtx.sweep.plan import PlannedRun

_ANSWER_WITHIN = 10.0
"""Seconds in which the desk answers whether to stop; if it does not, the run goes on."""


def _import_ray() -> Any:
    # Both are read when Ray is loaded: no reports to its makers, and an answer within a minute if it has none.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed; install the extra: pip install 'xtx[cluster]'") from None
    return ray


class Desk:
    """What tasks ask: an actor on the machine of the sweep."""

    def __init__(self, out: str) -> None:
        self._out = Path(out)
        self._stop = False

    def stop(self) -> None:
        """All runs are to save and stop."""
        self._stop = True

    def stop_asked(self) -> bool:
        """Whether they are."""
        return self._stop

    def fetch(self, folder: str) -> bytes:
        """What the sweep has of a run."""
        return msgspec.msgpack.encode(pack_whole(self._out / folder))


def task(order: bytes, desk: Any) -> Iterator[bytes]:
    """Carries out one run; what comes are encoded `News`."""
    ray = _import_ray()
    decoded = msgspec.msgpack.decode(order, type=Order)

    def stop_asked() -> bool:
        with contextlib.suppress(ray.exceptions.RayError):
            return bool(ray.get(desk.stop_asked.remote(), timeout=_ANSWER_WITHIN))
        return False

    def fetch() -> Parcel:
        return msgspec.msgpack.decode(ray.get(desk.fetch.remote(decoded.folder)), type=Parcel)

    for news in carry_out(decoded, stop_asked, fetch):
        yield msgspec.msgpack.encode(news)


class RayPlaces:
    """A cluster that takes as many runs as it has room for."""

    def __init__(
        self,
        out: Path,
        sweep: str,
        means: Means,
        address: str,
        *,
        cpus: float,
        gpus: float,
        jobs: int | None = None,
        bring_back: bool = False,
    ) -> None:
        """Connects. Raises `UserError` if nobody answers there."""
        self._ray = ray = _import_ray()
        self._out, self._sweep, self._means, self._jobs, self._bring_back = out, sweep, means, jobs, bring_back
        self._streams: dict[Any, PlannedRun] = {}
        self._begun: set[str] = set()
        self._events: list[Event] = []
        self._locks: dict[str, int] = {}
        _connect(ray, address)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        self._desk = ray.remote(Desk).options(**options, scheduling_strategy=here).remote(str(out))
        self._task = ray.remote(task).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD",
            name="xtx run",
        )  # fmt: skip
        if not any(
            node["Alive"] and node["Resources"].get("CPU", 0) >= cpus and node["Resources"].get("GPU", 0) >= gpus
            for node in ray.nodes()
        ):
            warn(f"no machine of the cluster has {cpus:g} processors and {gpus:g} GPUs now; runs wait until one has")

    @property
    def free(self) -> int:
        """How many more runs can be given to the cluster, which keeps those that it has no room for waiting."""
        return (self._jobs or len(self._streams) + 1) - len(self._streams)

    def begin(self, run: PlannedRun) -> None:
        """Gives a run to the cluster."""
        order = Order(
            out=str(self._out),
            sweep=self._sweep,
            folder=run.folder,
            config=run.config,
            means=self._means,
            version=our_version(),
            games=os.environ.get("XTX_GAMES", ""),
            bring_back=self._bring_back,
        )
        self._streams[self._task.remote(msgspec.msgpack.encode(order), self._desk)] = run

    def events(self) -> list[Event]:
        """What was told since the last call."""
        ray = self._ray
        while self._streams:
            ready, _ = ray.wait(list(self._streams), num_returns=len(self._streams), timeout=0, fetch_local=False)
            if not ready:
                break
            for stream in ready:
                self._read(stream)
        events, self._events = self._events, []
        return events

    def _read(self, stream: Any) -> None:
        """Takes one piece of news."""
        run = self._streams[stream]
        try:
            news = msgspec.msgpack.decode(self._ray.get(next(stream)), type=News)
        except StopIteration:
            self._end(stream, Outcome.FAILED, "ended without a word")
            return
        except self._ray.exceptions.TaskCancelledError:
            self._end(stream, Outcome.STOPPED, "was taken back from the cluster")
            return
        except self._ray.exceptions.RayError as error:  # its process or its machine is gone
            self._end(stream, Outcome.FAILED, _one_line(error))
            return
        if news.outcome:
            self._end(stream, Outcome(news.outcome), news.why)
        elif news.parcel is not None:
            try:
                unpack(self._out / run.folder, news.parcel)
            except (OSError, ValueError) as error:
                self._ray.cancel(stream)
                self._end(stream, Outcome.HOPELESS, f"what came from the cluster cannot be kept: {error}")
        else:
            self._begun.add(run.folder)
            if news.copied:
                self._hold(run.folder)
            self._events.append(Event(run.folder, detail=news.where))

    def _hold(self, folder: str) -> None:
        """Keeps others from working on a run that is carried out elsewhere."""
        lock = open_regular(self._out / folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):  # then somebody has begun by hand just now; both come to the same
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._locks[folder] = lock

    def _end(self, stream: Any, outcome: Outcome, why: str) -> None:
        run = self._streams.pop(stream)
        self._begun.discard(run.folder)
        lock = self._locks.pop(run.folder, None)
        if lock is not None:
            os.close(lock)
        self._events.append(Event(run.folder, outcome, why))

    def ask_to_stop(self) -> None:
        """Rings at the desk; what has not begun yet is taken back."""
        self._desk.stop.remote()
        for stream, run in self._streams.items():
            if run.folder not in self._begun:
                self._begun.add(run.folder)  # once is enough
                self._ray.cancel(stream)

    def close(self) -> None:
        """Leaves the cluster, which ends what still runs for us."""
        for lock in self._locks.values():
            os.close(lock)
        self._locks = {}
        self._ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    if "://" in address or (address != "auto" and not (host and port.isdigit())):
        raise UserError(f"--ray {address}: on a machine of the cluster, give HOST:PORT or auto")
    try:
        if address != "auto":
            # Ray itself would try for minutes, and say so only in between.
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_WITHIN).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise UserError(f"there is no Ray cluster at {address} that lets us in ({_one_line(error)})") from None


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
