"""The table of `xtx games check`: each game is checked in a process of its own, and its row is printed as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from xtx.core import UserError
from xtx.processes.isolated_calls import ChildCall, Failed, Finished, Progressed, run_in_children

if TYPE_CHECKING:
    from xtx.games.story_game import GameSpec, StoryGame

_GAP = "  "
_PATIENCE = 300.0
"""Seconds without any progress after which a check is given up: a survey takes some tens on a slow machine."""


def print_rows(
    console: Console,
    heads: Sequence[str],
    variants: Sequence[tuple[str, GameSpec]],
    check: Callable[..., Any],
    limit: int,
    show: Callable[[str, str, Any], list[str]],
) -> int:
    """Calls `check(report, spec, limit)` for each grammar and game, as many at once as there are processors, and prints
    what `show(name, grammar, found)` makes of each result, under `heads`. A game whose process dies has a row that says
    so. Returns the exit status: 2 if there was any. If there is but one game, its error is raised."""
    names = [Path(spec.path).stem for _, spec in variants]
    widths = [max(map(len, ("game", *names))), max(len(grammar) for grammar in ("grammar", *dict(variants)))]
    widths += [len(head) for head in heads]

    def format_line(*cells: str) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        return _GAP.join([*padded, *cells[len(widths) :]]).rstrip()

    def write(text: str) -> None:
        progress.console.print(text, markup=False, soft_wrap=True)

    failed = 0
    calls = [ChildCall(check, (spec, limit), name) for (_, spec), name in zip(variants, names, strict=True)]
    with Progress(console=console, transient=True) as progress:
        tasks = [
            progress.add_task(f"{name}, {variants[i][0]}", total=None, visible=False) for i, name in enumerate(names)
        ]
        head = format_line("game", "grammar", *heads)
        for event in run_in_children(calls, patience=_PATIENCE):
            task, grammar = tasks[event.number], variants[event.number][0]
            if isinstance(event, Progressed):
                progress.update(task, completed=event.done, total=event.total, visible=True)
                continue
            progress.update(task, visible=False)
            if isinstance(event, Failed) and len(variants) == 1:
                raise event.error
            if head:
                write(head)
                head = ""
            if isinstance(event, Finished):
                name, found = event.result
                write(format_line(name, grammar, *show(name, grammar, found)))
            else:
                failed += 1
                write(f"{format_line(names[event.number], grammar)}{_GAP}{event.error}")
    return 2 if failed else 0


def count_steps_to_check(game: StoryGame, limit: int) -> int:
    """How many steps of a walkthrough are checked; a `limit` of 0 means all. Raises `UserError` without any."""
    bindings = game.emulator.bindings
    if not bindings.walkthrough:
        raise UserError(f"no walkthrough is known for {bindings.name}, so there is nothing to check")
    return min(limit or len(bindings.walkthrough), len(bindings.walkthrough))
