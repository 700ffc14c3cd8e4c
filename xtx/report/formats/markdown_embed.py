"""A report as part of a Markdown file that is otherwise written by hand."""

from __future__ import annotations

from pathlib import Path

from xtx.core import UserError
from xtx.files.bounded_reads import explain_read_error, read_bounded

_MAX_BYTES = 64 << 20
"""Limits the Markdown file."""

BEGIN, END = "<!-- xtx report begins -->", "<!-- xtx report ends -->"


def embed(path: Path, part: str) -> str:
    """The file's text, with this part between its two marks. Raises `UserError` if it does not have them."""
    try:
        text = read_bounded(path, _MAX_BYTES).decode()
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else explain_read_error(error)
        raise UserError(f"{path} cannot be read ({reason}); name a Markdown file with --embed") from None
    lines = text.splitlines()
    if lines.count(BEGIN) != 1 or lines.count(END) != 1 or lines.index(BEGIN) > lines.index(END):
        raise UserError(f"{path} must have one line {BEGIN} and, below it, one line {END}")
    before, after = lines[: lines.index(BEGIN) + 1], lines[lines.index(END) :]
    return "\n".join([*before, "", part.strip(), "", *after]) + "\n"
