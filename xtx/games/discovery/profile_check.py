"""Playing what a user knows of a story, to see whether what was found out about it is true."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xtx.games.catalog.known_games import find_story
from xtx.games.discovery.isolated_discovery import describe_story, make_progress
from xtx.games.discovery.score import PRINTED
from xtx.games.discovery.transcript import TranscriptTurn, mean, measure_likeness
from xtx.games.emulator.frotz import CANDIDATE_LIMIT, STEP_LIMIT, Emulator, Status
from xtx.games.emulator.printed_end import is_end_text
from xtx.games.emulator.printed_score import read_number
from xtx.processes.isolated_calls import Report

_CHANGE = re.compile(r"\bscore has (?:just )?gone (up|down) by (\S+) points?", re.I)
"""How Inform's library tells of points."""
_LEAST_LIKENESS = 0.6


@dataclass(frozen=True)
class Verification:
    """What came of playing some commands."""

    steps: int
    final_score: int
    best_score: int
    score_checks: int
    """How often the story printed its score, or a change of it."""
    score_mistakes: int
    """How often that was not the number that was found."""
    over: bool
    won: bool
    likeness: float
    """The mean share of a transcript's words that the story printed too; 1 for a list of commands."""
    stopped_at: int
    """The step at which the story stopped taking commands too early; 0 if it did not."""

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against what was found."""
        return not self.score_mistakes and not self.stopped_at and self.likeness >= _LEAST_LIKENESS


def verify_file(report: Report, path: str, commands: Sequence[str], texts: Sequence[str]) -> Verification:
    """Plays commands in the story in a file; `texts` are what should be printed, empty where that is not known. Called
    in a process of its own."""
    turns = [TranscriptTurn(command, text) for command, text in zip(commands, texts, strict=True)]
    emulator = Emulator(describe_story(find_story(str(Path(path))), make_progress(report)))
    try:
        return _Play(emulator).run(turns, report)
    finally:
        emulator.close()


class _Play:
    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        emulator.reset(emulator.bindings.walkthrough_seed)
        self.scores = [emulator.score]
        self.checks = self.mistakes = 0
        self.alike: list[float] = []

    def run(self, turns: Sequence[TranscriptTurn], report: Report) -> Verification:
        """Plays all of it, or as far as it goes."""
        emulator, stopped = self.emulator, 0
        for number, turn in enumerate(turns, 1):
            if emulator.over or emulator.step(turn.command, STEP_LIMIT) in (Status.LIMIT, Status.CRASHED):
                stopped = number
                break
            self._note(turn)
            report(number, len(turns))
        steps = stopped - 1 if stopped else len(turns)
        return Verification(
            steps, self.scores[-1], max(self.scores), self.checks, self.mistakes, emulator.over, emulator.won,
            mean(self.alike), stopped,
        )  # fmt: skip

    def _note(self, turn: TranscriptTurn) -> None:
        emulator = self.emulator
        said = emulator.narration
        if turn.text:
            self.alike.append(measure_likeness(turn.text, said))
        if emulator.halted:
            return
        before, now = self.scores[-1], emulator.score
        self.scores.append(now)
        told = sum(read_number(n) * (1 if way.lower() == "up" else -1) for way, n in _CHANGE.findall(said))
        if told:
            self._check(now - before == told)
        if now != before or told:
            printed = self._read_printed_score()
            if printed is not None:
                self._check(printed == now)

    def _check(self, is_right: bool) -> None:
        self.checks += 1
        self.mistakes += not is_right

    def _read_printed_score(self) -> int | None:
        """The score as the story prints it in the present state, which is the same afterwards."""
        emulator = self.emulator
        said = emulator.narration
        if not emulator.over:
            state = emulator.save()
            said = emulator.read_responses(state, ["score"], CANDIDATE_LIMIT)[0] or ""
            emulator.restore(state)
        elif not is_end_text(said):
            return None
        found = next((m for pattern in PRINTED if (m := re.search(pattern, said))), None)
        return read_number(found[1]) if found else None
