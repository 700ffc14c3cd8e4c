"""Reads steps, scores and speed of a run from its folder while another process writes it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xtx.config.settings import RunConfig
from xtx.core import EPISODES_OF_MEAN
from xtx.files.bounded_reads import BadFileError, decode_json
from xtx.files.regular_files import open_readable
from xtx.runs.line_files import read_episodes
from xtx.sweep.sweep_folder import read_saved_steps

SPEED_OVER = 60.0
"""Seconds of the run over which the speed is measured."""
_TAIL = 1 << 16
"""Bytes that are read from the end of a file: some hundred lines."""


@dataclass(frozen=True)
class RunProgress:
    """Steps and scores of a run; None for what is not known."""

    steps: int = 0
    mean: float | None = None
    """Mean score of the last `EPISODES_OF_MEAN` episodes."""
    best: float | None = None
    speed: float | None = None
    """Game steps per second over the last minute."""


def read_running(folder: Path, config: RunConfig, since: float) -> RunProgress:
    """Read a run that was started at the time `since`, in seconds since 1970. Reads the ends of two files only."""
    newest = next(_read_newest_lines(folder / "metrics.jsonl"), {})
    steps = max(_read_number(newest, "step") or 0, read_saved_steps(folder))
    speed = _read_speed(folder, since)
    mean, best = _read_number(newest, "score_mean"), _read_number(newest, "score_max")
    return RunProgress(min(int(steps), config.steps), mean, best, speed)


def read_finished(folder: Path, config: RunConfig) -> RunProgress:
    """Read a finished run, with its scores at the very end."""
    newest = next(_read_newest_lines(folder / "metrics.jsonl"), {})
    if (_read_number(newest, "step") or 0) >= config.steps:
        return RunProgress(config.steps, _read_number(newest, "score_mean"), _read_number(newest, "score_max"))
    # The last line of metrics was written before the end, so the scores come from the episodes.
    mean, best = _read_episode_scores(folder)
    return RunProgress(config.steps, mean, best)


def read_stopped(folder: Path, config: RunConfig) -> RunProgress:
    """Read a run that is not going on, with its scores at the end: metrics lag behind its episodes."""
    progress = read_running(folder, config, time.time())
    mean, best = _read_episode_scores(folder)
    return progress if mean is None else replace(progress, mean=mean, best=best)


def _read_episode_scores(folder: Path) -> tuple[float | None, float | None]:
    """Mean of the last `EPISODES_OF_MEAN` final scores, and the best of all; None without any episode."""
    try:
        scores = [episode.score for episode in read_episodes(folder)]
    except (OSError, BadFileError):
        scores = []
    last = scores[-EPISODES_OF_MEAN:]
    return (sum(last) / len(last), max(scores)) if scores else (None, None)


def _read_speed(folder: Path, since: float) -> float | None:
    """Return steps per second, by the times that the run writes to timing.jsonl."""
    marks: list[tuple[float, float]] = []
    for line in _read_newest_lines(folder / "timing.jsonl"):
        time, step = _read_number(line, "time"), _read_number(line, "step")
        # Backwards to the current start of the run, and at most a minute.
        if time is None or step is None or time < since or (marks and (step > marks[-1][1] or time > marks[-1][0])):
            break
        marks.append((time, step))
        if marks[0][0] - time > SPEED_OVER:
            break
    if len(marks) < 2 or marks[0][0] <= marks[-1][0]:
        return None
    return (marks[0][1] - marks[-1][1]) / (marks[0][0] - marks[-1][0])


def _read_newest_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the last lines of a file that is being written, newest first, up to a damaged one."""
    try:
        with open_readable(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
    except OSError:
        return
    whole, end, _ = tail.rpartition(b"\n")
    lines = whole.split(b"\n") if end else []
    if size > _TAIL:
        lines = lines[1:]  # its beginning is cut off
    for line in reversed(lines):
        try:
            found = decode_json(line)
        except BadFileError:
            return
        if not isinstance(found, dict):
            return
        yield found


def _read_number(line: dict[str, Any], name: str) -> float | None:
    value = line.get(name)
    return value if isinstance(value, int | float) else None
