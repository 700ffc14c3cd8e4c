"""Opening a sweep: its stories, its folder, and the place where its runs are carried out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.games.catalog.known_games import user_folder
from xtx.runs.run_folder import warn
from xtx.sweep.local_processes import LocalPlaces, processors
from xtx.sweep.run_plan import STAR, Chosen, PlannedRun, find_games
from xtx.sweep.run_process import RunResources
from xtx.sweep.scheduler import Places
from xtx.sweep.sweep_file import Spec
from xtx.sweep.sweep_folder import Common, agree, check_runs, open_sweep, settle
from xtx.training.prepare import lasting_name, pick_device

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


def find_stories(spec: Spec, *, available: bool) -> list[Chosen]:
    """The games. Those whose stories are missing are told all at once, before anything is begun."""
    names = [
        lasting_name(name.removesuffix(STAR)) + (STAR if name.endswith(STAR) else "") for name in spec.games
    ]  # fmt: skip
    games = find_games(names)
    missing = dict.fromkeys(f"{game.name} ({game.missing})" for game in games if game.missing)
    if not missing:
        return games
    line = f"{len(missing)} {'story is' if len(missing) == 1 else 'stories are'} not here: {', '.join(missing)}"
    there = [game for game in games if not game.missing]
    if not available or not there:
        raise UserError(
            f"{line}; put {'it' if len(missing) == 1 else 'them'} into {user_folder()} or a folder named in XTX_GAMES"
            + ("" if available else ", or leave them out with --available")
        )
    warn(f"{line}; left out")
    return there


@contextlib.contextmanager
def open_places(out: Path, runs: list[PlannedRun], options: SweepOptions) -> Iterator[Places]:
    """Hold the sweep's folder and open the place where its runs are carried out. Raises `UserError`."""
    if options.atlas is not None and options.no_atlas:
        raise UserError("--atlas and --no-atlas exclude each other")
    with open_sweep(out):
        check_runs(out, runs)
        common = _agree(options, out)
        places = _places(options, out.absolute(), common)
        try:
            yield places
        finally:
            places.close()


def _agree(options: SweepOptions, out: Path) -> Common:
    """Threads and device of all runs: as before where some are there already."""
    wanted = None if options.device == "auto" else options.device
    common = agree(out, options.threads, wanted)
    if common is not None:
        return common
    # What this machine has says nothing about the machines of a cluster.
    there = wanted or ("cuda" if options.gpus else "cpu")
    return settle(out, options.threads or 1, pick_device(options.device) if options.ray is None else there)


def _places(options: SweepOptions, out: Path, common: Common) -> Places:
    means = RunResources(
        device=common.device,
        threads=common.threads,
        workers=options.workers,
        checkpoint_seconds=options.checkpoint_seconds,
        atlas=None if options.atlas is None else str(options.atlas.expanduser().absolute()),
        no_atlas=options.no_atlas,
    )
    if options.ray is not None:
        from xtx.sweep.ray_cluster import RayPlaces

        gpus = options.gpus if options.gpus is not None else float(common.device == "cuda")
        means = msgspec.structs.replace(means, processors=max(1, int(options.cpus)))
        return RayPlaces(
            out,
            common.id,
            means,
            options.ray,
            cpus=options.cpus,
            gpus=gpus,
            jobs=options.jobs,
            bring_back=options.bring_back,
        )
    pick_device(common.device)  # for its complaint if the GPU of the earlier runs is gone
    gpus_here = _gpus() if common.device == "cuda" else []
    jobs = options.jobs or (RUNS_PER_GPU * len(gpus_here) if gpus_here else processors())
    means = msgspec.structs.replace(means, processors=max(1, processors() // jobs))
    return LocalPlaces(out, means, jobs, gpus_here)


def _gpus() -> list[str]:
    """What each run may see in CUDA_VISIBLE_DEVICES."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed:
        return [name for name in listed.split(",") if name]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
