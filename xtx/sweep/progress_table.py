"""What a person sees of a sweep: one live table in a terminal, plain lines elsewhere, and all runs at the end."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from xtx.sweep.scheduler import RunState, SweepRun
from xtx.terminal.progress_panel import LINE_EVERY, LivePanel, format_time

REFRESH = 0.5
_STYLES = {
    RunState.RUNNING: "cyan",
    RunState.SENT: "cyan dim",
    RunState.HELD: "yellow",
    RunState.FAILED: "red",
    RunState.STOPPED: "yellow",
    RunState.WAITING: "dim",
    RunState.FINISHED: "green",
}
"""In the order in which they are shown where there is not room for all."""
_SPEED_FROM = 100
"""Columns of the screen from which on the speed of each run is shown."""
_OTHER_LINES = 9
"""Lines of the terminal that are not rows of runs."""


class SweepSpeed:
    """Game steps per second of all runs together, smoothed: runs write their progress down in bursts, and end and
    begin at different times, so that the sum of their newest speeds jumps."""

    OVER = 120.0
    """Seconds over which it is smoothed."""
    LEAST = 10.0
    """Seconds that are measured before there is a speed: a few runs' steps may come at once."""

    def __init__(self) -> None:
        self._began = self._seen = 0.0
        self._steps: int | None = None
        self._has_begun = False
        self.steps_per_second: float | None = None
        """None before there is anything to measure."""

    def add(self, now: float, steps: int) -> None:
        """Takes how many steps are done in all at a moment."""
        if not self._has_begun:  # the first steps that are told of took a time that is not known
            self._has_begun = self._steps is not None and steps > self._steps
            self._began = self._seen = now
            self._steps = steps
            return
        assert self._steps is not None
        least = 1 if self.steps_per_second is not None else self.LEAST
        if now - self._seen < least or (self.steps_per_second is None and steps <= self._steps):
            return
        newest = max(0, steps - self._steps) / (now - self._seen)  # a run that failed goes back to its checkpoint
        before = newest if self.steps_per_second is None else self.steps_per_second
        weight = (now - self._seen) / min(self.OVER, now - self._began)  # at first the plain mean
        self.steps_per_second = before + min(1.0, weight) * (newest - before)
        self._seen, self._steps = now, steps


class SweepDisplay(LivePanel):
    """Shows the runs while they are under way."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, auto_refresh=False)
        self._shown = float("-inf")
        self._items: Sequence[SweepRun] = ()
        self._speed = SweepSpeed()
        self._stopping = False

    def show_stopping(self) -> None:
        """Says that the runs were asked to stop."""
        if not self._stopping:
            self._stopping = True
            self.tell("asking the runs to save and stop; Ctrl-C again ends them at once")

    def show(self, items: Sequence[SweepRun]) -> None:
        """The state of all runs, not more often than a person can read."""
        now = time.monotonic()
        self._items = items
        self._speed.add(now, sum(item.run.config.steps - item.left for item in items))
        if self._live is not None and now - self._shown > REFRESH:
            self._shown = now
            self._live.refresh()
        elif self._live is None and now - self._shown > LINE_EVERY:
            self._shown = now
            self.tell(format_overview(items, self._speed.steps_per_second or 0.0))

    def draw(self) -> RenderableType:
        """The table, as far as there is room, and a line about all runs."""
        rows = max(3, self._console.height - _OTHER_LINES)
        return Group(
            build_table(_choose_shown(self._items, rows), self._console.width),
            Text(format_overview(self._items, self._speed.steps_per_second or 0.0)),
        )


def build_table(items: Sequence[SweepRun], width: int = 120) -> Table:
    """One row for each run. Avg is the mean score of its last 100 episodes, Max its best. On a narrow screen the speed
    of each run is left out rather than its name broken."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in ("game", "agent", "seed", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("steps", *(["steps/s"] if width >= _SPEED_FROM else []), "Avg", "Max", "left"):
        table.add_column(title, justify="right", no_wrap=True)
    for item in items:
        progress, style = item.progress, _STYLES[item.state]
        game, agent, seed = item.run.folder.split("/")
        speed = progress.speed if item.state is RunState.RUNNING else None
        where = f" on {item.where}" if item.where and item.state is RunState.RUNNING else ""
        table.add_row(
            Text(game),  # not markup: a line that is printed without any also redraws the table without any
            Text(agent),
            seed.removeprefix("seed-"),
            Text(item.state.value + where, style),
            f"{progress.steps:,}",
            *([f"{speed:.0f}" if speed else ""] if width >= _SPEED_FROM else []),
            f"{progress.mean:.1f}" if progress.mean is not None else "",
            f"{progress.best:g}" if progress.best is not None else "",
            format_time(item.left / speed) if speed else "",
        )
    return table


def build_means(items: Sequence[SweepRun]) -> Table | None:
    """One row for each agent on each game: mean and standard deviation over the seeds that are finished. None where no
    agent has several."""
    groups: dict[tuple[str, str], list[SweepRun]] = {}
    for item in items:
        if item.state is RunState.FINISHED and item.progress.mean is not None and item.progress.best is not None:
            game, agent, _ = item.run.folder.split("/")
            groups.setdefault((game, agent), []).append(item)
    if not any(len(group) > 1 for group in groups.values()):
        return None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in ("game", "agent"):
        table.add_column(title, overflow="fold")
    for title in ("seeds", "Avg ± sd", "Max ± sd"):
        table.add_column(title, justify="right", no_wrap=True)
    for (game, agent), group in groups.items():
        figures = ([item.progress.mean or 0.0 for item in group], [item.progress.best or 0.0 for item in group])
        table.add_row(Text(game), Text(agent), str(len(group)), *map(_format_spread, figures))
    return table


def _format_spread(values: Sequence[float]) -> str:
    """The mean, with the population's standard deviation, as in reports; that of a single seed says nothing."""
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {statistics.pstdev(values):.1f}" if len(values) > 1 else mean


def format_overview(items: Sequence[SweepRun], speed: float | None = None) -> str:
    """All runs in one line. `speed`: their steps per second together, if that was measured over some time."""
    counts = Counter(item.state for item in items)
    done = sum(item.run.config.steps - item.left for item in items)
    total = sum(item.run.config.steps for item in items)
    running = [item for item in items if item.state is RunState.RUNNING]
    speed = sum(item.progress.speed or 0.0 for item in running) if speed is None else speed if running else 0.0
    states = ", ".join(f"{counts[state]} {state.value}" for state in RunState if counts[state])
    rest = f", {speed:.0f} steps/s, about {format_time((total - done) / speed)} left" if speed else ""
    return f"{len(items)} run{'s' * (len(items) != 1)}: {states}; {done:,} of {total:,} steps{rest}"


def print_result(console: Console, items: Sequence[SweepRun], out: Path) -> None:
    """All runs, the means over their seeds, and why some failed."""
    console.print(build_table(items, console.width))
    if (means := build_means(items)) is not None:
        console.print(means)
    console.print(format_overview(items), soft_wrap=True, markup=False)
    for item in items:
        if item.state is RunState.FAILED:
            console.print(f"\n{item.path} failed: {item.why}", soft_wrap=True, markup=False)
            for line in item.log:
                console.print(f"    {line}", soft_wrap=True, markup=False)


def _choose_shown(items: Sequence[SweepRun], rows: int) -> list[SweepRun]:
    """Those that there is room for, those about which there is something to see before the others."""
    if len(items) <= rows:
        return list(items)
    order = list(_STYLES)
    places = sorted(range(len(items)), key=lambda place: order.index(items[place].state))[:rows]
    return [items[place] for place in sorted(places)]
