"""Forges saved states and gives them to the bridge to Frotz and to the set-execution engine, under sanitizers.

A forged state is a real one with registers, lengths, stack, RAM, header or text changed: some at random, some so that
they pass the checks. What must hold:

- no forged state crashes the check or the restoring, nor anything that the set-execution engine does with it;
- one that is refused changes nothing, and after one that is accepted a good state still plays as it did before;
- a story that runs from a state which was accepted may at worst end its own process, or turn off its output until the
  emulator is set up anew: both are counted.

    python tests/games/emulator/snapshot_fuzz.py                      the embedded story and the test story, 100,000
    states python tests/games/emulator/snapshot_fuzz.py --states 2000 --plain   as the tests run it: few, without
    sanitizers XTX_GAMES=... python tests/games/emulator/snapshot_fuzz.py zork1  a real story
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import xtx.games.emulator.jericho_library as bridge
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Snapshot, SnapshotError, Status
from xtx.games.zset import engine as zset
from xtx.games.zset.engine import Engine

ROOT = Path(__file__).absolute().parents[3]
STORIES = (ROOT / "xtx/games/catalog/data/lowwater.z5", ROOT / "stories/hang/hang.z5")
COMMANDS = ("look", "inventory", "wait", "take all", "north")
LIMIT = 20_000
"""Instructions for a command that is tried from a forged state."""
PATIENCE = 3.0
"""Seconds after which the process of a forged state is ended."""
ODD_NUMBERS = (
    -(2**63), -(2**31), -(2**15), -1024, -1, 0, 1, 3, 4, 14, 15, 19, 63, 64, 1008, 1020, 1021, 1023, 1024, 1025, 2048,
    2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**16 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1,
)  # fmt: skip
REGISTERS = ("pc", "sp", "fp", "frames", "opcode")
HEADER = 64
STACK_WORDS = 1024
FRAME_WORDS = 4


class Forger:
    """Makes forged states of one story from real ones."""

    def __init__(self, story: bytes, states: Sequence[Snapshot], seed: int) -> None:
        self._story, self._states = story, states
        self._ram_size = len(states[0].ram)
        self._random = random.Random(seed)
        self._changes: tuple[Callable[[Snapshot], Snapshot], ...] = (
            self._register, self._register, self._generator, self._length_of_stack, self._length_of_ram, self._text,
            self._words, self._frame_words, self._moved_stack, self._chain, self._chain, self._ram, self._ram,
            self._header, self._tables,
        )  # fmt: skip

    def forge(self) -> Snapshot:
        """The next forged state."""
        state = self._random.choice(self._states)
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            state = self._random.choice(self._changes)(state)
        return state

    def _number(self, near: int) -> int:
        if self._random.random() < 0.5:
            return self._random.choice(ODD_NUMBERS)
        return near + self._random.randint(-8, 8)

    def _register(self, state: Snapshot) -> Snapshot:
        name = self._random.choice(REGISTERS)
        return msgspec.structs.replace(state, **{name: self._number(getattr(state, name))})

    def _generator(self, state: Snapshot) -> Snapshot:
        numbers = list(state.rng)
        place = self._random.randrange(3)
        numbers[place] = self._number(numbers[place])
        return msgspec.structs.replace(state, rng=tuple(numbers))

    def _length_of_stack(self, state: Snapshot) -> Snapshot:
        length = max(0, len(state.stack) + self._random.choice((-2, -1, 1, 2, 64, 4096, 200_000, -len(state.stack))))
        return msgspec.structs.replace(state, stack=(state.stack + bytes(length))[:length])

    def _length_of_ram(self, state: Snapshot) -> Snapshot:
        length = max(0, len(state.ram) + self._random.choice((-64, -1, 1, 64, 70_000, 1_000_000, -len(state.ram))))
        return msgspec.structs.replace(state, ram=(state.ram + bytes(length))[:length])

    def _text(self, state: Snapshot) -> Snapshot:
        length = self._random.choice((0, 1, 8190, 8191, 8192, 8193, 100_000))
        return msgspec.structs.replace(state, narration=self._random.randbytes(length))

    def _with_words(self, state: Snapshot, words: dict[int, int]) -> Snapshot:
        """The state with other words on its stack, by their place counted from its top."""
        stack = bytearray(state.stack)
        for place, word in words.items():
            if 0 <= 2 * place < len(stack) - 1:
                stack[2 * place : 2 * place + 2] = (word & 0xFFFF).to_bytes(2, sys.byteorder)
        return msgspec.structs.replace(state, stack=bytes(stack))

    def _words(self, state: Snapshot) -> Snapshot:
        words = len(state.stack) // 2
        places = [self._random.randrange(words) for _ in range(self._random.choice((1, 5, 50)))] if words else []
        return self._with_words(state, {place: self._random.randrange(1 << 16) for place in places})

    def _frame_words(self, state: Snapshot) -> Snapshot:
        place = state.fp - state.sp + self._random.randrange(FRAME_WORDS)
        return self._with_words(state, {place: self._number(state.fp)})

    def _moved_stack(self, state: Snapshot) -> Snapshot:
        """A stack that is larger or smaller, with a pointer that says so."""
        sp = self._random.choice((0, 1, 4, 18, 19, 20, 1000, 1023, 1024, self._random.randrange(STACK_WORDS)))
        whole = self._random.randbytes(2 * STACK_WORDS) + state.stack
        return msgspec.structs.replace(state, sp=sp, stack=whole[len(whole) - 2 * (STACK_WORDS - sp) :])

    def _chain(self, state: Snapshot) -> Snapshot:
        """Frames that pass every check, and return to anywhere in the story's code."""
        draw = self._random
        fps, fp = [], STACK_WORDS
        for _ in range(draw.choice((0, 1, 5, 30, 120))):
            below = fp - FRAME_WORDS - draw.randint(0, 15)
            if below < 40:
                break
            fps.append((below, fp))
            fp = below
        sp = max(19, fp - draw.randint(0, 15))
        words = [draw.randrange(1 << 16) for _ in range(STACK_WORDS - sp)]
        for below, caller in fps:
            target = draw.randrange(self._ram_size, len(self._story))
            counts = draw.randrange(0x3000)
            words[below - sp : below - sp + FRAME_WORDS] = [counts, caller - 1, target & 0x1FF, target >> 9]
        stack = b"".join(word.to_bytes(2, sys.byteorder) for word in words)
        return msgspec.structs.replace(state, sp=sp, fp=fp, frames=len(fps), stack=stack)

    def _with_bytes(self, state: Snapshot, addresses: Sequence[int]) -> Snapshot:
        ram = bytearray(state.ram)
        for address in addresses:
            if address < len(ram):
                ram[address] = self._random.choice((0, 1, 0x7F, 0x80, 0xFF, self._random.randrange(256)))
        return msgspec.structs.replace(state, ram=bytes(ram))

    def _ram(self, state: Snapshot) -> Snapshot:
        count = self._random.choice((1, 10, 100, 3000))
        return self._with_bytes(state, [self._random.randrange(HEADER, self._ram_size) for _ in range(count)])

    def _header(self, state: Snapshot) -> Snapshot:
        return self._with_bytes(state, [self._random.randrange(HEADER) for _ in range(self._random.choice((1, 4)))])

    def _tables(self, state: Snapshot) -> Snapshot:
        """Changes at the beginning of objects, variables and abbreviations, which lie in RAM."""
        begin = int.from_bytes(self._story[(field := self._random.choice((0x0A, 0x0C, 0x18))) : field + 2], "big")
        return self._with_bytes(state, [begin + self._random.randrange(480) for _ in range(20)])


