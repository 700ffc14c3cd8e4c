"""`xtx games profile`: write the profile of a story from Inform's debug file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from xtx.core import UserError
from xtx.files.bounded_reads import read_bounded
from xtx.games.catalog.profile import make_profile_from_debug, read_walkthrough, write_profile
from xtx.games.catalog.story_file import MAX_STORY_BYTES, check_story
from xtx.terminal.shell_command import format_command


@dataclass(frozen=True)
class Args:
    """Makes the profile of a story of your own, from what the Inform 6 compiler says about it.

    Compile with the option -k to get gameinfo.dbg; then `xtx games add STORY --profile PROFILE`.
    """

    story: Annotated[Positional[Path], arg(metavar="STORY")]
    """The story file, compiled by Inform 6 with its library."""
    debug: Annotated[Positional[Path], arg(metavar="DEBUG")]
    """The file gameinfo.dbg that the compiler wrote with the story."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="FILE")]
    """The profile to write."""
    walkthrough: Annotated[Path | None, arg(metavar="FILE")] = None
    """A file with the commands that win the game, one a line."""
    name: Annotated[str, arg(metavar="NAME")] = ""
    """What the game is called on the command line; the story file's name if not given."""
    title: Annotated[str, arg(metavar="TEXT")] = ""
    """The game's title; the story's own if not given."""
    author: Annotated[str, arg(metavar="TEXT")] = ""
    """Its author."""
    seed: Annotated[int, arg(metavar="N")] = 1
    """The emulator seed under which the walkthrough works."""
    special: Annotated[tuple[str, ...], arg(metavar="NAME...")] = ("task_done",)
    """Variables and arrays that belong to the world; those that the story lacks are passed over."""
    no_topics: bool = False
    """Make no templates for talk: there is no one to talk to."""


def run(args: Args) -> None:
    """Writes the profile."""
    try:
        story = read_bounded(args.story, MAX_STORY_BYTES)
        check_story(story, str(args.story))
        profile = make_profile_from_debug(
            story,
            read_bounded(args.debug, MAX_STORY_BYTES),
            file=args.story.name,
            name=args.name,
            title=args.title,
            author=args.author,
            walkthrough=read_walkthrough(args.walkthrough) if args.walkthrough else (),
            seed=args.seed,
            special=args.special,
            topics=not args.no_topics,
        )
        write_profile(profile, args.out)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"no profile can be made of {args.story} and {args.debug}: {error}") from None
    print(f"wrote {args.out}; add the game with: {format_command('games', 'add', args.story, '--profile', args.out)}")
