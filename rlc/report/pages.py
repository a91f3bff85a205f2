"""The page about some folders, made once, or served on this machine while runs go on."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from rlc.errors import Error
from rlc.plan import JOURNAL_FILE, PLAN_FILE
from rlc.report.episodes import StepEpisodes
from rlc.report.formatting import render
from rlc.report.side_by_side import folders_of
from rlc.runtime import FAILURES_FILE, METRICS_FILE, TIMELINE_FILE, is_run, version_of
from rlc.service import is_local_host
from rlc.sweeps import SWEEP_FILE, TRIALS, is_sweep, runs_in
from rlc.version import __version__

# What is written at each step. A journal's newest pages are in the file beside it.
_FILES = (
    *(PLAN_FILE, JOURNAL_FILE, f"{JOURNAL_FILE}-wal", SWEEP_FILE, f"{SWEEP_FILE}-wal"),
    *(METRICS_FILE, TIMELINE_FILE, FAILURES_FILE),
)
_REST = 4.0  # at least so many times as long as it took to make a page nothing is made


@frozen
class RenderedPage:
    """A page, and the version of the folders that it was rendered from."""

    version: str
    html: bytes


@define
class WatchedPage:
    """The page about the runs in ``roots``, also new ones. ``clock`` counts seconds. New
    ``folders`` come last, so that each run keeps its letter."""

    roots: Sequence[Path]
    clock: Callable[[], float] = time.monotonic
    folders: Sequence[Path] = field(default=(), init=False)
    _episodes: StepEpisodes | None = None
    _made: RenderedPage | None = None
    _rests_until: float = 0.0
    _lock: threading.Lock = field(factory=threading.Lock)

    def page(self) -> RenderedPage:
        """Return the page as it is now, or was a short while ago if it takes long to render. Raise
        RunError if the folders cannot be read."""
        with self._lock:
            # Folders without a run are watched until there is one.
            begun = [p for p in self.roots if not p.is_dir() or is_sweep(p) or runs_in(p)]
            there = shown_folders(begun) if begun else []
            kept = [folder for folder in self.folders if folder in there]
            self.folders = kept + [folder for folder in there if folder not in kept]
            version = version_of_all(self.folders)
            began = self.clock()
            if self._made is None or (version != self._made.version and began >= self._rests_until):
                alone = self.folders[0] if len(self.folders) == 1 else None
                if alone is not None and (self._episodes is None or self._episodes.folder != alone):
                    self._episodes = StepEpisodes(alone)
                page = page_html(self.folders, live=True, found=self._episodes)
                self._made = RenderedPage(version, page.encode())
                now = self.clock()
                self._rests_until = now + _REST * (now - began)
            return self._made


def version_of_all(folders: Sequence[Path]) -> str:
    """Return a text that changes when a run, or a trial of a sweep, goes on, begins or ends."""
    parts = [p for folder in folders for p in (folder, *sorted((folder / TRIALS).glob("*")))]
    versions = [(str(part), version_of(part, _FILES)) for part in parts]
    return hashlib.sha256(repr(versions).encode()).hexdigest()[:24]


class PageServer(ThreadingHTTPServer):
    """Serves a page on a listening socket. A ``key`` is the password; without one it answers only
    to names of this machine, so that no page of another host can read it."""

    daemon_threads = True

    def __init__(
        self, listening: socket.socket, watched: WatchedPage, key: str | None = None
    ) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.watched = watched
        self.key = key

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that go away in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 60.0  # of a connection on which nothing is asked

    def do_GET(self) -> None:
        if self.server.key is not None:
            if not self._has_key(self.server.key):
                realm = {"WWW-Authenticate": 'Basic realm="rlc watch: the key is the password"'}
                return self._answer(401, b"the key in RLC_SERVE_KEY is the password\n", **realm)
        elif not is_local_host(self.headers.get("Host", "")):
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
        """Return whether the request has the key as the password of any user."""
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        try:
            password = base64.b64decode(given, validate=True).partition(b":")[2]
        except ValueError:
            return False
        return kind.lower() == "basic" and hmac.compare_digest(password, key.encode())

    def _answer(
        self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", **headers: str
    ) -> None:
        headers = {
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            **headers,
        }
        if status != 304:
            headers |= {"Content-Type": kind, "Content-Length": str(len(body))}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return f"rlc/{__version__}"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal has the address."""


def shown_folders(roots: Sequence[Path]) -> list[Path]:
    """Return the folders for a page about ``roots``: the sweep, if it is one alone, or all runs,
    also those in folders and sweeps. Raise RunError if there are none."""
    if len(roots) == 1 and (is_sweep(roots[0]) or is_run(roots[0]) or not roots[0].is_dir()):
        return list(roots)
    return folders_of(roots)


def page_html(
    folders: Sequence[Path], live: bool = False, found: StepEpisodes | None = None
) -> str:
    """Return the page about what :func:`shown_folders` found, or that there is nothing yet. The
    episodes of a single run are read on from those that were ``found`` before. Raise RunError if a
    folder cannot be read."""
    if not folders:
        return render(None, "none.html.j2", live)
    if len(folders) > 1:
        from rlc.report.side_by_side import runs_html

        return runs_html(folders, live)
    if is_sweep(folders[0]):  # which needs packages that runs do without
        from rlc.report.sweep_page import sweep_html

        return sweep_html(folders[0], live)
    from rlc.report.run_page import run_html

    return run_html(folders[0], live, found)
