"""What `--actions whole` costs beside the templates: processor time of a search and number of actions, in one run.

    python benchmarks/whole_grammar.py [GAME ...] [--states N]

Without arguments: the paper's games where their stories are found. States are spread evenly along the walkthrough; each
is searched anew. Everything runs in one thread, and `whole` includes the search with templates that it begins with.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from xtx.core import UserError
from xtx.games.actions.search import RANDOM_STATES
from xtx.games.catalog.known_games import find_story
from xtx.games.emulator.frotz import Snapshot
from xtx.games.story_game import GameSpec, StoryGame

GAMES = ("zork1", "inhumane", "ludicorp", "library", "zork3", "pentari", "detective", "balances", "deephome",
         "enchanter", "dragon", "omniquest")  # fmt: skip
REPEATS = 2


@dataclass
class Result:
    """Seconds and actions over all states of a game."""

    states: int = 0
    plain: float = 0
    whole: float = 0
    plain_actions: int = 0
    whole_actions: int = 0


def best_of(run: Callable[[], object]) -> float:
    """Seconds of processor time of the fastest of some runs."""
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return min(taken)


def list_states(game: StoryGame, count: int) -> list[Snapshot]:
    """Canonical states along the walkthrough."""
    emulator, states = game.emulator, []
    emulator.reset(emulator.bindings.walkthrough_seed)
    for command in emulator.bindings.walkthrough:
        states.append(emulator.save())
        emulator.step(command)
    canonical = []
    for state in states[len(states) // (2 * count) :: max(1, len(states) // count)][:count]:
        emulator.restore(state)
        canonical.append(game.world.make_canonical(RANDOM_STATES[0]))
    return [state for state in canonical if state.wants_line]


def measure(path: str, count: int) -> Result:
    """Both searches, each by a game of its own: one for the whole dictionary notes more of the templates' commands."""
    result = Result()
    with (
        contextlib.closing(StoryGame(GameSpec(path, actions="templates"))) as plain_game,
        contextlib.closing(StoryGame(GameSpec(path, actions="whole"))) as whole_game,
    ):
        plain, whole = plain_game.search, whole_game.search
        for state in list_states(whole_game, count):
            result.states += 1
            result.plain_actions += len(plain.findings(state).actions)
            result.whole_actions += len(whole.extended(state, whole.findings(state)).actions)
            result.plain += best_of(lambda: plain.findings(state))  # noqa: B023 (called at once)
            result.whole += best_of(lambda: whole.extended(state, whole.findings(state)))  # noqa: B023
    return result


def main(names: Sequence[str], count: int) -> None:
    table = Table("game", "states", "templates, ms", "whole, ms", "times", "actions, templates", "whole", "times")
    for name in names:
        try:
            path = str(find_story(name).path)
        except UserError as error:
            print(f"left out: {error}")
            continue
        r = measure(path, count)
        n = max(1, r.states)
        table.add_row(
            name, str(r.states), f"{1000 * r.plain / n:.1f}", f"{1000 * r.whole / n:.1f}", f"{r.whole / r.plain:.2f}",
            f"{r.plain_actions / n:.1f}", f"{r.whole_actions / n:.1f}", f"{r.whole_actions / r.plain_actions:.2f}",
        )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", default=GAMES)
    parser.add_argument("--states", type=int, default=12)
    args = parser.parse_args()
    main(args.games, args.states)
