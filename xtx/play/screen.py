"""What is shown while playing: on the screen, and in the transcript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.columns import Columns
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from xtx.core import UserError
from xtx.play.played_game import Scene

MAX_WIDTH = 100
"""Longer lines are hard to read."""

_SCORE_NOTE = re.compile(r"^\[.*\bscore\b.*\]$", re.MULTILINE)
_ENDING = re.compile(r"^\s*\*\*\*.*\*\*\*\s*$", re.MULTILINE)


class Screen:
    """A console and, if wanted, a transcript; independent of the game."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self._transcript: TextIO | None = None

    @property
    def width(self) -> int:
        """Columns that are written in."""
        return min(self.console.width, MAX_WIDTH)

    # --- the story ----------------------------------------------------------------------------------------------

    def show_scene(self, scene: Scene, max_score: int) -> None:
        """Shows a scene: the narration and the status line."""
        self.show_narration(scene)
        self.show_status(scene, max_score)

    def show_narration(self, scene: Scene) -> None:
        """Shows the narration, and how the score changed."""
        text = Text(scene.text)
        if scene.room:
            text.highlight_regex(rf"(?m)^{re.escape(scene.room)}(, .*|\s*\(.*\))?$", "bold")
        text.highlight_regex(_SCORE_NOTE, "dim")
        text.highlight_regex(_ENDING, "bold")
        lines = text.wrap(self.console, self.width)
        for line in lines:
            line.rstrip()
        self._print(Text(""), *lines)
        self._write(f"\n{scene.text}\n")
        if scene.reward:
            self._print(Text(format_points(scene.reward, "+"), "bold green" if scene.reward > 0 else "bold red"))

    def show_status(self, scene: Scene, max_score: int) -> None:
        """Shows room, score and moves in one line."""
        line = make_status_line(scene.room, scene.score, max_score, scene.moves, self.width)
        # Where there are no colours the brackets tell it from the story.
        plain = not self.console.is_terminal
        self._print(Text(""), Text(f"[{line.strip()}]" if plain else line, "reverse", no_wrap=True, overflow="crop"))

    def show_command(self, command: str, phase: str = "") -> None:
        """Shows a command that was not typed on this screen."""
        self._print(Text.assemble("> ", (command, "bold cyan"), (f"  ({phase})" if phase else "", "dim")))

    def show_thoughts(self, line: str) -> None:
        """Shows the likeliest actions of the agent that plays."""
        self._print(Text(f"  {line}", "dim"))

    def write_command(self, command: str) -> None:
        """Writes a command into the transcript."""
        self._write(f"\n> {command}\n")

    # --- the program's own words --------------------------------------------------------------------------------

    def show_note(self, line: str, *, keep: bool = False) -> None:
        """Shows a line that is not the story's; `keep` also writes it into the transcript."""
        self._print(Text(line, "yellow"))
        if keep:
            self._write(f"\n[{line}]\n")

    def show_words(self, words: Sequence[str]) -> None:
        """Shows a list in columns."""
        self._print(Columns([Text(word, "cyan") for word in words], padding=(0, 3), column_first=True))

    def show_pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Shows names and what they mean."""
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column()
        for name, meaning in pairs:
            grid.add_row(name, meaning)
        self._print(grid)

    @contextmanager
    def show_progress(self, line: str) -> Iterator[Callable[[float], None]]:
        """Shows a line while something takes its time. Gives a function that takes the share that is done."""
        if self.console.is_terminal:
            with self.console.status(Text(line, "yellow"), spinner="dots") as status:
                yield lambda share: status.update(Text(f"{line} {share:.0%}", "yellow"))
        else:
            self.show_note(line)
            yield lambda share: None

    # --- the transcript -----------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether there is a transcript."""
        return self._transcript is not None

    def open_transcript(self, path: Path) -> None:
        """From now on the game is also written to the end of a file. Raises `UserError`."""
        try:
            opened = path.expanduser().open("a", encoding="utf-8", buffering=1)
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UserError(f"no transcript can be written to {path} ({reason}); name another file") from None
        self.close_transcript()
        self._transcript = opened

    def close_transcript(self) -> None:
        """Ends the transcript, if there is one."""
        transcript, self._transcript = self._transcript, None
        if transcript is not None:
            transcript.close()

    def close(self) -> None:
        """Ends the transcript; there is nothing else to free."""
        self.close_transcript()

    def _write(self, text: str) -> None:
        if self._transcript is None:
            return
        try:
            self._transcript.write(text)
        except OSError as error:
            broken, self._transcript = self._transcript, None
            self.show_note(f"The transcript ends here: {broken.name} cannot be written ({error.strerror}).")

    def _print(self, *parts: object) -> None:
        self.console.print(*parts, sep="\n", width=self.width)


def format_points(number: int, sign: str = "") -> str:
    """A number of points, in words; with the sign "+" it is a change."""
    return f"{number:{sign}d} {'point' if abs(number) == 1 else 'points'}"


def make_status_line(room: str, score: int, max_score: int, moves: int, width: int) -> str:
    """Room at the left, score and moves at the right, in exactly `width` columns; less of it where they are few."""
    count = f"{moves} {'move' if moves == 1 else 'moves'}"
    for right in (f"score {score}/{max_score}   {count}", f"{score}/{max_score}  {count}", f"{score}/{max_score}"):
        space = width - len(right) - 3
        if len(room) <= space or right == f"{score}/{max_score}":
            break
    if len(room) > space:
        room = room[: max(space - 1, 0)] + "…" if space > 1 else ""
    return f" {room}{' ' * max(space - len(room), 0)} {right} "[:width].ljust(width)
