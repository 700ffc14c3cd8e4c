"""`xtx games check --reach`: how many points valid actions alone can reach."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from xtx.cli.games.check_table import count_steps_to_check, print_rows

if TYPE_CHECKING:
    from xtx.games.story_game import GameSpec
    from xtx.games.walkthroughs.reach import Reach
    from xtx.processes.isolated_calls import Report


def print_reach(console: Console, specs: Sequence[tuple[str, GameSpec]], limit: int = 0) -> int:
    """Prints a row for each game and grammar as it comes, then every step that was missed; returns the exit status.

    Columns: points reached with valid actions, by the walkthrough as it is written, and the most there are; steps that
    were left out; steps for which several actions were played; mean number of valid actions.
    """
    lines: list[str] = []

    def show(name: str, grammar: str, reach: Reach) -> list[str]:
        if reach.kinds:
            kinds = ", ".join(f"{kind} {count}" for kind, count in reach.kinds.items())
            lines.append(f"{name}, {grammar}, by kind: {kinds}")
        for miss in reach.misses:
            where = f"{miss.command!r} in {miss.room} ({miss.kind}), at {miss.score} points, {miss.lost} lost"
            lines.append(f"{name}, {grammar}, step {miss.step}: {where}")
        return [
            str(reach.score), str(reach.walkthrough_score), str(reach.max_score), str(len(reach.misses)),
            str(reach.replaced), f"{reach.mean_actions:.1f}",
        ]  # fmt: skip

    heads = ("points", "script", "most", "missed", "lists", "actions")
    status = print_rows(console, heads, specs, measure_game, limit, show)
    for line in lines:
        console.print(f"missed: {line}", markup=False)
    return status


def measure_game(report: Report, spec: GameSpec, limit: int) -> tuple[str, Reach]:
    """The name of a game, and what valid actions alone reach in it. Called in a process of its own."""
    from xtx.games.story_game import StoryGame
    from xtx.games.walkthroughs.reach import measure_reach, play_reach

    with contextlib.closing(StoryGame(spec)) as game:
        total = count_steps_to_check(game, limit)
        steps = []
        for step in play_reach(game, limit):
            steps.append(step)
            report(step.step, total)
        return game.emulator.bindings.name, measure_reach(game, steps, limit)
