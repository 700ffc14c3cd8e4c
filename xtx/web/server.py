"""Serves the live view: an HTTP server on a socket, with uvicorn."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import uvicorn

from xtx.core import UserError
from xtx.web.app import make_app
from xtx.web.request_guard import Guard
from xtx.web.run_watcher import Watcher


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `UserError` if that cannot be."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError, OverflowError) as error:
        raise UserError(f"--host {host}: there is no such address here ({error})") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use; name another with --port (0 for any that is free)") from None
        raise UserError(f"{host}, port {port}: {error.strerror}; name others with --host and --port") from None
    return found


def serve(watcher: Watcher, listening: socket.socket, bound: str, on_start: Callable[[], None]) -> None:
    """Answers requests until the process gets a signal to stop."""
    on_start()
    server: uvicorn.Server | None = None
    app = make_app(watcher, lambda: server is not None and server.should_exit)
    config = uvicorn.Config(
        Guard(app, bound), http="h11", ws="none", loop="asyncio", lifespan="on", log_level="warning", access_log=False,
        proxy_headers=False, server_header=False, timeout_graceful_shutdown=3,
    )  # fmt: skip
    server = uvicorn.Server(config)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn stops in good order, and then passes Ctrl-C on
        return
