"""At which step agents are compared with each other: averages are over equally many steps of training."""

from __future__ import annotations

from collections.abc import Sequence

from xtx.report.data.episode_digest import ROUND_STEPS
from xtx.report.data.run_groups import Group

FAR_ENOUGH = 0.1
"""Share of the longest run's steps below which another is not compared with it."""


def drop_short_groups(groups: Sequence[Group]) -> list[Group]:
    """Without those that are much shorter than others, which would cut them off where nothing is to be seen yet, and
    without those of which there are longer runs that differ in nothing else."""
    return [
        group
        for alike in _split_by_num_envs([group for group in groups if not has_longer_runs(group, groups)])
        for group in alike
        if group.steps >= max(other.steps for other in alike) * FAR_ENOUGH
    ]


def has_longer_runs(group: Group, groups: Sequence[Group]) -> bool:
    """Whether some of the groups has longer runs of the same agent and settings."""
    longer = (other for other in groups if other.label == group.agent and other.steps >= group.steps)
    return group.differs_in_length_only and any(longer)


def _split_by_num_envs(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups by the number of envs of their runs. Those of rc-dqn have one: they learn in another way, and
    are not to be cut off by others, nor others by them."""
    numbers = {group.label: group.runs[0].config.num_envs for group in groups}
    return [[g for g in groups if numbers[g.label] == num_envs] for num_envs in dict.fromkeys(numbers.values())]


def find_equal_steps(groups: Sequence[Group]) -> dict[str, int]:
    """At which step each agent's runs on a game are to be compared, by label: at their end if all are as long, else at
    the last round step that each has come to, which summaries know exactly."""
    ends = {}
    for alike in _split_by_num_envs(groups):
        shortest, longest = min(group.steps for group in alike), max(group.longest for group in alike)
        rounded = max((mark for mark in ROUND_STEPS if mark <= shortest), default=shortest)
        ends.update({group.label: shortest if shortest == longest else rounded for group in alike})
    return ends
