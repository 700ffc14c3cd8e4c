"""The best episodes of runs, played again for a report, so that they can be read with the game's answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xtx.cli.runs.agent_loading import PlayOptions, set_up_game_of
from xtx.core import EpisodeRecord, UserError
from xtx.report.data.load_runs import RunData
from xtx.runs.viewer_files import MAX_TEXT_LETTERS, Turn

if TYPE_CHECKING:
    from xtx.games.game_setup import GameSetup
    from xtx.play.played_game import PlayedGame, Scene

MAX_GAMES = 4
"""Games that are kept open for the next run; each is a process."""


class Replays:
    """Plays with each game's own process, so that a story that hangs or dies takes nothing else along."""

    def __init__(self) -> None:
        self._played_games: dict[str, PlayedGame | None] = {}
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
        played = self._find_game(run)
        if played is None:
            return ()
        try:
            return _replay(played, best)
        except UserError:
            return ()

    def _find_game(self, run: RunData) -> PlayedGame | None:
        game = run.config.game
        if game not in self._played_games:
            if len(self._played_games) >= MAX_GAMES:
                self.close()
            self._played_games[game] = _open(run)
        return self._played_games[game]

    def close(self) -> None:
        """Frees the games."""
        with contextlib.ExitStack() as stack:
            for played in self._played_games.values():
                if played is not None:
                    stack.callback(played.close)
            self._played_games = {}


def open_replay(game_setup: GameSetup, on_report: Callable[[str], None]) -> PlayedGame:
    """Open a game in which known actions are played: nothing is searched."""
    from xtx.games.vector.isolated_game import IsolatedGame
    from xtx.play.played_game import PlayedGame

    spec = replace(game_setup.spec, search=False, atlas=None)
    return PlayedGame(spec, lambda spec: IsolatedGame(spec, on_report))


def replay_scenes(played: PlayedGame, episode: EpisodeRecord) -> Iterator[tuple[str, Scene]]:
    """Yield each action of an episode that is played again with the scene that follows; first the opening scene, with
    an empty action. Ends early where the game does, which is then another story than the run's."""
    played.seed = episode.seed
    scene = played.begin()
    yield "", scene
    for action in episode.actions:
        if scene.over:
            return
        scene, _ = played.move(action)
        yield action, scene


def _open(run: RunData) -> PlayedGame | None:
    try:
        return open_replay(set_up_game_of(run.config, PlayOptions(no_atlas=True)), lambda line: None)
    except (UserError, OSError, ValueError):  # a game's name may be anything
        return None


def _replay(played: PlayedGame, best: EpisodeRecord) -> Sequence[Turn]:
    turns = [
        Turn(action, "", scene.text[:MAX_TEXT_LETTERS], scene.score, number, best.ended * (number == len(best.actions)))
        for number, (action, scene) in enumerate(replay_scenes(played, best))
    ]
    is_whole = len(turns) == len(best.actions) + 1
    return turns if is_whole and turns[-1].score == best.score else ()
