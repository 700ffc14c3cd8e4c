"""A profile of a story of which neither Jericho nor a compiler says anything, found from its file and by trying."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import msgspec

from xtx.core import UserError
from xtx.games.canonical.survey_budget import Budget, Progress
from xtx.games.catalog.bare_profile import SEED, list_file_findings, make_bare_profile
from xtx.games.catalog.finding import Finding
from xtx.games.catalog.profile import Profile
from xtx.games.catalog.story_file import Story
from xtx.games.discovery.ending import find_end
from xtx.games.discovery.player import find_player
from xtx.games.discovery.probe import Probe, find_commonest_prompt
from xtx.games.discovery.score import find_scoring
from xtx.games.discovery.walk import find_opening, walk
from xtx.games.emulator.frotz import Emulator
from xtx.games.zmachine.spoken_words import find_spoken_words
from xtx.games.zmachine.story_memory import Header, ObjectTree, read_dictionary
from xtx.games.zset.engine import Engine

BUDGET = 2_000_000_000
"""Work units that are spent on a story at most, in `survey_budget`'s terms: about ten seconds."""


def discover(story: Story, on_progress: Progress | None = None) -> Profile:
    """What can be found out about a story. Runs it, so it must be called in a process of its own. The same story always
    gives the same profile. Raises `UserError` for a story that ends by itself."""
    profile = make_bare_profile(story.content, story.md5, story.path)
    spoken = find_spoken_words(read_dictionary(story.content, Header.read(story.content)))
    profile = msgspec.structs.replace(profile, findings=list_file_findings(story.content), spoken=spoken)
    emulator = Emulator(replace(story, profile=profile))
    engine = None
    try:
        if not emulator.save(with_ram=False).wants_input:
            raise UserError(f"{story.path.name} ends before it asks for anything")
        with suppress(ValueError):
            engine = Engine.of(emulator)
        return _discover(profile, Probe(emulator, engine, Budget(BUDGET, on_progress)))
    finally:
        if engine is not None:
            engine.close()
        emulator.close()


def _discover(profile: Profile, probe: Probe) -> Profile:
    emulator, budget = probe.emulator, probe.budget
    budget.begin("going through the opening", 0.1)
    opening = find_opening(emulator, SEED, budget)
    profile = msgspec.structs.replace(profile, opening=opening, title=find_title(emulator.narration) or profile.name)
    if emulator.halted or not emulator.save(with_ram=False).wants_line:
        missing = Finding("prompt", "not found", "not found", "the story never asks for a command")
        return msgspec.structs.replace(profile, findings=(*profile.findings, missing))
    first = emulator.save()
    answers = [answer for c in ("look", "wait", "inventory") if (answer := probe.run(first, c)) is not None]
    prompt = find_commonest_prompt(answers)
    states = walk(probe, first)
    budget.begin("looking for the score", 0.45)
    scoring = find_scoring(probe, states)
    budget.begin("looking for the end of the game", 0.7)
    end, end_finding = find_end(probe, states)
    budget.begin("looking for the player", 1.0)
    tree = ObjectTree(emulator.story.content, emulator.header, profile.objects)
    player, player_finding = find_player(probe, tree, states)
    return msgspec.structs.replace(
        profile,
        max_score=scoring.max_score,
        player=player,
        score=scoring.score,
        moves=scoring.moves,
        end=end,
        printed_score=scoring.printed,
        prompt=prompt,
        findings=(*profile.findings, player_finding, *scoring.findings, end_finding),
    )


def find_title(opening: str) -> str:
    """The title in the opening text: the line above the one with kind and author."""
    lines = [line.strip() for line in opening.split("\n")]
    for above, line in pairwise(lines):
        if above and re.search(r"\binteractive\b|\bcopyright\b|\(c\)|\brelease \d|\bby [A-Z]", line, re.I):
            return above.strip("\"'* ")[:80]
    return ""
