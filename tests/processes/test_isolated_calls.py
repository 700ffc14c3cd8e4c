"""Calls in child processes, which may crash; and the commands that use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from vectors import HANG, LOW_WATER, gone

from xtx.cli.main import main
from xtx.core import UserError
from xtx.games.catalog.known_games import find_default_game, find_story, locate_found_profile
from xtx.games.discovery import isolated_discovery
from xtx.games.discovery.isolated_discovery import describe_story
from xtx.processes.isolated_calls import (
    CallEvent,
    ChildCall,
    Failed,
    Finished,
    Progressed,
    Report,
    call_in_child,
    run_in_children,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def this_module_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that it has in this process, whatever pytest calls it."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests/processes"), str(ROOT / "tests/games/vector")])
    )
    for function in (count_to, die_of, refuse, send_hostile, sleep_for, sleep_after_progress):
        monkeypatch.setattr(function, "__module__", "test_isolated_calls")


def count_to(report: Report, number: int) -> int:
    for i in range(number):
        report(i + 1, number)
    return os.getpid()


def die_of(report: Report, number: int) -> None:
    os.kill(os.getpid(), number)


def refuse(report: Report) -> None:
    raise UserError("this cannot be done")


def sleep_for(report: Report, seconds: float) -> int:
    report(os.getpid(), 0)
    time.sleep(seconds)
    return os.getpid()


def test_a_call_in_a_process_of_its_own() -> None:
    assert call_in_child(count_to, 2, name="x") != os.getpid()
    with pytest.raises(UserError, match="this cannot be done"):
        call_in_child(refuse, name="x")
    with pytest.raises(UserError, match=r"zork: the emulator's process died of SIGSEGV"):
        call_in_child(die_of, signal.SIGSEGV, name="zork")
    with pytest.raises(UserError, match=r"zork: the emulator showed no sign of life for 1 s"):
        call_in_child(sleep_for, 60, name="zork", patience=1.0)


def test_one_that_dies_costs_itself_only() -> None:
    calls = [
        ChildCall(count_to, (3,), "a"), ChildCall(die_of, (signal.SIGBUS,), "b"), ChildCall(refuse, (), "c"),
        ChildCall(count_to, (1,), "d"),
    ]  # fmt: skip
    events: list[CallEvent] = list(run_in_children(calls, 2))
    assert sorted(e.number for e in events if isinstance(e, Finished)) == [0, 3]
    assert sorted(e.number for e in events if isinstance(e, Failed)) == [1, 2]
    assert [e.done for e in events if isinstance(e, Progressed) and e.number == 0] == [1, 2, 3]


def test_closing_the_iterator_ends_all_processes() -> None:
    events = run_in_children([ChildCall(sleep_for, (60.0,), "x")] * 2, 2)
    pids = [event.done for event in (next(events), next(events)) if isinstance(event, Progressed)]
    assert len(pids) == 2
    events.close()  # type: ignore[attr-defined]
    assert gone(pids)


# --- commands -------------------------------------------------------------------------------------------------------


def test_a_game_that_dies_has_a_row_and_the_others_too(capsys: pytest.CaptureFixture[str]) -> None:
    """The plain search of the test story tries a command that ends the process."""
    assert main(["games", "check", HANG, LOW_WATER, "--limit", "2", "--no-atlas", "--search", "jericho"]) == 2
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[:1]] == ["game"]
    [dead] = [row for row in rows if row.startswith("hang")]
    [good] = [row for row in rows if row.startswith("lowwater")]
    assert "died of SIGSEGV" in dead and "100.0 %" in good


def test_a_single_game_that_dies_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games", "check", HANG, "--limit", "2", "--no-atlas", "--search", "jericho"]) == 2
    captured = capsys.readouterr()
    assert "died of SIGSEGV" in captured.err and captured.err.count("\n") == 1


def test_ctrl_c_ends_a_check_at_once() -> None:
    program = "import sys; from xtx.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "games", "check", LOW_WATER, LOW_WATER, "--no-atlas"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(children.read_text().split()) < 2:
        time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in errors
    assert time.monotonic() - began < 5


@dataclass(frozen=True)
class Hostile:
    """Its pickled form calls `os.mkdir` in the process that reads it."""

    path: str

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def send_hostile(report: Report, path: str) -> Hostile:
    return Hostile(path)


def test_a_result_cannot_make_the_parent_call_anything(tmp_path: Path) -> None:
    """A child ran a story, which may have overwritten its memory."""
    with pytest.raises(UserError, match=r"sent a damaged result.*mkdir"):
        call_in_child(send_hostile, str(tmp_path / "made"), name="story")
    assert not (tmp_path / "made").exists()


# --- discovery ------------------------------------------------------------------------------------------------------


def test_a_discovery_shows_signs_of_life_and_falls_back_on_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = find_story(find_default_game()).content
    (tmp_path / "stranger.z5").write_bytes(known[:0x12] + b"000001" + known[0x18:])
    story = find_story(str(tmp_path / "stranger.z5"))
    shares: list[float] = []
    monkeypatch.setattr(isolated_discovery, "PATIENCE", 5.0)
    monkeypatch.setattr(isolated_discovery, "discover_file", sleep_after_progress)
    profile = describe_story(story, lambda share, stage: shares.append(share)).profile
    assert profile is not None and not profile.is_bare and not profile.has_score
    assert "no sign of life" in profile.findings[-1].how
    assert len(shares) > 3, "it is told once a second, also while nothing comes"
    assert not locate_found_profile(story.md5).exists(), "what comes of an accident is not kept"


def sleep_after_progress(report: Report, path: str) -> bytes:
    """A discovery that hangs."""
    report(50, 100)
    time.sleep(60)
    return b""
