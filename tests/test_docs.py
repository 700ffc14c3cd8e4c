"""The documents say what is there: Python in them runs, commands and options in them exist, links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from xtx.cli import COMMANDS, main

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
