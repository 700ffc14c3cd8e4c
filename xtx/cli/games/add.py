"""`xtx games add`: copying stories into the user's collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from xtx.core import UserError, escape_controls
from xtx.games.catalog.known_games import find_user_folder
from xtx.games.user_collection import Addition, add_games
from xtx.terminal.shell_command import format_command

_VERBS = {"added": "added", "there": "was here already:", "refused": "refused:"}
MAX_PATTERN = 500
"""Characters of a regular expression; longer ones are mistakes."""


@dataclass(frozen=True)
class Args:
    """Verifies story files and copies them to where xtx finds them by name.

    Of a story that Jericho does not know it finds out what it can: grammar, player, score, moves, end of the game. What
    was found is printed with how sure it is, and the game is marked as unverified until `xtx games verify`.
    """

    path: Annotated[Positional[Path], arg(metavar="FILE_OR_FOLDER")]
    """A story file, plain or in a Blorb package, or a folder with story files in it or below it."""
    profile: Annotated[Path | None, arg(metavar="FILE")] = None
    """A profile of the story, as `xtx games export-profile` and `xtx games profile` write it."""
    score: Annotated[str, arg(metavar="ADDRESS|REGEX")] = ""
    """Where the score is, if it is not found: an address in memory (such as 0x2fa2), or a regular expression whose
    first group is the score in what the command `score` prints."""


def run(args: Args) -> int:
    """0, or 2 if nothing good was there."""
    address, printed = read_score_hint(args.score)
    additions = add_games(args.path, args.profile, printed, address, _print_addition)
    added = sum(addition.outcome == "added" for addition in additions)
    if added:
        print(f"{added} {'story' if added == 1 else 'stories'} copied into {find_user_folder()}")
    return 2 if all(addition.outcome == "refused" for addition in additions) else 0


def read_score_hint(text: str) -> tuple[int | None, str]:
    """The address or the regular expression that stands for the score. Raises `UserError`."""
    if not text:
        return None, ""
    if re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", text):
        return int(text, 0 if text[1:2] in ("x", "X") else 10), ""
    try:
        groups = re.compile(text).groups if len(text) <= MAX_PATTERN else 0
    except re.error as error:
        raise UserError(f"--score is no regular expression: {error}") from None
    if groups < 1:
        raise UserError("--score takes an address or a regular expression with a group for the number, as in (\\d+)")
    return None, text


def _print_addition(addition: Addition) -> None:
    print(escape_controls(f"{_VERBS[addition.outcome]} {addition.detail}"), flush=True)
    if not addition.findings:
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for finding in addition.findings:
        texts = ("  " + finding.what, finding.value, finding.sureness, finding.how)
        table.add_row(*map(Text, texts))
    Console(highlight=False).print(table)
    verify = format_command("games", "verify", addition.detail, "FILE")
    print(f"  unverified; with a transcript or a list of commands: {verify}")
