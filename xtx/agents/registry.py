"""The agents that come with xtx, and those that other packages register; finds an agent's class by its name.

Other packages register agents by an entry point in the group `xtx.agents`, and classes in Python files are agents too
(docs/your-agent.md). The module of an agent is imported when the agent is asked for, because most of them import torch.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

from xtx.agents.from_file import is_given_class, load_file_agent, split_file_agent
from xtx.config.settings import (
    EARLIER_IMITATION,
    XTX_VARIANTS,
    DrrnSettings,
    InvDySettings,
    RcDqnSettings,
    XtxSettings,
    make_demo_settings,
    make_fast_settings,
    make_xtx_settings,
)
from xtx.core import Agent, NoSettings, UserError

GROUP = "xtx.agents"


@dataclass(frozen=True)
class Listed:
    """Where the class of an agent is found, and its settings for a game."""

    place: str
    """`module:class`."""
    settings: Callable[[str], Any]
    """Makes the settings for a game, given the game's name."""
    summary: str
    """A few words for lists of agents."""


def _make_xtx_preset(name: str) -> Callable[[str], XtxSettings]:
    return lambda game: replace(make_xtx_settings(game), **XTX_VARIANTS[name])  # type: ignore[arg-type]


_XTX, _RC_DQN = "xtx.agents.xtx.xtx_agent:XtxAgent", "xtx.agents.rc_dqn.rc_dqn_agent:RcDqnAgent"

AGENTS = {
    "xtx": Listed(_XTX, _make_xtx_preset("xtx"), "exploit, then explore: the paper's agent"),
    "xtx-demo": Listed(
        _XTX, lambda game: make_demo_settings(make_xtx_settings(game)), "XTX made small, for runs of minutes"
    ),
    "xtx-fast": Listed(_XTX, make_fast_settings, "XTX with shorter imitation training, for CPUs"),
    "xtx-uniform": Listed(_XTX, _make_xtx_preset("xtx-uniform"), "XTX that explores at random"),
    "xtx-own": Listed(_XTX, _make_xtx_preset("xtx-own"), "XTX with a target of its own for each episode"),
    "xtx-retrace": Listed(_XTX, _make_xtx_preset("xtx-retrace"), "XTX that retraces how it came to its targets"),
    "xtx-plus": Listed(_XTX, _make_xtx_preset("xtx-plus"), "XTX with own targets that retraces"),
    "xtx-no-mix": Listed(_XTX, _make_xtx_preset("xtx-no-mix"), "XTX that never explores on its way back"),
    "xtx-lambda-0": Listed(_XTX, _make_xtx_preset("xtx-lambda-0"), "XTX without phases: imitation alone"),
    "xtx-lambda-0.5": Listed(
        _XTX, _make_xtx_preset("xtx-lambda-0.5"), "XTX without phases: half imitation, half exploration"
    ),
    "xtx-lambda-1": Listed(_XTX, _make_xtx_preset("xtx-lambda-1"), "XTX without phases: exploration alone"),
    "inv-dy": Listed(
        "xtx.agents.q_learning.drrn_agents:InvDyAgent",
        lambda game: InvDySettings(),
        "DRRN with curiosity by inverse dynamics",
    ),
    "drrn": Listed("xtx.agents.q_learning.drrn_agents:DrrnAgent", lambda game: DrrnSettings(), "Q-learning on texts"),
    "rc-dqn": Listed(_RC_DQN, lambda game: RcDqnSettings(), "Q-learning as reading comprehension"),
    "mprc-dqn": Listed(_RC_DQN, lambda game: RcDqnSettings(history=True), "RC-DQN with a history of objects"),
    "random": Listed("xtx.agents.random:RandomAgent", lambda game: NoSettings(), "any valid action: the floor"),
    "walkthrough": Listed(
        "xtx.agents.walkthrough:WalkthroughAgent", lambda game: NoSettings(), "the known solution: the ceiling"
    ),
}

EARLIER_PRESETS: dict[str, Callable[[str], Any]] = {
    "xtx-fast": lambda game: make_fast_settings(game, EARLIER_IMITATION),
}
"""The settings for a game of agents whose preset was another in earlier versions."""


def find_agent(name: str) -> type[Agent]:
    """Import and return the class of an agent. Raises `UserError` if there is no such agent, or if it is not one."""
    if name in AGENTS:
        module, _, kind = AGENTS[name].place.partition(":")
        found = getattr(importlib.import_module(module), kind)
    elif split_file_agent(name) or is_given_class(name):
        found = load_file_agent(name)
    else:
        found = _load_entry_point(_find_entry_point(name))
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise UserError(f"the agent {name!r} is not a class made from xtx.core.Agent; see docs/your-agent.md")
    if name not in AGENTS:
        _check_class(found)
    return found


def _check_class(kind: type[Agent]) -> None:
    """Raise `UserError` for a class that cannot be an agent: without `act`, with other arguments or settings."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise UserError(f"{kind.__name__} does not define {', '.join(missing)}; see docs/your-agent.md")
    try:
        inspect.signature(kind).bind(None, None)
    except TypeError as error:
        raise UserError(f"{kind.__name__} must be made from two arguments, settings and brief ({error})") from None
    settings = kind.Settings
    if not (isinstance(settings, type) and is_dataclass(settings)):
        raise UserError(f"{kind.__name__}.Settings must be a dataclass, not {settings!r:.60}")
    required = [f.name for f in fields(settings) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if required:
        raise UserError(f"every field of {kind.__name__}.Settings needs a default; {', '.join(required)} has none")


def make_preset(name: str, game: str) -> Any:
    """Return the preset settings of an agent for a game; the default settings for an agent of another package."""
    return AGENTS[name].settings(game) if name in AGENTS else find_agent(name).Settings()


def make_presets(name: str, game: str) -> list[Any]:
    """Return the preset settings of an agent for a game: today's, then those of earlier versions."""
    earlier = EARLIER_PRESETS.get(name)
    return [make_preset(name, game), *([earlier(game)] if earlier else [])]


def list_agent_names() -> list[str]:
    """Return the names of all agents, those of other packages included."""
    return [*AGENTS, *(point.name for point in importlib.metadata.entry_points(group=GROUP))]


def _load_entry_point(point: importlib.metadata.EntryPoint) -> Any:
    """Load what an entry point names. Raises `UserError` if the module or the name in it does not exist."""
    try:
        return point.load()
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not f"{point.module}.".startswith(f"{error.name}."):
            raise  # the module exists and fails on an import of its own: the traceback is for its author
        if isinstance(error, AttributeError) and error.obj is not sys.modules.get(point.module):
            raise
        raise UserError(
            f"the agent {point.name!r} cannot be loaded from {point.value} ({error}); install its package again"
        ) from None


def _find_entry_point(name: str) -> importlib.metadata.EntryPoint:
    """Return the entry point of another package's agent. Raises `UserError` with a suggestion if there is none."""
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.name == name:
            return point
    close = difflib.get_close_matches(name, list_agent_names(), n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(list_agent_names())}"
    raise UserError(f"there is no agent called {name!r}; {hint}")
