"""What commands do, and which bytes that depends on, as the survey asks for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xtx.games import trials
from xtx.games.jericho import Emulator, Verdict, Verdicts
from xtx.games.story import read_story
from xtx.games.trials import Trials, first_to_matter

HANG = Path(__file__).parents[2] / "stories/hang/hang.z5"


def test_changes_that_show_nowhere_are_one_or_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first command does as well is the work of time, and a change of the object tree is its own."""
    touched = int(Verdict.EVENT)
    verdicts = Verdicts(
        np.array([touched, touched, touched, touched, touched, touched | Verdict.CHANGED], np.uint8),
        np.array([7, 7, 7, 7, 7, 9], np.uint64),
        np.array([2, 2, 4, 6, 0, 8], np.uint64),
    )
    monkeypatch.setattr(trials, "judge", lambda *_: verdicts)
    emulator = Emulator(read_story(HANG))
    tried = Trials(emulator, ())
    state, commands = emulator.save(), ["look", "wait", "push lever", "push button", "jump", "take coin"]
    assert tried.outcomes(state, commands).tolist() == [0, 0, 1, 1, 0, 9]
    *_, lever, button, jump, coin = tried.outcomes(state, commands, kinds=True).tolist()
    assert 0 != lever != button != 0 and (jump, coin) == (0, 9)
    tried.close()
    emulator.close()


def test_the_first_suspect_that_matters_is_found() -> None:
    assert first_to_matter([3, 5, 8, 9], lambda some: 8 in some) == 8
    assert first_to_matter([3, 5, 8, 9], lambda some: {3, 5} <= set(some)) == 5
    assert first_to_matter([3], lambda some: True) == 3
    assert first_to_matter([3, 5], lambda some: False) is None
    assert first_to_matter([], lambda some: True) is None
