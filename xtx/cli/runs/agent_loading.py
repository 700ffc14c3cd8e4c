"""A run's agent, taken out of its folder to be tried, watched or asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from tyro.conf import arg

from xtx.agents.registry import find_agent
from xtx.config.bounds import check_least
from xtx.config.settings import Actions, RunConfig
from xtx.core import Agent, EpisodeRecord, State, UserError, warn
from xtx.runs.checkpoint_file import find_newest_checkpoint, read_checkpoint
from xtx.runs.line_files import read_episodes
from xtx.runs.run_config import read_config
from xtx.runs.verification import find_config_changes
from xtx.terminal.shell_command import format_command

if TYPE_CHECKING:
    from xtx.games.game_setup import GameSetup
    from xtx.games.vector.game_vector import GameVector

Which = Literal["newest", "best"]


@dataclass(frozen=True)
class PlayOptions:
    """By what means games are played and networks computed. Nothing but device and threads changes results."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks are computed; auto takes a GPU if there is one."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Processes that run the games, at least one; if not given, as many as there are processors."""
    threads: Annotated[int | None, arg(metavar="N")] = None
    """Threads of torch; if not given, as many as there are processors, at most 8."""
    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder in which found actions are kept; if not given, in the user's cache folder."""
    no_atlas: bool = False
    """Keep what is found in memory only."""
    search: Literal["zset", "jericho"] = "zset"
    """How valid actions are searched: all candidates at once by set execution, or one by one."""

    def check(self) -> None:
        """Raises `UserError` if one of the numbers cannot be."""
        check_least(self, workers=0, threads=1)


@dataclass(frozen=True)
class LoadedAgent:
    """An agent as it was at a checkpoint, and what it was trained on."""

    agent: Agent
    """Made for the number of envs of the run; it can be asked about fewer."""
    config: RunConfig
    game_setup: GameSetup
    step: int
    """Game steps that it was trained for."""
    seeds_drawn: int
    """Episodes that it had begun by then."""
    forbidden: list[tuple[str, str, bool]]
    """What the run found out that the emulator does not survive; for a vector of games."""

    def open_vector(self, num_envs: int, workers: int | None) -> GameVector:
        """Open a vector of the run's game."""
        from xtx.games.vector.game_vector import GameVector

        return GameVector(
            self.game_setup.spec, num_envs, self.game_setup.count_workers(workers), forbidden=self.forbidden
        )


def load_agent(
    folder: Path, which: Which = "newest", resources: PlayOptions | None = None, actions: Actions | None = None
) -> LoadedAgent:
    """The agent of a run: as it is at the last checkpoint, or as it was when its mean score was best. `actions`: what
    its games try for valid actions, if not what it was trained with."""
    config = read_config(folder)
    find_agent(config.agent)  # for its complaint, before anything that takes time
    found = _find_checkpoint(folder, which)
    if found is None:
        raise UserError(f"{folder} has no checkpoint yet, so there is no trained agent; wait a minute or train longer")
    path, saved = found
    state = _extract_state(path, saved)
    changes = [
        change for change in find_config_changes(path, saved, config) if change.startswith(("agent ", "settings."))
    ]
    resources = resources or PlayOptions()
    game_setup = set_up_game_of(config, resources, actions)
    # Not at the top: torch takes a while to load, and a wrong folder should be answered at once.
    import torch

    from xtx.training.prepare import make_agent, pick_device

    torch.set_num_threads(resources.threads or min(8, torch.get_num_threads()))
    device, source = pick_device(resources.device), folder / "config.json"
    agent = make_agent(config, device, game_setup.walkthrough, source=source, for_training=False)
    changed = f"{folder / 'config.json'} is not that of the checkpoint {path}: {'; '.join(changes[:3])}"
    try:
        agent.load(state["agent"])
        forbidden = [(key, action, deadly) for key, action, deadly in state["forbidden"]]
        loaded = LoadedAgent(
            agent, config, game_setup, int(state["progress"]["steps"]), int(state["seeds_drawn"]), forbidden
        )
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError) as error:
        if changes:
            raise UserError(f"{changed}; put back the config") from error
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"the state of {config.agent} in {folder} was written by another version ({what})") from error
    if changes:
        warn(f"{changed}; the agent plays with config.json as it is")
    return loaded


def set_up_game_of(config: RunConfig, resources: PlayOptions, actions: Actions | None = None) -> GameSetup:
    """The run's game."""
    from xtx.games.game_setup import set_up_game

    if config.wide_grammar:
        warn("the run had `--wide-grammar`, which no longer exists; its game offers the actions of the templates here")
    return set_up_game(
        config.game,
        extra_actions=config.extra_actions,
        byte_score=config.byte_score,
        actions=actions or config.actions,
        thorough_survey=config.thorough_survey,
        atlas=resources.atlas,
        no_atlas=resources.no_atlas,
        engine=resources.search,
    )


def read_state(folder: Path, which: Which = "newest") -> State | None:
    """The state of a run at a checkpoint; None if there is none yet."""
    found = _find_checkpoint(folder, which)
    return None if found is None else _extract_state(*found)


def _extract_state(path: Path, saved: State) -> State:
    """The state in a checkpoint. Raises `UserError` if there is none."""
    if not isinstance(state := saved.get("state"), dict):
        raise UserError(f"{path} is not the checkpoint of a run; move it away")
    return state


def _find_checkpoint(folder: Path, which: Which) -> tuple[Path, State] | None:
    """Where a checkpoint is, and what it holds; None if there is none yet."""
    if which == "newest":
        newest, saved = find_newest_checkpoint(folder)
        return None if newest is None or saved is None else (newest, saved)
    path = folder / "checkpoints" / "best"
    try:
        return path, read_checkpoint(path)
    except FileNotFoundError:
        raise UserError(f"{folder} has no best checkpoint before 100 episodes; try --checkpoint newest") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); try --checkpoint newest") from None


def read_records(folder: Path) -> list[EpisodeRecord]:
    """The run's episodes whose actions are known: each was better than all before it, so the last is the best."""
    read_config(folder)  # for its complaint about a folder that is no run
    try:
        records = [episode for episode in read_episodes(folder) if episode.record and episode.actions]
    except msgspec.MsgspecError as error:
        raise UserError(f"{folder / 'episodes.jsonl'} is damaged ({error})") from None
    except OSError as error:
        raise UserError(f"{folder / 'episodes.jsonl'} cannot be read ({error.strerror})") from None
    if not records:
        raise UserError(f"no episode of {folder} has ended yet; train longer: {format_command('resume', folder)}")
    return records
