"""`xtx games verify`: playing something that a user knows, to see whether what was found of a game is true."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from tyro.conf import Positional, arg

from xtx.core import UserError
from xtx.files.atomic_writes import write_user_file
from xtx.files.bounded_reads import BadFileError, read_bounded
from xtx.games.catalog.known_games import find_story, find_user_folder
from xtx.games.catalog.profile_format import encode_profile
from xtx.games.discovery.profile_check import Verification, verify_file
from xtx.games.discovery.transcript import read_turns
from xtx.games.zmachine.typed_input import find_interpreter_word
from xtx.processes.isolated_calls import PATIENCE, call_in_child
from xtx.terminal.shell_command import format_command

MAX_BYTES = 16 << 20
"""Size of a transcript; that of a long game has a megabyte."""
MAX_TURNS = 20_000


@dataclass(frozen=True)
class Args:
    """Plays a transcript or a list of commands in a game of which Jericho knows nothing.

    Compares the score that was found with the one that the story prints, and a transcript's text with what is printed.
    If all of it fits, the game is marked as verified, and the commands become its walkthrough.
    """

    name: Annotated[Positional[str], arg(metavar="GAME")]
    """A game's name, as `xtx games` lists it."""
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """A transcript, with commands behind a prompt (>), or a list with one command a line."""


def run(args: Args) -> int:
    """0 if it fits, else 1."""
    story = find_story(args.name)
    if story.profile is None:
        raise UserError(f"{args.name} is a game that Jericho knows; there is nothing to verify")
    try:
        content = read_bounded(args.file, MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"{args.file}: {error.strerror}") from None
    except BadFileError as error:
        raise UserError(f"{args.file}: {error}") from None
    turns = [turn for turn in read_turns(content) if not find_interpreter_word(turn.command)]
    if not turns or len(turns) > MAX_TURNS:
        raise UserError(f"{args.file} holds {len(turns)} commands; from 1 to {MAX_TURNS:,} can be played")
    commands, texts = [turn.command for turn in turns], [turn.text for turn in turns]
    found: Verification = call_in_child(
        verify_file, str(story.path.absolute()), commands, texts, name=args.name, patience=PATIENCE
    )
    for line in describe_verification(found):
        print(line)
    if not found.fits:
        print("not marked as verified")
        return 1
    if not (found.score_checks or found.won or any(texts)):
        print("not marked as verified: nothing could be compared; give a transcript, or commands that win")
        return 1
    companion = story.path.with_suffix(".json")
    if companion.parent != find_user_folder() or not companion.is_file():
        print(f"to keep this: {format_command('games', 'add', story.path)}, then verify the game by its name")
        return 0
    profile = msgspec.structs.replace(
        story.profile,
        verified=True,
        walkthrough=tuple(commands[: found.steps]),
        max_score=max(story.profile.max_score, found.best_score),
    )
    write_user_file(companion, encode_profile(profile))
    print(f"{profile.name} is marked as verified; the commands are its walkthrough now")
    return 0


def describe_verification(found: Verification) -> list[str]:
    """What came of it, a sentence a line."""
    end = "won" if found.won else "over" if found.over else "going on"
    lines = [f"{found.steps} commands: {found.final_score} points, {found.best_score} at best; the game is {end}"]
    if found.score_checks:
        right = found.score_checks - found.score_mistakes
        lines.append(f"score: {right} of {found.score_checks} times it was the one that the story printed")
    else:
        lines.append("score: the story printed none that could be compared")
    if found.likeness < 1:
        lines.append(f"text: {found.likeness:.0%} of the transcript's words were printed")
    if found.stopped_at:
        lines.append(f"the story took no more commands from number {found.stopped_at} on")
    return lines
