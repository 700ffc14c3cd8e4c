"""Other places that metrics can go to: TensorBoard, Weights & Biases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from xtx.core import UserError
from xtx.runs import Run
from xtx.train import Progress


class Sinks:
    """Passes each new line of metrics on."""

    def __init__(self, writers: list[Callable[[int, dict[str, float]], None]]) -> None:
        self._writers = writers
        self._last = 0

    def show(self, progress: Progress) -> None:
        """Writes the numbers if they are new."""
        if progress.logged != self._last:
            self._last = progress.logged
            scores = {"score_mean": progress.score_mean, "score_max": float(progress.score_max)}
            for write in self._writers:
                write(progress.steps, {**scores, **progress.plan, **progress.numbers})


@contextlib.contextmanager
def open_sinks(run: Run, *, tensorboard: bool, wandb: bool) -> Iterator[Sinks]:
    """The places that were asked for."""
    with contextlib.ExitStack() as stack:
        writers = []
        if tensorboard:
            writers.append(stack.enter_context(_tensorboard(run)))
        if wandb:
            writers.append(stack.enter_context(_wandb(run)))
        yield Sinks(writers)


@contextlib.contextmanager
def _tensorboard(run: Run) -> Iterator[Callable[[int, dict[str, float]], None]]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("TensorBoard is not installed; install the extra: pip install 'xtx[tensorboard]'") from None
    writer: Any = SummaryWriter(str(run.folder / "tensorboard"))

    def write(step: int, numbers: dict[str, float]) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)

    try:
        yield write
    finally:
        writer.close()


@contextlib.contextmanager
def _wandb(run: Run) -> Iterator[Callable[[int, dict[str, float]], None]]:
    try:
        import wandb
    except ImportError:
        raise UserError("Weights & Biases is not installed; install the extra: pip install 'xtx[wandb]'") from None
    from dataclasses import asdict

    session = wandb.init(
        project="xtx", dir=str(run.folder), name=run.folder.name, id=run.folder.name, resume="allow",
        config=asdict(run.config),
    )  # fmt: skip
    try:
        yield lambda step, numbers: session.log(numbers, step=step)
    finally:
        session.finish()
