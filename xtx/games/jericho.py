"""A drop-in replacement of `jericho.FrotzEnv`.

    from xtx.games.jericho import FrotzEnv         # instead of: from jericho import FrotzEnv

Names, arguments, return values and attributes are those of Jericho 3.3, and what they return is computed by Jericho's
own emulator, in a process of its own. Three things differ: `get_valid_actions` is answered by xtx's search, needs no
spaCy and is many times as fast; a command that kills or hangs the emulator does nothing, with a warning, and the
calling program goes on; and no story writes into the present folder. See docs/jericho-dropin.md.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xtx.core import FALLBACK_ACTIONS, UserError
from xtx.cpu_count import usable_processors
from xtx.games.catalog.known_games import find_profile
from xtx.games.emulator.frotz import Snapshot, jericho
from xtx.games.frotz_process import FrotzProcess, ProcessLost, give_back, take_process
from xtx.games.frotz_worker import Answer, Status
from xtx.games.story_game import NO_ANSWER, GameSpec, encode_saved_game
from xtx.games.vector.isolated_game import GuardedGame

ZObject = jericho.ZObject
DictionaryWord = jericho.DictionaryWord
TemplateActionGenerator = jericho.jericho.TemplateActionGenerator
UnsupportedGameWarning = jericho.UnsupportedGameWarning
TruncatedInputActionWarning = jericho.TruncatedInputActionWarning
defines = jericho.defines
util = jericho.util
__version__ = jericho.__version__

__all__ = [
    "DictionaryWord",
    "EmulatorLostWarning",
    "FrotzEnv",
    "TemplateActionGenerator",
    "TruncatedInputActionWarning",
    "UnsupportedGameWarning",
    "ZObject",
    "defines",
    "util",
]

State = tuple[Any, ...]
"""RAM, stack, pc, sp, fp, frame count, opcode, rng, narrative: what Jericho's `get_state` returns."""

