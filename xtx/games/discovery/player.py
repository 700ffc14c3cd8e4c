"""Which object is the player: the one whose contents `inventory` lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.discovery.probe import Probe, same_words
from xtx.games.discovery.walk import DIRECTIONS
from xtx.games.jericho import Snapshot
from xtx.games.profile import Finding
from xtx.games.zmachine import ObjectTree, read_name_words

_MOST_STATES = 3
_MOST_THINGS = 4
"""Things that are put into each object, one after the other, in each state."""


def find_player(probe: Probe, tree: ObjectTree, states: Sequence[Snapshot]) -> tuple[int | None, Finding]:
    """The player's object number."""
    votes: Counter[int] = Counter()
    things = _things(tree)
    for state in states[:_MOST_STATES]:
        held = sorted({value for value in probe.global_values(state) if 0 < value <= tree.count})
        found = _listed(probe, tree, state, held, things)
        if not found:
            found = _listed(probe, tree, state, [o for o in range(1, tree.count + 1) if o not in held], things)
        votes.update(found)
    if votes:
        (best, most), *others = votes.most_common()
        sure = most > 1 and all(count < most for _, count in others)
        how = "inventory lists what is put into it"
        return best, Finding("player", _name(tree, best), "sure" if sure else "likely", how)
    moved = _moving(probe, tree, states)
    if moved:
        how = "it moves with every way that is gone"
        return moved, Finding("player", _name(tree, moved), "likely", how)
    return None, Finding("player", "not found", "not found", "inventory lists nothing that is put into an object")


def _name(tree: ObjectTree, number: int) -> str:
    return f"object {number} ({tree.names[number]})" if tree.names[number] else f"object {number}"


def _things(tree: ObjectTree) -> list[int]:
    """Objects that can be named, most words first: those are things and seldom rooms."""
    owners = Counter(number for numbers in read_name_words(tree).values() for number in numbers)
    named = [number for number, _ in owners.most_common() if len(tree.names[number]) > 2]
    return named or [number for number in range(1, tree.count + 1) if len(tree.names[number]) > 2]


def _listed(
    probe: Probe, tree: ObjectTree, state: Snapshot, places: Sequence[int], things: Sequence[int]
) -> Counter[int]:
    """The objects of which `inventory` lists what is put into them: how many things it names. Of objects that lie in each
    other the outermost."""
    usual = probe.give(state, "inventory")
    if usual is None:
        return Counter()
    links = tree.links(np.frombuffer(state.ram, np.uint8))
    found: Counter[int] = Counter()
    unlisted = [t for t in things if tree.names[t].lower() not in usual.text.lower()]
    for thing in unlisted[: 4 * _MOST_THINGS]:
        below = {thing, *tree.below(links, thing)}
        if len(below) > 1:
            continue
        shown = [
            place
            for place in places
            if place not in below
            and not probe.budget.is_spent
            and _is_listed(probe, tree, _moved(tree, state, links, thing, place), usual.text, thing)
        ]
        found.update(p for p in shown if not any(p in tree.below(links, other) for other in shown if other != p))
        if sum(found.values()) >= _MOST_THINGS:
            break
    return found


def _is_listed(probe: Probe, tree: ObjectTree, state: Snapshot, usual: str, thing: int) -> bool:
    answer = probe.give_altered(state, "inventory")
    if answer is None or same_words(answer.text, usual):
        return False
    return tree.names[thing].lower() in " ".join(answer.text.lower().split())


def _moved(tree: ObjectTree, state: Snapshot, links: npt.NDArray[np.int64], thing: int, place: int) -> Snapshot:
    """The state with a thing put into an object."""
    ram, links = np.frombuffer(state.ram, np.uint8).copy(), links.copy()
    tree.unlink(ram, links, thing)
    tree.insert(ram, links, thing, place)
    return msgspec.structs.replace(state, ram=ram.tobytes())


def _moving(probe: Probe, tree: ObjectTree, states: Sequence[Snapshot]) -> int:
    """The object that most often has another parent after a way was gone; 0 for none."""
    moved: Counter[int] = Counter()
    for state in states:
        before = tree.links(np.frombuffer(state.ram, np.uint8))[:, 0]
        for direction in DIRECTIONS:
            answer = probe.give(state, direction)
            if answer is not None:
                after = tree.links(np.frombuffer(answer.state.ram, np.uint8))[:, 0]
                moved.update(np.flatnonzero((after != before) & (after > 0) & (before > 0)).tolist())
    (best, most), *others = moved.most_common() or [(0, 0)]
    return best if most > 1 and all(count < most for _, count in others) else 0
