"""Finding out, once for each story, which bytes of its memory make up the world: the layout of canonical states.

It is found by trying. From states along the walkthrough many commands are given that do not change the object
tree. A byte that such commands change, each in its own way, is the parser's. A byte that every command that takes
a turn moves by the same amount counts turns. Then the layout is put to the test: where a command does something
else from the canonical state than from the real one, the byte to blame is searched for and given back to the
world, in that room.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cache
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.byte_roles import NONSENSE, PAIRS, PRONOUNS, Traces, score_copies, ticking
from xtx.games.canonical.canonical_state import ELSEWHERE, Layout, World, prompt_of
from xtx.games.canonical.command_trials import IDLE, NOT_JUDGED, RNG, Trial, Trials, first_to_matter
from xtx.games.canonical.equivalent_values import Folding
from xtx.games.canonical.idle_bytes import IdleBytes
from xtx.games.canonical.move_timestamps import breaks, set_word, stamps, word
from xtx.games.canonical.scheduled_events import with_due
from xtx.games.canonical.survey_budget import CHECKING, FROTZ_WEIGHT, Budget
from xtx.games.emulator.frotz import BASIC_ACTIONS, CANDIDATE_LIMIT, STEP_LIMIT, Emulator, Snapshot, Status
from xtx.games.zmachine.story_memory import Ram

_STATES = 16
_FEWEST_STATES = 5
"""States, of those, from which the parser's bytes are looked for whatever that costs."""
_WANDERED = 240
"""States of the walk on which bytes that change by themselves are looked for."""
_WANDERED_FAR = 4000
"""States of the walk on which bytes are looked for that only seem to matter."""
_WANDERED_FOLDING = 4000
"""States of the walk on which values are looked for that come to the same."""
_FEWEST_WANDERED = 60
"""States of a walk whatever they cost."""
_PAIRS_SHARE = 0.06
"""Pairs of commands are tried in all of those states if that costs no more than this share of the budget."""
_WALKING = 0.25
"""Share of what a stage may spend that goes into its walk."""
_LOITERING = 20
"""Turns for which nothing is done in a room."""
_EXCURSION = 30
"""Steps of such a walk in a row."""
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
ONLY_WALKED = "trying anything: the set-execution engine cannot be used here"
"""What a layout says was cut short if nothing was tried."""
_LEAST_LIMIT = 200_000
_TIMES_LONGER = 20
"""A command in an altered state may take so many times the instructions of the walkthrough's longest, and at least so
many: altered memory can make a story go round in circles."""
_CHECKED = 0.95
"""Share of the whole budget up to which states are checked: that makes keys right, and what comes after it makes fewer
of them."""
_SPARSEST = 8
"""At least every so many-th state of the walkthrough is checked, whatever that costs."""


def read_layout(emulator: Emulator, avoid: Collection[str] = (), budget: Budget | None = None) -> Layout:
    """The layout of the emulator's story, found by trying. Depends on the story and the budget alone.

    `avoid` holds commands that killed the emulator's process when they were tried. Frotz runs only states that the
    story came to by itself; altered ones are tried in the set-execution engine."""
    survey = _Survey(emulator, avoid, budget or Budget())
    try:
        return survey.run()
    finally:
        survey.close()


