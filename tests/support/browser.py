"""A headless Chromium, spoken to over its own protocol, and a server of files for its pages.

``RLC_BROWSER`` may name one that is not on the path.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = os.environ.get("RLC_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium on the path, and RLC_BROWSER names none"
)
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
_OPEN = ("--disable-background-networking", "--remote-debugging-port=0")
_DUMP = ("--enable-logging=stderr", "--v=0", "--virtual-time-budget=4000", "--dump-dom")
PATIENCE = 300  # seconds, after which something has gone wrong
_UNTIL = """new Promise((found, lost) => {{
  const look = () => {{
    try {{
      const value = ({0});
      if (value) return found(value);
    }} catch (error) {{ return lost(error); }}
    setTimeout(look, 20);
  }};
  look();
}})"""


class Page:
    """A tab. ``console`` has what its scripts complained of, ``asked`` the addresses it wanted."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.console: list[str] = []
        self.asked: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        self._socket.send(json.dumps(message))
        while True:
            said = json.loads(self._socket.recv(timeout=PATIENCE))
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self._note(said["method"], said["params"])

    def _note(self, event: str, said: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.console.append(details.get("exception", details).get("description", str(details)))
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.console.append(json.dumps(said["args"]))
        elif event == "Log.entryAdded":
            self.console.append(json.dumps(said["entry"]))
        elif event == "Network.requestWillBeSent":
            self.asked.append(said["request"]["url"])

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or of its promise."""
        options = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        result = self.call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression: str) -> Any:
        """Return the value of an expression as soon as it is true."""
        return self.evaluate(_UNTIL.format(expression))

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """Press a key that is no letter."""
        for event in ("rawKeyDown", "keyUp"):
            named = {"type": event, "key": key, "code": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", **named)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Show the page at a size, light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


def told_by(page: str, folder: Path) -> dict[str, Any]:
    """Open a page in a browser with its profile in a folder. Return what the page's own script has
    written, as JSON, into its element ``told``; fail on anything on the console."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(BROWSER), *_FLAGS, *_DUMP, profile, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<pre id="told">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    told: dict[str, Any] = json.loads(html.unescape(found[1]))
    return told


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start a browser with its profile in a folder, and yield its tab."""
    from websockets.sync.client import connect

    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(BROWSER), *_FLAGS, *_OPEN, profile, "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr
        assert said is not None
        address = next(line for line in said if "listening on ws://" in line).split()[-1]
        rest = threading.Thread(target=said.read)  # it would wait if nobody read
        rest.start()
        try:
            with connect(address, max_size=None) as socket:
                target = _first_tab(socket)
            tab = f"{address.partition('/devtools/')[0]}/devtools/page/{target}"
            with connect(tab, max_size=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            rest.join()


def _first_tab(socket: ClientConnection) -> str:
    socket.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
    found = json.loads(socket.recv(timeout=PATIENCE))["result"]["targetInfos"]
    return next(str(target["targetId"]) for target in found if target["type"] == "page")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder on this machine, and yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
