"""Which runs may be averaged: the same game, agent and settings, and nothing but the seed different."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from xtx.config.settings import RunConfig
from xtx.report.data.agent_names import shorten_agents
from xtx.report.data.game_facts import GameFacts
from xtx.report.data.load_runs import RunData, Unreadable
from xtx.report.data.paper_settings import find_paper_settings, find_paper_steps, list_choices, list_deviations
from xtx.report.data.paper_tables import PaperFigures, read_paper
from xtx.report.data.statistics import Floats, read_curve
from xtx.report.number_format import format_amount, format_number

FIRST_AGENTS = ("xtx", "xtx-uniform", "drrn", "inv-dy", "rc-dqn", "random")
"""Agents in the order of their colours, so that one keeps its colour from report to report."""
NUM_COLOURS = 12
"""Colours of a page; plots take an agent's number modulo this."""
FindFacts = Callable[[RunConfig], GameFacts | None]


@dataclass(frozen=True)
class Variant:
    """A game and how it is played."""

    game: str
    """Its name."""
    row: str
    """What the paper calls it: with a star if it is played with added actions."""
    stochastic: bool
    maximum: float | None
    facts: GameFacts | None = field(compare=False, default=None)
    actions: str = "templates"
    """What was tried for valid actions."""

    @property
    def is_whole(self) -> bool:
        """Whether the whole dictionary was tried, which is more than the paper's agents had."""
        return self.actions == "whole"

    @property
    def is_in_paper(self) -> bool:
        """Whether the paper has the game, however it is played."""
        return read_paper().find_maximum(self.game) is not None

    @property
    def title(self) -> str:
        """The name in tables and headings."""
        ways = (("stochastic", self.stochastic), ("whole dictionary", self.is_whole))
        how = [word for word, holds in ways if holds]
        return self.row + (f" ({', '.join(how)})" if how else "")

    @property
    def published(self) -> Mapping[str, PaperFigures]:
        """The paper's figures of the game if it is played like that, by agent."""
        row = read_paper().choose_table(self.stochastic).rows.get(self.row)
        return row.agents if row and not self.is_whole else {}


@dataclass(frozen=True, eq=False)
class Group:
    """One agent on one game: its seeds."""

    variant: Variant
    agent: str
    """The agent's name; of a class in a file, without the folder."""
    label: str
    """The same, with the settings in which it differs from others of that name on the same game and from the paper."""
    runs: Sequence[RunData]
    """Those that its figures come from."""
    left_out: Sequence[RunData]
    notes: Sequence[str]

    @cached_property
    def avg(self) -> Floats:
        """[seeds] mean final score of the last 100 episodes."""
        return np.array([run.digest.avg for run in self.runs])

    @cached_property
    def avg_by_env(self) -> Floats:
        """[seeds] the same of the last 100 of each of the envs stepped together."""
        return np.array([run.digest.avg_by_env for run in self.runs])

    @cached_property
    def max(self) -> Floats:
        """[seeds] best final score."""
        return np.array([run.digest.max for run in self.runs])

    @property
    def steps(self) -> int:
        """Steps that all its runs have come to."""
        return min(map(_count_steps, self.runs))

    def compute_avg_at(self, steps: int) -> Floats:
        """[seeds] `avg` as it was after so many steps; 0 before the first episode has ended."""
        return np.array([_read_at(run, steps, run.digest.avg, run.digest.curve.mean) for run in self.runs])

    def compute_max_at(self, steps: int) -> Floats:
        """[seeds] `max` as it was after so many steps; 0 before the first episode has ended."""
        return np.array([_read_at(run, steps, run.digest.max, run.digest.curve.best) for run in self.runs])

    def compute_area_at(self, steps: int) -> Floats:
        """[seeds] area under the learning curve up to that step."""
        return np.array([run.digest.compute_area_at(steps, run.reached) for run in self.runs])

    @property
    def differs_in_length_only(self) -> bool:
        """Whether its runs differ in nothing but their length from those that have the agent's own name."""
        return self.label == f"{self.agent} ({_describe_choice('steps', self.runs[0].config.steps)})"

    @property
    def duplicates(self) -> list[RunData]:
        """Runs that are left out because their seed is counted already."""
        counted = {run.config.seed for run in self.runs}
        return [run for run in self.left_out if run.config.seed in counted and run.scores.size]

    @property
    def longest(self) -> int:
        """Steps that the furthest of its runs has come to."""
        return max(map(_count_steps, self.runs))

    @property
    def finished(self) -> bool:
        """Whether all its runs are."""
        return all(run.finished for run in self.runs)

    @property
    def has_fewer_steps(self) -> bool:
        """Whether its runs are shorter than the paper's; not on a game that the paper does not have."""
        return self.variant.is_in_paper and self.steps < find_paper_steps(self.agent)

    @cached_property
    def other_settings(self) -> list[str]:
        """Where its settings are not the paper's."""
        return list_deviations(self.runs[0].config, self.variant.game)


