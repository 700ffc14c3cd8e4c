"""Agents from a Python file, named as `path/to/my_agent.py:MyAgent`, and agents given as a class.

Naming such a file runs it, as `python my_agent.py` would. A run folder keeps the name alone, and must not run code that
the user never asked for: a file is loaded only if the user named it on this machine before (`accept_agent`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
import unicodedata
from pathlib import Path
from types import ModuleType
from typing import Any

from xtx.core import Agent, UserError
from xtx.terminal.shell_command import format_command

_given: dict[str, type[Agent]] = {}
"""Classes that this process was given itself, by the name that stands for them in configs."""
_VARIABLE = "XTX_AGENT_FILES"
"""Environment variable: files that may be run, for processes that this one starts."""
_MOVES_VARIABLE = "XTX_AGENT_MOVES"
"""The same for files that were moved: lines of JSON, each `[where it was, where it is now]`."""
_ACCEPTED_FILE, _MOVES_FILE = "agent-files", "agent-moves.jsonl"
"""In the user's data folder: files that may be run, one in each line, and moves as in the environment variable."""
_NO_FILE = "class:"
"""Begins the names of classes that lie in no file, as those of a notebook."""


def split_file_agent(name: str) -> tuple[Path, str] | None:
    """The file and the class that such a name means; None for other names."""
    path, colon, kind = name.rpartition(":")
    return (Path(path), kind) if colon and path.endswith(".py") and kind.isidentifier() else None


def is_given_class(name: str) -> bool:
    """Whether the name stands for a class that lies in no file."""
    return name.startswith(_NO_FILE)


def accept_agent(name: str) -> str:
    """The name of an agent as the user gave it, with an absolute path, so that it means the same in another folder and
    tomorrow. From now on its file may be run for this user."""
    found = split_file_agent(name)
    if found is None:
        return name
    file = Path(os.path.abspath(found[0].expanduser()))
    if not _can_be_listed(str(file)):
        raise UserError(
            f"the path of an agent's file has no control characters, line ends or {os.pathsep!r}, unlike "
            f"{str(file)!r}; rename the file or its folder"
        )
    if file.is_file() and str(file) not in _read_accepted_files():
        # For the processes that this one starts, also where nothing can be written.
        known = os.environ.get(_VARIABLE, "").split(os.pathsep)
        os.environ[_VARIABLE] = os.pathsep.join([*known, str(file)]).lstrip(os.pathsep)
        _add_line(_ACCEPTED_FILE, str(file))
    return f"{file}:{found[1]}"


def is_moved_agent(own: str, agent: str) -> bool:
    """Whether an agent that the user named is a run's own, whose file is no longer where it was, or was on another
    machine: a class of the same name."""
    old, new = split_file_agent(own), split_file_agent(agent)
    if old is None or new is None or old[1] != new[1] or old[0].is_file():
        return False
    return _can_be_listed(str(old[0])) and _can_be_listed(str(new[0]))


def accept_moved_agent(own: str, agent: str) -> None:
    """From now on, an agent that the user named stands for a run's own, if that was moved. Which files may be run stays
    the same: `own` is what a run folder says."""
    old, new = split_file_agent(own), split_file_agent(agent)
    if old is None or new is None or not is_moved_agent(own, agent):
        return
    if agent in _given:
        _given[own] = _given[agent]
    line = json.dumps([os.path.abspath(old[0]), str(new[0])])
    os.environ[_MOVES_VARIABLE] = f"{os.environ.get(_MOVES_VARIABLE, '')}\n{line}".lstrip()
    _add_line(_MOVES_FILE, line)


def _can_be_listed(path: str) -> bool:
    """Whether a path is one line of a list and one part of an environment variable. Others could name further files."""
    return os.pathsep not in path and not any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in path)


def _read_accepted_files() -> set[str]:
    """The files that the user named, which may be run."""
    return {*_read_lines(_ACCEPTED_FILE), *os.environ.get(_VARIABLE, "").split(os.pathsep)} - {""}


