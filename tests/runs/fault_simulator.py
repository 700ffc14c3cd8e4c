"""Runs a toy training run under simulated faults of the disk and of the process, and compares what comes of it.

    python tests/runs/fault_simulator.py                      # 10,000 schedules
    python tests/runs/fault_simulator.py --first 4711 --count 1 --verbose
    python tests/runs/fault_simulator.py --workers --count 100

A schedule is a number, from which everything is drawn: the run's settings, and for each of one to four starts of the
run at which file call something happens and what. Then the run is started once more without faults. Kinds of faults:

- kill: the process is gone before, during or after the call; what the kernel was given stays.
- power: the same, and the disk forgets: unsynced content is lost, cut or full of zeros; unsynced names are lost, all of
  them, the last ones, or any of them, as if they had been reordered.
- error: the call fails with ENOSPC, EIO, EMFILE or EINTR, once, a few times, or from then on.

With `--workers` the games run in two processes, and at drawn steps one of them is stopped or killed as well. That takes
seconds for each schedule, because processes must start.

What must hold: after the last start the files of lines are those of an undisturbed run, byte for byte, and `best` is
the same checkpoint. A start may also refuse with a `UserError` of one line, but for good only if no checkpoint had been
completed before: then there was nothing to lose. No other exception may escape.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any
from unittest import mock

import xtx.cli.training.progress_display
import xtx.cli.training.training_session
import xtx.runs.checkpoint_file
import xtx.runs.run_folder
import xtx.runs.viewer_files
import xtx.training.loop
from xtx.cli.training.training_session import TrainOptions
from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.files import system_calls
from xtx.files.system_calls import AnyPath, FileCalls
from xtx.games.vector.game_vector import GameVector

ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EINTR)
FOREVER = 10**9
"""Calls that fail where all do from then on."""
GAMES = 2
VECTOR_STEPS = 60
WORKERS = 2
PATIENCE = 1.0
"""Seconds without a sign of life after which a worker is given up; 20 in real runs."""
EPISODES_FOR_BEST = 3
"""Episodes after which a checkpoint can be the best one; 100 in real runs."""
LINES = ("metrics", "episodes", "rooms")


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may go on after it."""


# --- what happens, and when ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: str
    """kill, power or error."""
    call: int
    """The number of the file call at which it happens, from 0."""
    number: int = 0
    """The errno of an error."""
    times: int = 1
    """Calls that fail."""


@dataclass(frozen=True)
class Stall:
    """A worker process that is stopped, so that it does not answer, or killed."""

    vector_step: int
    worker: int
    signal: signal.Signals


@dataclass(frozen=True)
class Schedule:
    """A run with its faults, one for each start."""

    seed: int
    config: RunConfig
    save_every: int
    """Vector steps between two checkpoints."""
    faults: list[Fault]


def draw_schedule(seed: int, calls: Callable[[RunConfig, int], int]) -> Schedule:
    """Draw everything from the seed. `calls`: how many file calls the undisturbed run makes."""
    rng = random.Random(seed)
    config = RunConfig(
        "toy:corridor-5", "random", {}, steps=GAMES * VECTOR_STEPS, num_envs=GAMES, log_every=rng.choice((1, 5)),
        seed=rng.randrange(3),
    )  # fmt: skip
    save_every = rng.choice((1, 4, 15))
    total = calls(config, save_every)
    faults = []
    for _ in range(rng.randint(1, 4)):
        # Half of them early: beginning and resuming have calls of their own.
        call = rng.randrange(total) if rng.random() < 0.5 else rng.randrange(min(total, 60))
        kind = rng.choice(("kill", "power", "error"))
        number, times = rng.choice(ERRORS), rng.choice((1, 1, 2, 5, FOREVER))
        if number == errno.EINTR:  # Python's streams repeat an interrupted call, for ever if need be
            times = min(times, 5)
        faults.append(Fault(kind, call, number, times) if kind == "error" else Fault(kind, call))
    return Schedule(seed, config, save_every, faults)


