"""One word, one meaning: no two classes of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "xtx"
COMMAND_LINE = {"Args"}
"""The arguments of a subcommand: every file of `xtx/cli` has its own."""


def test_no_two_classes_share_a_name() -> None:
    """Also not if one of them is private: a reader searches for the word."""
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert "GameVector" in places
    shared = {name: where for name, where in places.items() if len(where) > 1 and name not in COMMAND_LINE}
    assert not shared, shared
