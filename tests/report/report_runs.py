"""Run folders written by hand, for tests of what reports make of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xtx.config.settings import DrrnSettings, RunConfig, make_xtx_settings
from xtx.core import EpisodeRecord
from xtx.report.data.game_facts import GameFacts, RewardEvent
from xtx.report.data.load_runs import find_runs, read_runs
from xtx.report.data.run_groups import Board, group_runs

SETTINGS: dict[str, Any] = {"drrn": asdict(DrrnSettings()), "xtx": asdict(make_xtx_settings())}


def write_run(
    folder: Path,
    scores: list[int],
    *,
    game: str = "zork1",
    agent: str = "xtx",
    seed: int = 0,
    steps: int = 800_000,
    every: int = 100,
    finished: bool = True,
    git: str = "abc",
    torch: str = "2.6",
    searching: dict[str, str] | None = None,
    envs: list[int] | None = None,
    **more: Any,
) -> Path:
    """A run whose episodes have these scores and end every so many steps."""
    settings = more.pop("settings", SETTINGS.get(agent, {}))
    config = RunConfig(game=game, agent=agent, settings=settings, seed=seed, steps=steps, **more)
    best, lines = -10_000, []
    for number_, score in enumerate(scores, start=1):
        record = score > best
        best = max(best, score)
        lines.append(
            EpisodeRecord(
                episode=number_,
                step=number_ * every,
                game=envs[number_ - 1] if envs else number_ % config.num_envs,
                score=score,
                peak=max(0, score),
                length=every,
                ended="died" if number_ % 4 else "limit",
                seed=12,
                record=record,
                actions=["open <b>mailbox</b>", "read leaflet"] if record else [],
            )
        )
    start: dict[str, Any] = {
        "started": "2001-09-09T01:46:40+0000",
        "python": "3.11",
        "packages": {"torch": torch},
        "git": git,
    }
    start |= {"searching": searching} if searching is not None else {}
    write_folder(folder, config, lines, steps if finished else len(scores) * every, start, pace=100)
    ways = [("West of House", "north", "North of House"), ("North of House", "south", "West of House"),
            ("North of House", "east", "Behind House"), ("Behind House", "open window", "Kitchen <b>")]  # fmt: skip
    moves = [{"step": 8 ** (n + 1), "origin": a, "action": b, "target": c} for n, (a, b, c) in enumerate(ways)]
    write_lines(folder, "rooms", moves[: 2 + seed])
    return folder


def write_folder(
    folder: Path, config: RunConfig, episodes: list[EpisodeRecord], reached: int, start: dict[str, Any], pace: int
) -> None:
    """The files of a run that came to a step, at so many steps a second; all but those that speak of the game."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(asdict(config)))
    write_lines(folder, "episodes", [asdict(episode) for episode in episodes])
    marks = [reached // 4 * part for part in (1, 2, 3, 4)]
    write_lines(folder, "metrics", [{"step": step, "episodes": 0, "score_mean": 0.0} for step in marks])
    write_lines(folder, "timing", [{"step": step, "time": 1_000_000_000 + step / pace} for step in marks])
    (folder / "versions.json").write_text(json.dumps([start]))
    (folder / "checkpoints" / f"{reached:010d}").write_bytes(b"")


def write_lines(folder: Path, name: str, lines: list[dict[str, Any]]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


FACTS = GameFacts(
    "zork1",
    350,
    (RewardEvent(2, 5, "north"), RewardEvent(9, 40, "take egg"), RewardEvent(20, 350, "win")),
    20,
    (6.7, 11),
)


def facts(config: RunConfig) -> GameFacts | None:
    return FACTS if config.game == "zork1" else None


def read_board(folder: Path) -> Board:
    runs, failed = read_runs(find_runs([folder]))
    return group_runs(runs, failed, facts)
