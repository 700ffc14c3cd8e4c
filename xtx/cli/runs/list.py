"""`xtx runs`: the runs in a folder, and room made by deleting checkpoints of finished ones."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from xtx.config.settings import RunConfig
from xtx.core import UserError, escape_controls, warn
from xtx.report.data.load_runs import explain_unreadable, find_distinct_run_folders
from xtx.report.data.run_groups import find_game_name
from xtx.runs.checkpoint_file import find_newest_checkpoint, list_checkpoints
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import Run
from xtx.sweep.run_progress import RunProgress, read_finished, read_running, read_stopped
from xtx.sweep.sweep_folder import is_finished, is_held, mark_finished
from xtx.terminal.shell_command import format_command

SortColumn = Literal["folder", "game", "agent", "seed", "steps", "avg", "max", "size", "state", "time"]
_DESCENDING = ("steps", "avg", "max", "size", "time")


@dataclass(frozen=True)
class Args:
    """Lists the runs in folders: game (with a star for added actions), agent, seed, steps, Avg (mean score of the last
    100 episodes), Max (best final score), size on disk and state. With --prune, deletes checkpoints of finished runs,
    after asking."""

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="FOLDER...")] = (Path("runs"),)
    """Folders with runs in them, or runs; runs/ if not given."""
    sort: SortColumn = "folder"
    """What the runs are ordered by; numbers from the largest, time from the newest."""
    agent: Annotated[str, arg(metavar="NAME")] = ""
    """Only runs of this agent."""
    game: Annotated[str, arg(metavar="NAME")] = ""
    """Only runs of this game."""
    prune: Literal["older", "all"] | None = None
    """Delete checkpoints of the finished runs that are listed. older: all but the newest and the best, so a run can
    still be evaluated and watched; all: those too, and only its figures and episodes are left."""
    yes: bool = False
    """Do not ask before anything is deleted."""


@dataclass(frozen=True)
class RunRow:
    """A run, as it is listed."""

    folder: Path
    config: RunConfig
    state: str
    """finished, running, stopped or new (without a checkpoint)."""
    progress: RunProgress
    size: int
    """Bytes of its files."""
    changed: float
    """When one of them was written last, in seconds since 1970."""

    @property
    def game(self) -> str:
        """The game's name, and how it is played where that is not plainly."""
        config = self.config
        whole = config.actions == "whole" and not config.game.startswith("toy:")  # a toy world has no dictionary
        ways = (("stochastic", config.stochastic), ("whole", whole))
        return " ".join(
            [find_game_name(config.game) + "*" * config.extra_actions, *(way for way, holds in ways if holds)]
        )

    def format_cells(self) -> list[str]:
        """What is shown, but for the folder."""
        progress = self.progress
        done, asked = format_count(progress.steps), format_count(self.config.steps)
        avg = "" if progress.mean is None else f"{progress.mean:.1f}"
        best = "" if progress.best is None else f"{progress.best:g}"
        return [
            self.game,
            self.config.agent,
            str(self.config.seed),
            done if self.state == "finished" else f"{done}/{asked}",
            avg,
            best,
            format_size(self.size),
            self.state,
        ]


TITLES = ("game", "agent", "seed", "steps", "Avg", "Max", "size", "state")
_RIGHT = ("seed", "steps", "Avg", "Max", "size")


def run(args: Args) -> int:
    """0, or 2 if a run could not be read."""
    if args.yes and args.prune is None:
        raise UserError("--yes is for --prune older or --prune all; add one, or leave it out")
    for folder in args.folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder; give a folder with runs in it")
    found, unread = _read(args.folders)
    rows = [
        row for row in found
        if args.agent in ("", row.config.agent) and args.game.lower() in ("", find_game_name(row.config.game))
    ]  # fmt: skip
    rows.sort(key=lambda row: str(row.folder))
    rows.sort(key=lambda row: _sort_key(row, args.sort), reverse=args.sort in _DESCENDING)
    console = Console(highlight=False, markup=False, emoji=False)
    if not rows:
        none = "There is no such run." if found else f"There is no run yet; begin one: {format_command('train')}"
        console.print("There is no run that can be read." if unread and not found else none)
    else:
        for line in format_rows(rows, console.width):
            console.print(line, soft_wrap=True)
        total = sum(row.size for row in rows)
        console.print(f"{len(rows)} run{'s' * (len(rows) != 1)}, {format_size(total)}")
    if args.prune is not None:
        _prune(args, rows, console)
    return 2 if unread else 0


def _read(folders: Sequence[Path]) -> tuple[list[RunRow], int]:
    """The runs, each once, and how many cannot be read."""
    rows: list[RunRow] = []
    unread = 0
    for folder in find_distinct_run_folders(folders):
        try:
            rows.append(read_row(folder))
        except Exception as error:  # whatever its files hold, the other runs are listed
            warn(explain_unreadable(folder, error))
            unread += 1
    return rows, unread


