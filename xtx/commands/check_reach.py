"""`xtx games check --reach`: how many points valid actions alone can reach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from xtx.core import UserError

if TYPE_CHECKING:
    from xtx.games.game import GameSpec
    from xtx.games.reach import Reach


def print_reach(console: Console, specs: Sequence[tuple[str, GameSpec]], limit: int = 0) -> None:
    """Prints a table with a row for each game and grammar, then every step that was missed.

    Columns: points reached with valid actions, by the walkthrough as it is written, and the most there are; steps that
    were left out; steps for which several actions were played; mean number of valid actions.
    """
    table = Table("game", "grammar", "points", "script", "most", "missed", "lists", "actions", box=None, pad_edge=False)
    lines: list[str] = []
    for grammar, spec in specs:
        name, reach = _measure(console, spec, grammar, limit)
        table.add_row(
            name, grammar, str(reach.score), str(reach.walkthrough_score), str(reach.max_score),
            str(len(reach.misses)), str(reach.replaced), f"{reach.mean_actions:.1f}",
        )  # fmt: skip
        if reach.kinds:
            kinds = ", ".join(f"{kind} {count}" for kind, count in reach.kinds.items())
            lines.append(f"{name}, {grammar}, by kind: {kinds}")
        for miss in reach.misses:
            where = f"{miss.command!r} in {miss.room} ({miss.kind}), at {miss.score} points"
            lines.append(f"{name}, {grammar}, step {miss.step}: {where}")
    console.print(table)
    for line in lines:
        console.print(f"missed: {line}", markup=False)


def _measure(console: Console, spec: GameSpec, grammar: str, limit: int) -> tuple[str, Reach]:
    from xtx.games.game import StoryGame
    from xtx.games.reach import measure_reach, play_reach

    with console.status(f"reading {Path(spec.path).name}"):
        game = StoryGame(spec)
    try:
        emulator = game.emulator
        if not emulator.walkthrough:
            raise UserError(f"no walkthrough is known for {emulator.name}, so there is nothing to check")
        total = min(limit, len(emulator.walkthrough)) if limit else len(emulator.walkthrough)
        steps = []
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(f"{emulator.name}, {grammar}", total=total)
            for step in play_reach(game, limit):
                steps.append(step)
                progress.update(task, completed=step.step)
        return emulator.name, measure_reach(game, steps, limit)
    finally:
        game.close()
