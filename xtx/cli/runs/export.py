"""`xtx export`: episodes as data for other programs; docs/exporting.md says what is in a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from rich.console import Console
from rich.progress import track
from tyro.conf import Positional, arg

from xtx.cli.option_numbers import check_seed
from xtx.cli.runs.agent_loading import PlayOptions, Which, load_agent, read_records, read_state, set_up_game_of
from xtx.config.bounds import check_least
from xtx.core import EpisodeRecord, Observation, UserError, warn
from xtx.files.user_paths import open_output
from xtx.runs.run_config import read_config

if TYPE_CHECKING:
    from xtx.games.game_setup import GameSetup
    from xtx.training.evaluation import PlayedEpisode


@dataclass(frozen=True)
class Args:
    """Writes episodes with all that was seen, what could be done and what was done: one episode in each line, as JSON.

    A run keeps the actions of the episodes that were better than all before them. Those are played again; with --play,
    the trained agent also plays new ones.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    out: Annotated[Path, arg(metavar="FILE")]
    """The file to write."""
    episodes: Annotated[int | None, arg(metavar="N")] = None
    """Only the N best of the run's record episodes; 0 for none of them."""
    play: Annotated[int, arg(metavar="N")] = 0
    """Also let the agent, which no longer learns, play so many new episodes."""
    checkpoint: Which = "newest"
    """Which state of the agent plays them: the last one, or the one at its best mean score."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """For new episodes of stochastic runs: another number gives other games, never those of the training."""
    options: Annotated[PlayOptions, arg(name="")] = field(default_factory=PlayOptions)


def run(args: Args) -> int:
    """0, or 130 if Ctrl-C stopped it."""
    args.options.check()
    check_least(args, episodes=0, play=0)
    check_seed(args.seed)
    read_config(args.run)
    records = read_records(args.run) if args.episodes != 0 else []
    records = records[-args.episodes :] if args.episodes else records
    if not records and not args.play:
        raise UserError("there is nothing to write; leave out --episodes 0, or add --play N")
    console = Console(highlight=False, markup=False, emoji=False)
    written = 0
    with open_output(args.out, bit_by_bit=True) as file:
        try:
            for line in _make_lines(args, records, console):
                _write(file, line)
                written += 1
        except KeyboardInterrupt:
            console.print(f"xtx: interrupted; {written} whole episodes are in {args.out}", soft_wrap=True)
            return 130
    console.print(f"{written} {'episode' if written == 1 else 'episodes'} written to {args.out}", soft_wrap=True)
    return 0


def _make_lines(args: Args, records: list[EpisodeRecord], console: Console) -> Iterator[dict[str, Any]]:
    """The episodes, as they will be written."""

    def show_progress(episodes: Any, what: str, total: int) -> Any:
        return track(episodes, what, total, console=console, transient=True, disable=not console.is_terminal)

    if records:
        yield from show_progress(_list_records(args, records), "records", len(records))
    if args.play:
        yield from show_progress(_play_new(args), "new episodes", args.play)


def _list_records(args: Args, records: list[EpisodeRecord]) -> Iterator[dict[str, Any]]:
    """Record episodes, played again. One that comes out otherwise is left out."""
    from xtx.games.vector.game_vector import GameVector
    from xtx.training.evaluation import replay

    config = read_config(args.run)
    state = read_state(args.run)
    forbidden = state["forbidden"] if state is not None else []
    game_setup = set_up_game_of(config, args.options)
    with GameVector(game_setup.spec, 1, game_setup.count_workers(args.options.workers), forbidden=forbidden) as games:
        for record in records:
            played = replay(games, record.episode, record.seed, record.actions)
            if played.score != record.score or len(played.steps) != record.length:
                warn(
                    f"episode {record.episode} gave {record.score} points in the run and {played.score} now, so it is "
                    "left out: the story or the emulator is not the one of the run"
                )
                continue
            yield _make_episode(played, game_setup, config.agent, "record")


def _play_new(args: Args) -> Iterator[dict[str, Any]]:
    """Episodes that the agent plays now."""
    from xtx.training.evaluation import draw_evaluation_seeds, play

    loaded = load_agent(args.run, args.checkpoint, args.options)
    with loaded.open_vector(min(loaded.config.num_envs, args.play), args.options.workers) as games:
        seeds = draw_evaluation_seeds(loaded.config, games.walkthrough_seed, loaded.seeds_drawn, args.seed)
        for played in play(loaded.agent, games, seeds, args.play):
            yield _make_episode(played, loaded.game_setup, loaded.config.agent, "new")


def _make_episode(played: PlayedEpisode, game_setup: GameSetup, agent: str, source: str) -> dict[str, Any]:
    return {
        "game": game_setup.name,
        "agent": agent,
        "source": source,
        "episode": played.number,
        "seed": played.seed,
        "score": played.score,
        "max_score": game_setup.max_score,
        "ended": played.ended,
        "steps": [
            {
                "observation": _encode_seen(step.before),
                "actions": list(step.before.actions),
                "action": step.decision.action,
                "phase": step.decision.phase,
                "reward": step.after.reward,
            }
            for step in played.steps
        ],
        "end": _encode_seen(played.last.observation),
    }


def _encode_seen(observation: Observation) -> dict[str, str | int]:
    return {name: getattr(observation, name) for name in ("text", "look", "inventory", "score", "step")}


def _write(file: TextIO, line: dict[str, Any]) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    file.flush()  # so that whole lines are there whatever happens next
