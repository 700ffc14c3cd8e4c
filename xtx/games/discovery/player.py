"""Finds the object that is the player: `inventory` lists what is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.catalog.finding import Finding
from xtx.games.discovery.probe import Probe
from xtx.games.discovery.walk import DIRECTIONS
from xtx.games.emulator.frotz import Snapshot
from xtx.games.zmachine.story_memory import ObjectTree, read_name_words

_MOST_STATES = 3
_MOST_THINGS = 4
"""Things that are put into each object, one after the other, in each state."""


def find_player(probe: Probe, tree: ObjectTree, states: Sequence[Snapshot]) -> tuple[int | None, Finding]:
    """The player's object number."""
    votes: Counter[int] = Counter()
    things = _find_things(tree)
    for state in states[:_MOST_STATES]:
        held = sorted({value for value in probe.read_global_values(state) if 0 < value <= tree.count})
        found = _count_listed(probe, tree, state, held, things)
        if not found:
            found = _count_listed(probe, tree, state, [o for o in range(1, tree.count + 1) if o not in held], things)
        votes.update(found)
    if votes:
        (best, most), *others = votes.most_common()
        sure = most > 1 and all(count < most for _, count in others)
        how = "inventory lists what is put into it"
        return best, Finding("player", _name(tree, best), "sure" if sure else "likely", how)
    moved = _find_moving(probe, tree, states)
    if moved:
        how = "it moves with every way that is gone"
        return moved, Finding("player", _name(tree, moved), "likely", how)
    return None, Finding("player", "not found", "not found", "inventory lists nothing that is put into an object")


def _name(tree: ObjectTree, number: int) -> str:
    return f"object {number} ({tree.names[number]})" if tree.names[number] else f"object {number}"


def _find_things(tree: ObjectTree) -> list[int]:
    """Objects that can be named, most words first: those are things and seldom rooms. Then the last ones of the table,
    since the first ones are mostly the compiler's."""
    owners = Counter(number for numbers in read_name_words(tree).values() for number in numbers)
    named = [number for number, _ in owners.most_common()]
    return [*named, *(number for number in range(tree.count, 0, -1) if number not in owners)]


def _count_listed(
    probe: Probe, tree: ObjectTree, state: Snapshot, places: Sequence[int], things: Sequence[int]
) -> Counter[int]:
    """The objects of which `inventory` lists what is put into them: for how many things. Of objects that lie in each
    other the outermost."""
    usual = probe.run(state, "inventory")
    if usual is None:
        return Counter()
    links = tree.read_links(np.frombuffer(state.ram, np.uint8))
    found: Counter[int] = Counter()
    loose = [t for t in things if links[t, 2] == 0 and not _is_told(tree, t, usual.text)][: 4 * _MOST_THINGS]
    said: dict[int, set[str]] = {}
    """By place: what was printed with each of the things in it, where that is not as usual."""
    for thing in loose:
        shown = []
        for place in places:
            if place == thing or probe.budget.is_spent:
                continue
            text = _read_inventory(probe, _move_thing(tree, state, links, thing, place))
            if text and text != _join_words(usual.text) and text not in said.setdefault(place, set()):
                said[place].add(text)
                shown.append(place)
        found.update(p for p in shown if not any(p in tree.list_below(links, other) for other in shown if other != p))
        if max(found.values(), default=0) >= _MOST_THINGS:
            break
    # With other things other words: what is printed the same each time is no list.
    return Counter({place: count for place, count in found.items() if count > 1})


def _is_told(tree: ObjectTree, thing: int, text: str) -> bool:
    return bool(tree.names[thing]) and tree.names[thing].lower() in text.lower()


def _read_inventory(probe: Probe, state: Snapshot) -> str:
    answer = probe.run_altered(state, "inventory")
    return _join_words(answer.text) if answer is not None else ""


def _join_words(text: str) -> str:
    return " ".join(text.split())


def _move_thing(tree: ObjectTree, state: Snapshot, links: npt.NDArray[np.int64], thing: int, place: int) -> Snapshot:
    """The state with a thing put into an object."""
    ram, links = np.frombuffer(state.ram, np.uint8).copy(), links.copy()
    tree.unlink(ram, links, thing)
    tree.insert(ram, links, thing, place)
    return msgspec.structs.replace(state, ram=ram.tobytes())


def _find_moving(probe: Probe, tree: ObjectTree, states: Sequence[Snapshot]) -> int:
    """The object that most often has another parent after a way was gone; 0 for none."""
    moved: Counter[int] = Counter()
    for state in states:
        before = tree.read_links(np.frombuffer(state.ram, np.uint8))[:, 0]
        for direction in DIRECTIONS:
            answer = probe.run(state, direction)
            if answer is not None:
                after = tree.read_links(np.frombuffer(answer.state.ram, np.uint8))[:, 0]
                moved.update(np.flatnonzero((after != before) & (after > 0) & (before > 0)).tolist())
    (best, most), *others = moved.most_common() or [(0, 0)]
    return best if most > 1 and all(count < most for _, count in others) else 0
