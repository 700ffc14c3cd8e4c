"""Carries out runs as tasks of a Ray cluster (extra `cluster`).

One task is one run: it starts the same process as on one machine, and streams messages. Ray itself retries nothing: the
scheduler decides whether and from where a run continues, as on one machine. Tasks ask an actor on the sweep's machine,
the `TaskServer`, whether to stop, and get from it what the sweep has of their run.

Tasks and the sweep exchange MessagePack. Every machine that can reach a Ray cluster can run programs on it; see
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

from xtx.core import UserError, warn
from xtx.files.regular_files import open_regular
from xtx.sweep.cluster_node import RunMessage, RunOrder, execute_run, read_version
from xtx.sweep.run_plan import PlannedRun
from xtx.sweep.run_process import SweepRunResources
from xtx.sweep.run_transfer import RunFiles, pack_whole, unpack
from xtx.sweep.scheduler import AttemptOutcome, RunEvent

_ANSWER_WITHIN = 10.0
"""Seconds to wait for an answer over the network. If the server does not answer whether to stop, the run continues."""


def _import_ray() -> Any:
    # Both are read when Ray is imported: no usage reports, and an error within a minute if there is no cluster.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed; install the extra: pip install 'xtx[cluster]'") from None
    return ray


class TaskServer:
    """The actor on the machine of the sweep that answers its tasks."""

    def __init__(self, out: str) -> None:
        self._out = Path(out)
        self._stop = False

    def stop(self) -> None:
        """Ask all runs to save and stop."""
        self._stop = True

    def stop_asked(self) -> bool:
        """Return whether the runs are asked to stop."""
        return self._stop

    def fetch(self, folder: str) -> bytes:
        """Return what the sweep has of a run, as an encoded `RunFiles`."""
        return msgspec.msgpack.encode(pack_whole(self._out / folder))


def execute_task(order: bytes, server: Any) -> Iterator[bytes]:
    """Carry out one run, given by an encoded `RunOrder`, and yield encoded `RunMessage`."""
    ray = _import_ray()
    decoded = msgspec.msgpack.decode(order, type=RunOrder)

    def stop_asked() -> bool:
        with contextlib.suppress(ray.exceptions.RayError):
            return bool(ray.get(server.stop_asked.remote(), timeout=_ANSWER_WITHIN))
        return False

    def fetch() -> RunFiles:
        return msgspec.msgpack.decode(ray.get(server.fetch.remote(decoded.folder)), type=RunFiles)

    for message in execute_run(decoded, stop_asked, fetch):
        yield msgspec.msgpack.encode(message)


class RayExecutor:
    """A Ray cluster, which carries out as many runs as its machines have resources for."""

    def __init__(
        self,
        out: Path,
        sweep: str,
        resources: SweepRunResources,
        address: str,
        *,
        cpus: float,
        gpus: float,
        jobs: int | None = None,
        bring_back: bool = False,
    ) -> None:
        """Connect to a cluster. Raises `UserError` if there is none.

        cpus, gpus: resources of one run; jobs: most runs at a time; bring_back: send runs over the network even if the
        machines share the sweep's folder.
        """
        self._ray = ray = _import_ray()
        self._out, self._sweep, self._resources = out, sweep, resources
        self._jobs, self._bring_back = jobs, bring_back
        self._streams: dict[Any, PlannedRun] = {}
        self._running: set[str] = set()
        self._events: list[RunEvent] = []
        self._locks: dict[str, int] = {}
        _connect(ray, address)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        self._server = ray.remote(TaskServer).options(**options, scheduling_strategy=here).remote(str(out))
        self._task = ray.remote(execute_task).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD",
            name="xtx run",
        )  # fmt: skip
        if not any(
            node["Alive"] and node["Resources"].get("CPU", 0) >= cpus and node["Resources"].get("GPU", 0) >= gpus
            for node in ray.nodes()
        ):
            warn(f"no machine of the cluster has {cpus:g} processors and {gpus:g} GPUs now; runs wait until one has")

    @property
    def num_free(self) -> int:
        """How many more runs can be submitted; the cluster queues those that it has no resources for."""
        return (self._jobs or len(self._streams) + 1) - len(self._streams)

    def start(self, run: PlannedRun) -> None:
        """Submit a run to the cluster."""
        order = RunOrder(
            out=str(self._out),
            sweep=self._sweep,
            folder=run.folder,
            config=run.config,
            resources=self._resources,
            version=read_version(),
            games=os.environ.get("XTX_GAMES", ""),
            bring_back=self._bring_back,
        )
        self._streams[self._task.remote(msgspec.msgpack.encode(order), self._server)] = run

    def take_events(self) -> list[RunEvent]:
        """Return the events since the last call."""
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
        """Read one message from a task."""
        run = self._streams[stream]
        try:
            message = msgspec.msgpack.decode(self._ray.get(next(stream)), type=RunMessage)
        except StopIteration:
            self._end(stream, AttemptOutcome.FAILED, "ended without a result")
            return
        except self._ray.exceptions.TaskCancelledError:
            self._end(stream, AttemptOutcome.STOPPED, "was cancelled before it began")
            return
        except self._ray.exceptions.RayError as error:  # its process or its machine was lost
            self._end(stream, AttemptOutcome.FAILED, _format_error(error))
            return
        if message.outcome:
            self._end(stream, AttemptOutcome(message.outcome), message.why)
        elif message.files is not None:
            try:
                unpack(self._out / run.folder, message.files)
            except (OSError, ValueError) as error:
                self._ray.cancel(stream)
                self._end(stream, AttemptOutcome.HOPELESS, f"what came from the cluster cannot be kept: {error}")
        else:
            self._running.add(run.folder)
            if message.copied:
                self._hold(run.folder)
            self._events.append(RunEvent(run.folder, detail=message.where))

    def _hold(self, folder: str) -> None:
        """Lock a run that is carried out on another machine, so that no process here works on it."""
        lock = open_regular(self._out / folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):  # it was just started by hand; both processes compute the same
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._locks[folder] = lock

    def _end(self, stream: Any, outcome: AttemptOutcome, why: str) -> None:
        """Record the end of a task."""
        run = self._streams.pop(stream)
        self._running.discard(run.folder)
        lock = self._locks.pop(run.folder, None)
        if lock is not None:
            os.close(lock)
        self._events.append(RunEvent(run.folder, outcome, why))

    def ask_to_stop(self) -> None:
        """Ask running tasks to stop through the server, and cancel those that have not begun."""
        self._server.stop.remote()
        for stream, run in self._streams.items():
            if run.folder not in self._running:
                self._running.add(run.folder)  # so that it is cancelled only once
                self._ray.cancel(stream)

    def close(self) -> None:
        """Disconnect from the cluster, which ends the tasks that still run."""
        for lock in self._locks.values():
            os.close(lock)
        self._locks = {}
        self._ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Connect to the cluster at an address, HOST:PORT or `auto`. Raises `UserError`."""
    host, _, port = address.rpartition(":")
    if "://" in address or (address != "auto" and not (host and port.isdigit())):
        raise UserError(f"--ray {address}: on a machine of the cluster, give HOST:PORT or auto")
    try:
        if address != "auto":
            # Ray itself would try for minutes.
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_WITHIN).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise UserError(f"there is no Ray cluster at {address} that lets us in ({_format_error(error)})") from None


def _format_error(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
