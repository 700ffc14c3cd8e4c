"""The Jericho door: the only module that imports jericho.

An `Emulator` is one Z-machine with one story in it. It knows commands, texts, states and memory, and nothing of
observations or valid actions. Differences between games that Jericho supports and games described by a profile
of our own end here.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cached_property
from pathlib import Path

import jericho as jericho  # what jericho.py offers under the same names
import msgspec
import numpy as np
import numpy.typing as npt
from jericho import defines
from jericho.template_action_generator import TemplateActionGenerator
from jericho.util import recognized as jericho_recognized
from jericho.util import verb_usage_count

from xtx.core import UserError
from xtx.games.catalog.profile import Word, overshadowed_readings, unlisted_templates
from xtx.games.catalog.story_file import Story
from xtx.games.emulator.printed_end import reads_as_end, reads_as_victory
from xtx.games.emulator.printed_score import read_number
from xtx.games.zmachine.story_memory import Header, ObjectTree, Ram, count_objects, read_dictionary

COMMAND_LENGTH = 198
"""Longest command in bytes that Jericho's input buffer takes."""

BASIC_ACTIONS = frozenset(defines.BASIC_ACTIONS)
"""The directions and the like, which Jericho adds to every game's grammar."""

_WORLD = 8192
"""Room for the longest text that libfrotz gives, with its end."""
_BEFORE = 16
_ASKED = 64
"""Commands that are asked at once."""
STEP_LIMIT = 40_000_000
"""Z-machine instructions after which a command counts as hanging (about a second)."""

CANDIDATE_LIMIT = 3_000_000
"""The same for a candidate of the valid-action search."""


_SHORT_DIRECTIONS = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}
"""Some of Infocom's stories know these by their short names only."""

_NOT_TYPED = dict.fromkeys((*range(32), 127, ord("\\")), " ")
"""Characters that libfrotz would take for more than letters: a backslash begins commands to the interpreter, some of
which never end, and what follows a line's end is kept for the next line, beyond the reach of `restore`."""

_STATUS_LINE = re.compile(r"\n>\s{20,}.*$", re.DOTALL)


class SnapshotError(UserError):
    """A saved state that cannot be one of the story's: it was damaged, or made by hand."""


class Status(IntEnum):
    """How a command ended, in frotz_bridge.c's numbers."""

    DONE = 0
    HALTED = 1
    LIMIT = 2
    CRASHED = 3
    """The emulator divided by zero."""


class Verdict(IntFlag):
    """What frotz_bridge.c says of a candidate."""

    CHANGED = 1
    TAKEN = 2
    RANDOM = 4
    STOPPED = 8
    EVENT = 16


class Trace(ctypes.Structure):
    """What is being tried right now, in memory shared with the parent (games/vector/shared_page.py)."""

    _fields_ = (("progress", ctypes.c_uint64), ("command", ctypes.c_char * (COMMAND_LENGTH + 2)))


