"""Which number in memory says that the game has ended: the one that ends it when it is altered."""

from __future__ import annotations

from collections.abc import Sequence

from xtx.games.catalog.finding import Finding
from xtx.games.catalog.profile import End
from xtx.games.discovery.probe import Probe
from xtx.games.emulator.frotz import Snapshot
from xtx.games.emulator.printed_end import find_ending, is_end_text, is_victory_text

_TRIED = (1, 2, 3)
"""What Inform's library and its stories set the variable to: lost, won, and anything else."""
_COMMAND = "wait"
_MOST_STATES = 2


def find_end(probe: Probe, states: Sequence[Snapshot]) -> tuple[End | None, Finding]:
    """The variable, and its values that mean victory."""
    ending: dict[int, dict[int, str]] = {}
    for state in states[:_MOST_STATES]:
        usual = probe.run(state, _COMMAND)
        if usual is None:
            continue
        for number, value in enumerate(probe.read_global_values(state)):
            if value or probe.budget.is_spent:
                continue  # it is 0 while the game goes on
            told = _list_end_texts(probe, state, number, usual.prompt)
            if told:
                ending.setdefault(number, {}).update(told)
    full = {number: told for number, told in ending.items() if len(told) == len(_TRIED)} or ending
    if not full:
        return None, Finding("end", "by what is printed", "likely", "no variable ends the game when it is altered")
    # Where several do, one says how the game ended and others only that it is time to look.
    number = max(full, key=lambda n: (len(set(full[n].values())), len(full[n]), -n))
    told = full[number]
    won = tuple(value for value, words in told.items() if is_victory_text(words))
    place = End(probe.globals + 2 * number, won=won or (2,))
    name = f"global {number} (address {place.address}), won at {', '.join(map(str, place.won))}"
    sure = len(full) == 1 and won == (2,)
    how = "ends the game when it is altered" + ("" if sure else f"; {len(full)} variables do" if len(full) > 1 else "")
    return place, Finding("end", name, "sure" if sure else "likely", how)


def _list_end_texts(probe: Probe, state: Snapshot, number: int, usual: tuple[int, int]) -> dict[int, str]:
    """What is printed at the end of the game, by the value of the variable that ended it."""
    told: dict[int, str] = {}
    for value in _TRIED:
        answer = probe.run_altered(probe.with_global(state, number, value), _COMMAND)
        if answer is not None and answer.prompt != usual and (is_end_text(answer.text) or find_ending(answer.text)):
            told[value] = find_ending(answer.text) or answer.text.strip()[-400:]
    return told
