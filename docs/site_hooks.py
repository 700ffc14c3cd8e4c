"""Hooks of the documentation site: the reference of the command line is made from the program's help, the tables of
settings from the presets, files at the top of the repository become pages, and formulas become MathML, which browsers
show without a script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "<!-- command line -->"
SETTINGS_MARK = "<!-- settings -->"
COMPARED = [("drrn", "inv-dy", "xtx"), ("rc-dqn", "mprc-dqn")]
"""Agents whose settings stand side by side, by table; every other agent is in the table of what it changes."""

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
    """Put the help of every command and the tables of settings in the place of their marks, and MathML in the place of
    formulas."""
    markdown = FORMULA.sub(make_formula, markdown)
    if SETTINGS_MARK in markdown:
        markdown = markdown.replace(SETTINGS_MARK, make_settings_tables())
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


def make_settings_tables() -> str:
    """Return the settings of all agents as tables: those compared, what the others change, and what depends on the
    game."""
    from xtx.agents.registry import AGENTS
    from xtx.config.settings import ALPHA1, get_default_actions, get_default_length

    parts = []
    for names in COMPARED:
        columns = [flatten_settings(name) for name in names]
        rows = [["", *(f"`{name}`" for name in names), "what it is"]]
        rows.append(["game steps", *(f"{get_default_length(name)[0]:,}" for name in names), "of a run (`--steps`)"])
        rows.append(["envs", *(str(get_default_length(name)[1]) for name in names), "`--num-envs`"])
        rows.append(["actions", *(get_default_actions(name) for name in names), "what is tried (`--actions`)"])
        keys = dict.fromkeys(key for column in columns for key in column)
        for key in keys:
            told = next(column[key][1] for column in columns if key in column)
            cells = [column[key][0] if key in column else "" for column in columns]
            rows.append([f"`{key.replace('_', '-')}`", *cells, told])
        parts.append("\n".join(make_row(row) for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]))
    usual = flatten_settings("xtx")
    rows = [["agent", "what differs from `xtx`"], ["---", "---"]]
    for name in AGENTS:
        own = flatten_settings(name)
        if not any(name in names for names in COMPARED) and own:
            changes = {key: value for key, (value, _) in own.items() if value != usual[key][0]}
            if get_default_actions(name) != get_default_actions("xtx"):
                changes["actions"] = get_default_actions(name)
            rows.append([f"`{name}`", ", ".join(f"`{key}` {value}" for key, value in changes.items())])
    changed = "\n".join(make_row(row) for row in rows)
    weights = ", ".join(f"{game} {value:g}" for game, value in sorted(ALPHA1.items(), key=lambda one: (one[1], one[0])))
    parts.insert(1, f"`--inverse.alpha1` of XTX depends on the game: {weights}; 1 on all others.\n\n{changed}")
    titles = ["DRRN, INV-DY and XTX", "Variants of XTX", "RC-DQN and MPRC-DQN"]
    return "\n\n".join(f"## {title}\n\n{part}" for title, part in zip(titles, parts, strict=True))


def make_row(cells: list[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def flatten_settings(agent: str) -> dict[str, tuple[str, str]]:
    """Return an agent's preset for a game without settings of its own: values and what they are, by dotted names."""
    import dataclasses

    from xtx.agents.registry import make_preset
    from xtx.cli.option_help import read_field_docs

    def flatten(settings: Any, prefix: str) -> Any:
        told = read_field_docs(type(settings))
        for field in dataclasses.fields(settings):
            value = getattr(settings, field.name)
            if dataclasses.is_dataclass(value):
                yield from flatten(value, f"{prefix}{field.name}.")
            else:
                shown = f"{value:,}" if type(value) is int else f"{value:g}" if isinstance(value, float) else str(value)
                shown = {"True": "yes", "False": "no", "None": "-"}.get(shown, shown)
                yield prefix + field.name, (shown, " ".join(told.get(field.name, "").split()))

    return dict(flatten(make_preset(agent, ""), ""))
