"""The process in which a `FrotzEnv` runs its story, inside Jericho's own environment.

Requests and answers are msgpack behind their length. A request is a method and its arguments; an answer is `Answer`.
The process holds one story at a time and may be given another, because starting a process takes longer than loading a
story.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from xtx.games.emulator.frotz import jericho, open_jericho_env
from xtx.games.vector.socket_messages import HEADER, Inbox
from xtx.processes.child_processes import set_up_emulator_process

_WORD = re.compile(r"[a-z][a-z'-]*")
_NO_NAMES = frozenset(
    [
        "a", "an", "the", "this", "that", "these", "those", "some", "any", "and", "or", "but", "of", "in", "on", "at",
        "to", "from", "with", "by", "for", "is", "are", "was", "were", "be", "it", "you", "your", "here", "there",
        "not", "no", "as", "can", "i",
    ]
)  # fmt: skip
"""Words of descriptions that name nothing, although parsers know many of them."""
_MAX_CACHED_TEXTS = 20_000
"""Objects whose text is kept, for `get_world_state_hash`."""


class StoryStatus(msgspec.Struct, frozen=True, array_like=True):
    """What is asked for after nearly every step."""

    score: int = 0
    moves: int = 0
    victory: bool = False
    game_over: bool = False
    halted: bool = False
    world_changed: bool = False


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a method returned, the status afterwards, or what was raised."""

    value: Any = None
    status: StoryStatus = StoryStatus()
    error: str = ""


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A call of one of the methods of `StoryHost`."""

    method: str
    arguments: list[Any] = []


class StoryHost:
    """Jericho's environment of one story, and what a parent may ask of it. Every public method can be called."""

    def __init__(self) -> None:
        self._env: Any = None
        self._texts: dict[bytes, str] = {}
        self._words: list[Any] = []
        self._kinds: dict[str, str] = {}
        # What Jericho would use spaCy for, and what takes 40 ms when a story is loaded and is not used. This
        # process does nothing else with Jericho.
        jericho.util.extract_objs = self._find_names
        jericho.jericho.TemplateActionGenerator = lambda bindings: None

    @property
    def status(self) -> StoryStatus:
        """The present status."""
        lib = None if self._env is None else self._env.frotz_lib
        if lib is None:
            return StoryStatus()
        return StoryStatus(
            lib.get_score(), lib.get_moves(), lib.victory() > 0, lib.game_over() > 0, lib.halted() > 0,
            lib.world_changed() > 0,
        )  # fmt: skip

    # --- the story ----------------------------------------------------------------------------------------------

    def load(self, path: str, seed: int) -> list[int]:
        """Load a story. Returns whether Jericho supports it, its player's object, and its greatest score."""
        self._env = None  # gives its library back first
        self._texts.clear()
        self._env = open_jericho_env(path, seed)
        words = self._words = self._env.get_dictionary()
        self._env.get_dictionary = lambda: words  # in some stories (trinity) Jericho's never ends when asked again
        self._kinds = {word.word: "ADJ" if word.is_adj and not word.is_noun else "NOUN" for word in words}
        return [self._env.is_fully_supported, self._env.player_obj_num, self._env.get_max_score()]

    def reset(self, seed: int) -> list[Any]:
        """A new game under an emulator seed: its opening, moves and score."""
        self._env._seed = seed
        text, info = self._env.reset()
        return [text, info["moves"], info["score"]]

    def step(self, action: str) -> list[Any]:
        """What Jericho's `step` returns, with moves and score in the place of the dictionary."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jericho.TruncatedInputActionWarning)  # the parent has warned
            text, reward, done, info = self._env.step(action)
        return [text, reward, done, info["moves"], info["score"]]

    def close(self) -> None:
        """Free the story."""
        self._env = None

    # --- states -------------------------------------------------------------------------------------------------

    def get_state(self) -> list[Any]:
        """Jericho's state with bytes in the place of arrays."""
        ram, stack, *registers, rng, narrative = self._env.get_state()
        return [ram.tobytes(), stack.tobytes(), *registers, [int(number) for number in rng], narrative]

    def set_state(self, state: list[Any]) -> None:
        """Go to such a state."""
        ram, stack, *registers, rng, narrative = state
        lib = self._env.frotz_lib
        if len(ram) != lib.getRAMSize() or len(stack) != lib.getStackSize():
            raise ValueError("a state of another story: its memory has another size")
        arrays = [np.frombuffer(part, dtype=np.uint8).copy() for part in (ram, stack)]
        self._env.set_state((*arrays, *registers, tuple(rng), narrative))

    # --- the world ----------------------------------------------------------------------------------------------

    def get_object(self, number: int) -> bytes | None:
        """An object as its bytes."""
        found = self._env.get_object(number)
        return None if found is None else bytes(found)

    def get_world_objects(self, clean: bool) -> bytes:
        """All objects, one behind the other."""
        return bytes(self._env.get_world_objects(clean))

    def get_inventory(self) -> list[bytes]:
        """What the player holds."""
        return [bytes(item) for item in self._env.get_inventory()]

    def get_dictionary(self) -> list[bytes]:
        """The parser's words."""
        return [bytes(word) for word in self._words]

    def get_world_state_hash(self) -> str:
        """Jericho's hash, from texts of objects that are remembered: most are the same as at the last call."""
        import hashlib

        if len(self._texts) > _MAX_CACHED_TEXTS:
            self._texts.clear()
        texts = []
        for one in self._env.get_world_objects(clean=True):
            content = bytes(one)
            text = self._texts.get(content)
            if text is None:
                text = self._texts[content] = str(one)
            texts.append(text)
        world = ", ".join(texts) + str(self._env._get_special_ram())
        return hashlib.md5(world.encode("utf-8"), usedforsecurity=False).hexdigest()

    def get_world_diff(self) -> list[list[list[int]]]:
        """What the last command changed."""
        return [[[int(number) for number in pair] for pair in part] for part in self._env._get_world_diff()]

    def get_ram(self) -> bytes:
        """The story's memory."""
        return bytes(self._env._get_ram())

    def get_special_ram(self) -> bytes:
        """Those bytes of it that Jericho counts as part of the world."""
        return bytes(self._env._get_special_ram())

    # --- actions ------------------------------------------------------------------------------------------------

    def identify(self, observation: str, use_object_tree: bool) -> dict[str, list[tuple[str, str, str]]]:
        """Jericho's `_identify_interactive_objects`, with the parser's own dictionary in the place of spaCy."""
        found: dict[str, list[tuple[str, str, str]]] = self._env._identify_interactive_objects(
            observation, use_object_tree
        )
        return found

    def filter(self, candidates: list[str], use_ctypes: bool) -> list[tuple[Any, list[str]]]:
        """Jericho's `_filter_candidate_actions` as pairs of a difference of the world and its actions."""
        found = self._env._filter_candidate_actions(candidates, use_ctypes=use_ctypes, use_parallel=False)
        return [(_plain(difference), actions) for difference, actions in found.items()]

    def call_library(self, name: str, arguments: list[int]) -> int:
        """One of libfrotz's functions that take and return numbers."""
        return int(getattr(self._env.frotz_lib, name)(*arguments) or 0)

    def disassemble(self) -> str:
        """What libfrotz prints of the story's routines and texts."""
        with tempfile.TemporaryFile() as file:
            before = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                self._env._disassemble_game()
                _flush_c_output()
            finally:
                os.dup2(before, 1)
                os.close(before)
            file.seek(0)
            return file.read().decode("cp1252", "replace")

    def _find_names(self, text: str) -> set[tuple[str, str]]:
        """The words of a text that the parser may know as names, with `NOUN` or `ADJ`."""
        longest = max(map(len, self._kinds), default=0)
        words = {word for word in _WORD.findall(text.lower()) if word not in _NO_NAMES}
        return {(word, self._kinds[word[:longest]]) for word in words if word[:longest] in self._kinds}


