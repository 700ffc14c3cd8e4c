"""Chooses a layout among variants: whether the score counts, what clocks are set to, which bytes are left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.byte_roles import NONSENSE, Traces, find_score_copies, find_ticking
from xtx.games.canonical.canonical_state import Layout, World, read_prompt
from xtx.games.canonical.command_trials import IDLE, RNG, Trial, Trials
from xtx.games.canonical.move_timestamps import find_breaks, find_timestamps, write_word
from xtx.games.canonical.survey_budget import Budget
from xtx.games.canonical.survey_walks import WANDERED, SurveyWalks
from xtx.games.canonical.world_bytes import fill_gaps, select_kept_bytes
from xtx.games.emulator.frotz import BASIC_ACTIONS, CANDIDATE_LIMIT, Emulator, Snapshot, Status
from xtx.games.zmachine.story_memory import read_word

_HARMLESS = 6
"""So many states must not depend on such a byte before it is left out."""
_RUN = 5
"""Turns in a row in which a byte must tick before it is taken for a counter."""
_IDLE_RUN = 3
"""The same where nothing is done."""
_IDLING = 200
"""States from which nothing is done for some turns, to see what counts them."""
_RUNNING = (3, 6, 10, 20)
"""What running counters are set to, whichever is best."""
_STAMP_BREAKS = 3
"""More differences than that do not come of how long ago something was."""


class LayoutChoice:
    """Makes the first layout that the commands tried so far suggest, and then each choice by trying."""

    def __init__(
        self,
        emulator: Emulator,
        trials: Trials,
        traces: Traces,
        walks: SurveyWalks,
        budget: Budget,
        random_numbers: random.Random,
        usual: Sequence[str],
    ) -> None:
        """usual: commands that are tried everywhere."""
        self.emulator = emulator
        self.trials = trials
        self.traces = traces
        self.walks = walks
        self.budget = budget
        self.random = random_numbers
        self.usual = usual

    def make_first(
        self, first: Snapshot, usual: Snapshot, memory: npt.NDArray[np.uint8], scores: npt.NDArray[np.int64]
    ) -> Layout:
        """The layout as the commands tried so far suggest it."""
        emulator = self.emulator
        mask = np.full(memory.shape[1], 0xFF, dtype=np.uint8)
        mask[self.traces.parsers | self.traces.always_running] = 0
        mask[list(emulator.world_memory.moves_addresses)] = 0
        self.trials.copies = find_score_copies(memory, scores)
        mask[self.trials.copies] = 0
        mask[list(emulator.world_memory.score_addresses)] = 0
        fill_gaps(self.emulator.header, mask)
        # What Jericho's own hash covers stays, whatever was seen; what it leaves out of the tree goes.
        entries = emulator.tree.view_entries(mask)
        entries[:] = emulator.tree.view_entries(emulator.world_memory.tree_mask)
        entries[:, -2:] = 0xFF
        mask[list(emulator.world_memory.special)] = 0xFF
        mask[:64] = 0  # the header: screen size and the like
        counting = self.traces.counting | find_ticking(memory, _RUN) | self._find_idling(usual)
        counters = [int(a) for a in np.flatnonzero(counting & (mask == 0xFF) & ~select_kept_bytes(self.emulator))]
        return Layout(
            mask=mask.tobytes(), fill=first.ram, counters=tuple(counters), running=_RUNNING[0],
            idle=(), scheduled_events=(), room_bytes={}, equivalent_values=(), thorough=False,
            prompt=read_prompt(usual),
            stack=usual.stack, sp=usual.sp, fp=usual.fp,
        )  # fmt: skip

    def choose_score(self, layout: Layout, states: Sequence[Snapshot]) -> Layout:
        """The layout with the score as a part of the world, if that makes idling more true: some stories work their
        score out anew at every turn, and would give all points again if the score was left out."""
        mask = np.frombuffer(layout.mask, np.uint8).copy()
        mask[[*self.emulator.world_memory.score_addresses, *self.trials.copies]] = 0xFF
        scored = msgspec.structs.replace(layout, mask=mask.tobytes())
        better = self._count_mistakes(scored, states, IDLE) < self._count_mistakes(layout, states, IDLE)
        return scored if better else layout

    def choose_timestamps(self, layout: Layout, states: Sequence[Snapshot], memory: npt.NDArray[np.uint8]) -> Layout:
        """The layout with how long ago something happened in place of when it did, where that is more true."""
        addresses = self.emulator.world_memory.moves_addresses
        if len(addresses) != 2 or addresses[1] != addresses[0] + 1:
            return layout
        now = addresses[0]
        kept = (np.frombuffer(layout.mask, np.uint8) == 0xFF) & ~select_kept_bytes(self.emulator)
        for address in find_timestamps(memory, np.array([read_word(row, now) for row in memory])):
            if not kept[address : address + 2].all() or self.budget.is_spent:
                continue  # the number of moves itself, or no time
            spans = [(self._make_outcomes_by_age(state, address, now), read_word(state.ram, now)) for state in states]
            found = {after for outcomes, moves in spans for after in find_breaks(outcomes, moves, _STAMP_BREAKS)}
            if not 0 < len(found) <= _STAMP_BREAKS:
                continue  # nothing comes of it, or of something else than how long ago it was
            tried = msgspec.structs.replace(
                layout, move_timestamps=(*layout.move_timestamps, (address, tuple(sorted(found))))
            )
            if self._count_mistakes(tried, states, self.usual) < self._count_mistakes(layout, states, self.usual):
                layout = tried
        return layout

    def choose_fill(self, layout: Layout, candidates: Sequence[Snapshot], walk: Sequence[str]) -> Layout:
        """The layout that sets clocks to where they disturb least, and not to when the sun is about to rise."""
        states = self.walks.walk_randomly(layout, walk, WANDERED // 10)
        clocks = np.flatnonzero(self.traces.timed > 0)
        layouts = [layout]
        for state in candidates:
            fill = np.frombuffer(layout.fill, np.uint8).copy()
            fill[clocks] = np.frombuffer(state.ram, np.uint8)[clocks]
            layouts.append(msgspec.structs.replace(layout, fill=fill.tobytes()))
        return min(layouts, key=lambda tried: self._count_misdescribed(tried, states))

    def choose_counters(self, layout: Layout, walk: Sequence[str]) -> Layout:
        """The layout that sets running counters so that fewest events come, also while the player waits."""
        states = self.walks.walk_randomly(layout, walk, WANDERED // 3)
        layouts = [msgspec.structs.replace(layout, running=value) for value in _RUNNING]
        return min(layouts, key=lambda tried: self._count_mistakes(tried, states, (*IDLE, "wait")))

    def drop_harmless(self, layout: Layout, walk: Sequence[str]) -> Layout:
        """The layout without bytes that change by themselves and that nothing was seen to depend on, such as the
        switch of a bird that sings now and then in the forest."""
        emulator = self.emulator
        states = self.walks.walk_randomly(layout, walk)
        restless = self._find_restless(layout, states)
        mask, fill = bytearray(layout.mask), bytearray(layout.fill)
        for address in restless:
            if self.budget.is_spent:
                break
            values = Counter(state.ram[address] for state in states)
            usual = values.most_common(1)[0][0]
            tried = [state for state in states if state.ram[address] != usual][-_HARMLESS:]
            if tried and not self._has_effect(tried, address, usual):
                mask[address], fill[address] = 0, usual
        emulator.restore(states[0])
        return msgspec.structs.replace(layout, mask=bytes(mask), fill=bytes(fill))

    def choose_thoroughness(self, layout: Layout, walk: Sequence[str]) -> Layout:
        """The layout with all attributes of the things in sight, if rooms are described more truly with them."""
        states = self.walks.walk_randomly(layout, walk, WANDERED // 4)
        thorough = msgspec.structs.replace(layout, thorough=True)
        better = self._count_misdescribed(thorough, states) < self._count_misdescribed(layout, states)
        return thorough if better else layout

    def _make_outcomes_by_age(self, state: Snapshot, address: int, now: int) -> Callable[[int], bytes]:
        """Return a function that says what the usual commands do if a timestamp was set so many moves ago."""
        commands = [c for c in self.usual if c not in self.trials.avoid]

        @cache
        def compute_outcomes(moves: int) -> bytes:
            ram = np.frombuffer(state.ram, np.uint8).copy()
            write_word(ram, address, read_word(ram, now) - moves)
            return self.trials.compute_outcomes(
                msgspec.structs.replace(state, ram=ram.tobytes(), rng=RNG), commands
            ).tobytes()

        return compute_outcomes

    def _count_mistakes(self, layout: Layout, states: Sequence[Snapshot], commands: Sequence[str]) -> int:
        """How often the commands do something else from the canonical states."""
        commands = [c for c in commands if c not in self.trials.avoid]
        befores = [msgspec.structs.replace(state, rng=RNG) for state in states]
        found = self.trials.compute_outcomes_from([*befores, *self._make_canonical(layout, befores)], commands)
        pairs = zip(found[: len(states)], found[len(states) :], strict=True)
        return sum(int((truth != canonical).sum()) for truth, canonical in pairs)

    def _make_canonical(self, layout: Layout, states: Sequence[Snapshot]) -> list[Snapshot]:
        """The states made canonical."""
        world, made = World(self.emulator, layout), []
        for state in states:
            self.emulator.restore(state)
            made.append(world.make_canonical(RNG))
        return made

    def _count_misdescribed(self, layout: Layout, states: Sequence[Snapshot]) -> int:
        """In how many states `look` says something else from the canonical state."""
        befores = [msgspec.structs.replace(state, rng=RNG) for state in states]
        both = [*befores, *self._make_canonical(layout, befores)]
        said = self.trials.run_for_each(lambda trial, state: trial.read_responses(state, IDLE[:1]), both)
        return sum(one != other for one, other in zip(said[: len(states)], said[len(states) :], strict=True))

    def _has_effect(self, states: Sequence[Snapshot], address: int, value: int) -> bool:
        """Whether commands do something else, or show something else, in any of the states if one byte has another
        value."""
        asked = []
        for state in states:
            some = self.traces.list_commands(state)[len(NONSENSE) :]
            commands = [*IDLE, *sorted(BASIC_ACTIONS), *self.random.sample(some, min(20, len(some)))]
            asked.append((state, [c for c in commands if c not in self.trials.avoid]))

        def has_effect(trial: Trial, item: tuple[Snapshot, list[str]]) -> bool:
            state, commands = item
            before = msgspec.structs.replace(state, rng=RNG)
            ram = bytearray(state.ram)
            ram[address] = value
            other = msgspec.structs.replace(before, ram=bytes(ram))
            if (trial.compute_outcomes(before, commands) != trial.compute_outcomes(other, commands)).any():
                return True
            return trial.read_responses(before, IDLE[:1]) != trial.read_responses(other, IDLE[:1])

        return any(self.trials.run_for_each(has_effect, asked))

    def _find_restless(self, layout: Layout, states: Sequence[Snapshot]) -> list[int]:
        """The bytes that changed while nothing was done in some of the states."""
        open_bytes = (np.frombuffer(layout.mask, np.uint8) == 0xFF) & ~select_kept_bytes(self.emulator)
        open_bytes[[*layout.counters, *layout.timestamp_bytes]] = False
        changed = np.zeros(len(open_bytes), dtype=bool)
        for state, (_, memory) in zip(
            states,
            self.trials.run_for_each(lambda trial, state: trial.run_commands(state, IDLE[:1]), states),
            strict=True,
        ):
            changed |= memory[0] != np.frombuffer(state.ram, np.uint8)
        return [int(a) for a in np.flatnonzero(changed & open_bytes)]

    def _find_idling(self, usual: Snapshot) -> npt.NDArray[np.bool_]:
        """Which bytes count turns while nothing is done, from states along the walkthrough: also the clock that one
        action starts and the next one stops."""
        emulator = self.emulator
        found = np.zeros(emulator.header.dynamic_size, dtype=bool)
        for state in self.walks.select_affordable(
            self.walks.walked[1 :: 1 + len(self.walks.walked) // _IDLING], _RUN + 3
        ):
            emulator.restore(state)
            memory = [emulator.ram.copy()]
            while (
                len(memory) < _RUN + 3
                and not emulator.over
                and read_prompt(emulator.save(with_ram=False)) == read_prompt(usual)
            ):
                if self.walks.step(IDLE[0], CANDIDATE_LIMIT) is not Status.DONE:
                    break
                memory.append(emulator.ram.copy())
            if len(memory) > _RUN:
                found |= find_ticking(np.array(memory), _IDLE_RUN)
        return found
