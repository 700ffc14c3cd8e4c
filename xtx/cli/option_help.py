"""The help of a subcommand, made from its dataclass: the usual options with `--help`, all of them with `--help-all`.

The text of an option is the docstring under its field. A dataclass with many options names the usual ones in a class
variable `USUAL`, in the order in which they are shown, and one with an agent's settings the agent in `AGENT`.
"""

from __future__ import annotations

import ast
import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg

_LEFT = 24
"""Columns for an option's name; a longer one has a line of its own."""
_WIDEST = 100
"""Columns of the help at most: longer lines are hard to read."""
_NARROWEST = 50

_ARG: Any = type(arg())
_POSITIONAL = get_args(Positional[str])[1]
_VALUES = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Option:
    """An option or argument of a subcommand."""

    field: str
    """The field's name."""
    names: tuple[str, ...]
    """As typed: `--out`, `-o`; of a switch that is on, also how it is switched off. Empty for what has a place."""
    value: str
    """What stands for its value; empty for a switch."""
    text: str
    default: str = ""
    """Empty where there is none, or where the text says what happens without the option."""
    required: bool = False
    group: str = ""
    """The settings to which it belongs: `q` of `--q.hidden`."""
    is_setting: bool = False
    """Whether it is one of an agent's settings."""

    @property
    def left(self) -> str:
        """What stands in the left column."""
        return " ".join([", ".join(self.names), self.value]).strip()


def read_options(kind: Any) -> list[Option]:
    """All options of a dataclass, in the order of its fields."""
    return list(_list_options(kind, None, "", False))


def wants_help(words: Sequence[str]) -> bool:
    """Whether the words on the command line ask for help."""
    return any(word in ("-h", "--help", "--help-all") for word in words)


def build_help(kind: Any, name: str, *, complete: bool, more: str = "", width: int | None = None) -> str:
    """The help of a subcommand. `complete`: with every option; `more`: what follows the options."""
    width = _choose_width(width)
    options = read_options(kind)
    usual: tuple[str, ...] = getattr(kind, "USUAL", ())
    placed = [option for option in options if not option.names]
    named = [option for option in options if option.names]
    shown = [option for option in named if option.required] if usual else named
    shown += [option for wanted in usual for option in named if option.field == wanted and not option.required]
    rest = [option for option in named if option not in shown]
    needed = [f"{option.names[0]} {option.value}" for option in named if option.required]
    words = [option.value if option.required else f"[{option.value}]" for option in placed] + needed
    blocks = [textwrap.fill(" ".join(["usage: xtx", name, *words, "[OPTIONS]"]), width, subsequent_indent=" " * 7)]
    blocks += [_fill(part, width) for part in (inspect.getdoc(kind) or "").split("\n\n") if part]
    if placed:
        blocks.append(_format_table(placed, width))
    if not usual or complete:
        shown, rest = [*shown, *rest], []
    help_line = Option("", ("-h, --help",), "", f"Show {'the usual options' if usual else 'this help'}.")
    all_line = Option("", ("--help-all",), "", f"Show all options ({len(named)})." if rest else "Show all options.")
    own = [option for option in shown if not option.is_setting]
    head = "usual options" if rest else "options"
    blocks.append(f"{head}:\n" + _format_table([*own, help_line, *([all_line] if usual else [])], width))
    groups = dict.fromkeys(option.group for option in shown if option.is_setting)
    for group in sorted(groups, key=bool):  # those without a group first
        title = f"settings of {getattr(kind, 'AGENT', 'the agent')}{f', --{group}.*' if group else ''}"
        blocks.append(f"{title}:\n" + _format_table([o for o in shown if o.is_setting and o.group == group], width))
    if more:
        blocks += [part if "\n" in part else _fill(part, width) for part in more.split("\n\n")]
    return "\n\n".join(blocks)


def build_settings(settings: Any, width: int | None = None) -> str:
    """The table of an agent's settings, as options of `xtx train`."""
    width = _choose_width(width)
    return _format_table(list(_list_options(type(settings), settings, "", True)), width)


def build_rows(rows: Sequence[tuple[str, str]], width: int | None = None) -> str:
    """Two columns: names, and what they are."""
    width = _choose_width(width)
    return "\n".join(_format_row(left, text, width) for left, text in rows)


def _choose_width(width: int | None) -> int:
    return min(_WIDEST, max(_NARROWEST, width or shutil.get_terminal_size().columns))


