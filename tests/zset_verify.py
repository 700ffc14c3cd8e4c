"""The long proof of the set-execution engine: `make verify`, or python tests/zset_verify.py [GAME ...] [--states N].

For every story in the folders of XTX_GAMES and the embedded one: the plain run equals Frotz along the walkthrough;
in sets every command ends in the same state as by itself; verdicts are those of `Emulator.filter`; and damaged stories
end in a verdict, not in a crash. The C sources are compiled with AddressSanitizer and UBSan for it. The tests in
tests/games/test_zset.py use the same functions, with less of everything.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import msgspec
import numpy as np

import xtx.games.zset as zset
from xtx.games.jericho import Emulator, Snapshot, Status, Verdict, recognized
from xtx.games.story import Story, read_story
from xtx.games.zmachine import read_dictionary
from xtx.games.zset import UNJUDGED, Engine, Mode, Rules

ROOT = Path(__file__).parents[1]
LOWWATER = ROOT / "xtx/games/data/lowwater.z5"
SOURCES = sorted((ROOT / "xtx/games/zset").glob("*.c"))
REGISTERS = ("ram", "stack", "pc", "sp", "fp", "frames", "opcode", "rng")

ODDITIES = (
    "xyzzyq", "12", "3", "4000", "65535", "all", "it", "them", "everything", "then", "and", ".", ",", '"', "again", "g",
    "oops", "except", "a", "the", "my", "to", "in", "with", "-", "!", "^", "#", "zqxjkwvbzqxjkwvb", "(", ")", "it's",
)  # fmt: skip
STOPPERS = frozenset(
    ("quit", "q", "restart", "restore", "save", "script", "unscript", "transcript", "verify", "record", "recording",
     "replay", "noscript", "unrecord", "#record", "#unrecord", "#command", "#rand", "#random"),
)  # fmt: skip
"""Words of commands that do something with files or end the game; Frotz must not be asked too often."""


@dataclass
class Tally:
    """What was checked, and what was wrong with it."""

    steps: int = 0
    """Commands of walkthroughs, run by the engine and by Frotz."""
    lanes: int = 0
    """Commands run in sets, split only and merged, and by themselves."""
    verdicts: int = 0
    """Commands judged by the engine and by Frotz."""
    unjudged: int = 0
    damaged: int = 0
    """Runs of damaged stories."""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.lanes} lanes, {self.verdicts} verdicts, {self.damaged} of damaged stories, "
            f"{self.unjudged} left to Frotz, {len(self.wrong)} wrong"
        )

    def add(self, other: Tally) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def _letters(text: bytes) -> bytes:
    return re.sub(rb"[^\x21-\x7e]", b"", text)


def check_walkthrough(emulator: Emulator, engine: Engine) -> tuple[Tally, list[Snapshot]]:
    """Whether the engine does what Frotz does, in every register and byte, and prints the same; and the states."""
    tally, states = Tally(), []
    emulator.reset(emulator.walkthrough_seed)
    for number, command in enumerate(emulator.walkthrough):
        before = emulator.save()
        states.append(before)
        _flags, after = engine.step(before, command)
        if emulator.step(command) is not Status.DONE:
            break
        frotz = emulator.save()
        if after.pc == 0 or not emulator.wants_line_in(before):
            tally.unjudged += 1
            continue
        tally.steps += 1
        wrong = [name for name in REGISTERS if getattr(after, name) != getattr(frotz, name)]
        printed = _letters(after.narration)
        # Frotz draws the status line of old games itself, and Jericho cuts its text here and there.
        lines = [line for line in frotz.narration.split(b"\n") if b"Score:" not in line and b"Moves:" not in line]
        if not all(_letters(line.partition(b">")[0]) in printed for line in lines):
            wrong.append("text")
        if wrong:
            tally.wrong.append(
                f"{emulator.story.path.name} step {number} {command!r}: Frotz has another {', '.join(wrong)}"
            )
    return tally, states


def check_lanes(engine: Engine, state: Snapshot, commands: Sequence[str], name: str, limit: int = 3_000_000) -> Tally:
    """Whether every command ends in the same state in a set as by itself."""
    tally = Tally(lanes=len(commands))
    hashes = {mode: np.zeros(len(commands), dtype=np.uint64) for mode in Mode}
    verdicts = {mode: engine.filter(state, commands, limit, mode, hashes[mode]) for mode in Mode}
    alone = verdicts[Mode.ALONE]
    for mode in (Mode.SPLITTING, Mode.MERGING):
        judged = (alone.flags | verdicts[mode].flags) & UNJUDGED == 0
        # In a set a command may be given up that is none too long by itself, but not the other way round.
        lost = alone.flags & ~verdicts[mode].flags & UNJUDGED != 0
        differs = judged & (
            (hashes[mode] != hashes[Mode.ALONE])
            | (verdicts[mode].flags != alone.flags)
            | (verdicts[mode].diffs != alone.diffs)
        )
        for i in np.flatnonzero(differs | lost).tolist()[:5]:
            tally.wrong.append(f"{name} {mode.name} {commands[i]!r}: ends in another state than by itself")
    tally.unjudged = int((verdicts[Mode.MERGING].flags & UNJUDGED > 0).sum())
    return tally


def check_verdicts(emulator: Emulator, engine: Engine, state: Snapshot, commands: Sequence[str], name: str) -> Tally:
    """Whether the engine's verdicts are those of Frotz."""
    ours = engine.filter(state, commands)
    emulator.restore(state)
    theirs = emulator.filter(commands)
    judged = ours.flags & UNJUDGED == 0
    differs = judged & ((ours.flags != theirs.flags) | (ours.diffs != theirs.diffs))
    wrong = [
        f"{name} {commands[i]!r}: {Verdict(int(ours.flags[i]))!r} {ours.diffs[i]}, but Frotz says "
        f"{Verdict(int(theirs.flags[i]))!r} {theirs.diffs[i]}"
        for i in np.flatnonzero(differs).tolist()[:5]
    ]
    return Tally(verdicts=len(commands), unjudged=int((~judged).sum()), wrong=wrong)


