"""Opening a sweep: its stories, its folder, and the place where its runs are carried out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from xtx.core import UserError, warn
from xtx.games.catalog.known_games import find_user_folder
from xtx.processes.cpu_count import list_usable_processors
from xtx.sweep.local_processes import LocalExecutor
from xtx.sweep.run_plan import STAR, PlannedRun, SweepGame, find_games
from xtx.sweep.run_process import SweepRunResources
from xtx.sweep.scheduler import RunExecutor
from xtx.sweep.sweep_file import SweepSpec
from xtx.sweep.sweep_folder import (
    SharedSettings,
    adopt_configs,
    open_sweep,
    read_shared_settings,
    write_shared_settings,
)
from xtx.training.prepare import pick_device, resolve_game_name

RUNS_PER_GPU = 6


@dataclass(frozen=True)
class SweepOptions:
    """Where and how the runs of a sweep are carried out; see `xtx sweep --help`."""

    jobs: int | None = None
    device: str = "auto"
    threads: int | None = None
    workers: int | None = None
    atlas: Path | None = None
    no_atlas: bool = False
    checkpoint_seconds: float = 60.0
    ray: str | None = None
    cpus: float = 1.0
    gpus: float | None = None
    bring_back: bool = False


def find_stories(spec: SweepSpec, *, available: bool) -> list[SweepGame]:
    """Find the games. One error lists all missing stories, before anything is begun."""
    names = [
        resolve_game_name(name.removesuffix(STAR)) + (STAR if name.endswith(STAR) else "") for name in spec.games
    ]  # fmt: skip
    games = find_games(names)
    missing = dict.fromkeys(f"{game.name} ({game.missing})" for game in games if game.missing)
    if not missing:
        return games
    line = f"{len(missing)} {'story is' if len(missing) == 1 else 'stories are'} not here: {', '.join(missing)}"
    there = [game for game in games if not game.missing]
    if not available or not there:
        raise UserError(
            f"{line}; put {'it' if len(missing) == 1 else 'them'} into {find_user_folder()} "
            + "or a folder named in XTX_GAMES"
            + ("" if available else ", or leave them out with --available")
        )
    warn(f"{line}; left out")
    return there


@contextlib.contextmanager
def open_executor(
    out: Path, runs: list[PlannedRun], options: SweepOptions
) -> Iterator[tuple[RunExecutor, list[PlannedRun]]]:
    """Hold the sweep's folder and open the place where its runs are carried out. Also gives the runs, those that were
    begun already with the configs that they have. Raises `UserError`."""
    if options.atlas is not None and options.no_atlas:
        raise UserError("--atlas and --no-atlas exclude each other")
    with open_sweep(out):
        adopted = adopt_configs(out, runs)
        shared = _share_settings(options, out)
        executor = _make_executor(options, out.absolute(), shared)
        try:
            yield executor, adopted
        finally:
            executor.close()


def _share_settings(options: SweepOptions, out: Path) -> SharedSettings:
    """Threads and device of all runs: as before where some are there already."""
    wanted = None if options.device == "auto" else options.device
    known = read_shared_settings(out, options.threads, wanted)
    if known is not None:
        return known
    # What this machine has says nothing about the machines of a cluster.
    there = wanted or ("cuda" if options.gpus else "cpu")
    return write_shared_settings(
        out, options.threads or 1, pick_device(options.device) if options.ray is None else there
    )


def _make_executor(options: SweepOptions, out: Path, shared: SharedSettings) -> RunExecutor:
    resources = SweepRunResources(
        device=shared.device,
        threads=shared.threads,
        workers=options.workers,
        checkpoint_seconds=options.checkpoint_seconds,
        atlas=None if options.atlas is None else str(options.atlas.expanduser().absolute()),
        no_atlas=options.no_atlas,
    )
    if options.ray is not None:
        from xtx.sweep.ray_cluster import RayExecutor

        gpus = options.gpus if options.gpus is not None else float(shared.device == "cuda")
        resources = msgspec.structs.replace(resources, processors=max(1, int(options.cpus)))
        return RayExecutor(
            out,
            shared.id,
            resources,
            options.ray,
            cpus=options.cpus,
            gpus=gpus,
            jobs=options.jobs,
            bring_back=options.bring_back,
        )
    pick_device(shared.device)  # for its complaint if the GPU of the earlier runs is gone
    gpus_here = _list_gpus() if shared.device == "cuda" else []
    processors = len(list_usable_processors())
    jobs = options.jobs or (RUNS_PER_GPU * len(gpus_here) if gpus_here else processors)
    resources = msgspec.structs.replace(resources, processors=max(1, processors // jobs))
    return LocalExecutor(out, resources, jobs, gpus_here)


def _list_gpus() -> list[str]:
    """What each run may see in CUDA_VISIBLE_DEVICES."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed:
        return [name for name in listed.split(",") if name]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
