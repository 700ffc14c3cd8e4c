"""`FrotzEnv`: the interface of Jericho's class of that name, over a story that runs in another process."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xtx.core import UserError
from xtx.games.catalog.known_games import find_profile
from xtx.games.emulator.frotz import Snapshot, jericho
from xtx.games.jericho.action_search import ActionSearch, find_search
from xtx.games.jericho.frotz_library import FrotzLibrary
from xtx.games.jericho.running_story import RunningStory
from xtx.games.story_game import NO_ANSWER, GameSpec, encode_saved_game
from xtx.processes.cpu_count import list_usable_processors

ZObject = jericho.ZObject
DictionaryWord = jericho.DictionaryWord
TemplateActionGenerator = jericho.jericho.TemplateActionGenerator
UnsupportedGameWarning = jericho.UnsupportedGameWarning
TruncatedInputActionWarning = jericho.TruncatedInputActionWarning

State = tuple[Any, ...]
"""RAM, stack, pc, sp, fp, frame count, opcode, rng, narrative: what Jericho's `get_state` returns."""
_OBJECT_SIZE = len(bytes(ZObject()))
_MAX_INPUT: int = jericho.jericho.INPUT_BUFFER_SIZE
"""Limits the bytes of a command; libfrotz cuts the rest off."""
_EMULATOR_COMMAND = re.compile(r"\\[a-z]")
"""Begins a command to dumb frotz, such as `\\help`. libfrotz then reads the same command again, without end."""


class EmulatorLostWarning(UserWarning):
    """A command killed the emulator's process, or never ended; it was undone."""