def real_candidates(emulator: Emulator, state: Snapshot, most: int = 15) -> list[str]:
    """What a search would try: every template with every thing that can be examined here, told apart by the answer.

    Written without xtx.games.search, so that it stays the same measure whatever becomes of the search."""
    dictionary = read_dictionary(emulator.story.content, emulator.header)

    def answer(command: str) -> str:
        emulator.restore(state)
        return emulator.narration if emulator.step(command) is Status.DONE else ""

    names: dict[str, str] = {}
    for word in dict.fromkeys(re.findall(r"[a-z]{3,}", (answer("look") + answer("inventory")).lower())):
        text = answer(f"examine {word}") if dictionary.knows(word) else ""
        if text and recognized(text):
            names.setdefault(text, word)
    emulator.restore(state)
    things = [*list(names.values())[:most], "all"]
    out: list[str] = []
    for template in (*emulator.templates, "look", "wait"):
        head, *rest = template.split("OBJ")
        if len(rest) == 2:
            out += [f"{head}{a}{rest[0]}{b}{rest[1]}" for a in things for b in things if a != b]
        else:
            out += [head + (thing + rest[0] if rest else "") for thing in (things if rest else [""])]
    return list(dict.fromkeys(out))


def odd_commands(emulator: Emulator, state: Snapshot, count: int, choose: random.Random) -> list[str]:
    """Commands that nobody would type: words in any order, numbers, commas, several sentences, too long."""
    dictionary = read_dictionary(emulator.story.content, emulator.header)
    words = sorted(w for w in dictionary.words - STOPPERS if w.isascii() and w.isprintable() and "\\" not in w)
    emulator.restore(state)
    emulator.step("look")
    seen = re.findall(r"[a-z]+", emulator.narration.lower()) or ["me"]
    emulator.restore(state)
    names = [w for w in dict.fromkeys(seen) if dictionary.knows(w)][:8] or ["me"]
    whole = [t.replace("OBJ", choose.choice(names)) for t in emulator.templates]
    whole = [t for t in whole if not STOPPERS & set(t.split())]

    def one() -> str:
        kind = choose.random()
        if kind < 0.35:
            return choose.choice(whole)
        if kind < 0.65:
            pools = (words, names, ODDITIES)
            return " ".join(choose.choice(choose.choice(pools)) for _ in range(choose.randint(1, 7)))
        if kind < 0.85:
            return choose.choice(whole) + choose.choice((". ", " then ", ", ", " and ")) + choose.choice(whole + names)
        if kind < 0.95:
            parts = choose.choice(whole).split()
            parts.insert(choose.randint(0, len(parts)), choose.choice(ODDITIES))
            return " ".join(parts)
        return choose.choice(
            ("", " ", "Z" * choose.randint(1, 250), "é" + choose.choice(names), "LOOK", "look?", "\tlook",
             f"oops {choose.choice(names)}", "look. " * choose.randint(1, 40), f"{choose.choice(names)}, wait"),
        )  # fmt: skip

    return [one() for _ in range(count)]


def random_states(
    emulator: Emulator, states: Sequence[Snapshot], count: int, choose: random.Random
) -> Iterator[Snapshot]:
    """States that some steps of random play lead to from those given."""
    for _ in range(count):
        emulator.restore(choose.choice(states))
        for command in odd_commands(emulator, emulator.save(), 6, choose):
            before = emulator.save()
            if (
                emulator.step(command) is not Status.DONE
                or emulator.over
                or not emulator.wants_line_in(emulator.save())
            ):
                emulator.restore(before)
        yield emulator.save()


def damage(story: bytes, choose: random.Random) -> bytes:
    """The story with some bits turned over, or cut short; the header's sizes stay, so that states fit."""
    damaged = bytearray(story)
    ram = int.from_bytes(story[14:16], "big")
    for _ in range(choose.choice((1, 3, 10, 100, 1000))):
        address = (
            choose.randrange(64, len(damaged))
            if choose.random() < 0.8
            else choose.choice((8, 9, 10, 11, 12, 13, 24, 25, 52, 53))
        )
        damaged[address] ^= 1 << choose.randrange(8)
    if choose.random() < 0.2:
        del damaged[choose.randrange(ram, len(damaged)) :]
    return bytes(damaged)


