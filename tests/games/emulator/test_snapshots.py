"""Saved states that were damaged or forged: refused before anything of them reaches the emulators in C."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import snapshot_fuzz
import zcode
from zcode import PARSE, TEXT, Code

from xtx.cli.main import main
from xtx.core import UserError
from xtx.games.catalog.story_file import read_story
from xtx.games.emulator.frotz import Emulator, Snapshot, SnapshotError, Status, Verdict
from xtx.games.story_game import _CHECKSUM, NO_ANSWER, GameSpec, StoryGame, _Saved
from xtx.games.zset.engine import UNJUDGED, Engine
from xtx.runs.checkpoint_file import list_checkpoints, read_checkpoint, write_checkpoint

ROOT = Path(__file__).parents[3]
LOWWATER = ROOT / "xtx/games/catalog/data/lowwater.z5"
HANG = ROOT / "stories/hang/hang.z5"
FUZZ = ROOT / "tests/games/emulator/snapshot_fuzz.py"


@pytest.fixture(scope="module")
def lowwater() -> Iterator[Emulator]:
    emulator = Emulator(read_story(LOWWATER))
    yield emulator
    emulator.close()


@pytest.fixture
def state(lowwater: Emulator) -> Snapshot:
    lowwater.reset(1)
    lowwater.step("north")
    return lowwater.save()


def changed(state: Snapshot, **fields: Any) -> Snapshot:
    return msgspec.structs.replace(state, **fields)


def with_word(state: Snapshot, place: int, word: int) -> Snapshot:
    """The state with another word on its stack, by its place in Frotz's stack."""
    words = np.frombuffer(state.stack, dtype=np.uint16).copy()
    words[place - state.sp] = word
    return changed(state, stack=words.tobytes())


def with_byte(state: Snapshot, address: int) -> Snapshot:
    ram = bytearray(state.ram)
    ram[address] ^= 1
    return changed(state, ram=bytes(ram))


