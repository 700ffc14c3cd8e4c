"""Games as Gymnasium environments.

    import gymnasium
    import xtx.games.gym

    env = gymnasium.make("xtx/lowwater-v0", max_episode_steps=100)
    narration, info = env.reset()
    narration, reward, terminated, truncated, info = env.step(info["actions"][0])

Every game of the catalog is there as `xtx/<name>-v0`; any other story as `xtx/Story-v0` with the argument `path`.
Importing this module registers them; `gymnasium.make("xtx.games.gym:xtx/lowwater-v0")` imports and makes in one.
Jericho is loaded when an environment begins its first episode.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Text
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

from xtx.core import Observation
from xtx.games.catalog import known_games
from xtx.games.zmachine.typed_input import COMMAND_LENGTH, READABLE, find_interpreter_word, fit_command

if TYPE_CHECKING:
    from xtx.games.vector.isolated_game import IsolatedGame

NAMESPACE = "xtx"

NARRATION_LENGTH = 8192
"""Size of the buffer in which Jericho keeps what a command printed."""

# What a byte of that buffer can mean. Spaces of all kinds have become one kind when a narration is cleaned.
_PRINTED = frozenset(bytes(range(1, 256)).decode("cp1252", "replace")) | {"\n"}

Info = dict[str, Any]


class Narration(Text):
    """What games print. A Text space, apart from how worker processes pass it on (see the end of this file)."""


class StoryEnv(gymnasium.Env[str, str]):
    """A story as an environment: commands in, narration out, the change of the score as reward.

    `info` holds, after `reset` and every `step`:

    - `actions`: the valid actions, a tuple of commands that change the world; empty at the end of a game
    - `look`, `inventory`: the answers to these two commands, which take no time
    - `score`, `max_score`; `moves`, as the game counts them; `step`, commands since the game began
    - `won`: whether the game ended well

    Any text can be given as an action. What the emulator cannot read (control characters, foreign letters, more
    than 198 characters) is made fit first, and what is meant for the interpreter and not for the story (save,
    script, quit) is answered as an empty command.

    Arguments:
        path: a story file, or the name of a game
        extra_actions: also try the actions that the XTX paper adds to the game's grammar
        actions: what is tried for valid actions: "templates" (the grammar's templates with the things in sight) or
            "whole" (every word of the dictionary as well; the default)
        stochastic: play every episode under an emulator seed of its own, drawn from `np_random`, so that
            `reset(seed=...)` repeats a whole series of episodes. Otherwise all episodes have the seed under which
            the walkthrough works, and the seed given to `reset` changes nothing about the game.
        atlas: where found actions are kept: True for the user's cache folder, False for memory only, or a folder
        render_mode: "ansi" makes `render` give back the last command and narration
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (declared so by gymnasium)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        extra_actions: bool = False,
        actions: Literal["templates", "whole"] = "whole",
        stochastic: bool = False,
        atlas: bool | str | os.PathLike[str] = True,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is None or 'ansi', not {render_mode!r}")
        self.render_mode = render_mode
        self.observation_space = Narration(NARRATION_LENGTH, min_length=0, charset=_PRINTED)
        self.action_space = Text(COMMAND_LENGTH, min_length=1, charset=READABLE)
        self._path = str(known_games.find_story(os.fspath(path)).path.absolute())
        if actions not in ("templates", "whole"):
            raise ValueError(f"actions is 'templates' or 'whole', not {actions!r}")
        self._extra_actions, self._actions = extra_actions, actions
        self._stochastic = stochastic
        self._atlas = atlas
        self._game: IsolatedGame | None = None
        self._rendered = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """The first narration of a new game."""
        super().reset(seed=seed)
        game = self._open_game()
        emulator_seed = int(self.np_random.integers(2**31 - 1)) if self._stochastic else game.walkthrough_seed
        observation = game.reset(emulator_seed)
        self._rendered = observation.text
        return observation.text, self._make_info(game, observation)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """What the command leads to. Never truncated here: that is `max_episode_steps` of `gymnasium.make`."""
        game = self._open_game()
        if not isinstance(action, str):
            raise TypeError(f"an action is a command, as in step('open mailbox'); this is {action!r}")
        command = fit_command(action)
        step = game.step("" if find_interpreter_word(command) else command)
        text = step.observation.text
        self._rendered = f"> {command}\n{text}"
        return text, float(step.reward), step.terminated, False, self._make_info(game, step.observation, step.won)

    def render(self) -> str | None:
        """The last command and narration, in the mode "ansi"."""
        return self._rendered if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Frees the emulator."""
        if self._game is not None:
            self._game.close()
            self._game = None

    def _open_game(self) -> IsolatedGame:
        if self._game is None:
            from xtx.games.atlas.store import find_default_path
            from xtx.games.story_game import GameSpec
            from xtx.games.vector.isolated_game import IsolatedGame

            if isinstance(self._atlas, bool):
                atlas = str(find_default_path()) if self._atlas else None
            else:
                atlas = os.fspath(self._atlas)
            spec = GameSpec(self._path, self._extra_actions, atlas, actions=self._actions)
            self._game = IsolatedGame(spec)
        return self._game

    @staticmethod
    def _make_info(game: IsolatedGame, observation: Observation, won: bool = False) -> Info:
        return {
            "actions": observation.actions,
            "look": observation.look,
            "inventory": observation.inventory,
            "score": observation.score,
            "max_score": game.max_score,
            "step": observation.step,
            "won": won,
        }


# --- narrations between processes -----------------------------------------------------------------------------------
#
# Gymnasium's AsyncVectorEnv reads the shared memory of its workers once and trusts that the result changes with it.
# So it does for arrays, but not for texts: with a plain Text space every observation is that of the beginning. Spaces
# may bring their own functions for this, and ours gives back a view that reads anew.

_SIZE = 4  # bytes that hold the length
_SLOT = _SIZE + 3 * NARRATION_LENGTH  # in UTF-8 no character of cp1252 takes more than three bytes


class SharedNarrations(Sequence[str]):
    """The narrations that worker processes wrote last; a copy of it is a tuple that stays as it is."""

    def __init__(self, memory: Any, count: int) -> None:
        self._bytes = _view_shared_bytes(memory)
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        slot = self._bytes[range(self._count)[index] * _SLOT :][:_SLOT].tobytes()
        return slot[_SIZE:][: int.from_bytes(slot[:_SIZE], "big")].decode()

    def __deepcopy__(self, _: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


def _view_shared_bytes(memory: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(memory.get_obj(), dtype=np.uint8)


@create_shared_memory.register(Narration)
def _(space: Narration, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array("B", n * _SLOT)


@read_from_shared_memory.register(Narration)
def _(space: Narration, shared_memory: Any, n: int = 1) -> SharedNarrations:
    return SharedNarrations(shared_memory, n)


@write_to_shared_memory.register(Narration)
def _(space: Narration, index: int, value: str, shared_memory: Any) -> None:
    content = value.encode()
    slot = len(content).to_bytes(_SIZE, "big") + content
    _view_shared_bytes(shared_memory)[index * _SLOT :][: len(slot)] = np.frombuffer(slot, dtype=np.uint8)


# --- registration ---------------------------------------------------------------------------------------------------


def register() -> None:
    """Makes the games known to Gymnasium; those that are known already stay as they are."""
    kind = f"{__name__}:{StoryEnv.__name__}"
    games: dict[str, dict[str, Any]] = {f"{NAMESPACE}/Story-v0": {}}
    games |= {f"{NAMESPACE}/{entry.name}-v0": {"path": entry.name} for entry in known_games.list_entries()}
    for name, arguments in games.items():
        if name in gymnasium.registry:
            continue
        try:
            gymnasium.register(name, entry_point=kind, kwargs=arguments)
        except gymnasium.error.Error:
            continue  # a story of the user's own whose name Gymnasium does not allow: Story-v0 plays it


register()