def damage_state(state: Snapshot, choose: random.Random) -> Snapshot:
    """The state with some bytes of RAM and stack turned over."""
    ram, stack = bytearray(state.ram), bytearray(state.stack)
    for memory in (ram, stack):
        for _ in range(choose.choice((0, 0, 1, 5, 50))):
            if len(memory) > 64:
                memory[choose.randrange(64, len(memory))] = choose.randrange(256)
    return msgspec.structs.replace(state, ram=bytes(ram), stack=bytes(stack))


def check_damaged(
    story: Story, rules: Rules, states: Sequence[Snapshot], commands: Sequence[str], rounds: int, choose: random.Random
) -> Tally:
    """Runs damaged stories from damaged states: every one must end, and in sets as by itself."""
    tally = Tally()
    for number in range(rounds):
        try:
            engine = Engine(damage(story.content, choose), rules)
        except ValueError:
            continue
        for _ in range(3):
            state = damage_state(choose.choice(states), choose)
            some = choose.sample(list(commands), min(len(commands), 40))
            result = check_lanes(engine, state, some, f"damaged {story.path.name} {number}", limit=100_000)
            tally.damaged += len(some)
            tally.wrong += result.wrong
        engine.close()
    return tally


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Emulator, Engine]]:
    """A story in an emulator, and the engine for it."""
    emulator = Emulator(read_story(path))
    engine = Engine.of(emulator)
    try:
        yield emulator, engine
    finally:
        engine.close()
        emulator.close()


def verify(path: Path, states: int, odd: int, rounds: int, seed: int, most: int = 15) -> Tally:
    """All checks of one story."""
    choose = random.Random(seed)
    with opened(path) as (emulator, engine):
        tally, walked = check_walkthrough(emulator, engine)
        lines = [s for s in walked if emulator.wants_line_in(s)]
        chosen = choose.sample(lines, min(states, len(lines)))
        for state in [*chosen, *random_states(emulator, lines, states, choose)]:
            commands = real_candidates(emulator, state, most)
            tally.add(check_lanes(engine, state, commands, path.name))
            tally.add(
                check_verdicts(emulator, engine, state, choose.sample(commands, min(len(commands), 2000)), path.name)
            )
            strange = odd_commands(emulator, state, odd, choose)
            tally.add(check_lanes(engine, state, strange, path.name))
            tally.add(check_verdicts(emulator, engine, state, strange, path.name))
        strange = odd_commands(emulator, chosen[0], 300, choose)
        tally.add(check_damaged(emulator.story, Rules.of(emulator), chosen, strange, rounds, choose))
    return tally


def with_sanitizers() -> None:
    """Runs this script again with a library that is compiled with AddressSanitizer and UBSan."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "_zset.so"
        flags = "-std=gnu11 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
        flags += " -fno-sanitize=alignment,pointer-overflow -shared -fPIC"
        subprocess.run(["gcc", *flags.split(), "-o", str(library), *map(str, SOURCES)], check=True)
        preload = [
            subprocess.run(["gcc", f"-print-file-name={n}"], check=True, capture_output=True, text=True).stdout.strip()
            for n in ("libasan.so", "libubsan.so")
        ]
        environment = os.environ | {
            "LD_PRELOAD": ":".join(preload),
            "ASAN_OPTIONS": "detect_leaks=0,allocator_may_return_null=1",
            "XTX_VERIFY_LIBRARY": str(library),
        }
        sys.exit(subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment).returncode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("games", nargs="*", help="stems of story files; all if none are named")
    parser.add_argument("--states", type=int, default=6, help="of the walkthrough, and as many of random play")
    parser.add_argument("--odd", type=int, default=400, help="odd commands at each state")
    parser.add_argument("--rounds", type=int, default=100, help="damaged copies of each story")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="the library as it is, without sanitizers: faster")
    options = parser.parse_args()
    library = os.environ.get("XTX_VERIFY_LIBRARY")
    if not options.plain and library is None:
        with_sanitizers()
    if library is not None:
        zset.LIBRARY = Path(library)
    folders = [Path(f) for f in os.environ.get("XTX_GAMES", "").split(os.pathsep) if f]
    paths = [LOWWATER, *(p for folder in folders for p in sorted(folder.glob("*.z[3458]")))]
    total = Tally()
    for path in paths:
        if options.games and path.stem not in options.games:
            continue
        start = time.perf_counter()
        tally = verify(path, options.states, options.odd, options.rounds, options.seed)
        total.add(tally)
        print(f"{path.name}: {tally} ({time.perf_counter() - start:.0f} s)", flush=True)
        for line in tally.wrong[:10]:
            print("   ", line, flush=True)
    print(f"all: {total}")
    return bool(total.wrong)


if __name__ == "__main__":
    sys.exit(main())
