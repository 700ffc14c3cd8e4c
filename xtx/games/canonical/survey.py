"""Finding out, once for each story, which bytes of its memory make up the world: the layout of canonical states.

It is found by trying. From states along the walkthrough many commands are given that do not change the object
tree. A byte that such commands change, each in its own way, is the parser's. A byte that every command that takes
a turn moves by the same amount counts turns. Then the layout is put to the test: where a command does something
else from the canonical state than from the real one, the byte that causes it is searched for and put back into the
world, in that room.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from xtx.games.canonical.byte_roles import NONSENSE, PAIRS, Traces
from xtx.games.canonical.canonical_state import Layout, World, read_prompt
from xtx.games.canonical.command_trials import IDLE, RNG, Trial, Trials
from xtx.games.canonical.equivalent_values import EquivalentValueSearch
from xtx.games.canonical.idle_bytes import IdleBytes
from xtx.games.canonical.layout_check import LayoutCheck
from xtx.games.canonical.layout_choice import LayoutChoice
from xtx.games.canonical.scheduled_events import add_scheduled_events
from xtx.games.canonical.survey_budget import CHECKING, Budget
from xtx.games.canonical.survey_walks import MIN_STATES, SurveyWalks
from xtx.games.canonical.world_bytes import find_needless_bytes, select_covered_bits, select_kept_bytes
from xtx.games.emulator.frotz import BASIC_ACTIONS, Emulator, Snapshot

_STATES = 16
_WANDERED_FAR = 4000
"""States of the walk on which bytes are looked for that only seem to matter."""
_WANDERED_FOLDING = 4000
"""States of the walk on which values are looked for that come to the same."""
_PAIRS_SHARE = 0.06
"""Pairs of commands are tried in all of those states if that costs no more than this share of the budget."""
ONLY_WALKED = "trying anything: the set-execution engine cannot be used here"
"""What a layout says was cut short if nothing was tried."""
_CHECKED = 0.95
"""Share of the whole budget up to which states are checked: that makes keys right, and what comes after it makes fewer
of them."""


def survey_layout(emulator: Emulator, avoid: Collection[str] = (), budget: Budget | None = None) -> Layout:
    """Find the layout of the emulator's story by trying commands. Depends on the story and the budget alone.

    `avoid` holds commands that killed the emulator's process when they were tried. Frotz runs only states that the
    story came to by itself; altered ones are tried in the set-execution engine."""
    survey = _Survey(emulator, avoid, budget or Budget())
    try:
        return survey.run()
    finally:
        survey.close()


class _Survey:
    """The stages of a survey and the parts that carry them out."""

    def __init__(self, emulator: Emulator, avoid: Collection[str], budget: Budget) -> None:
        self.emulator = emulator
        self.budget = budget
        self.trials = Trials(emulator, avoid, budget)
        self.usual = tuple(dict.fromkeys((*IDLE, *sorted(BASIC_ACTIONS), *emulator.bindings.walkthrough)))
        """Commands that are tried everywhere; those of the walkthrough also name what is not in sight."""
        random_numbers = random.Random(5)
        self.traces = Traces(self.trials, random_numbers)
        self.walks = SurveyWalks(emulator, self.trials, budget, random_numbers)
        self.choice = LayoutChoice(emulator, self.trials, self.traces, self.walks, budget, random_numbers, self.usual)
        self.check = LayoutCheck(emulator, self.trials, budget)

    def close(self) -> None:
        """Frees the engines."""
        self.trials.close()

    def run(self) -> Layout:
        """The stages, in order. Those that leave something out of the key may be cut short: the key is then finer
        than it need be. So it is where the stage that puts something back does not get to a state: in that room nothing
        is left out."""
        budget = self.budget
        budget.begin("walking through the game", 0.1)
        states, commands, memory, scores = self.walks.walk()
        prompts = Counter(map(read_prompt, states))
        usual = max(states, key=lambda s: prompts[read_prompt(s)])
        ordinary = [i for i, state in enumerate(states) if read_prompt(state) == read_prompt(usual)]
        chosen = ordinary[:: max(1, len(ordinary) // _STATES)]
        profile = self.emulator.story.profile
        if (profile is not None and profile.volatile) or not self.trials.can_try:
            # The compiler said where the parser keeps its things, so there is nothing to find out; or nothing can be
            # tried, and all of memory counts.
            for start, end in profile.volatile if profile is not None else ():
                self.traces.mark_parser_bytes(slice(start, end))
            layout = self.choice.make_first(states[0], usual, memory, scores)
            return layout if self.trials.can_try else msgspec.structs.replace(layout, cut_short=(ONLY_WALKED,))
        budget.begin("looking for the parser's memory", 0.2)
        pairs_every = 1 if len(chosen) * PAIRS * self.walks.step_cost < _PAIRS_SHARE * budget.total else 4
        for number, i in enumerate(chosen):
            if number < MIN_STATES or not budget.is_spent:
                self.traces.record_changes(states[i], with_pairs=number % pairs_every == 0)
        budget.begin("looking for clocks", 0.35)
        layout = self.choice.make_first(states[0], usual, memory, scores)
        layout = self.choice.choose_score(layout, [states[i] for i in chosen])
        layout = self.choice.choose_timestamps(layout, [states[i] for i in chosen], memory)
        layout = self.choice.choose_fill(layout, [states[i] for i in chosen], commands)
        layout = self.choice.choose_counters(layout, commands)
        layout = self.choice.drop_harmless(layout, commands)
        layout = self.choice.choose_thoroughness(layout, commands)
        budget.begin("looking for memory that nothing depends on", 0.55)
        far = self.walks.walk_randomly(layout, commands, _WANDERED_FAR)
        idle = IdleBytes(self.trials, self.traces, layout, self.usual, far)
        layout = idle.find(find_needless_bytes(self.emulator, layout, idle.memory) & ~select_kept_bytes(self.emulator))
        budget.begin(CHECKING, 0.75, at_least=0.2)
        directions = [t for t in self.emulator.bindings.templates if t in BASIC_ACTIONS]
        # What costs little comes first.
        layout = self.check.refine_along(layout, [(states[i], [commands[i], *directions]) for i in ordinary], 1.0)
        layout = add_scheduled_events(
            self.trials, layout, [*(states[i] for i in ordinary), *self.walks.walk_randomly(layout, commands)]
        )
        # Again: the effects of commands could not be told from those of events before.
        layout = self.check.refine_along(layout, [(states[i], [commands[i]]) for i in ordinary], 1.0, hidden=True)
        layout = self.check.refine_along(
            layout, [(states[i], self.traces.list_commands(states[i])[len(NONSENSE) :: 3]) for i in chosen], _CHECKED
        )
        layout = self.check.keep_unchecked(layout, {self.check.find_room(states[i]) for i in ordinary})
        budget.begin("looking for values that come to the same", 0.9)
        walks = [*self.walks.walk_randomly(layout, commands, _WANDERED_FOLDING), *self.walks.wait_in_rooms(layout)]
        layout = self._find_equivalent_values(layout, [*(states[i] for i in ordinary), *walks])
        self.emulator.restore(usual)
        return msgspec.structs.replace(layout, cut_short=tuple(budget.cut_short))

    def _find_equivalent_values(self, layout: Layout, states: Sequence[Snapshot]) -> Layout:
        """The layout with values of bytes that come to the same; of bytes in which two of the states differ that
        Jericho's hash takes for one."""
        emulator, world, budget = self.emulator, World(self.emulator, layout), self.budget
        canonical: dict[bytes, Snapshot] = {}
        for state in states:
            emulator.restore(state)
            made = world.make_canonical(RNG)
            canonical.setdefault(made.ram, made)
        rooms = [emulator.tree.find_room(np.frombuffer(ram, np.uint8), emulator.player) for ram in canonical]
        commands: dict[int, list[str]] = {}

        def read_appearance(trial: Trial, asked: tuple[int, Snapshot]) -> tuple[tuple[str, ...], bytes]:
            index, state = asked
            watched = world.select_watched_bits(np.frombuffer(state.ram, np.uint8))
            outcomes = trial.compute_outcomes(state, commands[index], watched, kinds=True)
            return trial.read_responses(state, IDLE[:2]), _number_by_kind(outcomes).tobytes()

        def read_appearances(asked: Sequence[tuple[int, Snapshot]]) -> list[tuple[tuple[str, ...], bytes]]:
            for index, state in asked:
                if index not in commands:
                    tried = (*self.usual, *self.traces.list_commands(state)[len(NONSENSE) :])
                    commands[index] = [c for c in tried if c not in self.trials.avoid]
            return self.trials.run_for_each(read_appearance, asked)

        search = EquivalentValueSearch(
            list(canonical.values()), rooms, read_appearances, select_covered_bits(self.emulator),
            may_compare=lambda: not budget.is_beyond(0.85), may_verify=lambda: not budget.is_beyond(1.0),
        )  # fmt: skip
        suspects = np.flatnonzero(find_needless_bytes(self.emulator, layout, search.memory)).tolist()
        return msgspec.structs.replace(layout, equivalent_values=search.find(suspects, layout.room_bytes))


def _number_by_kind(outcomes: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Which commands do the same, whatever it is: for each the first of those, -1 where nothing is done."""
    _, first, same = np.unique(outcomes, return_index=True, return_inverse=True)
    return np.where(outcomes == 0, -1, first[same])
