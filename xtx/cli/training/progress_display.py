"""What a person sees of a run: a live panel in a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from xtx.cli.training.closing_summary import print_summary
from xtx.core import EPISODES_OF_MEAN
from xtx.games.game_setup import GameSetup
from xtx.runs.run_folder import Run
from xtx.terminal.progress_panel import LINE_EVERY, LivePanel, SurveyProgress, format_time
from xtx.terminal.shell_command import format_command
from xtx.training.loop import TrainingProgress

SPEED_OVER = 20.0
"""Seconds over which the speed is measured, unless a single step takes longer."""


class Display(LivePanel):
    """Shows a run while it is under way."""

    def __init__(self, run: Run, game_setup: GameSetup, device: str, *, quiet: bool = False) -> None:
        super().__init__(Console(highlight=False), quiet=quiet)
        self._run = run
        self._game_setup = game_setup
        self._progress: TrainingProgress | None = None
        self._marks: list[tuple[float, int]] = []
        self._shown = 0.0
        self._began = time.monotonic()
        self._is_stopping = False
        config = run.config
        self.tell(
            f"{config.agent} learns {game_setup.name} (at most {game_setup.max_score} points) on {device}, "
            f"seed {config.seed}, {config.steps:,} steps, actions: {config.actions}; run folder: {run.folder}"
        )
        if not quiet:
            self._console.print("looking into the game ...")

    def show_survey(self) -> SurveyProgress:
        """Shows how far the survey of the story has come, within `with`."""
        return SurveyProgress(self._console, quiet=self._quiet)

    def show_stopping(self) -> bool:
        """Says that the run stops when what is under way is done, in the panel; False where there is none. Called in a
        signal handler, so it only sets what is drawn next."""
        self._is_stopping = True
        return self._live is not None

    def draw(self) -> RenderableType:
        """The panel."""
        return "" if self._progress is None else self._make_panel(self._progress)

    def is_kept(self) -> bool:
        """The panel of a run that was stopped stays."""
        return self._is_stopping

    def show(self, progress: TrainingProgress) -> None:
        """The state of the run, not more often than a person can read."""
        self._progress = progress
        now = time.monotonic()
        if not self._marks or now - self._marks[-1][0] > 1:
            recent = [mark for mark in self._marks if now - mark[0] < SPEED_OVER]
            # An imitation training can take longer than that: the speed is then that since the last mark.
            self._marks = [*(recent or self._marks[-1:]), (now, progress.steps)]
        if self._live is None and not self._quiet and now - self._shown > LINE_EVERY:
            self._shown = now
            self._console.print(self._format_line(progress), soft_wrap=True)

    def _compute_speed(self) -> float:
        """Game steps a second, of late."""
        if len(self._marks) < 2:
            return 0.0
        (t0, s0), (t1, s1) = self._marks[0], self._marks[-1]
        return (s1 - s0) / max(t1 - t0, 1e-9)

    def _format_line(self, p: TrainingProgress) -> str:
        speed = self._compute_speed()
        plan = f", target {p.plan['target_score']:.0f}" if "target_score" in p.plan else ""
        return (
            f"{p.steps:,}/{p.total:,} steps, {p.episodes:,} episodes, score mean {p.score_mean:.1f} "
            f"max {p.score_max}{plan}, {speed:.0f} steps/s, {_estimate_rest(p, speed)} left"
        )

    def _make_panel(self, p: TrainingProgress) -> Panel:
        speed = self._compute_speed()
        bar = Bar(TextColumn("{task.description}"), BarColumn(bar_width=None), TaskProgressColumn(), expand=True)
        bar.add_task(f"{p.steps:,} of {p.total:,} steps", total=p.total, completed=p.steps)
        table = Table.grid(padding=(0, 3), expand=True)
        phases = {phase: p.phases.count(phase) for phase in sorted(set(p.phases)) if phase}
        cells = {
            "score (mean of last 100)": f"{p.score_mean:.1f} of {self._game_setup.max_score}",
            "best score": str(p.score_max),
            "episodes": f"{p.episodes:,}",
            "speed": f"{speed:.0f} steps/s, {_estimate_rest(p, speed)} left",
        }
        if "target_score" in p.plan:
            cells["target score M"] = f"{p.plan['target_score']:.0f}"
            cells["l_max"] = f"{p.plan['l_max']:.0f}, episodes end at {p.plan['episode_limit']:.0f}"
        if phases:
            cells["phase"] = ", ".join(f"{count} {phase}" for phase, count in phases.items())
        losses = {name: number for name, number in p.numbers.items() if "loss" in name}
        if losses:
            names = {name: name.removeprefix("loss_").replace("_loss_", " ") for name in losses}  # imitation first
            cells["losses"] = ", ".join(f"{names[name]} {number:.3f}" for name, number in losses.items())
        for name, value in cells.items():
            table.add_row(f"[dim]{name}[/dim]", value)
        stopping = "stopping when this is done, and saving; Ctrl-C again ends it at once"
        subtitle = stopping if self._is_stopping else "Ctrl-C saves and stops"
        title = f"{self._run.config.agent} learns {self._game_setup.name}"
        return Panel(Group(bar, table), title=title, subtitle=subtitle, border_style="cyan")

    def show_summary(self, finished: bool) -> None:
        """What came of it, in words."""
        console, folder = self._console, self._run.folder
        if not finished:
            if (p := self._progress) is not None:
                last = min(EPISODES_OF_MEAN, p.episodes)
                score = f"mean of the last {last} episodes {p.score_mean:.1f}, best {p.score_max}"
                so_far = f"{score} of {self._game_setup.max_score} points" if p.episodes else "no episode has ended yet"
                self.tell(f"{p.steps:,} of {p.total:,} steps, {p.episodes:,} episodes; {so_far}")
            self.tell("stopped and saved; go on with:")
            console.print(f"  {format_command('resume', folder)}", soft_wrap=True, markup=False)
            return
        print_summary(console, self._run, self._game_setup, format_time(time.monotonic() - self._began))


def _estimate_rest(p: TrainingProgress, speed: float) -> str:
    return format_time((p.total - p.steps) / speed) if speed > 0 else "?"
