"""Preparing to go on with a run, whose files may have been changed since its checkpoint."""

from __future__ import annotations

import contextlib

from xtx.agents.from_file import accept_moved_agent, is_moved_agent
from xtx.core import UserError
from xtx.runs.run_folder import Run
from xtx.training.prepare import RunParts, RunResources, make_agent, prepare


def prepare_resumed(
    run: Run, resources: RunResources, *, accept_changes: bool = False, agent: str | None = None
) -> RunParts:
    """Check the run's files and make its agent. `accept_changes`: also where files were changed since the checkpoint.
    `agent`: the run's own agent as the user named it, whose file may have been moved. Raises `UserError` for what does
    not fit."""
    own = run.config.agent
    if agent is not None and agent != own and not is_moved_agent(own, agent):
        raise UserError(f"the agent of {run.folder} is {own}, and a run goes on with its own agent; leave out {agent}")
    changes = run.verify(accept_changes=accept_changes)  # before the game and the agent, which may be wrong ones
    if agent is not None:
        accept_moved_agent(own, agent)
    run_parts = prepare(run.config, resources, run.folder / "config.json")
    if any(change.startswith("config.json") for change in changes):
        _try_state(run, run_parts, resources)
    return run_parts


def _try_state(run: Run, run_parts: RunParts, resources: RunResources) -> None:
    """Raise `UserError` if the checkpoint does not fit a config that was changed: before the change is accepted."""
    from xtx.games.vector.game_vector import GameVector
    from xtx.training.loop import check_state, load_agent_state, restore_games

    state = run.saved_state
    if state is not None:
        check_state(run, state)
        load_agent_state(run, make_agent(run.config, run_parts.device, run_parts.game_setup.walkthrough), state)
        with contextlib.closing(
            GameVector(
                run_parts.game_setup.spec, run.config.num_envs, run_parts.game_setup.count_workers(resources.workers)
            )
        ) as games:
            restore_games(run, games, state)
