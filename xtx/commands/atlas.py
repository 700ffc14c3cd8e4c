"""`xtx games atlas`: how much the atlas holds, and how often it helped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from xtx.games.atlas import Atlas, default_path


@dataclass(frozen=True)
class Args:
    """Shows the atlas: what was found out about the states of games, kept so that it is never found out twice."""

    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder of the atlas; if not given, in the user's cache folder."""


def run(args: Args) -> None:
    """Prints size and hit rate."""
    path = args.atlas or default_path()
    if not (path / "data.mdb").exists():
        print(f"there is no atlas at {path} yet: it is made when a game is first searched")
        return
    with Atlas(path) as atlas:
        now = atlas.statistics()
    asked = now.hits + now.misses
    rate = f"{100 * now.hits / asked:.1f} % of {asked:,} look-ups were hits" if asked else "nothing was looked up yet"
    print(f"{path}\n{now.entries:,} entries in {now.bytes / 1e6:.1f} MB on disk; {rate}")
