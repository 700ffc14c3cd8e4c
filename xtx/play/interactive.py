"""Playing by hand: commands are the game's, except those that begin with a slash."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xtx.agents.decisions import decide
from xtx.core import Agent, Observation, UserError
from xtx.games.catalog.known_games import find_user_folder
from xtx.games.zmachine.typed_input import describe_fault, find_interpreter_word, make_plain_command
from xtx.play.agent_advice import list_likeliest
from xtx.play.played_game import PlayedGame
from xtx.play.saved_games import SavedGame, find_path, list_saved_games, read_save, write_save
from xtx.play.screen import Screen, format_points

_HISTORY = 1000

_INSTEAD = {
    "save": "/save NAME saves the game here.",
    "restore": "/load NAME loads a saved game here.",
    "restart": "/restart begins anew here.",
    "undo": "/undo takes back a move here.",
    "quit": "/quit ends the game here.",
    "q": "/quit ends the game here.",
}
"""Answers to commands of other interpreters (save, undo, ...): here they begin with a slash."""


@dataclass(frozen=True)
class _Command:
    usage: str
    help: str
    run: Callable[[str], None]


class Keyboard:
    """Where the commands come from: a person with a line editor, or a file or pipe."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._history: Path | None = None
        if self.interactive:
            self._history = find_user_folder().parent / "history"
            # Only here: it writes to the terminal as soon as it is loaded.
            import readline

            readline.set_history_length(_HISTORY)
            with contextlib.suppress(OSError):
                readline.read_history_file(self._history)

    def complete(self, words: list[str]) -> None:
        """Lets the tabulator key complete these words."""
        if not self.interactive:
            return
        import readline

        def complete_word(start: str, number: int) -> str | None:
            return [*(word for word in words if start and word.startswith(start)), None][number]

        readline.set_completer(complete_word)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete")

    def read(self) -> str:
        """The next line. Raises `EOFError` after the last one."""
        return input("> ") if self.interactive else self._read_line()

    def close(self) -> None:
        """Keeps the history for the next time."""
        if self._history is not None:
            import readline

            with contextlib.suppress(OSError):
                self._history.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(self._history)

    @staticmethod
    def _read_line() -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