class FrotzEnv:
    """An interface to a story, as `jericho.FrotzEnv`; the story runs in a process of its own.

    Arguments beyond Jericho's:
        atlas: where found actions are kept: False for memory only, True for the user's cache folder, or a folder
        actions: what is tried for valid actions: "templates" or "whole" (the whole dictionary as well)
        search_threads: threads with which valid actions are searched; one for each processor, at most 12, if not given
        patience: seconds after which a command that does not end is given up
    """

    def __init__(
        self,
        story_file: str | os.PathLike[str],
        seed: int | None = None,
        *,
        atlas: bool | str | os.PathLike[str] = False,
        actions: str = "templates",
        search_threads: int | None = None,
        patience: float = 20.0,
    ) -> None:
        if actions not in ("templates", "whole"):
            raise UserError(f"actions is 'templates' or 'whole', not {actions!r}")
        self._atlas, self._actions, self.patience = atlas, actions, patience
        self._search_threads = search_threads or min(12, len(list_usable_processors()))
        self._search: ActionSearch | None = None
        self._story: RunningStory | None = None
        self.load(story_file, seed)

    # --- the story ----------------------------------------------------------------------------------------------

    def load(self, story_file: str | os.PathLike[str], seed: int | None = None) -> None:
        """Load a story, under a seed as for `seed`."""
        path = os.fspath(story_file)
        if not os.path.isfile(path):
            raise FileNotFoundError(path)
        self.story_file = path.encode("utf-8", "surrogateescape")
        self._path = str(Path(path).absolute())
        self._md5 = hashlib.md5(Path(path).read_bytes(), usedforsecurity=False).hexdigest()
        self._bindings: dict[str, Any] = jericho.jericho._load_bindings(self._md5)
        self._generator, self._has_generator = None, False
        self.seed(seed)
        self.close()
        self._story = RunningStory(self._path, self._seed, self.patience)
        self.player_obj_num = self._story.player_number
        self.is_fully_supported = self._story.is_supported
        if not self.is_fully_supported:
            warnings.warn(
                f"Game '{path}' is not fully supported. Score, move, change detection will be disabled.",
                UnsupportedGameWarning,
                stacklevel=2,
            )

    @property
    def _running(self) -> RunningStory:
        assert self._story is not None
        return self._story

    @property
    def frotz_lib(self) -> FrotzLibrary:
        """Stands for Jericho's handle of libfrotz."""
        return FrotzLibrary(self._running)  # not kept: an environment that is dropped gives its process back at once

    @property
    def bindings(self) -> dict[str, Any]:
        """What Jericho knows of the story: name, seed, grammar, walkthrough, ...; empty if it does not know it."""
        return self._bindings

    @property
    def act_gen(self) -> Any:
        """Jericho's generator of candidates from templates, which may be altered or replaced; None for a story that it
        does not know."""
        if not self._has_generator:
            self.act_gen = deepcopy(_make_generator(self._md5))
        return self._generator

    @act_gen.setter
    def act_gen(self, generator: Any) -> None:
        self._generator, self._has_generator = generator, True

    def seed(self, seed: int | None = None) -> int:
        """Set the emulator's seed for the next `reset`. None and 0 mean the walkthrough's, or the time of day (-1)
        where there is none."""
        chosen: int = seed or self.bindings.get("seed", -1)
        self._seed = chosen
        return chosen

    def get_walkthrough(self) -> list[str]:
        """The commands of the walkthrough."""
        if not self.is_fully_supported or not self.bindings:
            warnings.warn("Unable to retrieve walkthrough for this game.", UnsupportedGameWarning, stacklevel=2)
            return []
        return str(self.bindings["walkthrough"]).split("/")

    def get_max_score(self) -> int:
        """The points that the game has to give."""
        return self._running.max_score

    def get_dictionary(self) -> list[Any]:
        """The words that the game's parser knows."""
        return [DictionaryWord.from_buffer_copy(word) for word in self._running.call_host("get_dictionary")]

    def close(self) -> None:
        """Give the emulator back; `reset` starts it again."""
        self._search = None
        if self._story is not None:
            self._story.close()

    def __del__(self) -> None:
        if getattr(self, "_story", None) is not None:
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled environment is a new one in the same state, with a process of its own. Attributes that a subclass
        or a program added are kept."""
        arguments = type(self), self._story_path, self._seed, self._options, self.get_state()
        return _rebuild, arguments, {name: value for name, value in vars(self).items() if name not in _ATTRIBUTES}

    def copy(self) -> FrotzEnv:
        """A second environment in the same state."""
        return _rebuild(FrotzEnv, self._story_path, self._seed, self._options, self.get_state())

    @property
    def _story_path(self) -> str:
        return self.story_file.decode("utf-8", "surrogateescape")

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "atlas": self._atlas,
            "actions": self._actions,
            "search_threads": self._search_threads,
            "patience": self.patience,
        }

    # --- play ---------------------------------------------------------------------------------------------------

    def reset(self) -> tuple[str, dict[str, int]]:
        """Begin a new game: the opening, and moves and score."""
        text, moves, score = self._running.reset(self._seed)
        return text, {"moves": moves, "score": score}

    def step(self, action: str) -> tuple[str, int, bool, dict[str, int]]:
        """Give a command: the answer, the change of the score, whether the game is over, and moves and score."""
        typed = action.encode("utf-8")
        if len(typed) > _MAX_INPUT:
            cut = typed[:_MAX_INPUT].decode("utf-8", "replace")
            warnings.warn(
                "Once converted to bytes, actions should have less than 198 characters. "
                f"Action '{action}' was truncated to '{cut}'.",
                TruncatedInputActionWarning,
                stacklevel=2,
            )
        try:
            if _EMULATOR_COMMAND.match(action):
                raise UserError("Jericho takes it for a command to its emulator, and never returns from that")
            text, reward, done, moves, score = self._running.step(action)
        except UserError as error:
            warnings.warn(f"{action!r} did nothing: {error}", EmulatorLostWarning, stacklevel=2)
            status = self._running.status
            return NO_ANSWER, 0, status.game_over or status.victory, {"moves": status.moves, "score": status.score}
        return text, reward, done, {"moves": moves, "score": score}

    def get_score(self) -> int:
        """The present score."""
        return self._running.status.score

    def get_moves(self) -> int:
        """The moves of the present game, as the game counts them."""
        return self._running.status.moves

    def victory(self) -> bool:
        """Whether the game is over and won."""
        return self._running.status.victory

    def game_over(self) -> bool:
        """Whether the game is over and lost."""
        return self._running.status.game_over

    def _emulator_halted(self) -> bool:
        return self._running.status.halted

    def _world_changed(self) -> bool:
        return self._running.status.world_changed

    # --- states -------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """The whole state of the emulator, for `set_state` of any environment of the same story."""
        ram, stack, *registers, rng, narrative = self._running.call_host("get_state")
        return (
            np.frombuffer(bytearray(ram), dtype=np.uint8),
            np.frombuffer(bytearray(stack), dtype=np.uint8),
            *registers,
            (np.int64(rng[0]), *rng[1:]),
            narrative,
        )

    def set_state(self, state: State) -> None:
        """Go to a state that `get_state` gave, here or in Jericho."""
        ram, stack, *registers, rng, narrative = state
        numbers = [int(number) for number in rng]
        self._running.set_state([bytes(ram), bytes(stack), *map(int, registers), numbers, narrative])

    def _get_ram(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(bytearray(self._running.call_host("get_ram")), dtype=np.uint8)

    def _get_special_ram(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(bytearray(self._running.call_host("get_special_ram")), dtype=np.uint8)

    # --- the world ----------------------------------------------------------------------------------------------

    def get_object(self, obj_num: int) -> Any:
        """The object of that number as a `ZObject`; None if there is none."""
        found = self._running.call_host("get_object", int(obj_num))
        return None if found is None else ZObject.from_buffer_copy(found)

    def get_world_objects(self, clean: bool = False) -> Any:
        """All objects as a ctypes array of `ZObject`. `clean`: without objects and attributes that are noise."""
        content = self._running.call_host("get_world_objects", bool(clean))
        kind: Any = ZObject * (len(content) // _OBJECT_SIZE)
        return kind.from_buffer_copy(content)

    def get_player_object(self) -> Any:
        """The player as a `ZObject`."""
        return self.get_object(self.player_obj_num)

    def get_player_location(self) -> Any:
        """Where the player is, as a `ZObject`."""
        return self.get_object(self.get_player_object().parent)

    def get_inventory(self) -> list[Any]:
        """What the player holds, as `ZObject`s."""
        if not self.is_fully_supported and self.get_player_object() is None:
            raise AttributeError("the player is not known in this story, so there is no inventory")
        return [ZObject.from_buffer_copy(item) for item in self._running.call_host("get_inventory")]

    def get_world_state_hash(self) -> str:
        """Jericho's MD5 hash of the object tree without noise."""
        return str(self._running.call_host("get_world_state_hash"))

    def _get_world_diff(self) -> tuple[tuple[tuple[np.uint16, np.uint16], ...], ...]:
        return tuple(
            tuple((np.uint16(one), np.uint16(two)) for one, two in part)
            for part in self._running.call_host("get_world_diff")
        )

    def _disassemble_game(self) -> None:
        print(self._running.call_host("disassemble"), end="")

    # --- actions ------------------------------------------------------------------------------------------------

    def get_valid_actions(
        self, use_object_tree: bool = True, use_ctypes: bool = True, use_parallel: bool = True
    ) -> list[str]:
        """The commands that change the world in the present state, one for each different change. Found by xtx's
        search; the arguments are accepted and change nothing."""
        profiled = not self.is_fully_supported and find_profile(self._md5) is not None
        if not profiled and (not self.is_fully_supported or not self.act_gen):
            warnings.warn("Unable to find valid actions in an unsupported game.", UnsupportedGameWarning, stacklevel=2)
            return []
        status = self._running.status
        if status.game_over or status.victory or status.halted:
            return []
        ram, stack, pc, sp, fp, frames, opcode, rng, narrative = self.get_state()
        live = stack.tobytes()[2 * sp :]  # it grows downwards
        numbers = int(rng[0]), rng[1], rng[2]
        snapshot = Snapshot(ram.tobytes(), live, pc, sp, fp, frames, opcode, numbers, narrative)
        if self._search is None or self._search.owner != os.getpid():
            self._search = find_search(self._make_spec())
        return self._search.find(encode_saved_game(self._md5, snapshot, 0, 0))

    def _make_spec(self) -> GameSpec:
        from xtx.games.atlas.store import find_default_path

        folder = (find_default_path() if self._atlas else None) if isinstance(self._atlas, bool) else Path(self._atlas)
        return GameSpec(
            self._path,
            atlas=None if folder is None else str(folder.expanduser()),
            threads=self._search_threads,
            actions=self._actions,
            usual_verbs=True,
        )

    def _identify_interactive_objects(
        self, observation: str = "", use_object_tree: bool = False
    ) -> dict[str, list[tuple[str, str, str]]]:
        """Names of things at hand, as (name, part of speech, source), by what the game says of them."""
        found = self._running.call_host("identify", observation, use_object_tree)
        return {answer: [(name, kind, source) for name, kind, source in names] for answer, names in found.items()}

    def _score_object_names(self, interactive_objs: dict[str, list[tuple[str, str, str]]]) -> list[str]:
        """One name for each of the things that `_identify_interactive_objects` found: the best noun."""
        worth = {"NOUN": 1.0, "PROPN": 0.5}

        def score(name: tuple[str, str, str]) -> float:
            return worth.get(name[1], 0.0) + 0.1 * (name[2] == "OBJTREE") - 0.01 * len(name[0])

        return [max(names, key=score)[0] for names in interactive_objs.values()]

    def _filter_candidate_actions(
        self, candidate_actions: Iterable[Any], use_ctypes: bool = False, use_parallel: bool = False
    ) -> dict[Any, list[str]]:
        """Those of the commands that change the world, by how they change it."""
        status = self._running.status
        if status.game_over or status.victory or status.halted:
            return {}
        commands = [getattr(action, "action", action) for action in candidate_actions]
        found: dict[Any, list[str]] = defaultdict(list)
        for difference, actions in self._running.call_host("filter", commands, use_ctypes):
            found[_frozen(difference)].extend(actions)
        return found


_ATTRIBUTES = frozenset(
    ("story_file", "player_obj_num", "is_fully_supported", "patience", "_atlas", "_actions", "_search_threads",
     "_search", "_story", "_path", "_md5", "_bindings", "_seed", "_generator", "_has_generator"),
)  # fmt: skip
"""What an environment makes anew when it is unpickled."""


@cache
def _make_generator(md5: str) -> Any:
    """Made once for each story, because that takes 40 ms."""
    bindings = jericho.jericho._load_bindings(md5)
    return TemplateActionGenerator(bindings) if bindings else None


def _frozen(difference: Any) -> Any:
    return tuple(map(_frozen, difference)) if isinstance(difference, list) else np.uint16(difference)


def _rebuild(kind: type[FrotzEnv], path: str, seed: int, options: dict[str, Any], state: State) -> FrotzEnv:
    """An environment in a given state. A subclass's `__init__` is not called: it may take other arguments."""
    env = kind.__new__(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedGameWarning)
        FrotzEnv.__init__(env, path, seed, **options)
    env.set_state(state)
    return env
