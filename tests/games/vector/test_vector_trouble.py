"""The game vector with stories that hang or crash, and workers without a parent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from vectors import HANG, TOY, alive, gone, vector

from xtx.games.atlas.store import DEADLY, Atlas
from xtx.games.canonical.canonical_state import Layout
from xtx.games.story_game import NO_ANSWER, GameSpec
from xtx.games.vector.forbidden_actions import ForbiddenActions

# --- misbehaving stories --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_story_that_hangs_crashes_and_kills(workers: int) -> None:
    lines: list[str] = []
    spec = GameSpec(HANG, search=False)
    with vector(spec, 5, workers, on_report=lines.append) as games:
        games.reset()
        steps = games.step(["hang", "burst", "crash", "spin", "take coin"])
        texts = [s.observation.text for s in steps]
        assert texts[:2] == [NO_ANSWER, NO_ANSWER]
        assert "stop" in texts[3] and "score" in texts[4]
        assert [s.terminated for s in steps] == [False, False, True, False, False]
        assert [s.reward for s in steps] == [0, 0, 0, 0, 1]
        assert sorted(verdict[1:] for verdict in games.forbidden) == [("burst", True), ("hang", False)]
        # The episodes go on, and games that never tried it know the verdict: no process dies of it again.
        before = games.pids
        games.reset([2])
        steps = games.step(["take coin", "take coin", "burst", "down", "down"])
        assert [s.reward for s in steps] == [1, 1, 0, 0, 0]
        assert steps[2].observation.text == NO_ANSWER
        assert games.pids == before
        assert [s.observation.step for s in steps] == [2, 2, 1, 2, 2]
        # A new worker is brought to the same states without trying again what had no answer.
        for pid in games.pids:
            os.kill(pid, signal.SIGKILL)
        steps = games.step(["down"] * 2 + ["hang"] + ["up"] * 2)
        assert [s.observation.step for s in steps] == [3, 3, 2, 3, 3]
        assert [s.observation.text.split("\n")[0] for s in steps] == ["Cellar", "Cellar", NO_ANSWER, "Hall", "Hall"]
        games.step({4: "down"})
        assert [s.won for s in games.step({4: "north"})] == [True]
    lost = [line for line in lines if "SIGKILL" in line]
    assert len(lost) == workers and len(lines) == workers + 2
    assert sum("SIGSEGV" in line for line in lines) == 1


def test_the_plain_search_survives_words_that_kill_and_remembers_them(tmp_path: Path) -> None:
    """Without the engine, which tries them where they do no harm."""
    atlas = tmp_path / "atlas"
    seen = {}
    for workers, folder in ((1, None), (2, str(atlas)), (1, str(atlas))):
        lines: list[str] = []
        with vector(GameSpec(HANG, atlas=folder, engine="jericho"), 3, workers, on_report=lines.append) as games:
            first = games.pids
            walk = [*games.reset(), *games.step(["take coin", "down", "wait"])]
            seen[workers, folder] = walk
            if len(seen) == 3:  # warm: nobody dies of it again
                assert games.pids == first and not lines
            else:
                assert games.pids != first
                assert {action for _, action, _ in games.forbidden} == {"burst"}
                assert len(games.forbidden) == 3  # in as many states
                forbidden = games.forbidden
        assert len(lines) <= 1
    assert len({str(walk) for walk in seen.values()}) == 1
    assert "take coin" in walk[0].actions and "burst" not in walk[0].actions
    # A run that goes on without its atlas has the verdicts, and does not search with what kills.
    with vector(GameSpec(HANG, engine="jericho"), 1, 1, forbidden=forbidden) as games:
        first = games.pids
        assert games.reset() == walk[:1]
        assert games.pids == first and games.forbidden == forbidden


def test_a_search_loses_no_worker_over_words_that_kill() -> None:
    lines: list[str] = []
    with vector(GameSpec(HANG), 3, 2, on_report=lines.append) as games:
        first = games.pids
        walk = [*games.reset(), *games.step(["take coin", "down", "wait"])]
        assert games.pids == first and not games.forbidden and not lines
    with vector(GameSpec(HANG, engine="jericho"), 3, 2) as games:
        assert walk == [*games.reset(), *games.step(["take coin", "down", "wait"])]
    assert "take coin" in walk[0].actions and "burst" not in walk[0].actions


def test_an_action_that_kills_is_remembered_in_the_atlas(tmp_path: Path) -> None:
    spec = GameSpec(HANG, atlas=str(tmp_path / "atlas"), search=True)
    with vector(spec, 2, 2) as games:
        games.reset()
        # Nothing that a search would try: so it is the step itself that is to blame.
        steps = games.step(["wait. burst", "wait"])
        assert steps[0].observation.text == NO_ANSWER and steps[1].observation.text != NO_ANSWER
        key = bytes.fromhex({action: key for key, action, _ in games.forbidden}["wait. burst"])
    with Atlas(Path(str(spec.atlas))) as atlas:
        assert "wait. burst" in msgspec.msgpack.decode(atlas.get(DEADLY + key) or b"")


def test_words_that_kill_do_not_harm_the_survey_of_a_story(tmp_path: Path) -> None:
    # Without `volatile` in its profile a story's memory is found out by trying: in the engine, which nothing kills.
    shutil.copy(HANG, tmp_path)
    profile = json.loads(Path(HANG).with_suffix(".json").read_text())
    (tmp_path / "hang.json").write_text(json.dumps({**profile, "volatile": []}))
    lines: list[str] = []
    with vector(GameSpec(str(tmp_path / "hang.z5")), 2, 2, on_report=lines.append) as games:
        found = msgspec.msgpack.decode(games.layout, type=Layout)
    # One that no survey comes to: so the second vector made none.
    layout = msgspec.msgpack.encode(msgspec.structs.replace(found, cut_short=("given",)))
    with vector(GameSpec(str(tmp_path / "hang.z5")), 1, 1, layout=layout, on_report=lines.append) as games:
        assert games.layout == layout
    assert not lines


# --- orphans --------------------------------------------------------------------------------------------------------

PARENT = """
import sys, signal
from xtx.games.story_game import GameSpec
from xtx.games.vector.forbidden_actions import ForbiddenActions
from xtx.games.vector.game_vector import GameVector
games = GameVector(GameSpec("toy:trap-6"), 4, 2, patience=60)
games.reset()
print(*games.pids, flush=True)
how = sys.argv[1]
if how == "exception":
    raise RuntimeError("as a test")
