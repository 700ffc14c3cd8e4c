"""Shows a sweep: a live table in a terminal, lines of text otherwise, and a table of all runs at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from xtx.live import LiveShow
from xtx.sweep.conduct import Item, State

LINE_EVERY = 30.0
"""Seconds between lines if the output is not a terminal."""
REFRESH = 0.5
"""Seconds between updates of the live table."""
_STYLES = {
    State.RUNNING: "cyan",
    State.SENT: "cyan dim",
    State.HELD: "yellow",
    State.FAILED: "red",
    State.STOPPED: "yellow",
    State.WAITING: "dim",
    State.FINISHED: "green",
}
"""The style of each state, in the order in which runs are shown if the terminal has no space for all."""
_OTHER_LINES = 9
"""Lines of the terminal that are not available for rows: title, borders, summary, messages."""


class Show(LiveShow):
    """Shows the runs of a sweep while it runs."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._shown = float("-inf")
        self._stopping = False

    def stopping(self) -> None:
        """Print once that the runs were asked to stop."""
        if not self._stopping:
            self._stopping = True
            self.tell("asking the runs to save and stop; Ctrl-C again ends them at once")

    def show(self, items: Sequence[Item]) -> None:
        """Show the state of all runs, if the last time was long enough ago."""
        now = time.monotonic()
        if self._live is not None and now - self._shown > REFRESH:
            self._shown = now
            rows = max(3, self._console.height - _OTHER_LINES)
            self._live.update(Group(build_table(_first(items, rows)), Text(overview(items))))
        elif self._live is None and now - self._shown > LINE_EVERY:
            self._shown = now
            self.tell(overview(items))

    def tell(self, line: str) -> None:
        """Print a line that stays above the table."""
        self._console.print(f"xtx: {line}", highlight=False, soft_wrap=True, markup=False)


def build_table(items: Sequence[Item]) -> Table:
    """Return a table with a row for each run; `last 100` is the mean score of its last 100 episodes."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in ("game", "agent", "seed", "state"):
        table.add_column(title, overflow="fold")
    for title in ("steps", "steps/s", "last 100", "max", "left"):
        table.add_column(title, justify="right", no_wrap=True)
    for item in items:
        reading, style = item.reading, _STYLES[item.state]
        game, agent, seed = item.run.folder.split("/")
        speed = reading.speed if item.state is State.RUNNING else None
        where = f" on {item.where}" if item.where and item.state is State.RUNNING else ""
        table.add_row(
            escape(game),
            escape(agent),
            seed.removeprefix("seed-"),
            f"[{style}]{escape(item.state.value + where)}[/{style}]",
            f"{reading.steps:,}",
            f"{speed:.0f}" if speed else "",
            f"{reading.mean:.1f}" if reading.mean is not None else "",
            f"{reading.best:g}" if reading.best is not None else "",
            spell_time(item.left / speed) if speed else "",
        )
    return table


def overview(items: Sequence[Item]) -> str:
    """Return a summary of all runs in one line."""
    counts = Counter(item.state for item in items)
    done = sum(item.run.config.steps - item.left for item in items)
    total = sum(item.run.config.steps for item in items)
    speed = sum(item.reading.speed or 0.0 for item in items if item.state is State.RUNNING)
    states = ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])
    rest = f", {speed:.0f} steps/s, about {spell_time((total - done) / speed)} left" if speed else ""
    return f"{len(items)} run{'s' * (len(items) != 1)}: {states}; {done:,} of {total:,} steps{rest}"


def print_end(console: Console, items: Sequence[Item], out: Path) -> None:
    """Print all runs, and why runs failed."""
    console.print(build_table(items))
    console.print(overview(items), highlight=False, soft_wrap=True, markup=False)
    for item in items:
        if item.state is State.FAILED:
            console.print(f"\n{item.path} failed: {item.why}", highlight=False, soft_wrap=True, markup=False)
            for line in item.log:
                console.print(f"    {line}", highlight=False, soft_wrap=True, markup=False)


def _first(items: Sequence[Item], rows: int) -> list[Item]:
    """Return at most `rows` runs: running ones first, then by the order of `_STYLES`."""
    if len(items) <= rows:
        return list(items)
    order = list(_STYLES)
    places = sorted(range(len(items)), key=lambda place: order.index(items[place].state))[:rows]
    return [items[place] for place in sorted(places)]


def spell_time(seconds: float) -> str:
    """Return a duration as text, in seconds, minutes, hours or days."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole / 3600:.1f} h" if whole < 48 * 3600 else f"{whole / 86400:.1f} days"
