"""The Z-machine emulator: Jericho's Frotz with one story. The only package that imports jericho is this one.

An `Emulator` is one Z-machine with one story in it. It knows commands, texts, states and memory, and nothing of
observations or valid actions. Differences between games that Jericho supports and games described by a profile
of our own end here.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import jericho as jericho  # what jericho.py offers under the same names
import msgspec
import numpy as np
from jericho import defines
from jericho.util import recognized as jericho_recognized
from jericho.util import verb_usage_count

from xtx.core import UserError
from xtx.games.catalog.story_file import Story
from xtx.games.emulator.command_outcomes import CANDIDATE_LIMIT as CANDIDATE_LIMIT
from xtx.games.emulator.command_outcomes import STEP_LIMIT as STEP_LIMIT
from xtx.games.emulator.command_outcomes import Status as Status
from xtx.games.emulator.command_outcomes import Verdict as Verdict
from xtx.games.emulator.command_outcomes import Verdicts as Verdicts
from xtx.games.emulator.jericho_library import Trace as Trace
from xtx.games.emulator.jericho_library import WorldStruct as WorldStruct
from xtx.games.emulator.jericho_library import explain_temporary_files, load_bridge
from xtx.games.emulator.jericho_library import open_jericho_env as open_jericho_env
from xtx.games.emulator.printed_end import is_end_text, is_victory_text
from xtx.games.emulator.printed_score import read_number
from xtx.games.emulator.snapshots import Snapshot as Snapshot
from xtx.games.emulator.snapshots import SnapshotError as SnapshotError
from xtx.games.emulator.story_bindings import StoryBindings
from xtx.games.emulator.world_memory import WorldMemory
from xtx.games.zmachine.story_memory import Header, ObjectTree, Ram, count_objects
from xtx.games.zmachine.typed_input import encode_command

BASIC_ACTIONS = frozenset(defines.BASIC_ACTIONS)
"""The directions and the like, which Jericho adds to every game's grammar."""

_TEXT_SIZE = 8192
"""Space for the longest text that libfrotz gives, with its end."""
_MARGIN = 16
_BATCH_SIZE = 64
"""Commands that are asked at once."""

_STATUS_LINE = re.compile(r"\n>\s{20,}.*$", re.DOTALL)
_FIRST_STATUS_LINE = re.compile(r"\A\s*>?[^\n]* {2}(?:Score: *-?\d+ +Moves: *\d+|Time: *\d+:\d\d *[ap]m)\s*(?:\n|\Z)")
"""As Frotz shows it in stories of version 3: the room, and behind spaces the score and moves, or the time."""


def _make_readable(story: Story) -> tuple[str, tempfile.TemporaryDirectory[str] | None]:
    """Return a path at which Jericho can read the story, and the folder of the copy if it is one.

    A copy is made where the file is a package, or where its name would mislead libfrotz, which crashes on one without a
    dot and types commands of its own into stories that are called tw-*.
    """
    if not story.is_packaged and story.path.suffix and not story.path.name.startswith("tw-"):
        return str(story.path), None
    with explain_temporary_files():
        folder = tempfile.TemporaryDirectory(prefix="xtx-story-")
        copy = Path(folder.name, f"story.z{story.content[0]}")
        copy.write_bytes(story.content)
    return str(copy), folder


