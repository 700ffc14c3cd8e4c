"""A report as CSV: one line for each run, and one for each agent on each game with the paper's figures beside."""

from __future__ import annotations

import csv
import io
import math

from xtx.report.data.run_groups import Board
from xtx.report.data.statistics import compute_mean_and_std, normalise
from xtx.report.pages.beside_paper import list_comparisons

COLUMNS = (
    "line", "game", "stochastic", "agent", "seed", "seeds", "steps", "finished", "maximum", "avg", "avg_std",
    "avg_by_game", "max", "max_std", "normalised_avg", "area_under_curve", "episodes", "seconds", "paper_avg",
    "paper_avg_std", "paper_max", "paper_max_std", "avg_difference", "max_difference", "folder",
)  # fmt: skip


def to_csv(board: Board) -> str:
    """The table; fields that do not apply are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in [*_list_agents(board), *_list_runs(board)]:
        writer.writerow({name: _format_value(value) for name, value in line.items()})
    return out.getvalue()


def _list_agents(board: Board) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for variant in board.variants:
        for side in list_comparisons(board, variant):
            line: dict[str, object] = {"line": "agent", "game": variant.row, "stochastic": variant.stochastic}
            line |= {"agent": side.label, "maximum": variant.maximum}
            if side.ours:
                (avg, avg_std), (best, best_std) = (
                    compute_mean_and_std(side.ours.avg),
                    compute_mean_and_std(side.ours.max),
                )
                line |= {"seeds": len(side.ours.runs), "steps": side.ours.steps, "finished": side.ours.finished}
                line |= {"avg": avg, "avg_std": avg_std, "max": best, "max_std": best_std}
                line |= {"avg_by_game": compute_mean_and_std(side.ours.avg_by_env)[0]}
                line |= {"normalised_avg": _normalise(avg, variant.maximum)}
                line |= {"area_under_curve": compute_mean_and_std(side.ours.compute_area_at(side.ours.steps))[0]}
                if side.paper:
                    by_env = compute_mean_and_std(side.ours.avg_by_env)[0]  # the authors' definition, so the paper's
                    line |= {"avg_difference": by_env - side.paper.avg, "max_difference": best - side.paper.max}
            if side.paper:
                line |= {"paper_avg": side.paper.avg, "paper_avg_std": side.paper.avg_std}
                line |= {"paper_max": side.paper.max, "paper_max_std": side.paper.max_std}
            lines.append(line)
    return lines


def _list_runs(board: Board) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for group in board.groups:
        for run in (*group.runs, *group.left_out):
            avg, variant = run.digest.avg, group.variant
            lines.append(
                {
                    "line": "run" if run in group.runs else "run, not counted",
                    "game": variant.row,
                    "stochastic": variant.stochastic,
                    "agent": group.label,
                    "seed": run.config.seed,
                    "steps": run.reached,
                    "finished": run.finished,
                    "maximum": variant.maximum,
                    "avg": avg,
                    "avg_by_game": run.digest.avg_by_env,
                    "max": run.digest.max,
                    "normalised_avg": _normalise(avg, variant.maximum),
                    "area_under_curve": run.digest.area,
                    "episodes": run.digest.episodes,
                    "seconds": run.time.total if run.time else None,
                    "folder": run.folder,
                }
            )
    return lines


def _normalise(avg: float, maximum: float | None) -> float | None:
    return float(normalise(avg, maximum)) if maximum else None


def _format_value(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value).lower() if isinstance(value, bool) else value