if how == "with":
    with games:
        raise RuntimeError("as a test")
if how == "interrupt-in-block":
    with games:
        games.step(["pull lever", "pull lever", "sing", "sing"])
if how == "forgotten":
    del games
    sys.exit(0)
games.step(["pull lever", "pull lever", "sing", "sing"])
"""


@contextmanager
def parent(how: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process with a vector, and its workers' numbers; workers of its last step hang."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(number) for number in process.stdout.readline().split()]
    assert len(pids) == 2
    try:
        yield process, pids
    finally:
        process.kill()
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_no_worker_survives_kill_9_of_its_parent() -> None:
    with parent("hang") as (process, pids):
        time.sleep(0.3)
        assert all(alive(pid) for pid in pids)  # both hang
        process.kill()
        assert gone(pids)


def test_a_stopped_worker_does_not_survive_its_parent() -> None:
    with parent("hang") as (process, pids):
        os.kill(pids[0], signal.SIGSTOP)
        process.kill()
        assert gone(pids)


@pytest.mark.parametrize("how", ["hang", "interrupt-in-block"])
def test_no_worker_survives_ctrl_c(how: str) -> None:
    with parent(how) as (process, pids):
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert gone([*pids], within=10)
        _, errors = process.communicate(timeout=10)
        assert errors.count("KeyboardInterrupt") == 1, errors  # and nothing from the workers


@pytest.mark.parametrize("how", ["exception", "with", "forgotten"])
def test_no_worker_survives_an_exception_or_a_forgotten_vector(how: str) -> None:
    with parent(how) as (process, pids):
        _, errors = process.communicate(timeout=10)
        assert gone(pids)
        assert ("as a test" in errors) == (how != "forgotten")
        assert "Warning" not in errors


def test_workers_do_not_hear_the_terminals_ctrl_c() -> None:
    with vector(TOY, 2, 2) as games:
        games.reset()
        for pid in games.pids:
            assert os.getpgid(pid) != os.getpgid(0)
            os.kill(pid, signal.SIGINT)
        before = games.pids
        games.step(["sing", "sing"])
        assert games.pids == before


# --- known hangs in real games --------------------------------------------------------------------------------------

TO_THE_EGG = [
    "n",
    "e",
    "open window",
    "w",
    "take sack",
    "e",
    "n",
    "n",
    "u",
    "take egg",
    "drop egg",
    "d",
    "take egg",
    "open sack",
    "take lunch",
    "take garlic",
    "take canary",
]


@pytest.mark.roms
@pytest.mark.slow
def test_zork1_survives_a_sack_and_an_egg_inside_each_other(real_story: Callable[[str], Path]) -> None:
    # The emulator itself lets both vanish into each other; programs that walk the object tree go round for ever.
    path = str(real_story("zork1"))
    with vector(GameSpec(path, search=False), 3, 1) as games:
        games.reset()
        for action in TO_THE_EGG:
            games.step([action] * 3)
        texts = [s.observation.text for s in games.step(["put sack in egg", "put sack in egg", "put egg in sack"])]
        assert all(text.startswith("Done.") for text in texts)
        texts = [s.observation.text for s in games.step(["wait", "put egg in sack", "put sack in egg"])]
        assert texts[1].startswith("Done.")
        states = games.save()
    lines: list[str] = []
    with vector(GameSpec(path), 3, 2, patience=5, on_report=lines.append) as games:
        seen = games.restore(states)
        assert all(len(one.actions) > 3 for one in seen)
        assert "put egg in sack" in seen[0].actions or "drop egg" in seen[0].actions
        assert "sack" not in seen[1].inventory and "egg" not in seen[1].inventory
        steps = games.step(["put egg in sack", "inventory", "put sack in egg"])
        assert not any(step.terminated for step in steps)
        assert steps[0].observation.actions == steps[1].observation.actions  # both are inside each other now
    assert lines == []


@pytest.mark.roms
@pytest.mark.slow
def test_balances_survives_take_her(real_story: Callable[[str], Path]) -> None:
    path = str(real_story("balances"))
    with vector(GameSpec(path, search=False), 2, 1) as games:
        games.reset()
        before = games.pids
        found = False
        for action in ("search furniture", "read book", "learn lleps", "lleps rezrov"):
            step = games.step(["take her", action])[0]
            found = found or step.terminated
            games.reset([0])
        assert found and games.pids == before
    with vector(GameSpec(path), 1, 1, patience=5) as games:
        assert "take her" not in games.reset()[0].actions


@pytest.mark.roms
@pytest.mark.slow
def test_detective_survives_showverb_eight(real_story: Callable[[str], Path]) -> None:
    with vector(GameSpec(str(real_story("detective"))), 2, 2, patience=5) as games:
        first = games.reset()
        before = games.pids
        assert not any("showverb" in action for action in first[0].actions)
        steps = games.step(["showverb eight", "take paper"])
        assert steps[0].observation.text == NO_ANSWER and steps[1].reward == 10
        assert steps[0].observation.actions == first[0].actions
        assert [action for _, action, _ in games.forbidden] == ["showverb eight"]
        assert games.pids == before  # it was counted, not killed


def test_a_deadly_verdict_replaces_a_harmless_one_that_was_sent() -> None:
    verdicts = ForbiddenActions([("01", "dance", False)])
    assert verdicts.select_unsent(0) == ([], [(b"\1", "dance", False)])
    assert verdicts.add([(b"\1", "dance", True)]) == ["dance"]
    assert verdicts.add([(b"\1", "dance", False), (b"\1", "dance", True)]) == []
    assert verdicts.select_unsent(1) == ([(b"\1", "dance", True)], [])
    again = ForbiddenActions(verdicts.forbidden)
    assert again.add([(b"\1", "dance", True)]) == []
