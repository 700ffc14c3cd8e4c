"""`xtx summarise`: runs as small files that can be kept, committed and reported without the runs' folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from xtx.cli.runs.report import GameFactsReader
from xtx.core import UserError, escape_controls, warn
from xtx.files.atomic_writes import replace_text
from xtx.report.data.load_runs import RunData, convert_summary, find_distinct_run_folders, find_run_folders, read_runs
from xtx.report.data.paper_settings import list_deviations
from xtx.report.data.run_groups import is_same_run, make_variant
from xtx.report.data.run_summary import Summary, choose_path, read_summary, summarise, to_json
from xtx.report.number_format import format_amount


@dataclass(frozen=True)
class Args:
    """Writes a small summary of each run: settings, versions, curve, figures and the best list of actions, without
    checkpoints and without any text of the games. `xtx report` reads summaries as it reads runs."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...")]
    """Folders of runs, or folders with runs in them; runs may still be going on."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("results")
    """Folder of summaries: each lies in game/agent/seed-0.json below it, and takes the place of an older one of the
    same run."""
    no_walkthroughs: bool = False
    """Do not open the games; then the summaries do not know the rewards along their walkthroughs."""


def run(args: Args) -> None:
    """Writes the summaries and says where they are."""
    if not args.runs:
        raise UserError("give the folder of a run, or one with runs in it")
    runs = _read(args.runs)
    finder = GameFactsReader(opens_games=not args.no_walkthroughs)
    made: dict[Path, tuple[RunData, Summary]] = {}
    for one in runs:
        facts = finder.find(one.config)
        variant = make_variant(one.config, facts)
        path = args.out / choose_path(variant, one.config, list_deviations(one.config, variant.game))
        if path in made:
            other = made[path][0].folder
            raise UserError(f"{other} and {one.folder} would both be {path}; summarise one of them into another --out")
        made[path] = one, summarise(one, facts)
    for line in finder.troubles:
        warn(line)
    written = [path for path, (one, summary) in made.items() if _may_write(path, one, summary)]
    for path in written:  # all that can be refused is refused before the first is written
        _write(path, to_json(made[path][1]))
    console = Console(highlight=False, markup=False, emoji=False)
    for path in written:
        console.print(escape_controls(f"{made[path][0].folder} -> {path}"), soft_wrap=True)
    same = f", {len(made) - len(written)} stayed as they were" if len(written) < len(made) else ""
    console.print(f"{format_amount(len(written), 'run')} summarised{same}", soft_wrap=True)


def _read(paths: Sequence[Path]) -> list[RunData]:
    """The runs of which there is something to tell. Raises `UserError` if there is none."""
    for path in paths:
        if not any(find_run_folders(path)):
            raise UserError(f"{path}: there is no run in it; give the folder of a run, or one with runs in it")
    runs, failed = read_runs(find_distinct_run_folders(paths))
    troubles = [f"{one.folder} is left out: {one.why}" for one in failed]
    troubles += [f"{one.folder} is left out: no episode has ended yet" for one in runs if not one.digest.episodes]
    able = [one for one in runs if one.digest.episodes]
    if not able:
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        raise UserError(f"there is nothing to summarise: {troubles[0]}{more}")
    for trouble in troubles:
        warn(trouble)
    return able


def _may_write(path: Path, run: RunData, new: Summary) -> bool:
    """Whether what lies there is to be replaced; not if it says more of the same run. Raises `UserError` if it is
    another run's, which may be all that is left of that one."""
    if not path.exists():
        return True
    try:
        old = read_summary(path)
    except UserError as error:
        warn(f"{error}; it is made anew")
        return True
    if to_json(old) == to_json(new):
        return False
    if not is_same_run(convert_summary(path, old), run):
        raise UserError(f"{path} is the summary of another run than {run.folder}; delete it, or give another --out")
    if old.reached > new.reached:
        warn(f"{path} stays as it is: it is of the same run at {old.reached:,} steps, {run.folder} has {new.reached:,}")
        return False
    return True


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another --out") from None
