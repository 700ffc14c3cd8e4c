"""Players. An agent sees observations and answers with decisions; it never sees the game.

This file knows their names: those that come with xtx, those that other packages offer by an entry point in the
group `xtx.agents`, and classes in Python files (docs/your-agent.md). An agent's module is loaded when it is asked for:
most need torch.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from xtx.agents.from_file import is_given_class, load_file_agent, split_file_agent
from xtx.config import DrrnSettings, InvDySettings, RcDqnSettings, XtxSettings, demo, fast_settings, xtx_settings
from xtx.core import Agent, NoSettings, UserError

GROUP = "xtx.agents"


@dataclass(frozen=True)
class Listed:
    """Where an agent is found, and its settings for a game."""

    place: str
    """module:class"""
    settings: Callable[[str], Any]
    summary: str


def _xtx(**changes: Any) -> Callable[[str], XtxSettings]:
    return lambda game: replace(xtx_settings(game), **changes)


AGENTS = {
    "xtx": Listed("xtx.agents.xtx:XtxAgent", _xtx(), "exploit, then explore: the paper's own"),
    "xtx-demo": Listed("xtx.agents.xtx:XtxAgent", lambda game: demo(xtx_settings(game)), "XTX made small, for minutes"),
    "xtx-fast": Listed("xtx.agents.xtx:XtxAgent", fast_settings, "XTX with shorter imitation training, for CPUs"),
    "xtx-uniform": Listed("xtx.agents.xtx:XtxAgent", _xtx(uniform=True), "XTX that explores at random"),
    "xtx-own": Listed("xtx.agents.xtx:XtxAgent", _xtx(own_targets=True), "XTX with a target for each episode"),
    "xtx-retrace": Listed("xtx.agents.xtx:XtxAgent", _xtx(retrace=True), "XTX that retraces its ways back"),
    "xtx-plus": Listed("xtx.agents.xtx:XtxAgent", _xtx(own_targets=True, retrace=True), "XTX with both"),
    "xtx-no-mix": Listed("xtx.agents.xtx:XtxAgent", _xtx(mix=0.0), "XTX that never explores on its way back"),
    "xtx-lambda-0": Listed("xtx.agents.xtx:XtxAgent", _xtx(phases=False, mix=0.0), "imitation alone"),
    "xtx-lambda-0.5": Listed("xtx.agents.xtx:XtxAgent", _xtx(phases=False, mix=0.5), "half and half, no phases"),
    "xtx-lambda-1": Listed("xtx.agents.xtx:XtxAgent", _xtx(phases=False, mix=1.0), "exploration alone"),
    "inv-dy": Listed("xtx.agents.q_agent:InvDyAgent", lambda game: InvDySettings(), "curious Q-learning"),
    "drrn": Listed("xtx.agents.q_agent:DrrnAgent", lambda game: DrrnSettings(), "plain Q-learning"),
    "rc-dqn": Listed("xtx.agents.rc_dqn:RcDqnAgent", lambda game: RcDqnSettings(), "acting as reading comprehension"),
    "mprc-dqn": Listed(
        "xtx.agents.rc_dqn:RcDqnAgent", lambda game: RcDqnSettings(history=True), "the same with a history of objects"
    ),
    "random": Listed("xtx.agents.random:RandomAgent", lambda game: NoSettings(), "any valid action: the floor"),
    "walkthrough": Listed(
        "xtx.agents.walkthrough:WalkthroughAgent", lambda game: NoSettings(), "the known solution: the ceiling"
    ),
}


def find_agent(name: str) -> type[Agent]:
    """The class of the agent of that name."""
    if name in AGENTS:
        module, _, kind = AGENTS[name].place.partition(":")
        found = getattr(importlib.import_module(module), kind)
    elif split_file_agent(name) or is_given_class(name):
        found = load_file_agent(name)
    else:
        found = _load(_offered(name))
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise UserError(f"the agent {name!r} is not a class made from xtx.core.Agent; see docs/your-agent.md")
    return found


def preset(name: str, game: str) -> Any:
    """The agent's settings for a game, as published."""
    return AGENTS[name].settings(game) if name in AGENTS else find_agent(name).Settings()


def agent_names() -> list[str]:
    """All that can be asked for."""
    return [*AGENTS, *(point.name for point in importlib.metadata.entry_points(group=GROUP))]


def _load(point: importlib.metadata.EntryPoint) -> Any:
    try:
        return point.load()
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not f"{point.module}.".startswith(f"{error.name}."):
            raise  # it is there, and lacks something itself: its author wants to know where
        if isinstance(error, AttributeError) and error.obj is not sys.modules.get(point.module):
            raise
        raise UserError(
            f"the agent {point.name!r} cannot be loaded from {point.value} ({error}); install its package again"
        ) from None


def _offered(name: str) -> importlib.metadata.EntryPoint:
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.name == name:
            return point
    close = difflib.get_close_matches(name, agent_names(), n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(agent_names())}"
    raise UserError(f"there is no agent called {name!r}; {hint}")
