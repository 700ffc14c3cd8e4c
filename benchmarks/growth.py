"""Whether a run becomes slower or larger the longer it lasts: the real loop, XTX, a toy world, 10,000 episodes.

    python benchmarks/growth.py [--episodes N] [--restless]

All memories have the paper's sizes, but the networks are small: what could grow is bookkeeping, and it should not hide
behind arithmetic. With --restless no text of the world ever comes again, as in games that count their moves.

Figures "as it went" compare moments that are minutes apart, between which a busy machine changes more than we want to
see. So there are two runs with the same seed: the first waits at episode 500, alive, until the second has played them
all; then both go on in turns of a few steps, and their processor times are compared. What the agent does changes, too:
it returns more often when it knows ways to return. So the speeds are also given for equally many games that return.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from xtx.agents.xtx.xtx_agent import EXPLOIT, XtxAgent
from xtx.config.settings import RunConfig, XtxSettings
from xtx.core import Brief, Observation
from xtx.games.story_game import GameSpec
from xtx.games.vector.game_vector import GameVector
from xtx.games.vector.messages import CallResult
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.runs.run_folder import Run
from xtx.training.loop import Training, TrainingProgress

TOY = "toy:corridor-7"
EARLY = 500
WINDOW = 600
"""Vector steps over which a speed is measured."""
TURN = 20
"""Vector steps that each of the two runs makes before the other goes on."""
TRAINING = "imitation training"

Parts = dict[str, tuple[float, ...]]
"""A figure of each of the two runs for each part of the work."""


class Restless(GameVector):
    """Games that never say the same twice, and always as many words."""

    said = 0

    def _anew(self, observation: Observation) -> Observation:
        self.said += 1
        return replace(observation, text=f"{observation.text} {self.said:07d}")

    def reset(self, *given: Any) -> list[Observation]:
        return [self._anew(observation) for observation in super().reset(*given)]

    def _move(self, *given: Any, **more: Any) -> list[CallResult]:  # behind `step`, and behind `move` and `arrive`
        results = super()._move(*given, **more)
        steps = [replace(result.step, observation=self._anew(result.step.observation)) for result in results]
        return [msgspec.structs.replace(result, step=step) for result, step in zip(results, steps, strict=True)]


def settings() -> XtxSettings:
    """The paper's, with small networks."""
    paper = XtxSettings()
    return replace(
        paper,
        q=replace(paper.q, hidden=32),
        imitation=replace(paper.imitation, layers=1, heads=2, width=32, passes=4),
    )


