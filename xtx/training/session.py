"""Opens a run to train it: its state and its envs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from xtx.core import State
from xtx.games.vector.game_vector import GameVector
from xtx.runs.run_folder import Run
from xtx.training.loop import check_state
from xtx.training.prepare import RunParts, RunResources


@dataclass(frozen=True)
class RestoredRun:
    """The state that a run continues from."""

    state: State | None
    """The newest checkpoint's; None at the beginning."""

    def adopt_threads(self, threads: int | None, on_report: Callable[[str], None]) -> None:
        """Give torch as many threads as the run had before, unless another number is asked for, which is reported:
        the last bits of sums depend on it."""
        if self.state is None or self.state["threads"] == torch.get_num_threads():
            return
        had = self.state["threads"]
        if threads is None:
            torch.set_num_threads(had)
        else:
            on_report(f"the run had {had} threads so far; with {threads} it will not be the same")


def restore_run(run: Run) -> RestoredRun:
    """Read the state that a run continues from, and cut its files back to it. Raises `UserError` if it does not fit."""
    state = run.restore()
    if state is not None:
        check_state(run, state)
    return RestoredRun(state)


def open_vector(
    run: Run,
    restored: RestoredRun,
    resources: RunResources,
    run_parts: RunParts,
    on_report: Callable[[str], None],
    on_survey: Callable[[float], None] | None = None,
) -> GameVector:
    """Open the run's envs in their worker processes. `on_report` is called with a line about each failure, `on_survey`
    with the share of the survey of a new story that is done."""
    state = restored.state
    return GameVector(
        run_parts.game_setup.spec,
        run.config.num_envs,
        run_parts.game_setup.count_workers(resources.workers),
        forbidden=[] if state is None else state["forbidden"],
        on_report=on_report,
        on_survey=on_survey,
        ahead={"on": True, "off": False}.get(resources.look_ahead),
        tie=resources.tie_workers == "auto",
    )
