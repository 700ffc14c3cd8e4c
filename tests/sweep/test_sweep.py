"""Sweeps with real processes that are stopped, killed, and fail."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from xtx.cli.main import main
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.sweep.run_plan import find_games, make_plan
from xtx.sweep.sweep_file import SweepSpec
from xtx.sweep.sweep_folder import create_run_folder, is_held
from xtx.terminal.shell_command import format_command

TINY = """
games = ["toy:corridor-5"]
agents = ["drrn"]
seeds = [0, 1]
steps = STEPS
log_every = 5
[settings.drrn]
text = { vocabulary = 128, longest = 64 }
q = { hidden = 16, batch_size = 16, target_every = 20 }
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[[int], str]:
    def write(steps: int) -> str:
        path = tmp_path / f"tiny-{steps}.toml"
        path.write_text(TINY.replace("STEPS", str(steps)))
        return str(path)

    return write


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "xtx.cli", "sweep", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def sweep(*words: str, status: int = 0, **environment: str) -> str:
    process = start(*words, **environment)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == status, out
    return out


def wait_until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def lines(out: Path) -> dict[str, bytes]:
    found = [path for name in ("metrics", "episodes", "rooms") for path in out.rglob(f"{name}.jsonl")]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def begun(out: Path) -> list[Path]:
    """Runs that are well on their way."""
    return [path.parent for path in out.rglob("metrics.jsonl") if path.stat().st_size > 1000]


def processes(out: Path) -> list[int]:
    """Those that carry out runs in a folder."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"resume" in words and any(word.startswith(os.fsencode(out)) for word in words):
                found.append(int(folder.name))
    return found


def test_runs_are_those_of_xtx_train_and_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--games", "toy:corridor-5", "--agents", "random", "--steps", "800", "--seeds", "0", "3"]
    out = tmp_path / "runs"
    assert main([*words, "--out", str(out), "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "2 runs: 2 finished; 1,600 of 1,600 steps" in said
    assert f"xtx report {out}" in said
    plain = ["train", "toy:corridor-5", "--agent", "random", "--actions", "templates", "--seed", "3", "--steps", "800"]
    means = ["--threads", "1", "--workers", "1", "--device", "cpu", "--quiet"]  # as sweeps have it
    assert main([*plain, *means, "--out", str(tmp_path / "plain")]) == 0
    made = out / "toy-corridor-5" / "random" / "seed-3"
    for name in ("metrics.jsonl", "episodes.jsonl", "rooms.jsonl", "config.json"):
        assert (made / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    # Once more, with another seed: what is there is not made again, not even without its checkpoints.
    before = (made / "versions.json").read_bytes()
    for checkpoint in list_checkpoints(made):
        checkpoint.unlink()
    assert main([*words, "4", "--out", str(out)]) == 0
    assert "3 runs: 3 finished" in capsys.readouterr().out
    assert (made / "versions.json").read_bytes() == before
    # Reports find all of them, and other settings are refused.
    assert main(["report", str(out), "--out", str(tmp_path / "r.md"), "--no-walkthroughs"]) == 0
    assert "3 runs in" in capsys.readouterr().out
    assert main([*words, "--steps", "900", "--out", str(out)]) == 2
    assert "is another run (its steps: 800, not 900); give another --out" in capsys.readouterr().err
    assert main([*words, "--out", str(out), "--threads", "2"]) == 2
    assert "have --threads 1; give that, or another --out" in capsys.readouterr().err


def test_a_sweep_of_an_earlier_version_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its runs keep the settings that they were begun with, and finished ones stay finished."""
    words = ["sweep", "--games", "toy:corridor-5", "--agents", "xtx-fast", "--small", "--steps", "80"]
    spec = SweepSpec(games=("toy:corridor-5",), agents=("xtx-fast",), small=True, steps=80)
    [planned] = make_plan(spec, find_games(spec.games))
    config = planned.earlier[0]
    assert config != planned.config
    made = tmp_path / planned.folder
    create_run_folder(made, config)
    text = (made / "config.json").read_text().replace('"known": 0.0', '"bfloat16": false').replace("num_envs", "games")
    (made / "config.json").write_text(text)
    for _ in range(2):
        assert main([*words, "--out", str(tmp_path), "--jobs", "1"]) == 0
        assert "1 run: 1 finished" in capsys.readouterr().out
        assert (made / "config.json").read_text() == text


