"""The processes that search valid actions for `FrotzEnv`: one for each story, shared by all its environments."""

from __future__ import annotations

import os
import threading

from xtx.core import FALLBACK_ACTIONS
from xtx.games.story_game import GameSpec
from xtx.games.vector.isolated_game import IsolatedGame

_MAX_SEARCHES = 2
"""Limits the stories whose searching process is kept when no environment uses it any more."""


class ActionSearch:
    """A process that searches the valid actions of a story. Threads may share it."""

    def __init__(self, spec: GameSpec) -> None:
        self.owner = os.getpid()
        self._game = IsolatedGame(spec)
        self._lock = threading.Lock()

    def find(self, saved_game: bytes) -> list[str]:
        """The valid actions in a saved game; none where only commands that always work were found."""
        with self._lock:
            found = self._game.restore(saved_game).actions
        return [] if found == FALLBACK_ACTIONS else list(found)


_searches: dict[GameSpec, ActionSearch] = {}
_lock = threading.Lock()


def find_search(spec: GameSpec) -> ActionSearch:
    """The search for games of this kind; it is started if there is none."""
    with _lock:
        if spec not in _searches:
            if len(_searches) >= _MAX_SEARCHES:
                del _searches[next(iter(_searches))]  # environments that use it keep it
            _searches[spec] = ActionSearch(spec)
        return _searches[spec]


def _forget_searches() -> None:
    """Forget the processes of the program that this one was forked from: two programs cannot talk to one process."""
    global _lock
    _lock = threading.Lock()
    _searches.clear()


os.register_at_fork(after_in_child=_forget_searches)
