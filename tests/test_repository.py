"""The repository holds what belongs to the project, and nothing that a story or a tool left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AT_THE_TOP = {
    ".gitignore", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
    "constraints-build.txt", "constraints-cuda.txt",
    "constraints-dist.txt", "constraints-extras.txt", "constraints.txt", "mkdocs.yml", "pyproject.toml",
}  # fmt: skip
STORIES = {"xtx/games/catalog/data/lowwater.z5", "stories/hang/hang.z5"}
"""Our own; no other may be here."""


def test_no_file_is_here_that_does_not_belong_here() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    files = listed.stdout.splitlines()
    assert {name for name in files if "/" not in name} == AT_THE_TOP
    left_behind = (".qzl", ".sav", ".scr", ".z3", ".z4", ".z5", ".z8", ".ulx", ".gblorb", ".zblorb")
    kept = {name for name in files if name.endswith(left_behind) and not name.startswith("tests/fuzz/corpus/story/")}
    assert kept == STORIES
