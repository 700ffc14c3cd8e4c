"""What a run needs before it begins: its game, its device and its agent, checked, from the run's config."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from xtx.agents.from_file import make_agent_label
from xtx.agents.registry import find_agent
from xtx.config.bounds import check_least, check_settings
from xtx.config.config_file import ConfigError, check_numbers, check_resumable, replace_old_settings
from xtx.config.settings import RunConfig
from xtx.core import Agent, Brief, UserError, warn
from xtx.games.catalog.known_games import find_default_game, is_story_path
from xtx.processes.cpu_count import list_usable_processors
from xtx.terminal.shell_command import format_command

if TYPE_CHECKING:
    from xtx.games.game_setup import GameSetup

_SMALL = 128
"""Width of networks under which several threads do not pay."""


@dataclass(frozen=True)
class RunResources:
    """Device, processes and threads with which a run is carried out. Nothing but device and threads changes results."""

    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""
    workers: int | None = None
    """Processes that run the games; None for one for each processor."""
    search_threads: int | None = None
    """Threads with which each of them searches; None for as many as leave no processor idle."""
    threads: int | None = None
    """Threads of torch; None for the usual number, or the number that a resumed run had."""
    look_ahead: str = "auto"
    """Whether games that wait for others search ahead: `on`, `off`, or `auto` if there are processors to spare."""
    tie_workers: str = "auto"
    atlas: Path | None = None
    """Folder of the atlas; None for the user's cache folder."""
    no_atlas: bool = False
    search: str = "zset"
    checkpoint_seconds: float = 60.0


def resolve_game_name(game: str) -> str:
    """Return a name of the game that is also valid in another working folder."""
    return str(Path(game).absolute()) if is_story_path(game) else game or find_default_game()


def check_config(config: RunConfig) -> None:
    """Raise `UserError` for numbers that no run can have."""
    try:
        check_numbers(config)
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise UserError(f"--{name.replace('_', '-')} {rest}") from None


@dataclass(frozen=True)
class RunParts:
    """The game, the agent and the device of a run."""

    game_setup: GameSetup
    agent: Agent
    device: str


def prepare(config: RunConfig, resources: RunResources, source: Path | None = None) -> RunParts:
    """Find the game and the device, and make the agent. Raises `UserError` for what is wrong with them. `source`: the
    file that the config was read from, if there is one."""
    check_least(resources, workers=0, search_threads=1, threads=1, checkpoint_seconds=0)
    try:
        check_resumable(config)
    except ConfigError as error:
        raise UserError(f"{source} {error}") from None
    # Not at the top: these take a while to load, and a wrong option should be answered at once.
    import torch

    from xtx.games.game_setup import set_up_game

    device = pick_device(resources.device)
    torch.set_num_threads(resources.threads or choose_torch_threads(config, torch.get_num_threads()))
    game_setup = set_up_game(
        config.game,
        extra_actions=config.extra_actions,
        byte_score=config.byte_score,
        actions=config.actions,
        thorough_survey=config.thorough_survey,
        atlas=resources.atlas,
        no_atlas=resources.no_atlas,
        engine=resources.search,
        threads=resources.search_threads or choose_search_threads(config.num_envs, resources.workers),
    )
    if not game_setup.has_score:
        warn(
            f"no score of {game_setup.name} is known, so every reward is 0; if you know where it is: "
            f"{format_command('games', 'add', game_setup.spec.path, '--score', 'ADDRESS_OR_REGEX')}"
        )
    return RunParts(game_setup, make_agent(config, device, game_setup.walkthrough, source=source), device)


def choose_run_folder(config: RunConfig) -> Path:
    """Return the path of a new folder in runs/, named after game, agent and seed."""
    game = Path(config.game).stem.replace(":", "-")
    name = f"{game}-{make_agent_label(config.agent)}-{config.seed}" + ("-stochastic" if config.stochastic else "")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = Path("runs") / f"{name}-{stamp}{'' if number == 1 else f'-{number}'}"
        if not folder.exists():
            return folder
    raise UserError("runs/ is full of runs of this second; give --out")


def choose_search_threads(num_envs: int, workers: int | None) -> int:
    """Return the number of threads with which each worker searches.

    All envs wait for the slowest search, so no processor should be idle, and usually less than half of the envs meet a
    new state in a step. (On 16 processors twelve threads were faster than eight in two of three measurements.)
    """
    processors = len(list_usable_processors())
    each = processors // max(1, min(num_envs, workers or processors))
    return min(12, processors, 6 * each) if processors > 1 else 1


def choose_torch_threads(config: RunConfig, processors: int) -> int:
    """Return the number of torch's threads. Small networks, as in the demo, are faster with one."""
    q = config.settings.get("q")
    small = isinstance(q, dict) and q.get("hidden", _SMALL) < _SMALL
    return 1 if small else min(8, processors)


def make_agent(
    config: RunConfig,
    device: str,
    walkthrough: tuple[str, ...],
    num_envs: int | None = None,
    source: Path | None = None,
    for_training: bool = True,
) -> Agent:
    """Make the run's agent. `source`: the file that the config was read from, for error messages. `for_training`:
    refuse settings of earlier versions with which training cannot go on."""
    kind = find_agent(config.agent)
    try:
        settings = convert_settings(config, kind, for_training)
        check_settings(settings)
    except ConfigError as error:
        raise UserError(f"{source or f'the config of {config.agent}'} {error}") from None
    except msgspec.ValidationError as error:
        raise UserError(
            f"the settings of {config.agent} do not fit ({error}); see: {format_command('agents', config.agent)}"
        ) from None
    except ValueError as error:
        raise UserError(f"{error} (see: {format_command('agents', config.agent)})") from None
    if config.agent == "walkthrough" and not walkthrough:
        raise UserError(f"no walkthrough of {config.game} is known; try --agent random")
    brief = Brief(config.num_envs, config.seed, device, walkthrough)
    try:
        agent = kind(settings, brief)
    except ValueError as error:
        raise UserError(f"the settings of {config.agent} do not fit: {error}") from error
    if not hasattr(agent, "brief") or not hasattr(agent, "settings"):
        raise UserError(f"{kind.__name__}.__init__ must call super().__init__(settings, brief)")
    return agent


def convert_settings(config: RunConfig, kind: type[Agent], for_training: bool = True) -> Any:
    """Return the agent's settings. Raises `ConfigError` for unknown keys, `msgspec.ValidationError` for wrong types."""
    return msgspec.convert(
        replace_old_settings(config.settings, kind.Settings(), for_training=for_training), kind.Settings
    )


def pick_device(wanted: str) -> str:
    """Return `cpu` or `cuda`, where torch then computes in float32. Raises `UserError` for `cuda` without a GPU."""
    # Must be there before the GPU is first used: without it, sums of matrix products have no fixed order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no GPU that torch can use here; leave out --device cuda, or see `nvidia-smi`")
    if wanted == "cpu" or not torch.cuda.is_available():
        return "cpu"
    # Unless told otherwise, cuDNN rounds the factors of a GRU's products to 10 bits: an error of 4e-4 in RC-DQN.
    torch.backends.cudnn.allow_tf32 = False
    return "cuda"
