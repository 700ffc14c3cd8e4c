"""Agents that learn to play text adventures, and the games as environments.

    import xtx

    game = xtx.make("lowwater")                          # one game as a plain object
    games = xtx.make_vector("lowwater", num_envs=8)      # several, stepped together
    run = xtx.train("lowwater", agent="drrn", steps=8_000)
    run.episodes[-1].score, run.best().actions, run.evaluate(episodes=10)

Everything is loaded when it is first used: `import xtx` takes 20 ms and loads neither torch nor NumPy.
Errors that the user can fix are `xtx.UserError`, with one line that says how.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xtx.api.games import GameEnv, list_games, make, make_vector
    from xtx.api.runs import Records, SavedRun, load_run
    from xtx.api.sweeps import report, sweep
    from xtx.api.training import TrainingUpdate, resume, train, train_steps
    from xtx.core import Agent, Brief, Decision, EpisodeRecord, Insight, Observation, Step, Transition, UserError
    from xtx.games.vector.game_vector import GameVector

    __version__: str

_PLACES = {
    "make": "xtx.api.games",
    "make_vector": "xtx.api.games",
    "list_games": "xtx.api.games",
    "GameEnv": "xtx.api.games",
    "GameVector": "xtx.games.vector.game_vector",
    "train": "xtx.api.training",
    "train_steps": "xtx.api.training",
    "resume": "xtx.api.training",
    "TrainingUpdate": "xtx.api.training",
    "load_run": "xtx.api.runs",
    "SavedRun": "xtx.api.runs",
    "Records": "xtx.api.runs",
    "sweep": "xtx.api.sweeps",
    "report": "xtx.api.sweeps",
    "Agent": "xtx.core",
    "Brief": "xtx.core",
    "Decision": "xtx.core",
    "EpisodeRecord": "xtx.core",
    "Insight": "xtx.core",
    "Observation": "xtx.core",
    "Step": "xtx.core",
    "Transition": "xtx.core",
    "UserError": "xtx.core",
}
"""Where each public name is defined."""

__all__ = [
    "Agent",
    "Brief",
    "Decision",
    "EpisodeRecord",
    "GameEnv",
    "GameVector",
    "Insight",
    "Observation",
    "Records",
    "SavedRun",
    "Step",
    "TrainingUpdate",
    "Transition",
    "UserError",
    "__version__",
    "list_games",
    "load_run",
    "make",
    "make_vector",
    "report",
    "resume",
    "sweep",
    "train",
    "train_steps",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("xtx")
    if name not in _PLACES:
        raise AttributeError(f"module 'xtx' has no attribute {name!r}")
    if name in _MODULES:
        return importlib.import_module(f"xtx.{name}")  # a module that can be called: see xtx/callable_modules.py
    found = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


_MODULES = ("report", "sweep")
"""Public functions that are called like a module of the package."""


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