def real_states(emulator: Emulator, count: int = 12) -> list[Snapshot]:
    """States along the walkthrough."""
    emulator.reset(emulator.bindings.walkthrough_seed)
    found = [emulator.save()]
    for command in emulator.bindings.walkthrough[: count - 1]:
        if emulator.step(command) is not Status.DONE or emulator.over:
            break
        found.append(emulator.save())
    return found


def answer(emulator: Emulator, state: Snapshot) -> tuple[Status, Snapshot]:
    """What comes of `look` in a state."""
    emulator.restore(state)
    return emulator.step("look"), emulator.save()


def restore_forged(emulator: Emulator, forger: Forger, good: Snapshot, run: bool) -> str:
    """Restores one forged state, and runs a command from it if asked; says what became of it."""
    expected = answer(emulator, good)
    emulator.restore(good)
    forged = forger.forge()
    try:
        emulator.restore(forged)
    except SnapshotError:
        assert emulator.save() == good, "a state that was refused changed the emulator"
        outcome = "refused"
    else:
        assert emulator.save().ram == forged.ram
        outcome = "accepted"
        if run:
            outcome = emulator.step(random.Random(forged.pc).choice(COMMANDS), LIMIT).name.lower()
    if answer(emulator, good) != expected:
        # Code may run that redirects or turns off the output, which is no part of a state.
        assert run and outcome == "done", "a forged state left something behind in the emulator"
        outcome = "changed the emulator"
        emulator._set_up(1)
        assert answer(emulator, good) == expected, "a new set-up does not undo what a forged state did"
    return outcome


def run_engine(engine: Engine, forger: Forger) -> str:
    """Runs commands from one forged state in the set-execution engine."""
    forged = forger.forge()
    try:
        flags = engine.filter(forged, COMMANDS, LIMIT).flags
    except ValueError:
        return "refused"
    return "refused" if (flags & zset.UNJUDGED).all() else "run"


