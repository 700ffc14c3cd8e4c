"""Calls functions in child processes, several at once: a story that ends its process costs that call only.

The processes are started as programs, not forked, because the caller may have threads. A function is sent as the names
of its module and itself, arguments and result are pickled, and the function gets a callback to report progress.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import os
import pickle
import selectors
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from xtx.core import UserError
from xtx.processes.child_processes import describe_end, set_up_emulator_process, start_child
from xtx.processes.cpu_count import list_usable_processors
from xtx.processes.out_of_memory import explain_lack_of_memory

Report = Callable[[int, int], None]
"""The callback that every called function gets as its first argument: how much is done, and how much there is."""

PATIENCE = 60.0
"""Limits the seconds of a call that opens a story and plays its walkthrough, which takes a second or two."""
_LENGTH = struct.Struct("<Q")
"""The header of every message: its length in bytes."""
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from xtx.processes.isolated_calls import main; main()"
_READ_SIZE = 1 << 16
_MOMENT = 1.0
"""Seconds between two calls of `on_wait`."""


@dataclass(frozen=True)
class ChildCall:
    """A call that is made in a child process."""

    function: Callable[..., Any]
    """A function at module level; its first argument is a `Report`."""
    arguments: tuple[Any, ...]
    name: str
    """The subject of the call, for error messages."""


@dataclass(frozen=True)
class Progressed:
    """A call reported progress."""

    number: int
    """Index of the call."""
    done: int
    total: int


@dataclass(frozen=True)
class Finished:
    """A call returned. For each call there is exactly one event `Finished` or `Failed`."""

    number: int
    result: Any


@dataclass(frozen=True)
class Failed:
    """A call ended with an error that the user can fix, or its process died."""

    number: int
    error: UserError


CallEvent = Progressed | Finished | Failed


@dataclass
class _Child:
    """A running child process."""

    number: int
    call: ChildCall
    process: subprocess.Popen[bytes]
    channel: int
    """The reading end of the pipe for its messages."""
    received: bytearray = field(default_factory=bytearray)

    def end(self) -> int:
        """End the process and return its exit status."""
        os.close(self.channel)
        self.process.kill()
        return self.process.wait()


def call_in_child(function: Callable[..., Any], *arguments: Any, name: str, patience: float | None = None) -> Any:
    """Call a function in a child process and return its result.

    name: subject of the call, for error messages. patience: seconds that it may take; None for no limit. Raises
    `UserError` if the function does, if the process dies, or if it takes too long.
    """
    for event in run_in_children([ChildCall(function, arguments, name)], 1, patience):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished):
            return event.result
    raise AssertionError("a call must end")


def run_in_children(
    calls: Sequence[ChildCall],
    at_once: int | None = None,
    patience: float | None = None,
    on_wait: Callable[[], None] | None = None,
) -> Iterator[CallEvent]:
    """Make calls in child processes and yield their events as they come. Closing the iterator ends all processes.

    at_once: most processes at a time; one for each processor if not given. patience: seconds without any message after
    which the running calls fail; None for no limit. on_wait: called about once a second while there is no message.
    """
    max_running = at_once or len(list_usable_processors())
    waiting = list(enumerate(calls))[::-1]
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < max_running:
                    child = _start(*waiting.pop())
                    running[child.number] = child
                    selector.register(child.channel, selectors.EVENT_READ, child)
                ready = _await_messages(selector, patience, on_wait)
                for child in ready or list(running.values()):
                    for event in _receive(child) if ready else [_give_up(child, patience)]:
                        if not isinstance(event, Progressed):
                            selector.unregister(child.channel)
                            running.pop(child.number).end()
                        yield event
        finally:
            for child in running.values():
                child.end()


def _await_messages(
    selector: selectors.BaseSelector, patience: float | None, on_wait: Callable[[], None] | None
) -> list[_Child]:
    """Return the children that sent something; none if none did for `patience` seconds."""
    deadline = math.inf if patience is None else time.monotonic() + patience
    while True:
        left = deadline - time.monotonic()
        ready = [key.data for key, _ in selector.select(min(left, _MOMENT))]
        if ready or left <= 0:
            return ready
        if on_wait is not None:
            on_wait()


def _start(number: int, call: ChildCall) -> _Child:
    read_end, write_end = os.pipe()
    request = pickle.dumps((call.function.__module__, call.function.__qualname__, call.arguments))
    root = str(Path(__file__).parents[2])
    try:
        process = start_child(
            [sys.executable, "-P", "-c", _PROGRAM, root, str(write_end), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(write_end,),
            process_group=0,  # so that the terminal's Ctrl-C goes to the parent only
        )
    finally:
        os.close(write_end)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(request)
    return _Child(number, call, process, read_end)


class _ResultReader(pickle.Unpickler):
    """Unpickles what a child sends: plain values and dataclasses of this package, nothing else.

    The child ran a story in libfrotz, so its memory may have been overwritten: it must not be able to name functions
    that the parent calls.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return the dataclass of this name. Raises `UnpicklingError` for anything else."""
        found = getattr(importlib.import_module(module), name, None) if module.startswith("xtx.") else None
        if not (isinstance(found, type) and is_dataclass(found)):
            raise pickle.UnpicklingError(f"a child process sent {module}.{name}, which is no result")
        return found


def _receive(child: _Child) -> Iterator[CallEvent]:
    """Read from a child and yield the events; `Failed` if it ended without a result."""
    content = os.read(child.channel, _READ_SIZE)
    child.received += content
    while len(child.received) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(child.received)[0]
        if len(child.received) < end:
            break
        try:
            kind, value = _ResultReader(io.BytesIO(child.received[_LENGTH.size : end])).load()
        except Exception as error:  # a damaged process may send any bytes
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
            sys.stderr.write(value)  # an error in this program: printed, and no reason to lose the other calls
            yield Failed(child.number, UserError(f"{child.call.name}: {value.strip().splitlines()[-1]}"))
            return
    if not content:
        why = f"the emulator's process {describe_end(child.process.wait())}"
        yield Failed(child.number, UserError(f"{child.call.name}: {why}"))


def _give_up(child: _Child, patience: float | None) -> CallEvent:
    return Failed(child.number, UserError(f"{child.call.name}: the emulator showed no sign of life for {patience:g} s"))


def main() -> None:
    """Make one call, as a child process. Arguments: the descriptor of the pipe for messages, and the parent's id."""
    channel, parent = map(int, sys.argv[1:3])
    set_up_emulator_process(parent)
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
