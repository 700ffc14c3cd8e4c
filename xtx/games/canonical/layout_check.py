"""Puts a layout to the test: commands must do the same from the canonical state as from the real one.

Where one does not, the byte that causes it is found by bisection and put back into the key, in that room.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from xtx.games.canonical.byte_roles import PRONOUNS
from xtx.games.canonical.canonical_state import ELSEWHERE, Layout, World
from xtx.games.canonical.command_trials import IDLE, NOT_JUDGED, RNG, Trials, find_first_to_matter
from xtx.games.canonical.survey_budget import Budget
from xtx.games.emulator.frotz import Emulator, Snapshot
from xtx.games.zmachine.story_memory import Ram

_ANSWER_BEGINNING = 40
"""Letters of an answer that are compared: what happens afterwards is the work of time."""
_CHECK_INTERVAL = 8
"""At least every so many-th state of the walkthrough is checked, whatever that costs."""


class LayoutCheck:
    """Refines a layout, and notes the rooms with states that there was no time for."""

    def __init__(self, emulator: Emulator, trials: Trials, budget: Budget) -> None:
        self.emulator = emulator
        self.trials = trials
        self.budget = budget
        self.unchecked: set[int] = set()
        """Rooms in which some state was not checked."""

    def find_room(self, state: Snapshot) -> int:
        """Return the room of a state, as an object number."""
        return self.emulator.tree.find_room(np.frombuffer(state.ram, np.uint8), self.emulator.player)

    def refine_along(
        self,
        layout: Layout,
        tried: Sequence[tuple[Snapshot, Sequence[str]]],
        until: float | None = None,
        hidden: bool = False,
    ) -> Layout:
        """The layout refined by states with commands to try in each: all of them, or as many as there is time for, from
        all over the game. `until` is a share of the whole budget, in place of the stage's. With `hidden` changes beyond
        the object tree count too. Notes the rooms of states that there was no time for."""
        for index in _order_spread_out(len(tried)):
            state, commands = tried[index]
            if index % _CHECK_INTERVAL and (self.budget.is_spent if until is None else self.budget.is_beyond(until)):
                self._note_unchecked(state)
                continue
            layout = self.refine(layout, state, commands, World(self.emulator, layout) if hidden else None)
            if hidden and self._is_answered_otherwise(layout, state, commands):
                layout = self.refine(layout, state, commands, World(self.emulator, layout), silent=True)
        return layout

    def keep_unchecked(self, layout: Layout, visited: Collection[int]) -> Layout:
        """The layout that leaves nothing out in rooms that were not checked, if there was no time for all states: also
        in the rooms that the walkthrough does not visit."""
        if not self.unchecked:
            return layout
        left_out = self.trials.find_changeable_bytes(layout)
        addresses = tuple(int(a) for a in np.flatnonzero(left_out) if a >= 64)
        rooms = sorted({ELSEWHERE, *visited})
        unchecked = {room: addresses if room in {ELSEWHERE, *self.unchecked} else () for room in rooms}
        return msgspec.structs.replace(layout, unchecked=unchecked)

    def _note_unchecked(self, state: Snapshot) -> None:
        self.unchecked.add(self.find_room(state))

    def _is_answered_otherwise(self, layout: Layout, state: Snapshot, commands: Sequence[str]) -> bool:
        """Whether the story's answer to one of the commands begins in another way in the canonical state."""
        asked = [c for c in commands if c not in self.trials.avoid]
        before = msgspec.structs.replace(state, rng=RNG)
        real, made = (self.trials.read_responses(s, asked) for s in (before, self._make_canonical(layout, before)))
        return any(one[:_ANSWER_BEGINNING] != other[:_ANSWER_BEGINNING] for one, other in zip(real, made, strict=True))

    def refine(
        self,
        layout: Layout,
        state: Snapshot,
        commands: Sequence[str],
        hidden: World | None = None,
        *,
        silent: bool = False,
    ) -> Layout:
        """The layout with those bytes given back to the world, in this room, on which a command's outcome depends;
        with a world also what it does to parts of that which do not show in the object tree, and with `silent` also
        where it does not touch the tree: a person is told to follow, who understands only after a spell."""
        commands = [
            c for c in (*IDLE, *commands) if c not in self.trials.avoid and not PRONOUNS & set(c.lower().split())
        ]
        idle = sum(c in IDLE for c in commands[: len(IDLE)])
        before = msgspec.structs.replace(state, rng=RNG)
        watched = hidden.select_watched_bits(np.frombuffer(state.ram, np.uint8)) if hidden else None
        canonical = self._make_canonical(layout, before)
        truth, outcomes = self.trials.compute_outcomes_from([before, canonical], commands, watched, silent)
        for attempt in range(8):
            if attempt:
                canonical = self._make_canonical(layout, before)
                outcomes = self.trials.compute_outcomes(canonical, commands, watched, silent)
            wrong = outcomes != truth
            if idle and (outcomes[:idle] == NOT_JUDGED).all() and not (truth[:idle] == NOT_JUDGED).any():
                # Whatever is done, the story stops: no state of this game. Even a clock may be the cause, of which a
                # value between its first and its last ends everything.
                deadly = self._find_deadly(layout, before, canonical, commands[:idle])
                if deadly is None:
                    break
                counters = tuple(a for a in layout.counters if a != deadly)
                mask = bytearray(layout.mask)
                mask[deadly] = 0xFF
                layout = msgspec.structs.replace(layout, mask=bytes(mask), counters=counters)
                continue
            # Where something happens this turn whatever is done, also with the first of all commands, that is the
            # clock's doing and says nothing of the commands.
            happens_anyway = idle > 0 and truth[0] != 0 and np.count_nonzero(truth[:idle]) > 1
            if not wrong.any() or (happens_anyway and wrong[:idle].sum() > 1):
                break
            telling = [c for c, differs in zip(commands, wrong, strict=True) if differs]
            decisive = self._find_decisive_byte(layout, before, canonical, telling, watched, silent)
            if decisive is None:
                break
            room = self.find_room(state)
            local = {**layout.room_bytes, room: (*layout.room_bytes.get(room, ()), decisive)}
            layout = msgspec.structs.replace(layout, room_bytes=local)
        return layout

    def _make_canonical(self, layout: Layout, state: Snapshot) -> Snapshot:
        self.emulator.restore(state)
        return World(self.emulator, layout).make_canonical(RNG)

    def _find_deadly(
        self, layout: Layout, before: Snapshot, canonical: Snapshot, commands: Sequence[str]
    ) -> int | None:
        """Address of a byte that, made canonical, makes the story stop; None if there is none."""
        return find_first_to_matter(
            self.trials.find_suspects(layout, before, canonical),
            self.trials.make_effect_test(before, canonical, commands),
        )

    def _find_decisive_byte(
        self,
        layout: Layout,
        before: Snapshot,
        canonical: Snapshot,
        commands: Sequence[str],
        watched: Ram | None,
        silent: bool,
    ) -> int | None:
        """Address of a byte that, made canonical, changes what the commands do; None if there is none."""
        suspects = self.trials.find_suspects(layout, before, canonical)
        # How far a counter has come is no matter of the room, but of time: see scheduled_events.py. But a door may open
        # safely only after some turns.
        running = [a for a in layout.counters if before.ram[a] and canonical.ram[a]]
        others = [a for a in suspects if a not in running]
        has_effect = self.trials.make_effect_test(before, canonical, [IDLE[0], *commands], watched, silent)
        found = find_first_to_matter(others, has_effect)
        if found is None and watched is None:
            found = find_first_to_matter([a for a in suspects if a in running], has_effect)
        return found


def _order_spread_out(count: int) -> list[int]:
    """The numbers below a count in an order in which each beginning is spread evenly: every eighth first, then those
    halfway between, and so on."""
    strides = range(_CHECK_INTERVAL.bit_length() - 1, -1, -1)
    return list(dict.fromkeys(i for power in strides for i in range(0, count, 1 << power)))