def test_kill_9_of_the_sweep(tmp_path: Path, tiny: Callable[[int], str]) -> None:
    """Its run saves and ends; the next sweep goes on from there, and writes the same lines."""
    out = tmp_path / "killed"
    words = (tiny(3200), "--checkpoint-seconds", "1000", "--out", str(out))
    first = start(*words, "--jobs", "1")
    wait_until(lambda: begun(out))
    assert len(processes(out)) == 1
    first.kill()
    first.communicate()
    wait_until(lambda: not processes(out))
    [path] = begun(out)
    [checkpoint] = list_checkpoints(path)  # there was none before: nothing of what it did is lost
    assert 0 < int(checkpoint.name) < 3200
    assert "2 runs: 2 finished" in sweep(*words, "--jobs", "2")
    sweep(words[0], "--out", str(tmp_path / "plain"), "--jobs", "1")
    assert lines(out) == lines(tmp_path / "plain")
    assert len(lines(out)) == 6


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path: Path, tiny: Callable[[int], str]) -> None:
    out = tmp_path / "out"
    words = (tiny(64_000), "--jobs", "1", "--out", str(out))
    process = start(*words)
    wait_until(lambda: begun(out))
    other = sweep(*words, status=2)
    assert other == f"xtx: another sweep works on {out}; wait for it, or end it first\n"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "asking the runs to save and stop" in said
    assert f"stopped and saved; go on with the same command:\n  {format_command('sweep', *words)}" in said
    [path] = begun(out)
    [checkpoint] = list_checkpoints(path)
    assert 0 < int(checkpoint.name) < 64_000
    assert not processes(out)
    planned = sweep(*words, "--dry-run")
    assert f"goes on from {int(checkpoint.name):,}" in planned
    assert planned.count("new\n") == 1