_MAX_REPLAY = 200
"""Commands that are given again, at most, when a process is lost."""
_LIBRARY = frozenset(
    ("getPC", "getSP", "getFP", "getFrameCount", "getRngA", "getRngInterval", "getRngCounter", "getRAMSize",
     "getStackSize", "get_opcode", "get_special_ram_size", "get_num_world_objs", "get_self_object_num", "get_moves",
     "get_score", "get_max_score", "world_changed", "game_over", "victory", "halted", "setRng"),
)  # fmt: skip
"""Functions of libfrotz that take and return numbers."""


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
        self._atlas, self._actions, self._patience = atlas, actions, patience
        self._search_threads = search_threads or min(12, len(usable_processors()))
        self._process: FrotzProcess | None = None
        self._searcher: GuardedGame | None = None
        self._status = Status()
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
        self._searcher = None
        self.seed(seed)
        self._loaded_seed = self._seed
        self._base: int | State | None = None
        self._since: list[str] = []
        supported, self.player_obj_num, self._max_score = self._restart()
        self.is_fully_supported = bool(supported)
        if not self.is_fully_supported:
            warnings.warn(
                f"Game '{path}' is not fully supported. Score, move, change detection will be disabled.",
                UnsupportedGameWarning,
                stacklevel=2,
            )
        if self._seed == -1:
            self._base = self.get_state()  # a seed that changes with time cannot be played again

    @property
    def frotz_lib(self) -> FrotzLibrary:
        """Stands for Jericho's handle of libfrotz."""
        return FrotzLibrary(self)  # not kept: an environment that is dropped gives its process back at once

    @property
    def bindings(self) -> dict[str, Any]:
        """What Jericho knows of the story: name, seed, grammar, walkthrough, ...; empty if it does not know it."""
        return self._bindings

    @property
    def act_gen(self) -> Any:
        """Jericho's generator of candidates from templates; None for a story that it does not know."""
        return _make_generator(self._md5)

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
        return self._max_score

    def get_dictionary(self) -> list[Any]:
        """The words that the game's parser knows."""
        return [DictionaryWord.from_buffer_copy(word) for word in self._ask("get_dictionary")]

    def close(self) -> None:
        """Give the emulator back; `reset` starts it again."""
        process, self._process = self._process, None
        self._searcher = None
        if process is not None:
            give_back(process)

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()

    def copy(self) -> FrotzEnv:
        """A second environment in the same state."""
        state = self.get_state()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsupportedGameWarning)
            env = FrotzEnv(
                self.story_file.decode("utf-8", "surrogateescape"), self._seed,
                atlas=self._atlas, actions=self._actions, search_threads=self._search_threads, patience=self._patience,
            )  # fmt: skip
        env.set_state(state)
        return env

    # --- play ---------------------------------------------------------------------------------------------------

    def reset(self) -> tuple[str, dict[str, int]]:
        """Begin a new game: the opening, and moves and score."""
        text, moves, score = self._ask("reset", self._seed)
        self._base, self._since = self._seed, []
        if self._seed == -1:
            self._base = self.get_state()
        return text, {"moves": moves, "score": score}

    def step(self, action: str) -> tuple[str, int, bool, dict[str, int]]:
        """Give a command: the answer, the change of the score, whether the game is over, and moves and score."""
        typed = action.encode("utf-8")
        if len(typed) > jericho.jericho.INPUT_BUFFER_SIZE:
            cut = typed[: jericho.jericho.INPUT_BUFFER_SIZE].decode("utf-8", "replace")
            warnings.warn(
                "Once converted to bytes, actions should have less than 198 characters. "
                f"Action '{action}' was truncated to '{cut}'.",
                TruncatedInputActionWarning,
                stacklevel=2,
            )
        try:
            text, reward, done, moves, score = self._ask("step", action)
        except UserError as error:
            warnings.warn(f"{action!r} did nothing: {error}", EmulatorLostWarning, stacklevel=2)
            status = self._status
            return NO_ANSWER, 0, status.game_over or status.victory, {"moves": status.moves, "score": status.score}
        self._since.append(action)
        if len(self._since) >= _MAX_REPLAY:
            self._base, self._since = self.get_state(), []
        return text, reward, done, {"moves": moves, "score": score}

    def get_score(self) -> int:
        """The present score."""
        return self._fresh_status.score

    def get_moves(self) -> int:
        """The moves of the present game, as the game counts them."""
        return self._fresh_status.moves

    def victory(self) -> bool:
        """Whether the game is over and won."""
        return self._fresh_status.victory

    def game_over(self) -> bool:
        """Whether the game is over and lost."""
        return self._fresh_status.game_over

    def _emulator_halted(self) -> bool:
        return self._fresh_status.halted

    def _world_changed(self) -> bool:
        return self._fresh_status.world_changed

    # --- states -------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """The whole state of the emulator, for `set_state` of any environment of the same story."""
        ram, stack, *registers, rng, narrative = self._ask("get_state")
        return (
            np.frombuffer(bytearray(ram), dtype=np.uint8),
            np.frombuffer(bytearray(stack), dtype=np.uint8),
            *registers,
            tuple(rng),
            narrative,
        )

    def set_state(self, state: State) -> None:
        """Go to a state that `get_state` gave, here or in Jericho."""
        ram, stack, *registers, rng, narrative = state
        plain = [bytes(ram), bytes(stack), *map(int, registers), [int(number) for number in rng], narrative]
        self._ask("set_state", plain)
        self._base, self._since = tuple(state), []

    def _get_ram(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(bytearray(self._ask("get_ram")), dtype=np.uint8)

    def _get_special_ram(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(bytearray(self._ask("get_special_ram")), dtype=np.uint8)

    # --- the world ----------------------------------------------------------------------------------------------

    def get_object(self, obj_num: int) -> Any:
        """The object of that number as a `ZObject`; None if there is none."""
        found = self._ask("get_object", int(obj_num))
        return None if found is None else ZObject.from_buffer_copy(found)

    def get_world_objects(self, clean: bool = False) -> Any:
        """All objects as a ctypes array of `ZObject`. `clean`: without objects and attributes that are noise."""
        content = self._ask("get_world_objects", bool(clean))
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
        return [ZObject.from_buffer_copy(item) for item in self._ask("get_inventory")]

    def get_world_state_hash(self) -> str:
        """Jericho's MD5 hash of the object tree without noise."""
        return str(self._ask("get_world_state_hash"))

    def _get_world_diff(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        return tuple(tuple((one, two) for one, two in part) for part in self._ask("get_world_diff"))

    def _disassemble_game(self) -> None:
        print(self._ask("disassemble"), end="")

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
        status = self._fresh_status
        if status.game_over or status.victory or status.halted:
            return []
        ram, stack, pc, sp, fp, frames, opcode, rng, narrative = self.get_state()
        live = stack.tobytes()[2 * sp :]  # it grows downwards
        snapshot = Snapshot(ram.tobytes(), live, pc, sp, fp, frames, opcode, rng, narrative)
        if self._searcher is None:
            self._searcher = _take_searcher(self._make_spec())
        found = self._searcher.restore(encode_saved_game(self._md5, snapshot, 0, 0)).actions
        return [] if found == FALLBACK_ACTIONS else list(found)

    def _make_spec(self) -> GameSpec:
        from xtx.games.atlas.store import default_path

        folder = (default_path() if self._atlas else None) if isinstance(self._atlas, bool) else Path(self._atlas)
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
        found = self._ask("identify", observation, use_object_tree)
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
        status = self._fresh_status
        if status.game_over or status.victory or status.halted:
            return {}
        commands = [getattr(action, "action", action) for action in candidate_actions]
        found: dict[Any, list[str]] = defaultdict(list)
        for difference, actions in self._ask("filter", commands, use_ctypes):
            found[_frozen(difference)].extend(actions)
        return found

    # --- the process --------------------------------------------------------------------------------------------

    @property
    def _fresh_status(self) -> Status:
        """The status after the last call; where there is no process, one is started."""
        if self._process is None or self._process.owner != os.getpid():
            self._restart()
        return self._status

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Call a method in the process. One that loses the process is tried once more, from the same state, and then
        given up: `UserError`, with the environment as it was before."""
        losses: list[str] = []
        while len(losses) < 2:
            try:
                if self._process is None or self._process.owner != os.getpid():
                    self._restart()
                return self._call(method, *arguments)
            except ProcessLost as loss:
                losses.append(str(loss))
                self._drop_process()
        self._restart()
        raise UserError(f"{method} ended the emulator's process twice: it {losses[-1]}")

    def _call(self, method: str, *arguments: Any) -> Any:
        if self._process is None:
            raise ProcessLost("is not there")
        answer: Answer = self._process.ask(method, list(arguments), self._patience)
        self._status = answer.status
        if answer.error:
            raise ValueError(f"{method}: {answer.error.strip().splitlines()[-1]}")
        return answer.value

    def _drop_process(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _restart(self) -> list[int]:
        """Give the story a process and bring it to where it was. Raises `UserError` if that fails again and again."""
        why = ""
        for _ in range(3):
            self._drop_process()
            self._process = take_process()
            try:
                facts: list[int] = self._call("load", self._path, self._loaded_seed)
                if isinstance(self._base, int):
                    self._call("reset", self._base)
                elif self._base is not None:
                    ram, stack, *registers, rng, narrative = self._base
                    self._call("set_state", [bytes(ram), bytes(stack), *registers, list(rng), narrative])
                for action in self._since:
                    self._call("step", action)
                return facts
            except ProcessLost as loss:
                why = str(loss)
        self._drop_process()
        raise UserError(f"{self._path} cannot be run: the emulator's process {why}")


_OBJECT_SIZE = len(bytes(ZObject()))


@cache
def _make_generator(md5: str) -> Any:
    """Made once for each story, because that takes 40 ms."""
    bindings = jericho.jericho._load_bindings(md5)
    return TemplateActionGenerator(bindings) if bindings else None


def _frozen(difference: Any) -> Any:
    return tuple(map(_frozen, difference)) if isinstance(difference, list) else difference


class FrotzLibrary:
    """Stands for Jericho's `frotz_lib`: those of its functions that take and return numbers."""

    def __init__(self, env: FrotzEnv) -> None:
        self._env = env

    @property
    def _handle(self) -> int:
        """Another number for each environment."""
        _ = self._env._fresh_status
        return self._env._process.pid if self._env._process is not None else 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in _LIBRARY:
            raise AttributeError(f"libfrotz runs in another process: {name} cannot be called here")
        return lambda *arguments: int(self._env._ask("call_library", name, list(arguments)))


# --- searching ------------------------------------------------------------------------------------------------------

_searchers: dict[tuple[int, GameSpec], GuardedGame] = {}
_MAX_SEARCHERS = 2
"""Stories whose searching process is kept; all environments of a story share it."""


def _take_searcher(spec: GameSpec) -> GuardedGame:
    """The process that searches valid actions of a story for all environments of this one."""
    key = os.getpid(), spec
    if key not in _searchers:
        own: Sequence[tuple[int, GameSpec]] = [known for known in _searchers if known[0] == os.getpid()]
        if len(own) >= _MAX_SEARCHERS:
            del _searchers[own[0]]  # those who have it keep it
        _searchers[key] = GuardedGame(spec)
    return _searchers[key]