def _count_steps(run: RunData) -> int:
    return run.config.steps if run.finished else run.reached


def _read_at(run: RunData, steps: int, end: float, values: Floats) -> float:
    """A figure of a run as it was after so many steps, from its curve; `end`: the figure at the end of the run."""
    if _count_steps(run) <= steps:
        return end
    return float(np.nan_to_num(read_curve(run.digest.curve.steps, values, [steps])[0]))


@dataclass(frozen=True)
class Board:
    """All that was read, sorted."""

    groups: Sequence[Group]
    runs: Sequence[RunData]
    unreadable: Sequence[Unreadable]
    notes: Sequence[str]

    @property
    def labels(self) -> list[str]:
        """Agents, in the order in which they are shown."""
        return list(dict.fromkeys(group.label for group in sorted(self.groups, key=_rank_agent)))

    @cached_property
    def colours(self) -> dict[str, int]:
        """The number of each agent's colour: the same in every report for `FIRST_AGENTS`, the next ones for others."""
        agents = {group.label: group.agent for group in self.groups}
        taken: dict[str, int] = {}
        free = len(FIRST_AGENTS)
        for label in self.labels:
            own = agents[label] in FIRST_AGENTS and FIRST_AGENTS.index(agents[label]) not in taken.values()
            taken[label] = FIRST_AGENTS.index(agents[label]) if own else free
            if not own:
                free += 1
                # With more agents than colours, the first ones keep theirs to themselves; shapes tell the rest apart.
                free += len(FIRST_AGENTS) if free % NUM_COLOURS == 0 else 0
        return taken

    @property
    def variants(self) -> list[Variant]:
        """Games, in the paper's order and then by name."""
        order = list(read_paper().deterministic.rows)

        def place(variant: Variant) -> tuple[bool, int, str]:
            known = variant.row in order
            return variant.stochastic, order.index(variant.row) if known else len(order), variant.title

        return sorted(dict.fromkeys(group.variant for group in self.groups), key=place)

    def list_groups(self, variant: Variant) -> list[Group]:
        """The groups of one game, in the order of their agents."""
        return sorted((group for group in self.groups if group.variant == variant), key=_rank_agent)


def _rank_agent(group: Group) -> tuple[int, str, str]:
    known = group.agent in FIRST_AGENTS
    return FIRST_AGENTS.index(group.agent) if known else len(FIRST_AGENTS), group.agent, group.label


def group_runs(runs: Sequence[RunData], unreadable: Sequence[Unreadable], find_facts: FindFacts) -> Board:
    """The runs in groups that may be averaged."""
    runs, twice = _drop_repeated(runs)
    facts = _find_all_facts(runs, find_facts)
    variants = {run.folder: make_variant(run.config, facts[run.folder]) for run in runs}
    names = shorten_agents(run.config.agent for run in runs)
    labels = _make_labels(runs, variants, names)
    sorted_runs: dict[tuple[Variant, str, str], list[RunData]] = {}
    for run in runs:
        key = (variants[run.folder], names[run.config.agent], labels[run.folder])
        sorted_runs.setdefault(key, []).append(run)
    groups = [_make_group(*key, members) for key, members in sorted_runs.items()]
    groups = [group for group in groups if group.runs]
    notes = [
        *_describe_summaries(runs),
        *twice,
        *(note for group in groups for note in group.notes),
        *_compare_games(groups),
    ]
    silent = [run for run in runs if not run.scores.size]
    notes += [f"{run.folder}: no episode has ended yet, so it has no figures" for run in silent]
    for variant in dict.fromkeys(group.variant for group in groups):
        if variant.maximum is None:
            notes.append(f"{variant.title}: its maximum is not known, so it is in no average over games")
    return Board(groups, runs, unreadable, notes)