def memory() -> float:
    """MiB that the process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@dataclass
class Window:
    """Vector steps one after the other; those that trained the imitation policy are counted by themselves."""

    processor: list[float] = field(default_factory=list)
    """Seconds of each vector step."""
    clock: list[float] = field(default_factory=list)
    returning: list[int] = field(default_factory=list)
    """How many of the games were in the phase `exploit`."""
    trainings: list[float] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.processor) >= WINDOW

    def speed(self, seconds: list[float]) -> float:
        """Game steps a second."""
        return 8 / statistics.fmean(seconds)

    def speed_at(self, returning: float) -> float:
        """Game steps a second of processor time while so many games are on their way back, by the straight line through
        all vector steps: who returns asks the imitation policy, which takes longer than to explore."""
        if len(set(self.returning)) < 2:
            return float("nan")
        slope, base = np.polyfit(self.returning, self.processor, 1)
        return float(8 / (base + slope * returning))


class Watched:
    """A run that is measured and can be made to wait; it lives in a thread of its own."""

    def __init__(self, folder: Path, restless: bool, checkpoint_seconds: float) -> None:
        config = RunConfig(TOY, "xtx", asdict(settings()), steps=10**9)
        self.agent = XtxAgent(settings(), Brief(config.num_envs, config.seed))
        self.folder = folder
        self.window = Window()
        self.into = [self.window]
        self.progress = TrainingProgress()
        self._until = 0
        self._may, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._ended = False
        self._before = (0.0, 0.0, 0.0)
        self._thread = threading.Thread(target=self._live, args=(config, restless, checkpoint_seconds), daemon=True)

    def _live(self, config: RunConfig, restless: bool, checkpoint_seconds: float) -> None:
        kind = Restless if restless else GameVector
        with (
            Run.create(self.folder, config) as run,
            contextlib.closing(kind(GameSpec(TOY), config.num_envs, 0)) as games,
        ):
            self._may.acquire()
            self._begin()
            Training(run, self.agent, games, checkpoint_seconds=checkpoint_seconds).run(None, self._watch)

    def _begin(self) -> None:
        trained = self.agent.brief.clock.seconds.get(TRAINING, 0.0)
        self._before = time.thread_time(), time.perf_counter(), trained

    def _watch(self, progress: TrainingProgress) -> bool:
        """Called after every vector step."""
        processor, clock, trained = self._before
        self._begin()
        for window in self.into:
            if self._before[2] > trained:
                window.trainings.append(self._before[2] - trained)
            else:
                window.processor.append(self._before[0] - processor)
                window.clock.append(self._before[1] - clock)
                window.returning.append(progress.phases.count(EXPLOIT))
        self.progress = progress
        self._until -= 1
        if self._until <= 0:
            self._done.release()
            self._may.acquire()
            self._begin()
        return not self._ended

    def go(self, vector_steps: int = 1) -> None:
        """So many vector steps."""
        self._until = vector_steps
        if not self._thread.is_alive():
            self._thread.start()
        self._may.release()
        self._done.acquire()

    def go_to(self, episode: int) -> Iterator[int]:
        """Up to that episode; a number now and then on the way."""
        while self.progress.episodes < episode:
            self.into = []
            self.go(TURN)
            yield self.progress.episodes

    def measure(self) -> Window:
        """The next vector steps."""
        window = Window()
        self.into = [window]
        while not window.full:
            self.go(TURN)
        return window

    def end(self) -> None:
        self._ended = True
        self._may.release()
        self._thread.join()


def in_turns(one: Watched, other: Watched) -> tuple[tuple[Window, Window], Parts]:
    """Both go on; neither is measured while the other is at work. Also what each part took, in ms of a vector step."""
    windows = Window(), Window()
    clocks = [watched.agent.brief.clock.seconds for watched in (one, other)]
    for clock in clocks:
        clock.clear()
    for watched, window in zip((one, other), windows, strict=True):
        watched.into = [window]
    while not (windows[0].full and windows[1].full):
        one.go(TURN)
        other.go(TURN)
    counts = [len(window.clock) + len(window.trainings) for window in windows]
    ms = [
        [1e3 * clock.get(name, 0.0) / count for name in clocks[0]] for clock, count in zip(clocks, counts, strict=True)
    ]
    return windows, dict(zip(clocks[0], zip(*ms, strict=True), strict=True))


@dataclass(frozen=True)
class Moment:
    """What a run holds at an episode."""

    window: Window
    memory: float
    checkpoint: float
    texts: int
    limit: int

    @classmethod
    def of(cls, watched: Watched) -> Moment:
        window = watched.measure()
        newest = list_checkpoints(watched.folder)
        size = newest[0].stat().st_size / 2**20 if newest else float("nan")
        told = watched.agent.describe()
        return cls(window, memory(), size, int(told["texts"]), int(told["episode_limit"]))


def show(
    console: Console, early: Moment, late: Moment, turns: tuple[Window, Window], parts: Parts, episodes: int
) -> None:
    table = Table("", f"episode {EARLY:,}", f"episode {episodes:,}", "change", box=None, pad_edge=False)

    def row(name: str, before: float, after: float, digits: int = 1) -> None:
        change = f"{after / before - 1:+.1%}" if before == before and before else ""
        table.add_row(name, f"{before:,.{digits}f}", f"{after:,.{digits}f}", change)

    for name, one, other in (("as it went", early.window, late.window), ("in turns", *turns)):
        row(f"steps/s {name}, processor time", one.speed(one.processor), other.speed(other.processor))
        row(f"steps/s {name}, clock", one.speed(one.clock), other.speed(other.clock))
        slow = [statistics.median(window.processor) * 1e3 for window in (one, other)]
        row(f"ms of the middle vector step {name}", *slow, digits=2)
        returning = [statistics.fmean(w.returning) for w in (one, other)]
        row(f"games of 8 that return {name}", *returning, digits=2)
        alike = statistics.fmean(returning)
        row(f"steps/s {name}, processor time, if {alike:.1f} return", one.speed_at(alike), other.speed_at(alike))
        if one.trainings and other.trainings:
            row(f"s of an imitation training {name}", *(statistics.fmean(w.trainings) for w in (one, other)), digits=2)
    for name, (one, other) in parts.items():
        if name not in (TRAINING, "records and display") and max(one, other) > 0.05:  # the latter waits in `_watch`
            row(f"ms of a vector step in turns, clock: {name}", one, other, digits=2)
    row("MiB of the process", early.memory, late.memory)
    row("MiB of a checkpoint", early.checkpoint, late.checkpoint)
    row("texts known", early.texts, late.texts, digits=0)
    row("step limit of an episode", early.limit, late.limit, digits=0)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--restless", action="store_true", help="no text ever comes again")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120, highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        waiting = Watched(Path(folder) / "waiting", options.restless, 10**9)
        lasting = Watched(Path(folder) / "lasting", options.restless, 60.0)
        for _ in waiting.go_to(EARLY):
            pass
        for _ in lasting.go_to(EARLY):
            pass
        early = Moment.of(lasting)
        began, due = time.perf_counter(), 2_000
        with contextlib.suppress(KeyError):
            del lasting.agent.brief.clock.seconds["checkpoints"]
        start = lasting.progress.steps
        for episode in lasting.go_to(options.episodes):
            if episode >= due:
                console.print(f"episode {episode:,}: {memory():.0f} MiB, {time.perf_counter() - began:.0f} s")
                due += 2_000
        seconds, steps = time.perf_counter() - began, lasting.progress.steps - start
        saving = lasting.agent.brief.clock.seconds.get("checkpoints", 0.0)
        late = Moment.of(lasting)
        turns, parts = in_turns(waiting, lasting)
        show(console, early, late, turns, parts, options.episodes)
        console.print(
            f"{steps:,} game steps in between took {seconds:.0f} s by the clock, all included; "
            f"checkpoints {saving:.1f} s of them, {saving / seconds:.2%}"
        )
        waiting.end()
        lasting.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
