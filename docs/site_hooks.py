"""Hooks of the documentation site: the reference of the command line is made from the program's help, and files at the
top of the repository become pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "<!-- command line -->"


AT_THE_TOP = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Pages of the site that are files at the top of the repository."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for page, source in AT_THE_TOP.items():
        text = (Path(__file__).parents[1] / source).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the help of every command in the place of the mark."""
    if MARK not in markdown:
        return markdown
    from xtx.cli.main import COMMANDS

    parts = [f"## xtx\n\n```text\n{read_help()}\n```"]
    parts += [
        f"## xtx {name}\n\n{command.summary[0].upper()}{command.summary[1:]}.\n\n```text\n{read_help(name)}\n```"
        for name, command in COMMANDS.items()
    ]
    return markdown.replace(MARK, "\n\n".join(parts))


def read_help(name: str = "") -> str:
    """Return the whole help of a command, 100 columns wide."""
    option = "--help-all" if name else "--help"
    done = subprocess.run(
        [sys.executable, "-m", "xtx.cli", *name.split(), option],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
    )
    return done.stdout.strip()
