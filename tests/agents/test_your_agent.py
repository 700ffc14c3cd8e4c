"""The agent in docs/your-agent.md, installed as a package of its own, as its reader would."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

DOC = (Path(__file__).parents[2] / "docs" / "your-agent.md").read_text()


def block(language: str) -> str:
    """The code block of the page."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the agent in it, as `pip install` would leave it."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads(block("toml"))["project"]
    (folder / "my_agent.py").write_text(block("python"))
    about = folder / "my_agent-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]["xtx.agents"]
    (about / "entry_points.txt").write_text("[xtx.agents]\n" + "".join(f"{n} = {p}\n" for n, p in points.items()))
    return folder


def surroundings(site: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}


def xtx(site: Path, *words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "xtx.cli", *words], capture_output=True, text=True, check=False, env=surroundings(site)
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def train(out: Path, steps: int) -> list[str]:
    words = [
        "train",
        "toy:corridor-5",
        "--agent",
        "mine",
        "--epsilon",
        "0.05",
        "--steps",
        str(steps),
        "--out",
        str(out),
    ]
    return [*words, "--workers", "1", "--threads", "1", "--quiet", "--log-every", "10"]


def test_it_is_short() -> None:
    assert len(block("python").splitlines()) < 40


@pytest.fixture(scope="module")
def trained(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert re.search(r"best episode .* 10 of 10 points", xtx(site, *train(out, 6000)))
    return out


def test_it_learns_and_can_be_evaluated(site: Path, trained: Path) -> None:
    assert json.loads((trained / "config.json").read_text())["settings"] == {"epsilon": 0.05}
    assert json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])["entries"] > 5
    assert "Avg     10.00 ± 0.00 of 10" in xtx(site, "evaluate", str(trained), "--greedy", "--workers", "1")
    assert json.loads((trained / "evaluation.json").read_text())["figures"]["ended"]["won"] == 1
    assert "won: 10 of 10 points" in xtx(site, "play", "--agent", str(trained))


def test_it_resumes_exactly(site: Path, trained: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    words = [sys.executable, "-m", "xtx.cli", *train(cut, 6000), "--checkpoint-seconds", "0.05"]
    with subprocess.Popen(words, env=surroundings(site), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not list((cut / "checkpoints").glob("0*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    xtx(site, "resume", str(cut), "--workers", "1", "--threads", "1", "--quiet")
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert (cut / name).read_bytes() == (trained / name).read_bytes()


def test_without_its_package_it_is_missed_in_one_line(trained: Path, tmp_path: Path) -> None:
    said = xtx(tmp_path, "evaluate", str(trained), status=2)
    assert said.startswith("xtx: there is no agent called 'mine'")
    assert said.count("\n") == 1
