"""Sets up processes that were started as children of this program, and describes how a process ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_PR_SET_PDEATHSIG = 1
"""The operation of prctl(2) that sets the signal at the parent's end."""


def start_child(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that may call `end_with_parent`. The options are those of `subprocess.Popen`.

    The signal of `end_with_parent` comes when the *thread* that started the process ends. So threads other than the
    main one let a thread start it that lasts as long as this program.
    """

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, **options)

    in_main_thread = threading.current_thread() is threading.main_thread()
    return start() if in_main_thread else _get_lasting_thread().submit(start).result()


@cache
def _get_lasting_thread() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "xtx-child-processes")


os.register_at_fork(after_in_child=_get_lasting_thread.cache_clear)  # a fork has no other threads


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL, status: int = 1) -> None:
    """Ask the kernel, on Linux, to send this process a signal when its parent ends.

    parent: the parent's process id; number: the signal; status: exit status of this process if the parent has ended
    already. The parent must have used `start_child`.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the request
        os._exit(status)


def set_up_emulator_process(parent: int) -> None:
    """Set up a process that runs stories: it ends with its parent, ignores Ctrl-C, and hides what libfrotz prints."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    # libfrotz prints to the terminal; only this program's messages still go there.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def describe_end(code: int) -> str:
    """Return a description of how a process ended, from its return code, which is negative for a signal."""
    if code >= 0:
        return f"ended with status {code}"
    if -code == signal.SIGVTALRM:  # emulator/jericho_library.py
        return "was ended, since the story's opening does not end"
    return f"died of {name_signal(-code)}"


def name_signal(number: int) -> str:
    """Return the name of a signal, such as SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
