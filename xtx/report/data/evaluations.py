"""What `xtx evaluate` found of a run, evaluation by evaluation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from xtx.files.bounded_reads import BadFileError, explain_read_error
from xtx.runs.line_files import MAX_NUMBER, read_lines

NAME = "evaluations"
"""Of the file, without its ending: one line for each evaluation."""
MAX_EVALUATIONS = 1000

_Line = TypeVar("_Line")


class ShownFigures(msgspec.Struct, frozen=True):
    """The figures that a report shows; a line has more."""

    episodes: int
    score_mean: float
    score_std: float
    score_max: int
    length_mean: float


class Evaluation(msgspec.Struct, frozen=True):
    """One line of evaluations.jsonl."""

    trained_steps: int
    checkpoint: str
    greedy: bool
    date: str
    figures: ShownFigures


def read_evaluations(folder: Path, notes: list[str]) -> list[Evaluation]:
    """The evaluations of a run, in order, up to the first damaged line, which is noted."""

    def convert(line: Any) -> Evaluation:
        one = msgspec.convert(line, Evaluation)
        if not 0 <= one.trained_steps < MAX_NUMBER or len(one.date) > 100:
            raise BadFileError("no evaluation")
        return one

    return read_until_damaged(folder, NAME, convert, notes, MAX_EVALUATIONS)


def read_until_damaged(
    folder: Path, name: str, convert: Callable[[Any], _Line], notes: list[str], most: int | None = None
) -> list[_Line]:
    """What `convert` makes of the lines of a .jsonl file of a run, at most so many, up to the first damaged line, which
    is noted. `convert` raises `BadFileError` or `msgspec.ValidationError` for such a line."""
    found: list[_Line] = []
    try:
        for line in islice(read_lines(folder, name), most):
            found.append(convert(line))
    except (ValueError, OSError) as error:
        notes.append(f"{name}.jsonl is damaged after line {len(found)} ({explain_read_error(error)})")
    return found
