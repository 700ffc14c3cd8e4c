"""Stopping a run on Ctrl-C or SIGTERM: the step under way is finished and the run saved."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Stop:
    """Whether the user asked to stop, and whether that can be done at once."""

    def __init__(self) -> None:
        self.is_requested = False
        self.is_immediate = False
        self.show: Callable[[], bool] = lambda: False
        """Shows at once that a stop was asked for; False if it cannot. Called in a signal handler."""

    @contextlib.contextmanager
    def allow_immediate_stop(self) -> Iterator[None]:
        """For what leaves nothing to be saved: Ctrl-C ends it at once."""
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_immediate = True
        try:
            yield
        finally:
            self.is_immediate = False


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Within `with`, Ctrl-C or SIGTERM asks the loop to save and stop; a second Ctrl-C ends it at once.

    Outside of the main thread, where Python allows no signal handlers, nothing asks to stop. SIGTERM may come more than
    once: when a sweep with several threads is killed, the kernel sends it for each thread that was the run's parent.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if (stop.is_requested and number == signal.SIGINT) or stop.is_immediate:
            raise KeyboardInterrupt
        stop.is_requested = True  # before anything that could wait
        is_shown = stop.show()
        if number == signal.SIGINT and not is_shown:  # at once: what is under way may take half a minute
            with contextlib.suppress(OSError):
                os.write(2, b"\nstopping when this is done, and saving; Ctrl-C again ends it at once\n")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
