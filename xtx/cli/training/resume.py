"""`xtx resume`: a run goes on where it was stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from xtx.agents.from_file import accept_agent
from xtx.cli.training.training_session import TrainOptions, resume


@dataclass(frozen=True)
class Args:
    """Goes on with a run exactly where its last checkpoint was."""

    USUAL: ClassVar = ("device", "workers", "threads", "tensorboard", "wandb", "quiet", "accept_changes", "no_loggers")

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    accept_changes: bool = False
    """Go on although files of the run were changed since its checkpoint, and note the change in changes.jsonl. Lines
    that cannot be read are left out; the file as it was is kept beside it."""
    agent: Annotated[str | None, arg(metavar="FILE.py:CLASS")] = None
    """The run's agent, if its file was moved, or never named on this machine: loading it runs it."""
    no_loggers: bool = False
    """From now on, log neither to TensorBoard nor to Weights & Biases, unless that is asked for here."""
    options: Annotated[TrainOptions, arg(name="")] = field(default_factory=TrainOptions)


def run(args: Args) -> int:
    """0, or 130 if Ctrl-C stopped it."""
    return resume(
        args.run,
        args.options,
        accept_changes=args.accept_changes,
        reset_loggers=args.no_loggers,
        agent=None if args.agent is None else accept_agent(args.agent),
    )
