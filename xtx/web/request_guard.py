"""Which requests are answered. The page shows files of this machine, so a request must name this machine.

A web page elsewhere cannot read answers of another origin, unless its own name is made to lead here (DNS rebinding):
then the browser still sends that name as Host, and so it is refused. A bare address cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server at that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_host(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


class Guard:
    """Passes on to another application what may be asked, and answers the rest in a line."""

    def __init__(self, app: App, bound: str) -> None:
        """`bound` is the address at which the server listens."""
        self._app = app
        self._open = not is_loopback(bound)
        own = {socket.gethostname().lower(), socket.getfqdn().lower()} if self._open else set()
        self._names = LOOPBACK | own | {bound.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None
        refusal = self._find_refusal(scope["method"], list(scope["headers"]))
        if refusal:
            return await _answer(send, *refusal)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        return await self._app(scope, receive, send_guarded)

    def _find_refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Status and reason, if the request is none of ours."""
        known: dict[bytes, list[str]] = {}
        for name, value in headers:
            known.setdefault(name.lower(), []).append(value.decode("latin-1"))
        hosts = known.get(b"host", [])
        if len(hosts) != 1 or not self._knows(read_host(hosts[0])):
            return 421, "this is not the server for that name; ask for 127.0.0.1, or give the name with --host"
        if method not in ("GET", "HEAD"):
            return 405, "there is nothing to write here"
        site, mode = known.get(b"sec-fetch-site", ["none"])[0], known.get(b"sec-fetch-mode", ["navigate"])[0]
        if site in ("cross-site", "same-site") and mode != "navigate":
            return 403, "pages of other servers get nothing from here"
        return None

    def _knows(self, host: str) -> bool:
        if host in self._names:
            return True
        if not self._open:
            return False
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


async def _answer(send: Send, status: int, words: str) -> None:
    body = f"{words}\n".encode()
    kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *HEADERS]})
    await send({"type": "http.response.body", "body": body})
