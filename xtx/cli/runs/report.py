"""`xtx report`: runs on one page, beside the paper's figures."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from xtx.cli.runs.report_replays import Replays
from xtx.config.settings import RunConfig
from xtx.core import UserError, warn
from xtx.files.atomic_writes import replace_text
from xtx.files.user_paths import check_output_path, open_output
from xtx.processes.isolated_calls import PATIENCE, Report, call_in_child
from xtx.report.data.game_facts import GameFacts, list_reward_events
from xtx.report.data.load_runs import RunData, Unreadable, find_below, find_runs, read_runs
from xtx.report.data.run_groups import Board
from xtx.report.formats.csv_tables import to_csv
from xtx.report.formats.figure_files import name_figures
from xtx.report.formats.html import to_html
from xtx.report.formats.markdown import to_markdown
from xtx.report.formats.markdown_embed import embed
from xtx.report.number_format import format_amount
from xtx.report.pages.build import TITLE, build, build_brief, make_of_readable
from xtx.report.pages.document import Block, Document
from xtx.report.pages.short_table import build_short
from xtx.report.plots.png_plots import to_png
from xtx.report.plots.svg_plots import make_standalone

ENDINGS = (".html", ".htm", ".md", ".csv")


@dataclass(frozen=True)
class Args:
    """Sets runs beside the paper's tables: scores, learning curves, averages over games with their uncertainty, and
    how far through each game every agent came. One page that needs no network; runs may still be going on."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...")]
    """Folders of runs, or folders with runs in them; files of summaries (`xtx summarise`), or folders with such."""
    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html")
    """The file to write; its ending decides what: .html, .md or .csv."""
    embed: Annotated[Path | None, arg(metavar="FILE")] = None
    """Instead of writing a page: put the report, as tables only, into this Markdown file, between its two lines that
    say where `xtx report` begins and ends. No game is opened, so the text is the same everywhere."""
    short: bool = False
    """With --embed: one table of the agents and games that the paper has, instead of the whole report."""
    title: str = ""
    """Title of the page; if not given, "Runs beside the paper", or "Runs" where the paper has none of the games."""
    figures: Annotated[Path | None, arg(metavar="DIR")] = None
    """Also write every plot into this folder, named by game, agent and seed: as SVG, and as PNG where matplotlib is
    installed (extra `report`). A report in Markdown links them."""
    no_walkthroughs: bool = False
    """Do not open the games; then there is no progress along their walkthroughs, save where summaries know it, and no
    best episode to be read."""


def run(args: Args) -> None:
    """Writes the report and says where it is."""
    if args.short and args.embed is None:
        raise UserError("--short makes a table for --embed FILE; give both, or leave out --short")
    if args.embed is not None:
        return _embed(args, args.embed)
    if args.out.suffix.lower() not in ENDINGS:
        raise UserError(f"--out {args.out}: the ending must be .html, .md or .csv")
    if not args.runs:
        raise UserError("give the folder of a run, or one with runs in it")
    check_output_path(args.out)  # checked now, not after minutes of reading
    runs, failed = _read(find_runs(args.runs))
    finder = GameFactsReader(opens_games=not args.no_walkthroughs)
    with contextlib.closing(Replays()) as replays:
        find_turns = (lambda run: ()) if args.no_walkthroughs else replays.find

        def make(board: Board) -> tuple[Document, str]:
            document = build(board, args.title, find_turns)
            return document, _write_as(args, board, document)

        board, (document, text) = make_of_readable(runs, failed, finder.find, make)
    for line in finder.troubles:
        warn(line)
    _warn_about(board.unreadable[len(failed) :])
    with open_output(args.out) as file:
        file.write(text)
    console = Console(highlight=False, markup=False, emoji=False)
    if args.figures is not None:
        written = _write_figures(args.figures, document.sections)
        lacking = "" if importlib.util.find_spec("matplotlib") else "; for PNG too: pip install 'xtx[report]'"
        console.print(f"{format_amount(written, 'plot')} written to {args.figures}{lacking}", soft_wrap=True)
    console.print(f"{format_amount(len(board.runs), 'run')} in {args.out}", soft_wrap=True)


def _read(paths: Sequence[Path]) -> tuple[list[RunData], list[Unreadable]]:
    """Raises `UserError` if none can be read."""
    runs, failed = read_runs(paths)
    if not runs:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise UserError(f"no run can be read: {failed[0].why}{more}")
    _warn_about(failed)
    return runs, failed


def _warn_about(left_out: Sequence[Unreadable]) -> None:
    for one in left_out:
        warn(f"{one.folder} is left out: {one.why}")


