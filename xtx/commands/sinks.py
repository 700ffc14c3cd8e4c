"""Other places that metrics can go to: TensorBoard, Weights & Biases."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from xtx.core import UserError
from xtx.regular_files import check_folders
from xtx.runs import Run, read_lines, replace_text, warn
from xtx.train import Progress

_Write = Callable[[int, dict[str, float]], None]
"""Takes the game steps of a line, and its numbers."""


class Sinks:
    """Passes each new line of metrics on."""

    def __init__(self, writers: list[_Write]) -> None:
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
def open_sinks(run: Run, done: int, *, tensorboard: bool, wandb: bool, quiet: bool) -> Iterator[Sinks]:
    """The places that were asked for. `done`: game steps after which the run goes on; lines of later ones that are
    there already, from before it was stopped, do not come twice."""
    with contextlib.ExitStack() as stack:
        writers = []
        if tensorboard:
            writers.append(stack.enter_context(_tensorboard(run, done)))
        if wandb:
            writers.append(stack.enter_context(_wandb(run, quiet)))
        yield Sinks(writers)


@contextlib.contextmanager
def _tensorboard(run: Run, done: int) -> Iterator[_Write]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("TensorBoard is not installed; install the extra: pip install 'xtx[tensorboard]'") from None
    check_folders([run.folder / "tensorboard"])
    writer: Any = SummaryWriter(str(run.folder / "tensorboard"), purge_step=done + 1)

    def write(step: int, numbers: dict[str, float]) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)
        writer.flush()  # before the next checkpoint: a run that is killed goes on behind what it has logged

    try:
        yield write
    finally:
        writer.close()


@contextlib.contextmanager
def _wandb(run: Run, quiet: bool) -> Iterator[_Write]:
    """A run that goes on is the same run there. What was logged cannot be taken back, so lines that come again are left
    out; and what a killed process had logged is not on disk for some seconds, so lines that are missing come again."""
    try:
        import wandb
    except ImportError:
        raise UserError("Weights & Biases is not installed; install the extra: pip install 'xtx[wandb]'") from None
    check_folders([run.folder / "wandb"])
    path = run.folder / "wandb.json"
    note = _read_note(path) or _Note(secrets.token_hex(8))
    try:
        session = wandb.init(
            project="xtx", dir=str(run.folder), name=run.folder.name, id=note.id, resume="allow",
            config=asdict(run.config), settings=wandb.Settings(silent=quiet, console="off"),
        )  # fmt: skip
    except wandb.Error as error:
        raise UserError(
            f"Weights & Biases cannot be used ({' '.join(str(error).split())}); mend that, set WANDB_MODE=offline, or "
            "leave out --wandb"
        ) from None
    if session.offline:
        if note.unfinished:
            shutil.rmtree(run.folder / "wandb" / note.unfinished, ignore_errors=True)
    else:
        note.step = session.step - 1  # it is known there
    note.unfinished = Path(session.dir).parent.name
    _keep_note(path, note)
    last = note.step  # what is kept changes only when all is on disk

    def write(step: int, numbers: dict[str, float]) -> None:
        nonlocal last
        if step > last:
            session.log(numbers, step=step, commit=True)  # else it would be kept back until the next line comes
            last = step

    try:
        for line in read_lines(run.folder, "metrics"):
            write(line["step"], {name: number for name, number in line.items() if name not in ("step", "episodes")})
        yield write
    finally:
        session.finish()
        note.step, note.unfinished = last, ""
        _keep_note(path, note)


@dataclass
class _Note:
    """What must be known of a run's log at Weights & Biases when the run goes on."""

    id: str
    """Its name there; not the folder's, because runs in different places can be called alike."""
    step: int = 0
    """Of the last line in those parts of the log that were finished."""
    unfinished: str = ""
    """The folder of the part that is being written, or was when the process was killed."""


def _keep_note(path: Path, note: _Note) -> None:
    replace_text(path, msgspec.json.encode(note).decode() + "\n")


def _read_note(path: Path) -> _Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Note)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        warn(f"{path} is damaged; from here on the run has another id at Weights & Biases")
        return None
