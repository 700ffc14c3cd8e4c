"""From what a sweep is asked to do to its runs, each with all its settings and a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from xtx.agents import find_agent, preset
from xtx.bounds import check_settings
from xtx.config import QLearning, RunConfig, demo, usual_length
from xtx.core import UserError
from xtx.games.catalog import extra_actions, find_entry, find_story, is_story_path, locate
from xtx.sweep.spec import Spec

STAR = "*"


@dataclass(frozen=True)
class PlannedRun:
    """A run that belongs to a sweep."""

    folder: str
    """Where it lies in the sweep's folder: game/agent/seed-0."""
    config: RunConfig


@dataclass(frozen=True)
class Chosen:
    """A game, and whether it is played with the actions that the paper adds."""

    name: str
    star: bool
    missing: str = ""
    """The name of its story's file, if that is nowhere to be found."""

    @property
    def stem(self) -> str:
        """What names it in a path, and in the presets."""
        return Path(self.name).stem.lower() if is_story_path(self.name) else self.name


def find_games(names: Sequence[str]) -> list[Chosen]:
    """The games, each once; those whose stories are missing say so. Raises `UserError` for what is no game at all."""
    return list(dict.fromkeys(_find_game(name) for name in names))


def _find_game(typed: str) -> Chosen:
    name, star = typed.removesuffix(STAR), typed.endswith(STAR)
    if name.startswith("toy:"):
        from xtx.games.toy import ToyGame  # not at the top: it loads an emulator

        ToyGame(name)
        chosen = Chosen(name, star)
    elif is_story_path(name):
        find_story(name)
        chosen = Chosen(name, star)
    else:
        entry = find_entry(name)
        chosen = Chosen(entry.name, star, "" if locate(entry)[0] else entry.file)
    if star and not extra_actions(chosen.stem):
        raise UserError(f"{typed}: the paper adds no actions to {chosen.stem}; leave out the star")
    return chosen


def make_plan(spec: Spec, games: Sequence[Chosen]) -> list[PlannedRun]:
    """The runs, in the order in which they are begun: first all of the first seed, so that a sweep that is not yet
    finished can be compared already. Raises `UserError`."""
    for agent in spec.agents:
        find_agent(agent)
    for agent in spec.settings:
        if agent not in spec.agents:
            raise UserError(f"there are settings for {agent!r}, which is not one of the sweep's agents")
    ways = (False, True) if spec.stochastic == "both" else (spec.stochastic,)
    found: dict[str, PlannedRun] = {}
    for seed in dict.fromkeys(spec.seeds):
        for stochastic in ways:
            for game in games:
                for agent in dict.fromkeys(spec.agents):
                    run = _plan_run(spec, game, agent, seed, stochastic)
                    if run.folder in found:
                        raise UserError(f"two of the games would both use the folder {run.folder}; rename a story")
                    found[run.folder] = run
    return list(found.values())


def _plan_run(spec: Spec, game: Chosen, agent: str, seed: int, stochastic: bool) -> PlannedRun:
    settings = preset(agent, game.stem)
    if spec.small and isinstance(settings, QLearning):
        settings = demo(settings)
    steps, together = usual_length(agent)
    config = RunConfig(
        game=game.name,
        agent=agent,
        settings=_changed(agent, settings, spec.settings.get(agent, {})),
        seed=seed,
        steps=steps if spec.steps is None else spec.steps,
        games=together if spec.lock_step is None else spec.lock_step,
        stochastic=stochastic,
        extra_actions=game.star,
        wide_grammar=spec.wide_grammar,
        actions=spec.actions,
        log_every=spec.log_every,
    )
    whole = spec.actions == "whole"
    marks = (("star", game.star), ("stochastic", stochastic), ("wide", spec.wide_grammar), ("whole", whole))
    place = "-".join([_folder_name(game.stem), *(mark for mark, holds in marks if holds)])
    return PlannedRun(f"{place}/{_folder_name(agent)}/seed-{seed}", config)


def _folder_name(name: str) -> str:
    """A name without anything that means something in a path."""
    return re.sub(r"[^\w.+-]+", "-", name).lstrip(".") or "unnamed"


def _changed(agent: str, settings: Any, changes: Mapping[str, Any]) -> dict[str, object]:
    """The settings of an agent, with changes."""
    whole = _merge(asdict(settings), changes, f"settings.{agent}")
    try:
        changed = msgspec.convert(whole, type(settings))
        check_settings(changed)
        return asdict(changed)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserError(f"the settings of {agent} do not fit ({error}); see: xtx train --agent {agent} -h") from None


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        if name not in base:
            raise UserError(f"{where} has no {name!r}; it has: {', '.join(base) or 'nothing'}")
        below = f"{where}.{name}"
        if isinstance(base[name], Mapping) != isinstance(value, Mapping):
            raise UserError(f"{below} is {'a group of settings' if isinstance(base[name], Mapping) else 'one value'}")
        merged[name] = _merge(base[name], value, below) if isinstance(value, Mapping) else value
    return merged
