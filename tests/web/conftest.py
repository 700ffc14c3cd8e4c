"""A real browser, told what to do through a pipe (Chrome DevTools Protocol), so that no library is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from xtx.config.settings import RunConfig


class Browser:
    """Chromium without a window."""

    def __init__(self, profile: Path) -> None:
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()

        def connect() -> None:
            # Over spare numbers, so that the second does not overwrite what the first is copied from.
            spare = os.dup2(to_child, 100), os.dup2(from_child, 101)
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        self._process = subprocess.Popen(
            ["chromium", *options, "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe"],
            close_fds=False, preexec_fn=connect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._number = 0
        self.pages: dict[str, Page] = {}

    def call(self, method: str, session: str = "", **params: Any) -> Any:
        """What the browser answers."""
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": params,
            **({"sessionId": session} if session else {}),
        }
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], seconds)
            assert ready, "the browser does not answer"
            block = os.read(self._read, 1 << 20)
            assert block, "the browser is gone"
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].hear(message)
        return message

    def open(self, url: str, width: int = 1280, height: int = 900, *, dark: bool = False, touch: bool = False) -> Page:
        """A tab of that size."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=url)
        page.until("document.readyState === 'complete'")
        return page

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []
        """What the console was told to complain of."""

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)

    def hear(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.errors.append(json.dumps(params["args"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def evaluate(self, script: str) -> Any:
        """What an expression comes to."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (script, found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, script: str, seconds: float = 30) -> None:
        """Waits for an expression to become true."""
        end = time.monotonic() + seconds
        while not self.evaluate(script):
            assert time.monotonic() < end, f"never became true: {script}; {self.errors}"
            time.sleep(0.1)

    def shot(self, path: Path, *, whole: bool = False) -> None:
        """A picture of it."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if shutil.which("chromium") is None:
        pytest.skip("needs a browser: no program called chromium was found")
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture
def add_run() -> Callable[..., Path]:
    """Writes the folder of a run by hand, or adds episodes with these scores to one."""

    def add(folder: Path, scores: list[int], **config: Any) -> Path:
        if not folder.exists():
            (folder / "checkpoints").mkdir(parents=True)
            asked = RunConfig(
                **{"game": "toy:corridor-5", "agent": "random", "settings": {}, "steps": 10_000, **config}
            )
            (folder / "config.json").write_text(json.dumps(asdict(asked)))
            (folder / "versions.json").write_text("[]")
        (folder / "episodes.jsonl").touch()
        done = (folder / "episodes.jsonl").read_text().count("\n")
        with (folder / "episodes.jsonl").open("a") as file:
            for number, score in enumerate(scores, start=done + 1):
                line = {"episode": number, "step": 80 * number, "game": 0, "score": score, "peak": score, "length": 10}
                line |= {"ended": "died", "seed": 0, "record": number == 1, "actions": ["east"] if number == 1 else []}
                file.write(json.dumps(line) + "\n")
        return folder

    return add
