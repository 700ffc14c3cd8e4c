"""Run folders, read for a report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from xtx.config import RunConfig
from xtx.core import EpisodeRecord, UserError
from xtx.report.stats import Floats, WorkingTime, running_average, working_time
from xtx.runs import checkpoints, read_config, read_episodes, read_lines
from xtx.witness import Move


@dataclass(frozen=True, eq=False)
class RunData:
    """What a report needs of one run; episodes are columns, because a run has tens of thousands."""

    folder: Path
    config: RunConfig
    ends: NDArray[np.int64]
    """Steps of the run when each episode ended."""
    scores: Floats
    peaks: Floats
    lengths: Floats
    games: NDArray[np.int64]
    ended: list[str]
    average: Floats
    """The mean of the last 100 final scores, after each episode."""
    records: list[EpisodeRecord]
    """Episodes that were better than all before them, with their actions."""
    reached: int
    """Steps that the run has come to."""
    finished: bool
    time: WorkingTime | None
    starts: list[dict[str, Any]]
    """What it ran with, at each start."""
    moves: list[Move] = field(default_factory=list)
    """The ways between rooms, as they were found."""
    notes: list[str] = field(default_factory=list)
    """What is amiss, in words."""

    @property
    def speed(self) -> float | None:
        """Steps per second of working time."""
        return float(self.time.steps[-1]) / self.time.total if self.time and self.time.total > 0 else None

    def endings(self, last: int | None = None) -> Counter[str]:
        """How many of the last episodes, or of all, were won, ended by a death or by the limit."""
        return Counter(self.ended[-last:] if last else self.ended)


@dataclass(frozen=True)
class Unreadable:
    """A run that is there but cannot be read, and why."""

    folder: Path
    why: str


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The runs in these folders, however deep, each once. Raises `UserError` for a folder that has none."""
    found: dict[Path, Path] = {}
    for path in paths:
        here = list(runs_below(path))
        if not here:
            what = "there is no such folder" if not path.exists() else "there is no run in it"
            raise UserError(f"{path}: {what}; give the folder of a run, or one with runs in it")
        for run in here:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def runs_below(path: Path) -> Iterable[Path]:
    """The runs in a folder, or the folder itself if it is one."""
    for folder, inside, files in os.walk(path):
        inside.sort()
        if "config.json" in files:
            inside.clear()  # what lies in a run is not another run
            yield Path(folder)


def read_runs(folders: Iterable[Path]) -> tuple[list[RunData], list[Unreadable]]:
    """The runs that can be read, and those that cannot."""
    runs, failed = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except UserError as error:
            failed.append(Unreadable(folder, str(error)))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            failed.append(Unreadable(folder, f"{folder / 'episodes.jsonl'} is damaged ({error})"))
        except OSError as error:
            failed.append(Unreadable(folder, f"{error.filename or folder} cannot be read ({error.strerror})"))
    return runs, failed


def read_run(folder: Path) -> RunData:
    """One run. Raises what reading its settings or its episodes raises; the rest may be lacking."""
    config, episodes = read_config(folder), read_episodes(folder)
    notes: list[str] = []
    metrics, timing = _lines(folder, "metrics", notes), _lines(folder, "timing", notes)
    starts = _starts(folder, notes)
    scores = np.array([episode.score for episode in episodes], np.float64)
    logged = max((int(line["step"]) for line in metrics), default=0)
    saved = [int(path.name) for path in checkpoints(folder)]
    reached = max(logged, episodes[-1].step if episodes else 0, *saved, 0)
    # Without its checkpoints (a copy), a run whose next line of metrics would lie beyond the end may be finished.
    finished = reached >= config.steps or (not saved and logged + config.log_every * config.games > config.steps)
    if not finished:
        notes.append(f"not finished: {reached:,} of {config.steps:,} steps")
    if not episodes:
        notes.append("no episode has ended yet")
    return RunData(
        folder=folder,
        config=config,
        ends=np.array([episode.step for episode in episodes], np.int64),
        scores=scores,
        peaks=np.array([episode.peak for episode in episodes], np.float64),
        lengths=np.array([episode.length for episode in episodes], np.float64),
        games=np.array([episode.game for episode in episodes], np.int64),
        ended=[episode.ended for episode in episodes],
        average=running_average(scores),
        records=[episode for episode in episodes if episode.record],
        reached=reached,
        finished=finished,
        time=_working_time(timing, starts),
        starts=starts,
        moves=_moves(folder, notes),
        notes=notes,
    )


def _lines(folder: Path, name: str, notes: list[str]) -> list[dict[str, Any]]:
    """The lines up to the first damaged one; none of a report's scores come from these files."""
    lines: list[dict[str, Any]] = []
    try:
        for line in read_lines(folder, name):
            if not (isinstance(line, dict) and isinstance(line.get("step"), int)):
                raise ValueError("no step in it")
            lines.append(line)
    except (ValueError, msgspec.MsgspecError, OSError) as error:
        notes.append(f"{name}.jsonl is damaged after line {len(lines)} ({error})")
    return lines


def _moves(folder: Path, notes: list[str]) -> list[Move]:
    try:
        moves = [msgspec.convert(line, Move) for line in read_lines(folder, "rooms")]
    except (ValueError, msgspec.MsgspecError, OSError) as error:
        notes.append(f"rooms.jsonl is damaged ({error}), so there is no map")
        return []
    return sorted(moves, key=lambda move: move.step)


def _starts(folder: Path, notes: list[str]) -> list[dict[str, Any]]:
    try:
        found = json.loads((folder / "versions.json").read_text("utf-8"))
        if not (isinstance(found, list) and all(isinstance(start, dict) for start in found)):
            raise ValueError("not a list of starts")
        return found
    except FileNotFoundError:
        notes.append("versions.json is not there, so what it ran with is not known")
    except (ValueError, OSError) as error:
        notes.append(f"versions.json is damaged ({error})")
    return []


def _working_time(timing: list[dict[str, Any]], starts: list[dict[str, Any]]) -> WorkingTime | None:
    lines = [(line["step"], line["time"]) for line in timing if isinstance(line.get("time"), int | float)]
    begun = []
    for start in starts:
        try:
            begun.append(datetime.strptime(str(start.get("started")), "%Y-%m-%dT%H:%M:%S%z").timestamp())
        except ValueError:
            continue
    return working_time([step for step, _ in lines], [time for _, time in lines], begun)
