"""The long proof of the set-execution engine: `make verify`, or python tests/games/zset/zset_verify.py [GAME ...]
[--states N].

For every story in the folders of XTX_GAMES and the embedded one: the plain run equals Frotz along the walkthrough;
in sets every command ends in the same state as by itself, and is in the same state after every merge; threads that
share the commands come to the same verdicts; those are the verdicts of `Emulator.filter`; the story answers as in
Frotz; Jericho's own dictionary of valid actions comes out in the same order; and damaged stories end in a verdict, not
in a crash. The C sources are compiled with AddressSanitizer and UBSan for it. The tests in
tests/games/zset/test_zset.py use the same functions, with less of everything.
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

import xtx.games.zset.engine as zset
from xtx.games.actions.search import RANDOM_STATES
from xtx.games.catalog.story_file import Story, read_story
from xtx.games.emulator.frotz import CANDIDATE_LIMIT, Emulator, Snapshot, Status, Verdict, is_recognized
from xtx.games.emulator.printed_text import clean
from xtx.games.zmachine.story_memory import read_dictionary
from xtx.games.zset.command_responses import find_prompt_prefix
from xtx.games.zset.engine import UNJUDGED, Engine, MismatchError, Mode, Random
from xtx.games.zset.game_rules import Rules

ROOT = Path(__file__).parents[3]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"
SOURCES = sorted((ROOT / "xtx/games/zset").glob("*.c"))
REGISTERS = ("ram", "stack", "pc", "sp", "fp", "frames", "opcode", "rng")

RANDOMS: tuple[Random, ...] = (*RANDOM_STATES[1:3], (2**40 + 12345, 0, 0))

ODDITIES = (
    "xyzzyq", "12", "3", "4000", "65535", "all", "it", "them", "everything", "then", "and", ".", ",", '"', "again", "g",
    "oops", "except", "a", "the", "my", "to", "in", "with", "-", "!", "^", "#", "zqxjkwvbzqxjkwvb", "(", ")", "it's",
)  # fmt: skip
_STOPPING = (
    "quit", "q", "restart", "restore", "save", "script", "unscript", "transcript", "verify", "record", "recording",
    "replay", "noscript", "unrecord", "#record", "#unrecord", "#command", "#rand", "#random",
)  # fmt: skip
STOPPERS = frozenset(word[:letters] for word in _STOPPING for letters in (6, 9, 20))
"""Words of commands that do something with files or end the game, also as dictionaries cut them off; Frotz must not be
asked too often, and libfrotz writes beyond the end of its memory when it is given the name of a transcript's file."""


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
    shared: int = 0
    """Commands judged by several threads together and by one."""
    answers: int = 0
    """Commands whose answers were compared."""
    randoms: int = 0
    """Commands run under several random numbers at once, and under each of them."""
    merges: int = 0
    """Merges at which a lane was compared with its command run alone."""
    dictionaries: int = 0
    """States in which Jericho's dictionary of valid actions was compared, order included."""
    candidates: int = 0
    """Commands tried for those."""
    valid: int = 0
    """Commands in those dictionaries."""
    halting: list[str] = field(default_factory=list)
    """Commands at which Jericho's own filter stops early, with game and step."""
    damaged: int = 0
    """Runs of damaged stories."""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.lanes} lanes, {self.verdicts} verdicts, {self.shared} shared, "
            f"{self.answers} answers, "
            f"{self.randoms} under several random numbers, {self.merges} merges, "
            f"{self.dictionaries} dictionaries of {self.candidates} candidates with {self.valid} valid "
            f"({len(self.halting)} halting), {self.damaged} of damaged stories, {self.unjudged} left to Frotz, "
            f"{len(self.wrong)} wrong"
        )

    def add(self, other: Tally) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def _letters(text: bytes) -> bytes:
    return re.sub(rb"[^\x21-\x7e]", b"", text)


def check_walkthrough(emulator: Emulator, engine: Engine) -> tuple[Tally, list[Snapshot]]:
    """Whether the engine does what Frotz does, in every register and byte, and prints the same; and the states."""
    tally, states = Tally(), []
    emulator.reset(emulator.bindings.walkthrough_seed)
    for number, command in enumerate(emulator.bindings.walkthrough):
        before = emulator.save()
        states.append(before)
        _flags, after = engine.step(before, command)
        if emulator.step(command) is not Status.DONE:
            break
        frotz = emulator.save()
        if after.pc == 0 or not before.wants_line:
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


def check_team(engine: Engine, team: Engine, state: Snapshot, commands: Sequence[str], name: str) -> Tally:
    """Whether threads that share the commands come to the same verdicts, wherever they are cut."""
    alone, shared = engine.filter(state, commands), team.filter(state, commands)
    judged = (alone.flags | shared.flags) & UNJUDGED == 0
    differs = judged & ((alone.flags != shared.flags) | (alone.diffs != shared.diffs))
    wrong = [f"{name} {commands[i]!r}: another verdict in a team" for i in np.flatnonzero(differs).tolist()[:5]]
    return Tally(shared=len(commands), wrong=wrong)


