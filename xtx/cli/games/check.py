"""`xtx games check`: are the actions that are needed among the valid ones?"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from xtx.cli.games.check_table import count_steps_to_check, print_rows
from xtx.config.bounds import check_least
from xtx.config.settings import Actions
from xtx.core import UserError
from xtx.files.user_paths import check_output_path, open_output
from xtx.games.atlas.store import find_default_path
from xtx.games.catalog.known_games import find_story
from xtx.terminal.shell_command import format_command

if TYPE_CHECKING:
    from xtx.games.story_game import GameSpec
    from xtx.games.walkthroughs.coverage import Checked
    from xtx.processes.isolated_calls import Report


@dataclass(frozen=True)
class Args:
    """Replays walkthroughs and reports the share of their world-changing steps that some valid action reproduces.

    Every miss is listed. Jericho counts every object moved and attribute written, even if nothing is different
    afterwards, and nothing else: the last column is about the steps that change the world by that measure, reproduced
    by it or by ours. A first check searches every state anew and can take minutes; the atlas keeps what it found.
    """

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="GAME...")]
    """Names of games, or paths of story files."""
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
    actions: Actions = "whole"
    """What is tried for valid actions: the grammar's templates with the things in sight, or the whole dictionary
    too."""
    compare: bool = False
    """Check each game plainly, with extra actions, and with the whole dictionary."""
    reach: bool = False
    """Play each walkthrough with valid actions only, and report the points that are reached so. A step that is not
    offered is replaced by up to four valid actions that lead to the same world, or left out."""
    write_extra: Path | None = None
    """Write the walkthrough's commands that were missed to this file, as extra actions by game."""
    search: Literal["zset", "jericho"] = "zset"
    """How candidates are tried: all at once by set execution, or one by one. The verdicts are the same."""
    limit: int = 0
    """Check only so many steps of each walkthrough; 0 means all."""
    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder in which found actions are kept; if not given, in the user's cache folder."""
    no_atlas: bool = False
    """Keep what is found in memory only."""


def run(args: Args) -> int:
    """Prints a row for each game as it comes, then the misses; 2 if a game could not be checked, else 0."""
    if not args.names:
        raise UserError(f"name the games to check, as in: {format_command('games', 'check', 'lowwater')}")
    check_least(args, limit=0)
    if args.reach and args.write_extra is not None:
        raise UserError("--write-extra belongs to the check without --reach: leave one of the two out")
    if args.write_extra is not None:
        check_output_path(args.write_extra, "--write-extra")
    stories = [find_story(name) for name in args.names]
    console = Console(highlight=False)
    variants = [pair for story in stories for pair in _list_variants(args, str(story.path)).items()]
    if args.reach:
        from xtx.cli.games.check_reach import print_reach

        return print_reach(console, variants, args.limit)
    lines: list[str] = []
    missed: dict[str, list[str]] = {}

    def show(name: str, grammar: str, found: list[Checked]) -> list[str]:
        checked = [c for c in found if c.changes]
        loosely = [c.loosely or c.found for c in found if c.loosely is not None]
        misses = [c for c in checked if not c.found]
        counts = [c.actions for c in checked] or [0]
        share = 100 * (1 - len(misses) / max(len(checked), 1))
        lines.extend(f"{name}, {grammar}, step {c.step}: {c.command!r} in {c.room}" for c in misses)
        missed.setdefault(name, list(dict.fromkeys(c.command.lower() for c in misses)))
        return [
            str(len(checked)), f"{share:.1f} %", f"{sum(counts) / len(counts):.1f} / {max(counts)}",
            f"{100 * sum(loosely) / max(len(loosely), 1):.1f} % of {len(loosely)}",
        ]  # fmt: skip

    heads = ("changing steps", "reproduced", "actions mean / most", "by Jericho's measure")
    status = print_rows(console, heads, variants, check_game, args.limit, show)
    for line in lines:
        console.print(f"missed: {line}", markup=False)
    if args.write_extra is not None:
        with open_output(args.write_extra, "--write-extra") as file:
            file.write(json.dumps(missed, indent=1) + "\n")
        console.print(f"wrote {sum(map(len, missed.values()))} actions to {args.write_extra}", markup=False)
    return status


def _list_variants(args: Args, path: str) -> dict[str, GameSpec]:
    """The grammars with which a game is to be checked, by name; the first one's misses can be written."""
    from xtx.games.story_game import GameSpec

    folder = None if args.no_atlas else str(args.atlas or find_default_path())
    plain = GameSpec(path, engine=args.search, atlas=folder)
    if args.compare:
        return {
            "templates": plain,
            "with extra actions": replace(plain, extra_actions=True),
            "whole": replace(plain, actions="whole"),
        }
    spec = replace(plain, extra_actions=args.extra_actions, actions=args.actions)
    if not args.extra_actions:
        return {args.actions: spec}
    return {"with extra actions" if args.actions == "templates" else "whole, with extra actions": spec}


def check_game(report: Report, spec: GameSpec, limit: int) -> tuple[str, list[Checked]]:
    """The name of a game, and every step of its walkthrough that changes the world. Called in a process of its own."""
    from xtx.games.story_game import StoryGame
    from xtx.games.walkthroughs.coverage import check_walkthrough

    with contextlib.closing(StoryGame(spec)) as game:
        total = count_steps_to_check(game, limit)
        found = []
        for number, checked in enumerate(check_walkthrough(game), 1):
            if checked is not None:
                found.append(checked)
            report(number, total)
            if number == total:
                break
        return game.emulator.bindings.name, found