def _format_table(options: Sequence[Option], width: int) -> str:
    rows = []
    for option in options:
        default = f" (default: {option.default})" if option.default else ""
        rows.append(_format_row(option.left or option.value, option.text + default, width))
    return "\n".join(rows)


def _format_row(left: str, text: str, width: int) -> str:
    indent = " " * (_LEFT + 2)
    lines = _fill(text, width, indent).splitlines() or [""]
    if len(left) > _LEFT - 1:
        return "\n".join([f"  {left}", *lines])
    return "\n".join([f"  {left:{_LEFT}}{lines[0].strip()}", *lines[1:]])


def _fill(text: str, width: int, indent: str = "") -> str:
    """Lines with whole words: a name such as `xtx-lambda-0.5` is never cut."""
    return textwrap.fill(
        " ".join(text.split()), width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


# --- reading a dataclass ----------------------------------------------------------------------------------------


def _list_options(kind: Any, values: Any, group: str, is_setting: bool) -> Iterator[Option]:
    hints, docs = get_type_hints(kind, include_extras=True), read_field_docs(kind)
    for field in fields(kind):
        plain, marks = _split(hints[field.name])
        given: Any = next((mark for mark in marks if isinstance(mark, _ARG)), None)
        value = _read_value(field, values)
        if is_dataclass(plain):
            flat = given is not None and given.name == ""
            below = group if flat else f"{group}.{field.name}".lstrip(".")
            yield from _list_options(plain, value, below, is_setting or field.name == "settings")
            continue
        text = (given.help if given is not None else None) or docs.get(field.name, "")
        metavar = given.metavar if given is not None else None
        is_placed = _POSITIONAL in marks
        aliases = tuple(given.aliases or ()) if given is not None else ()
        names = () if is_placed else _list_names(field, group, plain, value, aliases)
        yield Option(
            field=field.name,
            names=names,
            value="" if plain is bool else metavar or _make_placeholder(plain),
            text=" ".join(text.split()),
            default="" if is_placed else _format_default(plain, value),
            required=value is MISSING,
            group=group,
            is_setting=is_setting,
        )


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without None and its annotations."""
    marks: tuple[Any, ...] = ()
    while get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        marks += tuple(more)
    if get_origin(hint) in (Union, UnionType):
        left = [part for part in get_args(hint) if part is not NoneType]
        hint = left[0] if len(left) == 1 else hint
    return hint, marks


def _read_value(field: Field[Any], values: Any) -> Any:
    if values is not None and values is not MISSING:
        return getattr(values, field.name)
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


def _list_names(field: Field[Any], group: str, plain: Any, value: Any, aliases: tuple[str, ...]) -> tuple[str, ...]:
    prefix, name = f"--{group}." if group else "--", field.name.replace("_", "-")
    short = (alias for alias in aliases if not alias.startswith("--"))  # longer ones are names of earlier versions
    names = (*short, f"{prefix}{name}")
    return (*names, f"{prefix}no-{name}") if plain is bool and value is True else names


def _make_placeholder(plain: Any) -> str:
    if get_origin(plain) is Literal:
        return "|".join(map(str, get_args(plain)))
    return _VALUES.get(plain, "TEXT")


def _format_default(plain: Any, value: Any) -> str:
    """A default, as it would be typed; nothing for switches that are off and values that say nothing."""
    if plain is bool:
        return "on" if value is True else ""
    if value is MISSING or value is None or value == "":
        return ""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_field_docs(kind: Any) -> dict[str, str]:
    """The docstrings under the fields of a dataclass, or the comments behind them; none where its source is not at
    hand."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(one))
            [body] = ast.parse(source).body
        except (OSError, TypeError, ValueError, SyntaxError):
            continue
        if isinstance(body, ast.ClassDef):
            found |= {**dict(_read_comments(body.body, source.splitlines())), **dict(_read_docstrings(body.body))}
    return found


def _read_comments(body: Sequence[ast.stmt], lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for field in body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            behind = lines[(field.end_lineno or 1) - 1].encode()[field.end_col_offset or 0 :].decode().strip()
            if behind.startswith("#"):
                yield field.target.id, behind.strip("# ")


def _read_docstrings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            content = text.value
            if isinstance(content, ast.Constant) and isinstance(content.value, str):
                yield field.target.id, content.value