def draw_stalls(seed: int) -> list[Stall]:
    """Draw what happens to workers in a run that goes from its beginning to its end."""
    rng = random.Random(f"{seed} stalls")
    signals = (signal.SIGSTOP, signal.SIGKILL)
    steps = sorted(rng.sample(range(1, VECTOR_STEPS), rng.randint(1, 3)))
    return [Stall(step, rng.randrange(WORKERS), rng.choice(signals)) for step in steps]


# --- the disk -----------------------------------------------------------------------------------------------------


@dataclass
class _Node:
    """A file's content, whatever its names."""

    content: bytearray
    durable: bytes = b""
    """What a power loss cannot take."""


class SimulatedCalls(FileCalls):
    """File calls in one folder that do what a schedule says. The files are real; what is on disk is kept beside."""

    def __init__(self, folder: Path, fault: Fault | None, rng: random.Random) -> None:
        self.num_calls = 0
        self.crashed = False
        self._folder = folder
        self._fault = fault
        self._rng = rng
        self._buried = False
        self._descriptors: dict[int, str] = {}
        self._names: dict[str, _Node] = {}
        nodes: dict[int, _Node] = {}
        for path in folder.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                self._names[str(path)] = nodes.setdefault(path.stat().st_ino, _Node(bytearray(content), content))
        self._durable_names = dict(self._names)
        self._unsynced: list[tuple[str, str, _Node | None]] = []
        """Names that were given (a node) or taken away (None) since their folder was synced: folder, path, node."""

    # --- faults ---------------------------------------------------------------------------------------------------

    def _enter(self, name: str, path: AnyPath) -> str:
        """Count a call, and let it fail or the process end if it is time. Says `during` and `after` where the process
        is to end then, else nothing."""
        if self.crashed:
            raise Crash
        number, fault = self.num_calls, self._fault
        self.num_calls += 1
        if fault is None or number < fault.call:
            return ""
        if fault.kind == "error":
            if number < fault.call + fault.times and (fault.number != errno.EMFILE or name == "open"):
                raise OSError(fault.number, os.strerror(fault.number), str(path))
            return ""
        if number > fault.call:
            return ""
        moment = self._rng.choice(("before", "during", "after"))
        if moment == "before":
            self._crash()
        return moment

    def _crash(self) -> None:
        self.crashed = True
        raise Crash

    def bury(self) -> None:
        """End the process: nothing that it still holds reaches the disk."""
        self._buried = True
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def lose_power(self) -> None:
        """Leave on disk what a power loss may leave."""
        rng = self._rng
        names = dict(self._durable_names)
        count = len(self._unsynced)
        mode = rng.choice(("all", "none", "first", "any"))
        first = {"all": count, "none": 0, "first": rng.randint(0, count), "any": count}[mode]
        for _, path, node in self._unsynced[:first]:
            if mode == "any" and rng.random() < 0.5:
                continue
            if node is None:
                names.pop(path, None)
            else:
                names[path] = node
        left = {id(node): self._decay(node) for node in names.values()}
        for path in self._names:
            os.unlink(path)
        written: dict[int, str] = {}
        for path, node in names.items():
            if id(node) in written:
                os.link(written[id(node)], path)
            else:
                Path(path).write_bytes(left[id(node)])
                written[id(node)] = path

    def _decay(self, node: _Node) -> bytes:
        """What of a file's content outlives a power loss."""
        content, durable, rng = bytes(node.content), node.durable, self._rng
        if content == durable:
            return content
        if not content.startswith(durable):  # it was cut, or written over
            return rng.choice((content, durable))
        size = rng.randint(len(durable), len(content))
        zeros = bytes(len(content) - size)
        return rng.choice((content, durable, content[:size], content[:size] + zeros))

    # --- the calls ------------------------------------------------------------------------------------------------

    def open(self, path: AnyPath, flags: int, mode: int = 0o666) -> int:
        moment = self._enter("open", path)
        is_new = not os.path.lexists(path)
        descriptor = os.open(path, flags, mode)
        self._descriptors[descriptor] = str(path)
        if is_new:
            self._name(str(path), _Node(bytearray()))
        if moment:
            self._crash()
        return descriptor

    def stream(self, descriptor: int, mode: str) -> IO[bytes]:
        if descriptor not in self._descriptors:  # tempfile opened it
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self._descriptors[descriptor] = path
            self._name(path, _Node(bytearray()))
        raw = _SimulatedFile(self, descriptor, mode)
        return io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)  # type: ignore[return-value]

    def close(self, descriptor: int) -> None:
        if self._buried:
            return
        try:
            moment = self._enter("close", self._descriptors[descriptor])
        finally:  # also a close that fails closes
            if not self.crashed:
                del self._descriptors[descriptor]
                os.close(descriptor)
        if moment:
            self._crash()

    def write(self, descriptor: int, content: bytes) -> int:
        """Write as much as the schedule lets through; gives how many bytes that is."""
        if self._buried:
            return len(content)
        path = self._descriptors[descriptor]
        moment = self._enter("write", path)
        if moment == "during" or (self._fault is not None and self._fault.kind == "error" and self._is_short()):
            content = content[: self._rng.randint(0, len(content))] or content[:1]
        written = os.write(descriptor, content)
        self._names[path].content += content[:written]
        if moment:
            self._crash()
        return written

    def _is_short(self) -> bool:
        """Whether a write lets only a part through, as it does before a disk is full."""
        return self._rng.random() < 0.1

    def read_into(self, descriptor: int, buffer: Any) -> int:
        """Read as the kernel does."""
        self._enter("read", self._descriptors[descriptor])
        return os.readv(descriptor, [buffer])

    def sync(self, descriptor: int) -> None:
        path = self._descriptors[descriptor]
        moment = self._enter("sync", path)
        if moment == "during":
            self._crash()
        if os.path.isdir(path):
            for folder, name, node in self._unsynced:
                if folder == path:
                    if node is None:
                        self._durable_names.pop(name, None)
                    else:
                        self._durable_names[name] = node
            self._unsynced = [entry for entry in self._unsynced if entry[0] != path]
        else:
            self._names[path].durable = bytes(self._names[path].content)
        if moment:
            self._crash()

    def truncate(self, descriptor: int, size: int) -> None:
        path = self._descriptors[descriptor]
        moment = self._enter("truncate", path)
        os.ftruncate(descriptor, size)
        del self._names[path].content[size:]
        if moment:
            self._crash()

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        moment = self._enter("rename", new)
        os.replace(old, new)
        if self._names.get(str(new)) is not self._names[str(old)]:  # else both names stay
            self._name(str(new), self._names.pop(str(old)))
            self._unsynced.append((os.path.dirname(old), str(old), None))
        if moment:
            self._crash()

    def link(self, old: AnyPath, new: AnyPath) -> None:
        moment = self._enter("link", new)
        os.link(old, new)
        self._name(str(new), self._names[str(old)])
        if moment:
            self._crash()

    def unlink(self, path: AnyPath, *, missing_ok: bool = False) -> None:
        moment = self._enter("unlink", path)
        super().unlink(path, missing_ok=missing_ok)
        if self._names.pop(str(path), None) is not None:
            self._unsynced.append((os.path.dirname(path), str(path), None))
        if moment:
            self._crash()

    def make_folder(self, path: AnyPath) -> None:
        moment = self._enter("mkdir", path)
        super().make_folder(path)
        if moment:
            self._crash()

    def _name(self, path: str, node: _Node) -> None:
        self._names[path] = node
        self._unsynced.append((os.path.dirname(path), path, node))


