"""Plans the runs of a sweep: each with all its settings and a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from xtx.agents.from_file import make_agent_label
from xtx.agents.registry import find_agent, make_presets
from xtx.config.bounds import check_settings
from xtx.config.settings import QLearning, RunConfig, get_default_length, make_demo_settings
from xtx.core import UserError
from xtx.games.catalog.known_games import find_entry, find_extra_actions, find_story, is_story_path, locate_story
from xtx.sweep.sweep_file import SweepSpec
from xtx.terminal.shell_command import format_command

STAR = "*"
"""Behind a game's name: play it with the actions that the paper adds."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep."""

    folder: str
    """Its path in the sweep's folder: game/agent/seed-0."""
    config: RunConfig
    earlier: tuple[RunConfig, ...] = ()
    """What the config was in earlier versions, where the agent's preset was another."""


@dataclass(frozen=True)
class SweepGame:
    """A game of a sweep, and whether it is played with the actions that the paper adds."""

    name: str
    star: bool
    missing: str = ""
    """The name of its story file if that cannot be found; empty otherwise."""

    @property
    def stem(self) -> str:
        """The game's name in paths and presets."""
        return Path(self.name).stem.lower() if is_story_path(self.name) else self.name


def find_games(names: Sequence[str]) -> list[SweepGame]:
    """Return the games of these names, each once; missing stories are noted. Raises `UserError` for an unknown game."""
    return list(dict.fromkeys(_find_game(name) for name in names))


def _find_game(typed: str) -> SweepGame:
    name, star = typed.removesuffix(STAR), typed.endswith(STAR)
    if name.startswith("toy:"):
        from xtx.games.toy_game import ToyGame  # not at the top: it loads an emulator

        ToyGame(name)
        chosen = SweepGame(name, star)
    elif is_story_path(name):
        find_story(name)
        chosen = SweepGame(name, star)
    else:
        entry = find_entry(name)
        chosen = SweepGame(entry.name, star, "" if locate_story(entry)[0] else entry.file)
    if star and not find_extra_actions(chosen.stem):
        raise UserError(f"{typed}: the paper adds no actions to {chosen.stem}; leave out the star")
    return chosen


def make_plan(spec: SweepSpec, games: Sequence[SweepGame]) -> list[PlannedRun]:
    """Return the runs in the order in which they are started. Raises `UserError`.

    All runs of the first seed come first, so that an unfinished sweep can already be compared.
    """
    for agent in spec.agents:
        find_agent(agent)
    for agent in spec.settings:
        if agent not in spec.agents:
            raise UserError(f"there are settings for {agent!r}, which is not one of the sweep's agents")
    variants = (False, True) if spec.stochastic == "both" else (spec.stochastic,)
    found: dict[str, PlannedRun] = {}
    for seed in dict.fromkeys(spec.seeds):
        for stochastic in variants:
            for game in games:
                for agent in dict.fromkeys(spec.agents):
                    run = _plan_run(spec, game, agent, seed, stochastic)
                    if run.folder in found:
                        raise UserError(
                            f"two of the runs would both use the folder {run.folder}; rename a story or an agent"
                        )
                    found[run.folder] = run
    return list(found.values())


def _plan_run(spec: SweepSpec, game: SweepGame, agent: str, seed: int, stochastic: bool) -> PlannedRun:
    """Plan one run."""
    presets = make_presets(agent, game.stem)
    if spec.small:
        presets = [make_demo_settings(one) if isinstance(one, QLearning) else one for one in presets]
    settings = [change_settings(agent, preset, spec.settings.get(agent, {})) for preset in presets]
    steps, num_envs = get_default_length(agent)
    config = RunConfig(
        game=game.name,
        agent=agent,
        settings=settings[0],
        seed=seed,
        steps=steps if spec.steps is None else spec.steps,
        num_envs=num_envs if spec.num_envs is None else spec.num_envs,
        stochastic=stochastic,
        extra_actions=game.star,
        actions=spec.actions,
        log_every=spec.log_every,
    )
    earlier = tuple(replace(config, settings=one) for one in settings[1:])
    whole = spec.actions == "whole"
    variants = (("star", game.star), ("stochastic", stochastic), ("whole", whole))
    folder = "-".join([_make_folder_name(game.stem), *(name for name, is_set in variants if is_set)])
    return PlannedRun(f"{folder}/{_make_folder_name(make_agent_label(agent))}/seed-{seed}", config, earlier)


def _make_folder_name(name: str) -> str:
    """Return a name without characters that have a meaning in a path."""
    return re.sub(r"[^\w.+-]+", "-", name).lstrip(".") or "unnamed"


def change_settings(agent: str, settings: Any, changes: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings of an agent with changes. Raises `UserError` if they do not fit."""
    whole = _merge(asdict(settings), changes, f"settings.{agent}")
    try:
        changed = msgspec.convert(whole, type(settings))
        check_settings(changed)
        return asdict(changed)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserError(
            f"the settings of {agent} do not fit ({error}); see: {format_command('agents', agent)}"
        ) from None


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return nested settings with changes; `where` is their path, for error messages. Raises `UserError`."""
    merged = dict(base)
    for name, value in changes.items():
        if name not in base:
            raise UserError(f"{where} has no {name!r}; it has: {', '.join(base) or 'nothing'}")
        below = f"{where}.{name}"
        if isinstance(base[name], Mapping) != isinstance(value, Mapping):
            raise UserError(f"{below} is {'a group of settings' if isinstance(base[name], Mapping) else 'one value'}")
        merged[name] = _merge(base[name], value, below) if isinstance(value, Mapping) else value
    return merged
