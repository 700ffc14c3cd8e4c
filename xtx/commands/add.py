"""`xtx games add`: copying stories into the user's collection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from xtx.games.catalog import user_folder
from xtx.games.collection import add_games

_VERBS = {"added": "added", "there": "was here already:", "refused": "refused:"}


@dataclass(frozen=True)
class Args:
    """Verifies story files and copies them to where xtx finds them by name."""

    path: Annotated[Positional[Path], arg(metavar="FILE_OR_FOLDER")]
    """A story file, or a folder with story files in it or below it."""
    profile: Annotated[Path | None, arg(metavar="FILE")] = None
    """For a story that Jericho does not know: its profile (see: xtx games profile --help)."""


def run(args: Args) -> int:
    """0, or 2 if nothing good was there."""
    additions = add_games(args.path, args.profile)
    for addition in additions:
        print(f"{_VERBS[addition.outcome]} {addition.detail}")
    added = sum(addition.outcome == "added" for addition in additions)
    if added:
        print(f"{added} {'story' if added == 1 else 'stories'} copied into {user_folder()}")
    return 2 if all(addition.outcome == "refused" for addition in additions) else 0
