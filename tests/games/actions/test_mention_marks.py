"""Attributes that a story gives to everything of which it prints the name."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.actions.mention_marks import MENTIONING, find_mention_marks, merge_effects
from xtx.games.emulator.frotz import Verdict
from xtx.games.zset.engine import UNJUDGED

THINGS = ("lamp", "box", "rug", "door", "coin")
MENTIONED, OPEN = 0x01, 0x80
"""Attributes, as bits of the one byte that has them."""
PLACE = 1
"""The byte of a thing that says where it lies."""


class State(msgspec.Struct):
    ram: bytes
    rng: tuple[int, int, int] = (1, 0, 0)


class Story:
    """An engine for a story with five things of two bytes each; `verbs` print their names."""

    def __init__(self, verbs: Sequence[str]) -> None:
        self.verbs = verbs

    def finals(self, state: State, commands: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        memory = np.zeros((len(commands), len(state.ram)), dtype=np.uint8)
        flags = np.zeros(len(commands), dtype=np.uint8)
        for row, words in enumerate(command.split() for command in commands):
            if words[-1] not in THINGS:
                continue
            thing = memory[row].reshape(-1, 2)[THINGS.index(words[-1])]
            thing[0] |= MENTIONED if words[0] in self.verbs else 0
            thing[0] |= OPEN if words[0] == "open" else 0
            if words[0] == "throw":
                flags[row], thing[PLACE] = Verdict.RANDOM, state.rng[0] > 1
            flags[row] |= Verdict.CHANGED if thing.any() else 0
            if words[0] == "eat":
                flags[row], memory[row] = UNJUDGED, 0
        return flags, memory


def _emulator() -> Any:
    mask = np.full(2 * len(THINGS), 0xFF, dtype=np.uint8)
    return SimpleNamespace(
        note=lambda command: None,
        tree=SimpleNamespace(view_entries=lambda ram: np.reshape(ram, (-1, 2))),
        header=SimpleNamespace(attribute_bytes=1),
        world_memory=SimpleNamespace(change=SimpleNamespace(set_mask=mask, clear_mask=mask), score_addresses=()),
    )


def _marks(verbs: Sequence[str]) -> list[int] | None:
    story: Any = Story(verbs)
    state: Any = State(bytes(2 * len(THINGS)))
    found = find_mention_marks(_emulator(), story, state, MENTIONING[:4], THINGS, "wait")
    return None if found is None else found.tolist()


def test_what_several_verbs_give_to_all_things_is_a_mark_of_mention() -> None:
    assert _marks(("examine", "push", "pull", "open")) == [MENTIONED, 0] * len(THINGS)


def test_what_one_verb_gives_to_all_things_is_its_work() -> None:
    assert _marks(()) is None
    assert _marks(("examine", "push")) is None


def test_parts_of_a_machine_that_several_verbs_work_have_no_marks() -> None:
    story: Any = Story(("push", "pull", "turn"))
    state: Any = State(bytes(2 * len(THINGS)))
    forms = [form for form in MENTIONING if form != "eat OBJ"]
    assert find_mention_marks(_emulator(), story, state, forms, THINGS, "wait") is None
    story.verbs = ("push", "pull", "turn", "wear")
    assert find_mention_marks(_emulator(), story, state, forms, THINGS, "wait") is not None


def test_effects_are_told_apart_without_marks_only() -> None:
    story: Any = Story(("push", "pull", "open", "throw"))
    state: Any = State(bytes(2 * len(THINGS)))
    commands = ["push lamp", "push box", "open lamp", "open box", "wait", "throw coin", "eat rug"]
    ignored = np.array([MENTIONED, 0] * len(THINGS), dtype=np.uint8)
    effect = np.array([11, 12, 13, 14, 0, 15, 16], dtype=np.uint64)
    randoms = [(1, 0, 0), (2, 0, 0)]
    merged = merge_effects(_emulator(), story, state, randoms, commands, effect, ignored).tolist()
    assert merged[:2] == [0, 0] and merged[4] == 0
    assert merged[2] and merged[3] and merged[2] != merged[3]
    assert merged[6] == 16  # the engine gave it up
    assert merged[5]  # it does something with the second random numbers