def _describe_summaries(runs: Sequence[RunData]) -> list[str]:
    """What is lacking because there are only summaries of runs."""
    of = [run for run in runs if run.is_summary]
    which = "all runs" if len(of) == len(runs) else f"{len(of)} of {format_amount(len(runs), 'run')}"
    said = f"read from summaries: {which}; these hold no rooms, so no map, and thinner curves; figures are exact"
    return [said] if of else []


def _drop_repeated(runs: Sequence[RunData]) -> tuple[list[RunData], list[str]]:
    """Every run once, where it is also there as a summary: what came further, or else the folder; and what was said
    twice, in words. Copies of folders are left alone: of these, a group counts one."""
    kept: list[RunData] = []
    notes = []
    for run in sorted(runs, key=lambda run: (-run.reached, run.is_summary)):
        same = next((other for other in kept if (run.is_summary or other.is_summary) and is_same_run(run, other)), None)
        if same is None:
            kept.append(run)
        else:
            notes.append(f"{run.folder} is the same run as {same.folder}, which is counted")
    return [run for run in runs if run in kept], notes


def is_same_run(run: RunData, other: RunData) -> bool:
    """Whether they are one run: all that was asked for, and the moment at which it began."""
    if run.began is None or run.began != other.began:
        return False
    mine, others = (replace(each.config, game=find_game_name(each.config.game)) for each in (run, other))
    return mine == others


def _find_all_facts(runs: Sequence[RunData], find_facts: FindFacts) -> dict[Path, GameFacts | None]:
    """What is known of each run's game; what one run's summary holds is used for all runs of the game."""
    found = {run.folder: run.facts or find_facts(run.config) for run in runs}
    known = {facts.name: facts for facts in found.values() if facts}
    return {run.folder: found[run.folder] or known.get(find_game_name(run.config.game)) for run in runs}


def find_game_name(game: str) -> str:
    """The name in a run's settings, which may also hold a story's path, or nothing for the embedded adventure."""
    return game if game.startswith("toy:") else Path(game).stem.lower() or "lowwater"


def make_variant(config: RunConfig, facts: GameFacts | None) -> Variant:
    """What a run played."""
    name = facts.name if facts else find_game_name(config.game)
    paper = read_paper()
    maximum = facts.maximum if facts else paper.find_maximum(name)
    row = paper.find_row_name(name, config.extra_actions)
    actions = "templates" if config.game.startswith("toy:") else config.actions  # a toy world has no dictionary
    return Variant(name, row, config.stochastic, maximum, facts, actions)


