"""Run folders and summaries of runs, read for a report."""

from __future__ import annotations

import fnmatch
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.files.bounded_reads import BadFileError, explain_read_error, read_json
from xtx.report.data.episode_digest import Digest, make_digest
from xtx.report.data.evaluations import Evaluation, read_evaluations, read_until_damaged
from xtx.report.data.game_facts import GameFacts
from xtx.report.data.metric_lines import read_numbers
from xtx.report.data.run_summary import Summary, read_start, read_summary
from xtx.report.data.statistics import Floats, WorkingTime, measure_working_time
from xtx.report.number_format import format_amount
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.runs.line_files import MAX_NUMBER, RoomMove, read_episodes, read_lines
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import CHANGES
from xtx.runs.viewer_files import MAX_NAME_LETTERS, MAX_PAIRS, MAX_WAYS

SUMMARIES = "seed-*.json"
"""What files with summaries of runs are called; one that is named itself may be called anything."""
MAX_TIME = 1e12
"""Seconds since 1970 in timing.jsonl; the year 33,658."""


@dataclass(frozen=True, eq=False)
class RunData:
    """What a report needs of one run."""

    folder: Path
    """The run's folder, or the file of its summary."""
    config: RunConfig
    digest: Digest
    scores: Floats
    """Final scores of all episodes in order; of a summary, those of the last 100."""
    reached: int
    """Steps that the run has come to."""
    finished: bool
    time: WorkingTime | None
    starts: list[dict[str, Any]]
    """What it ran with, at each start."""
    moves: list[RoomMove] = field(default_factory=list)
    """The ways between rooms, as they were found; a summary has none."""
    notes: list[str] = field(default_factory=list)
    """What is amiss, in words."""
    changes: list[str] = field(default_factory=list)
    """Those of the notes that say which changes from outside were accepted."""
    numbers: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    """Losses and the like: at these steps, these values; summaries of earlier versions have none."""
    evaluations: list[Evaluation] = field(default_factory=list)
    """What `xtx evaluate` found, one by one; a summary has none."""
    is_summary: bool = False
    """Whether a summary is all there is of it."""
    facts: GameFacts | None = None
    """What its summary holds of the game."""

    @property
    def speed(self) -> float | None:
        """Steps per second of working time."""
        return float(self.time.steps[-1]) / self.time.total if self.time and self.time.total > 0 else None

    @property
    def began(self) -> str | None:
        """The moment of its first start, which distinguishes runs of the same settings."""
        return (str(self.starts[0].get("started") or "") or None) if self.starts else None


@dataclass(frozen=True)
class Unreadable:
    """A run that is there but cannot be read, and why."""

    folder: Path
    why: str


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The runs and summaries in these folders, however deep, and the summaries named themselves, each once. Raises
    `UserError` for a folder that has none."""
    found: dict[Path, Path] = {}
    for path in paths:
        here = [path] if path.is_file() else list(find_below(path))
        if not here:
            what = "there is no such folder" if not path.exists() else "there is no run in it"
            raise UserError(f"{path}: {what}; give the folder of a run, or one with runs in it")
        for run in here:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def find_below(path: Path) -> Iterable[Path]:
    """The runs and summaries in a folder, or the folder itself if it is a run. However deep: there is no recursion."""
    waiting = [str(path)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except PermissionError:
            yield Path(folder)  # may be a run; reading it will say that it cannot be read
            continue
        except OSError:
            continue
        if any(entry.name == "config.json" and not _is_folder(entry) for entry in entries):
            yield Path(folder)  # what lies in a run is not another run
            continue
        inside = [entry for entry in entries if _is_folder(entry)]
        names = [entry.name for entry in entries if entry not in inside]
        yield from (Path(folder, name) for name in fnmatch.filter(names, SUMMARIES))
        waiting += [entry.path for entry in reversed(inside) if not entry.is_symlink()]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def find_run_folders(path: Path) -> Iterable[Path]:
    """The folders of runs in a folder, or the folder itself if it is one."""
    return (found for found in find_below(path) if found.is_dir())


def find_distinct_run_folders(paths: Iterable[Path]) -> list[Path]:
    """The folders of runs in these folders, each once, in an order that stays the same."""
    found: dict[Path, Path] = {}
    for path in paths:
        for folder in find_run_folders(path):
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def read_runs(folders: Iterable[Path]) -> tuple[list[RunData], list[Unreadable]]:
    """The runs that can be read, and those that cannot."""
    runs, failed = [], []
    for folder in folders:
        try:
            runs.append(convert_summary(folder, read_summary(folder)) if folder.is_file() else read_run(folder))
        except Exception as error:  # whatever its files hold, the other runs are shown
            failed.append(Unreadable(folder, explain_unreadable(folder, error)))
    return runs, failed


def explain_unreadable(folder: Path, error: Exception) -> str:
    """Why a run cannot be read, from the exception that reading it raised."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, BadFileError):
        return f"{folder / 'episodes.jsonl'} is damaged ({error})"
    if isinstance(error, OSError):
        return f"{error.filename or folder} cannot be read ({error.strerror})"
    return f"{folder} cannot be read ({type(error).__name__}: {error})"


