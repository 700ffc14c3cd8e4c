"""The command `xtx`: finds the subcommand, reads its options, and answers what goes wrong in one line.

A subcommand is a module with a dataclass `Args` (its docstrings are the help) and a function `run(args)` that returns
an exit status or None; a function `build_help_end` may return what its help ends with. It is loaded when it is called,
so that a slow one does not slow down the others.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import importlib
import importlib.metadata
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO, cast

from xtx.cli.option_help import build_help, wants_help
from xtx.core import UserError, warn
from xtx.files.user_paths import DISK_TROUBLE
from xtx.processes.out_of_memory import explain_lack_of_memory


@dataclass(frozen=True)
class Subcommand:
    """Where a subcommand lives, and what `xtx --help` says of it."""

    module: str
    summary: str
    own_arguments: bool = False
    """Whether which options there are depends on the options: then the module has `parse_arguments(options, parse)`,
    and `make_options_type(options)` for the help."""


COMMANDS = {
    "train": Subcommand("xtx.cli.training.train", "train an agent on a game", own_arguments=True),
    "resume": Subcommand("xtx.cli.training.resume", "go on with a run that was stopped"),
    "evaluate": Subcommand("xtx.cli.runs.evaluate", "see how well a trained agent plays"),
    "best": Subcommand("xtx.cli.runs.best", "read a run's best episode"),
    "export": Subcommand("xtx.cli.runs.export", "write episodes as data for other programs"),
    "compare": Subcommand("xtx.cli.training.compare", "train several agents on a game and compare them"),
    "sweep": Subcommand("xtx.cli.training.sweep", "many runs: games x agents x seeds, the paper's tables"),
    "runs": Subcommand("xtx.cli.runs.list", "list the runs in a folder, and make room on the disk"),
    "report": Subcommand("xtx.cli.runs.report", "set runs beside the paper's tables, on one page"),
    "summarise": Subcommand("xtx.cli.runs.summarise", "keep runs as small files that reports can be made from"),
    "watch": Subcommand("xtx.cli.runs.watch", "see runs in a browser while they go on"),
    "bench": Subcommand("xtx.cli.training.bench", "see where the time of training goes"),
    "play": Subcommand("xtx.cli.play", "play a game, or watch an agent play it"),
    "agents": Subcommand("xtx.cli.agents", "list the agents, or the settings of one"),
    "games": Subcommand("xtx.cli.games.list", "list the games, and where their stories were found"),
    "games add": Subcommand("xtx.cli.games.add", "copy story files into your collection"),
    "games info": Subcommand("xtx.cli.games.info", "show a game's grammar, vocabulary and rewards"),
    "games survey": Subcommand("xtx.cli.games.survey", "find out ahead what makes up a story's world"),
    "games check": Subcommand("xtx.cli.games.check", "see whether the needed actions are among the valid ones"),
    "games atlas": Subcommand("xtx.cli.games.atlas", "show how much the atlas holds, and how often it helped"),
    "games verify": Subcommand("xtx.cli.games.verify", "play known commands to check what was found"),
    "games export-profile": Subcommand("xtx.cli.games.export_profile", "write what was found out, to be passed on"),
    "games profile": Subcommand("xtx.cli.games.profile", "describe an Inform story of your own"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 2 for an error the user can fix, 130 when interrupted."""
    # Before torch is loaded: its threads would spin while they wait for work, on the processors that the games or other
    # runs need meanwhile. With three runs on two processors that made training 17 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _open_streams()
    try:
        try:
            return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()  # here, where a closed pipe or a full device is still caught
    except UserError as error:
        return _complain(" ".join(str(error).split()))
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BrokenPipeError:
        return _end_at_closed_pipe()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # which rich turns into this
            return _end_at_closed_pipe()
        raise
    except (OSError, RuntimeError, ImportError, MemoryError, OverflowError) as error:
        line = _explain(error)
        if not line:
            raise
        if isinstance(error, OSError) and error.filename == _OUTPUT:
            _silence_output()
        return _complain(line)


def _explain(error: Exception) -> str:
    """One line about an error of this machine that the user can do something about; empty for any other."""
    if isinstance(error, OverflowError):
        late = "timestamp" in str(error)
        return "the clock of this machine is beyond the year 2262, where Python's ends; set it right" if late else ""
    line = explain_lack_of_memory(error)
    if not line and isinstance(error, OSError) and (error.errno in DISK_TROUBLE or error.filename is not None):
        return f"{error.filename or 'writing'}: {error.strerror}"
    return line


_OUTPUT = "standard output"