def check_answers(emulator: Emulator, engine: Engine, state: Snapshot, commands: Sequence[str], name: str) -> Tally:
    """Whether the story says to each command what it says in Frotz."""
    if emulator.prompt_prefix is None:
        find_prompt_prefix(emulator, engine)
    # Frotz may keep a word of one command back and say it with the next: not with `look` between them.
    ours = engine.read_responses(state, commands)
    theirs = emulator.read_responses(state, [question for command in commands for question in ("look", command)])[1::2]
    tally = Tally(answers=len(commands), unjudged=ours.count(None))
    for command, screen, text in zip(commands, ours, theirs, strict=True):
        if screen is not None and (text is None or clean(emulator.clean_screen(screen)) != clean(text)):
            said = clean(emulator.clean_screen(screen))
            tally.wrong.append(f"{name} {command!r}: {said[:200]!r}, but Frotz says {clean(text or '')[:200]!r}")
    return tally


def check_randoms(
    engine: Engine, team: Engine | None, state: Snapshot, commands: Sequence[str], name: str, limit: int = 3_000_000
) -> Tally:
    """Whether commands that are tried under several random numbers at once, or first under one of them, end as under
    each of them, in a team too."""
    count = len(commands)
    watched = np.full(len(state.ram), 0x5A, dtype=np.uint8)
    ways = {"at once": (engine, False), "first alone": (engine, True)}
    if team is not None:
        ways |= {"in a team": (team, False), "first alone in a team": (team, True)}
    hashes = {how: np.zeros(len(RANDOMS) * count, dtype=np.uint64) for how in ways}
    verdicts = {
        how: each.filter_each(state, RANDOMS, commands, limit, Mode.MERGING, hashes[how], watched, first_alone)
        for how, (each, first_alone) in ways.items()
    }
    tally = Tally(randoms=len(RANDOMS) * count)
    for number, rng in enumerate(RANDOMS):
        own = np.zeros(count, dtype=np.uint64)
        here = msgspec.structs.replace(state, rng=rng)
        alone = engine.filter(here, commands, limit, Mode.SPLITTING, own, watched)
        for how, found in ((how, each[number]) for how, each in verdicts.items()):
            judged = (found.flags | alone.flags) & UNJUDGED == 0
            differs = (found.flags != alone.flags) | (found.diffs != alone.diffs)
            ends = (found.watches != alone.watches) | (hashes[how][number * count : (number + 1) * count] != own)
            if number and ways[how][1]:  # nothing was watched, and what draws no numbers was not tried again
                ends = (hashes[how][number * count : (number + 1) * count] != own) & (found.flags & Verdict.RANDOM > 0)
            differs |= ends
            tally.wrong += [
                f"{name} {commands[i]!r} with {rng[0]} {how}: ends otherwise"
                for i in np.flatnonzero(differs & judged).tolist()[:5]
            ]
            given_up = int((found.flags & ~alone.flags & UNJUDGED > 0).sum())
            # Some may be: a set can take longer than a command by itself. With a low limit those can be many.
            if given_up > 1 + count // 10 and limit >= 1_000_000:
                tally.wrong.append(f"{name} with {rng[0]} {how}: {given_up} of {count} given up")
    return tally


def check_merges(
    engine: Engine, state: Snapshot, commands: Sequence[str], name: str, seed: int, randoms: Sequence[Random] = ()
) -> Tally:
    """Whether a random lane of every merge is what its command is by itself."""
    try:
        return Tally(merges=engine.check_merges(state, commands, seed, randoms=randoms))
    except MismatchError as error:
        return Tally(wrong=[f"{name}: {error}"])


