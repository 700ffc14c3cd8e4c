"""Reads the TOML file that describes a sweep: the user's own, or one of those that come with xtx."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from xtx.config.settings import Actions
from xtx.core import UserError

READY = Path(__file__).parent / "ready"
"""Folder of the sweeps that come with xtx."""


class SweepSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The description of a sweep: games x agents x seeds. Fields have the names of the TOML file."""

    games: tuple[str, ...] = ()
    """Names of games, or paths of stories; a star behind one adds the paper's actions to it."""
    agents: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    stochastic: bool | Literal["both"] = False
    """Whether every episode has another emulator seed; `both` makes runs of either kind."""
    steps: int | None = None
    """Game steps of each run; None for the agent's default."""
    num_envs: int | None = None
    """Envs of each run; None for the agent's default. Earlier versions called it `lock_step`."""
    actions: Actions = "templates"
    """What is tried for valid actions; the same for all agents, so that they can be compared."""
    small: bool = False
    """Whether agents that have them use the demo's small settings."""
    log_every: int = 100
    settings: dict[str, dict[str, Any]] = {}
    """By agent, the settings that differ from its preset."""


def list_ready_sweeps() -> list[str]:
    """Return the names of the sweeps that come with xtx."""
    return sorted(path.stem for path in READY.glob("*.toml"))


def read_spec(name_or_path: str) -> SweepSpec:
    """Read the sweep of a name that comes with xtx, or a TOML file. Raises `UserError`."""
    path = Path(name_or_path)
    if path.suffix != ".toml" and "/" not in name_or_path:
        path = READY / f"{name_or_path}.toml"
        if not path.is_file():
            names = list_ready_sweeps()
            close = difflib.get_close_matches(name_or_path, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
            raise UserError(f"there is no sweep called {name_or_path!r}; {hint} (a file of your own ends in .toml)")
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
        if "lock_step" in found:  # the name of earlier versions
            if "num_envs" in found:
                raise UserError(f"{path} has num_envs and its earlier name lock_step; delete lock_step")
            found["num_envs"] = found.pop("lock_step")
        return msgspec.convert(found, SweepSpec)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name a sweep, or a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({error})") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{path} does not describe a sweep ({error}); see docs/sweeps.md") from None
