"""A run in one small file of JSON, for runs that were made on another machine: what a report needs, without checkpoints
and without any text of the games (no narration, and no rooms, whose names are the games' words; commands are ours).

The same run gives the same bytes. What is cut to stay small: the curve has at most some 200 points, and lists that no
usual run fills are bounded. All other figures are those of the run's folder, to the last digit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from xtx.config.config_file import ConfigError, rename_old_keys
from xtx.config.settings import RunConfig
from xtx.core import ENDINGS, EPISODES_OF_MEAN, EpisodeRecord, UserError
from xtx.files.bounded_reads import MAX_JSON_BYTES, BadFileError, decode_json, read_bounded
from xtx.report.data import episode_digest as digests
from xtx.report.data.episode_digest import POINTS, choose_curve_points
from xtx.report.data.game_facts import GameFacts
from xtx.report.data.metric_lines import LABELS
from xtx.report.data.statistics import Floats, WorkingTime, read_curve

if TYPE_CHECKING:
    from xtx.report.data.load_runs import RunData
    from xtx.report.data.run_groups import Variant

MAX_FIRSTS = 300
MAX_STARTS = 20
MAX_CHANGES = 20
"""Most changes from outside in a summary, the newest; each is one sentence."""
MAX_ACTION_LETTERS = 16_000
"""All commands of the best episode together; a longer list is left out whole, since part of it leads nowhere."""

_GAME_CHANGE = re.compile(r"(config\.json: game) was .*?(?=; |$)")
"""A sentence that may have paths of another machine in it."""

Count = Annotated[int, msgspec.Meta(ge=0)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]


class EndingCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many episodes ended how."""

    won: Count
    died: Count
    limit: Count


class SummaryFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run in a few numbers; `Digest` says which."""

    avg: float
    avg_by_env: float = msgspec.field(name="avg_by_game")
    max: int
    peak: int
    area: float


class Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equally long columns, of which the first rises."""

    def __post_init__(self) -> None:
        first, *others = (getattr(self, name) for name in self.__struct_fields__)
        _check_columns(first, *others)
        if any(after <= before for before, after in pairwise(first)):
            raise ValueError("its first column does not rise")


class CurvePoints(Columns, frozen=True, forbid_unknown_fields=True):
    """The curve, as columns."""

    steps: list[Count]
    mean: list[float]
    """Mean of the last 100 final scores, to three digits."""
    best: list[int]
    seconds: list[NonNegative | None]
    """Working time; null where it is not known."""


class HighScoreColumns(Columns, frozen=True, forbid_unknown_fields=True):
    """Scores that were the highest so far, as columns; `HighScore` says what each is."""

    score: list[int]
    steps: list[Count]
    seconds: list[NonNegative | None]
    usual: list[Count | None]


class Series(Columns, frozen=True, forbid_unknown_fields=True):
    """A number of metrics.jsonl over the run, as columns."""

    steps: list[Count]
    values: list[float]
    """Each the mean since the step before, to four digits."""


class LastEpisodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last 100 episodes, in order."""

    scores: list[int]
    peaks: list[int]
    ended: EndingCounts
    length: NonNegative

    def __post_init__(self) -> None:
        _check_columns(self.scores, self.peaks)
        if len(self.scores) > EPISODES_OF_MEAN:
            raise ValueError(f"more than {EPISODES_OF_MEAN} episodes are the last ones")


class WorkedTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last moment that the run's clock noted."""

    steps: Count
    seconds: NonNegative


class RecordedStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the run ran with, at one of its starts; `xtx.runs.versions.collect_versions` says what each is."""

    started: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    machine: str = ""
    processors: int = 0
    git: str = ""
    searching: dict[str, str] = {}


class Summary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file, field by field."""

    xtx_summary: Literal[1]
    """Of which kind the file is."""
    config: RunConfig
    """What was asked for; a story's path on the other machine is only its name here."""
    reached: Count
    """Steps done, of the `steps` that were asked for."""
    finished: bool
    episodes: PositiveCount
    figures: SummaryFigures
    ended: EndingCounts
    """How all episodes ended."""
    length: NonNegative
    """The mean of their lengths."""
    last: LastEpisodes
    firsts: HighScoreColumns
    curve: CurvePoints
    worked: WorkedTime | None
    best: EpisodeRecord
    """The first episode with the best final score; under its seed its actions lead to that score again."""
    starts: list[RecordedStart]
    """What it ran with, at its first start and its newest."""
    starts_left_out: Count
    game: GameFacts | None
    """What the report needs of the game: its maximum and the rewards along its walkthrough."""
    changes: list[str] = []
    """Changes from outside that the run went on with, in words; the field is left out where there are none."""
    numbers: dict[str, Series] = {}
    """Losses and the like by their names in metrics.jsonl, at most 50 points each; left out where there are none."""

    def make_digest(self) -> digests.Digest:
        """What a report shows of the run's episodes."""
        numbers, firsts = self.figures, self.firsts
        columns = zip(firsts.score, firsts.steps, firsts.seconds, firsts.usual, strict=True)
        return digests.Digest(
            episodes=self.episodes,
            avg=numbers.avg,
            avg_by_env=numbers.avg_by_env,
            max=numbers.max,
            peak=numbers.peak,
            area=numbers.area,
            curve=digests.Curve(
                *(np.array(column, np.float64) for column in (self.curve.steps, self.curve.mean, self.curve.best))
            ),
            firsts=[digests.HighScore(*row) for row in columns],
            last_peaks=np.array(self.last.peaks, np.float64),
            endings=_convert_counts(self.ended, self.length),
            last_endings=_convert_counts(self.last.ended, self.last.length),
            best=self.best,
        )

    def read_numbers(self) -> dict[str, tuple[Floats, Floats]]:
        """The plotted numbers of metrics.jsonl, as a run's folder gives them; others are left out."""
        return {
            name: (np.array(series.steps, np.float64), np.array(series.values, np.float64))
            for name, series in self.numbers.items()
            if name in LABELS
        }

    def read_working_time(self) -> WorkingTime | None:
        """How long the run had worked at the points of its curve and at its end; None if that is not known."""
        if self.worked is None:
            return None
        known = {0: 0.0}
        known |= {step: at for step, at in zip(self.curve.steps, self.curve.seconds, strict=True) if at is not None}
        known[self.worked.steps] = self.worked.seconds
        steps = sorted(known)
        return WorkingTime(np.array(steps, np.float64), np.array([known[step] for step in steps]))


def _convert_counts(counts: EndingCounts, length: float) -> digests.Endings:
    return digests.Endings({kind: getattr(counts, kind) for kind in ENDINGS}, length)


def _check_columns(first: Sequence[object], *others: Sequence[object]) -> None:
    if not first or any(len(column) != len(first) for column in others):
        raise ValueError("its columns are empty or not equally long")


# --- making and writing -----------------------------------------------------------------------------------------


def summarise(run: RunData, facts: GameFacts | None) -> Summary:
    """The summary of a run of which at least one episode has ended."""
    digest, best = run.digest, run.digest.best
    if best is None:
        raise UserError(f"{run.folder}: no episode has ended yet, so there is nothing to summarise")
    starts = [read_start(start) for start in run.starts]
    kept = starts if len(starts) <= MAX_STARTS else [starts[0], *starts[1 - MAX_STARTS :]]
    firsts = [digest.firsts[place] for place in _spread_places(len(digest.firsts), MAX_FIRSTS)]
    if sum(map(len, best.actions)) > MAX_ACTION_LETTERS:
        best = replace(best, actions=[])
    return Summary(
        xtx_summary=1,
        config=replace(run.config, game=_shorten_game_name(run.config.game, facts)),
        reached=run.reached,
        finished=run.finished,
        episodes=digest.episodes,
        figures=SummaryFigures(digest.avg, digest.avg_by_env, int(digest.max), int(digest.peak), digest.area),
        ended=_convert_endings(digest.endings),
        length=digest.endings.length,
        last=LastEpisodes(
            scores=[int(score) for score in run.scores[-EPISODES_OF_MEAN:]],
            peaks=[int(peak) for peak in digest.last_peaks],
            ended=_convert_endings(digest.last_endings),
            length=digest.last_endings.length,
        ),
        firsts=HighScoreColumns(
            score=[first.score for first in firsts],
            steps=[first.steps for first in firsts],
            seconds=[first.seconds for first in firsts],
            usual=[first.usual for first in firsts],
        ),
        curve=_thin(run),
        worked=WorkedTime(int(run.time.steps[-1]), run.time.total) if run.time else None,
        best=best,
        starts=kept,
        starts_left_out=len(starts) - len(kept),
        game=facts,
        numbers={
            name: Series([int(step) for step in steps], [float(value) for value in values])
            for name, (steps, values) in run.numbers.items()
        },
        changes=[_GAME_CHANGE.sub(r"\1 was changed", change) for change in run.changes[-MAX_CHANGES:]],
    )


