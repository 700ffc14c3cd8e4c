"""Games as plain objects: `make` and `make_vector`.

Stories run in processes of their own. A command that ends such a process, or never ends, does nothing; the calling
program goes on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self

from xtx.api.arguments import (
    check_atlas,
    check_flag,
    check_function,
    check_optional_whole,
    check_path,
    check_whole,
    show_value,
)
from xtx.config.config_file import MAX_ENVS
from xtx.core import Observation, Step, UserError, warn
from xtx.games.catalog.known_games import find_default_game, find_story, list_entries, locate_story
from xtx.games.story_game import GameSpec
from xtx.games.vector.game_vector import GameVector
from xtx.games.vector.isolated_game import IsolatedGame

if TYPE_CHECKING:
    from xtx.games.gym import StoryEnv

Actions = Literal["templates", "whole"]
AtlasOption = bool | str | os.PathLike[str]
MAX_SEED = 2**31 - 1
"""Largest seed of the emulator, a signed number of 32 bits."""


def list_games(*, found: bool = False) -> list[str]:
    """The names of all games that are known, or of those whose stories are on this machine."""
    found = check_flag("found", found)
    return [entry.name for entry in list_entries() if not found or locate_story(entry)[0] is not None]


def make(
    game: str | os.PathLike[str] = "",
    *,
    seed: int | None = None,
    extra_actions: bool = False,
    actions: Actions = "whole",
    valid_actions: bool = True,
    atlas: AtlasOption = True,
    on_survey: Callable[[float], None] | None = None,
) -> GameEnv:
    """One game as a plain object.

    Arguments:
        game: name of a game, path of a story file, or `toy:corridor-5`; the adventure that comes with xtx if not given
        seed: the emulator's seed for every `reset` that names none; the walkthrough's if not given
        extra_actions: also try the actions that the XTX paper adds to the game's grammar
        actions: what is tried for valid actions: `templates`, the grammar's templates with the things in sight, or
            `whole`, also every word of the dictionary
        valid_actions: False finds no valid actions, look and inventory, and steps much faster
        atlas: where found actions are kept: True for the user's cache folder, False for memory only, or a folder
        on_survey: called with the share (0 to 1) of the survey of a new story that is done; it can take some seconds

    Raises `UserError` if there is no such game, or its story is not on this machine.
    """
    seed = check_optional_whole("seed", seed, 0, MAX_SEED)
    check_function("on_survey", on_survey)
    spec = _make_spec(game, extra_actions, actions, valid_actions, atlas, 1)
    return GameEnv(spec, seed, on_survey)


def make_vector(
    game: str | os.PathLike[str] = "",
    num_envs: int = 8,
    workers: int | None = None,
    *,
    extra_actions: bool = False,
    actions: Actions = "whole",
    valid_actions: bool = True,
    atlas: AtlasOption = True,
    search_threads: int | None = None,
    on_survey: Callable[[float], None] | None = None,
) -> GameVector:
    """Several games of one kind that are stepped together over worker processes.

    `num_envs` is how many, `workers` over how many processes (one for each processor if not given), `search_threads`
    with how many threads each of them searches; the other arguments are those of `make`. What comes of an action does
    not depend on the number of workers.

    Returns a `GameVector`: `reset(indices, seeds)` gives observations, `step(actions)` steps, `save()` and
    `restore(states)` the states of all games, `len()` their number. A game that has ended must be reset.
    """
    num_envs = check_whole("num_envs", num_envs, 1, MAX_ENVS)
    workers = check_optional_whole("workers", workers, 0)
    search_threads = check_optional_whole("search_threads", search_threads, 1)
    check_function("on_survey", on_survey)
    from xtx.training.prepare import choose_search_threads

    threads = search_threads or choose_search_threads(num_envs, workers)
    spec = _make_spec(game, extra_actions, actions, valid_actions, atlas, threads)
    at_least_one = 1 if workers == 0 else workers  # no story runs in the calling process
    return GameVector(spec, num_envs, at_least_one, on_survey=on_survey)


def _make_spec(
    game: str | os.PathLike[str],
    extra_actions: bool,
    actions: str,
    valid_actions: bool,
    atlas: AtlasOption,
    threads: int,
) -> GameSpec:
    from xtx.games.atlas.store import find_default_path

    if actions not in ("templates", "whole"):
        raise UserError(f"actions is 'templates' or 'whole', not {actions!r}")
    name = check_path("game", game) or find_default_game()
    extra_actions = check_flag("extra_actions", extra_actions)
    valid_actions = check_flag("valid_actions", valid_actions)
    atlas = check_atlas(atlas)
    if name.startswith("toy:"):
        return GameSpec(name, details=True)
    folder = (find_default_path() if atlas else None) if isinstance(atlas, bool) else Path(atlas).expanduser()
    return GameSpec(
        path=str(find_story(name).path.absolute()),
        extra_actions=extra_actions,
        atlas=None if folder is None else str(folder),
        search=valid_actions,
        threads=threads,
        actions=actions,
        details=True,
    )


class GameEnv:
    """One game in a process of its own, made by `xtx.make`. Close it, or use it within `with`.

    Threads may share a game: each call is whole. After a call that was interrupted, as by Ctrl-C, the game is in the
    state before that call. A forked process cannot use the game of its parent, and games cannot be pickled; a saved
    state can be, and given to `restore` of a game that the other process makes.
    """

    def __init__(
        self, spec: GameSpec, seed: int | None = None, on_survey: Callable[[float], None] | None = None
    ) -> None:
        self._spec = spec
        self._seed = seed
        self._isolated = IsolatedGame(spec, warn, on_survey)
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._observation: Observation | None = None
        self._is_over = False

    @property
    def _game(self) -> IsolatedGame:
        self._check_process()
        return self._isolated

    def _check_process(self) -> None:
        """Raise `UserError` in a forked process. Comes before the lock is taken: a fork keeps the locks of threads that
        it does not have."""
        if os.getpid() != self._owner:
            raise UserError("this game belongs to the process that this one was forked from: make another one here")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a game has a process of its own and cannot be pickled: send what save() gives, and restore it")

    # --- play ---------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Observation:
        """Begin a new game. `seed`: the emulator's; if not given that of `make`, or else the walkthrough's."""
        chosen = self._seed if seed is None else check_whole("seed", seed, 0, MAX_SEED)
        self._check_process()
        with self._lock:
            self._observation = self._game.reset(self.walkthrough_seed if chosen is None else chosen)
            self._is_over = False
            return self._observation

    def step(self, action: str) -> Step:
        """Give a command and return what comes of it. One that the story does not survive does nothing."""
        self._check_process()
        with self._lock:
            if self._observation is None or self._is_over:
                raise UserError("the game has not begun or is over: call reset() first")
            step = self._game.step(action)
            self._observation, self._is_over = step.observation, step.terminated
            return step

    def valid_actions(self) -> tuple[str, ...]:
        """The commands that change the world in the present state; none at the end of a game."""
        return self.observation.actions

    def save(self) -> bytes:
        """The state of the game, to be given to `restore` of any game of the same story. Not after its end."""
        self._check_process()
        with self._lock:
            if self._observation is None or self._is_over:
                raise UserError("only a game that has begun and is not over can be saved: call reset() first")
            return self._game.save()

    def restore(self, state: bytes) -> Observation:
        """Go to a saved state. Raises `UserError` if it is damaged or another story's."""
        if not isinstance(state, bytes):
            raise UserError(f"restore takes the bytes that save() gave, not {show_value(state)}")
        self._check_process()
        with self._lock:
            self._observation = self._game.restore(state)
            self._is_over = False
            return self._observation

    # --- the present state --------------------------------------------------------------------------------------

    @property
    def observation(self) -> Observation:
        """What is seen now; the game is begun if it has not been."""
        return self._observation if self._observation is not None else self.reset()

    @property
    def score(self) -> int:
        """The present score."""
        return self.observation.score

    @property
    def is_over(self) -> bool:
        """Whether the game has ended by itself."""
        return self._is_over

    @property
    def room(self) -> str:
        """The name of the room that the player is in; empty where the story does not say."""
        _ = self.observation
        return self._game.details.room

    # --- the story ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The game's name."""
        return self._game.facts.name

    @property
    def max_score(self) -> int:
        """The points that the game has to give; 0 where that is not known."""
        return self._game.max_score

    @property
    def walkthrough(self) -> tuple[str, ...]:
        """The known solution; empty where there is none. It works under `walkthrough_seed`."""
        return self._game.facts.walkthrough

    @property
    def walkthrough_seed(self) -> int:
        """The emulator's seed under which the walkthrough works."""
        return self._game.walkthrough_seed

    def as_gym(self, *, render_mode: str | None = None) -> StoryEnv:
        """A new Gymnasium environment of the same story with the same settings; it has a process of its own."""
        from xtx.games.gym import StoryEnv

        spec = self._spec
        if spec.path.startswith("toy:"):
            raise UserError(f"{spec.path} is no story, and only stories are Gymnasium environments")
        return StoryEnv(
            spec.path,
            extra_actions=spec.extra_actions,
            actions="whole" if spec.actions == "whole" else "templates",
            atlas=False if spec.atlas is None else spec.atlas,
            render_mode=render_mode,
        )

    def close(self) -> None:
        """End the game's process."""
        if os.getpid() == self._owner:
            self._isolated.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<xtx.GameEnv {self.name}, {self.max_score} points>"