class _Output(io.FileIO):
    """The standard output, whose errors say that they are its own: a full device is not the run's folder."""

    def write(self, data: Any) -> int:
        """As `FileIO`."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _OUTPUT
            raise


class _ErrorOutput(io.FileIO):
    """The standard error stream. What cannot be written there is lost: there is no other place to say so."""

    def write(self, data: Any) -> int:
        """As `FileIO`, but without errors."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _encode_anything(error: UnicodeError) -> tuple[str | bytes, int]:
    """Bytes for letters that an encoding lacks: those of names that are not UTF-8 as they were, `?` for others."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return b"".join(bytes([ord(c) - 0xDC00]) if "\udc80" <= c <= "\udcff" else b"?" for c in letters), error.end


def _wrap(stream: TextIO, kind: type[io.FileIO]) -> TextIO:
    """A stream of the process, written by way of `kind` and without errors of encoding; others, as of a test or an
    embedding program, stay as they are."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # without a buffer where PYTHONUNBUFFERED is set
    if type(raw) is not io.FileIO or raw.fileno() not in (1, 2) or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    checked = kind(raw.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        cast(BinaryIO, checked if raw is buffer else io.BufferedWriter(checked)),
        encoding=stream.encoding,
        errors="xtx.anything",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _silence_output() -> None:
    """Discard what is still to be written, so that Python does not complain again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Open standard streams that were closed (`>&-`): the next file that is opened would take the place of one."""
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(null, True)
    os.close(null)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (as long as the program)
    codecs.register_error("xtx.anything", _encode_anything)
    sys.stdout, sys.stderr = _wrap(sys.stdout, _Output), _wrap(sys.stderr, _ErrorOutput)


def _end_at_closed_pipe() -> int:
    """Return the exit status for a closed output pipe, as `head` leaves it."""
    _silence_output()
    return 128 + 13


def _complain(line: str) -> int:
    warn(line)
    return 2


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "--help-all"):
        print(_format_overview())
        return 0
    if words[0] == "--version":
        print(f"xtx {importlib.metadata.version('xtx')}")
        return 0
    name, options = _split(words)
    if options and options[0] in ("-h", "--help", "--help-all") and any(_list_group(name)):
        print(_format_overview(name))
        return 0
    module = importlib.import_module(COMMANDS[name].module)
    if wants_help(options):
        kind = module.make_options_type(options) if COMMANDS[name].own_arguments else module.Args
        more = module.build_help_end() if hasattr(module, "build_help_end") else ""
        print(build_help(kind, name, complete="--help-all" in options, more=more))
        return 0
    if COMMANDS[name].own_arguments:
        args = module.parse_arguments(options, lambda kind: _parse(kind, name, options))
    else:
        args = _parse(module.Args, name, options)
    return int(module.run(args) or 0)


def _split(words: list[str]) -> tuple[str, list[str]]:
    """The subcommand that is meant, and the words behind it."""
    pair = " ".join(words[:2])
    if pair in COMMANDS:
        return pair, words[2:]
    first = words[0]
    rest = words[1:]
    if first in COMMANDS and not (rest and any(_list_group(first)) and not rest[0].startswith("-")):
        return first, rest
    typed = pair if first in COMMANDS else first
    close = difflib.get_close_matches(typed, COMMANDS, n=1)
    hint = f"did you mean `xtx {close[0]}`?" if close else "see: xtx --help"
    raise UserError(f"there is no command {typed!r}; {hint}")


def _list_group(name: str) -> list[str]:
    """The subcommands below a command."""
    return [other for other in COMMANDS if other.startswith(name + " ")]


def _format_overview(group: str = "") -> str:
    """The help that lists commands: all of them, or those of a group."""
    names = [group, *_list_group(group)] if group else list(COMMANDS)
    width = max(map(len, names)) + 3
    lines = [
        f"usage: xtx {group + ' [COMMAND]' if group else 'COMMAND'} [OPTIONS]",
        "",
        "Agents that learn to play text adventures." if not group else f"{COMMANDS[group].summary}.".capitalize(),
        "",
        *(f"  {name:{width}}{COMMANDS[name].summary}" for name in names),
        "",
        "`xtx COMMAND --help` says more about each." + ("" if group else " `xtx --version` shows the version."),
    ]
    return "\n".join(lines)


def _parse(kind: Any, name: str, options: list[str]) -> Any:
    """The options as an object of the subcommand's dataclass. Raises `UserError` for wrong ones."""
    import tyro

    from xtx.cli.option_numbers import make_registry

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                kind, prog=f"xtx {name}", args=options, config=(tyro.conf.DisallowNone,), registry=make_registry()
            )
    except SystemExit as end:
        if not end.code:
            raise
        error = _flatten(said.getvalue())
        if gone := next(
            (option for option in _REMOVED_OPTIONS if error.startswith(f"unrecognized options: {option}")), ""
        ):
            raise UserError(f"{gone} no longer exists: {_REMOVED_OPTIONS[gone]}") from None
        raise UserError(f"{error} (see: xtx {name} --help)") from None


_REMOVED_OPTIONS = {
    "--wide-grammar": "`--actions whole` finds more",
    "--imitation.bfloat16": "it saved 3 % of a run; leave it out",
    "--imitation.length-buckets": "batches are always split by length; leave it out",
}
"""Options of earlier versions, and what to do instead."""

# What tyro says in several lines of Python's words.
_NO_NUMBER = re.compile(
    r"error parsing ([^\s:]+):.*(?:invalid literal for (int)\(\) with base 10|could not convert string to float): (.+)"
)


def _flatten(message: str) -> str:
    """tyro's framed error message as one line: the error itself and, where there is one, the suggestion."""
    plain = re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯|+]", "", message)
    # A title, the error, perhaps a suggestion, and where to read more, with rules between them.
    parts = [part.strip("─- \n") for part in re.split(r"(?:─|-){3,}", plain)]
    _, error, *rest = [[line.strip() for line in part.splitlines()] for part in parts if part] + [[plain]]
    if error[0].startswith("Missing from"):
        error = ["missing:", *error[1:2]]
    suggestion = next((part[1].split()[0] for part in rest if "meant" in part[0] and len(part) > 1), "")
    text = " ".join(" ".join(error).split())
    if wrong := _NO_NUMBER.match(text[:1].lower() + text[1:]):
        option, whole, given = wrong.groups()
        return f"{option} takes a {'whole ' if whole else ''}number, not {given}"
    return text[:1].lower() + text[1:] + (f"; perhaps you meant {suggestion}" if suggestion else "")


if __name__ == "__main__":
    sys.exit(main())
