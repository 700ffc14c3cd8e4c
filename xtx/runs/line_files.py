"""The .jsonl files of a run: reading their lines, and checksums that show whether lines were changed."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from xtx.core import EpisodeRecord
from xtx.files.bounded_reads import MAX_LINE_BYTES, BadFileError, read_json_lines
from xtx.files.regular_files import open_readable

EXACT_FILES = ("metrics", "episodes", "rooms")
"""Names of the .jsonl files whose content is the same whatever happened to the process."""
MAX_NUMBER = 2**53
"""Steps and scores of a run are below this, so that float64 represents them exactly."""
_DIGEST_BYTES = 32
"""Size of a checksum (BLAKE2b)."""
_BLOCK_BYTES = 1 << 20
"""Bytes of one read when a checksum is computed: a whole file need not fit into memory."""


def read_lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of one of the run's .jsonl files, without a last line that is still being written."""
    return read_json_lines(folder / f"{name}.jsonl")


def read_episodes(folder: Path) -> list[EpisodeRecord]:
    """Return all finished episodes. Raises `BadFileError` for a damaged file, impossible numbers or decreasing
    steps."""
    episodes: list[EpisodeRecord] = []
    step = 0
    for episode in read_json_lines(folder / "episodes.jsonl", EpisodeRecord):
        figures = (episode.episode, episode.game, episode.score, episode.peak, episode.length, episode.seed)
        if not step <= episode.step < MAX_NUMBER or max(map(abs, figures)) >= MAX_NUMBER or episode.length < 0:
            raise BadFileError(f"line {len(episodes) + 1}: numbers that no episode has")
        step = episode.step
        episodes.append(episode)
    return episodes


class LineChecksum:
    """The length and the checksum of a .jsonl file, updated with every line."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def add(self, content: bytes) -> None:
        """Add bytes that are appended to the file."""
        self.size += len(content)
        self._hash.update(content)

    def add_file(self, path: Path, most: int) -> None:
        """Add the first `most` bytes of a file; nothing if it is missing."""
        with contextlib.suppress(FileNotFoundError), open_readable(path) as file:
            while block := file.read(min(_BLOCK_BYTES, most)):
                most -= len(block)
                self.add(block)

    def compute_digest(self) -> str:
        """Return the checksum so far, in hexadecimal."""
        return self._hash.copy().hexdigest()


class _MetricsLine(msgspec.Struct):
    step: int


@dataclass(frozen=True)
class RoomMove:
    """A line of rooms.jsonl: an action that led from one room to another for the first time."""

    step: int
    """Game steps of the run until then."""
    origin: str
    action: str
    target: str


_LINES: dict[str, msgspec.json.Decoder[_MetricsLine | EpisodeRecord | RoomMove]] = {
    "metrics": msgspec.json.Decoder(_MetricsLine),
    "episodes": msgspec.json.Decoder(EpisodeRecord),
    "rooms": msgspec.json.Decoder(RoomMove),
}
"""Decoders for the lines of the files of `EXACT_FILES`: a line is readable if it has these fields."""


def read_step(name: str, line: bytes) -> int | None:
    """Return the step of a line of a file of `EXACT_FILES`; None if the line cannot be read."""
    if line.endswith(b"\n"):
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            return _LINES[name].decode(line).step
    return None


def describe_damage(name: str, path: Path, size: int) -> str:
    """Describe how the first `size` bytes of a file of `EXACT_FILES` were changed."""
    for number, line in enumerate(read_raw_lines(path, size), 1):
        if read_step(name, line) is None:
            return f"is damaged: line {number} cannot be read"
    return "is not what was written: lines differ"


def read_raw_lines(path: Path, max_bytes: int) -> Iterator[bytes]:
    """Yield the lines in the first `max_bytes` bytes of a file, without a line that continues behind them.

    Of a line longer than `MAX_LINE_BYTES` only the beginning is yielded, without the line end.
    """
    with open_readable(path) as file:
        is_beginning = True
        while part := file.readline(min(MAX_LINE_BYTES, max_bytes)):
            max_bytes -= len(part)
            is_end = part.endswith(b"\n")
            if is_beginning and (is_end or max_bytes > 0):
                yield part
            is_beginning = is_end


def find_free_name(lines: Path) -> Path:
    """Return an unused name beside a file: its own with `.old`, and a number if that is taken."""
    number, free = 1, lines.with_name(f"{lines.name}.old")
    while free.exists():
        number += 1
        free = lines.with_name(f"{lines.name}.old-{number}")
    return free
