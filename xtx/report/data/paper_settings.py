"""The settings and lengths of the paper's runs, and in what a run's settings differ from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from xtx.config.config_file import flatten
from xtx.config.settings import (
    SHORTER_IMITATION,
    XTX_VARIANTS,
    DrrnSettings,
    InvDySettings,
    RcDqnSettings,
    RunConfig,
    XtxSettings,
    make_xtx_settings,
)
from xtx.report.data.paper_tables import read_paper

FAMILY = ("phases", "mix", "uniform")
"""The settings that make a member of XTX's family what its name says."""
NAMED: dict[str, dict[str, object]] = {
    **XTX_VARIANTS,
    "xtx-fast": {f"imitation.{name}": value for name, value in SHORTER_IMITATION.items()},
}
"""By the members of XTX's family that come with xtx, the settings that their names say."""

Settings = DrrnSettings | InvDySettings | RcDqnSettings | XtxSettings


def find_paper_steps(agent: str) -> int:
    """Game steps of the paper's runs of an agent; the ablations of XTX, and what goes past it, are measured by XTX's.
    0 for an agent that the paper has nothing like."""
    known = read_paper().steps
    is_of_family = agent.startswith("xtx-") and not agent.endswith("-demo")
    return known.get(agent, known["xtx"] if is_of_family else 0)


def list_choices(config: RunConfig) -> dict[str, Any]:
    """All that changes what a run computes, beside game, agent and seed. A setting that there was not yet when the run
    was made has its default value, as where the run is resumed: presets may have another by now."""
    own = {
        "steps": config.steps,
        "num_envs": config.num_envs,
        "byte_score": config.byte_score,
        "wide_grammar": config.wide_grammar,
        **flatten(config.settings),
    }
    kind = _find_settings_type(config.agent)
    return {**(flatten(asdict(kind())) if kind else {}), **own}


@lru_cache(maxsize=1000)
def find_paper_settings(agent: str, game: str) -> Mapping[str, Any]:
    """The paper's settings of one of its agents for a game, flat, with what the name says; nothing for other agents."""
    kind = _find_settings_type(agent)
    if kind is not XtxSettings:
        return flatten(asdict(kind())) if kind else {}
    known = flatten(asdict(make_xtx_settings(game)))
    if agent in NAMED:
        return known | NAMED[agent]
    return {name: value for name, value in known.items() if name not in FAMILY}


def _find_settings_type(agent: str) -> type[Settings] | None:
    """The kind of settings of an agent that has the paper's, but for what its name says; None for other agents."""
    if agent.startswith("xtx") and not agent.endswith("-demo"):
        return XtxSettings
    kinds: dict[str, type[Settings]] = {"drrn": DrrnSettings, "inv-dy": InvDySettings, "rc-dqn": RcDqnSettings}
    return kinds.get(agent)


def list_deviations(config: RunConfig, game: str) -> list[str]:
    """`name=value` for each setting of a run that is not the paper's."""
    paper = find_paper_settings(config.agent, game)
    if not paper:
        return []
    # byte_score: the present Jericho's reading, which is the right one
    usual = {**paper, "num_envs": 1 if config.agent == "rc-dqn" else 8, "byte_score": False, "wide_grammar": False}
    chosen = list_choices(config)
    return [f"{name}={chosen[name]}" for name, value in usual.items() if chosen[name] != value]