class InteractivePlay:
    """Reads lines from the keyboard and carries them out: commands of the game, and those that begin with a slash."""

    def __init__(self, played: PlayedGame, screen: Screen, keyboard: Keyboard, adviser: Agent | None = None) -> None:
        """`adviser`: the agent that answers `/hint`."""
        self._played = played
        self._screen = screen
        self._keyboard = keyboard
        self._adviser = adviser
        self._done = False
        self._commands = {
            "actions": _Command("/actions", "show the actions that would change something here", self._show_actions),
            "hint": _Command("/hint", "show what a trained agent would do here (needs --hint RUN)", self._show_hint),
            "undo": _Command("/undo [N]", "take back the last move, or the last N", self._undo),
            "save": _Command("/save NAME", "save the game", self._save),
            "load": _Command("/load [NAME]", "load a saved game, or show which there are", self._load),
            "restart": _Command("/restart", "begin anew", self._restart),
            "transcript": _Command(
                "/transcript [FILE]",
                "write all that follows to a file too, or stop that",
                self._transcribe,
            ),
            "help": _Command("/help", "show this", self._show_help),
            "quit": _Command("/quit", "end; Ctrl-D does so too", self._quit),
        }

    def run(self) -> int:
        """Play until the game is left. Returns the exit status: 0, or 130 after Ctrl-C."""
        screen, played = self._screen, self._played
        self._keyboard.complete([f"/{name}" for name in self._commands])
        screen.show_note(
            f"{played.name}, {format_points(played.max_score)}. /help lists the commands beside the game's own."
        )
        screen.show_scene(played.begin(), played.max_score)
        status = 0
        try:
            while not self._done:
                self.carry_out(self._keyboard.read())
        except EOFError:
            self._end_line()
        except KeyboardInterrupt:
            self._end_line()
            status = 130
        finally:
            self._keyboard.close()
        scene = played.scene
        moves = f"{scene.moves} {'move' if scene.moves == 1 else 'moves'}"
        screen.show_note(f"You leave with {scene.score} of {played.max_score} points after {moves}.", keep=True)
        return status

    def carry_out(self, typed: str) -> None:
        """Does what was typed."""
        command = make_plain_command(typed)
        if not self._keyboard.interactive:
            self._screen.show_command(command)
        if command.startswith("/"):
            self._run_command(typed.strip())  # names of files may hold any letter
            return
        reason = describe_fault(command)
        word = find_interpreter_word(command)
        if reason or word:
            self._screen.show_note(reason or _INSTEAD.get(word, "/transcript FILE writes a transcript here."))
        elif self._played.scene.over:
            self._screen.show_note(
                "The game is over: /undo takes back the last move, /restart begins anew, /quit ends."
            )
        else:
            self._screen.write_command(command)
            scene, _ = self._played.move(command)
            self._screen.show_scene(scene, self._played.max_score)
            if scene.over:
                self._screen.show_note("The end. /undo takes back the last move, /restart begins anew, /quit ends.")
            elif scene.wants_key:
                self._screen.show_note("(The game waits for a key: Enter goes on.)")

    def _end_line(self) -> None:
        if self._keyboard.interactive:
            self._screen.console.print()

    # --- slash-commands -----------------------------------------------------------------------------------------

    def _run_command(self, typed: str) -> None:
        name, _, rest = typed[1:].partition(" ")
        command = self._commands.get(name.lower())
        if command is None:
            close = difflib.get_close_matches(name.lower(), self._commands, n=1)
            hint = f"did you mean /{close[0]}?" if close else "/help lists the commands"
            self._screen.show_note(f"There is no command /{name}; {hint}")
            return
        try:
            command.run(rest.strip())
        except UserError as error:
            self._screen.show_note(" ".join(str(error).split()))

    def _show_actions(self, _: str) -> None:
        if self._played.scene.over:
            self._screen.show_note("The game is over: nothing would change.")
            return
        seen = self._look_around()
        if seen is not None:
            self._screen.show_words(seen.actions)

    def _show_hint(self, _: str) -> None:
        if self._adviser is None:
            raise UserError("There is no agent to ask: begin with --hint RUN, the folder of a trained agent's run.")
        if self._played.scene.over:
            self._screen.show_note("The game is over: there is nothing to do.")
            return
        seen = self._look_around()
        if seen is None:
            return
        insight = self._adviser.insight(seen, self._played.previous)
        likeliest = list_likeliest(insight)
        if likeliest:
            phase = f" (phase: {insight.phase})" if insight.phase else ""
            self._screen.show_note(f"The agent would now{phase}:")
            self._screen.show_pairs([(share, action) for action, share in likeliest])
        else:  # one that only acts and has no probabilities to show
            [decision] = decide(self._adviser, [seen])
            self._screen.show_note(f"The agent would now: {decision.action}")

    def _look_around(self) -> Observation | None:
        """What an agent sees here; None if Ctrl-C stopped the search."""
        first = "" if self._played.is_prepared else " (for the first time, so it takes a while; Ctrl-C stops it)"
        try:
            with self._screen.show_progress(f"looking...{first}"):
                return self._played.observe()
        except KeyboardInterrupt:
            self._screen.show_note("Stopped looking.")
            return None

    def _undo(self, rest: str) -> None:
        if rest and not (rest.isascii() and rest.isdigit() and int(rest)):
            raise UserError("How many moves? /undo takes back one, /undo 3 takes back three.")
        undone = self._played.undo(int(rest or 1))
        if not undone:
            self._screen.show_note("There is nothing to take back.")
            return
        self._screen.show_note("One move taken back." if undone == 1 else f"{undone} moves taken back.", keep=True)
        self._screen.show_status(self._played.scene, self._played.max_score)

    def _save(self, name: str) -> None:
        if not name:
            raise UserError("Under which name? /save NAME")
        played, scene = self._played, self._played.scene
        if scene.over:
            raise UserError("The game is over: there is nothing to save.")
        saved = SavedGame(played.md5, played.save(), scene.room, scene.score, scene.moves)
        path = write_save(played.name, name, saved)
        self._screen.show_note(f"Saved as {name} ({path}).")

    def _load(self, name: str) -> None:
        if not name:
            names = list_saved_games(self._played.name)
            self._screen.show_note("Saved games, the latest first:" if names else "There are no saved games yet.")
            self._screen.show_words(names)
            return
        saved = read_save(self._played.name, name, self._played.md5)
        try:
            scene = self._played.load(saved.state)
        except UserError as error:
            raise UserError(
                f"{find_path(self._played.name, name)} cannot be used: {error}; nothing was loaded"
            ) from None
        self._screen.show_note(f"Loaded {name}.", keep=True)
        self._screen.show_scene(scene, self._played.max_score)

    def _restart(self, _: str) -> None:
        scene = self._played.restart()
        self._screen.show_note("Begun anew.", keep=True)
        self._screen.show_scene(scene, self._played.max_score)

    def _transcribe(self, name: str) -> None:
        if name:
            self._screen.open_transcript(Path(name))
            self._screen.show_note(f"Writing to {name}; /transcript stops that.")
        elif self._screen.is_writing:
            self._screen.close_transcript()
            self._screen.show_note("The transcript is closed.")
        else:
            raise UserError("To which file? /transcript FILE")

    def _show_help(self, _: str) -> None:
        self._screen.show_pairs([(command.usage, command.help) for command in self._commands.values()])
        self._screen.show_note("Everything else is said to the game: look, inventory, north, take lamp ...")

    def _quit(self, _: str) -> None:
        self._done = True