def _read_moves() -> dict[str, str]:
    """Where files are now that were moved, by where they were."""
    found = {}
    for line in [*_read_lines(_MOVES_FILE), *os.environ.get(_MOVES_VARIABLE, "").splitlines()]:
        with contextlib.suppress(ValueError, RecursionError):
            match json.loads(line):
                case [str(old), str(new)]:
                    found[old] = new
    return found


def _read_lines(name: str) -> list[str]:
    with contextlib.suppress(OSError):
        return (_find_user_folder() / name).read_text("utf-8", errors="surrogateescape").splitlines()
    return []


def _add_line(name: str, line: str) -> None:
    with contextlib.suppress(OSError):
        _find_user_folder().mkdir(parents=True, exist_ok=True)
        with (_find_user_folder() / name).open("a", encoding="utf-8", errors="surrogateescape") as lines:
            lines.write(f"{line}\n")


def _find_user_folder() -> Path:
    base = os.environ.get("XDG_DATA_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return root / "xtx"


def make_agent_label(name: str) -> str:
    """A short name for tables and folders: the class of an agent from a file, else the name itself."""
    found = split_file_agent(name)
    return found[1] if found else name.removeprefix(_NO_FILE)


def register_agent(kind: type[Agent]) -> str:
    """Make a class known to this process, and return the name that stands for it in a run's config: its file and its
    name, or its name alone where it lies in no file that another process could read."""
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise UserError(f"an agent is a name or a class made from xtx.Agent, not {kind!r}")
    name = f"{_NO_FILE}{kind.__name__}"
    try:
        file = Path(inspect.getsourcefile(kind) or "")
    except (TypeError, OSError):  # a notebook's cell
        file = Path()
    if file.suffix == ".py" and file.is_file() and kind.__qualname__.isidentifier():
        name = f"{os.path.abspath(file)}:{kind.__qualname__}"
        if _can_be_listed(name.rpartition(":")[0]):
            accept_agent(name)
    _given[name] = kind
    return name


def load_file_agent(name: str) -> Any:
    """What a name of a file and a class, or of a class that was given, stands for. Raises `UserError`."""
    if name in _given:
        return _given[name]
    if is_given_class(name):
        raise UserError(
            f"the agent {make_agent_label(name)} is a class that lies in no file: only the program that has it can go "
            "on with this run (xtx.resume(run, agent=...)); put it into a file to use it everywhere"
        )
    path, kind = split_file_agent(name) or (Path(name), "")
    file, accepted = Path(os.path.abspath(path.expanduser())), _read_accepted_files()
    if not file.is_file():
        file = Path(_read_moves().get(str(file), file))
    if not file.is_file():
        raise UserError(
            f"the agent {kind} should be in {file}, but there is no such file; put it back there, or say where it is "
            f"now: xtx resume RUN --agent FILE.py:{kind}"
        )
    if str(file) not in accepted:
        raise UserError(
            f"the agent of this run is in {file}, which was never named on this machine; if you trust that file, name "
            f"it once: {format_command('agents', f'{file}:{kind}')}"
        )
    module = _load_module(file)
    if not hasattr(module, kind):
        names = [n for n, one in vars(module).items() if isinstance(one, type) and issubclass(one, Agent)]
        own = ", ".join(n for n in names if getattr(module, n).__module__ == module.__name__)
        raise UserError(f"{file} has no class {kind}; " + (f"it has: {own}" if own else "it has no agent at all"))
    return getattr(module, kind)


def _load_module(file: Path) -> ModuleType:
    """Run the file once; it may import what lies beside it, after everything that is installed."""
    try:
        key = f"{file}\0{file.stat().st_mtime_ns}"
        name = f"xtx_agent_{hashlib.blake2b(key.encode('utf-8', 'surrogateescape'), digest_size=8).hexdigest()}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UserError(f"{file} cannot be loaded as Python")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up there
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror or error})") from None
    except SyntaxError as error:
        raise UserError(f"{file} is not Python: line {error.lineno}: {error.msg}") from None
    except Exception as error:
        raise UserError(f"{file} fails at line {_find_line(error, file)}: {type(error).__name__}: {error}") from error


def _find_line(error: BaseException, file: Path) -> int:
    """The last line of the file that was at work when the error came."""
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else 0
