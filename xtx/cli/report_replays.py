"""The best episodes of runs, played again for a report, so that they can be read with the game's answers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xtx.cli.agent_loading import PlayOptions, set_up_game_of
from xtx.core import EpisodeRecord, UserError
from xtx.report.data.load_runs import RunData
from xtx.runs.viewer_files import LONGEST_TEXT, Turn

if TYPE_CHECKING:
    from xtx.play.played_game import GameSession

MOST_GAMES = 4
"""Games that are kept open for the next run; each is a process."""


class Replays:
    """Plays with each game's own process, so that a story that hangs or dies takes nothing else along."""

    def __init__(self) -> None:
        self._tables: dict[str, GameSession | None] = {}
        self._known: dict[tuple[str, str, int], Sequence[Turn]] = {}

    def find(self, run: RunData) -> Sequence[Turn]:
        """The turns of the run's best episode; none if the game is not here, or if it does not come out the same."""
        best = run.digest.best
        if best is None or not best.actions:
            return ()
        key = (str(run.folder), run.config.game, best.step)
        if key not in self._known:
            if len(self._known) > 1000:  # a live view that is left open for weeks
                self._known.clear()
            self._known[key] = self._play(run, best)
        return self._known[key]

    def _play(self, run: RunData, best: EpisodeRecord) -> Sequence[Turn]:
        table = self._table(run)
        if table is None:
            return ()
        try:
            return _replay(table, best)
        except UserError:
            return ()

    def _table(self, run: RunData) -> GameSession | None:
        game = run.config.game
        if game not in self._tables:
            if len(self._tables) >= MOST_GAMES:
                self.close()
            self._tables[game] = _open(run)
        return self._tables[game]

    def close(self) -> None:
        """Frees the games."""
        with contextlib.ExitStack() as stack:
            for table in self._tables.values():
                if table is not None:
                    stack.callback(table.close)
            self._tables = {}


def _open(run: RunData) -> GameSession | None:
    from xtx.games.vector.isolated_game import GuardedGame
    from xtx.play.played_game import GameSession

    try:
        game_setup = set_up_game_of(run.config, PlayOptions(no_atlas=True))
        # Nothing is searched: the actions are known.
        spec = replace(game_setup.spec, search=False, atlas=None)
        return GameSession(spec, lambda spec: GuardedGame(spec, lambda line: None))
    except (UserError, OSError, ValueError):  # a game's name may be anything
        return None


def _replay(table: GameSession, best: EpisodeRecord) -> Sequence[Turn]:
    table.seed = best.seed
    scene = table.begin()
    turns = [Turn("", "", scene.text[:LONGEST_TEXT], scene.score, 0)]
    for number, action in enumerate(best.actions, start=1):
        if scene.over:  # another story than the run's
            return ()
        scene, _ = table.move(action)
        ended = best.ended if number == len(best.actions) else ""
        turns.append(Turn(action, "", scene.text[:LONGEST_TEXT], scene.score, number, ended))
    return turns if scene.score == best.score else ()
