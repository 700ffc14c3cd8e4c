"""The parts of a sweep that need no processes: copying runs, reading their progress, scheduling."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.processes.child_processes import describe_end
from xtx.runs.checkpoint_file import list_checkpoints, read_checkpoint
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import SAVED, Run
from xtx.sweep import cluster_node, local_processes
from xtx.sweep.local_processes import classify_exit
from xtx.sweep.progress_table import SweepSpeed, build_means, build_table, format_overview
from xtx.sweep.run_plan import PlannedRun, find_games, make_plan
from xtx.sweep.run_process import SweepRunResources
from xtx.sweep.run_progress import RunProgress, read_finished, read_running
from xtx.sweep.run_transfer import FilePiece, RunFiles, Sender, pack_whole, unpack
from xtx.sweep.scheduler import AttemptOutcome, RunEvent, RunState, Scheduler, SweepRun
from xtx.sweep.sweep_file import SweepSpec
from xtx.sweep.sweep_folder import (
    adopt_configs,
    create_run_folder,
    is_finished,
    mark_finished,
    read_last_lines,
    read_shared_settings,
    write_shared_settings,
)
from xtx.terminal.progress_panel import format_time

CONFIG = RunConfig("toy:corridor-5", "random", {}, steps=800)
PROGRESS = RunProgress(400, 3.25, 10, 20.0)
LINES = ("metrics", "episodes", "timing")


def write_run(folder: Path, steps: int, best: bool = False) -> None:
    """One more checkpoint, with lines before it."""
    with Run.open(folder) as run:
        for name in LINES:
            run.write(name, {"step": steps, "time": float(steps)})
        run.save(steps, {"numbers": np.arange(steps)}, best)


def same(one: Path, other: Path) -> None:
    for name in (*(f"{name}.jsonl" for name in LINES), "versions.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    newest = list_checkpoints(one)[0]
    assert list_checkpoints(other)[0].name == newest.name
    assert read_checkpoint(other / "checkpoints" / newest.name)
    best = "checkpoints/best"
    assert (one / best).exists() == (other / best).exists()
    if (one / best).exists():
        assert (one / best).read_bytes() == (other / best).read_bytes()


# --- copies ---------------------------------------------------------------------------------------------------------


def test_what_is_sent_arrives(tmp_path: Path) -> None:
    chance = random.Random(0)
    here, there = tmp_path / "here", tmp_path / "there"
    create_run_folder(here, CONFIG)
    create_run_folder(there, CONFIG)
    sender = Sender(here)
    for steps in range(8, 160, 8):
        write_run(here, steps, best=chance.random() < 0.3)
        (here / "live.json").write_text(str(steps))
        if chance.random() < 0.6:
            whole = msgspec.msgpack.encode(sender.pack())
            unpack(there, msgspec.msgpack.decode(whole, type=RunFiles))
            same(here, there)
            assert (there / "live.json").read_text() == str(steps)
            assert not sender.pack()
        assert len(list_checkpoints(there)) <= 2
    third = tmp_path / "third"
    create_run_folder(third, CONFIG)
    unpack(third, pack_whole(here))
    same(here, third)
    with Run.open(third) as run:
        assert run.restore() is not None


def test_lines_that_are_cut_back_are_sent_anew(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    create_run_folder(here, CONFIG)
    write_run(here, 8)
    sender = Sender(here)
    unpack(there, sender.pack())
    (here / "metrics.jsonl").write_text("x\n")
    unpack(there, sender.pack())
    assert (there / "metrics.jsonl").read_text() == "x\n"


def test_a_damaged_checkpoint_is_not_sent(tmp_path: Path) -> None:
    create_run_folder(tmp_path, CONFIG)
    write_run(tmp_path, 8)
    write_run(tmp_path, 16)
    list_checkpoints(tmp_path)[0].write_bytes(b"damaged")
    assert [piece.name for piece in pack_whole(tmp_path).checkpoints] == ["0000000008"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", ".hidden", "config.json", "lock", "a/b", ""])
def test_a_parcel_cannot_write_elsewhere(name: str, tmp_path: Path) -> None:
    for files in (RunFiles([FilePiece(name, 0, b"")], []), RunFiles([], [FilePiece(name, 0, b"")])):
        with pytest.raises(ValueError, match="a file that is not copied, called"):
            unpack(tmp_path / "run", files)
    assert not (tmp_path / "run").exists()


def test_a_piece_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is shorter than"):
        unpack(tmp_path, RunFiles([FilePiece("metrics.jsonl", 10, b"x")], []))


# --- a machine of a cluster, without the cluster --------------------------------------------------------------------


def order(folder: Path, **changes: Any) -> cluster_node.RunOrder:
    common = read_shared_settings(folder, None, None) or write_shared_settings(folder, 1, "cpu")
    return msgspec.structs.replace(
        cluster_node.RunOrder(
            str(folder), common.id, "game/agent/seed-0", CONFIG, SweepRunResources(), cluster_node.read_version()
        ),
        **changes,
    )


def test_another_version_is_refused(tmp_path: Path) -> None:
    [news] = cluster_node.execute_run(order(tmp_path, version="0.0"), lambda: False, lambda: RunFiles([], []))
    assert news.outcome == "hopeless"
    assert "install the same everywhere" in news.why


def test_the_folder_is_recognised_by_more_than_its_name(tmp_path: Path) -> None:
    assert cluster_node._can_access(order(tmp_path))
    assert not cluster_node._can_access(order(tmp_path, sweep="another"))
    assert not cluster_node._can_access(order(tmp_path, out=str(tmp_path / "absent")))


def test_a_machine_that_is_further_goes_on_from_there(tmp_path: Path) -> None:
    ours, folder = tmp_path / "ours", tmp_path / "theirs"
    create_run_folder(ours, CONFIG)
    write_run(ours, 8)
    cluster_node._copy_run(folder, order(tmp_path), lambda: pack_whole(ours))
    write_run(folder, 16)
    cluster_node._copy_run(folder, order(tmp_path), lambda: pack_whole(ours))
    assert list_checkpoints(folder)[0].name == "0000000016"
    write_run(ours, 24)
    cluster_node._copy_run(folder, order(tmp_path), lambda: pack_whole(ours))
    assert [path.name for path in list_checkpoints(folder)] == ["0000000024"]
    write_run(folder, 32)
    (folder / "metrics.jsonl").write_text("damaged on this machine\n" * 100)
    cluster_node._copy_run(folder, order(tmp_path), lambda: pack_whole(ours))
    assert [path.name for path in list_checkpoints(folder)] == ["0000000024"], "made anew from what the sweep has"
    assert (folder / "metrics.jsonl").read_bytes() == (ours / "metrics.jsonl").read_bytes()
    other = RunConfig("toy:corridor-5", "random", {}, steps=900)
    cluster_node._copy_run(folder, order(tmp_path, config=other), lambda: RunFiles([], []))
    assert not list_checkpoints(folder)
    assert not (folder / "metrics.jsonl").exists()


# --- folders and progress -------------------------------------------------------------------------------------------


def test_what_runs_have_in_common(tmp_path: Path) -> None:
    assert read_shared_settings(tmp_path, None, None) is None
    common = write_shared_settings(tmp_path, 2, "cpu")
    assert read_shared_settings(tmp_path, 2, None) == read_shared_settings(tmp_path, None, "cpu") == common
    with pytest.raises(UserError, match="have --device cpu"):
        read_shared_settings(tmp_path, None, "cuda")
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        read_shared_settings(tmp_path, None, None)


def test_other_settings_are_told(tmp_path: Path) -> None:
    create_run_folder(tmp_path / "a" / "b" / "c", CONFIG)
    runs = [PlannedRun("a/b/c", CONFIG), PlannedRun("a/b/d", CONFIG)]
    assert adopt_configs(tmp_path, runs) == runs
    other = RunConfig("toy:corridor-5", "random", {"x": 1}, steps=800)
    with pytest.raises(UserError, match="other settings of random"):
        adopt_configs(tmp_path, [PlannedRun("a/b/c", other)])


@pytest.mark.parametrize("agent", ["xtx", "xtx-fast", "xtx-plus"])
@pytest.mark.parametrize("small", [False, True])
def test_a_config_of_an_earlier_version_is_the_same_run(tmp_path: Path, agent: str, small: bool) -> None:
    changes = {agent: {"q": {"gamma": 0.8}}}
    spec = SweepSpec(games=("toy:corridor-5",), agents=(agent,), settings=changes, small=small)
    [run] = make_plan(spec, find_games(spec.games))
    written = msgspec.to_builtins(run.config)
    imitation = written["settings"]["imitation"]
    for name in ("known", "anneal"):
        del imitation[name]
    imitation |= {"bfloat16": False, "length_buckets": True}
    if agent == "xtx-fast" and not small:
        imitation |= {"passes": 40, "enough": 0.005}  # its preset was another then
    written["games"] = written.pop("num_envs")
    folder = tmp_path / run.folder
    folder.mkdir(parents=True)

    def write() -> None:
        (folder / "config.json").write_text(json.dumps(written))

    write()
    [adopted] = adopt_configs(tmp_path, [run])
    assert adopted.config == read_config(folder) != run.config, "it is carried out as it was begun"
    imitation["passes"] = 41
    write()
    with pytest.raises(UserError, match=f"other settings of {agent}"):
        adopt_configs(tmp_path, [run])
    imitation["bfloat16"] = True
    write()
    with pytest.raises(UserError, match=r"config\.json has the key 'settings\.imitation\.bfloat16'"):
        adopt_configs(tmp_path, [run])
    assert adopt_configs(tmp_path / "elsewhere", [run]) == [run]


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    create_run_folder(tmp_path, CONFIG)
    write_run(tmp_path, 792)
    assert not is_finished(tmp_path, CONFIG)
    write_run(tmp_path, 800)
    assert is_finished(tmp_path, CONFIG)
    mark_finished(tmp_path, CONFIG)
    for path in list_checkpoints(tmp_path):
        path.unlink()
    assert is_finished(tmp_path, CONFIG)
    (tmp_path / "finished").write_text("damaged")
    assert not is_finished(tmp_path, CONFIG)


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    assert read_running(tmp_path, CONFIG, 0.0) == RunProgress()
    metrics = [{"step": step, "score_mean": step / 100, "score_max": step // 50} for step in (80, 160)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics) + '{"step": 240')
    # Steps 80 and 160 were done twice: before and after a crash.
    times = [(80, 10.0), (160, 20.0), (80, 100.0), (160, 104.0)]
    (tmp_path / "timing.jsonl").write_text("".join(f'{{"step": {s}, "time": {t}}}\n' for s, t in times))
    assert read_running(tmp_path, CONFIG, 50.0) == RunProgress(160, 1.6, 3, 20.0)
    assert read_running(tmp_path, CONFIG, 0.0).speed == 20.0
    assert read_running(tmp_path, CONFIG, 102.0).speed is None
    with (tmp_path / "timing.jsonl").open("ab") as file:
        file.write(b"\xff\n")
    assert read_running(tmp_path, CONFIG, 0.0).speed is None


def test_reading_a_long_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(f'{{"step": {n}, "score_mean": 1.5}}\n' for n in range(20_000)))
    assert read_running(tmp_path, RunConfig("g", "a", {}), 0.0).steps == 19_999


def test_scores_at_the_end_come_from_the_episodes(tmp_path: Path) -> None:
    episode = {
        "episode": 1, "step": 8, "game": 0, "score": 0, "peak": 9, "length": 1, "ended": "limit", "seed": 1,
        "explored_from": None, "exploited": 0, "record": False, "actions": [],
    }  # fmt: skip
    scores = [50, *[1] * 60, *[3] * 40]
    (tmp_path / "episodes.jsonl").write_text("".join(json.dumps({**episode, "score": s}) + "\n" for s in scores))
    (tmp_path / "metrics.jsonl").write_text('{"step": 792, "score_mean": 7, "score_max": 8}\n')
    assert read_finished(tmp_path, CONFIG) == RunProgress(800, 1.8, 50)
    (tmp_path / "metrics.jsonl").write_text('{"step": 800, "score_mean": 7, "score_max": 8}\n')
    assert read_finished(tmp_path, CONFIG) == RunProgress(800, 7, 8)


def test_last_lines(tmp_path: Path) -> None:
    assert read_last_lines(tmp_path) == []
    (tmp_path / "log.txt").write_text("\n".join(str(number) for number in range(100_000)) + "\n\n")
    assert read_last_lines(tmp_path, 2) == ["99998", "99999"]


def test_what_an_exit_status_means(tmp_path: Path) -> None:
    assert classify_exit(tmp_path, 0, False)[0] is AttemptOutcome.FINISHED
    assert classify_exit(tmp_path, 130, False)[0] is AttemptOutcome.STOPPED
    assert classify_exit(tmp_path, -15, True)[0] is AttemptOutcome.STOPPED
    assert classify_exit(tmp_path, -15, False) == (AttemptOutcome.FAILED, "died of SIGTERM")
    (tmp_path / "log.txt").write_text("xtx: no good\n")
    assert classify_exit(tmp_path, 2, False) == (AttemptOutcome.HOPELESS, "xtx: no good")
    (tmp_path / "log.txt").write_text("xtx: another process works on it; wait for it\n")
    assert classify_exit(tmp_path, 2, False)[0] is AttemptOutcome.HELD
    assert describe_end(-200) == "died of signal 200"


class Ended:
    """A process that is over, or waits to be told."""

    def __init__(self, status: int | None) -> None:
        self.status, self.told = status, list[str]()

    def poll(self) -> int | None:
        return self.status

    def terminate(self) -> None:
        self.told.append("terminate")
        self.status = 130

    def kill(self) -> None:
        self.told.append("kill")

    def wait(self, timeout: float | None = None) -> int | None:
        return self.status


def test_gpus_are_assigned_in_turn_and_runs_that_were_not_asked_to_stop_may_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    started = [Ended(0), Ended(None), Ended(None)]

    def start_process(folder: Path, games: int, resources: SweepRunResources, environment: dict[str, str]) -> Ended:
        seen.append(environment["CUDA_VISIBLE_DEVICES"])
        return started[len(seen) - 1]

    monkeypatch.setattr(local_processes, "start_process", start_process)
    executor = local_processes.LocalExecutor(tmp_path, SweepRunResources(device="cuda"), 3, ["4", "7"])
    for seed in range(3):
        executor.start(PlannedRun(f"game/agent/seed-{seed}", CONFIG))
    assert seen == ["4", "7", "4"]
    assert executor.num_free == 0
    assert [event.outcome for event in executor.take_events()] == [None, None, None, AttemptOutcome.FINISHED]
    assert executor.num_free == 1
    executor.close()
    assert [process.told for process in started] == [[], ["terminate", "kill"], ["terminate", "kill"]]


# --- the loop, with places that only pretend ------------------------------------------------------------------------


class Pretence:
    """Two places; what comes of each attempt is written down beforehand."""

    def __init__(self, out: Path, outcomes: dict[str, list[AttemptOutcome]], progress: bool = False) -> None:
        self._out, self._outcomes, self._progress = out, outcomes, progress
        self.begun: list[str] = []
        self._busy: list[PlannedRun] = []
        self.most = 0
        self.stopped = False

    @property
    def num_free(self) -> int:
        return 2 - len(self._busy)

    def start(self, run: PlannedRun) -> None:
        self.begun.append(run.folder)
        self._busy.append(run)
        self.most = max(self.most, len(self._busy))
        if self._progress:
            (self._out / run.folder / "checkpoints" / f"{len(self.begun):010d}").touch()

    def take_events(self) -> list[RunEvent]:
        events = []
        for run in self._busy:
            events += [RunEvent(run.folder), RunEvent(run.folder, self._outcomes[run.folder].pop(0), "because")]
        self._busy = []
        return events

    def ask_to_stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        pass


def run_all(
    tmp_path: Path, outcomes: Sequence[Sequence[AttemptOutcome]], retries: int = 2, stop: bool = False, **more: Any
) -> tuple[Pretence, list[SweepRun], list[str]]:
    runs = [PlannedRun(f"game/agent/seed-{seed}", CONFIG) for seed in range(len(outcomes))]
    executor = Pretence(tmp_path, {run.folder: list(o) for run, o in zip(runs, outcomes, strict=True)}, **more)
    told: list[str] = []
    scheduler = Scheduler(tmp_path, runs, executor, retries, told.append)
    scheduler.run_all(lambda items: None, lambda: stop and bool(executor.begun))
    return executor, scheduler.items, told


F, B, H = AttemptOutcome.FINISHED, AttemptOutcome.FAILED, AttemptOutcome.HOPELESS


def test_all_runs_are_carried_out(tmp_path: Path) -> None:
    executor, items, told = run_all(tmp_path, [[F]] * 5)
    assert executor.most == 2
    assert {item.state for item in items} == {RunState.FINISHED}
    assert len(told) == 5
    again, items, told = run_all(tmp_path, [[]] * 5)
    assert again.begun == told == []
    assert {item.state for item in items} == {RunState.FINISHED}


def test_failures_are_tried_again_after_the_others(tmp_path: Path) -> None:
    executor, items, told = run_all(tmp_path, [[B, B, B], [H], [B, F], [F], [F]])
    assert [item.state.value for item in items] == ["failed", "failed", "finished", "finished", "finished"]
    assert executor.begun.count("game/agent/seed-0") == 3
    assert executor.begun.count("game/agent/seed-1") == 1
    assert executor.begun.index("game/agent/seed-4") < executor.begun.index("game/agent/seed-0", 1)
    assert [line for line in told if "given up" in line and "because" in line]


def test_a_run_that_progresses_may_fail_more_often(tmp_path: Path) -> None:
    executor, items, _ = run_all(tmp_path, [[B, B, B, B, F]], retries=1, progress=True)
    assert items[0].state is RunState.FINISHED
    assert len(executor.begun) == 5


def test_what_is_asked_to_stop_stops(tmp_path: Path) -> None:
    executor, items, _ = run_all(tmp_path, [[AttemptOutcome.STOPPED], [B], [F], [F]], stop=True)
    assert executor.stopped
    assert {item.state for item in items} == {RunState.STOPPED}
    assert len(executor.begun) == 2


def test_a_run_that_stops_before_its_first_line_of_metrics_has_its_scores(tmp_path: Path) -> None:
    folder = tmp_path / "game/agent/seed-0"
    folder.mkdir(parents=True)
    episode = {"episode": 1, "step": 1, "game": 0, "peak": 0, "length": 1, "ended": "limit", "seed": 0}
    (folder / "episodes.jsonl").write_text("".join(json.dumps({**episode, "score": s}) + "\n" for s in (4, 8)))
    _, (item,), _ = run_all(tmp_path, [[AttemptOutcome.STOPPED]], stop=True)
    assert (item.state, item.progress.mean, item.progress.best) == (RunState.STOPPED, 6, 8)


# --- what is shown --------------------------------------------------------------------------------------------------


def test_the_table(tmp_path: Path) -> None:
    items = [
        SweepRun(
            PlannedRun("a-game/xtx/seed-0", CONFIG),
            tmp_path,
            RunState.RUNNING,
            PROGRESS,
            "[node]",
        ),
        SweepRun(PlannedRun("a-game/xtx/seed-1", CONFIG), tmp_path),
        SweepRun(PlannedRun("a-game/xtx/seed-2", CONFIG), tmp_path, RunState.FINISHED, RunProgress(800, 5.0, 10)),
    ]
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(build_table(items))
        console.print(build_table(items), markup=False)  # as beside a line that has no markup
    text = console.export_text()
    assert text.count("running on [node]    400       20  3.2   10  20 s") == 2
    narrow = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    names = ("deephome-star-stochastic/xtx-retrace/seed-0", "toy-corridor-5/walkthrough/seed-11")
    with narrow.file:
        runs = [SweepRun(PlannedRun(name, CONFIG), tmp_path, RunState.RUNNING, PROGRESS) for name in names]
        narrow.print(build_table(runs, 80))
    rows = [line.split()[:4] for line in narrow.export_text().splitlines() if "running" in line]
    assert rows == [
        ["deephome-star-stochastic", "xtx-retrace", "0", "running"],
        ["toy-corridor-5", "walkthrough", "11", "running"],
    ]
    assert format_overview(items) == (
        "3 runs: 1 running, 1 waiting, 1 finished; 1,200 of 2,400 steps, 20 steps/s, about 60 s left"
    )
    assert [format_time(s) for s in (5, 600, 36_000, 500_000)] == ["5 s", "10 min", "10.0 h", "5.8 days"]


def test_the_estimate_does_not_jump() -> None:
    """Four runs, of 20 steps a second each, that tell of 800 steps at a time; two of them end on the way."""
    speed, first, shown = SweepSpeed(), [], []
    for tenth in range(6000):
        now = tenth / 10
        steps = sum(
            int(20 * (min(now, end) + 13 * number) // 800) * 800 for number, end in enumerate((300, 400, 999, 999))
        )
        speed.add(now, steps)
        if speed.steps_per_second is not None:
            shown.append(speed.steps_per_second) if now > 120 else first.append(speed.steps_per_second)
    assert first and max(first) < 160 and min(first) > 30, "not by what the first steps seem to take"
    jumps = [abs(after - before) / before for before, after in pairwise(shown)]
    assert max(jumps) < 0.15
    assert shown[1500] == pytest.approx(80, rel=0.15)
    assert shown[-1] == pytest.approx(40, rel=0.2), "it follows what goes on"
    item = SweepRun(PlannedRun("g/xtx/seed-0", CONFIG), Path(), RunState.RUNNING, PROGRESS)
    assert "40 steps/s, about 10 s left" in format_overview([item], 40.0)


def test_the_speed_begins_with_the_first_steps() -> None:
    """Not while games are still looked into, nor with the first steps, which come at once; and a run that goes back
    makes it no less than nothing."""
    speed = SweepSpeed()
    for now in range(100):
        speed.add(float(now), 0)
    speed.add(100.0, 800)
    speed.add(101.0, 1600)
    assert speed.steps_per_second is None
    speed.add(120.0, 1600)
    assert speed.steps_per_second == pytest.approx(800 / 20, rel=0.01)
    speed.add(121.0, 0)
    assert speed.steps_per_second is not None and speed.steps_per_second > 0


def test_means_over_seeds(tmp_path: Path) -> None:
    def item(folder: str, mean: float, best: float, state: RunState = RunState.FINISHED) -> SweepRun:
        return SweepRun(PlannedRun(folder, CONFIG), tmp_path, state, RunProgress(800, mean, best))

    items = [item("g/xtx/seed-0", 4.0, 10), item("g/xtx/seed-1", 8.0, 20), item("g/drrn/seed-0", 3.0, 5)]
    items.append(item("g/drrn/seed-1", 99.0, 99, RunState.RUNNING))
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(build_means(items))
    text = " ".join(console.export_text().split())
    assert "g xtx 2 6.0 ± 2.0 15.0 ± 5.0" in text
    assert "g drrn 1 3.0 5.0" in text
    assert build_means(items[2:]) is None


def test_the_mark_of_a_saved_run_comes_with_its_checkpoint(tmp_path: Path) -> None:
    """With the mark and without a checkpoint, a run could not continue."""
    here, there = tmp_path / "here", tmp_path / "there"
    with Run.create(here, RunConfig("toy:corridor-5", "random", {})) as run:
        run.write("metrics", {"step": 8})
        run.flush()
        (here / SAVED).touch()  # as if the first checkpoint were written while the files are packed
        unpack(there, Sender(here).pack())
        assert not (there / SAVED).exists()
        run.save(8, {})
        unpack(there, Sender(here).pack())
    assert (there / SAVED).exists()
    with pytest.raises(ValueError, match="saved"):
        unpack(there, RunFiles([FilePiece(SAVED, 0, b"")], []))