class _Survey:
    def __init__(self, emulator: Emulator, avoid: Collection[str], budget: Budget) -> None:
        self.emulator = emulator
        self.budget = budget
        self.trials = Trials(emulator, avoid, budget)
        self.avoid = self.trials.avoid
        self.walked: list[Snapshot] = []
        """States along the walkthrough."""
        self.unchecked: set[int] = set()
        """Rooms in which some state was not checked."""
        self.step_cost = 0
        """Work units of a command in Frotz, on average."""
        self.usual = tuple(dict.fromkeys((*IDLE, *sorted(BASIC_ACTIONS), *emulator.walkthrough)))
        """Commands that are tried everywhere; those of the walkthrough also name what is not in sight."""
        self.random = random.Random(5)
        self.traces = Traces(self.trials, self.random)

    def close(self) -> None:
        """Frees the engines."""
        self.trials.close()

    def run(self) -> Layout:
        """The stages, in order. Those that leave something out of the key may be cut short: the key is then finer
        than it need be. So it is where the stage that puts something back does not get to a state: in that room nothing
        is left out."""
        budget = self.budget
        budget.begin("walking through the game", 0.1)
        states, commands, memory, scores = self._walk()
        self.walked = states
        usual = max(states, key=lambda s: sum(prompt_of(s) == prompt_of(t) for t in states))
        ordinary = [i for i, state in enumerate(states) if prompt_of(state) == prompt_of(usual)]
        chosen = ordinary[:: max(1, len(ordinary) // _STATES)]
        profile = self.emulator.story.profile
        if (profile is not None and profile.volatile) or not self.trials.can_try:
            # The compiler said where the parser keeps its things, so there is nothing to find out; or nothing can be
            # tried, and all of memory counts.
            for start, end in profile.volatile if profile is not None else ():
                self.traces.take_for_the_parsers(slice(start, end))
            layout = self._first_layout(states[0], usual, memory, scores)
            return layout if self.trials.can_try else msgspec.structs.replace(layout, cut_short=(ONLY_WALKED,))
        budget.begin("looking for the parser's memory", 0.2)
        pairs_every = 1 if len(chosen) * PAIRS * self.step_cost < _PAIRS_SHARE * budget.total else 4
        for number, i in enumerate(chosen):
            if number < _FEWEST_STATES or not budget.is_spent:
                self.traces.look_for(states[i], with_pairs=number % pairs_every == 0)
        budget.begin("looking for clocks", 0.35)
        layout = self._first_layout(states[0], usual, memory, scores)
        layout = self._with_or_without_score(layout, [states[i] for i in chosen])
        layout = self._with_stamps(layout, [states[i] for i in chosen], memory)
        layout = self._with_quiet_fill(layout, [states[i] for i in chosen], commands)
        layout = self._with_quiet_counters(layout, commands)
        layout = self._without_harmless(layout, commands)
        layout = self._thorough_or_not(layout, commands)
        budget.begin("looking for memory that nothing depends on", 0.55)
        far = self._wander(layout, commands, _WANDERED_FAR)
        idle = IdleBytes(self.trials, self.traces, layout, self.usual, far)
        layout = idle.find(self._needless(layout, idle.memory) & ~self._kept)
        budget.begin(CHECKING, 0.75, at_least=0.2)
        directions = [t for t in self.emulator.templates if t in BASIC_ACTIONS]
        # What costs little comes first.
        layout = self._refine_along(layout, [(states[i], [commands[i], *directions]) for i in ordinary], 1.0)
        layout = with_due(self.trials, layout, [*(states[i] for i in ordinary), *self._wander(layout, commands)])
        # Again: where something falls due the commands could not be told from it before.
        layout = self._refine_along(layout, [(states[i], [commands[i]]) for i in ordinary], 1.0, hidden=True)
        layout = self._refine_along(
            layout, [(states[i], self.traces.commands(states[i])[len(NONSENSE) :: 3]) for i in chosen], _CHECKED
        )
        layout = self._with_unchecked(layout, {self._room(states[i]) for i in ordinary})
        budget.begin("looking for values that come to the same", 0.9)
        walks = [*self._wander(layout, commands, _WANDERED_FOLDING), *self._loiter(layout)]
        layout = self._with_folds(layout, [*(states[i] for i in ordinary), *walks])
        self.emulator.restore(usual)
        return msgspec.structs.replace(layout, cut_short=tuple(budget.cut_short))

    def _refine_along(
        self,
        layout: Layout,
        tried: Sequence[tuple[Snapshot, Sequence[str]]],
        until: float | None = None,
        hidden: bool = False,
    ) -> Layout:
        """The layout refined by states with commands to try in each: all of them, or as many as there is time for, from
        all over the game. `until` is a share of the whole budget, in place of the stage's. Notes the rooms of states
        that there was no time for."""
        for index in _spread_out(len(tried)):
            state, commands = tried[index]
            if index % _SPARSEST and (self.budget.is_spent if until is None else self.budget.is_beyond(until)):
                self._note_unchecked(state)
                continue
            layout = self._refine(layout, state, commands, World(self.emulator, layout) if hidden else None)
        return layout

    def _note_unchecked(self, state: Snapshot) -> None:
        self.unchecked.add(self._room(state))

    def _with_unchecked(self, layout: Layout, visited: Collection[int]) -> Layout:
        """The layout that leaves nothing out in rooms that were not checked, if there was no time for all states: also
        in the rooms that the walkthrough does not visit."""
        if not self.unchecked:
            return layout
        left_out = self.trials.changeable(layout)
        addresses = tuple(int(a) for a in np.flatnonzero(left_out) if a >= 64)
        rooms = sorted({ELSEWHERE, *visited})
        unchecked = {room: addresses if room in {ELSEWHERE, *self.unchecked} else () for room in rooms}
        return msgspec.structs.replace(layout, unchecked=unchecked)

    def _room(self, state: Snapshot) -> int:
        return self.emulator.tree.room(np.frombuffer(state.ram, np.uint8), self.emulator.player)

    def _with_folds(self, layout: Layout, states: Sequence[Snapshot]) -> Layout:
        """The layout with values of bytes that come to the same; of bytes in which two of the states differ that
        Jericho's hash takes for one."""
        emulator, world, budget = self.emulator, World(self.emulator, layout), self.budget
        canonical: dict[bytes, Snapshot] = {}
        for state in states:
            emulator.restore(state)
            made = world.canonical(RNG)
            canonical.setdefault(made.ram, made)
        rooms = [emulator.tree.room(np.frombuffer(ram, np.uint8), emulator.player) for ram in canonical]
        commands: dict[int, list[str]] = {}

        def appearance(trial: Trial, asked: tuple[int, Snapshot]) -> tuple[tuple[str, ...], bytes]:
            index, state = asked
            watched = world.watched(np.frombuffer(state.ram, np.uint8))
            outcomes = trial.outcomes(state, commands[index], watched, kinds=True)
            return trial.answers(state, IDLE[:2]), _pattern(outcomes).tobytes()

        def appearances(asked: Sequence[tuple[int, Snapshot]]) -> list[tuple[tuple[str, ...], bytes]]:
            for index, state in asked:
                if index not in commands:
                    tried = (*self.usual, *self.traces.commands(state)[len(NONSENSE) :])
                    commands[index] = [c for c in tried if c not in self.avoid]
            return self.trials.each(appearance, asked)

        folding = Folding(
            list(canonical.values()), rooms, appearances, self._covered,
            may_compare=lambda: not budget.is_beyond(0.85), may_verify=lambda: not budget.is_beyond(1.0),
        )  # fmt: skip
        suspects = np.flatnonzero(self._needless(layout, folding.memory)).tolist()
        return msgspec.structs.replace(layout, folds=folding.folds(suspects, layout.local))

    def _first_layout(
        self, first: Snapshot, usual: Snapshot, memory: npt.NDArray[np.uint8], scores: npt.NDArray[np.int64]
    ) -> Layout:
        """The layout as the commands tried so far suggest it."""
        emulator = self.emulator
        mask = np.full(memory.shape[1], 0xFF, dtype=np.uint8)
        mask[self.traces.parsers | self.traces.always_running] = 0
        mask[list(emulator.world_memory.moves_addresses)] = 0
        self.trials.copies = score_copies(memory, scores)
        mask[self.trials.copies] = 0
        mask[list(emulator.world_memory.score_addresses)] = 0
        self._fill_gaps(mask)
        # What Jericho's own hash covers stays, whatever was seen; what it leaves out of the tree goes.
        entries = emulator.tree.entries(mask)
        entries[:] = emulator.tree.entries(emulator.world_memory.tree_mask)
        entries[:, -2:] = 0xFF
        mask[list(emulator.world_memory.special)] = 0xFF
        mask[:64] = 0  # the header: screen size and the like
        counting = self.traces.counting | ticking(memory, _RUN) | self._idling(usual)
        counters = [int(a) for a in np.flatnonzero(counting & (mask == 0xFF) & ~self._kept)]
        return Layout(
            mask=mask.tobytes(), fill=first.ram, counters=tuple(counters), running=_RUNNING[0],
            idle=(), due=(), local={}, folds=(), thorough=False,
            prompt=prompt_of(usual),
            stack=usual.stack, sp=usual.sp, fp=usual.fp,
        )  # fmt: skip

    def _idling(self, usual: Snapshot) -> npt.NDArray[np.bool_]:
        """Which bytes count turns while nothing is done, from states along the walkthrough: also the clock that one
        action starts and the next one stops."""
        emulator = self.emulator
        found = np.zeros(emulator.header.dynamic_size, dtype=bool)
        for state in self._affordable(self.walked[1 :: 1 + len(self.walked) // _IDLING], _RUN + 3):
            emulator.restore(state)
            memory = [emulator.ram.copy()]
            while (
                len(memory) < _RUN + 3
                and not emulator.over
                and prompt_of(emulator.save_registers()) == prompt_of(usual)
            ):
                if self._step(IDLE[0], CANDIDATE_LIMIT) is not Status.DONE:
                    break
                memory.append(emulator.ram.copy())
            if len(memory) > _RUN:
                found |= ticking(np.array(memory), _IDLE_RUN)
        return found

    def _step(self, command: str, limit: int = CANDIDATE_LIMIT) -> Status:
        """Gives a command in Frotz, in a state that the story came to by itself."""
        status = self.emulator.step(command, limit)
        self.budget.spend(FROTZ_WEIGHT * self.emulator.instructions)
        return status

    def _with_or_without_score(self, layout: Layout, states: Sequence[Snapshot]) -> Layout:
        """The layout with the score as a part of the world, if that makes idling more true: some stories work their
        score out anew at every turn, and would give all points again to a player whose score was forgotten."""
        mask = np.frombuffer(layout.mask, np.uint8).copy()
        mask[[*self.emulator.world_memory.score_addresses, *self.trials.copies]] = 0xFF
        scored = msgspec.structs.replace(layout, mask=mask.tobytes())
        better = self._mistakes(scored, states, IDLE) < self._mistakes(layout, states, IDLE)
        return scored if better else layout

    def _with_stamps(self, layout: Layout, states: Sequence[Snapshot], memory: npt.NDArray[np.uint8]) -> Layout:
        """The layout with how long ago something happened in place of when it did, where that is more true."""
        addresses = self.emulator.world_memory.moves_addresses
        if len(addresses) != 2 or addresses[1] != addresses[0] + 1:
            return layout
        now = addresses[0]
        kept = (np.frombuffer(layout.mask, np.uint8) == 0xFF) & ~self._kept
        for address in stamps(memory, np.array([word(row, now) for row in memory])):
            if not kept[address : address + 2].all() or self.budget.is_spent:
                continue  # the number of moves itself, or no time
            spans = [(self._ago(state, address, now), word(state.ram, now)) for state in states]
            found = {after for outcomes, moves in spans for after in breaks(outcomes, moves, _STAMP_BREAKS)}
            if not 0 < len(found) <= _STAMP_BREAKS:
                continue  # nothing comes of it, or of something else than how long ago it was
            tried = msgspec.structs.replace(layout, since=(*layout.since, (address, tuple(sorted(found)))))
            if self._mistakes(tried, states, self.usual) < self._mistakes(layout, states, self.usual):
                layout = tried
        return layout

    def _ago(self, state: Snapshot, address: int, now: int) -> Callable[[int], bytes]:
        """A function that says what the usual commands do in a state if a stamp was set so many moves ago."""
        commands = [c for c in self.usual if c not in self.avoid]

        @cache
        def outcomes(moves: int) -> bytes:
            ram = np.frombuffer(state.ram, np.uint8).copy()
            set_word(ram, address, word(ram, now) - moves)
            return self.trials.outcomes(msgspec.structs.replace(state, ram=ram.tobytes(), rng=RNG), commands).tobytes()

        return outcomes

    def _mistakes(self, layout: Layout, states: Sequence[Snapshot], commands: Sequence[str]) -> int:
        """How often the commands do something else from the canonical states."""
        commands = [c for c in commands if c not in self.avoid]
        befores = [msgspec.structs.replace(state, rng=RNG) for state in states]
        found = self.trials.outcomes_from([*befores, *self._canonical(layout, befores)], commands)
        pairs = zip(found[: len(states)], found[len(states) :], strict=True)
        return sum(int((truth != canonical).sum()) for truth, canonical in pairs)

    def _canonical(self, layout: Layout, states: Sequence[Snapshot]) -> list[Snapshot]:
        """The states made canonical."""
        world, made = World(self.emulator, layout), []
        for state in states:
            self.emulator.restore(state)
            made.append(world.canonical(RNG))
        return made

    def _affordable(self, states: Sequence[Snapshot], commands: int, share: float = _WALKING) -> Sequence[Snapshot]:
        """Some of the states, evenly spread: as many as can be tried with so many commands each in Frotz for a share of
        what the present stage has left."""
        most = max(_FEWEST_STATES, int(share * self.budget.left) // max(1, commands * self.step_cost))
        return states[:: 1 + max(0, len(states) - 1) // most]

    def _without_harmless(self, layout: Layout, walk: Sequence[str]) -> Layout:
        """The layout without bytes that change by themselves and that nothing was seen to depend on, such as the
        switch of a bird that sings now and then in the forest."""
        emulator = self.emulator
        states = self._wander(layout, walk)
        restless = self._restless(layout, states)
        mask, fill = bytearray(layout.mask), bytearray(layout.fill)
        for address in restless:
            if self.budget.is_spent:
                break
            values = Counter(state.ram[address] for state in states)
            usual = values.most_common(1)[0][0]
            tried = [state for state in states if state.ram[address] != usual][-_HARMLESS:]
            if tried and not self._depends(tried, address, usual):
                mask[address], fill[address] = 0, usual
        emulator.restore(states[0])
        return msgspec.structs.replace(layout, mask=bytes(mask), fill=bytes(fill))

    def _restless(self, layout: Layout, states: Sequence[Snapshot]) -> list[int]:
        """The bytes that changed while nothing was done in some of the states."""
        open_bytes = (np.frombuffer(layout.mask, np.uint8) == 0xFF) & ~self._kept
        open_bytes[[*layout.counters, *layout.stamped]] = False
        changed = np.zeros(len(open_bytes), dtype=bool)
        for state, (_, memory) in zip(
            states, self.trials.each(lambda trial, state: trial.memories(state, IDLE[:1]), states), strict=True
        ):
            changed |= memory[0] != np.frombuffer(state.ram, np.uint8)
        return [int(a) for a in np.flatnonzero(changed & open_bytes)]

    def _with_quiet_fill(self, layout: Layout, candidates: Sequence[Snapshot], walk: Sequence[str]) -> Layout:
        """The layout that sets clocks to where they disturb least, and not to when the sun is about to rise."""
        states = self._wander(layout, walk, _WANDERED // 10)
        clocks = np.flatnonzero(self.traces.timed > 0)
        layouts = [layout]
        for state in candidates:
            fill = np.frombuffer(layout.fill, np.uint8).copy()
            fill[clocks] = np.frombuffer(state.ram, np.uint8)[clocks]
            layouts.append(msgspec.structs.replace(layout, fill=fill.tobytes()))
        return min(layouts, key=lambda tried: self._misdescribed(tried, states))

    def _with_quiet_counters(self, layout: Layout, walk: Sequence[str]) -> Layout:
        """The layout that sets running counters to where least falls due, also while somebody waits for some turns."""
        states = self._wander(layout, walk, _WANDERED // 3)
        layouts = [msgspec.structs.replace(layout, running=value) for value in _RUNNING]
        return min(layouts, key=lambda tried: self._mistakes(tried, states, (*IDLE, "wait")))

    def _thorough_or_not(self, layout: Layout, walk: Sequence[str]) -> Layout:
        """The layout with all attributes of the things in sight, if rooms are described more truly with them."""
        states = self._wander(layout, walk, _WANDERED // 4)
        thorough = msgspec.structs.replace(layout, thorough=True)
        better = self._misdescribed(thorough, states) < self._misdescribed(layout, states)
        return thorough if better else layout

    @property
    def _covered(self) -> Ram:
        """The bits that Jericho's hash covers."""
        emulator = self.emulator
        covered = emulator.world_memory.tree_mask.copy()
        emulator.tree.entries(covered)[emulator.world_memory.hashed :, : emulator.header.attribute_bytes] = 0
        covered[list(emulator.world_memory.special)] = 0xFF
        return covered

    def _needless(self, layout: Layout, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """The bytes of the world, each by itself, in which two canonical states differ that are equal to Jericho."""
        groups: dict[bytes, list[int]] = defaultdict(list)
        for i, row in enumerate(memory & self._covered):
            groups[row.tobytes()].append(i)
        varies = np.zeros(memory.shape[1], dtype=bool)
        for group in groups.values():
            varies |= (memory[group] != memory[group[0]]).any(axis=0)
        counts = np.frombuffer(layout.mask, np.uint8) != 0
        counts[[address for local in layout.local.values() for address in local]] = True
        varies &= counts
        varies[layout.stamped] = False
        return varies

    def _misdescribed(self, layout: Layout, states: Sequence[Snapshot]) -> int:
        """In how many states `look` says something else from the canonical state."""
        befores = [msgspec.structs.replace(state, rng=RNG) for state in states]
        both = [*befores, *self._canonical(layout, befores)]
        said = self.trials.each(lambda trial, state: trial.answers(state, IDLE[:1]), both)
        return sum(one != other for one, other in zip(said[: len(states)], said[len(states) :], strict=True))

    def _wander(self, layout: Layout, walk: Sequence[str], count: int = _WANDERED) -> list[Snapshot]:
        """States of a walk at random around the walkthrough; fewer where a step costs much."""
        emulator = self.emulator
        commands = [c for c in (*walk, *(sorted(BASIC_ACTIONS) * 4)) if c not in self.avoid]
        affordable = int(_WALKING * self.budget.left) // max(1, self.step_cost)
        count = min(count, max(_FEWEST_WANDERED, affordable))
        states: list[Snapshot] = []
        for _ in range(count + _EXCURSION if commands else 0):  # a story may end with every command
            if len(states) >= count or (len(states) >= _FEWEST_STATES and self.budget.is_beyond(1.0)):
                break
            emulator.restore(self.random.choice(self.walked))
            for _ in range(_EXCURSION):
                if emulator.over or self._step(self.random.choice(commands)) is not Status.DONE or emulator.over:
                    break
                state = emulator.save()
                if prompt_of(state) == layout.prompt:
                    states.append(state)
        return states[:count] or [state for state in self.walked if prompt_of(state) == layout.prompt]

    def _loiter(self, layout: Layout) -> list[Snapshot]:
        """States in which nothing is done for some turns in rooms that have bytes of their own: many of those are
        clocks that run only there, and a walk hardly ever stays."""
        emulator, places, states = self.emulator, set(layout.local), []
        for start in self.walked:
            room = emulator.tree.room(np.frombuffer(start.ram, np.uint8), emulator.player)
            if room not in places or prompt_of(start) != layout.prompt:
                continue
            places.remove(room)
            emulator.restore(start)
            for _ in range(_LOITERING):
                if self._step(IDLE[0]) is not Status.DONE or emulator.over:
                    break
                state = emulator.save()
                if prompt_of(state) == layout.prompt:
                    states.append(state)
            if self.budget.is_spent:
                break
        return states

    def _depends(self, states: Sequence[Snapshot], address: int, value: int) -> bool:
        """Whether commands do something else, or show something else, in any of the states if one byte has another
        value."""
        asked = []
        for state in states:
            some = self.traces.commands(state)[len(NONSENSE) :]
            commands = [*IDLE, *sorted(BASIC_ACTIONS), *self.random.sample(some, min(20, len(some)))]
            asked.append((state, [c for c in commands if c not in self.avoid]))

        def depends(trial: Trial, item: tuple[Snapshot, list[str]]) -> bool:
            state, commands = item
            before = msgspec.structs.replace(state, rng=RNG)
            ram = bytearray(state.ram)
            ram[address] = value
            other = msgspec.structs.replace(before, ram=bytes(ram))
            if (trial.outcomes(before, commands) != trial.outcomes(other, commands)).any():
                return True
            return trial.answers(before, IDLE[:1]) != trial.answers(other, IDLE[:1])

        return any(self.trials.each(depends, asked))

    # --- does it matter after all? ------------------------------------------------------------------------------

    def _refine(self, layout: Layout, state: Snapshot, commands: Sequence[str], hidden: World | None = None) -> Layout:
        """The layout with those bytes given back to the world, in this room, on which a command's outcome depends;
        with a world also what it does to parts of that which do not show in the object tree."""
        commands = [c for c in (*IDLE, *commands) if c not in self.avoid and not PRONOUNS & set(c.lower().split())]
        idle = sum(c in IDLE for c in commands[: len(IDLE)])
        before = msgspec.structs.replace(state, rng=RNG)
        watched = hidden.watched(np.frombuffer(state.ram, np.uint8)) if hidden else None
        truth = self.trials.outcomes(before, commands, watched)
        for _ in range(8):
            self.emulator.restore(before)
            canonical = World(self.emulator, layout).canonical(RNG)
            outcomes = self.trials.outcomes(canonical, commands, watched)
            wrong = outcomes != truth
            if idle and (outcomes[:idle] == NOT_JUDGED).all() and not (truth[:idle] == NOT_JUDGED).any():
                # Whatever is done, the story stops: no state of this game. Even a clock may be to blame, of which a
                # value between its first and its last ends everything.
                deadly = self._deadly(layout, before, canonical, commands[:idle])
                if deadly is None:
                    break
                counters = tuple(a for a in layout.counters if a != deadly)
                mask = bytearray(layout.mask)
                mask[deadly] = 0xFF
                layout = msgspec.structs.replace(layout, mask=bytes(mask), counters=counters)
                continue
            # Where something falls due this turn whatever is done, that is the clock's doing and says nothing of the
            # commands.
            due = np.count_nonzero(truth[:idle]) > 1
            if not wrong.any() or (due and wrong[:idle].sum() > 1):
                break
            telling = [c for c, differs in zip(commands, wrong, strict=True) if differs]
            guilty = self._guilty(layout, before, canonical, telling, watched)
            if guilty is None:
                break
            room = self.emulator.tree.room(np.frombuffer(state.ram, np.uint8), self.emulator.player)
            local = {**layout.local, room: (*layout.local.get(room, ()), guilty)}
            layout = msgspec.structs.replace(layout, local=local)
        return layout

    def _deadly(self, layout: Layout, before: Snapshot, canonical: Snapshot, commands: Sequence[str]) -> int | None:
        """Address of a byte that, made canonical, makes the story stop; None if there is none."""
        return first_to_matter(
            self.trials.suspects(layout, before, canonical), self.trials.matters(before, canonical, commands)
        )

    def _guilty(
        self, layout: Layout, before: Snapshot, canonical: Snapshot, commands: Sequence[str], watched: Ram | None
    ) -> int | None:
        """Address of a byte that, made canonical, changes what the commands do; None if there is none."""
        suspects = self.trials.suspects(layout, before, canonical)
        # How far a counter has come is no matter of the room, but of time: see scheduled_events.py. But a door may open
        # safely only after some turns.
        running = [a for a in layout.counters if before.ram[a] and canonical.ram[a]]
        others = [a for a in suspects if a not in running]
        matters = self.trials.matters(before, canonical, [IDLE[0], *commands], watched)
        found = first_to_matter(others, matters)
        if found is None and watched is None:
            found = first_to_matter([a for a in suspects if a in running], matters)
        return found

    @property
    def _kept(self) -> npt.NDArray[np.bool_]:
        """The bytes that belong to the world whatever was seen. Not attributes of objects that Jericho does not know:
        most are noise (a room was visited), but not all."""
        emulator = self.emulator
        kept = np.zeros(emulator.header.dynamic_size, dtype=np.uint8)
        kept[emulator.header.first_object : emulator.header.object_address(emulator.tree.count + 1)] = 1
        emulator.tree.entries(kept)[emulator.world_memory.hashed :, : emulator.header.attribute_bytes] = 0
        kept[list(emulator.world_memory.special)] = 1
        return kept.astype(bool)

    def _fill_gaps(self, mask: Ram) -> None:
        """Takes the few bytes between two bytes of a parser's table for the table's too.

        Only outside the object table, the properties and the globals, where neighbours have nothing in common."""
        header = self.emulator.header
        for start, end in ((64, header.objects), (header.globals + 480, header.dynamic_size)):
            masked = np.flatnonzero(mask[start:end] == 0) + start
            for left, right in pairwise(masked):
                if 1 < right - left <= 4:
                    mask[left:right] = 0

    def _walk(self) -> tuple[list[Snapshot], list[str], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """States along the walkthrough, or along a walk of simple commands where there is none: the states, the
        command given in each, RAM and score."""
        emulator = self.emulator
        emulator.reset(emulator.walkthrough_seed)
        walk: Sequence[str] = emulator.walkthrough
        if not walk:
            moves = [t for t in emulator.templates if "OBJ" not in t and t not in self.avoid] or [IDLE[0]]
            walk = [self.random.choice(moves) for _ in range(100)]
        states, commands, scores, longest = [], [], [], 0
        for command in walk:
            states.append(emulator.save())
            commands.append(command)
            scores.append(emulator.score)
            if command in self.avoid or self._step(command, STEP_LIMIT) is not Status.DONE or emulator.over:
                break
            longest = max(longest, emulator.instructions)
        self.trials.limit = max(_LEAST_LIMIT, _TIMES_LONGER * longest)
        self.step_cost = self.budget.spent // max(1, len(states))
        memory = np.array([np.frombuffer(s.ram, np.uint8) for s in states])
        return states, commands, memory, np.array(scores)


def _spread_out(count: int) -> list[int]:
    """The numbers below a count in an order in which each beginning is spread evenly: every eighth first, then those
    halfway between, and so on."""
    strides = range(_SPARSEST.bit_length() - 1, -1, -1)
    return list(dict.fromkeys(i for power in strides for i in range(0, count, 1 << power)))


def _pattern(outcomes: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Which commands do the same, whatever it is: for each the first of those, -1 where nothing is done."""
    _, first, same = np.unique(outcomes, return_index=True, return_inverse=True)
    return np.where(outcomes == 0, -1, first[same])
