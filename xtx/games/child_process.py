"""Calls functions in processes of their own, several at once: a story that ends its process costs that call only.

The processes are started as programs and not forked, because the caller may have threads. A function is named by its
module, its arguments and its result are pickled, and it is given a callback with which it reports progress.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from xtx.core import UserError
from xtx.cpu_count import usable_processors
from xtx.out_of_memory import explain_lack_of_memory

Report = Callable[[int, int], None]
"""Given to every function that is called here: how much is done, of how much."""

PATIENCE = 60.0
"""Seconds in which a call that opens a story and plays its walkthrough must end; it takes a second or two."""
_LENGTH = struct.Struct("<Q")
"""In front of every message: its length."""
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from xtx.games.child_process import main; main()"
_READ_SIZE = 1 << 16


@dataclass(frozen=True)
class ChildCall:
    """One call in a process of its own."""

    function: Callable[..., Any]
    """At the top of a module; its first argument is the `Report`."""
    arguments: tuple[Any, ...]
    name: str
    """What it is about, for error messages."""


@dataclass(frozen=True)
class Progressed:
    """Some of a call is done."""

    number: int
    """Which of the calls."""
    done: int
    total: int


@dataclass(frozen=True)
class Finished:
    """A call is done; exactly one of these or of `Failed` comes for each."""

    number: int
    result: Any


@dataclass(frozen=True)
class Failed:
    """A call ended with an error that the user can fix, or its process died."""

    number: int
    error: UserError


Event = Progressed | Finished | Failed


@dataclass
class _Child:
    number: int
    call: ChildCall
    process: subprocess.Popen[bytes]
    channel: int
    """The reading end of the pipe for its messages."""
    received: bytearray = field(default_factory=bytearray)

    def end(self) -> int:
        os.close(self.channel)
        self.process.kill()
        return self.process.wait()


def call_in_child(function: Callable[..., Any], *arguments: Any, name: str, patience: float | None = None) -> Any:
    """What a function returns that is called in a process of its own. Raises `UserError` if it does, if the process
    dies, or if it takes longer than so many seconds."""
    for event in run_in_children([ChildCall(function, arguments, name)], 1, patience):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished):
            return event.result
    raise AssertionError("a call must end")


def run_in_children(
    calls: Sequence[ChildCall], at_once: int | None = None, patience: float | None = None
) -> Iterator[Event]:
    """Progress and results of all calls as they come. When the caller stops listening, all processes are ended.

    `at_once`: how many processes there may be; one for each processor if not given. `patience`: seconds without any
    message after which those that run are given up; None waits for ever.
    """
    most = at_once or len(usable_processors())
    waiting = list(enumerate(calls))[::-1]
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    child = _start(*waiting.pop())
                    running[child.number] = child
                    selector.register(child.channel, selectors.EVENT_READ, child)
                ready = [key.data for key, _ in selector.select(patience)]
                for child in ready or list(running.values()):
                    for event in _receive(child) if ready else [_give_up(child, patience)]:
                        if not isinstance(event, Progressed):
                            selector.unregister(child.channel)
                            running.pop(child.number).end()
                        yield event
        finally:
            for child in running.values():
                child.end()


def _start(number: int, call: ChildCall) -> _Child:
    ours, theirs = os.pipe()
    request = pickle.dumps((call.function.__module__, call.function.__qualname__, call.arguments))
    root = str(Path(__file__).parents[2])
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, root, str(theirs), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs,),
            process_group=0,  # so that the terminal's Ctrl-C goes to the parent only
        )
    finally:
        os.close(theirs)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(request)
    return _Child(number, call, process, ours)


class _ResultReader(pickle.Unpickler):
    """Reads what a child sends: plain values and the project's own dataclasses, and nothing else. A child ran a story
    in libfrotz, so its memory may have been overwritten: it must not name functions for the parent to call."""

    def find_class(self, module: str, name: str) -> Any:
        """The dataclass of that name; `UnpicklingError` for anything else."""
        found = getattr(importlib.import_module(module), name, None) if module.startswith("xtx.") else None
        if not (isinstance(found, type) and is_dataclass(found)):
            raise pickle.UnpicklingError(f"a child process sent {module}.{name}, which is no result")
        return found


def _receive(child: _Child) -> Iterator[Event]:
    """The events in what has come from a process; `Failed` if it ended without a result."""
    content = os.read(child.channel, _READ_SIZE)
    child.received += content
    while len(child.received) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(child.received)[0]
        if len(child.received) < end:
            break
        try:
            kind, value = _ResultReader(io.BytesIO(child.received[_LENGTH.size : end])).load()
        except Exception as error:  # whatever bytes a damaged process may send
            yield Failed(child.number, UserError(f"{child.call.name}: its process sent a damaged result ({error})"))
            return
        del child.received[:end]
        if kind == "progress":
            yield Progressed(child.number, *value)
        elif kind == "result":
            yield Finished(child.number, value)
            return
        elif kind == "user":
            yield Failed(child.number, UserError(value))
            return
        else:
            sys.stderr.write(value)  # a mistake of ours: to be seen, and no reason to lose the other calls
            yield Failed(child.number, UserError(f"{child.call.name}: {value.strip().splitlines()[-1]}"))
            return
    if not content:
        yield Failed(child.number, UserError(f"{child.call.name}: {_describe_death(child.process.wait())}"))


def _give_up(child: _Child, patience: float | None) -> Event:
    return Failed(child.number, UserError(f"{child.call.name}: the emulator showed no sign of life for {patience:g} s"))


def _describe_death(code: int) -> str:
    if code >= 0:
        return f"the emulator's process ended with status {code}; nothing else is affected"
    with contextlib.suppress(ValueError):
        return f"the emulator's process died of {signal.Signals(-code).name}; nothing else is affected"
    return f"the emulator's process died of signal {-code}; nothing else is affected"


def main() -> None:
    """The process of one call. Arguments: the number of the pipe for its messages, and of its parent."""
    from xtx.games.worker import die_with

    channel, parent = map(int, sys.argv[1:3])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    # libfrotz writes its complaints to the terminal; ours still go there.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with os.fdopen(channel, "wb") as pipe, contextlib.suppress(BrokenPipeError):

        def send(kind: str, value: Any) -> None:
            body = pickle.dumps((kind, value))
            pipe.write(_LENGTH.pack(len(body)) + body)
            pipe.flush()

        try:
            module, name, arguments = pickle.loads(sys.stdin.buffer.read())
            function = getattr(importlib.import_module(module), name)
            send("result", function(lambda done, total: send("progress", (done, total)), *arguments))
        except UserError as error:
            send("user", str(error))
        except Exception as error:
            lacking = explain_lack_of_memory(error)
            send("user" if lacking else "error", lacking or traceback.format_exc())
