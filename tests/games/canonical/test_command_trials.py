"""What commands do, and which bytes that depends on, as the survey asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np

from xtx.games.canonical.command_trials import Trial, find_first_to_matter
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Verdict, Verdicts
from xtx.games.zset.engine import UNJUDGED, Engine

HANG = Path(__file__).parents[3] / "stories/hang/hang.z5"


class Judged:
    """In place of an engine: says the same of all commands."""

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts

    def filter(self, *_: object, **__: object) -> Verdicts:
        return self._verdicts


def test_changes_that_show_nowhere_are_one_or_told_apart() -> None:
    """What the first command does as well is the work of time, and a change of the object tree is its own."""
    touched = int(Verdict.EVENT)
    verdicts = Verdicts(
        np.array([touched, touched, touched, touched, touched, touched | Verdict.CHANGED, UNJUDGED], np.uint8),
        np.array([7, 7, 7, 7, 7, 9, 0], np.uint64),
        np.array([2, 2, 4, 6, 0, 8, 0], np.uint64),
    )
    emulator = Emulator(read_story(HANG))
    trial = Trial(cast(Engine, Judged(verdicts)), lambda screen: "")
    state, commands = emulator.save(), ["look", "wait", "push lever", "push button", "jump", "take coin", "quit"]
    assert trial.compute_outcomes(state, commands).tolist() == [
        0,
        0,
        1,
        1,
        0,
        9,
        2,
    ]  # a command that is not judged is told too
    *_, lever, button, jump, coin, _ = trial.compute_outcomes(state, commands, kinds=True).tolist()
    assert 0 != lever != button != 0 and (jump, coin) == (0, 9)
    emulator.close()


def test_the_first_suspect_that_matters_is_found() -> None:
    assert find_first_to_matter([3, 5, 8, 9], lambda some: 8 in some) == 8
    assert find_first_to_matter([3, 5, 8, 9], lambda some: {3, 5} <= set(some)) == 5
    assert find_first_to_matter([3], lambda some: True) == 3
    assert find_first_to_matter([3, 5], lambda some: False) is None
    assert find_first_to_matter([], lambda some: True) is None