def read_row(folder: Path) -> RunRow:
    """A run's row. Raises `UserError` if its config cannot be read."""
    config = read_config(folder)
    finished = is_finished(folder, config)
    is_running = is_held(folder)
    if finished:
        progress = read_finished(folder, config)
    elif is_running:
        progress = read_running(folder, config, since=time.time())
    else:
        progress = read_stopped(folder, config)
    state = "running" if is_running else "finished" if finished else "stopped" if list_checkpoints(folder) else "new"
    sizes = _list_sizes(folder)
    return RunRow(
        folder, config, state, progress, sum(size for size, _ in sizes), max((at for _, at in sizes), default=0)
    )


def _list_sizes(folder: Path) -> list[tuple[int, float]]:
    """Bytes and time of each file below a folder; one with several names counts once."""
    found: dict[tuple[int, int], tuple[int, float]] = {}
    for below, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(below, name))
            except OSError:  # gone meanwhile
                continue
            found[status.st_dev, status.st_ino] = status.st_size, status.st_mtime
    return list(found.values())


def _sort_key(row: RunRow, by: SortColumn) -> tuple[bool, float | str]:
    values: dict[SortColumn, float | str | None] = {
        "folder": str(row.folder),
        "game": row.game,
        "agent": row.config.agent,
        "seed": float(row.config.seed),
        "steps": float(row.progress.steps),
        "avg": row.progress.mean,
        "max": row.progress.best,
        "size": float(row.size),
        "state": row.state,
        "time": row.changed,
    }
    value = values[by]
    return value is not None, 0.0 if value is None else value


def format_rows(rows: Sequence[RunRow], width: int) -> list[str]:
    """A table with the folder at the end of each line, or on a line of its own where there is no room for it."""
    cells = [list(TITLES), *([escape_controls(cell) for cell in row.format_cells()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(most) if title in _RIGHT else cell.ljust(most)
            for title, cell, most in zip(TITLES, line, widths, strict=True)
        )
        for line in cells
    ]
    folders = [escape_controls(str(row.folder)) for row in rows]
    if sum(widths) + 2 * len(widths) + max(map(len, folders)) <= width:
        return [f"{line}  {folder}" for line, folder in zip(lines, ["folder", *folders], strict=True)]
    return [lines[0], *(text for pair in zip(lines[1:], (f"    {f}" for f in folders), strict=True) for text in pair)]


def format_count(count: int) -> str:
    """A number of steps in few characters: three digits and a unit where it is large."""
    if count < 10_000:
        return f"{count:,}"
    unit, factor = ("k", 1e3) if count < 999_500 else ("M", 1e6)
    return f"{count / factor:.3g}{unit}"


def format_size(size: float) -> str:
    """Bytes, for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


# --- making room ------------------------------------------------------------------------------------------------


def list_prunable(folder: Path, what: Literal["older", "all"]) -> list[Path]:
    """The checkpoints of a finished run that may go. Of `older` ones, the newest that can be read is not one, nor is
    the best."""
    numbered = list_checkpoints(folder)
    if what == "all":
        best = folder / "checkpoints" / "best"
        return [*numbered, *([best] if best.is_file() else [])]
    newest, _ = find_newest_checkpoint(folder)
    return [] if newest is None else [path for path in numbered if path.name < newest.name]


def _prune(args: Args, rows: Sequence[RunRow], console: Console) -> None:
    what = args.prune or "older"
    found = [(row, list_prunable(row.folder, what)) for row in rows if row.state == "finished"]
    paths = [path for _, listed in found for path in listed]
    if not paths:
        console.print("No finished run has a checkpoint that can be deleted.")
        return
    size = format_size(sum(path.stat().st_size for path in paths))
    runs = sum(bool(listed) for _, listed in found)
    line = f"{len(paths)} checkpoint{'s' * (len(paths) != 1)} of {runs} finished run{'s' * (runs != 1)}, {size}"
    if what == "all":
        line += "; they can then not be evaluated, watched or gone on with any more"
    if not args.yes and not _confirm(console, line):
        console.print("Nothing was deleted.")
        return
    for row, listed in found:
        if listed:
            _delete(row, listed)
    console.print(
        f"Deleted {line.partition(';')[0]}; free there now: {format_size(shutil.disk_usage(rows[0].folder).free)}"
    )


def _confirm(console: Console, line: str) -> bool:
    if not sys.stdin.isatty():
        raise UserError(f"this would delete {line}; there is no terminal to ask for confirmation, so add --yes")
    console.print(f"This deletes {line}.", soft_wrap=True)
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


def _delete(row: RunRow, paths: Sequence[Path]) -> None:
    """While no other process works on the run, which stays marked as finished."""
    with Run.open(row.folder):
        mark_finished(row.folder, row.config)
        for path in paths:
            path.unlink(missing_ok=True)
