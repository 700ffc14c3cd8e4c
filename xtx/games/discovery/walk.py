"""The first states of a story: past what it asks at the beginning, and some rooms further."""

from __future__ import annotations

from collections.abc import Iterable

from xtx.games.discovery.probe import Answer, Probe, same_words
from xtx.games.jericho import STEP_LIMIT as LONG
from xtx.games.jericho import Emulator, Snapshot, Status

DIRECTIONS = (
    "north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out",
)  # fmt: skip
_MOST_ANSWERS = 24
"""Answers that are typed at the beginning of a game, at most."""
_KEYS = ("\n", " ", "n", "1", "y", "\n")
_REPLIES = ("no", "yes", "1", "n", "")
_MOST_STATES = 10


def find_opening(emulator: Emulator, seed: int) -> tuple[str, ...]:
    """What must be typed at the beginning of a game before the story takes commands; nothing for most stories. The
    emulator is left there."""
    emulator.reset(seed)
    typed: list[str] = []
    seen: set[tuple[int, int, str]] = set()
    while len(typed) < _MOST_ANSWERS and not emulator.halted:
        state = emulator.save()
        if emulator.wants_line_in(state) and not _is_a_question(emulator, state):
            return tuple(typed)
        choices = _REPLIES if emulator.wants_line_in(state) else _KEYS
        answer = _first_that_leads_on(emulator, state, choices, seen)
        if answer is None:
            emulator.restore(state)
            break
        typed.append(answer)
    return tuple(typed)


def _is_a_question(emulator: Emulator, state: Snapshot) -> bool:
    """Whether the story answers the same to whatever is typed and asks again, as it does for yes or no."""
    said = emulator.ask(state, ["look", "inventory", "examine me"], LONG)
    emulator.restore(state)
    texts = {" ".join(text.split()) for text in said if text is not None}
    return len(texts) == 1


def _first_that_leads_on(
    emulator: Emulator, state: Snapshot, choices: Iterable[str], seen: set[tuple[int, int, str]]
) -> str | None:
    """The first of some answers that leads to a prompt where the story has not waited yet; the emulator is there."""
    for choice in choices:
        emulator.restore(state)
        if emulator.step(choice, LONG) is not Status.DONE:
            continue
        after = emulator.save_registers()
        place = after.pc, after.frames, emulator.narration
        if place not in seen:
            seen.add(place)
            return choice
    return None


def walk(probe: Probe, first: Snapshot) -> list[Snapshot]:
    """States in some of the rooms near the first one, each room once, the first state before all others."""
    start = probe.give(first, "look")
    states, seen = [first], {_room_line(start)} if start is not None else set()
    for state in states:  # which grows meanwhile
        if len(states) >= _MOST_STATES or probe.budget.is_spent:
            break
        for direction in DIRECTIONS:
            after = probe.give(state, direction)
            if after is None or same_words(after.text, "") or after.prompt != (first.pc, first.frames):
                continue
            look = probe.give(after.state, "look")
            if look is None or look.prompt != after.prompt or _room_line(look) in seen:
                continue
            seen.add(_room_line(look))
            states.append(after.state)
            if len(states) >= _MOST_STATES:
                break
    return states


def _room_line(look: Answer) -> str:
    """The first line of what `look` prints, which is the room's name mostly."""
    return next((line.strip() for line in look.text.split("\n") if line.strip()), "")
