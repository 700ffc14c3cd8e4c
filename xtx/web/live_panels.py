"""What is going on now: for each run under way how far it is, what is played at this moment, and its map."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from xtx.files.bounded_reads import BadFileError, read_json
from xtx.report.data import statistics
from xtx.report.data.agent_names import shorten_agent
from xtx.report.data.load_runs import RunData
from xtx.report.data.run_groups import FIRST_AGENTS, find_game_name
from xtx.report.formats.html import Piece, make_figure_html, make_transcript_html
from xtx.report.number_format import format_amount, format_count, format_duration, format_number
from xtx.report.pages.by_run import make_learning_figure
from xtx.report.pages.document import Figure
from xtx.report.plots.room_layout import lay_out, make_chart
from xtx.report.plots.room_map import MapPlot
from xtx.runs.viewer_files import EnvState, LiveState

FILES = ("config.json", "versions.json", "metrics.jsonl", "episodes.jsonl", "rooms.jsonl", "timing.jsonl",
         "evaluations.jsonl", "live.json")  # fmt: skip
"""What a run's folder has for readers."""
FRESH = 60.0
"""Seconds after which a run whose live.json stays the same is no longer under way."""
MAX_PANELS = 8
MAX_LIVE_BYTES = 4_000_000
"""Bytes of a live.json that are read: no run writes as many."""


def make_key(folder: Path) -> str:
    """What a run is called in addresses."""
    return hashlib.blake2b(str(folder.resolve()).encode(errors="surrogateescape"), digest_size=6).hexdigest()


def make_panels(runs: Sequence[RunData]) -> list[Piece]:
    """The pieces at the top of the page, newest run first."""
    clock = time.time()
    going = [
        (live.time, run, live) for run in runs if (live := read_live(run.folder)) and abs(clock - live.time) < FRESH
    ]
    going = sorted(going, key=lambda one: (one[1].finished, str(one[1].folder)))  # an order that does not jump about
    pieces = [Piece('<section class="now"><h2 id="now">Now</h2>')]
    if not going:
        pieces.append(Piece("<p>No run is going on at this moment.</p>"))
    for _, run, live in going[:MAX_PANELS]:
        pieces += _make_panel_or_explain(run, live)
    if len(going) > MAX_PANELS:
        pieces.append(Piece(f"<p>And {format_amount(len(going) - MAX_PANELS, 'more run')}.</p>"))
    return [*pieces, Piece("</section>\n")]


def read_live(folder: Path) -> LiveState | None:
    """A run's live.json; None if there is none that can be read."""
    try:
        live: LiveState = read_json(folder / "live.json", LiveState, MAX_LIVE_BYTES)
        return live
    except (OSError, BadFileError):
        return None


def _make_panel_or_explain(run: RunData, live: LiveState) -> list[Piece]:
    """A run's panel, or a line that says why there is none: the other runs are shown whatever its files hold."""
    try:
        return list(_make_panel(run, live))
    except Exception as error:
        return [Piece(f"<p>{escape(f'{run.folder} cannot be shown ({type(error).__name__}: {error})')}</p>")]


def _make_panel(run: RunData, live: LiveState) -> Iterator[Piece]:
    config, name = run.config, f"now-{make_key(run.folder)}"
    title = f"{find_game_name(config.game)} · {shorten_agent(config.agent)} · seed {config.seed}"
    yield Piece(f'<section><h3 id="{name}">{escape(title)}</h3>')
    yield Piece(_format_progress(run, live, f"{name}-progress"), f"{name}-progress")
    yield Piece('<div class="panel">')
    if run.digest.episodes:
        colour = FIRST_AGENTS.index(config.agent) if config.agent in FIRST_AGENTS else len(FIRST_AGENTS)
        figure = make_figure_html(make_learning_figure(run, f"now-{name}", shorten_agent(config.agent), colour))
        yield Piece(f'<div data-piece="{name}-curve">{figure}</div>', f"{name}-curve")
    yield Piece('<div class="playing">')
    yield Piece(_format_envs(run, live, f"{name}-envs"), f"{name}-envs")
    about = f'class="turns follow" data-piece="{name}-turns" tabindex="0" aria-label="what is played"'
    yield Piece(f"<div {about}>{make_transcript_html(live.turns)}</div>", f"{name}-turns")
    yield Piece("</div>")
    if run.moves:
        known = make_chart(run.moves)
        plot = MapPlot(known, lay_out(run.moves), max(move.step for move in run.moves))
        caption = (
            f"{format_amount(len(known.first), 'room')} and {format_amount(len(known.ways), 'way')} found in this run"
        )
        drawn = make_figure_html(Figure(f"map-{name}", plot, caption))
        yield Piece(f'<div data-piece="{name}-map">{drawn}</div>', f"{name}-map")
    links = " · ".join(
        f'<a href="/runs/{make_key(run.folder)}/{file}">{file}</a>' for file in FILES if (run.folder / file).is_file()
    )
    yield Piece(f'</div><p class="soft">{escape(str(run.folder))}: {links}</p></section>\n')


def _format_envs(run: RunData, live: LiveState, name: str) -> str:
    """Which of the environments is read below, and where each of them is."""
    first = live.turns[-1] if live.turns else None
    envs = live.envs or ([EnvState(first.score, first.phase, first.number)] if first else [])
    items = []
    for place, env in enumerate(envs, start=1):
        words = [
            f"{format_count(env.score)} point{'s' * (abs(env.score) != 1)}",
            env.phase or "",
            f"step {format_count(env.number)}",
        ]
        kind = ' class="shown"' if place == 1 else ""
        items.append(f"<li{kind}><b>{place}</b>{''.join(f'<span>{escape(word)}</span>' for word in words)}</li>")
    said = f"Environment 1 of {run.config.num_envs} is read below."
    return f'<div data-piece="{name}"><p class="soft">{said}</p><ol class="envs">{"".join(items)}</ol></div>'


def _format_progress(run: RunData, live: LiveState, name: str) -> str:
    step, steps = min(live.step, run.config.steps), run.config.steps
    words = [f"{format_count(live.step)} of {format_count(steps)} steps"]
    if run.scores.size:
        words.append(f"mean of the last 100 episodes {format_number(statistics.average_score(run.scores))}")
        words.append(f"best {format_count(statistics.find_best_score(run.scores))}")
    if run.speed:
        words.append(f"{format_number(run.speed, 0)} steps/s")
        if step < steps:
            words.append(f"{format_duration((steps - step) / run.speed)} left")
    bar = f'<progress max="{steps}" value="{step}"></progress>'
    return f'<div data-piece="{name}">{bar}<p class="soft">{escape(" · ".join(words))}</p></div>'
