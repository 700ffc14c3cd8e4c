"""Processes that end for reasons outside the story: the command that was being tried is not forbidden."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from vectors import HANG, LOW_WATER, Walk, random_walk, vector

from xtx.games.actions.search import Findings
from xtx.games.atlas.store import DEADLY, UNPROVEN, Atlas
from xtx.games.story_game import NO_ANSWER, GameSpec
from xtx.games.vector.game_vector import GameVector
from xtx.games.vector.worker_client import Phase, WorkerClient


def strike_while_trying(games: GameVector, command: bytes, strike: Callable[[int], None]) -> threading.Thread:
    """Does something to the first worker as soon as it tries a command."""
    remote = games._pool.remotes[0]

    def wait() -> None:
        before, end = remote.page.trace.progress, time.monotonic() + 30
        while time.monotonic() < end:
            if remote.page.trace.progress > before and remote.page.trace.command == command:
                assert remote.process is not None
                strike(remote.process.pid)
                return
            time.sleep(0.001)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def signalled(number: signal.Signals) -> Callable[[int], None]:
    return lambda pid: os.kill(pid, number)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGFPE, signal.SIGKILL])
def test_a_signal_from_outside_forbids_nothing(number: signal.Signals, tmp_path: Path) -> None:
    lines: list[str] = []
    spec = GameSpec(HANG, search=False, atlas=str(tmp_path / "atlas"))
    with vector(spec, 1, 1, on_report=lines.append) as games:
        games.reset()
        thread = strike_while_trying(games, b"spin", signalled(number))  # about a second of instructions
        [step] = games.step(["spin"])
        thread.join()
        assert "stop" in step.observation.text
        assert games.forbidden == []
        assert [s.reward for s in games.step(["take coin"])] == [1]
    assert len(lines) == 1 and number.name in lines[0] and "nothing is lost" in lines[0]
    assert ("'spin' is not the cause" in lines[0]) == (number is not signal.SIGKILL)


def test_a_command_that_kills_is_forbidden_after_it_did_so_alone() -> None:
    lines: list[str] = []
    with vector(GameSpec(HANG, search=False), 2, 1, on_report=lines.append) as games:
        games.reset()
        steps = games.step(["take coin", "burst"])
        assert steps[0].reward == 1 and steps[1].observation.text == NO_ANSWER
        assert [verdict[1:] for verdict in games.forbidden] == [("burst", True)]
    assert len(lines) == 1 and "'burst' is forbidden" in lines[0]


def test_a_command_that_kills_in_another_spelling_is_forbidden() -> None:
    with vector(GameSpec(HANG, search=False), 1, 1) as games:  # the emulator is given a blank for the backslash
        games.reset()
        assert games.step(["burst\\"])[0].observation.text == NO_ANSWER
        assert [verdict[1:] for verdict in games.forbidden] == [("burst\\", True)]


def test_a_command_that_kills_costs_itself_where_the_score_is_printed(tmp_path: Path) -> None:
    shutil.copy(HANG, tmp_path)
    profile = json.loads(Path(HANG).with_suffix(".json").read_text())
    profile |= {"score": None, "printed_score": r"scored (\d+)"}
    (tmp_path / "hang.json").write_text(json.dumps(profile))
    with vector(GameSpec(str(tmp_path / "hang.z5"), search=False), 1, 1) as games:
        games.reset()
        assert [one.reward for one in games.step(["take coin"])] == [1]
        assert games.step(["burst"])[0].observation.text == NO_ANSWER
        assert [verdict[1:] for verdict in games.forbidden] == [("burst", True)]


def strike_at(games: GameVector, command: bytes, is_time: Callable[[WorkerClient], bool]) -> None:
    """Does so every time that the first worker tries the command, if it is time."""
    remote = games._pool.remotes[0]

    def wait() -> None:
        struck, end = 0, time.monotonic() + 60
        while not games._closed and time.monotonic() < end:
            process = remote.process
            is_trying = remote.page.trace.command == command and remote.page.trace.progress > remote.page.start
            if process is not None and process.pid != struck and is_trying and is_time(remote):
                struck = process.pid
                with contextlib.suppress(ProcessLookupError):
                    os.kill(struck, signal.SIGSEGV)
            time.sleep(0.001)

    threading.Thread(target=wait, daemon=True).start()


def test_a_command_at_which_workers_are_lost_again_and_again_is_forbidden_in_this_run_only(tmp_path: Path) -> None:
    """The cause may be what a process did before, so it does no harm alone."""
    lines: list[str] = []
    spec = GameSpec(HANG, atlas=str(tmp_path / "atlas"))
    with vector(spec, 1, 1, on_report=lines.append) as games:
        games.reset()
        strike_at(games, b"spin", lambda remote: remote.phase is Phase.WORK)
        [step] = games.step(["spin"])
        assert step.observation.text == NO_ANSWER and not step.terminated
        [(_, action, deadly)] = games.forbidden
        assert (action, deadly) == ("spin", True)
        assert [s.reward for s in games.step(["take coin"])] == [1]
    assert len(lines) == 1 and "though not when it was tried alone" in lines[0]
    with Atlas(tmp_path / "atlas") as atlas:
        assert not [key for key in atlas.read_entries() if key.startswith(DEADLY) and len(key) == 17]


def test_a_worker_that_is_lost_while_a_game_is_brought_back_says_nothing_of_the_suspect() -> None:
    lines: list[str] = []
    with vector(GameSpec(HANG, search=False), 1, 1, on_report=lines.append) as games:
        games.reset()
        games.step(["spin"])
        games.step(["wait"])
        kinds: list[bool] = []

        def is_time(remote: WorkerClient) -> bool:
            if len(kinds) < 2 and remote.phase is (Phase.TRY if kinds else Phase.WORK):
                kinds.append(bool(remote.page.rebuilding))
                return True
            return False

        strike_at(games, b"spin", is_time)
        [step] = games.step(["spin"])
        assert kinds == [False, True]
        assert "stop" in step.observation.text and games.forbidden == []


def disturb(games: GameVector, number: int) -> None:
    """Ends or starves a worker, every time in another way, at some moment of the next step."""
    if number % 3 or not games.pids:
        return
    pid = games.pids[number % len(games.pids)]
    ways: tuple[Callable[[], None], ...] = (
        lambda: os.kill(pid, signal.SIGSEGV),
        lambda: os.kill(pid, signal.SIGKILL),
        lambda: os.kill(pid, signal.SIGBUS),
        lambda: resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20)),
    )

    def later() -> None:
        time.sleep(0.003 * (number % 7))
        with contextlib.suppress(ProcessLookupError):
            ways[number // 3 % len(ways)]()

    threading.Thread(target=later).start()


def undisturbed(spec: GameSpec) -> Walk:
    with vector(spec, 2, 2) as games:
        return random_walk(games, 24, seed=3)


def test_a_disturbed_run_sees_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    here = GameSpec(LOW_WATER, atlas=str(tmp_path / "here"))
    there = GameSpec(LOW_WATER, atlas=str(tmp_path / "there"))
    expected = undisturbed(here)
    with vector(there, 2, 2) as games:
        walk = random_walk(games, 24, seed=3, before=lambda number: disturb(games, number))
        assert games.forbidden == []
    assert walk == expected
    with Atlas(tmp_path / "there") as atlas:
        assert not [key for key in atlas.read_entries() if len(key) == 17]
    assert undisturbed(there) == expected  # a later run with the same atlas


# --- verdicts of earlier versions -----------------------------------------------------------------------------------


def test_verdicts_without_proof_are_checked_when_they_are_met(tmp_path: Path) -> None:
    spec = GameSpec(HANG, atlas=str(tmp_path / "atlas"), engine="jericho")  # which runs what kills
    with vector(spec, 1, 1) as games:
        [expected] = games.reset()
    assert "take coin" in expected.actions
    with Atlas(tmp_path / "atlas") as atlas:  # as an earlier version would have left it, with an innocent command
        [proven] = [key for key in atlas.read_entries() if key.startswith(DEADLY) and len(key) == 17]
        key = proven.removeprefix(DEADLY)
        found = msgspec.msgpack.decode(atlas.get(key) or b"", type=Findings)
        poorer = msgspec.structs.replace(found, actions=tuple(a for a in found.actions if a != "take coin"))
        both = msgspec.msgpack.encode(["burst", "take coin"])
        atlas.update(lambda _: {proven: None, UNPROVEN + key: both, key: msgspec.msgpack.encode(poorer)})
    with vector(spec, 1, 1) as games:
        assert games.reset() == [expected]
    with Atlas(tmp_path / "atlas") as atlas:
        assert msgspec.msgpack.decode(atlas.get(proven) or b"") == ["burst"]
        assert atlas.get(UNPROVEN + key) is None


def test_verdicts_that_a_run_brings_along_stay_with_it(tmp_path: Path) -> None:
    with vector(GameSpec(HANG), 1, 1) as games:
        [first] = games.reset()
        here = games._slots[0].here.hex()
    spec = GameSpec(HANG, atlas=str(tmp_path / "atlas"))
    with vector(spec, 1, 1, forbidden=[(here, "take coin", True)]) as games:
        [seen] = games.reset()
        assert "take coin" in first.actions and "take coin" not in seen.actions
    with vector(spec, 1, 1) as games:
        assert games.reset() == [first]