def _make_labels(runs: Sequence[RunData], variants: dict[Path, Variant], names: dict[str, str]) -> dict[Path, str]:
    """The name of each run's agent, told apart by the settings that differ among its runs of one game; those of the
    paper need no telling, and lengths only on the game where they differ. Where lengths differ and none is the
    paper's, the longest need no telling either, so that every game has a row under the agent's own name."""
    choices = {run.folder: list_choices(run.config) for run in runs}
    seen: dict[tuple[str, Variant, str], set[str]] = {}
    for run in runs:
        for name, value in choices[run.folder].items():
            seen.setdefault((run.config.agent, variants[run.folder], name), set()).add(repr(value))
    varying: dict[str, list[str]] = {}
    for (agent, _, name), values in seen.items():
        if len(values) > 1 and name not in varying.setdefault(agent, []):
            varying[agent].append(name)
    labels: dict[Path, str] = {}
    only_steps: dict[tuple[str, Variant], list[RunData]] = {}
    for run in runs:
        agent, variant, chosen = run.config.agent, variants[run.folder], choices[run.folder]
        usual = {
            **find_paper_settings(agent, variant.game),
            "steps": read_paper().steps.get(agent),
            "byte_score": False,
            "wide_grammar": False,
        }
        told = [
            _describe_choice(name, chosen.get(name))
            for name in varying.get(agent, [])
            if (name not in usual or chosen.get(name) != usual[name])
            and (name != "steps" or len(seen[agent, variant, name]) > 1)
        ]
        labels[run.folder] = " ".join([names[agent], *([f"({', '.join(told)})"] if told else [])])
        if told == [_describe_choice("steps", run.config.steps)]:
            only_steps.setdefault((agent, variant), []).append(run)
    plain = {(run.config.agent, variants[run.folder]) for run in runs if labels[run.folder] == names[run.config.agent]}
    for (agent, variant), members in only_steps.items():
        with_figures = [run for run in members if run.scores.size]
        if with_figures and (agent, variant) not in plain:
            furthest = labels[max(with_figures, key=_count_steps).folder]
            labels |= {run.folder: names[agent] for run in members if labels[run.folder] == furthest}
    return labels


def _describe_choice(name: str, value: object) -> str:
    return f"{value:,} steps" if name == "steps" else f"{name}={value}"


def _make_group(variant: Variant, agent: str, label: str, members: list[RunData]) -> Group:
    """Figures come from finished runs; while none is finished, from all, and it is said so."""
    where, notes = f"{label} on {variant.title}", []
    able = sorted((run for run in members if run.scores.size), key=lambda run: (run.config.seed, -run.reached))
    once: dict[int, RunData] = {}
    for run in able:
        if run.config.seed in once:
            avg, counted_avg = format_number(run.digest.avg), format_number(once[run.config.seed].digest.avg)
            notes.append(
                f"{where}: seed {run.config.seed} is there more than once; {run.folder} is not counted (its Avg is "
                f"{avg}, that of the one that counts {counted_avg})"
            )
        once.setdefault(run.config.seed, run)
    counted = list(once.values())
    finished = [run for run in counted if run.finished]
    if finished and len(finished) < len(counted):
        notes.append(f"{where}: {format_amount(len(counted) - len(finished), 'unfinished run')} not counted")
    elif counted and not finished:
        notes.append(f"{where}: no run is finished; the figures are of where they are now")
    used = finished or counted
    if len(used) == 1:
        notes.append(f"{where}: one seed only, so nothing is known of its spread")
    if changed := [run for run in used if run.changes]:
        notes.append(
            f"{where}: {format_amount(len(changed), 'run')} changed from outside while under way, as its notes say"
        )
    versions = {_describe_version(run) for run in used if run.starts}
    if len(versions) > 1:
        notes.append(f"{where}: its runs were made by different versions ({'; '.join(sorted(versions))})")
    return Group(variant, agent, label, used, [run for run in members if run not in used], notes)


def _describe_version(run: RunData) -> str:
    newest = run.starts[-1]
    packages = newest.get("packages") or {}
    names = [f"{name} {packages[name]}" for name in ("xtx", "torch") if name in packages]
    return ", ".join([*names, *([f"git {newest['git']}"] if newest.get("git") else [])])


def _compare_games(groups: Sequence[Group]) -> list[str]:
    """Settings that differ between an agent's games, other than those that the paper changes from game to game."""
    notes = []
    for label in dict.fromkeys(group.label for group in groups):
        values: dict[str, set[str]] = {}
        for group in groups:
            if group.label == label:
                usual = find_paper_settings(group.agent, group.variant.game)
                for name, value in list_choices(group.runs[0].config).items():
                    own = name == "inverse.alpha1" and usual.get(name) == value
                    values.setdefault(name, set()).add("the paper's" if own else repr(value))
        differing = [f"{name} ({', '.join(sorted(found))})" for name, found in values.items() if len(found) > 1]
        if differing:
            notes.append(f"{label}: its settings are not the same on all games: {', '.join(differing)}")
    return notes
