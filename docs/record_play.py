"""Records docs/play.svg, the picture in the README: a real session of `xtx play`, typed by this script.

.venv/bin/python docs/record_play.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from xtx.games.atlas.store import find_default_path
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.story_game import GameSpec
from xtx.play.interactive import InteractivePlay, Keyboard
from xtx.play.played_game import PlayedGame
from xtx.play.screen import Screen

COMMANDS = ("/actions", "down", "/undo", "north")
"""The opening, what could be done, and one wrong turn, taken back."""


class Typist(Keyboard):
    """Types the commands, as a person would."""

    def __init__(self, console: Console) -> None:
        self.interactive = True  # what is typed shows on the screen
        self._console = console
        self._commands = iter(COMMANDS)

    def complete(self, words: list[str]) -> None:
        """Needs no help."""

    def read(self) -> str:
        command = next(self._commands, None)
        if command is None:
            raise EOFError
        self._console.print(Text.assemble("> ", (command, "bold")))
        return command

    def close(self) -> None:
        """Leaves the user's history alone."""


def main() -> None:
    """Writes the picture."""
    console = Console(
        record=True, width=80, file=io.StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False,
        legacy_windows=False, color_system="truecolor",
    )  # fmt: skip
    played = PlayedGame(
        GameSpec(str(find_story(find_default_game()).path), atlas=str(find_default_path()), search=False)
    )
    played.begin()
    played.observe()  # so that the picture does not speak of the first time
    InteractivePlay(played, Screen(console), Typist(console)).run()
    played.close()
    print(console.export_text(clear=False))
    path = Path(__file__).with_name("play.svg")
    picture = console.export_svg(title="xtx play", font_aspect_ratio=0.61, unique_id="play")
    # Without the fonts from elsewhere that rich asks for: any font of fixed width will do.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL), "utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