def in_a_child(act: Callable[[Callable[[int], None]], None], progress: mmap.mmap) -> int:
    """The signal that ended a process which did that, 0 for none; it notes its progress in shared memory."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            try:
                act(lambda number: progress.__setitem__(slice(0, 8), number.to_bytes(8, "little")))
                code = 0
            except BaseException as error:
                print(f"    {type(error).__name__}: {error}", flush=True)
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    if os.WEXITSTATUS(status):
        raise SystemExit("a check failed")
    return 0


def fuzz(path: Path, states: int, seed: int, batch: int = 500) -> tuple[Counter[str], int]:
    """What became of so many forged states of a story, for each way of using them; and how many crashed where nothing
    may."""
    emulator = Emulator(read_story(path))
    engine = Engine.of(emulator)
    good = real_states(emulator)
    counts: Counter[str] = Counter()
    wrong = 0
    shared = mmap.mmap(-1, 4096)

    def stage(name: str, act: Callable[[Forger], str], number: int, noted: Callable[[int], None]) -> None:
        noted(number)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)  # Frotz may also never come back from one instruction
        outcome = act(Forger(emulator.story.content, good, seed * 1_000_003 + number))
        place = 8 + 8 * OUTCOMES.index(f"{name} {outcome}")
        shared[place : place + 8] = (int.from_bytes(shared[place : place + 8], "little") + 1).to_bytes(8, "little")

    stages: tuple[tuple[str, Callable[[Forger], str]], ...] = (
        ("restore", lambda forger: restore_forged(emulator, forger, good[-1], run=False)),
        ("engine", lambda forger: run_engine(engine, forger)),
        ("step", lambda forger: restore_forged(emulator, forger, good[-1], run=True)),
    )
    for name, act in stages:
        number = 0
        while number < states:
            end = min(states, number + batch)

            def work(noted: Callable[[int], None], begin: int = number, end: int = end) -> None:
                for each in range(begin, end):
                    stage(name, act, each, noted)  # noqa: B023

            died = in_a_child(work, shared)
            number = int.from_bytes(shared[:8], "little") + 1 if died else end
            if died:
                counts[f"{name} died of {signal.Signals(died).name}"] += 1
                if name != "step":
                    wrong += 1
                    print(f"    {path.name}: {name} of forged state {number - 1} died of {signal.Signals(died).name}")
    for place, outcome in enumerate(OUTCOMES):
        counts[outcome] = int.from_bytes(shared[8 + 8 * place : 16 + 8 * place], "little")
    engine.close()
    emulator.close()
    return counts, wrong


OUTCOMES = (
    "restore refused", "restore accepted", "engine refused", "engine run", "step refused", "step done", "step halted",
    "step limit", "step crashed", "step changed the emulator",
)  # fmt: skip


def with_sanitizers() -> None:
    """Runs this script again with both libraries compiled with AddressSanitizer and UBSan."""
    with tempfile.TemporaryDirectory() as folder:
        flags = "-std=gnu11 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
        flags += " -fno-sanitize=alignment,pointer-overflow -shared -fPIC -pthread"
        libraries = {
            "bridge": [ROOT / "xtx/games/emulator/frotz_bridge.c"],
            "zset": sorted((ROOT / "xtx/games/zset").glob("*.c")),
        }
        for name, sources in libraries.items():
            target = Path(folder) / f"_{name}.so"
            subprocess.run(["gcc", *flags.split(), "-o", str(target), *map(str, sources), "-ldl"], check=True)
        preload = [
            subprocess.run(["gcc", f"-print-file-name={n}"], check=True, capture_output=True, text=True).stdout.strip()
            for n in ("libasan.so", "libubsan.so")
        ]
        environment = os.environ | {
            "LD_PRELOAD": ":".join(preload),
            # A fault inside Frotz is a signal here too, and not a report: what a step may die of is counted.
            "ASAN_OPTIONS": "detect_leaks=0,allocator_may_return_null=1,handle_segv=0,handle_sigbus=0,abort_on_error=1",
            "UBSAN_OPTIONS": "abort_on_error=1,print_stacktrace=1",
            "XTX_FUZZ_LIBRARIES": folder,
        }
        sys.exit(subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment).returncode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("games", nargs="*", help="stems of story files; the embedded story and the test story if none")
    parser.add_argument("--states", type=int, default=50_000, help="forged states of each story")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="the libraries as they are, without sanitizers: faster")
    options = parser.parse_args()
    libraries = os.environ.get("XTX_FUZZ_LIBRARIES")
    if not options.plain and libraries is None:
        with_sanitizers()
    if libraries is not None:
        zset.LIBRARY = Path(libraries) / "_zset.so"
        bridge.LIBRARY = Path(libraries) / "_bridge.so"
    folders = [Path(f).absolute() for f in os.environ.get("XTX_GAMES", "").split(os.pathsep) if f]
    found = {p.stem: p for p in (*(p for f in folders for p in sorted(f.glob("*.z[3458]"))), *STORIES)}
    scratch = tempfile.TemporaryDirectory()
    os.chdir(scratch.name)  # a story that runs anywhere in its code may save itself to a file
    crashed = 0
    for path in [found[name] for name in options.games] if options.games else STORIES:
        start = time.perf_counter()
        counts, wrong = fuzz(path, options.states, options.seed)
        crashed += wrong
        told = ", ".join(f"{outcome} {count}" for outcome, count in counts.items() if count)
        print(f"{path.name}: {told} ({time.perf_counter() - start:.0f} s)", flush=True)
    scratch.cleanup()
    return bool(crashed)


if __name__ == "__main__":
    sys.exit(main())
