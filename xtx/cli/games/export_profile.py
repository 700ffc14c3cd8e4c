"""`xtx games export-profile`: writing what was found out about a game, to be passed on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from xtx.core import UserError
from xtx.files.atomic_writes import write_user_file
from xtx.games.catalog.known_games import find_story
from xtx.games.catalog.profile_format import encode_profile
from xtx.games.discovery.isolated_discovery import discover_in_child
from xtx.terminal.shell_command import format_command


@dataclass(frozen=True)
class Args:
    """Writes what was found out about a game, without its story, so that people can pass it on.

    With the story at hand it is read back by `xtx games add STORY --profile FILE`.
    """

    name: Annotated[Positional[str], arg(metavar="GAME")]
    """A game's name, or the path of a story file."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE")] = None
    """The file to write; GAME.profile.json in the present folder if not given."""


def run(args: Args) -> None:
    """Writes the profile."""
    story = find_story(args.name)
    if story.profile is None:
        raise UserError(f"{args.name} is a game that Jericho knows; it needs no profile")
    profile = discover_in_child(story) if story.profile.is_bare else story.profile
    out = args.out or Path(f"{profile.name}.profile.json")
    write_user_file(out, encode_profile(profile))
    state = "verified" if profile.verified else "unverified"
    print(
        f"wrote {out} ({state}); it is read back by: {format_command('games', 'add', profile.file, '--profile', out)}"
    )
