"""The same sweep on a Ray cluster of two nodes, while a worker and then a node is killed: the same lines as on one
machine. Needs the extra `cluster`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NO_RAY = "RAY IS NOT INSTALLED, SO NOTHING OF THE CLUSTER IS TESTED: make extras"
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=NO_RAY),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

STEPS = 3200
TINY = f"""
games = ["toy:corridor-5"]
agents = ["drrn"]
seeds = [0, 1]
steps = {STEPS}
log_every = 5
[settings.drrn]
text = {{ vocabulary = 128, longest = 64 }}
q = {{ hidden = 16, batch_size = 16, target_every = 20 }}
"""
SLOWLY = ("--checkpoint-seconds", "0")
"""A checkpoint after every vector step makes a run slow enough to kill a process in the middle."""


@dataclass
class RayCluster:
    """A cluster in a process of its own: Ray leaves much behind in a process."""

    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[str] = field(init=False)
    address: str = field(init=False)

    def __post_init__(self) -> None:
        with (self.folder / "stderr").open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("ray_cluster.py")), str(self.folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
                env=self.environment, process_group=0,
            )  # fmt: skip
        self.address = self._answer("address")

    def tell(self, line: str, answer: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._answer(answer)

    def _answer(self, word: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.split()[1]
        raise AssertionError((self.folder / "stderr").read_text()[-2000:])

    def close(self) -> None:
        try:
            self.process.communicate(timeout=60)
        finally:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """With a token, since its ports are open to the network while it lasts."""
    folder = tmp_path_factory.mktemp("cluster")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    cluster = RayCluster(folder, {**os.environ, **token})
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tiny") / "tiny.toml"
    path.write_text(TINY)
    return str(path)


@pytest.fixture(scope="module")
def expected(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the sweep writes on one machine."""
    out = tmp_path_factory.mktemp("local")
    subprocess.run([sys.executable, "-m", "xtx.cli", "sweep", tiny, "--out", str(out)], check=True, timeout=200)
    found = lines(out)
    assert len(found) == 6
    return found


def lines(out: Path) -> dict[str, bytes]:
    found = [path for name in ("metrics", "episodes", "rooms") for path in out.rglob(f"{name}.jsonl")]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def wait_until(holds: Callable[[], object], sweep: subprocess.Popen[str], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert sweep.poll() is None, sweep.communicate()[0]
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)


@contextlib.contextmanager
def sweeping(cluster: RayCluster, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "xtx.cli", "sweep", "--ray", cluster.address, *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=cluster.environment,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def processes(cluster: RayCluster, run: str) -> dict[int, tuple[int, str]]:
    """Those that carry out a run: number, number of the parent, and the node's number."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"resume" in words and words[words.index(b"resume") + 1].endswith(os.fsencode(run)):
                environment = dict(
                    entry.partition(b"=")[::2] for entry in (folder / "environ").read_bytes().split(b"\0")
                )
                if environment.get(b"RAY_AUTH_TOKEN", b"").decode() == cluster.environment["RAY_AUTH_TOKEN"]:
                    parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                    found[int(folder.name)] = parent, environment[b"XTX_TEST_NODE"].decode()
        except OSError:
            continue
    return found


def steps_done(run: Path) -> int:
    """Return the steps of a run according to the sweep's own folder."""
    try:
        return max((int(p.name) for p in (run / "checkpoints").iterdir() if p.name.isdigit()), default=0)
    except OSError:
        return 0


def starts(run: Path) -> int:
    try:
        return len(json.loads((run / "versions.json").read_text()))
    except (OSError, ValueError):
        return 0


@pytest.mark.parametrize("way", ["shared", "brought back"])
def test_a_worker_and_a_node_die(
    way: str, cluster: RayCluster, tiny: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = [tiny, "--out", str(out), *SLOWLY, *(["--bring-back"] * (way != "shared"))]
    runs = [out / "toy-corridor-5" / "drrn" / f"seed-{seed}" for seed in (0, 1)]
    with sweeping(cluster, *words) as sweep:
        wait_until(lambda: all(steps_done(run) > 100 for run in runs), sweep)
        # A worker dies. The other run is held up meanwhile, lest it be finished before its turn comes.
        [(other, (_, node))] = processes(cluster, "drrn/seed-1").items()
        os.kill(other, signal.SIGSTOP)
        [(child, (worker, _))] = processes(cluster, "drrn/seed-0").items()
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: any(number != child for number in processes(cluster, "drrn/seed-0")), sweep)
        wait_until(lambda: starts(runs[0]) == 2, sweep)
        # The node that has the other run dies.
        assert 100 < steps_done(runs[1]) < STEPS
        os.kill(other, signal.SIGCONT)
        cluster.tell(f"end {node}", "ended")
        said, _ = sweep.communicate(timeout=200)
    assert sweep.returncode == 0, said
    assert "seed-0 failed and is tried again" in said
    assert "seed-1 failed and is tried again" in said
    assert lines(out) == expected
    for run in runs:  # they went on and did not begin anew: their first steps were done once
        assert starts(run) >= 2
        assert len([line for line in (run / "timing.jsonl").read_text().splitlines() if '"step":40,' in line]) == 1
        assert len(list((run / "checkpoints").glob("0*"))) <= 2
    cluster.tell("add", "added")


def test_ctrl_c_and_kill_9_of_the_sweep(
    cluster: RayCluster, tiny: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """Runs stop and are brought back, nothing is left behind, and the same command goes on."""
    out = tmp_path / "out"
    run = out / "toy-corridor-5" / "drrn" / "seed-0"
    words = (tiny, "--out", str(out), "--bring-back")
    with sweeping(cluster, *words, *SLOWLY, "--cpus", "0.6") as sweep:
        wait_until(lambda: steps_done(run) > 100, sweep)
        sweep.send_signal(signal.SIGINT)
        said, _ = sweep.communicate(timeout=100)
    assert sweep.returncode == 130, said
    assert "stopped and saved; go on with the same command" in said
    assert 100 < steps_done(run) < STEPS
    assert not processes(cluster, "drrn/seed-0")
    # Now the sweep itself is killed: its runs end with it.
    stopped_at = steps_done(run)
    with sweeping(cluster, *words, *SLOWLY) as sweep:
        wait_until(lambda: steps_done(run) > stopped_at, sweep)
        sweep.kill()
        until = time.monotonic() + 60
        while processes(cluster, "drrn/seed-0") or processes(cluster, "drrn/seed-1"):
            assert time.monotonic() < until, "the runs outlive their sweep"
            time.sleep(0.1)
    with sweeping(cluster, *words) as sweep:
        said, _ = sweep.communicate(timeout=200)
    assert sweep.returncode == 0, said
    assert lines(out) == expected


def test_no_cluster_at_the_address(tiny: str, cluster: RayCluster, tmp_path: Path) -> None:
    def complaint(address: str, **environment: str) -> str:
        words = [sys.executable, "-m", "xtx.cli", "sweep", tiny, "--ray", address, "--out", str(tmp_path / "out")]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**cluster.environment, **environment}, timeout=100, check=False
        )
        assert done.returncode == 2
        return done.stderr.splitlines()[-1]

    assert complaint("ray://here:1").startswith("xtx: --ray ray://here:1: on a machine of the cluster")
    assert complaint("127.0.0.1:1").startswith("xtx: there is no Ray cluster at 127.0.0.1:1 that lets us in")
    assert "that lets us in" in complaint(cluster.address, RAY_AUTH_TOKEN="f" * 64)