class _SimulatedFile(io.RawIOBase):
    """What a buffered stream reads from and writes to."""

    def __init__(self, calls: SimulatedCalls, descriptor: int, mode: str) -> None:
        self._calls = calls
        self._descriptor = descriptor
        self._mode = mode

    def readable(self) -> bool:
        return self._mode == "rb"

    def writable(self) -> bool:
        return self._mode != "rb"

    def seekable(self) -> bool:
        return self._mode == "rb"

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._descriptor, offset, whence)

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: Any) -> int:
        return self._calls.read_into(self._descriptor, buffer)

    def write(self, content: Any) -> int:
        return self._calls.write(self._descriptor, bytes(content))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._calls.close(self._descriptor)


# --- the run ------------------------------------------------------------------------------------------------------


class _SilentDisplay:
    """Shows nothing: drawing takes longer than the run."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> _SilentDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, line: str) -> None:
        """Nothing."""

    show = show_summary = tell

    def show_stopping(self) -> bool:
        """Nothing is shown of a stop either."""
        return False

    @contextlib.contextmanager
    def show_survey(self) -> Iterator[None]:
        """Nothing is shown of a survey; a toy world has none."""
        yield None


@dataclass
class _Clock:
    """Time that passes by itself, so that what depends on it is the same at every replay."""

    now: float = 0.0

    def monotonic(self) -> float:
        self.now += 0.25
        return self.now

    time = monotonic


@dataclass
class Outcome:
    """What came of one start."""

    error: UserError | None = None
    crashed: bool = False
    num_calls: int = 0
    num_saves: int = 0
    """Checkpoints that were completed."""


@contextlib.contextmanager
def _with_stalls(stalls: list[Stall]) -> Iterator[None]:
    """Disturb the workers before the steps that are named, once each; afterwards all must have been disturbed."""
    waiting, step = list(stalls), xtx.training.loop.Training._make_vector_step

    def disturb(training: xtx.training.loop.Training) -> None:
        pids = training._games.pids  # none in the undisturbed run
        for stall in [stall for stall in waiting if pids and stall.vector_step == training._vector_steps]:
            waiting.remove(stall)
            os.kill(pids[stall.worker], stall.signal)
        step(training)

    defaults = GameVector.__init__.__kwdefaults__
    with (
        mock.patch.object(xtx.training.loop.Training, "_make_vector_step", disturb),
        mock.patch.dict(defaults, patience=PATIENCE),
    ):
        yield
    assert not waiting, f"signals that were not sent: {waiting}"


@contextlib.contextmanager
def _in_simulation(calls: FileCalls, save_every: int, outcome: Outcome) -> Iterator[None]:
    save = xtx.runs.run_folder.Run.save

    def count_saves(run: xtx.runs.run_folder.Run, *given: Any, **named: Any) -> None:
        save(run, *given, **named)
        outcome.num_saves += 1

    with (
        mock.patch.object(system_calls, "current", calls),
        mock.patch.object(xtx.runs.run_folder.Run, "save", count_saves),
        mock.patch.object(xtx.runs.run_folder, "collect_versions", dict),
        mock.patch.object(xtx.runs.run_folder, "warn", lambda line: None),
        mock.patch.object(xtx.training.loop, "EPISODES_OF_MEAN", EPISODES_FOR_BEST),
        mock.patch.object(
            xtx.training.loop.Training,
            "_is_checkpoint_due",
            lambda training: training._vector_steps % save_every == 0,
        ),
        mock.patch.object(xtx.runs.viewer_files, "time", _Clock()),
        mock.patch.object(xtx.cli.training.progress_display, "Display", _SilentDisplay),
    ):
        yield


MEANS = TrainOptions(device="cpu", workers=0, threads=1, no_atlas=True, quiet=True)


def start(
    folder: Path, config: RunConfig, save_every: int, calls: SimulatedCalls, resources: TrainOptions = MEANS
) -> Outcome:
    """Start a run or resume it, as the commands do, until it is done or the process is gone."""
    outcome = Outcome()
    is_begun = (folder / "config.json").exists()
    with _in_simulation(calls, save_every, outcome):
        try:
            if is_begun:
                xtx.cli.training.training_session.resume(folder, resources)
            else:
                xtx.cli.training.training_session.train(config, folder, resources)
        except Crash:
            outcome.crashed = True
        except UserError as error:
            outcome.error = error
        finally:
            calls.bury()
    if calls.crashed and calls._fault is not None and calls._fault.kind == "power":
        calls.lose_power()
    outcome.num_calls = calls.num_calls
    return outcome


def read_results(folder: Path) -> dict[str, bytes]:
    """The files of lines, and which checkpoint is the best."""
    found = {name: (folder / f"{name}.jsonl").read_bytes() for name in LINES}
    best = xtx.runs.checkpoint_file.read_checkpoint(folder / "checkpoints" / "best")
    return found | {"best": str(best["state"]["progress"]).encode()}


RunConfigKey = tuple[int, int]


@dataclass
class Simulation:
    """Plays schedules in a scratch folder; undisturbed runs are played once for each config."""

    scratch: Path
    _undisturbed: dict[tuple[RunConfigKey, int], tuple[dict[str, bytes], int]] = field(default_factory=dict)

    def undisturbed(self, config: RunConfig, save_every: int) -> tuple[dict[str, bytes], int]:
        """The results of the run without faults, and the number of its file calls."""
        key = (config.log_every, config.seed), save_every
        if key not in self._undisturbed:
            folder = self.scratch / f"undisturbed-{len(self._undisturbed)}"
            outcome = start(folder, config, save_every, SimulatedCalls(folder, None, random.Random(0)))
            if outcome.error or outcome.crashed:
                raise AssertionError(f"the undisturbed run did not end: {outcome}")
            self._undisturbed[key] = read_results(folder), outcome.num_calls
        return self._undisturbed[key]

    def play(self, seed: int, resources: TrainOptions = MEANS) -> list[str]:
        """Play a schedule. Gives what happened at each start, in words; raises AssertionError if something does not
        hold."""
        schedule = draw_schedule(seed, lambda config, save_every: self.undisturbed(config, save_every)[1])
        folder = self.scratch / f"run-{seed}"
        told: list[str] = []
        try:
            self._play(schedule, folder, resources, told)
        except Exception as error:
            raise AssertionError(f"schedule {seed}: {error!r}; {told}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return told

    def play_with_workers(self, seed: int) -> list[str]:
        """The same with the games in processes of their own, which are disturbed too."""
        stalls = draw_stalls(seed)
        with _with_stalls(stalls):
            return [str(stalls), *self.play(seed, replace(MEANS, workers=WORKERS))]

    def _play(self, schedule: Schedule, folder: Path, resources: TrainOptions, told: list[str]) -> None:
        rng = random.Random(f"{schedule.seed} calls")
        num_saves = 0
        for fault in [*schedule.faults, None]:
            calls = SimulatedCalls(folder, fault, rng)
            told.append(f"{fault}")
            outcome = start(folder, schedule.config, schedule.save_every, calls, resources)
            told[-1] += f": {outcome}"
            num_saves += outcome.num_saves
            if outcome.error is not None:
                assert "\n" not in str(outcome.error), "more than one line"
                is_expected = fault is not None and fault.kind == "error"
                assert is_expected or num_saves == 0, "refused although there is a checkpoint"
                if not is_expected:  # nothing to lose: begin anew, as the user would
                    shutil.rmtree(folder)
        if not folder.exists():
            start(folder, schedule.config, schedule.save_every, SimulatedCalls(folder, None, rng), resources)
        expected = self.undisturbed(schedule.config, schedule.save_every)[0]
        found = read_results(folder)
        for name, content in expected.items():
            assert found[name] == content, f"{name} differs from the undisturbed run"


def main() -> int:
    """Play many schedules; report those that fail."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--count", type=int, default=10_000, help="how many schedules")
    parser.add_argument("--workers", action="store_true", help="with games in processes, which are disturbed too")
    parser.add_argument("--verbose", action="store_true", help="say what happened at each start")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    began, failed = time.monotonic(), 0
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        simulation = Simulation(Path(scratch))
        for seed in range(given.first, given.first + given.count):
            try:
                told = simulation.play_with_workers(seed) if given.workers else simulation.play(seed)
            except AssertionError as error:
                failed += 1
                print(f"FAILED {error}", flush=True)
                continue
            if given.verbose:
                print(f"schedule {seed}:", *told, sep="\n  ")
    print(f"{given.count:,} schedules in {time.monotonic() - began:.0f} s, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