def read_start(found: dict[str, Any]) -> RecordedStart:
    """What is as it should be; a damaged versions.json must not make a summary that cannot be read."""
    good: dict[str, Any] = {}
    for name in RecordedStart.__struct_fields__:
        with contextlib.suppress(msgspec.ValidationError):
            good |= msgspec.to_builtins(msgspec.convert({name: found.get(name)}, RecordedStart))
    return msgspec.convert(good, RecordedStart)


def _shorten_game_name(game: str, facts: GameFacts | None) -> str:
    """A game's name: folders of another machine mean nothing here and may be private."""
    if "/" not in game:
        return game
    return facts.name if facts else Path(game).stem.lower()


def _convert_endings(endings: digests.Endings) -> EndingCounts:
    return EndingCounts(*(endings.ended[kind] for kind in ENDINGS))


def _spread_places(have: int, most: int) -> list[int]:
    """Places in a list: all, or as many as allowed, evenly spread with the first and the last among them."""
    return [int(place) for place in np.unique(np.linspace(0, have - 1, min(have, most)).astype(int))]


def _thin(run: RunData) -> CurvePoints:
    """The curve at every end of an episode, or where there are too many, evenly over the steps of the run."""
    curve = run.digest.curve
    steps = np.unique(curve.steps)
    if len(steps) > POINTS:
        steps = choose_curve_points(run.reached)
        steps = steps[(steps >= curve.steps[0]) & (steps <= run.reached)]
    seconds = [run.time.interpolate(float(step)) if run.time else float("nan") for step in steps]
    return CurvePoints(
        steps=[int(step) for step in steps],
        mean=[round(float(mean), 3) for mean in read_curve(curve.steps, curve.mean, steps)],
        best=[int(best) for best in read_curve(curve.steps, curve.best, steps)],
        seconds=[None if np.isnan(at) else round(at, 1) for at in seconds],
    )


def to_json(summary: Summary) -> str:
    """The file's text: one line for each field, so that it stays small and changes can be read."""
    fields = [(name, msgspec.json.encode(getattr(summary, name)).decode()) for name in Summary.__struct_fields__]
    fields = [field for field in fields if field not in (("changes", "[]"), ("numbers", "{}"))]
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {value}" for name, value in fields) + "\n}\n"


def choose_path(variant: Variant, config: RunConfig, other_settings: Sequence[str]) -> Path:
    """Where a run's summary belongs: zork3-star-stochastic/xtx/seed-0.json.

    Settings that are not the paper's are part of the agent's name: one value can be read, many are a checksum.
    """
    game = variant.game + "-star" * variant.row.endswith("*")
    game += "-stochastic" * variant.stochastic + "-whole" * variant.is_whole
    agent = config.agent
    if other_settings:
        changed = "+".join(other_settings)
        if len(changed) > 60:
            whole = json.dumps([config.num_envs, asdict(config)["settings"]], sort_keys=True)
            changed = hashlib.blake2b(whole.encode(), digest_size=4).hexdigest()
        agent += f"+{changed}"
    return Path(_make_file_name(game), _make_file_name(agent), f"seed-{config.seed}.json")


def _make_file_name(text: str) -> str:
    return re.sub(r"[^\w.=+-]+", "-", text).strip("-.") or "unnamed"


# --- reading ----------------------------------------------------------------------------------------------------


class _RawConfig(msgspec.Struct):
    """The config of a summary with the keys as they are in the file, maybe those of an earlier version."""

    config: dict[str, Any]


def read_summary(path: Path) -> Summary:
    """The summary in a file. Raises `UserError`, in one line, if there is none in it."""
    try:
        content = read_bounded(path, MAX_JSON_BYTES)
        summary: Summary = decode_json(content, Summary)
        config = decode_json(content, _RawConfig).config
        rename_old_keys(config)
        return msgspec.structs.replace(summary, config=msgspec.convert(config, RunConfig))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except ConfigError as error:
        raise UserError(f"{path} {error}") from None
    except (BadFileError, msgspec.ValidationError) as error:
        raise UserError(f"{path} is damaged, or no summary of a run ({error})") from None
