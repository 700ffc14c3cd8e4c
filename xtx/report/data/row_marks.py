"""Marks beside a row's figures: in what its runs are not those of the paper, or of the present program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from xtx.report.data.load_runs import RunData
from xtx.report.data.paper_settings import find_paper_steps
from xtx.report.data.run_groups import Group
from xtx.runs.versions import list_used_versions


@dataclass(frozen=True)
class Mark:
    """A sign, and what it says of one row."""

    sign: str
    words: str


FEWER, OTHER, UNFINISHED, BFLOAT16, SEARCH = "▾", "‡", "◐", "≈", "§"
MEANINGS = {
    FEWER: "fewer steps than the paper's runs",
    OTHER: "not the paper's settings",
    UNFINISHED: "not finished",
    BFLOAT16: "on a GPU, imitation was trained in bfloat16, as in all runs before the precision was recorded",
    SEARCH: "valid actions of another version of search or survey than the present, or of one that is not recorded",
}
"""What each sign means, in the order in which they are shown."""


def list_marks(group: Group) -> list[Mark]:
    """The marks of a row, in the order of `MEANINGS`."""
    found = []
    if group.has_fewer_steps:
        found.append(Mark(FEWER, f"the paper's runs have {find_paper_steps(group.agent):,} steps"))
    if group.other_settings:
        found.append(Mark(OTHER, "not the paper's settings: " + ", ".join(group.other_settings)))
    runs = group.runs
    if not all(run.finished for run in runs):
        found.append(Mark(UNFINISHED, "not finished"))
    if rounded := sum(may_be_bfloat16(run) for run in runs):
        share = f"{rounded} of {len(runs)} runs: " if len(runs) > 1 else ""
        found.append(Mark(BFLOAT16, share + MEANINGS[BFLOAT16]))
    others = sorted({words for run in runs if (words := describe_other_search(run))})
    if others:
        found.append(Mark(SEARCH, "; ".join(others)))
    return found


def list_marks_of_duplicate(group: Group, run: RunData) -> list[Mark]:
    """The marks of a run of a group that is in none of its figures."""
    return list_marks(replace(group, runs=[run]))


def find_common_signs(groups: Sequence[Group]) -> set[str]:
    """The signs that each of several rows has: these are said once, above the table."""
    signs = [{mark.sign for mark in list_marks(group)} for group in groups]
    return set.intersection(*signs) if len(signs) > 1 else set()


def may_be_bfloat16(run: RunData) -> bool:
    """Whether a run trained an imitation policy with products in bfloat16: by its settings, or before they said so, and
    not for certain on a CPU, where it was float32."""
    imitation = run.config.settings.get("imitation")
    if not isinstance(imitation, dict) or run.config.agent == "xtx-lambda-1":
        return False
    if "bfloat16" in imitation or "known" in imitation:  # `known` is newer than the choice
        return bool(imitation.get("bfloat16"))
    torches = [str((start.get("packages") or {}).get("torch", "")) for start in run.starts]
    return not torches or any(not name.endswith("+cpu") for name in torches)


def describe_other_search(run: RunData) -> str:
    """In what the versions of a run's search differ from the present ones, in words; empty if they do not. Games that
    are no stories (`toy:...`) have no search."""
    if run.config.game.startswith("toy:"):
        return ""
    present = list_used_versions(run.config)
    recorded = [start.get("searching") or {} for start in run.starts]
    if not recorded or any(name not in versions for versions in recorded for name in present):
        return "the versions of search and survey are not recorded"
    told = [
        f"{name} {versions[name]} (now {present[name]})"
        for versions in recorded
        for name in present
        if versions[name] != present[name]
    ]
    return ", ".join(dict.fromkeys(told))


def describe_marks(marks: Sequence[Mark], signs_of_all: Collection[str] = ()) -> str:
    """What the signs mean that are among these marks; empty without any."""
    signs = {mark.sign for mark in marks}
    told = [f"{sign} {words}" for sign, words in MEANINGS.items() if sign in signs and sign not in signs_of_all]
    told += [f"all rows: {words}" for sign, words in MEANINGS.items() if sign in signs_of_all]
    return " · ".join(told)
