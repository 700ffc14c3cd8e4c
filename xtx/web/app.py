"""The web application: the page, the stream of its changes, and the files of runs as they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from xtx.report.formats import html
from xtx.report.formats.html import HOW_TO, Piece, make_page
from xtx.report.pages.build import Page
from xtx.web.live_panels import FILES, make_key
from xtx.web.run_watcher import PAGE_SIZE, PageSnapshot, Watcher

HERE = Path(__file__).parent
LOOK_EVERY = 1.0
"""Seconds between two looks."""
QUIET_SECONDS = 15.0
"""Seconds after which a stream without news says that it is still there."""
MAX_STREAMS = 100
FEW_STREAMS, TURN_SECONDS = 5, 10.0
"""A browser has six connections to a server. While there are more streams than `FEW_STREAMS`, each ends after
`TURN_SECONDS`, and the browser comes back for more when another tab had its turn."""
BLOCK = 1 << 16


class Hub:
    """Reads the runs once for all connected browsers; without any it reads nothing."""

    def __init__(self, watcher: Watcher, stopping: Callable[[], bool]) -> None:
        self.watcher = watcher
        self.stopping = stopping
        self.streams = 0
        self._pages: Counter[int] = Counter()
        """Streams by the page that they are of."""
        self._news = asyncio.Event()
        """Is set, and another one put in its place, when there is something new."""
        self._looking = asyncio.Lock()
        self._looked: dict[int, float] = {}

    async def look(self, page: int = 1) -> PageSnapshot:
        """A page as it was at most a second ago."""
        async with self._looking:
            if time.monotonic() - self._looked.get(page, -LOOK_EVERY) >= LOOK_EVERY:
                before = self.watcher.get_snapshot(page)
                if await asyncio.to_thread(self.watcher.look, page) is not before:
                    self._news.set()
                    self._news = asyncio.Event()
                self._looked[page] = time.monotonic()
        return self.watcher.get_snapshot(page)

    async def run(self) -> None:
        """Looks every second, as long as a browser is connected."""
        while True:
            for number in [number for number, streams in self._pages.items() if streams > 0]:
                await self.look(number)
            await asyncio.sleep(LOOK_EVERY)

    async def stream_messages(self, version: int, page: int = 1) -> AsyncIterator[str]:
        """What happens from a version of the page on, as server-sent events."""
        began = said = time.monotonic()
        self.streams += 1
        self._pages[page] += 1
        try:
            yield "retry: 1000\n\n"
            while not self.stopping() and not (self.streams > FEW_STREAMS and time.monotonic() - began > TURN_SECONDS):
                news, snapshot = self._news, self.watcher.get_snapshot(page)
                if snapshot.version != version:
                    changed = snapshot.list_changes(version)
                    kind, data = ("again", {}) if changed is None else ("pieces", changed)
                    name = self.format_version(snapshot.version, page)
                    yield f"id: {name}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
                    version, said = snapshot.version, time.monotonic()
                elif time.monotonic() - said > QUIET_SECONDS:
                    yield ": nothing new\n\n"
                    said = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), LOOK_EVERY)
        finally:
            self.streams -= 1
            self._pages[page] -= 1

    def format_version(self, version: int, page: int = 1) -> str:
        """A version of a page as browsers know it."""
        return f"{self.watcher.start}-{page}-{version}"

    def parse_version(self, name: str) -> tuple[int, int]:
        """The version and the page of that name; -1 if it is not one of ours, so that all is read again."""
        start, _, rest = name.partition("-")
        page, _, version = rest.partition("-")
        known = start == self.watcher.start and all(
            n.isdecimal() and n.isascii() and len(n) < 12 for n in (page, version)
        )
        return (int(version), self.choose_page(page)) if known else (-1, 1)

    def choose_page(self, page: str) -> int:
        """The number of a page that there is, for what was asked for: the first for anything else."""
        known = page.isascii() and page.isdecimal() and len(page) < 12
        last = Page(1, PAGE_SIZE).count(len(self.watcher.folders))
        return int(page) if known and 1 <= int(page) <= last else 1


def make_app(watcher: Watcher, stopping: Callable[[], bool] = lambda: False) -> Starlette:
    """The application, without its guard. `stopping` says whether streams are to end."""
    hub = Hub(watcher, stopping)

    async def answer_home(request: Request) -> Response:
        if not watcher.folders:
            await hub.look()  # so that it is known how many pages there are
        page_number = hub.choose_page(request.query_params.get("page", "1"))
        snapshot, nonce = await hub.look(page_number), secrets.token_urlsafe(16)
        allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'"
        policy = f"{allowed}; base-uri 'none'; form-action 'none'"
        state = f'<p id="live" class="soft" data-version="{hub.format_version(snapshot.version, page_number)}">…</p>\n'
        look = f"<style>\n{(HERE / 'live.css').read_text('utf-8')}</style>\n"
        scripts = [path.read_text("utf-8") for path in (html.HERE / "page.js", HERE / "live.js")]
        pieces = [Piece(look + state), *snapshot.pieces]
        text = make_page(snapshot.document, pieces, policy, scripts, f"Shown by xtx watch. {HOW_TO}", nonce)
        return HTMLResponse(
            text.encode("utf-8", "backslashreplace"),
            headers={"content-security-policy": f"{policy}; frame-ancestors 'none'"},
        )

    async def answer_events(request: Request) -> Response:
        if hub.streams >= MAX_STREAMS:
            return PlainTextResponse("too many look on already\n", 503)
        last = request.headers.get("last-event-id") or request.query_params.get("since", "")
        return StreamingResponse(hub.stream_messages(*hub.parse_version(last)), media_type="text/event-stream")

    async def answer_file(request: Request) -> Response:
        run, name = request.path_params["run"], request.path_params["name"]
        folder = next((folder for folder in watcher.folders if make_key(folder) == run), None)
        found = await asyncio.to_thread(_open, folder, name) if folder is not None and name in FILES else None
        if found is None:
            return PlainTextResponse("there is no such file of a run\n", 404)
        return StreamingResponse(_read_blocks(found), media_type="text/plain; charset=utf-8")

    async def answer_icon(request: Request) -> Response:
        return Response(status_code=204)

    @contextlib.asynccontextmanager
    async def run_lifespan(app: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(hub.run())
        yield
        looking.cancel()

    routes = [
        Route("/", answer_home),
        Route("/events", answer_events),
        Route("/runs/{run}/{name}", answer_file),
        Route("/favicon.ico", answer_icon),
    ]
    return Starlette(routes=routes, lifespan=run_lifespan)


def _open(folder: Path, name: str) -> int | None:
    """A file in a run's folder, opened; None if it is not there, or if its name leads to somewhere else."""
    try:
        found = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        return None
    return found


def _read_blocks(descriptor: int) -> Iterator[bytes]:
    """What is in a file now; what is added meanwhile is left for the next time."""
    with os.fdopen(descriptor, "rb") as file:
        left = os.fstat(descriptor).st_size
        while left > 0 and (block := file.read(min(BLOCK, left))):
            left -= len(block)
            yield block
