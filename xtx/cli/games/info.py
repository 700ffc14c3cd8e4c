"""`xtx games info`: what one game is like."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from xtx.cli.games.survey import describe_layout
from xtx.games.catalog.game_statistics import RewardSteps, collect_vocabulary, count_steps_between_rewards
from xtx.games.catalog.known_games import find_extra_actions, find_story
from xtx.games.catalog.profile import Profile
from xtx.games.discovery.isolated_discovery import describe_story, make_progress
from xtx.games.zmachine.story_memory import read_dictionary
from xtx.processes.isolated_calls import PATIENCE, Report, call_in_child
from xtx.terminal.shell_command import format_command

if TYPE_CHECKING:
    from xtx.games.emulator.frotz import Emulator


@dataclass(frozen=True)
class Args:
    """Shows a game's grammar, vocabulary and rewards; plays its walkthrough to count them."""

    name: Annotated[Positional[str], arg(metavar="GAME")]
    """A game's name, or the path of a story file."""


def run(args: Args) -> None:
    """Prints the facts, one a line."""
    path = str(find_story(args.name).path)
    title, facts = call_in_child(read_facts, path, name=args.name, patience=PATIENCE)
    table = Table(title=title, box=None, show_header=False, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(name, Text(fact))
    Console(highlight=False).print(table)


def read_facts(report: Report, path: str) -> tuple[str, dict[str, str]]:
    """A title and the facts by name. Plays the walkthrough, so it is called in a process of its own."""
    from xtx.games.emulator.frotz import Emulator, Status

    story = describe_story(find_story(path), make_progress(report))
    emulator = Emulator(story)
    texts = [emulator.reset(emulator.bindings.walkthrough_seed)]
    score, rewards = emulator.score, []
    for command in emulator.bindings.walkthrough:
        if emulator.over or emulator.step(command) in (Status.LIMIT, Status.CRASHED):
            break
        rewards.append(emulator.score - score)
        score = emulator.score
        texts.append(emulator.narration)

    holes = [template.count("OBJ") for template in emulator.bindings.templates]
    steps = count_steps_between_rewards(rewards)
    facts = {
        "story": str(story.path),
        "md5": story.md5,
        "version": f"Z-machine {emulator.header.version}, {len(story.content):,} bytes",
        "templates": f"{holes.count(0)} / {holes.count(1)} / {holes.count(2)} with no, one, two objects",
        "extra actions": str(len(find_extra_actions(emulator.bindings.name))),
        "dictionary": f"{len(read_dictionary(story.content, emulator.header).words)} words",
        "objects": str(emulator.tree.count),
        "walkthrough": f"{len(rewards)} steps, seed {emulator.bindings.walkthrough_seed}, ends with {score} points",
        "vocabulary": f"{len(collect_vocabulary(texts))} distinct words printed along the walkthrough",
        "between rewards": _describe_between(steps),
        "survey": _describe_survey(emulator),
    }
    if not emulator.bindings.walkthrough:
        facts |= dict.fromkeys(("walkthrough", "vocabulary", "between rewards"), "no walkthrough is known")
    if story.profile is not None:
        facts |= _list_found(story.profile)
    title = f"{emulator.bindings.name}, {emulator.bindings.max_score} points"
    emulator.close()
    return title, facts


def _list_found(profile: Profile) -> dict[str, str]:
    """What was found out about a story, and whether that was verified."""
    verified = (
        "yes"
        if profile.verified
        else f"no; play something that you know: {format_command('games', 'verify', profile.name)}"
    )
    found = {"found: " + f.what: f"{f.value} ({f.sureness}: {f.how})" for f in profile.findings}
    return {**found, "verified": verified}


def _describe_survey(emulator: Emulator) -> str:
    """How far the survey of the story came."""
    from xtx.games.atlas.store import Atlas, find_default_path
    from xtx.games.canonical.shipped_layouts import read_shipped_layout
    from xtx.games.known_layouts import recall_layout

    shipped, folder = read_shipped_layout(emulator), find_default_path()
    if shipped is not None:
        return f"comes with xtx: {describe_layout(shipped)}"
    found = None
    if folder.is_dir():
        with contextlib.closing(Atlas(folder)) as atlas:
            found = recall_layout(emulator, atlas)
    return describe_layout(found) if found is not None else "not made yet; it takes some seconds when first played"


def _describe_between(steps: RewardSteps | None) -> str:
    if steps is None:
        return "no rewards"
    if steps.rewards == 1:
        return "one reward"
    return f"{steps.mean:.1f} steps on average, {steps.largest} at most"