class Emulator:
    """One emulator with one story. Not thread-safe, and neither is libfrotz: one process for each."""

    def __init__(self, story: Story, trace: Trace | None = None) -> None:
        self._bridge_lib = load_bridge()
        # With a seed of 1 because None would mean the time of day for a game that Jericho does not know.
        path, self._copy = _make_readable(story)
        self._env = open_jericho_env(path, seed=1)
        self.story = story
        self.header = Header.read(story.content)
        self.bindings = StoryBindings(story, self.header, self._env)
        self._lib = self._env.frotz_lib
        self._lib.getRngA.restype = ctypes.c_long
        self._lib.clean_observation.argtypes, self._lib.clean_observation.restype = [ctypes.c_void_p], ctypes.c_void_p
        self._trace = trace
        address = ctypes.addressof(trace) if trace is not None else None
        self._bridge = self._bridge_lib.bridge_open(self._lib._handle, address)
        if not self._bridge:
            raise ImportError(f"jericho {jericho.__version__} lacks what xtx needs; install jericho 3.3")
        self._stack = (ctypes.c_uint8 * self._lib.getStackSize()).in_dll(self._lib, "stack")
        self._opcode = ctypes.c_uint8.in_dll(self._lib, "next_opcode")
        self._set_bridge_story()
        self._world = (ctypes.c_char * _TEXT_SIZE).in_dll(self._lib, "world")
        self._texts = ctypes.create_string_buffer(_BATCH_SIZE * _TEXT_SIZE)
        self._instructions = ctypes.c_uint64()
        self._first: dict[int, Snapshot] = {}
        self.instructions = 0
        """Instructions that the last command took."""

    def close(self) -> None:
        """Frees the emulator; it must not be used afterwards."""
        if self._bridge:
            self._bridge_lib.bridge_close(self._bridge)
            self._bridge = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    # --- play ---------------------------------------------------------------------------------------------------

    def reset(self, seed: int, *, is_detour: bool = False) -> str:
        """The opening narration of a new game under an emulator seed. `is_detour`: the game before may be restored
        afterwards, which was perhaps begun from a file."""
        if seed not in self._first or self._is_foreign or self.halted:
            self._is_foreign &= is_detour
            self._set_up(seed)
            # What a story with a profile asks before the first prompt for a command.
            for answer in self.story.profile.opening if self.story.profile is not None else ():
                if self.halted or self.step(answer) is not Status.DONE:
                    self._dirty = True
                    raise UserError(
                        f"{self.story.path.name} does not begin: it cannot finish {answer!r} in its opening"
                    )
            if len(self._first) >= 64:  # stochastic play draws a new seed every time: do not keep them all
                self._first.clear()
            self._first[seed] = self.save()
        else:
            self.restore(self._first[seed])
        return self.narration

    def _set_up(self, seed: int) -> None:
        # Written past FrotzEnv.seed(), which turns seed 0 into the walkthrough's seed.
        self._env._seed = seed
        self._bridge_lib.bridge_reset_streams(self._bridge)
        self._env.reset()
        self._set_bridge_story()
        self._printed_score = 0
        self._has_quit = self._dirty = False

    def _set_bridge_story(self) -> None:
        """Tells the bridge about the story that was just loaded."""
        content = self.story.content
        if not self._bridge_lib.bridge_adopt(self._bridge, content, len(content)):
            raise MemoryError(f"no memory for {self.story.path.name}")

    def step(self, command: str, limit: int = STEP_LIMIT) -> Status:
        """How the command ended. After anything but DONE only `restore` or `reset` may follow."""
        status = Status(
            self._bridge_lib.bridge_step(self._bridge, encode_command(command), limit, ctypes.byref(self._instructions))
        )
        self.instructions = self._instructions.value
        self._dirty = status is not Status.DONE
        self._has_quit = bool(self._bridge_lib.bridge_has_quit(self._bridge))
        return status

    def note(self, command: str) -> None:
        """Note what is tried next, so that the parent can find out why this process died."""
        if self._trace is not None:
            self._trace.command = encode_command(command)
            self._trace.progress += 1

    def read_responses(self, state: Snapshot, commands: Sequence[str], limit: int = STEP_LIMIT) -> list[str | None]:
        """What the story says to each of the commands, given in that state; None where it cannot finish one. Quicker
        than `restore` and `step` for each. The emulator is left in some other state."""
        said: list[str | None] = []
        for begin in range(0, len(commands), _BATCH_SIZE):
            some = commands[begin : begin + _BATCH_SIZE]
            joined = b"\0".join(map(encode_command, some)) + b"\0"
            used, done, stopped = ctypes.c_uint64(), -1, []
            while done < len(some):
                self.restore(state)
                done = self._bridge_lib.bridge_responses(
                    self._bridge, joined, done + 1, len(some), limit, self._texts, ctypes.byref(used)
                )
                if done < 0:
                    raise MemoryError("no memory for a copy of the game's state")
                if done < len(some):
                    self._dirty = True
                    stopped.append(done)
            texts = ctypes.string_at(self._texts, used.value).split(b"\0")[:-1]
            answers: list[str | None] = [self._decode_text(text) for text in texts]
            for place in stopped:
                answers.insert(place, None)
            said += answers
        return said

    prompt_prefix: bytes | None = None
    """What Frotz shows in front of every text: the word of the prompt before; None if not known yet. See
    command_responses.py."""

    def clean_screen(self, screen: bytes) -> str:
        """What Jericho makes of the text on a screen."""
        return self._decode_text(self._clean_bytes(screen))

    def _clean_bytes(self, screen: bytes) -> bytes:
        screen = (self.prompt_prefix or b"") + screen
        if len(screen) > _TEXT_SIZE - _MARGIN:
            raise ValueError("libfrotz's screen does not hold so much")
        # Some of Jericho's functions write a byte or two before the text.
        place = ctypes.addressof(self._texts) + _MARGIN
        # And some skip a few letters without looking for the end.
        ctypes.memmove(place, screen + bytes(_MARGIN), len(screen) + _MARGIN)
        return ctypes.string_at(self._lib.clean_observation(place))

    def show_text(self, state: Snapshot, screen: bytes) -> None:
        """Puts the emulator into a state with that text on its screen, as if a command had led there; runs nothing."""
        self.restore(msgspec.structs.replace(state, narration=self._clean_bytes(screen)))

    def read_ending(self, state: Snapshot, screen: bytes) -> int:
        """What Jericho says of a state with that text on its screen, in zset.h's numbers: 1 for the end, 2 for a
        victory, else 0; and 4 if something was taken. The emulator is left in that state; nothing is run."""
        self.show_text(state, screen)
        ended = 1 if self._lib.game_over() > 0 else 2 if self._lib.victory() > 0 else 0
        return ended | (4 if b"(Taken)" in self._world.value else 0)

    @property
    def narration(self) -> str:
        """The text that the last command printed, as the emulator gave it."""
        return self._decode_text(self._world.value)

    def _decode_text(self, printed: bytes) -> str:
        text = printed.decode("cp1252", "replace")
        if self.story.profile is None:
            return text
        # Of games that it does not know Jericho leaves the status line: behind the prompt, in version 3 before a text.
        text = _FIRST_STATUS_LINE.sub("", text) if self.header.version <= 3 else text
        return _STATUS_LINE.sub("", text)

    @property
    def halted(self) -> bool:
        return bool(self._lib.halted() > 0)

    _has_quit = False
    """Whether the story asked to quit at the last command. Frotz goes on as if nothing had been asked."""

    _is_foreign = False
    """Whether a state from a file was restored since the last game began."""

    _dirty = False
    """Whether the last command was cut off inside the story, so that the emulator must be set up anew."""

    # --- states -------------------------------------------------------------------------------------------------

    @property
    def ram(self) -> Ram:
        """The story's dynamic memory as it is now; a view, valid until the next command."""
        zmp = ctypes.POINTER(ctypes.c_uint8).in_dll(self._lib, "zmp")
        return np.ctypeslib.as_array(zmp, (self.header.dynamic_size,))

    def save(self, *, with_ram: bool = True) -> Snapshot:
        """Return the whole state, for `restore` of any emulator with the same story; RAM may be left out if it was
        copied already."""
        lib = self._lib
        return Snapshot(
            ram=self.ram.tobytes() if with_ram else b"",
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
        fault = self._bridge_lib.bridge_restore(
            self._bridge, state.ram, len(state.ram), state.stack, len(state.stack), state.pc, state.sp, state.fp,
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

    @property
    def last_score(self) -> int:
        """The score as it was last read: a story that only prints it is not asked again."""
        profile = self.story.profile
        return self._printed_score if profile is not None and profile.score is None else self.score

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
            said = self.read_responses(state, [self.bindings.translate("score")], CANDIDATE_LIMIT)[0] or ""
            self.restore(state)
        found = re.search(pattern, said)
        if found is not None:
            self._printed_score = read_number(found[1] or "")
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
        return is_victory_text(self.narration) or 0 < profile.max_score <= self.score

    @property
    def _is_past_prompts(self) -> bool:
        """Whether the story ended by what it asks or says, which counts where a profile was found by trying: it asked
        to quit, or it asks whether to restart at a prompt that is not the usual one."""
        profile = self.story.profile
        if profile is None or profile.prompt is None:
            return False
        here = int(self._lib.getPC()), int(self._lib.getFrameCount())
        return self._has_quit or (here != profile.prompt and is_end_text(self.narration))

    @property
    def over(self) -> bool:
        """Whether the game has ended: won, lost or halted."""
        profile = self.story.profile
        if profile is None:
            return self.halted or self.won or bool(self._lib.game_over() > 0)
        return self.halted or (profile.end is not None and profile.end.read(self.ram) != 0) or self._is_past_prompts

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

    @cached_property
    def world_memory(self) -> WorldMemory:
        """Which bytes of memory make up the world."""
        return WorldMemory(self._lib, self.story.profile, self.header, self.tree, lambda: self.ram)

    # --- the search for valid actions ---------------------------------------------------------------------------

    def filter(
        self,
        commands: Sequence[str],
        limit: int = CANDIDATE_LIMIT,
        watched: Ram | None = None,
        world: WorldStruct | None = None,
    ) -> Verdicts:
        """What becomes of each command, tried from the present state, which is the same afterwards. `watched`: bits of
        RAM that are to be watched beside those of the world; `world`: what counts as a change, if not
        `world_memory.change_struct`."""
        world = world or self.world_memory.change_struct
        count = len(commands)
        flags = np.zeros(count, dtype=np.uint8)
        diffs = np.zeros(count, dtype=np.uint64)
        watches = np.zeros(count, dtype=np.uint64)
        watch = (None, None) if watched is None else (watched.ctypes.data, watches.ctypes.data)
        joined = b"\0".join(map(encode_command, commands)) + b"\0"
        state = self.save()
        done = 0
        while done < count:
            done = self._bridge_lib.bridge_filter(
                self._bridge, joined, done, count, limit,
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


def count_verb_uses(command: str, word_length: int) -> int:
    """Return how often people use the command's verb, by Jericho's counts of played transcripts."""
    return int(verb_usage_count(command, word_length))


def is_recognized(answer: str) -> bool:
    """Return whether the game understood the command that it answered so, by Jericho's list of complaints."""
    return bool(jericho_recognized(answer.replace("\n", " ")))
