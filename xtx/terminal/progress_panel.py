"""Progress displays in the terminal, which are redrawn in place while a task runs and removed afterwards."""

from __future__ import annotations

import contextlib
import sys
import termios
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.status import Status

LINE_EVERY = 30.0
"""Seconds between lines about a run, sweep or evaluation if the output is not a terminal."""
_LINE_EVERY = 5.0
"""Seconds between lines of progress if the output is not a terminal; few enough lines for a log file."""


@contextlib.contextmanager
def hide_control_characters() -> Iterator[None]:
    """Within `with`, the terminal does not show `^C` where Ctrl-C is typed: it would stand in the middle of what is
    drawn, and a line that it makes too long moves everything by one."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        hidden = [*before]
        hidden[3] &= ~termios.ECHOCTL
        termios.tcsetattr(descriptor, termios.TCSANOW, hidden)
    except (OSError, ValueError, AttributeError, termios.error):  # no terminal
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


class LivePanel:
    """Base class of displays that are redrawn in place. Within `with`, `_live` is the region of the terminal, or None
    if the output is not a terminal or the display is `quiet`."""

    def __init__(self, console: Console, *, quiet: bool = False, auto_refresh: bool = True) -> None:
        """`auto_refresh`: by a thread of its own, four times a second. Lines that are printed meanwhile may then leave
        parts of what was drawn before, where its height changes."""
        self._console = console
        self._quiet = quiet
        self._auto_refresh = auto_refresh
        self._live: Live | None = None
        self._terminal = contextlib.ExitStack()

    def tell(self, line: str) -> None:
        """A line that stays, above what is drawn."""
        self._console.print(f"xtx: {line}", soft_wrap=not self._console.is_terminal, markup=False)

    def draw(self) -> RenderableType:
        """What is shown at this moment."""
        return ""

    @property
    def is_live(self) -> bool:
        """Whether something is drawn now."""
        return self._live is not None

    def is_kept(self) -> bool:
        """Whether what was drawn last stays on the screen."""
        return False

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._terminal.enter_context(hide_control_characters())
            self._live = Live(
                console=self._console,
                refresh_per_second=4,
                transient=True,
                get_renderable=self.draw,
                auto_refresh=self._auto_refresh,
                vertical_overflow="crop",
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.transient = not self.is_kept()
            self._live.stop()
            self._live = None
        self._terminal.close()


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
            self._console.print(line, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def format_time(seconds: float) -> str:
    """A stretch of time, for people."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole / 3600:.1f} h" if whole < 48 * 3600 else f"{whole / 86400:.1f} days"
