"""Walks through a story, along its walkthrough and at random around it; a survey uses their states."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from xtx.games.canonical.canonical_state import Layout, read_prompt
from xtx.games.canonical.command_trials import IDLE, Trials
from xtx.games.canonical.survey_budget import FROTZ_WEIGHT, Budget
from xtx.games.emulator.frotz import BASIC_ACTIONS, CANDIDATE_LIMIT, STEP_LIMIT, Emulator, Snapshot, Status

WANDERED = 240
"""States of the walk on which bytes that change by themselves are looked for."""
MIN_STATES = 5
"""States from which the parser's bytes are looked for whatever that costs."""
_MIN_WANDERED = 60
"""States of a walk whatever they cost."""
_WALK_SHARE = 0.25
"""Share of what a stage may spend that goes into its walk."""
_WAITING_TURNS = 20
"""Turns for which nothing is done in a room."""
_WALK_STEPS = 30
"""Steps of such a walk in a row."""
_MIN_LIMIT = 200_000
_LIMIT_FACTOR = 20
"""A command in an altered state may take so many times the instructions of the walkthrough's longest, and at least so
many: altered memory can make a story go round in circles."""


class SurveyWalks:
    """Walks in Frotz, in states that the story came to by itself. Each costs work units."""

    def __init__(self, emulator: Emulator, trials: Trials, budget: Budget, random_numbers: random.Random) -> None:
        self.emulator = emulator
        self.trials = trials
        self.budget = budget
        self.random = random_numbers
        self.walked: list[Snapshot] = []
        """States along the walkthrough."""
        self.step_cost = 0
        """Work units of a command in Frotz, on average."""

    def walk(self) -> tuple[list[Snapshot], list[str], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """States along the walkthrough, or along a walk of simple commands where there is none: the states, the
        command given in each, RAM and score."""
        emulator = self.emulator
        emulator.reset(emulator.bindings.walkthrough_seed)
        walk: Sequence[str] = emulator.bindings.walkthrough
        if not walk:
            moves = [t for t in emulator.bindings.templates if "OBJ" not in t and t not in self.trials.avoid] or [
                IDLE[0]
            ]
            walk = [self.random.choice(moves or [IDLE[0]]) for _ in range(100)]
        states, commands, scores, longest = [], [], [], 0
        for command in walk:
            states.append(emulator.save())
            commands.append(command)
            scores.append(emulator.score)
            if command in self.trials.avoid or self.step(command, STEP_LIMIT) is not Status.DONE or emulator.over:
                break
            longest = max(longest, emulator.instructions)
        self.trials.limit = max(_MIN_LIMIT, _LIMIT_FACTOR * longest)
        self.step_cost = self.budget.spent // max(1, len(states))
        self.walked = states
        memory = np.array([np.frombuffer(s.ram, np.uint8) for s in states])
        return states, commands, memory, np.array(scores)

    def walk_randomly(self, layout: Layout, walk: Sequence[str], count: int = WANDERED) -> list[Snapshot]:
        """States of a walk at random around the walkthrough; fewer where a step costs much."""
        emulator = self.emulator
        commands = [c for c in (*walk, *(sorted(BASIC_ACTIONS) * 4)) if c not in self.trials.avoid]
        affordable = int(_WALK_SHARE * self.budget.left) // max(1, self.step_cost)
        count = min(count, max(_MIN_WANDERED, affordable))
        states: list[Snapshot] = []
        for _ in range(count + _WALK_STEPS if commands else 0):  # a story may end with every command
            if len(states) >= count or (len(states) >= MIN_STATES and self.budget.is_beyond(1.0)):
                break
            emulator.restore(self.random.choice(self.walked))
            for _ in range(_WALK_STEPS):
                if emulator.over or self.step(self.random.choice(commands)) is not Status.DONE or emulator.over:
                    break
                state = emulator.save()
                if read_prompt(state) == layout.prompt:
                    states.append(state)
        return states[:count] or [state for state in self.walked if read_prompt(state) == layout.prompt]

    def wait_in_rooms(self, layout: Layout) -> list[Snapshot]:
        """States in which nothing is done for some turns in rooms that have bytes of their own: many of those are
        clocks that run only there, and a walk hardly ever stays."""
        emulator, places, states = self.emulator, set(layout.room_bytes), []
        for start in self.walked:
            room = emulator.tree.find_room(np.frombuffer(start.ram, np.uint8), emulator.player)
            if room not in places or read_prompt(start) != layout.prompt:
                continue
            places.remove(room)
            emulator.restore(start)
            for _ in range(_WAITING_TURNS):
                if self.step(IDLE[0]) is not Status.DONE or emulator.over:
                    break
                state = emulator.save()
                if read_prompt(state) == layout.prompt:
                    states.append(state)
            if self.budget.is_spent:
                break
        return states

    def step(self, command: str, limit: int = CANDIDATE_LIMIT) -> Status:
        """Gives a command in Frotz, in a state that the story came to by itself."""
        status = self.emulator.step(command, limit)
        self.budget.spend(FROTZ_WEIGHT * self.emulator.instructions)
        return status

    def select_affordable(
        self, states: Sequence[Snapshot], commands: int, share: float = _WALK_SHARE
    ) -> Sequence[Snapshot]:
        """Some of the states, evenly spread: as many as can be tried with so many commands each in Frotz for a share of
        what the present stage has left."""
        max_states = max(MIN_STATES, int(share * self.budget.left) // max(1, commands * self.step_cost))
        return states[:: 1 + max(0, len(states) - 1) // max_states]
