"""Runs that are on disk: `load_run`."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterable
from dataclasses import asdict, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from xtx.api.arguments import check_flag, check_optional_whole, check_path, check_whole
from xtx.config.settings import RunConfig
from xtx.core import Agent, EpisodeRecord, UserError
from xtx.files.bounded_reads import BadFileError
from xtx.runs.checkpoint_file import list_checkpoints
from xtx.runs.line_files import read_episodes, read_lines
from xtx.runs.run_config import read_config

if TYPE_CHECKING:
    from xtx.cli.runs.agent_loading import LoadedAgent
    from xtx.training.evaluation import EvaluationFigures

Checkpoint = Literal["newest", "best"]
Device = Literal["auto", "cpu", "cuda"]
_Row = TypeVar("_Row")


class Records(list[_Row]):
    """A list of records: dictionaries, or dataclasses such as `EpisodeRecord`."""

    def to_pandas(self) -> Any:
        """The records as a `pandas.DataFrame`, one row each. Raises `UserError` where pandas is not installed."""
        if importlib.util.find_spec("pandas") is None:
            raise UserError("pandas is not installed: pip install pandas")
        pandas: Any = importlib.import_module("pandas")
        rows: list[Any] = list(self)
        return pandas.DataFrame([asdict(row) if _is_record(row) else row for row in rows])

    def column(self, name: str) -> list[Any]:
        """One field of all records that have it."""
        if any(_is_record(row) for row in self):
            kind: Any = type(self[0])
            known = [field.name for field in fields(kind)] if is_dataclass(kind) else []
            if name not in known:
                raise UserError(f"these records have no {name!r}; they have: {', '.join(known)}")
            return [getattr(row, name) for row in self]
        return [row[name] for row in self if isinstance(row, dict) and name in row]


def _is_record(row: object) -> Any:
    return is_dataclass(row) and not isinstance(row, type)


def load_run(path: str | os.PathLike[str]) -> SavedRun:
    """The run in a folder, finished or not. Raises `UserError` if it is not the folder of a run."""
    return SavedRun(Path(check_path("path", path)))


class SavedRun:
    """A run in its folder, as it is on disk now; made by `xtx.load_run`, `xtx.train` and `xtx.sweep`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: RunConfig = read_config(path)
        """What the run was asked for: game, agent, settings, seed, steps, ..."""

    @property
    def metrics(self) -> Records[dict[str, Any]]:
        """The lines of metrics.jsonl: `step`, `episodes`, `score_mean`, `score_max`, and what the agent logs."""
        return Records(self._read("metrics", read_lines(self.path, "metrics")))

    @property
    def episodes(self) -> Records[EpisodeRecord]:
        """All episodes that have ended."""
        return Records(self._read("episodes", read_episodes(self.path)))

    def _read(self, name: str, lines: Iterable[_Row]) -> list[_Row]:
        try:
            return list(lines)
        except FileNotFoundError:
            return []
        except (BadFileError, msgspec.MsgspecError) as error:
            raise UserError(f"{self.path / f'{name}.jsonl'} is damaged ({error})") from None
        except OSError as error:
            raise UserError(f"{self.path / f'{name}.jsonl'} cannot be read ({error.strerror})") from None

    @property
    def steps(self) -> int:
        """Game steps at the newest checkpoint; 0 if there is none."""
        return max((int(path.name) for path in list_checkpoints(self.path)), default=0)

    @property
    def is_finished(self) -> bool:
        """Whether the newest checkpoint has all steps of the run."""
        return self.steps >= self.config.steps

    def best(self) -> EpisodeRecord:
        """The best episode, with its `actions` and `seed`. Raises `UserError` if no episode has ended yet."""
        from xtx.cli.runs.agent_loading import read_records

        return max(read_records(self.path), key=lambda episode: episode.score)

    def agent(self, checkpoint: Checkpoint = "newest", *, device: Device = "auto") -> Agent:
        """The trained agent: `act(observations)` gives a `Decision` for each observation."""
        return self._load(checkpoint, device).agent

    @cached_property
    def max_score(self) -> int:
        """The points that the game has to give; 0 where that is not known."""
        from xtx.cli.runs.agent_loading import PlayOptions, set_up_game_of

        return set_up_game_of(self.config, PlayOptions()).max_score

    def evaluate(
        self,
        episodes: int = 100,
        *,
        greedy: bool = False,
        checkpoint: Checkpoint = "newest",
        seed: int = 0,
        workers: int | None = None,
        device: Device = "auto",
    ) -> EvaluationFigures:
        """Let the agent play without learning. `greedy`: always its likeliest action; `seed`: in a stochastic run,
        another number gives other games. Returns mean, best, normalised scores and where episodes ended."""
        from xtx.training.evaluation import compute_figures, draw_evaluation_seeds, play

        episodes, greedy = check_whole("episodes", episodes, 1), check_flag("greedy", greedy)
        seed, workers = check_whole("seed", seed, 0), check_optional_whole("workers", workers, 0)
        loaded = self._load(checkpoint, device)
        with loaded.open_vector(min(loaded.config.num_envs, episodes), workers) as games:
            seeds = draw_evaluation_seeds(loaded.config, games.walkthrough_seed, loaded.seeds_drawn, seed)
            played = [one.make_outcome() for one in play(loaded.agent, games, seeds, episodes, greedy=greedy)]
        return compute_figures(sorted(played, key=lambda one: one.number), loaded.game_setup.max_score)

    def _load(self, checkpoint: Checkpoint, device: Device) -> LoadedAgent:
        from xtx.cli.runs.agent_loading import PlayOptions, load_agent

        if device not in ("auto", "cpu", "cuda"):
            raise UserError(f"device is 'auto', 'cpu' or 'cuda', not {device!r}")
        if checkpoint not in ("newest", "best"):
            raise UserError(f"checkpoint is 'newest' or 'best', not {checkpoint!r}")
        return load_agent(self.path, checkpoint, PlayOptions(device=device))

    def __repr__(self) -> str:
        return f"<xtx.SavedRun {self.path}: {self.config.agent} on {self.config.game}, {self.steps:,} steps>"
