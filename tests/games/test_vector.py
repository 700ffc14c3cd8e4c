"""The vector against its promises: nothing depends on the workers, and nothing is lost with one."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from xtx.core import Observation, Step, UserError
from xtx.games import remote as remote_module
from xtx.games.atlas import Atlas
from xtx.games.catalog import default_game, find_story
from xtx.games.game import NO_ANSWER, GameSpec
from xtx.games.seeds import Seeds
from xtx.games.vector import GameVector

HANG = str(Path(__file__).parents[2] / "stories" / "hang" / "hang.z5")
TOY = GameSpec("toy:corridor-6")
TRAP = GameSpec("toy:trap-6")
LOW_WATER = str(find_story(default_game()).path)

Walk = list[list[Step]]


@contextmanager
def vector(spec: GameSpec, games: int, workers: int, **more: Any) -> Iterator[GameVector]:
    """A vector that is silent and must leave no process behind."""
    more.setdefault("on_report", lambda line: None)
    with GameVector(spec, games, workers, **more) as made:
        yield made
        pids = made.pids
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Whether there is such a process, other than as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within: float = 10.0) -> bool:
    """Whether all the processes end in time."""
    end = time.monotonic() + within
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def random_walk(
    games: GameVector,
    steps: int,
    seed: int = 1,
    breadth: int = 100,
    before: Callable[[int], None] = lambda number: None,
    instead: dict[int, dict[int, str]] | None = None,
    step: Callable[[GameVector, list[str]], list[Step]] = GameVector.step,
) -> Walk:
    """Steps at random among the first `breadth` actions; ended games begin anew. `before` is called before every step,
    and `instead` says by step and game what to do instead."""
    generator = random.Random(seed)
    seen = games.reset()
    walk: Walk = []
    for number in range(steps):
        before(number)
        actions = [generator.choice(one.actions[:breadth]) for one in seen]
        for game, action in (instead or {}).get(number, {}).items():
            actions[game] = action
        walk.append(step(games, actions))
        seen = [one.observation for one in walk[-1]]
        ended = [i for i, one in enumerate(walk[-1]) if one.terminated]
        for i, first in zip(ended, games.reset(ended) if ended else (), strict=True):
            seen[i] = first
    return walk


def low_water_way(games: GameVector, steps: int, before: Callable[[int], None] = lambda number: None) -> Walk:
    """The walkthrough of the embedded adventure, each game one step behind the one before it."""
    profile = find_story(default_game()).profile
    assert profile is not None
    games.reset(seeds=[7 + i for i in range(len(games))])
    walk = []
    for number in range(steps):
        before(number)
        walk.append(games.step([profile.walkthrough[max(0, number - i)] for i in range(len(games))]))
    return walk


# --- the number of workers ------------------------------------------------------------------------------------------


def test_a_toy_walk_is_the_same_over_any_number_of_workers() -> None:
    walks = []
    for workers in (0, 1, 2, 3, 8):
        with vector(TOY, 8, workers) as games:
            assert len(games.pids) == workers
            walks.append(random_walk(games, 60))
    assert any(step.won or step.terminated for row in walks[0] for step in row)
    assert all(walk == walks[0] for walk in walks)


@pytest.mark.parametrize("killing", [False, True], ids=["quiet", "killing"])
def test_a_step_in_two_parts_is_the_same(killing: bool) -> None:
    def step(games: GameVector, actions: list[str]) -> list[Step]:
        early = games.move(actions)
        assert not any(one.observation.actions for one in early)
        for other in (lambda: games.step(actions), games.save, games.reset, lambda: games.move(actions)):
            with pytest.raises(ValueError, match=r"must arrive first|has ended"):
                other()
        if killing and games.pids:  # its game is brought to where it was, with the step that was already made
            os.kill(games.pids[-1], signal.SIGKILL)
        whole = games.arrive()
        assert [replace(w, observation=replace(w.observation, actions=())) for w in whole] == early
        with pytest.raises(ValueError, match="nothing was moved"):
            games.arrive()
        return whole

    with vector(TOY, 5, 0) as games:
        plain = random_walk(games, 20)
    for workers in (0, 1, 3):
        with vector(TOY, 5, workers) as games:
            assert random_walk(games, 20, step=step) == plain


def test_a_vector_can_be_closed_while_its_games_are_on_their_way() -> None:
    for workers in (0, 2):
        with vector(TOY, 3, workers) as games:
            games.reset()
            games.move(["take lamp"] * 3)


def test_a_candidate_that_kills_the_search_is_forbidden_when_it_comes_second(tmp_path: Path) -> None:
    """The same verdicts whether the search comes with the step or after it."""
    found = []
    for in_two in (False, True):
        spec = GameSpec(HANG, atlas=str(tmp_path / str(in_two)))
        with vector(spec, 2, 2, patience=1.0) as games:
            games.reset()
            walk = []
            for _ in range(3):
                if in_two:
                    games.move(["wait", "wait"])
                walk.append(games.arrive() if in_two else games.step(["wait", "wait"]))
            found.append((walk, games.forbidden))
    assert found[0] == found[1]


def test_a_verdict_counts_from_the_same_moment_over_any_number_of_workers() -> None:
    # The lever holds the process for ever. Game 2 pulls it; until then it is offered to all, afterwards to none.
    seen = []
    for workers in (1, 2, 3):
        lines: list[str] = []
        with vector(TRAP, 4, workers, patience=0.4, on_report=lines.append) as games:
            walk = [games.reset(), games.step({0: "take lamp", 1: "sing"})]
            walk.append(games.step(["sing", "sing", "pull lever", "sing"]))
            walk.append(games.step(["drop lamp", "sing", "sing", "pull lever"]))
            seen.append((walk, games.forbidden))
        assert len(lines) == 1 and "pull lever" in lines[0] and "no sign of life" in lines[0]
    assert all(one == seen[0] for one in seen)
    walk, forbidden = seen[0]
    during, after = walk[2], walk[3]
    assert during[2].observation.text == after[3].observation.text == NO_ANSWER
    assert [("pull lever" in s.observation.actions) for s in during] == [True, True, False, True]
    assert [("pull lever" in s.observation.actions) for s in after] == [False] * 4
    assert [action for _, action, _ in forbidden] == ["pull lever"]


def test_the_embedded_adventure_is_the_same_cold_and_warm_over_any_number_of_workers(tmp_path: Path) -> None:
    walks = []
    shared = str(tmp_path / "atlas")
    for workers, atlas in ((0, None), (2, shared), (3, shared), (1, shared)):
        with vector(GameSpec(LOW_WATER, atlas=atlas), 3, workers) as games:
            walks.append(random_walk(games, 3, breadth=2))
    assert len({step.observation.look for row in walks[0] for step in row}) > 2
    assert all(walk == walks[0] for walk in walks)


def test_subsets_are_stepped_and_reset_by_index() -> None:
    with vector(TOY, 5, 2) as games:
        games.reset()
        steps = games.step({4: "take lamp", 1: "east"}, last=[1])
        assert [s.observation.inventory for s in steps] == ["You carry a lamp.", "You carry nothing."]
        assert [s.truncated for s in steps] == [False, True]
        assert games.reset([1], [5])[0].step == 0
        assert [s.observation.step for s in games.step(["sing"] * 5)] == [1, 1, 1, 1, 2]


# --- states ---------------------------------------------------------------------------------------------------------


def test_saved_states_go_on_in_another_vector() -> None:
    spec = GameSpec(LOW_WATER, search=False)
    with vector(spec, 3, 2) as games:
        whole = low_water_way(games, 20)
    with vector(spec, 3, 1) as games:
        low_water_way(games, 10)
        states = games.save()
    profile = find_story(default_game()).profile
    assert profile is not None
    with vector(spec, 3, 3) as games:
        restored = games.restore(states)
        assert restored == [step.observation for step in whole[9]]
        os.kill(games.pids[1], signal.SIGKILL)  # what was restored is brought back like what was reset
        for number in range(10, 20):
            assert games.step([profile.walkthrough[number - i] for i in range(3)]) == whole[number]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_mistakes_are_told_and_change_nothing(workers: int) -> None:
    with vector(TOY, 2, workers) as games:
        with pytest.raises(ValueError, match="reset it first"):
            games.step(["east", "east"])
        games.reset()
        games.step(["take lamp", "sing"])
        with pytest.raises(UserError, match="not a saved toy world"):
            games.restore([b"{}", b"nonsense"])
        with pytest.raises(ValueError, match="3 actions for 2 games"):
            games.step(["sing"] * 3)
        steps = games.step(["sing", "take lamp"])
        assert [s.observation.inventory for s in steps] == ["You carry a lamp."] * 2
        for action in ("drop lamp", "east", "east", "east", "east"):
            games.step({0: action})
        assert games.step({0: "east"})[0].terminated
        for late in (lambda: games.step({0: "west"}), games.save):
            with pytest.raises(ValueError, match="game 0 has ended"):
                late()
    with pytest.raises(ValueError, match="closed"):
        games.reset()


def test_a_missing_story_is_one_line(tmp_path: Path) -> None:
    for workers in (0, 2):
        with pytest.raises(UserError, match="does not exist"):
            GameVector(GameSpec(str(tmp_path / "none.z5")), 2, workers)


def test_stochastic_play_repeats_with_the_same_run_seed() -> None:
    def first_texts(run_seed: int) -> tuple[list[int], list[Observation]]:
        with vector(GameSpec(LOW_WATER, search=False), 2, 2) as games:
            seeds = Seeds(run_seed, games.walkthrough_seed, stochastic=True)
            drawn = [seeds.next() for _ in range(6)]
            shown = []
            for i in range(0, 6, 2):
                shown += games.reset(seeds=drawn[i : i + 2])
                shown += [s.observation for _ in range(12) for s in games.step(["wait", "listen"])]
            return drawn, shown

    assert first_texts(3) == first_texts(3)
    assert first_texts(3)[0] != first_texts(4)[0]


# --- lost workers ---------------------------------------------------------------------------------------------------


def test_killed_and_stopped_workers_change_nothing() -> None:
    spec, lines = GameSpec(LOW_WATER, search=False), []
    with vector(spec, 3, 2) as games:
        whole = low_water_way(games, 24)

    with vector(spec, 3, 2, patience=1.0, on_report=lines.append) as games:

        def disturb(number: int) -> None:
            if number in (3, 4, 15):
                os.kill(games.pids[number % 2], signal.SIGKILL)
            if number == 10:
                os.kill(games.pids[0], signal.SIGSTOP)
            if number == 20:
                for pid in games.pids:
                    os.kill(pid, signal.SIGSEGV)

        assert low_water_way(games, 24, disturb) == whole
        assert games.forbidden == []
    assert sum("died of SIGKILL" in line for line in lines) == 3
    assert sum("no sign of life" in line for line in lines) == 1
    assert sum("died of SIGSEGV" in line for line in lines) == 2


def test_workers_killed_in_the_middle_of_their_work_change_nothing() -> None:
    # One by one, so that a search takes half a second and more.
    spec = GameSpec(LOW_WATER, search=True, engine="jericho")
    with vector(spec, 2, 2) as games:
        whole = random_walk(games, 1, breadth=2)
    with vector(spec, 2, 2) as games:

        def disturb(number: int) -> None:
            # This is in the middle of it.
            for pid in games.pids:
                threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()

        before = games.pids
        assert random_walk(games, 1, breadth=2, before=disturb) == whole
        assert games.forbidden == [] and not set(games.pids) & set(before)


def test_a_vector_outlives_the_thread_that_made_it() -> None:
    # The kernel ends a worker when the thread that started it ends.
    made: list[GameVector] = []
    maker = threading.Thread(target=lambda: made.append(GameVector(TOY, 2, 2, on_report=lambda line: None)))
    maker.start()
    maker.join()
    with made[0] as games:
        assert len(random_walk(games, 5)) == 5


def test_an_interrupted_step_did_not_happen() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with vector(TRAP, 2, 2, patience=60) as games:
            games.reset()
            games.step(["take lamp", "sing"])
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(Interrupted):
                games.step(["drop lamp", "pull lever"])
            steps = games.step(["sing", "take lamp"])
            assert [s.observation.inventory for s in steps] == ["You carry a lamp."] * 2
            assert [s.observation.step for s in steps] == [2, 2]
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_it_gives_up_when_workers_keep_dying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "_PROGRAM", "raise SystemExit(3)")
    with pytest.raises(UserError, match=r"keep dying \(ended with status 3, before anything was tried\)"):
        GameVector(TOY, 2, 1)


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
    assert sum("SIGFPE" in line for line in lines) == 1


def test_the_search_survives_words_that_kill_and_remembers_them(tmp_path: Path) -> None:
    atlas = tmp_path / "atlas"
    seen = {}
    for workers, folder in ((1, None), (2, str(atlas)), (1, str(atlas))):
        lines: list[str] = []
        with vector(GameSpec(HANG, atlas=folder), 3, workers, on_report=lines.append) as games:
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
    with vector(GameSpec(HANG), 1, 1, forbidden=forbidden) as games:
        first = games.pids
        assert games.reset() == walk[:1]
        assert games.pids == first and games.forbidden == forbidden


def test_an_action_that_kills_is_remembered_in_the_atlas(tmp_path: Path) -> None:
    spec = GameSpec(HANG, atlas=str(tmp_path / "atlas"), search=True)
    with vector(spec, 2, 2) as games:
        games.reset()
        # Nothing that a search would try: so it is the step itself that is to blame.
        steps = games.step(["wait. burst", "wait"])
        assert steps[0].observation.text == NO_ANSWER and steps[1].observation.text != NO_ANSWER
        key = bytes.fromhex({action: key for key, action, _ in games.forbidden}["wait. burst"])
    with Atlas(Path(str(spec.atlas))) as atlas:
        assert "wait. burst" in msgspec.msgpack.decode(atlas.get(b"!" + key) or b"")


def test_the_survey_of_a_story_survives_words_that_kill(tmp_path: Path) -> None:
    # Without `volatile` in its profile a story's memory is found out by trying.
    shutil.copy(HANG, tmp_path)
    profile = json.loads(Path(HANG).with_suffix(".json").read_text())
    (tmp_path / "hang.json").write_text(json.dumps({**profile, "volatile": []}))
    lines: list[str] = []
    with vector(GameSpec(str(tmp_path / "hang.z5")), 2, 2, on_report=lines.append) as games:
        layout = games.layout
        assert any("'burst' is left out of the survey" in line and "SIGFPE" in line for line in lines)
    began = time.monotonic()
    with vector(GameSpec(str(tmp_path / "hang.z5")), 1, 1, layout=layout, on_report=lines.append):
        assert time.monotonic() - began < 1.5
    assert len(lines) == 1


# --- orphans --------------------------------------------------------------------------------------------------------

PARENT = """
import sys, signal
from xtx.games.game import GameSpec
from xtx.games.vector import GameVector
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
