"""`xtx games`: the table of games."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from xtx.games.catalog import known_games
from xtx.terminal.shell_command import format_command


@dataclass(frozen=True)
class Args:
    """Lists the games that xtx knows, and where their stories were found."""


def run(_: Args) -> None:
    """Prints the table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("game")
    for title in ("max", "walkthrough", "seed"):
        table.add_column(title, justify="right")
    table.add_column("paper", justify="center")
    table.add_column("found in", overflow="fold")
    here = 0
    known = known_games.list_entries()
    for entry in sorted(known, key=lambda entry: (not entry.embedded, entry.name)):
        path, notes = known_games.locate_story(entry)
        here += path is not None
        numbers = (str(entry.max_score), str(entry.walkthrough_length or "-"), str(entry.seed))
        table.add_row(
            entry.name,
            *numbers,
            "yes" if entry.paper else "",
            _describe_place(entry, path, notes),
            style="" if path else "dim",
        )
    console = Console(highlight=False)
    console.print(table)
    lines = [f"{here} of {len(known)} stories are here. Add yours: {format_command('games', 'add', 'FILE_OR_FOLDER')}"]
    lines += [
        f"XTX_GAMES names {folder}, which is no folder that can be read."
        for folder in known_games.list_absent_folders()
    ]
    console.print("", *lines, sep="\n", markup=False, soft_wrap=True)


def _describe_place(entry: known_games.Entry, path: Path | None, notes: list[str]) -> str:
    if path is None:
        return "; ".join(notes)
    if path.parent == known_games.DATA:
        return "comes with xtx"
    text = str(path.parent if path.name == entry.file else path)
    home = str(Path.home())
    return "~" + text.removeprefix(home) if text.startswith(home + "/") else text