def read_run(folder: Path) -> RunData:
    """One run. Raises what reading its settings or its episodes raises; the rest may be lacking."""
    config, episodes = read_config(folder), read_episodes(folder)
    _check_config(folder / "config.json", config)
    notes: list[str] = []
    metrics, timing = _read_steps(folder, "metrics", notes), _read_steps(folder, "timing", notes)
    starts = _read_starts(folder, notes)
    logged = max((int(line["step"]) for line in metrics), default=0)
    saved = [int(path.name) for path in list_checkpoints(folder)]
    reached = max(logged, episodes[-1].step if episodes else 0, *saved, 0)
    # Without its checkpoints (a copy), a run whose next line of metrics would lie beyond the end may be finished.
    finished = reached >= config.steps or (not saved and logged + config.log_every * config.num_envs > config.steps)
    if not finished:
        notes.append(f"not finished: {reached:,} of {config.steps:,} steps")
    if not episodes:
        notes.append("no episode has ended yet")
    changes, evaluations = _describe_accepted_changes(folder, notes), read_evaluations(folder, notes)
    time = _measure_working_time(timing, starts)
    return RunData(
        folder=folder,
        config=config,
        digest=make_digest(episodes, reached, time),
        scores=np.array([episode.score for episode in episodes], np.float64),
        reached=reached,
        finished=finished,
        time=time,
        starts=starts,
        moves=_read_moves(folder, notes),
        notes=notes + changes,
        changes=changes,
        numbers=read_numbers(metrics, reached),
        evaluations=evaluations,
    )


def _check_config(file: Path, config: RunConfig) -> None:
    """Raises `UserError` for numbers that no run has and that figures cannot be made of."""
    for name, least in (("steps", 1), ("num_envs", 1), ("log_every", 1), ("seed", -MAX_NUMBER)):
        value = getattr(config, name)
        if not least <= value < MAX_NUMBER:
            raise UserError(f"{file} is damaged (its {name}: {value})")


def convert_summary(path: Path, summary: Summary) -> RunData:
    """The run of which there is this summary."""
    _check_config(path, summary.config)
    notes = [] if summary.finished else [f"not finished: {summary.reached:,} of {summary.config.steps:,} steps"]
    notes.append(
        f"read from a summary: its curve has {format_amount(len(summary.curve.steps), 'point')}, and there is no map, "
        "because summaries hold no texts of games"
    )
    if not summary.starts:
        notes.append("what it ran with is not known")
    if summary.starts_left_out:
        notes.append(f"{format_amount(summary.starts_left_out, 'start')} after the first are not among the versions")
    notes += summary.changes
    if not summary.best.actions:
        notes.append("the actions of its best episode were too many for the summary")
    return RunData(
        folder=path,
        config=summary.config,
        digest=summary.make_digest(),
        scores=np.array(summary.last.scores, np.float64),
        reached=summary.reached,
        finished=summary.finished,
        time=summary.read_working_time(),
        starts=[msgspec.to_builtins(start) for start in summary.starts],
        notes=notes,
        changes=summary.changes,
        numbers=summary.read_numbers(),
        is_summary=True,
        facts=summary.game,
    )


def _read_steps(folder: Path, name: str, notes: list[str]) -> list[dict[str, Any]]:
    """The lines of a file up to the first damaged one; none of a report's scores come from these files."""

    def check(line: Any) -> dict[str, Any]:
        step = line.get("step") if isinstance(line, dict) else None
        if not isinstance(step, int) or not 0 <= step < MAX_NUMBER:
            raise BadFileError("no step in it")
        found: dict[str, Any] = line
        return found

    return read_until_damaged(folder, name, check, notes)


def _describe_accepted_changes(folder: Path, notes: list[str]) -> list[str]:
    """A sentence for each time that files of the run were changed from outside and the run went on all the same."""
    found = []
    for line in _read_steps(folder, CHANGES, notes):
        what = line.get("changes")
        words = "; ".join(str(change) for change in what) if isinstance(what, list) else "not known what"
        found.append(f"changed from outside at step {line['step']:,}, which was accepted: {words[:500]}")
    return found


def _read_moves(folder: Path, notes: list[str]) -> list[RoomMove]:
    moves: list[RoomMove] = []
    try:
        for line in read_lines(folder, "rooms"):
            move = msgspec.convert(line, RoomMove)
            if not 0 <= move.step < MAX_NUMBER:
                raise BadFileError("no step in it")
            if len(moves) == MAX_PAIRS * MAX_WAYS:
                notes.append(f"rooms.jsonl has more than {len(moves):,} lines, and the rest is left out")
                break
            short = (name[:MAX_NAME_LETTERS] for name in (move.origin, move.action, move.target))
            moves.append(RoomMove(move.step, *short))
    except (ValueError, OSError) as error:
        notes.append(f"rooms.jsonl is damaged ({explain_read_error(error)}), so there is no map")
        return []
    return sorted(moves, key=lambda move: move.step)


def _read_starts(folder: Path, notes: list[str]) -> list[dict[str, Any]]:
    try:
        found = read_json(folder / "versions.json")
        if not (isinstance(found, list) and all(isinstance(start, dict) for start in found)):
            raise BadFileError("not a list of starts")
        return [msgspec.to_builtins(read_start(start)) for start in found]
    except FileNotFoundError:
        notes.append("versions.json is not there, so what it ran with is not known")
    except (ValueError, OSError) as error:
        notes.append(f"versions.json is damaged ({explain_read_error(error)})")
    return []


def _measure_working_time(timing: list[dict[str, Any]], starts: list[dict[str, Any]]) -> WorkingTime | None:
    lines = [(line["step"], line["time"]) for line in timing if _is_time(line.get("time"))]
    begun = []
    for start in starts:
        try:
            begun.append(datetime.strptime(str(start.get("started")), "%Y-%m-%dT%H:%M:%S%z").timestamp())
        except (ValueError, OverflowError):
            continue
    return measure_working_time([step for step, _ in lines], [time for _, time in lines], begun)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value < MAX_TIME
