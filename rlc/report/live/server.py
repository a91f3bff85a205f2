"""A server of one page, with Python's own: a page needs no more, and then the base install has it.

The page asks for itself again every two seconds; where nothing has changed the answer is 304.
Plain requests go through any proxy or tunnel, and a server that comes back is asked again by
itself, so there is no stream of events that either side would have to keep open.
"""

from __future__ import annotations

import base64
import hmac
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rlc.errors import Error
from rlc.report.live.watched import Watched
from rlc.version import __version__

_LOCAL = ("127.0.0.1", "localhost", "[::1]")  # what a browser may call this machine


class PageServer(ThreadingHTTPServer):
    """Serves a page on a listening socket. With a ``key`` it asks for it as a password; without
    one it answers only to names of this machine, so that no page of elsewhere can read it."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, watched: Watched, key: str | None = None) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.watched = watched
        self.key = key

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 60.0  # of a connection on which nothing is asked

    def do_GET(self) -> None:
        if self.server.key is not None:
            if not self._has_key(self.server.key):
                asked = {"WWW-Authenticate": 'Basic realm="rlc watch: the key is the password"'}
                return self._answer(401, b"the key in RLC_SERVE_KEY is the password\n", **asked)
        elif self.headers.get("Host", "").rpartition(":")[0] not in _LOCAL:
            return self._answer(403, b"ask for 127.0.0.1 or localhost\n")
        if self.path.partition("?")[0] != "/":
            return self._answer(404, b"there is one page, at /\n")
        try:
            made = self.server.watched.page()
        except Error as error:
            return self._answer(503, f"{error.message}\n".encode())
        tag = f'"{made.version}"'
        if self.headers.get("If-None-Match") == tag:
            return self._answer(304, b"", ETag=tag)
        return self._answer(200, made.html, "text/html; charset=utf-8", ETag=tag)

    do_HEAD = do_GET

    def _has_key(self, key: str) -> bool:
        """Whether the request has the key as the password of any user."""
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        try:
            password = base64.b64decode(given, validate=True).partition(b":")[2]
        except ValueError:
            return False
        return kind.lower() == "basic" and hmac.compare_digest(password, key.encode())

    def _answer(
        self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", **headers: str
    ) -> None:
        self.send_response(status)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            **headers,
        }.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return f"rlc/{__version__}"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal has the address."""
