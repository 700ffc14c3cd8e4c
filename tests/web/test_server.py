"""The real server: who gets what, and the page in a real browser while a run goes on."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import xtx.web.app
from xtx.cli.main import main
from xtx.web.app import Hub
from xtx.web.live_panels import make_key
from xtx.web.request_guard import Guard, is_loopback, read_host
from xtx.web.run_watcher import Watcher

AddRun = Callable[..., Path]


@contextmanager
def serving(*options: str) -> Iterator[int]:
    """A server, and its port."""
    words = [sys.executable, "-m", "xtx.cli", "watch", "--port", "0", "--no-walkthroughs", *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        said = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+) ", said)
        assert found, (said, process.poll())
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, ""), "Ctrl-C is how it ends"


def ask(port: int, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    try:
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def test_who_gets_what(tmp_path: Path, add_run: AddRun) -> None:
    folder = add_run(tmp_path / "runs" / "a", [1, 2])
    (tmp_path / "secret.json").write_text("secret")
    (folder / "metrics.jsonl").symlink_to(tmp_path / "secret.json")
    run = make_key(folder)
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    with serving(str(tmp_path / "runs")) as port:
        status, headers, page = ask(port)
        assert status == 200 and "Max 2" in page
        nonce = re.search(r"script-src 'nonce-([\w-]+)'", headers["content-security-policy"])
        assert nonce and page.count("<script") == page.count(f'<script nonce="{nonce[1]}"') == 2
        assert headers["x-frame-options"] == "DENY" and headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        for name in ("localhost", "127.0.0.1:9", "[::1]", "LOCALHOST."):
            assert ask(port, Host=name)[0] == 200, name
        for name in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "localhost@evil",
        ):
            status, _, said = ask(port, Host=name)
            assert status == 421 and "Max" not in said, name
        assert ask(port, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
        assert ask(port, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert ask(port, method=method)[0] == 405
        assert json.loads(ask(port, f"/runs/{run}/config.json")[2])["agent"] == "random"
        for path in (
            f"/runs/{run}/metrics.jsonl", f"/runs/{run}/..%2f..%2fsecret.json", f"/runs/{run}/../../secret.json",
            f"/runs/{run}/checkpoints", f"/runs/{run}/lock", "/runs/000000000000/config.json", "/runs/../a/config.json",
            "/secret.json", "//etc/passwd", f"/runs/{run}/%00", f"/runs/{run}//etc/passwd",
        ):  # fmt: skip
            status, _, said = ask(port, path)
            assert status == 404 and "secret" not in said, path
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "nothing is written"


def test_news_come_as_events(tmp_path: Path, add_run: AddRun) -> None:
    folder = add_run(tmp_path / "a", [1, 2])
    with serving(str(tmp_path)) as port:
        version = re.findall(r'data-version="([\w-]+)"', ask(port)[2])[0]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/events?since={version}")
        stream = connection.getresponse()
        assert stream.getheader("content-type", "").startswith("text/event-stream")
        add_run(folder, [77])
        lines: list[str] = []
        while not lines or not lines[-1].startswith("data:"):
            lines.append(stream.readline().decode().rstrip())
        assert lines[-2] == "event: pieces" and "Max 77" in lines[-1]
        connection.close()
        for stranger in ("", "other-3", f"{version}0000", "x" * 5000):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/events", headers={"Last-Event-ID": stranger})
            stream = connection.getresponse()
            assert b"event: again" in b"".join(stream.readline() for _ in range(4)), stranger
            connection.close()


def test_pages_of_runs(tmp_path: Path, add_run: AddRun) -> None:
    for number in range(60):
        add_run(tmp_path / f"run-{number:02}", [number], seed=number)
    with serving(str(tmp_path)) as port:
        second = ask(port, "/?page=2")[2]
        assert "Runs 51 to 60 of 60" in second and "run-59: " in second and "run-00: " not in second
        version = re.findall(r'data-version="([\w-]+)"', second)[0]
        add_run(tmp_path / "run-59", [777])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/events?since={version}")
        stream = connection.getresponse()
        lines: list[str] = []
        while not lines or not lines[-1].startswith("data:"):
            lines.append(stream.readline().decode().rstrip())
        assert lines[-2] == "event: pieces" and "Max 777" in lines[-1], "news of that page"
        connection.close()
        for odd in ("0", "-1", "3", "x", "", "%C2%B2", "9" * 5000, "1&page=2"):
            status, _, said = ask(port, f"/?page={odd}")
            assert status == 200 and "Runs " in said, odd


def test_streams_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser has six connections to a server; those that wait must get theirs some time."""
    monkeypatch.setattr(xtx.web.app, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(xtx.web.app, "TURN_SECONDS", 0.2)

    async def read(hub: Hub, others: int) -> int:
        hub.streams = others
        told = 0
        async with asyncio.timeout(1):
            async for _ in hub.stream_messages(0):
                told += 1
        assert hub.streams == others
        return told

    async def both() -> None:
        hub = Hub(Watcher([tmp_path], lambda config: None), lambda: False)
        assert await read(hub, 6) == 1
        with pytest.raises(TimeoutError):
            await read(hub, 1)

    asyncio.run(both())


def test_what_the_user_can_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def complaint(*words: str) -> str:
        assert main(["watch", *words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    assert "there is no such folder" in complaint(str(tmp_path / "nowhere"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in complaint(str(tmp_path), "--port", str(port))
    assert "--port takes a number" in complaint(str(tmp_path), "--port", "99999")
    assert "no such address" in complaint(str(tmp_path), "--host", "no.such.host.invalid")
    for name in ("xtx.web.server", "xtx.web.app", "uvicorn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'xtx[web]'" in complaint(str(tmp_path))


def test_names_of_hosts() -> None:
    assert [read_host(name) for name in ("a.b:80", "[::1]:80", "[::1]", "A.B.", "127.0.0.1")] == [
        "a.b", "::1", "::1", "a.b", "127.0.0.1",
    ]  # fmt: skip
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost") and is_loopback("127.9.9.9")
    assert not is_loopback("0.0.0.0") and not is_loopback("192.168.1.5") and not is_loopback("box")
    app: Any = None
    everywhere, box = Guard(app, "0.0.0.0"), Guard(app, "box.lan")
    assert everywhere._knows("192.168.1.5") and everywhere._knows(socket.gethostname().lower())
    assert not everywhere._knows("evil.example") and box._knows("box.lan") and not box._knows("evil.example")


# --- in a browser -----------------------------------------------------------------------------------------------


@contextmanager
def training(folder: Path) -> Iterator[None]:
    """A run in progress, in another process."""
    words = [
        "train",
        "toy:corridor-9",
        "--agent",
        "random",
        "--steps",
        "100000000",
        "--num-envs",
        "2",
        "--out",
        str(folder),
    ]
    more = ["--threads", "1", "--workers", "0", "--log-every", "50", "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "xtx.cli", *words, *more], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


ROOMS = "document.querySelectorAll('.now .room').length"


def test_a_run_is_watched(browser: Any, tmp_path: Path, add_run: AddRun) -> None:
    """Curve, transcript and map grow; what is open and zoomed stays so; tabs beyond a browser's six are served; and
    when the folder is deleted, the page says so."""
    add_run(tmp_path / "runs" / "finished", list(range(40)), steps=3200)
    with serving(str(tmp_path / "runs")) as port:
        page = browser.open(f"http://127.0.0.1:{port}/")
        page.until("document.getElementById('live').className.includes('on')")
        with training(tmp_path / "runs" / "going"):
            page.until(f"{ROOMS} > 3", 60)
            first = page.evaluate("document.querySelector('.turns').textContent")
            page.until("document.querySelectorAll('[data-name^=training-]').length === 2")
            page.until("document.querySelectorAll('.now [data-plot], .envs .shown').length === 2", 60)
            for what in (".now [data-plot]", ".envs .shown"):  # curve and current game are on the first screen
                assert page.evaluate(f"document.querySelector('{what}').getBoundingClientRect().bottom < innerHeight")
            newest = '[data-name="training-toy:corridor-9"]'
            page.evaluate("document.querySelector('#runs').nextElementSibling.open = true")
            page.evaluate(f"""zoom(document.querySelector('{newest} svg'), [0, 50])""")
            before = page.evaluate(f"JSON.parse(document.querySelector('{newest} svg').dataset.plot).frame[5]")
            page.until(f"JSON.parse(document.querySelector('{newest} svg').dataset.plot).frame[5] > {before}", 60)
            page.until(f"document.querySelector('.turns').textContent !== {json.dumps(first)}")
            assert page.evaluate(f"document.querySelector('{newest}').classList.contains('zoomed')")
            assert page.evaluate("document.querySelector('#runs').nextElementSibling.open")
            tabs = [browser.open(f"http://127.0.0.1:{port}/") for _ in range(8)]
            for tab in (*tabs, page):
                tab.call("Page.bringToFront")
                tab.until("document.getElementById('live').className.includes('on') && !document.hidden")
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        shutil.rmtree(tmp_path / "runs" / "going")
        page.until("document.body.textContent.includes('No run is going on')", 60)
        page.until("document.querySelectorAll('[data-name^=training-]').length === 1")
        assert wide <= 0 and page.errors == []
        for tab in tabs:
            assert tab.errors == []
            tab.call("Page.close")
