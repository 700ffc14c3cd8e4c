"""Imports point one way. This table is the law; a module that is not in it must be given a row first."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

GROUND = {
    "core",
    "files",
    "config",
    "search_versions",
    "callable_modules",
    "processes",
    "terminal.shell_command",
}
SUBPACKAGES = {"agents", "games", "kernels", "report", "terminal"}
"""Packages whose sub-packages have rows of their own; so have their modules, but for those of `agents` and `report`."""
EMPTY = SUBPACKAGES - {"agents", "report"}
"""Those of them that hold nothing themselves, so that anything in them may import the package."""
STORIES = {"games.zmachine", "games.catalog", "games.emulator", "games.zset", "games.canonical"}
LEARNING = GROUND | {"text", "memory", "kernels.cpu", "kernels.cuda", "networks"}
REPORT = GROUND | {"runs", "report", "report.data", "report.plots", "report.pages"}
ALLOWED: dict[str, set[str]] = {
    # part: the other parts that it may import
    "core": set(),
    "processes": {"core"},
    "terminal": set(),
    "terminal.shell_command": {"core"},
    "terminal.progress_panel": set(),
    "search_versions": set(),
    "callable_modules": set(),
    "files": {"core", "terminal.shell_command"},
    "config": {"core", "files"},
    # games
    "games": set(),
    "games.zmachine": set(),
    "games.catalog": GROUND | {"games.zmachine"},
    "games.emulator": GROUND | {"games.zmachine", "games.catalog"},
    "games.zset": GROUND | {"games.zmachine", "games.emulator"},
    "games.canonical": GROUND | {"games.zmachine", "games.emulator", "games.zset"},
    "games.actions": GROUND | STORIES,
    "games.atlas": GROUND,
    "games.discovery": GROUND | STORIES,
    "games.action_verdicts": set(),
    "games.state_findings": GROUND | STORIES | {"games.action_verdicts", "games.actions", "games.atlas"},
    "games.known_layouts": GROUND | STORIES | {"games.atlas", "games.state_findings"},
    "games.story_game": GROUND
    | STORIES
    | {"games.discovery", "games.actions", "games.atlas", "games.state_findings", "games.known_layouts"},
    "games.toy_game": GROUND | {"games.zmachine", "games.action_verdicts", "games.emulator", "games.story_game"},
    "games.vector": GROUND | STORIES | {"games.action_verdicts", "games.story_game", "games.toy_game"},
    "games.user_collection": GROUND | STORIES | {"games.discovery"},
    "games.game_setup": GROUND
    | STORIES
    | {"games.atlas", "games.story_game", "games.toy_game", "games.vector"}
    | {"games.discovery"},
    "games.walkthroughs": GROUND | STORIES | {"games.actions", "games.story_game"},
    "games.jericho": GROUND | STORIES | {"games.atlas", "games.story_game", "games.vector"},
    "games.gym": GROUND | STORIES | {"games.atlas", "games.story_game", "games.vector"},
    # learning
    "text": GROUND,
    "memory": GROUND | {"text"},
    "kernels": set(),
    "kernels.cpu": GROUND,
    "networks": GROUND | {"text", "kernels.cpu"},
    "kernels.cuda": GROUND | {"text", "kernels.cpu", "networks"},
    "agents": LEARNING,
    "agents.q_learning": LEARNING | {"agents"},
    "agents.xtx": LEARNING | {"agents", "agents.q_learning"},
    "agents.rc_dqn": LEARNING | {"agents"},
    # runs and what is made of them
    "runs": GROUND,
    "training": LEARNING | {"games", "agents", "runs"},
    "sweep": GROUND | {"games", "agents", "runs", "training", "terminal.progress_panel"},
    "report": GROUND,
    "report.data": GROUND | {"runs", "report"},
    "report.plots": GROUND | {"runs", "report", "report.data"},
    "report.pages": GROUND | {"runs", "report", "report.data", "report.plots"},
    "report.formats": REPORT,
    "web": REPORT | {"report.formats"},
    "play": GROUND | {"games", "agents"},
}
"""Outside of a package its name allows all of it: "games" in the row of training means every part of `games`. Inside it
means the modules that belong to no sub-package."""
EVERYTHING = {"", "api", "cli", "__main__"}
"""Parts that wire the others and may import all of them."""

ONLY_EMULATOR = "games.emulator"
WITHOUT_TORCH = {"report", "runs", "web"}


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


def part(module: str, ours: Mapping[str, Path]) -> str:
    """The part of the program that a module of ours belongs to: a row of the table, if it is right."""
    _, top, *rest = [*module.split("."), ""]
    if top not in SUBPACKAGES or not rest[0]:
        return top
    below = f"{top}.{rest[0]}"
    is_package = ours[f"xtx.{below}"].name == "__init__.py" if f"xtx.{below}" in ours else False
    return below if is_package or top in EMPTY else top


def is_allowed(here: str, there: str) -> bool:
    """Whether the table lets a part import another."""
    if there in {here, ""} or there in ALLOWED[here]:
        return True
    package = there.split(".")[0]
    if there in EMPTY and package == here.split(".")[0]:
        return True  # the package itself, which holds nothing
    return package != here.split(".")[0] and package in ALLOWED[here] and package not in {"report", "kernels"}


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
        here = part(name, ours)
        wires = here.split(".")[0] in EVERYTHING
        if here not in ALLOWED and not wires:
            found.append(f"{name}: give the part {here!r} a row in tests/test_imports.py")
            continue
        for target in sorted(targets):
            top = target.split(".")[0]
            # `from xtx.games import catalog` also names xtx.games.catalog; what is no module is a name in one
            if top == "xtx" and target in ours and not wires and not is_allowed(here, part(target, ours)):
                found.append(f"{name} must not import {target}")
            if top == "jericho" and here != ONLY_EMULATOR:
                found.append(f"{name} must not import jericho: {ONLY_EMULATOR} is the only package that may")
            if here == "core" and top not in sys.stdlib_module_names and top != "__future__":
                found.append(f"{name} must not import {target}: it uses the standard library only")
        loaded = {target.split(".")[0] for target in reached(name, graph)}
        if here.split(".")[0] in WITHOUT_TORCH and "torch" in loaded:
            found.append(f"{name} must not import torch, not even through others")
    return list(dict.fromkeys(found))


def test_imports_point_one_way() -> None:
    assert violations(ROOT) == []


def test_the_package_was_looked_at() -> None:
    assert {"xtx", "xtx.core", "xtx.cli.main", "xtx.games.emulator.frotz"} <= set(modules(ROOT))


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        ("games/atlas/new.py", "from xtx.agents import xtx", "xtx.games.atlas.new must not import xtx.agents"),
        ("games/atlas/new.py", "def f():\n    import xtx.cli", "xtx.games.atlas.new must not import xtx.cli"),
        ("agents/xtx.py", "from xtx import games", "xtx.agents.xtx must not import xtx.games"),
        (
            "games/atlas/new.py",
            "from xtx.games import story_game",
            "xtx.games.atlas.new must not import xtx.games.story_game",
        ),
        ("games/story_game.py", "from xtx.games.gym import X", "xtx.games.story_game must not import xtx.games.gym"),
        ("agents/xtx.py", "from ..games import catalog", "xtx.agents.xtx must not import xtx.games"),
        ("text/new.py", "import jericho.util", "xtx.text.new must not import jericho"),
        ("games/gym.py", "from jericho import FrotzEnv", "xtx.games.gym must not import jericho"),
        ("core.py", "import numpy as np", "xtx.core must not import numpy"),
        ("core.py", "from xtx.config.settings import X", "xtx.core must not import xtx.config"),
        ("report/pages/x.py", "import torch.nn", "xtx.report.pages.x must not import torch"),
        (
            "report/pages/x.py",
            "from xtx.files.system_calls import read",
            "xtx.report.pages.x must not import torch",
        ),
        ("utils.py", "", "give the part 'utils' a row"),
        ("games/new.py", "", "give the part 'games.new' a row"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, code: str, complaint: str) -> None:
    sources = {
        "__init__.py": "",
        "core.py": "import dataclasses",
        "config/__init__.py": "",
        "config/settings.py": "",
        "cli/__init__.py": "",
        "cli/main.py": "from xtx.games.catalog import known_games",
        "files/__init__.py": "",
        "files/system_calls.py": "import torch" if "system_calls" in code else "",
        "games/__init__.py": "",
        "games/atlas/__init__.py": "",
        "games/emulator/__init__.py": "",
        "games/emulator/frotz.py": "import jericho",
        "games/catalog/__init__.py": "",
        "games/catalog/known_games.py": "from xtx.core import UserError",
        "games/story_game.py": "from xtx.games.catalog import known_games",
        "games/gym.py": "from xtx.games.story_game import X",
        "agents/__init__.py": "",
        "agents/registry.py": "from xtx.core import Agent",
    }
    for path, content in sources.items():
        (tmp_path / "xtx" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "xtx" / path).write_text(content)
    assert violations(tmp_path) == []
    (tmp_path / "xtx" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "xtx" / file).write_text(code)
    assert [line for line in violations(tmp_path) if complaint in line], violations(tmp_path)
