"""Commands that are tried in a story, from states that it came to by itself and from states with altered memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from xtx.games.canonical.survey_budget import FROTZ_WEIGHT, Budget
from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Emulator, Snapshot, Status
from xtx.games.zmachine.story_memory import Ram
from xtx.games.zset.engine import UNJUDGED, Engine

GLOBALS = 240

_STATUS_GAP = re.compile(r"[ \t]{6,}")
_PROMPT = re.compile(r"\n\s*>\s*$")


@dataclass(frozen=True)
class ProbeAnswer:
    """What a story prints at a command, and its state afterwards."""

    text: str
    """Without the status line."""
    status: str
    """The status line, as far as it was drawn."""
    state: Snapshot

    @property
    def prompt(self) -> tuple[int, int]:
        """Program counter and number of frames where the story waits for the next command."""
        return self.state.pc, self.state.frames


class Probe:
    """One story in an emulator. What alters memory is tried in the set-execution engine alone, since no story came to
    such a state by itself and Frotz may crash on it."""

    def __init__(self, emulator: Emulator, engine: Engine | None, budget: Budget) -> None:
        self.emulator = emulator
        self.engine = engine
        self.budget = budget
        self.globals = emulator.header.globals
        self.number_of_globals = max(0, min(GLOBALS, (emulator.header.dynamic_size - self.globals) // 2))

    def run(self, state: Snapshot, command: str) -> ProbeAnswer | None:
        """What becomes of a command in a state that the story came to by itself; None where it does not end, or ends
        the story. Commands are English; the story gets its own word for them."""
        answer = self.run_altered(state, command)
        if answer is not None:
            return answer
        command = self.emulator.bindings.translate(command)
        self.emulator.restore(msgspec.structs.replace(state, narration=b""))  # which may be longer than Frotz takes
        status = self.emulator.step(command, CANDIDATE_LIMIT)
        self.budget.spend(FROTZ_WEIGHT * self.emulator.instructions)
        return _split(self.emulator.save()) if status is Status.DONE else None

    def run_altered(self, state: Snapshot, command: str) -> ProbeAnswer | None:
        """The same for any state; None also where the engine does not know."""
        if self.engine is None:
            return None
        before = self.engine.counts["instructions"]
        flags, after = self.engine.step(state, self.emulator.bindings.translate(command))
        self.budget.spend(self.engine.counts["instructions"] - before)
        return None if flags & (UNJUDGED | 8) else _split(after)

    def with_global(self, state: Snapshot, number: int, value: int) -> Snapshot:
        """The state with another value of a global variable."""
        return self.with_word(state, self.globals + 2 * number, value)

    def with_word(self, state: Snapshot, address: int, value: int) -> Snapshot:
        """The state with another word in memory."""
        ram = bytearray(state.ram)
        ram[address : address + 2] = (value & 0xFFFF).to_bytes(2, "big")
        return msgspec.structs.replace(state, ram=bytes(ram))

    def read_global_values(self, state: Snapshot) -> list[int]:
        """The values of all global variables, without a sign."""
        table: Ram = np.frombuffer(state.ram, np.uint8)[self.globals : self.globals + 2 * self.number_of_globals]
        values: list[int] = table.view(">u2").tolist()
        return values


def _split(state: Snapshot) -> ProbeAnswer:
    """The text that was printed, apart from the status line."""
    text = state.narration.decode("cp1252", "replace").replace("\r", "\n")
    lines = text.split("\n")
    status = [line for line in lines if is_status(line)]
    return ProbeAnswer("\n".join(line for line in lines if not is_status(line)), "\n".join(status), state)


def is_status(line: str) -> bool:
    """Whether a line of what was printed is the status line: words far apart."""
    return bool(_STATUS_GAP.search(line.strip("> ").rstrip()) or _STATUS_GAP.match(line.lstrip(">")))


def has_same_words(one: str, other: str) -> bool:
    """Whether two texts are the same but for spaces."""
    return one.split() == other.split()


def find_commonest_prompt(answers: Sequence[ProbeAnswer]) -> tuple[int, int] | None:
    """The prompt at which most of the answers end."""
    prompts = [answer.prompt for answer in answers]
    return max(prompts, key=prompts.count) if prompts else None
