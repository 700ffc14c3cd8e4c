"""The first states of a story: past what it asks at the beginning, and some rooms further."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xtx.games.canonical.survey_budget import FROTZ_WEIGHT, Budget
from xtx.games.discovery.probe import Probe, ProbeAnswer, has_same_words
from xtx.games.emulator.frotz import STEP_LIMIT as LONG
from xtx.games.emulator.frotz import Emulator, Snapshot, Status

DIRECTIONS = (
    "north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest", "up", "down", "in", "out",
)  # fmt: skip
_MOST_ANSWERS = 24
"""Answers that are typed at the beginning of a game, at most."""
_KEYS = ("\n", " ", "n", "1", "y", "\n")
_REPLIES = ("no", "yes", "1", "n", "")
_MOST_STATES = 10
_MOST_CHOICES = 6
"""Limits the answers in a row where the usual ones lead nowhere and those that the story offers are tried."""
_MOST_TRIES = 200
"""Limits the answers that are tried there."""
_QUESTION = 200
"""Characters at the end of a text in which the words are that a question may take."""
_OFFERED_KEY = re.compile(r"(?<![A-Za-z0-9'])([A-Za-z0-9])(?=[)\].:>]|\s+[-=]\s)|[(\[<\"']([A-Za-z0-9])(?=[)\]>\"'])")
"""As in "1) Begin", "[B]egin" or "N = next"."""
_WaitingPlace = tuple[int, int, str]
"""Where a story waits: program counter, number of frames, and the text above."""


def find_opening(emulator: Emulator, seed: int, budget: Budget) -> tuple[str, ...]:
    """What must be typed at the beginning of a game before the story takes commands; nothing for most stories, or where
    nothing leads there within the budget. The emulator is left there."""
    emulator.reset(seed)
    first = emulator.save()
    typed = _follow_usual_answers(emulator, budget)
    if typed is None:
        typed = _search_answers(emulator, first, budget)
    if typed is None:
        emulator.restore(first)
    return typed or ()


def _follow_usual_answers(emulator: Emulator, budget: Budget) -> tuple[str, ...] | None:
    """The answers that lead from the present state to a prompt for commands, each the first that leads to a new prompt;
    None where they do not."""
    typed: list[str] = []
    seen: set[_WaitingPlace] = set()
    while len(typed) < _MOST_ANSWERS and not emulator.halted and not budget.is_spent:
        state = emulator.save()
        if _takes_commands(emulator, state, budget):
            return tuple(typed)
        choices = _REPLIES if state.wants_line else _KEYS
        answer = _find_first_that_leads_on(emulator, state, choices, seen, budget)
        if answer is None:
            return None
        typed.append(answer)
    return None


def _search_answers(emulator: Emulator, first: Snapshot, budget: Budget) -> tuple[str, ...] | None:
    """Answers that lead to a prompt for commands, among those that the story offers and the usual ones; None where none
    do. The emulator is left there. Frotz keeps the last word before a prompt back, which shows one answer later."""
    waiting: list[tuple[Snapshot, tuple[str, ...]]] = [(first, ())]
    seen: set[_WaitingPlace] = set()
    tried = 0
    for state, typed in waiting:  # which grows meanwhile
        emulator.restore(state)
        for answer in find_offered_answers(emulator.narration, state.wants_line):
            tried += 1
            if tried > _MOST_TRIES or budget.is_spent:
                return None
            if not _leads_on(emulator, state, answer, seen, budget):
                continue
            after = emulator.save()
            if _takes_commands(emulator, after, budget):
                return (*typed, answer)
            if len(typed) < _MOST_CHOICES:
                waiting.append((after, (*typed, answer)))
    return None


def find_offered_answers(text: str, is_line: bool) -> tuple[str, ...]:
    """What a text offers as answers, as in "1) Begin" or "male or female?", and the usual ones. `is_line`: whether a
    line is typed, not a key."""
    keys = [found[1] or found[2] for found in _OFFERED_KEY.finditer(text)]
    words = re.findall(r"[a-z]+", text[-_QUESTION:].lower()) if is_line else []
    return tuple(dict.fromkeys((*keys, *map(str.lower, keys), *(_REPLIES if is_line else _KEYS), *words)))


def _takes_commands(emulator: Emulator, state: Snapshot, budget: Budget) -> bool:
    """Whether the story waits for a command in the present state; the emulator is left there."""
    return state.wants_line and not _is_a_question(emulator, state, budget)


def _is_a_question(emulator: Emulator, state: Snapshot, budget: Budget) -> bool:
    """Whether the story answers the same to whatever is typed and asks again, as it does for yes or no."""
    look, inventory = map(emulator.bindings.translate, ("look", "inventory"))
    texts = set()
    # Twice `look`: Frotz shows the last word of the prompt before, which is the same from the second answer on.
    for number, command in enumerate((look, look, inventory, "examine me")):
        emulator.restore(state)
        if _step(emulator, command, budget) is Status.DONE and number:
            texts.add(" ".join(emulator.narration.split()))
    emulator.restore(state)
    return len(texts) == 1


def _step(emulator: Emulator, command: str, budget: Budget) -> Status:
    """Gives a command and counts what it takes, so that every machine ends at the same command."""
    status = emulator.step(command, LONG)
    budget.spend(FROTZ_WEIGHT * emulator.instructions)
    return status


def _find_first_that_leads_on(
    emulator: Emulator, state: Snapshot, choices: Iterable[str], seen: set[_WaitingPlace], budget: Budget
) -> str | None:
    """The first of some answers that leads to a prompt where the story has not waited yet; the emulator is there."""
    return next((choice for choice in choices if _leads_on(emulator, state, choice, seen, budget)), None)


def _leads_on(emulator: Emulator, state: Snapshot, answer: str, seen: set[_WaitingPlace], budget: Budget) -> bool:
    """Whether an answer leads to a prompt where the story has not waited yet; the emulator is there."""
    emulator.restore(state)
    if _step(emulator, answer, budget) is not Status.DONE:
        return False
    after = emulator.save(with_ram=False)
    place = after.pc, after.frames, " ".join(emulator.narration.split())
    if place in seen or not after.wants_input:
        return False
    seen.add(place)
    return True


def walk(probe: Probe, first: Snapshot) -> list[Snapshot]:
    """States in some of the rooms near the first one, each room once, the first state before all others."""
    start = probe.run(first, "look")
    states, seen = [first], {_read_room_line(start)} if start is not None else set()
    for state in states:  # which grows meanwhile
        if len(states) >= _MOST_STATES or probe.budget.is_spent:
            break
        for direction in DIRECTIONS:
            after = probe.run(state, direction)
            if after is None or has_same_words(after.text, "") or after.prompt != (first.pc, first.frames):
                continue
            look = probe.run(after.state, "look")
            if look is None or look.prompt != after.prompt or _read_room_line(look) in seen:
                continue
            seen.add(_read_room_line(look))
            states.append(after.state)
            if len(states) >= _MOST_STATES:
                break
    return states


def _read_room_line(look: ProbeAnswer) -> str:
    """The first line of what `look` prints, which is the room's name mostly."""
    return next((line.strip() for line in look.text.split("\n") if line.strip()), "")
