"""The process of one run of a sweep: `xtx resume` in the run's folder, with its output in the run's log.

It ends with its parent: when the parent ends, in whatever way, the kernel sends SIGTERM, upon which the run saves a
checkpoint and stops. So no run continues unnoticed, and no result is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from xtx.files.regular_files import open_append
from xtx.sweep.sweep_folder import LOG

FINISHED, STOPPED, USER_ERROR = 0, 130, 2
"""Exit statuses of `xtx resume`: the run has all its steps, it was stopped, or the user must fix something."""

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from xtx.processes.child_processes import end_with_parent; "
    f"end_with_parent(int(sys.argv.pop(1)), {int(signal.SIGTERM)}, {STOPPED}); "
    "from xtx.cli.main import main; sys.exit(main())"
)


class SweepRunResources(msgspec.Struct, frozen=True):
    """The resources with which runs are carried out. Only `device` and `threads` have an influence on results."""

    device: str = "cpu"
    threads: int = 1
    """Threads of torch in a run."""
    processors: int = 1
    """A run's share of the machine's processors."""
    workers: int | None = None
    """Worker processes of one run; None for one for each of its processors, or more with a GPU."""
    checkpoint_seconds: float = 60.0
    atlas: str | None = None
    """Folder of the atlas; None for the default one."""
    no_atlas: bool = False

    def build_options(self, num_envs: int) -> list[str]:
        """Return the options of `xtx resume` for a run with a number of envs."""
        on_gpu = self.device.startswith("cuda")
        # With a GPU, runs mostly wait for the few of their envs that reach a new state: six runs with two workers each
        # left half of 16 processors idle.
        default_workers = min(num_envs, 4 * self.processors) if on_gpu else self.processors
        workers = default_workers if self.workers is None else self.workers
        each = self.processors // max(1, min(num_envs, workers))
        search = min(12, self.processors, 6 * each) if on_gpu else min(4, each)
        ahead = "on" if self.processors >= 2 * min(num_envs, workers) else "off"
        words = ["--device", self.device, "--threads", str(self.threads), "--quiet"]
        words += ["--workers", str(workers), "--search-threads", str(max(1, search)), "--look-ahead", ahead]
        words += ["--tie-workers", "off"]  # the workers of several runs share the processors
        words += ["--checkpoint-seconds", str(self.checkpoint_seconds)]
        if self.atlas is not None:
            words += ["--atlas", self.atlas]
        return [*words, "--no-atlas"] if self.no_atlas else words


def start_process(
    folder: Path, num_envs: int, resources: SweepRunResources, surroundings: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start or continue the run in a folder, which has a number of envs.

    surroundings: environment variables to set. The process ends with the thread that calls this, so call it in one that
    lives as long as the sweep.
    """
    threads = str(resources.threads)
    environment = {
        **os.environ,
        # As many as torch has, so that NumPy's sums do not depend on the machine either.
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONFAULTHANDLER": "1",
        **(surroundings or {}),
    }
    root, words = str(Path(__file__).parents[2]), resources.build_options(num_envs)
    with open_append(folder / LOG) as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, root, str(os.getpid()), "resume", str(folder), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            process_group=0,  # so that the terminal's Ctrl-C goes to the sweep only, which asks its runs to stop
        )
