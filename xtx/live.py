"""Progress displays in the terminal, which are redrawn in place while a task runs and removed afterwards."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.status import Status

_LINE_EVERY = 5.0
"""Seconds between lines of progress if the output is not a terminal; few enough lines for a log file."""


class LiveShow:
    """Base class of displays that are redrawn in place. Within `with`, `_live` is the region of the terminal, or None
    if
    the output is not a terminal or the display is `quiet`."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class SurveyProgress:
    """Shows the progress of the survey of a story, within `with`. Without a survey nothing is shown."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._status: Status | None = None
        self._began = self._printed = 0.0
        self._first = 0.0

    def __call__(self, share: float) -> None:
        """Show the share that is done, from 0 to 1, and an estimate of the time left."""
        now = time.monotonic()
        if not self._began:
            self._began, self._first, self._printed = now, share, now
        done = share - self._first
        left = f", about {(now - self._began) * (1 - share) / done:.0f} s left" if done > 0.02 else ""
        line = f"surveying the story's memory, once for each story: {share:.0%}{left}"
        if self._quiet:
            return
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status(line, spinner="dots")
                self._status.start()
            self._status.update(line)
        elif now - self._printed > _LINE_EVERY:
            self._printed = now
            self._console.print(line, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
