"""Other places that metrics can go to: TensorBoard, Weights & Biases.

loggers.json in the run's folder remembers which ones, so a run that goes on logs as before.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from xtx.config.config_file import flatten, make_plain
from xtx.config.settings import RunConfig
from xtx.core import UserError, warn
from xtx.files.atomic_writes import replace_text
from xtx.files.bounded_reads import BadFileError, read_json
from xtx.files.regular_files import check_folders
from xtx.runs.run_folder import Run
from xtx.training.logger_lines import Point, PointReader, choose_group
from xtx.training.loop import TrainingProgress

_Write = Callable[[Point], None]

FILE = "loggers.json"


class Loggers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run's metrics go beside its own files; the content of loggers.json."""

    tensorboard: bool = False
    wandb: bool = False
    project: str = ""
    """At Weights & Biases, as the next three; empty means WANDB_PROJECT, or `xtx`."""
    group: str = ""
    name: str = ""
    """Empty means the name of the run's folder."""
    tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.tensorboard or self.wandb


def update_loggers(folder: Path, requested: Loggers, *, reset: bool = False) -> Loggers:
    """The loggers of a run: those that were asked for before and now. Kept for the next time; `reset`: none of the
    earlier ones."""
    path = folder / FILE
    before = Loggers()
    if not reset:
        try:
            before = read_json(path, Loggers)
        except FileNotFoundError:
            pass
        except (OSError, BadFileError) as error:
            warn(f"{path} cannot be read ({error}); only what is asked for now is logged elsewhere")
    now = Loggers(
        tensorboard=before.tensorboard or requested.tensorboard,
        wandb=before.wandb or requested.wandb,
        project=requested.project or before.project,
        group=requested.group or before.group,
        name=requested.name or before.name,
        tags=requested.tags or before.tags,
    )
    if now != before or reset:
        write_loggers(folder, now)
    return now


def write_loggers(folder: Path, loggers: Loggers) -> None:
    """Keep what a run logs to, also before its first start."""
    path = folder / FILE
    if loggers:
        replace_text(path, msgspec.json.encode(loggers).decode() + "\n")
    else:
        path.unlink(missing_ok=True)


class Sinks:
    """Passes what is new in the run's files on."""

    def __init__(self, folder: Path, writers: list[_Write]) -> None:
        self._reader = PointReader(folder)
        self._writers = writers
        self._last = 0
        self.send()

    def show(self, progress: TrainingProgress) -> None:
        """Passes on what was written, if a line of metrics is new."""
        if progress.logged != self._last:
            self._last = progress.logged
            self.send()

    def send(self) -> None:
        """Passes on all that is new."""
        for point in self._reader.read() if self._writers else ():
            for write in self._writers:
                write(point)


@contextlib.contextmanager
def open_sinks(run: Run, loggers: Loggers, *, quiet: bool) -> Iterator[Sinks]:
    """The places that were asked for. What the run's files have already is passed on first."""
    with contextlib.ExitStack() as stack:
        writers = []
        if loggers.tensorboard:
            writers.append(stack.enter_context(_open_tensorboard(run)))
        if loggers.wandb:
            writers.append(stack.enter_context(_open_wandb(run, loggers, quiet)))
        sinks = Sinks(run.folder, writers)
        yield sinks
        run.flush()
        sinks.send()


@contextlib.contextmanager
def _open_tensorboard(run: Run) -> Iterator[_Write]:
    """The files are written anew at every start, from the run's own: so each point is there once."""
    try:
        from torch.utils.tensorboard import SummaryWriter, summary
    except ImportError:
        raise _explain_missing("TensorBoard", "tensorboard") from None
    folder = run.folder / "tensorboard"
    check_folders([folder])
    for path in folder.glob("events.out.tfevents.*"):
        path.unlink()
    writer: Any = SummaryWriter(str(folder))
    make_hparams: Any = summary.hparams
    given = flatten_config(run.config)
    for one in make_hparams(given, {"score/mean": 0.0, "score/max": 0.0}):
        writer.file_writer.add_summary(one)
    rows = [f"| {name} | {value} |" for name, value in given.items()]
    writer.add_text("config", "\n".join(["| setting | value |", "|---|---|", *rows]))

    def write(point: Point) -> None:
        for name, number in point.numbers.items():
            writer.add_scalar(choose_group(name), number, point.step, walltime=point.time)
        writer.flush()

    try:
        yield write
    finally:
        writer.close()


def _explain_missing(name: str, extra: str) -> UserError:
    return UserError(
        f"{name} is not installed; install the extra: pip install 'xtx[{extra}]', or leave it out "
        "(xtx resume RUN --no-loggers)"
    )


def flatten_config(config: RunConfig) -> dict[str, bool | int | float | str]:
    """A config as one level, for the tables of hyper-parameters."""
    return {
        name.removeprefix("settings."): value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in flatten(make_plain(config)).items()
    }


@contextlib.contextmanager
def _open_wandb(run: Run, loggers: Loggers, quiet: bool) -> Iterator[_Write]:
    """A run that goes on is the same run there. What was logged cannot be taken back, so lines that come again are left
    out; and what a killed process had logged is not on disk for some seconds, so lines that are missing come again."""
    try:
        import wandb
    except ImportError:
        raise _explain_missing("Weights & Biases", "wandb") from None
    check_folders([run.folder / "wandb"])
    path = run.folder / "wandb.json"
    note = _read_note(path) or _Note(secrets.token_hex(8))
    try:
        session = wandb.init(
            dir=str(run.folder), id=note.id, resume="allow", config=make_plain(run.config),
            settings=wandb.Settings(silent=quiet, console="off"), **find_wandb_place(run.folder, loggers),
        )  # fmt: skip
    except wandb.Error as error:
        raise UserError(
            f"Weights & Biases cannot be used ({' '.join(str(error).split())}); fix that, set WANDB_MODE=offline, or "
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

    def write(point: Point) -> None:
        nonlocal last
        if point.step > last:
            # Committed: else it would be kept back until the next line comes.
            session.log(point.numbers, step=point.step, commit=True)
            last = point.step

    try:
        yield write
    finally:
        session.finish()
        note.step, note.unfinished = last, ""
        _keep_note(path, note)


def find_wandb_place(folder: Path, loggers: Loggers) -> dict[str, Any]:
    """Project, group, name and tags at Weights & Biases, as `wandb.init` takes them."""
    return {
        "project": loggers.project or os.environ.get("WANDB_PROJECT") or "xtx",
        "group": loggers.group or None,
        "name": loggers.name or folder.name,
        "tags": list(loggers.tags) or None,
    }


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