FORGERIES: dict[str, tuple[Callable[[Snapshot], Snapshot], str]] = {
    "sp behind the stack": (lambda s: changed(s, sp=4096), "stack pointer"),
    "sp before the stack": (lambda s: changed(s, sp=-3), "stack pointer"),
    "sp and length that agree": (lambda s: changed(s, sp=-5000, stack=bytes(2 * 6024)), "stack pointer"),
    "sp of 64 bits": (lambda s: changed(s, sp=2**63 - 1), "stack pointer"),
    "long stack": (lambda s: changed(s, stack=s.stack + bytes(100_000)), "stack has another size"),
    "short stack": (lambda s: changed(s, stack=s.stack[:-2]), "stack has another size"),
    "full stack": (lambda s: changed(s, sp=3, stack=bytes(2 * (s.sp - 3)) + s.stack), "stack is full"),
    "fp behind the stack": (lambda s: changed(s, fp=1025), "frame pointer"),
    "fp below sp": (lambda s: changed(s, fp=s.sp - 1), "frame pointer"),
    "frames near 2^31": (lambda s: changed(s, frames=2**31 - 1), "number of frames"),
    "frames below 0": (lambda s: changed(s, frames=-1), "number of frames"),
    "one frame too many": (lambda s: changed(s, frames=s.frames + 1), "number of frames"),
    "a caller outside the stack": (lambda s: with_word(s, s.fp + 1, 0xFFF0), "chain of frames"),
    "a caller that is itself": (lambda s: with_word(s, s.fp + 1, s.fp - 1), "chain of frames"),
    "a return into RAM": (lambda s: with_word(with_word(s, s.fp + 2, 64), s.fp + 3, 0), "return address"),
    "a return behind the story": (lambda s: with_word(s, s.fp + 3, 0xFFFF), "return address"),
    "pc in RAM": (lambda s: changed(s, pc=100), "reads input"),
    "pc behind the story": (lambda s: changed(s, pc=2**30), "reads input"),
    "pc below 0": (lambda s: changed(s, pc=-1), "reads input"),
    "pc beside the instruction": (lambda s: changed(s, pc=s.pc + 1), "reads input"),
    "another opcode": (lambda s: changed(s, opcode=186), "wait for input"),
    "opcode of 9 bits": (lambda s: changed(s, opcode=228 + 256), "wait for input"),
    "short RAM": (lambda s: changed(s, ram=s.ram[:-1]), "another size"),
    "long RAM": (lambda s: changed(s, ram=s.ram + bytes(70_000)), "another size"),
    "no RAM": (lambda s: changed(s, ram=b""), "another size"),
    "another object table": (lambda s: with_byte(s, 0x0A), "header"),
    "other global variables": (lambda s: with_byte(s, 0x0D), "header"),
    "random counter": (lambda s: changed(s, rng=(1, 5, 2**31 - 1)), "random"),
    "random interval": (lambda s: changed(s, rng=(1, -1, 0)), "random"),
    "long text": (lambda s: changed(s, narration=bytes(8192)), "text is too long"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_state_is_refused_and_changes_nothing(lowwater: Emulator, state: Snapshot, name: str) -> None:
    forge, reason = FORGERIES[name]
    with pytest.raises(SnapshotError, match=reason) as raised:
        lowwater.restore(forge(state))
    assert "lowwater.z5" in str(raised.value) and "\n" not in str(raised.value)
    assert lowwater.save() == state
    assert lowwater.step("look") is Status.DONE


def test_the_engine_refuses_the_same_states(lowwater: Emulator, state: Snapshot) -> None:
    engine = Engine.of(lowwater)
    assert not (engine.filter(state, ["look"]).flags & UNJUDGED).any()
    for name, (forge, reason) in FORGERIES.items():
        # It reads neither header nor text, and looks itself whether there is room on its stack.
        if reason in ("header", "text is too long", "stack is full"):
            continue
        try:
            flags = engine.filter(forge(state), ["look"]).flags
        except ValueError:
            continue
        assert (flags & UNJUDGED).all(), name
    engine.close()


def test_all_states_of_a_game_are_accepted(lowwater: Emulator) -> None:
    lowwater.reset(lowwater.bindings.walkthrough_seed)
    for command in lowwater.bindings.walkthrough:
        assert lowwater.step(command) is Status.DONE
        state = lowwater.save()
        lowwater.restore(state)
        assert lowwater.save() == state


@pytest.mark.roms
@pytest.mark.parametrize("name", ["zork1", "planetfall", "trinity", "anchor"])
def test_all_states_of_real_games_are_accepted(name: str, real_story: Callable[[str], Path]) -> None:
    emulator = Emulator(read_story(real_story(name)))
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough:
        assert emulator.step(command) is Status.DONE
        emulator.restore(emulator.save())
    assert emulator.score > 0
    emulator.close()


# --- files ----------------------------------------------------------------------------------------------------------


def forged_game(emulator: Emulator, saved: bytes, forge: Callable[[Snapshot], Snapshot]) -> bytes:
    """A saved game with a forged state and the right checksum."""
    whole = msgspec.msgpack.decode(saved[_CHECKSUM:], type=_Saved)
    body = msgspec.msgpack.encode(msgspec.structs.replace(whole, emulator=forge(whole.emulator)))
    return hashlib.blake2b(body, digest_size=_CHECKSUM, key=emulator.story.md5.encode()).digest() + body


def test_a_saved_game_with_a_right_checksum_and_anything_in_it() -> None:
    game = StoryGame(GameSpec(str(LOWWATER), search=False))
    game.reset()
    saved = game.save()
    for forge, _ in FORGERIES.values():
        with pytest.raises(UserError, match="no state of lowwater"):
            game.restore(forged_game(game.emulator, saved, forge))
    for body in (b"", b"\x93\x01\x02\x03", msgspec.msgpack.encode({"emulator": None})):
        key = game.emulator.story.md5.encode()
        with pytest.raises(UserError, match="another version"):
            game.restore(hashlib.blake2b(body, digest_size=_CHECKSUM, key=key).digest() + body)
    assert game.restore(saved).text
    game.close()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_forged_checkpoint_gets_one_line(
    workers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], lowwater: Emulator
) -> None:
    run = tmp_path / "run"
    options = ["--agent", "random", "--workers", workers, "--num-envs", "1", "--out", str(run)]
    assert main(["train", str(LOWWATER), "--steps", "30", *options]) == 0
    config = run / "config.json"
    config.write_text(config.read_text().replace('"steps": 30', '"steps": 60'))
    newest = list_checkpoints(run)[0]
    content = read_checkpoint(newest)
    good = content["state"]["games"]
    content["state"]["games"] = [forged_game(lowwater, good[0], lambda s: changed(s, sp=4096))]
    write_checkpoint(newest, content)
    capsys.readouterr()
    code = main(["resume", str(run), "--workers", workers, "--accept-changes"])
    error = capsys.readouterr().err
    assert code == 2
    [line] = [line for line in error.splitlines() if line.startswith("xtx: ")]
    assert str(newest) in line and "stack pointer" in line and "Traceback" not in error
    assert read_checkpoint(newest)["state"]["games"] == content["state"]["games"]


def test_a_run_whose_story_is_another_file_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is lost: no advice to delete a checkpoint, and with the right story the run goes on."""
    run, story = tmp_path / "run", tmp_path / "story.z5"
    story.write_bytes(LOWWATER.read_bytes())
    options = ["--agent", "random", "--workers", "0", "--num-envs", "1", "--quiet", "--out", str(run)]
    assert main(["train", str(story), "--steps", "30", "--checkpoint-seconds", "0", *options]) == 0
    config = run / "config.json"
    config.write_text(config.read_text().replace('"steps": 30', '"steps": 60'))
    newest, before = list_checkpoints(run)
    resume = ["resume", str(run), "--workers", "0", "--quiet", "--accept-changes"]
    story.write_bytes(HANG.read_bytes())
    profile = story.with_suffix(".json")
    profile.write_bytes(HANG.with_suffix(".json").read_bytes())
    for expected in (f"; if it is the right one, move {newest} away to go on from the checkpoint before", ""):
        capsys.readouterr()
        assert main(resume) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"xtx: the story file {story} may be another one than that of the run")
        assert "XTX_GAMES" in line and str(newest) in line and "remove" not in line
        assert line.endswith(expected) and ("move" in line) == bool(expected)
        before.unlink(missing_ok=True)
    story.write_bytes(LOWWATER.read_bytes())
    profile.unlink()
    assert main(resume) == 0


# --- what a story does to the emulator ------------------------------------------------------------------------------


def test_a_division_by_zero_ends_the_command() -> None:
    emulator = Emulator(read_story(HANG))
    emulator.reset(1)
    before = emulator.save()
    assert emulator.step("divide") is Status.CRASHED
    emulator.restore(before)
    assert emulator.step("take coin") is Status.DONE and emulator.score == 1
    emulator.restore(before)
    flags = emulator.filter(["take coin", "divide", "down"]).flags
    assert [bool(flag & Verdict.STOPPED) for flag in flags] == [False, True, False]
    assert emulator.read_responses(before, ["look", "divide", "look"])[1] is None
    emulator.close()


def test_a_division_by_zero_is_an_action_without_an_answer() -> None:
    game = StoryGame(GameSpec(str(HANG), search=False))
    game.reset(1)
    step = game.step("divide")
    assert step.observation.text == NO_ANSWER and not step.terminated and step.reward == 0
    assert game.states.newly_forbidden == [(game.here, "divide")]
    assert game.step("take coin").reward == 1
    game.close()


def story_with(code: Callable[[Code], None]) -> bytes:
    """A story that reads a line and then runs some code."""
    begin = Code(zcode.CODE)
    begin.op("nop")
    begin.op("storeb", TEXT, 1, 0)
    begin.op("read", TEXT, PARSE, store=16)
    code(begin)
    return zcode.assemble(bytes(begin.bytes), 5, b"\0")


def test_a_story_cannot_leave_its_stack_or_its_code(tmp_path: Path) -> None:
    def push_forever(code: Code) -> None:
        start = code.here
        code.op("push", 7)
        code.op("jump", (start - code.here - 1) & 0xFFFF)

    def pop_forever(code: Code) -> None:
        start = code.here
        code.op("pull", 20)
        code.op("jump", (start - code.here - 1) & 0xFFFF)

    def leave_the_code(code: Code) -> None:
        code.op("jump", 0x7FFF)

    def write_behind_the_story(code: Code) -> None:
        start = code.here
        code.op("storeb", 0xFFFF, 0, 1)
        code.op("jump", (start - code.here - 1) & 0xFFFF)

    for number, code in enumerate((push_forever, pop_forever, leave_the_code, write_behind_the_story)):
        path = tmp_path / f"story{number}.z5"
        path.write_bytes(story_with(code))
        emulator = Emulator(read_story(path))
        emulator.reset(1)
        before = emulator.save()
        for _ in range(3):
            assert emulator.step("look", 100_000) is Status.HALTED, code.__name__
            emulator.restore(before)
            assert emulator.save() == before
        emulator.close()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_story_cannot_open_files_before_its_first_prompt(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its instructions fails, and the story goes on."""
    code = Code(zcode.CODE)
    code.op("nop")
    for name in ("save", "restore"):
        if version == 3:
            code.op(f"old_{name}", branch=(True, 6))  # over the next instruction
            code.op("add", zcode.Var(17), 5, store=17)
        else:
            code.op(name if version == 5 else f"old_{name}", store=18)
            code.op("add", zcode.Var(17), zcode.Var(18), store=17)
    code.op("output_stream", 2)
    code.op("output_stream", 4)
    code.op("print_num", zcode.Var(17))
    code.op("new_line")
    start = code.here
    code.op("storeb", TEXT, 1, 0)
    code.op("read", TEXT, PARSE, store=16) if version == 5 else code.op("read", TEXT, PARSE)
    code.op("jump", (start - code.here - 1) & 0xFFFF)
    (tmp_path / "story").mkdir()
    path = tmp_path / "story" / f"story.z{version}"
    path.write_bytes(zcode.assemble(bytes(code.bytes), version, b"\0"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    emulator = Emulator(read_story(path))
    for seed in (1, 2):
        assert ("10" if version == 3 else "0") in emulator.reset(seed).split()
        assert emulator.step("look") is Status.DONE
    emulator.close()
    assert not list(here.iterdir()) and [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_new_game_after_a_forged_one_is_as_before() -> None:
    """A story that runs on from a forged state may turn its output off, which no state holds."""
    game = StoryGame(GameSpec(str(LOWWATER), search=False))
    game.reset()
    expected, saved, emulator = game.step("look").observation, game.save(), game.emulator
    good, changes = snapshot_fuzz.real_states(emulator), 0
    truth = snapshot_fuzz.answer(emulator, good[-1])
    for number in (6996, 7820, 9662, 12908):
        forged = snapshot_fuzz.Forger(emulator.story.content, good, 1_000_003 + number).forge()
        game.restore(forged_game(emulator, saved, lambda _, forged=forged: forged))
        emulator.step(random.Random(forged.pc).choice(snapshot_fuzz.COMMANDS), snapshot_fuzz.LIMIT)
        changes += snapshot_fuzz.answer(emulator, good[-1]) != truth
        assert game.restore(saved) and game.step("look").observation.look == expected.look
        game.reset()
        assert game.step("look").observation == expected
    assert changes, "none of the forged states does what this is about"
    game.close()


def test_a_story_that_stops_while_it_prints_into_its_memory(tmp_path: Path) -> None:
    def redirect_and_stop(code: Code) -> None:
        for _ in range(3):
            code.op("output_stream", 3, zcode.BUFFER)
        code.op("push", 7)
        code.op("jump", (-5) & 0xFFFF)

    def redirect_and_answer(code: Code) -> None:
        code.op("print_num", 4711)
        code.op("new_line")
        redirect_and_stop(code)

    path = tmp_path / "story.z5"
    path.write_bytes(story_with(redirect_and_answer))
    emulator = Emulator(read_story(path))
    emulator.reset(1)
    before = emulator.save()
    for _ in range(20):  # more often than redirections can be nested
        assert emulator.step("look", 10_000) is Status.HALTED
        assert "4711" in emulator.narration
        emulator.restore(before)
    emulator.close()


def test_forged_states_of_every_kind() -> None:
    """tests/games/emulator/snapshot_fuzz.py does the same with 100,000 states under sanitizers."""
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--plain", "--states", "150", "lowwater"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(part.rsplit(" ", 1) for part in done.stdout.partition(": ")[2].rpartition(" (")[0].split(", "))
    assert int(counts["restore refused"]) > 30 and int(counts["restore accepted"]) > 30
    assert int(counts["restore refused"]) + int(counts["restore accepted"]) == 150
    assert int(counts["engine run"]) > 20
