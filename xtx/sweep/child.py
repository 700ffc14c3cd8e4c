"""The process that carries out one run: `xtx resume` in the run's folder, with its output in the run's log.

It ends with whoever started it: when that process is gone, however it ended, the kernel sends SIGTERM, upon which a run
saves and stops. So nobody goes on unseen, and nothing that was computed is lost.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from xtx.regular_files import open_append
from xtx.sweep.folder import LOG

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from xtx.sweep.child import end_with; "
    "end_with(int(sys.argv.pop(1))); from xtx.cli import main; sys.exit(main())"
)
_PR_SET_PDEATHSIG = 1

FINISHED, STOPPED, MISTAKE = 0, 130, 2
"""Exit statuses of `xtx resume`."""


class Means(msgspec.Struct, frozen=True):
    """By what means runs are carried out. Nothing but device and threads changes their results."""

    device: str = "cpu"
    threads: int = 1
    processors: int = 1
    """A run's share of the machine."""
    workers: int | None = None
    """Processes that run the games of one run; None for one for each of its processors, more if a GPU computes."""
    checkpoint_seconds: float = 60.0
    atlas: str | None = None
    no_atlas: bool = False

    def words(self, games: int) -> list[str]:
        """As options of `xtx resume`, for a run that plays so many games in lock-step."""
        on_gpu = self.device.startswith("cuda")
        # Where a GPU computes, runs mostly wait for the few of their games that meet a new state: six runs with two
        # processes each left half of 16 processors idle.
        usual = min(games, 4 * self.processors) if on_gpu else self.processors
        workers = usual if self.workers is None else self.workers
        each = self.processors // max(1, min(games, workers))
        search = min(12, self.processors, 6 * each) if on_gpu else min(4, each)
        ahead = "on" if self.processors >= 2 * min(games, workers) else "off"
        words = ["--device", self.device, "--threads", str(self.threads), "--quiet"]
        words += ["--workers", str(workers), "--search-threads", str(max(1, search)), "--look-ahead", ahead]
        words += ["--tie-workers", "off"]  # they share the processors with those of other runs
        words += ["--checkpoint-seconds", str(self.checkpoint_seconds)]
        if self.atlas is not None:
            words += ["--atlas", self.atlas]
        return [*words, "--no-atlas"] if self.no_atlas else words


def spawn(
    folder: Path, games: int, means: Means, surroundings: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Starts or goes on with the run in a folder, which plays so many games in lock-step. Call it in the thread that
    will live longest: the process ends with that thread."""
    one = str(means.threads)
    environment = {
        **os.environ,
        # As many as torch has, so that NumPy's sums do not depend on the machine either.
        "OMP_NUM_THREADS": one,
        "OPENBLAS_NUM_THREADS": one,
        "MKL_NUM_THREADS": one,
        "PYTHONFAULTHANDLER": "1",
        **(surroundings or {}),
    }
    root, words = str(Path(__file__).parents[2]), means.words(games)
    with open_append(folder / LOG) as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, root, str(os.getpid()), "resume", str(folder), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            process_group=0,  # so that the terminal's Ctrl-C goes to the sweep only, which asks its runs to stop
        )


def end_with(parent: int) -> None:
    """Asks the kernel to send this process SIGTERM when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(STOPPED)


def describe_status(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"died of {signal.Signals(-status).name}"
    except ValueError:
        return f"died of signal {-status}"
