"""`xtx watch`: runs in a browser, while they go on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from xtx.cli.runs.report import GameFactsReader
from xtx.cli.runs.report_replays import Replays
from xtx.core import UserError, warn
from xtx.report.pages.by_run import FindTurns
from xtx.web.request_guard import is_loopback


@dataclass(frozen=True)
class Args:
    """Shows runs in a browser while they go on: curves and maps that grow, what is played at this moment, and all that
    a report has. Nothing is written, and only this machine can look, unless --host says otherwise. Ctrl-C ends it."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...")]
    """Folders of runs, or folders in which runs are or will be."""
    port: int = 8500
    """Where the server listens; 0 for any port that is free."""
    host: str = "127.0.0.1"
    """Address at which it listens. With any other than this machine's own, other machines can read the runs."""
    no_walkthroughs: bool = False
    """Do not open the games; then there is no progress along their walkthroughs."""


def run(args: Args) -> int:
    """0 when it was ended."""
    if not args.runs:
        raise UserError("give the folder of a run, or one with runs in it")
    for path in args.runs:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder; give the folder of a run, or one with runs in it")
    if not 0 <= args.port < 65536:
        raise UserError(f"--port takes a number from 0 to 65535, not {args.port}")
    try:
        from xtx.web.server import bind, serve
    except ImportError:
        raise UserError("the live view is not installed; install the extra: pip install 'xtx[web]'") from None
    from xtx.web.run_watcher import Watcher

    finder = GameFactsReader(opens_games=not args.no_walkthroughs)
    with bind(args.host, args.port) as listening:
        port = listening.getsockname()[1]
        name = f"[{args.host}]" if ":" in args.host else args.host
        if not is_loopback(args.host):
            warn(f"every machine with access to {name} can read these runs; there is no password")

        def begin() -> None:
            console = Console(highlight=False, markup=False, emoji=False)
            console.print(f"open http://{name}:{port} in a browser; Ctrl-C ends this", soft_wrap=True)

        with contextlib.closing(Replays()) as replays:
            # A run under way has a new best episode every moment, and its newest one is shown anyway.
            shows_turns = not args.no_walkthroughs
            find_turns: FindTurns = lambda run: replays.find(run) if run.finished and shows_turns else ()  # noqa: E731
            serve(Watcher(args.runs, finder.find, find_turns), listening, args.host, begin)
    return 0