def _scramble(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def difference_hash(difference: Sequence[int]) -> int:
    """The engine's hash of Jericho's difference, 128 numbers: four times 16, and beside each another one."""
    pairs = ((int(a) << 16 | int(b)) for a, b in zip(difference[:64], difference[64:], strict=True))
    total = sum(_scramble(i // 16 << 40 | i % 16 << 32 | pair) for i, pair in enumerate(pairs) if pair)
    return _scramble((total + 7) % 2**64) | 1


def try_alone(emulator: Emulator, state: Snapshot, command: str) -> tuple[Status, int]:
    """How the command ends in Frotz, and the hash of Jericho's difference, 0 if it is not valid for Jericho."""
    emulator.restore(state)
    library, before = emulator._lib, emulator._lib.get_score()
    status = emulator.step(command, CANDIDATE_LIMIT)
    if status is not Status.DONE or "(Taken)" in emulator.narration:
        return status, 0
    changed = library.get_score() != before or library.game_over() > 0 or library.victory() > 0
    if not changed and library.world_changed() <= 0:
        return status, 0
    difference = np.zeros(128, dtype=np.uint16)
    library.get_cleaned_world_diff(np.ctypeslib.as_ctypes(difference[:64]), np.ctypeslib.as_ctypes(difference[64:]))
    return status, difference_hash(difference.tolist())


Dictionary = list[tuple[int, list[str]]]
"""What Jericho's filter gives, with the order that a dictionary hides when it is compared."""


def jericho_dictionary(emulator: Emulator, state: Snapshot, commands: Sequence[str]) -> Dictionary:
    """World difference -> commands, by Jericho's own filter in C."""
    emulator.restore(state)
    found = emulator._env._filter_candidate_actions(list(commands), use_ctypes=True)
    emulator.restore(state)
    return [(difference_hash(difference), acts) for difference, acts in found.items()]


def grouped(commands: Sequence[str], keys: Sequence[int]) -> Dictionary:
    out: dict[int, list[str]] = {}
    for command, key in zip(commands, keys, strict=True):
        if key:
            out.setdefault(key, []).append(command)
    return list(out.items())


def check_dictionary(emulator: Emulator, engine: Engine, state: Snapshot, commands: Sequence[str], name: str) -> Tally:
    """Whether the dictionary made from the engine, with Frotz for what it leaves to it, is that of Jericho's filter.

    That one stops at a command that halts the emulator: there the part before it must be the same, and all of it
    without such commands. Commands over the limit are left out, for it would never come back from them. (Those that
    execute `quit` may be such: libfrotz does not end there, but goes on with whatever lies behind it.)"""
    verdicts, differences = engine.differences(state, commands)
    keys = [0 if flags & Verdict.TAKEN else int(key) for flags, key in zip(verdicts.flags, differences, strict=True)]
    left = np.flatnonzero(verdicts.flags & UNJUDGED).tolist()
    halting, endless = [], []
    for i in left:
        status, keys[i] = try_alone(emulator, state, commands[i])
        if status is not Status.DONE:
            (halting if status is Status.HALTED else endless).append(i)
    tally = Tally(dictionaries=1, candidates=len(commands), valid=sum(map(bool, keys)), unjudged=len(left))
    tally.halting = [f"{name} {commands[i]!r}" for i in halting]

    def compare(some: Sequence[int], compared: Sequence[int], what: str) -> None:
        ours = grouped([commands[i] for i in compared], [keys[i] for i in compared])
        theirs = jericho_dictionary(emulator, state, [commands[i] for i in some])
        if ours != theirs:
            pairs = zip([*ours, None], [*theirs, None], strict=False)
            first = next(((a, b) for a, b in pairs if a != b), None)
            tally.wrong.append(f"{name}: Jericho's dictionary{what} is another one, first at {str(first)[:300]}")

    finite = [i for i in range(len(commands)) if i not in endless]
    going = [i for i in finite if i not in halting]
    if halting:
        compare(finite, [i for i in finite if i < halting[0]], " up to a halting command")
    compare(going, going, "")
    return tally


def check_verdicts(emulator: Emulator, engine: Engine, state: Snapshot, commands: Sequence[str], name: str) -> Tally:
    """Whether the engine's verdicts are those of Frotz."""
    watched = np.full(len(state.ram), 0xFF, dtype=np.uint8)
    watched[::3] = 0x3C  # any bits will do
    emulator.tree.view_entries(watched)[:] = 0
    ours = engine.filter(state, commands, watched=watched)
    emulator.restore(state)
    theirs = emulator.filter(commands, watched=watched)
    judged = ours.flags & UNJUDGED == 0
    differs = judged & ((ours.flags != theirs.flags) | (ours.diffs != theirs.diffs) | (ours.watches != theirs.watches))
    wrong = [
        f"{name} {commands[i]!r}: {Verdict(int(ours.flags[i]))!r} {ours.diffs[i]} {ours.watches[i]}, but Frotz says "
        f"{Verdict(int(theirs.flags[i]))!r} {theirs.diffs[i]} {theirs.watches[i]}"
        for i in np.flatnonzero(differs).tolist()[:5]
    ]
    return Tally(verdicts=len(commands), unjudged=int((~judged).sum()), wrong=wrong)


def real_candidates(emulator: Emulator, state: Snapshot, most: int = 15) -> list[str]:
    """What a search would try: every template with every thing that can be examined here, told apart by the answer.

    Written without xtx.games.actions.search, so that it stays the same measure whatever becomes of the search."""
    dictionary = read_dictionary(emulator.story.content, emulator.header)

    def answer(command: str) -> str:
        emulator.restore(state)
        return emulator.narration if emulator.step(command) is Status.DONE else ""

    names: dict[str, str] = {}
    for word in dict.fromkeys(re.findall(r"[a-z]{3,}", (answer("look") + answer("inventory")).lower())):
        text = answer(f"examine {word}") if dictionary.has_word(word) else ""
        if text and is_recognized(text):
            names.setdefault(text, word)
    emulator.restore(state)
    things = [*list(names.values())[:most], "all"]
    out: list[str] = []
    for template in (*emulator.bindings.templates, "look", "wait"):
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
    names = [w for w in dict.fromkeys(seen) if dictionary.has_word(w)][:8] or ["me"]
    whole = [t.replace("OBJ", choose.choice(names)) for t in emulator.bindings.templates]
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
            if emulator.step(command) is not Status.DONE or emulator.over or not emulator.save().wants_line:
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


def check_dictionaries(emulator: Emulator, engine: Engine, walked: Sequence[Snapshot], count: int, most: int) -> Tally:
    """The dictionaries of so many states along the walkthrough of a game that Jericho knows."""
    tally, name = Tally(), emulator.story.path.name
    if emulator.story.profile is not None:
        return tally
    steps = [i for i, state in enumerate(walked) if state.wants_line]
    for step in steps[:: max(1, -(-len(steps) // max(1, count)))] if count else []:
        emulator.restore(walked[step])
        if not emulator.over:
            commands = [c for c in real_candidates(emulator, walked[step], most) if c.strip() and ";" not in c]
            tally.add(check_dictionary(emulator, engine, walked[step], commands, f"{name} step {step}"))
    return tally


def verify(path: Path, states: int, odd: int, rounds: int, seed: int, most: int = 15, along: int = 0) -> Tally:
    """All checks of one story."""
    choose = random.Random(seed)
    with opened(path) as (emulator, engine), contextlib.closing(Engine.of(emulator, threads=3)) as team:
        tally, walked = check_walkthrough(emulator, engine)
        lines = [s for s in walked if s.wants_line]
        chosen = choose.sample(lines, min(states, len(lines)))
        for state in [*chosen, *random_states(emulator, lines, states, choose)]:
            commands = real_candidates(emulator, state, most)
            tally.add(check_lanes(engine, state, commands, path.name))
            tally.add(check_team(engine, team, state, commands, path.name))
            tally.add(check_merges(engine, state, commands, path.name, seed))
            some = choose.sample(commands, min(len(commands), 1000))
            tally.add(check_randoms(engine, team, state, some, path.name))
            tally.add(check_merges(engine, state, some, path.name, seed, RANDOMS))
            tally.add(
                check_verdicts(emulator, engine, state, choose.sample(commands, min(len(commands), 2000)), path.name)
            )
            tally.add(check_answers(emulator, team, state, choose.sample(commands, min(len(commands), 500)), path.name))
            strange = odd_commands(emulator, state, odd, choose)
            tally.add(check_answers(emulator, engine, state, strange, path.name))
            tally.add(check_lanes(engine, state, strange, path.name))
            tally.add(check_merges(engine, state, strange, path.name, seed))
            tally.add(check_randoms(engine, team, state, strange, path.name, limit=100_000))
            tally.add(check_verdicts(emulator, engine, state, strange, path.name))
        tally.add(check_dictionaries(emulator, engine, walked, along, most))
        strange = odd_commands(emulator, (chosen or lines)[0], 300, choose)
        tally.add(check_damaged(emulator.story, Rules.of(emulator), chosen or lines, strange, rounds, choose))
    return tally


def with_sanitizers() -> None:
    """Runs this script again with a library that is compiled with AddressSanitizer and UBSan."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "_zset.so"
        flags = "-std=gnu11 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
        flags += " -fno-sanitize=alignment,pointer-overflow -shared -fPIC -pthread"
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
    parser.add_argument("--along", type=int, default=12, help="states of the walkthrough for Jericho's dictionary")
    parser.add_argument("--most", type=int, default=15, help="things that candidates are made of")
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
        assert zset.library()._name == library
    folders = [Path(f) for f in os.environ.get("XTX_GAMES", "").split(os.pathsep) if f]
    paths = [LOWWATER, *(p for folder in folders for p in sorted(folder.glob("*.z[3458]")))]
    total = Tally()
    for path in paths:
        if options.games and path.stem not in options.games:
            continue
        start = time.perf_counter()
        tally = verify(path, options.states, options.odd, options.rounds, options.seed, options.most, options.along)
        total.add(tally)
        print(f"{path.name}: {tally} ({time.perf_counter() - start:.0f} s)", flush=True)
        for line in tally.wrong[:10]:
            print("   ", line, flush=True)
        for line in tally.halting:
            print("    Jericho's filter stops at", line, flush=True)
    print(f"all: {total}")
    return bool(total.wrong)


if __name__ == "__main__":
    sys.exit(main())
