"""The repository holds what belongs to the project, and nothing that a story or a tool left behind."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
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


PROGRAMS = sorted(
    set(re.findall(r"\$\(BIN\)/python ((?:tests|tools|benchmarks)/\S+\.py)", (ROOT / "Makefile").read_text("utf-8")))
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_make_calls_can_be_called(program: str) -> None:
    """Their modules are found without pytest's paths. `make verify` calls most of them, for hours, so CI does not."""
    done = subprocess.run([sys.executable, program, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr


def test_public_functions_have_a_docstring() -> None:
    """Classes, functions and methods of xtx, but not properties, whose name may say all, nor the two passes that torch
    asks of an autograd function."""
    assert [place for path in sorted((ROOT / "xtx").rglob("*.py")) for place in _list_undocumented(path)] == []


def _list_undocumented(path: Path) -> list[str]:
    found = []
    waiting = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        for node in waiting.pop().body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            is_exempt = decorators & {"property", "cached_property", "overload", "setter"} or node.name in (
                "forward",
                "backward",
            )
            if not ast.get_docstring(node) and not is_exempt:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
            if isinstance(node, ast.ClassDef):
                waiting.append(node)  # type: ignore[arg-type]
    return found
