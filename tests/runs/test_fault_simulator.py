"""A run survives simulated faults of disk and process: 300 schedules, and proofs that the simulator would notice."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from fault_simulator import Crash, Fault, SimulatedCalls, Simulation

import xtx.files.atomic_writes
import xtx.runs.checkpoint_file
import xtx.runs.run_folder
from xtx.core import UserError
from xtx.files import system_calls
from xtx.files.atomic_writes import write_user_file

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    return Simulation(tmp_path_factory.mktemp("schedules"))


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_a_run_survives_faults(first: int, simulation: Simulation) -> None:
    for seed in range(first, first + 50):
        simulation.play(seed)


@pytest.mark.parametrize("seed", [4, 6])
def test_a_run_survives_faults_of_its_workers_too(seed: int, simulation: Simulation) -> None:
    simulation.play_with_workers(seed)


def test_a_schedule_is_replayed_exactly(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path)
    told = [simulation.play(seed) for seed in (7, 8, 7, 8)]
    assert told[:2] == told[2:] and told[0] != told[1]


# --- the simulator notices what is wrong --------------------------------------------------------------------------


def fails(simulation: Simulation, seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            simulation.play(seed)
        except AssertionError as error:
            yield str(error)


def test_lines_that_are_not_synced_are_noticed(tmp_path: Path) -> None:
    """Without the sync of files, checkpoints can outlive the lines that they count."""
    with mock.patch.object(SimulatedCalls, "sync", lambda calls, descriptor: None):
        assert any("refused although there is a checkpoint" in line for line in fails(Simulation(tmp_path), range(40)))


def test_a_checkpoint_written_in_place_is_noticed(tmp_path: Path) -> None:
    def write_in_place(path: Path, *pieces: bytes) -> None:
        with xtx.files.atomic_writes.create_file(path) as file:
            file.writelines(pieces)

    with mock.patch.object(xtx.runs.checkpoint_file, "write_atomically", write_in_place):
        assert any("refused although there is a checkpoint" in line for line in fails(Simulation(tmp_path), range(40)))


def test_lines_that_are_not_cut_back_are_noticed(tmp_path: Path) -> None:
    with mock.patch.object(xtx.runs.run_folder.Run, "_cut_lines", lambda run: None):
        assert any("differs from the undisturbed run" in line for line in fails(Simulation(tmp_path), range(20)))


def test_a_traceback_is_noticed(tmp_path: Path) -> None:
    with mock.patch("xtx.files.user_paths.DISK_TROUBLE", (errno.ENOSPC,)):
        assert any("OSError" in line for line in fails(Simulation(tmp_path), range(20)))


# --- single files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["kill", "power", "error"])
def test_a_file_is_the_old_or_the_new_one(kind: str, tmp_path: Path) -> None:
    """`write_user_file` of games, with which saved games, profiles and packed atlases are written."""
    old, new, target = b"old" * 1000, b"new" * 5000, tmp_path / "file"
    seen = set()
    for seed in range(120):
        target.write_bytes(old)
        fault = Fault(kind, seed % 8, errno.ENOSPC)
        calls = SimulatedCalls(tmp_path, fault, random.Random(seed))
        with mock.patch.object(system_calls, "current", calls):
            try:
                write_user_file(target, new)
                outcome = "written"
            except Crash:
                outcome = "crashed"
            except UserError as error:
                outcome = "refused"
                assert os.strerror(errno.ENOSPC) in str(error)
            finally:
                calls.bury()
        if calls.crashed and kind == "power":
            calls.lose_power()
        content = target.read_bytes()
        assert content == new if outcome == "written" else content in (old, new)
        if outcome == "refused":
            assert content == old and list(tmp_path.iterdir()) == [target]
        seen.add((outcome, content == new))
        for left in tmp_path.glob(".writing-*"):
            left.unlink()
    assert len(seen) >= 2


def test_the_calls_themselves(tmp_path: Path) -> None:
    """What the simulator stands in for does what the system calls do."""
    calls = system_calls.FileCalls()
    calls.make_folder(tmp_path / "folder")
    calls.make_folder(tmp_path / "folder")
    path, other = tmp_path / "folder" / "a", tmp_path / "folder" / "b"
    with calls.stream(calls.open(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.write(b"content")
        file.flush()
        calls.sync(file.fileno())
        calls.truncate(file.fileno(), 4)
    calls.link(path, other)
    calls.unlink(path)
    calls.rename(other, path)
    assert path.read_bytes() == b"cont" and not other.exists()
    calls.unlink(other, missing_ok=True)
    with pytest.raises(FileNotFoundError):
        calls.unlink(other)
    with pytest.raises(FileExistsError):
        calls.make_folder(path)
