"""Shows how an agent plays a game, move by move."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich.table import Table as Grid

from xtx.agents.decisions import decide
from xtx.core import Agent
from xtx.play.agent_advice import describe_advice
from xtx.play.played_game import PlayedGame
from xtx.play.screen import Screen


@dataclass(frozen=True)
class EpisodeEnd:
    """How an episode ended."""

    score: int
    steps: int
    ending: str


class Watch:
    """An agent at a game, and what became of it."""

    def __init__(
        self,
        played: PlayedGame,
        agent: Agent,
        screen: Screen,
        delay: float = 0.0,
        *,
        seeds: Iterator[int] | None = None,
        thoughts: bool = False,
    ) -> None:
        """`seeds`: the emulator's, one for each episode; if not given, always the game's. `thoughts`: also show which
        actions the agent finds likeliest."""
        self._played = played
        self._agent = agent
        self._screen = screen
        self._delay = delay
        self._seeds = seeds
        self._thoughts = thoughts
        self._results: list[EpisodeEnd] = []

    def run(self, episodes: int, limit: int, limit_words: str = "stopped at the step limit") -> int:
        """The exit status: 0, or 130 if it was interrupted. Each episode ends after `limit` steps at the latest."""
        status = 0
        try:
            for number in range(1, episodes + 1):
                if episodes > 1:
                    self._screen.show_note(f"Episode {number} of {episodes}", keep=True)
                self._play_episode(limit, limit_words)
        except KeyboardInterrupt:
            status = 130
            observation = self._played.observation
            self._results.append(EpisodeEnd(observation.score, observation.step, "interrupted"))
        self._summarise()
        return status

    def _play_episode(self, limit: int, limit_words: str) -> None:
        played, screen = self._played, self._screen
        if self._seeds is not None:
            played.seed = next(self._seeds)
        with screen.show_progress("looking..."):
            scene = played.begin()
        screen.show_scene(scene, played.max_score)
        ending = limit_words
        for number in range(1, limit + 1):
            time.sleep(self._delay)
            if self._thoughts:
                mind = describe_advice(self._agent.insight(played.observation, played.previous))
                if mind:
                    screen.show_thoughts(mind)
            [decision] = decide(self._agent, [played.observation])
            screen.show_command(decision.action, decision.phase)
            screen.write_command(decision.action)
            scene, step = played.move(decision.action, last=number == limit)
            screen.show_scene(scene, played.max_score)
            if step.terminated:
                # Not "lost": stories also end in ways that are neither, and not every victory is recognised.
                ending = "won" if step.won else "the game ended"
                break
        self._results.append(EpisodeEnd(scene.score, played.observation.step, ending))

    def _summarise(self) -> None:
        best = self._played.max_score
        for result in self._results[:1]:
            if len(self._results) == 1:
                steps = f"{result.steps} {'step' if result.steps == 1 else 'steps'}"
                self._screen.show_note(f"{result.ending}: {result.score} of {best} points after {steps}", keep=True)
                return
        grid = Grid("episode", "score", "steps", "ending", box=box.SIMPLE_HEAD, pad_edge=False)
        for number, result in enumerate(self._results, 1):
            grid.add_row(str(number), f"{result.score}/{best}", str(result.steps), result.ending)
        self._screen.console.print(grid)
        mean = sum(result.score for result in self._results) / len(self._results)
        self._screen.show_note(f"mean score {mean:.1f} of {best} over {len(self._results)} episodes", keep=True)