def _plain(value: Any) -> Any:
    """A difference of the world with plain numbers; what is nested stays nested."""
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else int(value)


def _flush_c_output() -> None:
    import ctypes

    ctypes.CDLL(None).fflush(None)


_METHODS: dict[str, Callable[..., Any]] = {
    name: method for name, method in vars(StoryHost).items() if not name.startswith("_") and callable(method)
}


def _make_plain(value: Any) -> Any:
    """Python's value for NumPy's: programs draw actions with `numpy.random.choice`."""
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"this cannot be sent: {value!r:.60}")


def encode(message: Request | Answer) -> bytes:
    """A message as it goes over the socket."""
    body = msgspec.msgpack.encode(message, enc_hook=_make_plain)
    return HEADER.pack(len(body)) + body


def serve(channel: socket.socket) -> None:
    """Answer until the other end is closed."""
    decoder, inbox, host = msgspec.msgpack.Decoder(Request), Inbox(), StoryHost()
    channel.sendall(encode(Answer()))
    while True:
        while (body := inbox.take_message()) is None:
            if inbox.closed:
                return
            inbox.receive(channel, wait=True)
        request = decoder.decode(body)
        try:
            value = _METHODS[request.method](host, *request.arguments)
            answer = Answer(value, host.status)
        except Exception:
            answer = Answer(error=traceback.format_exc())
        channel.sendall(encode(answer))


def main() -> None:
    """The process. Arguments: the numbers of its socket and of its parent."""
    channel, parent = map(int, sys.argv[1:3])
    set_up_emulator_process(parent)
    # A story that saves itself writes into the present folder: not into the user's.
    with tempfile.TemporaryDirectory(prefix="xtx-frotz-") as folder, contextlib.suppress(ConnectionError):
        os.chdir(folder)
        with socket.socket(fileno=channel) as connection:
            serve(connection)