def _embed(args: Args, file: Path) -> None:
    if not args.runs:
        raise UserError("give a folder with summaries or runs in it")
    for path in args.runs:
        if not path.exists():
            raise UserError(f"{path}: there is no such folder; give one with summaries or runs in it")
    embed(file, "")  # a file without marks is refused now, not after minutes of reading
    there = [path for path in args.runs if path.is_file() or any(find_below(path))]
    part, how_many = f"There is no run in {' and '.join(map(str, args.runs))} yet.", 0
    if there:
        runs, failed = _read(find_runs(there))
        board, part = make_of_readable(
            runs,
            failed,
            lambda config: None,
            lambda board: to_markdown(
                build_short(board, args.title or TITLE) if args.short else build_brief(board, args.title), level=2
            ),
        )
        _warn_about(board.unreadable[len(failed) :])
        how_many = len(board.runs)
    try:
        replace_text(file, embed(file, part))
    except OSError as error:
        raise UserError(f"{file} cannot be written ({error.strerror}); name another file with --embed") from None
    Console(highlight=False, markup=False, emoji=False).print(
        f"{format_amount(how_many, 'run')} in {file}", soft_wrap=True
    )


def _write_as(args: Args, board: Board, document: Document) -> str:
    ending = args.out.suffix.lower()
    if ending == ".csv":
        return to_csv(board)
    if ending == ".md":
        plots = Path(os.path.relpath(args.figures, args.out.parent)).as_posix() if args.figures else None
        return to_markdown(document, folder=plots)
    return to_html(document)


def _write_figures(folder: Path, sections: Sequence[Block]) -> int:
    """How many were written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}); give another --figures") from None
    named = name_figures(sections)
    for name, figure in named:
        with open_output(folder / f"{name}.svg", "--figures") as file:
            file.write(make_standalone(figure.svg))
        with contextlib.suppress(ImportError):
            (folder / f"{name}.png").write_bytes(to_png(figure.plot))
    return len(named)


# --- what only the games know -----------------------------------------------------------------------------------


class GameFactsReader:
    """Asks each game once for its maximum and the rewards along its walkthrough."""

    def __init__(self, *, opens_games: bool = True) -> None:
        """`opens_games`: if not, it knows no game."""
        self._opens_games = opens_games
        self.troubles: list[str] = []
        self._known: dict[str, GameFacts | None] = {}

    def find(self, config: RunConfig) -> GameFacts | None:
        """The facts of a run's game; None if the game is not here."""
        if not self._opens_games:
            return None
        if config.game not in self._known:
            try:
                self._known[config.game] = read_facts(config.game)
            except (UserError, OSError, ValueError) as error:  # a game's name may be anything: too long, or with zeros
                self.troubles.append(f"nothing is known of a walkthrough: {error}")
                self._known[config.game] = None
        return self._known[config.game]


def read_facts(game: str) -> GameFacts:
    """What a report wants to know of a game; plays its walkthrough. Raises `UserError` if it is not here."""
    # Not at the top: Jericho takes a second to load, and a wrong folder should be answered at once.
    from xtx.games.catalog.game_statistics import count_steps_between_rewards

    name, maximum, first, actions, scores = _play_toy(game) if game.startswith("toy:") else _play_story(game)
    rewards = [after - before for before, after in zip([first, *scores], scores, strict=False)]
    between = count_steps_between_rewards(rewards)
    return GameFacts(
        name=name,
        maximum=maximum,
        events=list_reward_events(actions, scores, first),
        walkthrough_steps=len(actions),
        between_rewards=(between.mean, between.largest) if between else None,
    )


PlayedWalkthrough = tuple[str, int, int, list[str], list[int]]
"""Name, maximum, score at the beginning, and the walkthrough's actions with the score after each."""


def _play_toy(game: str) -> PlayedWalkthrough:
    from xtx.games.toy_game import MAX_SCORE, ToyGame

    toy = ToyGame(game)
    first = toy.reset().score
    scores = [toy.step(action).observation.score for action in toy.walkthrough]
    return game, MAX_SCORE, first, list(toy.walkthrough), scores


def _play_story(game: str) -> PlayedWalkthrough:
    from xtx.games.catalog.known_games import find_default_game

    played: PlayedWalkthrough = call_in_child(
        play_walkthrough, game or find_default_game(), name=game or find_default_game(), patience=PATIENCE
    )
    return played


def play_walkthrough(report: Report, game: str) -> PlayedWalkthrough:
    """The scores along a game's walkthrough. Called in a process of its own."""
    from xtx.games.catalog.known_games import find_story
    from xtx.games.emulator.frotz import Emulator, Status

    emulator = Emulator(find_story(game))
    try:
        emulator.reset(emulator.bindings.walkthrough_seed)
        first, actions, scores = emulator.score, list[str](), list[int]()
        for command in emulator.bindings.walkthrough:
            if emulator.over or emulator.step(command) in (Status.LIMIT, Status.CRASHED):
                break
            actions.append(command)
            scores.append(emulator.score)
        return emulator.bindings.name, emulator.bindings.max_score, first, actions, scores
    finally:
        emulator.close()