def test_a_run_of_another_process_is_waited_for(tmp_path: Path, tiny: Callable[[int], str]) -> None:
    out = tmp_path / "out"
    words = (tiny(400), "--out", str(out))
    sweep(*words, "--seeds", "0")
    held = out / "toy-corridor-5" / "drrn" / "seed-1"
    held.mkdir()
    with (held / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_held(held)
        process = start(*words)
        assert process.stdout is not None
        said = ""
        while "another process works on it" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        assert process.poll() is None
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "2 runs: 2 finished" in rest
    assert not is_held(held)


# --- runs that fail -------------------------------------------------------------------------------------------------

FRAGILE = """
import os
from pathlib import Path

from xtx.core import Agent, Decision, UserError


class Fragile(Agent):
    # An agent of the user's own that fails as often as the folder it is given says.
    def __init__(self, settings, brief):
        super().__init__(settings, brief)
        self.steps = 0

    def act(self, observations):
        self.steps += 1
        folder = Path(os.environ["FRAGILE"])
        left = len(list(folder.iterdir()))
        if self.steps == 20 and left:
            sorted(folder.iterdir())[0].unlink()
            if os.environ.get("FRAGILE_HOW") == "kill":
                os.kill(os.getpid(), 9)
            if os.environ.get("FRAGILE_HOW") == "user":
                raise UserError("this cannot be mended by trying again")
            raise RuntimeError("something broke in the agent")
        return [Decision(o.actions[self.steps % len(o.actions)]) for o in observations]

    def state(self):
        return {"steps": self.steps}

    def load(self, state):
        self.steps = state["steps"]
"""


@pytest.fixture
def fragile(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Gives the surroundings of a sweep in which the agent `fragile` fails so many times."""
    site = tmp_path / "site"
    about = site / "fragile-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "fragile_agent.py").write_text(FRAGILE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fragile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[xtx.agents]\nfragile = fragile_agent:Fragile\n")

    def environment(times: int, how: str = "") -> dict[str, str]:
        folder = tmp_path / "times"
        folder.mkdir(exist_ok=True)
        for number in range(times):
            (folder / str(number)).touch()
        return {"PYTHONPATH": str(site), "FRAGILE": str(folder), "FRAGILE_HOW": how}

    return environment


FRAGILE_SWEEP = ("--games", "toy:corridor-5", "--agents", "fragile", "--steps", "400", "--jobs", "1")


@pytest.mark.parametrize("how", ["", "kill"])
def test_a_run_that_fails_is_tried_again(how: str, tmp_path: Path, fragile: Callable[..., dict[str, str]]) -> None:
    said = sweep(*FRAGILE_SWEEP, "--out", str(tmp_path / "out"), **fragile(2, how))
    assert said.count("fragile/seed-0 failed and is tried again") == 2
    assert ("died of SIGKILL" if how else "ended with status 1") in said
    assert "1 run: 1 finished" in said
    sweep(*FRAGILE_SWEEP, "--out", str(tmp_path / "plain"), **fragile(0))
    assert lines(tmp_path / "out") == lines(tmp_path / "plain")


def test_a_run_that_keeps_failing_is_reported(tmp_path: Path, fragile: Callable[..., dict[str, str]]) -> None:
    out = tmp_path / "out"
    words = (*FRAGILE_SWEEP, "--retries", "1", "--out", str(out))
    said = sweep(*words, "--agents", "fragile", "random", status=1, **fragile(3))
    assert "2 runs: 1 failed, 1 finished" in said
    assert "fragile/seed-0 failed and is given up" in said
    end = said[said.index("seed-0 failed: ended with status 1") :]
    assert "    RuntimeError: something broke in the agent\n" in end
    assert f"retry them with the same command:\n  {format_command('sweep', *words)}" in end
    # The same command: one failure is left, and then it is through.
    assert "1 run: 1 finished" in sweep(*words, **fragile(0))


def test_what_trying_again_cannot_mend_is_not_tried(tmp_path: Path, fragile: Callable[..., dict[str, str]]) -> None:
    said = sweep(*FRAGILE_SWEEP, "--out", str(tmp_path / "out"), status=1, **fragile(9, "user"))
    assert "tried again:" not in said
    assert re.search(r"given up: xtx: this cannot be mended by trying again", said)


def test_second_ctrl_c_ends_at_once(tmp_path: Path, tiny: Callable[[int], str]) -> None:
    out = tmp_path / "out"
    process = start(tiny(64_000), "--jobs", "1", "--out", str(out))
    wait_until(lambda: begun(out))
    [child] = processes(out)
    os.kill(child, signal.SIGSTOP)  # it does not answer
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert not processes(out)


def test_words(tmp_path: Path) -> None:
    from xtx.sweep.run_process import SweepRunResources

    def options(words: Sequence[str]) -> dict[str, str]:
        return dict(zip(words[::2], words[1::2], strict=False))

    means = SweepRunResources(processors=8, atlas="/a")
    assert options([w for w in means.build_options(num_envs=8) if w != "--quiet"])["--workers"] == "8"
    alone = options([w for w in means.build_options(num_envs=1) if w != "--quiet"])
    assert alone["--search-threads"] == "4"
    assert alone["--threads"] == "1"
    assert alone["--atlas"] == "/a"
    shared = options(
        [w for w in SweepRunResources(device="cuda", processors=2).build_options(num_envs=8) if w != "--quiet"]
    )
    assert (shared["--workers"], shared["--search-threads"]) == ("8", "1")
    own = options(
        [w for w in SweepRunResources(device="cuda", processors=16).build_options(num_envs=8) if w != "--quiet"]
    )
    assert (own["--workers"], own["--search-threads"]) == ("8", "12")
    assert {words["--tie-workers"] for words in (alone, shared, own)} == {"off"}
    assert (alone["--look-ahead"], shared["--look-ahead"], own["--look-ahead"]) == ("on", "off", "on")