class WorldStruct(ctypes.Structure):
    """`world` in frotz_bridge.c and in zset.h: what counts as a change of the world."""

    _fields_ = (
        ("set_mask", ctypes.c_void_p),
        ("clear_mask", ctypes.c_void_p),
        ("wanderers", ctypes.c_void_p),
        ("wanderer_count", ctypes.c_int32),
        ("first_object", ctypes.c_uint32),
        ("small", ctypes.c_int32),
        ("object_count", ctypes.c_int32),
        ("score_address", ctypes.c_int32),
        ("score_size", ctypes.c_int32),
    )


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The whole state of an emulator, random numbers included; plain data, so it can be stored anywhere."""

    ram: bytes
    stack: bytes
    pc: int
    sp: int
    fp: int
    frames: int
    opcode: int
    rng: tuple[int, int, int]
    narration: bytes
    printed_score: int = 0
    """In stories that only print their score: what they printed last. It stands where they cannot be asked."""


@dataclass(frozen=True)
class Change:
    """What counts as a change of the world."""

    set_mask: Ram
    """One byte for each byte of RAM: the bits that count when they are set."""
    clear_mask: Ram
    """The same for bits that are cleared."""
    wanderers: npt.NDArray[np.uint16]
    """Objects whose moves do not count."""


@dataclass(frozen=True)
class Verdicts:
    """What became of a list of candidates, each tried from the same state."""

    flags: npt.NDArray[np.uint8]
    diffs: npt.NDArray[np.uint64]
    """A hash of the change of the world, one for each candidate; where nothing changed 0, or one of the EVENT."""
    watches: npt.NDArray[np.uint64]
    """A hash of the change of those bits that were watched beside, if any; 0 where none changed."""

    def part(self, which: slice | npt.NDArray[np.intp]) -> Verdicts:
        """What became of some of them."""
        return Verdicts(self.flags[which], self.diffs[which], self.watches[which])


LIBRARY: Path | None = None
"""The compiled bridge, if it is not the one beside this file: a build with sanitizers, for tests."""


def _load_door() -> ctypes.CDLL:
    found = [LIBRARY] if LIBRARY is not None else sorted(Path(__file__).parent.glob("_frotz_bridge*.so"))
    if not found:
        raise ImportError(
            "xtx/games/emulator/_frotz_bridge*.so is missing: install the package (pip install -e .) to compile it"
        )
    # For all to see: libfrotz must find the function in it that refuses to open files.
    door = ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    door.door_open.argtypes, door.door_open.restype = [pointer, pointer], pointer
    door.door_close.argtypes, door.door_close.restype = [pointer], None
    door.door_reset_streams.argtypes, door.door_reset_streams.restype = [pointer], None
    door.door_adopt.argtypes = [pointer, ctypes.c_char_p, u64]
    door.door_restore.argtypes = [
        pointer, ctypes.c_char_p, u64, ctypes.c_char_p, u64, *[ctypes.c_int64] * 8, ctypes.c_char_p, u64,
    ]  # fmt: skip
    door.door_restore.restype = ctypes.c_char_p
    door.door_step.argtypes = [pointer, ctypes.c_char_p, u64, ctypes.POINTER(u64)]
    door.door_has_quit.argtypes = [pointer]
    door.door_filter.argtypes = [
        pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, u64, ctypes.POINTER(WorldStruct), pointer, pointer,
        pointer, pointer,
    ]  # fmt: skip
    door.door_ask.argtypes = [
        pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, u64, ctypes.c_char_p, ctypes.POINTER(u64),
    ]  # fmt: skip
    return door


def _typed(command: str) -> bytes:
    """The command as it is typed: plain ASCII, with a question mark for what is not."""
    return command.translate(_NOT_TYPED).encode("ascii", "replace")[:COMMAND_LENGTH]


class _FrotzEnv(jericho.FrotzEnv):  # type: ignore[misc]
    """Jericho's environment, in which a story's instructions to save to a file and to restore from one fail.

    libfrotz would follow them in the present folder without asking. While a command runs, the bridge ends it before
    such an instruction; this also covers the opening, which a story runs while it is loaded."""

    def load(self, story_file: str, seed: int | None = None) -> None:
        """Load a story, after its instructions for files were replaced."""
        lib = self.frotz_lib
        version = ctypes.c_uint8.in_dll(lib, "h_version")

        def fail() -> None:
            # Up to version 3 the instruction branches on success, later it stores a number: 0 means failure.
            (lib.branch if version.value <= 3 else lib.store)(0)

        self._failing = ctypes.CFUNCTYPE(None)(fail)  # must live as long as the library
        replacement = ctypes.cast(self._failing, ctypes.c_void_p)
        for table, places in (("op0_opcodes", (5, 6)), ("ext_opcodes", (0, 1))):
            operations = (ctypes.c_void_p * 7).in_dll(lib, table)
            for place in places:
                operations[place] = replacement.value
        super().load(story_file, seed)


def open_jericho_env(path: str, seed: int) -> jericho.FrotzEnv:
    """Return Jericho's own environment, in which no story can open files."""
    _load_door()  # before libfrotz, which then finds the function in it that refuses transcripts and recordings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jericho.jericho.UnsupportedGameWarning)
        return _FrotzEnv(path, seed)


