"""A tiny world with no emulator behind it, for fast tests of agents and loops.

`toy:corridor-N` is a row of N rooms. A lamp lies in the first, a key in the middle one, the last but one is dark,
and behind its locked door is the treasure. Going into the dark without the lamp is allowed and nearly always
fatal, so the shortest way to the first points is not the way to the last: ten points in all, of which five are for
the treasure, which ends the game. Everything is decided by the actions; the seed changes nothing.

`toy:trap-N` is the same with a lever in the first room that never answers: it holds the process for ever, as no
story can (a story's instructions are counted). For tests of worker processes only.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from xtx.core import Observation, Step, UserError
from xtx.games.action_verdicts import ActionVerdicts
from xtx.games.emulator.frotz import Trace
from xtx.games.emulator.scene_details import Details, Facts
from xtx.games.story_game import NO_ANSWER
from xtx.games.zmachine.typed_input import encode_command

MAX_SCORE = 10
_NAME = re.compile(r"toy:(corridor|trap)-(\d+)")


@dataclass(frozen=True)
class _ToyState:
    room: int = 0
    lamp: bool = False
    key: bool = False
    unlocked: bool = False
    score: int = 0
    step: int = 0
    text: str = "You stand at the western end of a corridor."


class ToyGame:
    """One corridor. Knows actions that are forbidden the way `StoryGame` does, so that a worker can hold it."""

    def __init__(self, name: str, trace: Trace | None = None) -> None:
        match = _NAME.fullmatch(name)
        if not match or not 5 <= int(match[2]) <= 1000:
            raise UserError(f"there is no toy world called {name!r}; try toy:corridor-5 (5 rooms to 1000)")
        self.name = name
        self.size = int(match[2])
        self.trap = match[1] == "trap"
        self.states = ActionVerdicts()
        self._trace = trace
        self._state = _ToyState()

    @property
    def walkthrough(self) -> tuple[str, ...]:
        """The shortest way to all points."""
        middle, dark = self.size // 2, self.size - 2
        way = ["take lamp", *["east"] * middle, "take key", *["east"] * (dark - middle)]
        return (*way, "unlock door", "east", "take treasure")

    @property
    def details(self) -> Details:
        """What people see of the present state; the narration is one paragraph."""
        now, seen = self._state, self._observe()
        room = "Darkness" if "dark" in seen.look else seen.look.partition(".")[0]
        won = now.score == MAX_SCORE
        return Details(now.text, room, now.step, won, won, description=f"{seen.look}\n{seen.inventory}")

    @property
    def facts(self) -> Facts:
        """Name, walkthrough and points."""
        return Facts(self.name, self.name, self.walkthrough, 1, MAX_SCORE)

    def reset(self, seed: int | None = None) -> Observation:
        """The first observation; the seed changes nothing."""
        self._state = _ToyState()
        return self._observe()

    def step(self, action: str, *, last: bool = False) -> Step:
        """What the action leads to; one that is not among the valid ones only takes a step."""
        if action in self.states.forbidden.get(self.here, ()):
            self._state = replace(self._state, step=self._state.step + 1, text=NO_ANSWER)
            return Step(self._observe(), 0, False, last)
        before = self._state
        died = self._act(action)
        now = self._state
        won = now.score == MAX_SCORE
        ending = Observation(now.text, "", "", (), now.score, now.step) if died or won else self._observe()
        return Step(ending, now.score - before.score, died or won, last and not (died or won), won)

    def move(self, action: str, *, last: bool = False) -> Step:
        """`step` without valid actions in the observation."""
        step = self.step(action, last=last)
        return replace(step, observation=replace(step.observation, actions=()))

    def find_valid_actions(self) -> tuple[str, ...]:
        """The valid actions of the present state."""
        return self._observe().actions

    def find_known_actions(self) -> tuple[str, ...] | None:
        """Return the valid actions at every other step, and None at the others, as if they had to be searched."""
        return None if self._state.step % 2 else self.find_valid_actions()

    def look_ahead(self, action: str) -> None:
        """Does what the action does, and takes it back."""
        before = self._state
        if action not in self.states.forbidden.get(self.here, ()):
            self._act(action)
        self._state = before

    def save(self) -> bytes:
        """The state, for `restore`."""
        return json.dumps(asdict(self._state)).encode()

    def restore(self, state: bytes) -> Observation:
        """The observation in a saved state."""
        try:
            self._state = _ToyState(**json.loads(state))
        except (ValueError, TypeError) as error:
            raise UserError(f"this is not a saved toy world: {error}") from None
        return self._observe()

    def rebuild(self, base: int | bytes, actions: Iterable[str | None]) -> None:
        """Puts the game where another process had it; None is an action that had no answer."""
        self._state = _ToyState() if isinstance(base, int) else _ToyState(**json.loads(base))
        for action in actions:
            if action is None:
                self._state = replace(self._state, step=self._state.step + 1, text=NO_ANSWER)
            else:
                self._act(action)

    def close(self) -> None:
        """Nothing to free."""

    @property
    def here(self) -> bytes:
        """The key of the present state of the world."""
        now = self._state
        return b"%d,%d,%d,%d" % (now.room, now.lamp, now.key, now.unlocked)

    def try_alone(self, command: str, *, as_step: bool) -> None:
        """Does what the action does."""
        self._act(command)

    def _act(self, action: str) -> bool:
        """Changes the state; says whether the player died."""
        if self._trace is not None:
            self._trace.command = encode_command(action)
            self._trace.progress += 1
        now = replace(self._state, step=self._state.step + 1)
        if action == "pull lever" and self.trap and now.room == 0:
            while True:
                time.sleep(60)
        blind = now.room == self.size - 2 and not now.lamp
        if action not in self._list_valid():
            self._state = replace(now, text="Nothing happens.")
        elif blind and action != "west":
            self._state = replace(now, text="You stumble in the dark and fall into a pit.")
            return True
        else:
            self._state = self._move_from(now, action)
        return False

    def _move_from(self, now: _ToyState, action: str) -> _ToyState:
        if action in ("east", "west"):
            return replace(now, room=now.room + (1 if action == "east" else -1), text="You walk on.")
        if action in ("take lamp", "drop lamp"):
            return replace(now, lamp=not now.lamp, text="Done.")
        if action == "take key":
            return replace(now, key=True, score=now.score + 2, text="Taken. [2 points]")
        if action == "unlock door":
            return replace(now, unlocked=True, score=now.score + 3, text="The door opens. [3 points]")
        return replace(now, score=now.score + 5, text="The treasure is yours. [5 points]")

    def _list_valid(self) -> tuple[str, ...]:
        now, dark = self._state, self.size - 2
        there = {
            "west": now.room > 0,
            "east": now.room < dark or (now.room == dark and (now.unlocked or not now.lamp)),
            "take lamp": now.room == 0 and not now.lamp,
            "drop lamp": now.room == 0 and now.lamp,
            "take key": now.room == self.size // 2 and not now.key,
            "unlock door": now.room == dark and now.key and now.lamp and not now.unlocked,
            "take treasure": now.room == dark + 1,
            "pull lever": self.trap and now.room == 0,
        }
        return tuple(action for action, possible in there.items() if possible)

    def _observe(self) -> Observation:
        now, dark = self._state, self.size - 2
        if now.room == dark and not now.lamp:
            look = "It is dark here."
        else:
            things = [
                name
                for name, visible in (
                    ("a lamp", now.room == 0 and not now.lamp),
                    ("a lever", now.room == 0 and self.trap),
                    ("a key", now.room == self.size // 2 and not now.key),
                    ("an open door" if now.unlocked else "a locked door", now.room == dark),
                    ("a treasure", now.room == dark + 1),
                )
                if visible
            ]
            look = f"Room {now.room + 1} of {self.size}." + (f" There is {', '.join(things)} here." if things else "")
        carried = [name for name, has in (("a lamp", now.lamp), ("a key", now.key)) if has]
        inventory = f"You carry {' and '.join(carried) or 'nothing'}."
        forbidden = self.states.forbidden.get(self.here, frozenset())
        actions = tuple(a for a in self._list_valid() if a not in forbidden)
        return Observation(now.text, look, inventory, actions, now.score, now.step)
