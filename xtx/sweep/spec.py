"""What a sweep is asked to do: from a TOML file of the user's, or from one of those that come with xtx."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from xtx.config import Actions
from xtx.core import UserError

READY = Path(__file__).parent / "ready"
"""The sweeps that come with xtx."""


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Games x agents x seeds. The names are those of the TOML file."""

    games: tuple[str, ...] = ()
    """Names, or paths of stories; a star behind one plays it with the actions that the paper adds."""
    agents: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    stochastic: bool | Literal["both"] = False
    """Another emulator seed in every episode; or the games in both ways."""
    steps: int | None = None
    """Game steps of each run; if not given, each agent's own."""
    lock_step: int | None = None
    """Games that a run plays at the same time; if not given, each agent's own."""
    wide_grammar: bool = False
    actions: Actions = "templates"
    """What is tried for valid actions; the same for all agents, so that they can be compared."""
    small: bool = False
    """The demo's small settings, for agents that have them."""
    log_every: int = 100
    settings: dict[str, dict[str, Any]] = {}
    """By the agent's name: what is not as in its preset."""


def ready_names() -> list[str]:
    """The sweeps that come with xtx."""
    return sorted(path.stem for path in READY.glob("*.toml"))


def read_spec(name_or_path: str) -> Spec:
    """The sweep of that name, or in that file. Raises `UserError`."""
    path = Path(name_or_path)
    if path.suffix != ".toml" and "/" not in name_or_path:
        path = READY / f"{name_or_path}.toml"
        if not path.is_file():
            names = ready_names()
            close = difflib.get_close_matches(name_or_path, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
            raise UserError(f"there is no sweep called {name_or_path!r}; {hint} (a file of your own ends in .toml)")
    try:
        with path.open("rb") as file:
            return msgspec.convert(tomllib.load(file), Spec)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name a sweep, or a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({error})") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{path} does not describe a sweep ({error}); see docs/sweeps.md") from None
