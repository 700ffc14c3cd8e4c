"""Imports point one way. This table is the law; a module that is not in it must be given a row first."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

GROUND = {"core", "child_processes", "config", "regular_files", "bounded_files", "out_of_memory"}
LEARNING = GROUND | {"text", "memory", "gru", "nets", "gpt", "rc_net", "losses"}
ALLOWED: dict[str, set[str]] = {
    # room: the other rooms that it may import
    "core": set(),
    "out_of_memory": set(),
    "search_versions": set(),
    "child_processes": set(),
    "file_calls": set(),
    "regular_files": {"core", "file_calls"},
    "bounded_files": {"core", "regular_files"},
    "config": {"core"},
    "bounds": {"config"},
    "games": GROUND | {"file_calls", "search_versions"},
    "text": GROUND,
    "memory": GROUND | {"text"},
    "gru": GROUND,
    "nets": GROUND | {"gru", "text"},
    "gpt": GROUND | {"gru", "nets"},
    "rc_net": GROUND | {"gru", "nets"},
    "losses": GROUND | {"text", "gru", "nets", "gpt", "rc_net"},
    "cuda": GROUND | {"text", "nets", "gru", "gpt"},
    "agents": LEARNING | {"cuda"},
    "config_file": GROUND,
    "runs": GROUND | {"file_calls", "config_file", "search_versions"},
    "witness": GROUND | {"file_calls", "runs"},
    "train": LEARNING | {"games", "agents", "runs", "witness", "callable_modules"},
    "evaluate": LEARNING | {"games", "agents", "runs"},
    "live": set(),
    "sweep": GROUND | {"bounds", "config_file", "games", "agents", "runs", "live", "training", "callable_modules"},
    "report": GROUND | {"runs", "witness", "search_versions", "callable_modules"},
    "callable_modules": set(),
    "training": LEARNING | {"bounds", "config_file", "games", "agents", "runs", "train"},
    "web": GROUND | {"runs", "witness", "report"},
    "play": GROUND | {"games", "agents"},
}
EVERYTHING = {"", "api", "cli", "commands", "__main__"}
"""Rooms that wire the others and may import all of them."""

ONLY_DOOR = "xtx.games.jericho"
WITHOUT_TORCH = {"report", "web"}


def modules(root: Path) -> dict[str, Path]:
    """The files of the package under `root`, by module name."""
    found = {}
    for path in sorted((root / "xtx").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it; `from a import b` counts as both a and a.b."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def room(module: str) -> str:
    """The part of the house that a module of ours belongs to."""
    return [*module.split("."), ""][1]


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    """All that is loaded when a module of ours is imported, as far as our own files say."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, ())
    return seen


def violations(root: Path) -> list[str]:
    """Every import under `root` that breaks the table, in words."""
    ours = modules(root)
    graph = {name: set(imports(name, path)) for name, path in ours.items()}
    graph["xtx"] = set()  # its public names are loaded when they are first used
    found = []
    for name, targets in graph.items():
        here = room(name)
        if here not in ALLOWED and here not in EVERYTHING:
            found.append(f"{name}: give the room {here!r} a row in tests/test_imports.py")
            continue
        for target in sorted(targets):
            top = target.split(".")[0]
            # `from xtx.games import catalog` also names xtx.games.catalog; what is no module is a name in one
            if top == "xtx" and target in ours and here not in EVERYTHING:
                there = room(target)
                if there not in {here, ""} and there not in ALLOWED[here]:
                    found.append(f"{name} must not import {target}")
            if top == "jericho" and name != ONLY_DOOR:
                found.append(f"{name} must not import jericho: {ONLY_DOOR} is the only door")
            if here == "core" and top not in sys.stdlib_module_names and top != "__future__":
                found.append(f"{name} must not import {target}: it uses the standard library only")
        loaded = {target.split(".")[0] for target in reached(name, graph)}
        if here in WITHOUT_TORCH and "torch" in loaded:
            found.append(f"{name} must not import torch, not even through others")
    return list(dict.fromkeys(found))


def test_imports_point_one_way() -> None:
    assert violations(ROOT) == []


def test_the_package_was_looked_at() -> None:
    assert {"xtx", "xtx.core", "xtx.cli", "xtx.games.jericho"} <= set(modules(ROOT))


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        ("games/new.py", "from xtx.agents import xtx", "xtx.games.new must not import xtx.agents"),
        ("games/new.py", "def f():\n    import xtx.cli", "xtx.games.new must not import xtx.cli"),
        ("agents/xtx.py", "from xtx import games", "xtx.agents.xtx must not import xtx.games"),
        ("agents/xtx.py", "from ..games import catalog", "xtx.agents.xtx must not import xtx.games"),
        ("text.py", "import jericho.util", "xtx.text must not import jericho"),
        ("games/new.py", "from jericho import FrotzEnv", "xtx.games.new must not import jericho"),
        ("core.py", "import numpy as np", "xtx.core must not import numpy"),
        ("core.py", "from xtx.config import X", "xtx.core must not import xtx.config"),
        ("report/page.py", "import torch.nn", "xtx.report.page must not import torch"),
        ("report/page.py", "from xtx.runs import read", "xtx.report.page must not import torch"),
        ("utils.py", "", "give the room 'utils' a row"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, code: str, complaint: str) -> None:
    house = {
        "__init__.py": "",
        "core.py": "import dataclasses",
        "config.py": "",
        "cli.py": "from xtx.games import catalog",
        "runs.py": "import torch" if "runs" in code else "",
        "games/__init__.py": "",
        "games/jericho.py": "import jericho",
        "games/catalog.py": "from xtx.core import UserError",
        "agents/__init__.py": "from xtx.core import Agent",
    }
    for path, content in house.items():
        (tmp_path / "xtx" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "xtx" / path).write_text(content)
    assert violations(tmp_path) == []
    (tmp_path / "xtx" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "xtx" / file).write_text(code)
    assert [line for line in violations(tmp_path) if complaint in line], violations(tmp_path)
