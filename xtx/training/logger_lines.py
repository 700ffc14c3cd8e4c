"""What is passed on to TensorBoard and Weights & Biases: points made from the lines of a run's own files.

The files are what counts: they are cut back when a run goes on from a checkpoint, so what is made from them again is
the same, and a logger that was added later gets all that it missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from xtx.core import EPISODES_OF_MEAN, EpisodeRecord
from xtx.files.bounded_reads import BadFileError, decode_json
from xtx.files.regular_files import open_readable

DENSE_EPISODES = 100
"""Episodes at the beginning of a run at whose ends there is a point of `score_mean` and `score_max`: lines of metrics
come every few hundred steps only, and by the first one the best part of the rise may be over. Later there is one at
each new best score, so that the last `score_max` is the run's also where no line of metrics follows."""
_GROUPS = ("score", "loss", "episode", "q", "gradient", "imitation", "trajectories")
_PLAN = ("target_score", "l_max", "episode_limit")


@dataclass
class Point:
    """Numbers at a step."""

    step: int
    numbers: dict[str, float] = field(default_factory=dict)
    time: float | None = None
    """When it was written, in seconds since 1970, where that is known."""


class _NewLines:
    """The whole lines of a file that were not read before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[Any]:
        """Decoded; a damaged line ends them."""
        try:
            with open_readable(self._path) as file:
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines(keepends=True):
            try:
                found = decode_json(line)
            except BadFileError:
                return
            self._offset += len(line)
            yield found


class PointReader:
    """Makes points of what a run's files have, from their beginning on."""

    def __init__(self, folder: Path) -> None:
        self._metrics = _NewLines(folder / "metrics.jsonl")
        self._episodes = _NewLines(folder / "episodes.jsonl")
        self._timing = _NewLines(folder / "timing.jsonl")
        self._timings: dict[int, tuple[float, float | None]] = {}
        """Time and steps per second, by step."""
        self._newest: dict[str, Any] = {}
        self._scores: deque[int] = deque(maxlen=EPISODES_OF_MEAN)
        self._count = 0
        self._best: int | None = None

    def read(self) -> list[Point]:
        """The points that are new, in the order of their steps."""
        for line in self._timing.read():
            self._note_timing(line)
        points: dict[int, Point] = {}
        for line in self._episodes.read():
            self._add_episode(line, points)
        for line in self._metrics.read():
            if isinstance(line, dict) and isinstance(step := line.get("step"), int):
                point = points.setdefault(step, Point(step))
                point.numbers |= {
                    name: float(value)
                    for name, value in line.items()
                    if name not in ("step", "episodes") and isinstance(value, int | float)
                }
                point.time, speed = self._timings.get(step, (None, None))
                if speed is not None:
                    point.numbers["steps_per_second"] = speed
        return [points[step] for step in sorted(points)]

    def _note_timing(self, line: Any) -> None:
        """Notes when a line of metrics was written, and the speed since the one before of the same start."""
        if not isinstance(line, dict):
            return
        step, time, parts = line.get("step"), line.get("time"), line.get("parts")
        if not isinstance(step, int) or not isinstance(time, int | float):
            return
        before, self._newest = self._newest, line
        same_start = bool(before) and _sum_parts(before.get("parts")) <= _sum_parts(parts) and step > before["step"]
        speed = (step - before["step"]) / (time - before["time"]) if same_start and time > before["time"] else None
        self._timings[step] = time, speed

    def _add_episode(self, line: Any, points: dict[int, Point]) -> None:
        try:
            episode = msgspec.convert(line, EpisodeRecord)
        except msgspec.ValidationError:
            return
        self._count += 1
        self._scores.append(episode.score)
        is_record = self._best is None or episode.score > self._best
        self._best = episode.score if self._best is None else max(self._best, episode.score)
        numbers = points.setdefault(episode.step, Point(episode.step)).numbers
        numbers["episode_return"], numbers["episode_length"] = float(episode.score), float(episode.length)
        if self._count <= DENSE_EPISODES or is_record or "score_max" in numbers:
            numbers |= {"score_mean": sum(self._scores) / len(self._scores), "score_max": float(self._best)}


def _sum_parts(parts: Any) -> float:
    return sum(v for v in parts.values() if isinstance(v, int | float)) if isinstance(parts, dict) else 0.0


def choose_group(name: str) -> str:
    """A number's name with the group in which TensorBoard shows it: `loss/imitation` of `loss_imitation`."""
    first, _, rest = name.partition("_")
    if name in _PLAN:
        return f"plan/{name}"
    if name == "steps_per_second":
        return f"speed/{name}"
    return f"{first}/{rest}" if first in _GROUPS and rest else f"learning/{name}"
