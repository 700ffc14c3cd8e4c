"""A training run whose workers are killed from outside writes the same metrics as an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

STEPS = 480
SIGNALS = (signal.SIGSEGV, signal.SIGKILL, signal.SIGBUS, signal.SIGFPE, signal.SIGTERM)
DISTURBANCES = 6
"""Workers are killed so many times, if the run takes long enough."""


def train(folder: Path, atlas: Path, disturb: bool) -> int:
    """Trains a random agent; returns how many times a worker was killed."""
    command = [sys.executable, "-m", "xtx.cli", "train", "lowwater", "--agent", "random", "--steps", str(STEPS)]
    command += ["--num-envs", "4", "--workers", "2", "--threads", "1", "--log-every", "10", "--quiet"]
    with subprocess.Popen([*command, "--atlas", str(atlas), "--out", str(folder)], stderr=subprocess.PIPE) as run:
        struck = 0
        choose = random.Random(4)
        while disturb and run.poll() is None:
            time.sleep(0.3)
            workers = find_workers(run.pid)
            if struck < DISTURBANCES and workers and (folder / "metrics.jsonl").is_file():
                os.kill(choose.choice(workers), SIGNALS[struck % len(SIGNALS)])
                struck += 1
        assert run.wait() == 0
    return struck


def find_workers(parent: int) -> list[int]:
    """The worker processes of a run."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    found = map(int, children.read_text().split()) if children.is_file() else ()
    return [pid for pid in found if b"xtx.games.vector.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_metrics_do_not_depend_on_workers_that_are_killed(tmp_path: Path) -> None:
    assert train(tmp_path / "disturbed", tmp_path / "atlas", disturb=True) > 0
    train(tmp_path / "undisturbed", tmp_path / "another", disturb=False)
    train(tmp_path / "later", tmp_path / "atlas", disturb=False)  # with what the disturbed one left in the atlas
    for name in ("metrics.jsonl", "episodes.jsonl"):
        lines = {run: (tmp_path / run / name).read_bytes() for run in ("disturbed", "undisturbed", "later")}
        assert lines["disturbed"] == lines["undisturbed"] == lines["later"], name
    assert (tmp_path / "later" / "metrics.jsonl").read_bytes().count(b"\n") == STEPS // 40
