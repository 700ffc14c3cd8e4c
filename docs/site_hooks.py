"""Hooks of the documentation site: the reference of the command line is made from the program's help, files at the
top of the repository become pages, and formulas become MathML, which browsers show without a script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "<!-- command line -->"
FORMULA = re.compile(r"^```math\n(?P<block>.*?)^```$|\$`(?P<inline>[^`]+)`\$", re.MULTILINE | re.DOTALL)
"""TeX as GitHub takes it: a block, or a part of a line."""

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
    """Put the help of every command in the place of the mark, and MathML in the place of formulas."""
    markdown = FORMULA.sub(make_formula, markdown)
    if MARK not in markdown:
        return markdown
    from xtx.cli.main import COMMANDS

    parts = [f"## xtx\n\n```text\n{read_help()}\n```"]
    parts += [
        f"## xtx {name}\n\n{command.summary[0].upper()}{command.summary[1:]}.\n\n```text\n{read_help(name)}\n```"
        for name, command in COMMANDS.items()
    ]
    return markdown.replace(MARK, "\n\n".join(parts))


def make_formula(found: re.Match[str]) -> str:
    """Return a formula as MathML."""
    from latex2mathml.converter import convert

    if found["inline"]:
        return f"<span>{convert(found['inline'])}</span>"
    formula = convert(" ".join(found["block"].split()), display="block")
    return f'<div style="overflow-x: auto; margin: 1em 0">{formula}</div>'


def read_help(name: str = "") -> str:
    """Return the whole help of a command, as wide as the page."""
    option = "--help-all" if name else "--help"
    done = subprocess.run(
        [sys.executable, "-m", "xtx.cli", *name.split(), option],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"},
    )
    return done.stdout.strip()