class Emulator:
    """One emulator with one story. Not thread-safe, and neither is libfrotz: one process for each."""

    def __init__(self, story: Story, trace: Trace | None = None) -> None:
        self._door_lib = _load_door()
        # With a seed of 1 because None would mean the time of day for a game that Jericho does not know.
        self._env = open_jericho_env(self._path_of(story), seed=1)
        self.story = story
        self.header = Header.read(story.content)
        self._lib = self._env.frotz_lib
        self._lib.getRngA.restype = ctypes.c_long
        self._lib.clean_observation.argtypes, self._lib.clean_observation.restype = [ctypes.c_void_p], ctypes.c_void_p
        self._trace = trace
        address = ctypes.addressof(trace) if trace is not None else None
        self._door = self._door_lib.door_open(self._lib._handle, address)
        if not self._door:
            raise ImportError(f"jericho {jericho.__version__} lacks what xtx needs; install jericho 3.3")
        self._stack = (ctypes.c_uint8 * self._lib.getStackSize()).in_dll(self._lib, "stack")
        self._opcode = ctypes.c_uint8.in_dll(self._lib, "next_opcode")
        self._adopt()
        self._world = (ctypes.c_char * _WORLD).in_dll(self._lib, "world")
        self._texts = ctypes.create_string_buffer(_ASKED * _WORLD)
        self._instructions = ctypes.c_uint64()
        self._first: dict[int, Snapshot] = {}
        self.instructions = 0
        """Instructions that the last command took."""

    _copy: tempfile.TemporaryDirectory[str] | None = None
    """The folder with a copy of a story that Jericho cannot read from its own file; it goes with the emulator."""

    def _path_of(self, story: Story) -> str:
        """Where Jericho can read the story by itself: its file, or a copy where that is a package, or where its name
        would mislead libfrotz, which crashes on one without a dot and types commands of its own into stories that are
        called tw-*."""
        if not story.is_packaged and story.path.suffix and not story.path.name.startswith("tw-"):
            return str(story.path)
        self._copy = tempfile.TemporaryDirectory(prefix="xtx-story-")
        copy = Path(self._copy.name, f"story.z{story.content[0]}")
        copy.write_bytes(story.content)
        return str(copy)

    def close(self) -> None:
        """Frees the emulator; it must not be used afterwards."""
        if self._door:
            self._door_lib.door_close(self._door)
            self._door = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    # --- play ---------------------------------------------------------------------------------------------------

    def reset(self, seed: int) -> str:
        """The opening narration of a new game under an emulator seed."""
        if seed not in self._first or self._is_foreign:
            self._is_foreign = False
            self._set_up(seed)
            self._type_opening()
            if len(self._first) >= 64:  # stochastic play draws a new seed every time: do not keep them all
                self._first.clear()
            self._first[seed] = self.save()
        elif self.halted:
            self._set_up(seed)
            self._type_opening()
        else:
            self.restore(self._first[seed])
        return self.narration

    def _type_opening(self) -> None:
        """Answers what a story of a profile asks before the first prompt for a command."""
        for answer in self.story.profile.opening if self.story.profile is not None else ():
            if self.halted or self.step(answer, CANDIDATE_LIMIT) is not Status.DONE:
                break

    def _set_up(self, seed: int) -> None:
        # Written past FrotzEnv.seed(), which turns seed 0 into the walkthrough's seed.
        self._env._seed = seed
        self._door_lib.door_reset_streams(self._door)
        self._env.reset()
        self._adopt()
        self._printed_score = 0

    def _adopt(self) -> None:
        """Tells the bridge about the story that was just loaded."""
        content = self.story.content
        if not self._door_lib.door_adopt(self._door, content, len(content)):
            raise MemoryError(f"no memory for {self.story.path.name}")

    def step(self, command: str, limit: int = STEP_LIMIT) -> Status:
        """How the command ended. After anything but DONE only `restore` or `reset` may follow."""
        status = Status(self._door_lib.door_step(self._door, _typed(command), limit, ctypes.byref(self._instructions)))
        self.instructions = self._instructions.value
        self._dirty = status is not Status.DONE
        self._has_quit = bool(self._door_lib.door_has_quit(self._door))
        return status

    def note(self, command: str) -> None:
        """Leaves word of what is tried next, for who has to find out why this process died."""
        if self._trace is not None:
            self._trace.command = command.encode("ascii", "replace")[:COMMAND_LENGTH]
            self._trace.progress += 1

    def ask(self, state: Snapshot, commands: Sequence[str], limit: int = STEP_LIMIT) -> list[str | None]:
        """What the story says to each of the commands, given in that state; None where it cannot finish one. Quicker
        than `restore` and `step` for each. The emulator is left in some other state."""
        said: list[str | None] = []
        for begin in range(0, len(commands), _ASKED):
            said += self._ask(state, commands[begin : begin + _ASKED], limit)
        return said

    def _ask(self, state: Snapshot, commands: Sequence[str], limit: int) -> list[str | None]:
        joined = b"\0".join(map(_typed, commands)) + b"\0"
        used, done, stopped = ctypes.c_uint64(), -1, []
        while done < len(commands):
            self.restore(state)
            done = self._door_lib.door_ask(
                self._door, joined, done + 1, len(commands), limit, self._texts, ctypes.byref(used)
            )
            if done < 0:
                raise MemoryError("no memory for a copy of the game's state")
            if done < len(commands):
                self._dirty = True
                stopped.append(done)
        texts: list[str | None] = [
            self._told(text) for text in ctypes.string_at(self._texts, used.value).split(b"\0")[:-1]
        ]
        for place in stopped:
            texts.insert(place, None)
        return texts

    kept_back: bytes | None = None
    """What Frotz shows in front of every text, since it keeps the word before a prompt back: see command_responses.py.
    None: not found out yet."""

    def tidy(self, screen: bytes) -> str:
        """What Jericho makes of the text on a screen."""
        return self._told(self._cut(screen))

    def _cut(self, screen: bytes) -> bytes:
        screen = (self.kept_back or b"") + screen
        if len(screen) > _WORLD - _BEFORE:
            raise ValueError("libfrotz's screen does not hold so much")
        # Some of Jericho's functions write a byte or two before the text.
        place = ctypes.addressof(self._texts) + _BEFORE
        # And some skip a few letters without looking for the end.
        ctypes.memmove(place, screen + bytes(_BEFORE), len(screen) + _BEFORE)
        return ctypes.string_at(self._lib.clean_observation(place))

    def show(self, state: Snapshot, screen: bytes) -> None:
        """Puts the emulator into a state with that text on its screen, as if a command had led there; runs nothing."""
        self.restore(msgspec.structs.replace(state, narration=self._cut(screen)))

    def read_ending(self, state: Snapshot, screen: bytes) -> int:
        """What Jericho says of a state with that text on its screen, in zset.h's numbers: 1 for the end, 2 for a
        victory, else 0; and 4 if something was taken. The emulator is left in that state; nothing is run."""
        self.show(state, screen)
        ended = 1 if self._lib.game_over() > 0 else 2 if self._lib.victory() > 0 else 0
        return ended | (4 if b"(Taken)" in self._world.value else 0)

    @property
    def narration(self) -> str:
        """The text that the last command printed, as the emulator gave it."""
        return self._told(self._world.value)

    def _told(self, printed: bytes) -> str:
        text = printed.decode("cp1252", "replace")
        # For games that it does not know Jericho leaves the status line behind the prompt.
        return text if self.story.profile is None else _STATUS_LINE.sub("", text)

    @property
    def halted(self) -> bool:
        return bool(self._lib.halted() > 0)

    _has_quit = False
    """Whether the story asked to quit at the last command. Frotz goes on as if nothing had been asked."""

    _is_foreign = False
    """Whether a state from a file was restored since the last game began."""

    _dirty = False
    """Whether the last command was cut off inside the story, so that the emulator must be set up anew."""

    @staticmethod
    def wants_line_in(state: Snapshot) -> bool:
        """Whether the story waits for a line in that state (and not for a single key)."""
        return state.opcode == 228

    # --- states -------------------------------------------------------------------------------------------------

    @property
    def ram(self) -> Ram:
        """The story's dynamic memory as it is now; a view, valid until the next command."""
        zmp = ctypes.POINTER(ctypes.c_uint8).in_dll(self._lib, "zmp")
        return np.ctypeslib.as_array(zmp, (self.header.dynamic_size,))

    def save(self) -> Snapshot:
        """The whole state, to be given to `restore` of any emulator with the same story."""
        return self._save(self.ram.tobytes())

    def save_registers(self) -> Snapshot:
        """The state without RAM, for those who copied that already."""
        return self._save(b"")

    def _save(self, ram: bytes) -> Snapshot:
        lib = self._lib
        return Snapshot(
            ram=ram,
            stack=bytes(self._stack)[2 * lib.getSP() :],  # it grows downwards; what lies below sp is dead
            pc=lib.getPC(),
            sp=lib.getSP(),
            fp=lib.getFP(),
            frames=lib.getFrameCount(),
            opcode=self._opcode.value,
            rng=(lib.getRngA(), lib.getRngInterval(), lib.getRngCounter()),
            narration=self._world.value,
            printed_score=self._printed_score,
        )

    def restore_foreign(self, state: Snapshot) -> None:
        """Put the emulator into a saved state that comes from a file and may be forged.

        A story that runs on from a forged state may change memory of libfrotz that is no part of a state, such as
        where text goes. So the emulator is set up anew first, and again by the next `reset`."""
        self.restore(state)  # raises if the state is refused, before anything is changed
        self._set_up(1)
        self.restore(state)
        self._is_foreign = True

    def restore(self, state: Snapshot) -> None:
        """Puts the emulator into a saved state, exactly. One that the story cannot be in is a `SnapshotError` and
        changes nothing."""
        self._has_quit = False
        if self._dirty or self.halted:
            # A command that was cut off may have left text streams redirected: only a new set-up undoes that.
            self._set_up(1)
            self._dirty = False
        fault = self._door_lib.door_restore(
            self._door, state.ram, len(state.ram), state.stack, len(state.stack), state.pc, state.sp, state.fp,
            state.frames, state.opcode, *state.rng, state.narration, len(state.narration),
        )  # fmt: skip
        if fault is not None:
            raise SnapshotError(f"this is no state of {self.story.path.name}: {fault.decode()}")
        self._printed_score = state.printed_score

    # --- what the game says of itself ---------------------------------------------------------------------------

    @property
    def score(self) -> int:
        profile = self.story.profile
        if profile is None:
            return int(self._lib.get_score())
        if profile.score is not None:
            return profile.score.read(self.ram)
        return self._read_printed_score(profile.printed_score) if profile.printed_score else 0

    _printed_score = 0
    """The score that was last printed; it stands where the story does not answer to `score`. A part of every saved
    state: else it would depend on what this process did before."""

    def note_printed_score(self) -> None:
        """Read the score of a story that only prints it, so that states from here on hold it."""
        if self.story.profile is not None and self.story.profile.score is None and not self.over:
            _ = self.score

    def _read_printed_score(self, pattern: str) -> int:
        """What the story answers to `score` in the present state, which is the same afterwards; at the end of a game,
        what it printed last."""
        said = self.narration
        if not self.over:
            state = self.save()
            said = self.ask(state, ["score"], CANDIDATE_LIMIT)[0] or ""
            self.restore(state)
        found = re.search(pattern, said)
        if found is not None:
            self._printed_score = read_number(found[1])
        return self._printed_score

    @property
    def moves(self) -> int:
        profile = self.story.profile
        if profile is None:
            return int(self._lib.get_moves())
        return 0 if profile.moves is None else profile.moves.read(self.ram)

    @property
    def won(self) -> bool:
        profile = self.story.profile
        if profile is None:
            return bool(self._lib.victory() > 0)
        if profile.end is not None and profile.end.read(self.ram) in profile.end.won:
            return True
        if profile.prompt is None or not self.over:
            return False
        # A profile that was found by trying: the variable does not tell every victory from a defeat.
        return reads_as_victory(self.narration) or 0 < profile.max_score <= self.score

    @property
    def _is_past_prompts(self) -> bool:
        """Whether the story ended by what it asks or says, which counts where a profile was found by trying: it asked
        to quit, or it asks whether to restart at a prompt that is not the usual one."""
        profile = self.story.profile
        if profile is None or profile.prompt is None:
            return False
        here = int(self._lib.getPC()), int(self._lib.getFrameCount())
        return self._has_quit or (here != profile.prompt and reads_as_end(self.narration))

    @property
    def over(self) -> bool:
        """Whether the game has ended: won, lost or halted."""
        profile = self.story.profile
        if profile is None:
            return self.halted or self.won or bool(self._lib.game_over() > 0)
        return self.halted or (profile.end is not None and profile.end.read(self.ram) != 0) or self._is_past_prompts

    @property
    def name(self) -> str:
        profile = self.story.profile
        return str(self._env.bindings["name"]) if profile is None else profile.name

    @property
    def max_score(self) -> int:
        profile = self.story.profile
        return int(self._env.get_max_score()) if profile is None else profile.max_score

    @property
    def walkthrough(self) -> tuple[str, ...]:
        profile = self.story.profile
        if profile is not None:
            return profile.walkthrough
        return tuple(str(self._env.bindings["walkthrough"]).split("/")) if "walkthrough" in self._env.bindings else ()

    @property
    def walkthrough_seed(self) -> int:
        """The emulator seed under which the walkthrough works."""
        profile = self.story.profile
        return int(self._env.bindings["seed"]) if profile is None else profile.seed

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """The action templates of the game's grammar, one verb each, with OBJ for an object's name."""
        profile = self.story.profile
        if profile is None:
            return tuple(self._env.act_gen.templates)
        bindings = {
            "name": profile.name,
            "grammar": ";".join(profile.grammar),
            "max_word_length": profile.word_length,
        }
        dictionary = read_dictionary(self.story.content, self.header)
        return tuple(
            short if (short := _SHORT_DIRECTIONS.get(t)) and not dictionary.knows(t) and dictionary.knows(short) else t
            for t in TemplateActionGenerator(bindings).templates
        )

    @cached_property
    def unlisted(self) -> tuple[str, ...]:
        """Templates of the story's own grammar that Jericho's templates do not stand for, one verb each."""
        if self.story.profile is not None:
            return ()
        bindings = self._env.bindings
        listed = [template for template in str(bindings["grammar"]).split(";") if template]
        missing = list(overshadowed_readings(listed, self.templates))
        with contextlib.suppress(ValueError):  # a grammar that is not Inform's
            missing += unlisted_templates(self.story.content, listed)
        templates = TemplateActionGenerator({**bindings, "grammar": ";".join(missing)}).templates
        return tuple(t for t in templates if t not in self.templates)

    @cached_property
    def tree(self) -> ObjectTree:
        profile = self.story.profile
        # Not Jericho's own number, which stops at 255 where a story has more (deephome's player walks among those).
        count = count_objects(self.story.content, self.header) if profile is None else profile.objects
        return ObjectTree(self.story.content, self.header, count)

    @property
    def player(self) -> int:
        profile = self.story.profile
        return int(self._env.player_obj_num) if profile is None else profile.player or 0

    # --- the search for valid actions ---------------------------------------------------------------------------

    @cached_property
    def tree_mask(self) -> Ram:
        """One byte for each byte of RAM: the bits of the object tree that belong to the state of the world, which
        are those that Jericho's own world hash covers."""
        header, profile = self.header, self.story.profile
        attributes = np.full((self.tree.count, header.attribute_bytes), 0xFF, dtype=np.uint8)
        if profile is not None:
            for attribute in profile.ignored_attributes:
                attributes[:, attribute // 8] &= ~(0x80 >> attribute % 8) & 0xFF
        else:
            # Jericho clears noisy attributes before it hashes: give it objects with all of them set, and see.
            objects = (jericho.jericho.ZObject * (self.tree.count + 1))()
            for one in objects:
                one._attr[:] = [-1] * 4
            self._lib.clean_world_objs(objects)
            # One by one: where it does not know how many objects there are it leaves the last ones as they are. What
            # is noise elsewhere may count in those (in deephome whether somebody prayed).
            kept = np.array([one._attr[:] for one in objects[1:]], dtype=np.int8).view(np.uint8)
            attributes[:, :4] = kept
        mask = np.zeros(header.dynamic_size, dtype=np.uint8)
        entries = self.tree.entries(mask)
        entries[:, : header.attribute_bytes] = attributes
        entries[:, header.attribute_bytes : -2] = 0xFF
        return mask

    @cached_property
    def hashed(self) -> int:
        """How many objects Jericho's own world hash covers; in some stories it does not know of the last ones."""
        known = self.tree.count if self.story.profile is not None else int(self._lib.get_num_world_objs())
        return min(known, self.tree.count)

    @cached_property
    def roamers(self) -> tuple[int, ...]:
        """Objects that wander about by themselves and do not belong to the state of the world (zork1's thief)."""
        profile = self.story.profile
        if profile is not None:
            return profile.ignored_objects
        objects = (jericho.jericho.ZObject * (self.tree.count + 1))()
        for one in objects:
            one.parent = 1
        self._lib.clean_world_objs(objects)
        return tuple(i for i, one in enumerate(objects) if i and one.parent == 0)

    @cached_property
    def change(self) -> Change:
        """What counts as a change of the world beside the score: what Jericho does not ignore in the object tree, its
        special RAM, and the end of the game."""
        header, profile, count = self.header, self.story.profile, self.tree.count
        outside = np.zeros(header.dynamic_size, dtype=np.uint8)
        outside[list(self.special)] = 0xFF
        if profile is not None:
            outside[list(_span(profile.end))] = 0xFF
            mask = self.tree_mask | outside
            return Change(mask, mask, np.array(profile.ignored_objects, dtype=np.uint16))
        masks = []
        for ignored in (self._lib.ignore_attr_diff, self._lib.ignore_attr_clr):
            mask = outside.copy()
            entries = self.tree.entries(mask)
            entries[:, header.attribute_bytes : -2] = 0xFF
            bits = [[not ignored(o, a) for a in range(8 * header.attribute_bytes)] for o in range(1, count + 1)]
            entries[:, : header.attribute_bytes] = np.packbits(np.array(bits, dtype=bool), axis=1)
            entries &= self.tree.entries(self.tree_mask)  # what is no part of the world cannot change it
            masks.append(mask)
        moved = self._lib.ignore_moved_obj
        wanderers = [o for o in range(1, count + 1) if all(moved(o, d) for d in (1, count // 2, count))]
        return Change(masks[0], masks[1], np.array(wanderers, dtype=np.uint16))

    @cached_property
    def special(self) -> tuple[int, ...]:
        """RAM bytes beyond the object tree that belong to the world."""
        profile = self.story.profile
        if profile is not None:
            return profile.special
        count = self._lib.get_special_ram_size()
        addresses = ctypes.POINTER(ctypes.c_uint16).in_dll(self._lib, "special_ram_addrs")
        return tuple(addresses[i] for i in range(count))

    @cached_property
    def score_addresses(self) -> tuple[int, ...]:
        profile = self.story.profile
        if profile is not None:
            return tuple(_span(profile.score))
        return self._addresses_behind(self._lib.get_score)

    @cached_property
    def moves_addresses(self) -> tuple[int, ...]:
        profile = self.story.profile
        if profile is not None:
            return tuple(_span(profile.moves))
        return self._addresses_behind(self._lib.get_moves)

    def _addresses_behind(self, value: Callable[[], int]) -> tuple[int, ...]:
        """The RAM bytes that a number of Jericho's depends on, found by turning every byte over once."""
        ram, before, found = self.ram, value(), []
        for address in range(64, self.header.dynamic_size):
            ram[address] ^= 0xFF
            if value() != before:
                found.append(address)
            ram[address] ^= 0xFF
        return tuple(found)

    @cached_property
    def _world_argument(self) -> WorldStruct:
        change = self.change
        return WorldStruct(
            change.set_mask.ctypes.data, change.clear_mask.ctypes.data, change.wanderers.ctypes.data,
            len(change.wanderers), self.header.first_object, self.header.small, self.tree.count,
            min(self.score_addresses, default=0), len(self.score_addresses),
        )  # fmt: skip

    def events(self, commands: Sequence[str]) -> npt.NDArray[np.uint64]:
        """A hash of what Jericho calls each command's world difference, which is every object moved and attribute
        written, or of the end of the game; 0 for none."""
        nothing = np.zeros(self.header.dynamic_size, dtype=np.uint8)
        world = WorldStruct.from_buffer_copy(self._world_argument)
        world.set_mask = world.clear_mask = nothing.ctypes.data
        world.score_size = 0
        return self._filter(commands, CANDIDATE_LIMIT, None, world).diffs

    def filter(self, commands: Sequence[str], limit: int = CANDIDATE_LIMIT, watched: Ram | None = None) -> Verdicts:
        """What becomes of each command, tried from the present state, which is the same afterwards. `watched`: bits of
        RAM that are to be watched beside those of the world."""
        return self._filter(commands, limit, watched, self._world_argument)

    def _filter(self, commands: Sequence[str], limit: int, watched: Ram | None, world: WorldStruct) -> Verdicts:
        count = len(commands)
        flags = np.zeros(count, dtype=np.uint8)
        diffs = np.zeros(count, dtype=np.uint64)
        watches = np.zeros(count, dtype=np.uint64)
        watch = (None, None) if watched is None else (watched.ctypes.data, watches.ctypes.data)
        joined = b"\0".join(map(_typed, commands)) + b"\0"
        state = self.save()
        done = 0
        while done < count:
            done = self._door_lib.door_filter(
                self._door, joined, done, count, limit,
                ctypes.byref(world), flags.ctypes.data, diffs.ctypes.data, *watch,
            )  # fmt: skip
            if done < 0:
                raise MemoryError("no memory for a copy of the game's state")
            if done < count:  # this candidate stopped the emulator
                self._dirty = True
                self.restore(state)
                done += 1
        self.restore(state)
        return Verdicts(flags, diffs, watches)


def _span(place: Word | None) -> range:
    """The addresses of a number's bytes; none for no number."""
    return range(0) if place is None else range(place.address, place.address + place.size)


def verb_frequency(command: str, word_length: int) -> int:
    """How often people use the command's verb, by Jericho's counts of played transcripts."""
    return int(verb_usage_count(command, word_length))


def recognized(answer: str) -> bool:
    """Whether the game understood the command that it answered so, by Jericho's list of usual complaints."""
    return bool(jericho_recognized(answer.replace("\n", " ")))


def supported_games() -> dict[str, dict[str, str]]:
    """Jericho's own facts about its games, by the story's md5: for the test that holds our catalog to them."""
    return dict(defines.BINDINGS_DICT)
