"""What `xtx evaluate` found of a run, evaluation by evaluation."""

from __future__ import annotations

from pathlib import Path

import msgspec

from xtx.files.bounded_reads import BadFileError, explain_read_error
from xtx.runs.line_files import MAX_NUMBER, read_lines

NAME = "evaluations"
"""Of the file, without its ending: one line for each evaluation."""
MOST = 1000


class Numbers(msgspec.Struct, frozen=True):
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
    figures: Numbers


def read_evaluations(folder: Path, notes: list[str]) -> list[Evaluation]:
    """The evaluations of a run, in order, up to the first damaged line, which is noted."""
    found: list[Evaluation] = []
    try:
        for line in read_lines(folder, NAME):
            one = msgspec.convert(line, Evaluation)
            if not 0 <= one.trained_steps < MAX_NUMBER or len(one.date) > 100:
                raise BadFileError("no evaluation")
            found.append(one)
            if len(found) == MOST:
                break
    except (ValueError, OSError) as error:
        notes.append(f"{NAME}.jsonl is damaged after line {len(found)} ({explain_read_error(error)})")
    return found
