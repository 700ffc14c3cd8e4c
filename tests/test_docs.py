"""The documents say what is there: Python in them runs, commands and options in them exist, links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from xtx.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
GUIDES = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("quickstart.md", "your-agent.md")),
    *sorted(ROOT.glob("docs/guides/*.md")),
]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read_blocks(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return PYTHON.findall(page.read_text("utf-8"))


def read_commands(page: Path) -> list[str]:
    """The lines of a page's indented blocks that call xtx, without comments."""
    lines = re.findall(r"^ {4}(?:\.venv/bin/)?(xtx .*)$", page.read_text("utf-8"), re.MULTILINE)
    return [line.split(" #")[0].strip() for line in lines]


@pytest.mark.parametrize("page", [page for page in GUIDES if read_blocks(page)], ids=lambda page: page.name)
def test_python_in_the_guides_runs(page: Path, tmp_path: Path) -> None:
    code = "\n".join(read_blocks(page))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


NOT_RUN = {
    "xtx watch": "serves until it is stopped; tests/web runs it",
    "xtx games profile": "needs what Inform leaves behind; tests/games/catalog/test_profile.py runs it",
    "xtx games verify": "needs commands that win; tests/games/test_discovery.py runs it",
    "xtx games add story.z5 --profile": "needs that profile",
}
SHORT = {
    "train": "--steps 80 --workers 1",
    "evaluate": "--episodes 2",
    "play": "--steps 3 --delay 0",
    "sweep": "--dry-run --games lowwater",
    "games check": "--limit 3",
    "report": "--no-walkthroughs",
}
"""Options that make a command short; everything else of it is as it is printed."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a person who reads the guides: with a run and a story."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "downloads").mkdir()
    shutil.copy(ROOT / "stories" / "hang" / "hang.z5", folder / "story.z5")
    shutil.copy(ROOT / "xtx" / "games" / "catalog" / "data" / "lowwater.z5", folder / "downloads" / "zork1.z5")
    call(folder, "games add story.z5")
    call(folder, "train toy:corridor-5 --agent xtx-demo --steps 80 --workers 1 --out runs/first")
    return folder


def call(folder: Path, line: str) -> None:
    """Give a command in that folder, with everything of the user's in it."""
    owned = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME")}
    words = [sys.executable, "-m", "xtx.cli", *shlex.split(line.replace("~", str(folder)))]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **owned},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"xtx {line}: {done.stderr[-2000:]}"


READ_BY_ALL = [page for page in GUIDES if page.name in ("README.md", "quickstart.md", "training.md", "your-games.md")]
COMMANDS_READ_BY_ALL = dict.fromkeys(line for page in READ_BY_ALL for line in read_commands(page))


@pytest.mark.parametrize("line", [c for c in COMMANDS_READ_BY_ALL if not c.startswith(tuple(NOT_RUN))])
def test_commands_in_the_guides_run(line: str, reader: Path) -> None:
    words = line.removeprefix("xtx ")
    command = next(name for name in (" ".join(words.split()[:2]), words.split()[0]) if name in COMMANDS)
    words = re.sub(r"\bzork[13]\b(?!\.z5)", "lowwater", words.replace("RUN", "runs/first"))
    is_by_hand = command == "play" and "--agent" not in words
    call(reader, words if is_by_hand else f"{words} {SHORT.get(command, '')}")


@cache
def read_help(command: str) -> str:
    """The whole help of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command.split(), "--help-all"])
    return out.getvalue()


@pytest.mark.parametrize("page", [page for page in PAGES if read_commands(page)], ids=lambda page: page.name)
def test_commands_in_the_documents_exist(page: Path) -> None:
    for line in read_commands(page):
        words = shlex.split(line.replace("...", ""))[1:]
        names = [" ".join(words[:2]), words[0] if words else ""]
        command = next((name for name in names if name in COMMANDS), None)
        if words and words[0].startswith("-"):
            continue
        assert command is not None, f"{page.name}: {line}"
        if "mine" in words:  # an agent with options of its own, which the page defines
            continue
        for option in re.findall(r"(?<!\S)(--[a-z][\w.-]*)", line):
            known = read_help(command) + (read_help("train") if command in ("compare", "bench") else "")
            assert option in known or option == "--help-all", f"{page.name}: {line}: {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        target = link.partition("#")[0]
        if target and "://" not in link:
            assert (page.parent / target).exists(), link


def test_the_pages_that_are_read_first_are_short() -> None:
    limits = {"README.md": 150, "docs/results.md": 150, "docs/speed.md": 120}
    lengths = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name in limits}
    assert all(lengths[name] <= limit for name, limit in limits.items()), lengths
